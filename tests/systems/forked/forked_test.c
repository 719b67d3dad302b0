/* A thread connects, or closes a connection, while the process forks, and the number of a descriptor that was just
 * closed already belongs to a file of the application. The child closes its copies of the connections and nothing else.
 */
#include "support/api.h"
#include "support/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 256 };

static const char *uri;
static atomic_bool armed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows, and of the forks */
static int files[FILES], n_files;                         /* of the application */
static int forks, failed;
static _Thread_local bool forking; /* the child's thread closes as it likes */

/* The application opens a file. */
static void open_file(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || n_files == FILES) abort();
    files[n_files++] = fd;
}

static int missing_files(void) {
    int missing = 0;
    for (int i = 0; i < n_files; i++) missing += fcntl(files[i], F_GETFD) < 0;
    return missing;
}

/* Forks, in the thread that is inside of the library. The child has run the library's handler by now. */
static void fork_here(void) {
    int status = -1, errnum = errno;
    forking = true;
    pid_t child = fork();
    forking = child == 0;
    if (child == 0) _exit(missing_files());
    if (waitpid(child, &status, 0) != child || status != 0) failed++;
    forks++;
    errno = errnum;
}

typedef int close_function(int fd);
typedef int connect_function(int fd, __CONST_SOCKADDR_ARG address, socklen_t length);

static void *libc(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol) abort();
    return symbol;
}

/* These are in front of libc's for the library and for what it loads. */
__attribute__((visibility("default"))) int close(int fd) {
    close_function *real;
    void *symbol = libc("close");
    memcpy(&real, &symbol, sizeof real);
    if (!atomic_load(&armed) || forking) return real(fd);
    pthread_mutex_lock(&mutex);
    int rc = real(fd);
    open_file();
    fork_here();
    pthread_mutex_unlock(&mutex);
    return rc;
}

__attribute__((visibility("default"))) int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
    connect_function *real;
    void *symbol = libc("connect");
    memcpy(&real, &symbol, sizeof real);
    if (!atomic_load(&armed) || forking) return real(fd, address, length);
    pthread_mutex_lock(&mutex);
    fork_here();
    int rc = real(fd, address, length);
    fork_here();
    pthread_mutex_unlock(&mutex);
    return rc;
}

TEST(children_close_connections_only) {
    char name[64];
    snprintf(name, sizeof name, "forked-%d", (int)getpid());
    for (int i = 0; i < 3; i++) open_file();
    for (int round = 0; round < 2; round++) {
        atomic_store(&armed, true);
        dlock_client *client = api_client("%s", uri);
        dlock_lock *lock = api_lock(client, name, NULL);
        assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
        dlock_free(lock);
        dlock_close(client);
        atomic_store(&armed, false);
    }
    pthread_mutex_lock(&mutex);
    print_message("%d forks\n", forks);
    assert_true(forks > 0);
    assert_int_equal(failed, 0);
    assert_int_equal(missing_files(), 0);
    for (int i = 0; i < n_files; i++) close(files[i]);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    uri = argv[1];
    return tests_run(argc - 1, argv + 1, NULL, NULL, NULL, NULL);
}
