/* A process forks while another of its threads opens its first client, which loads the backend's module, or connects to
 * a port where nothing listens. The child opens another client. No server is needed. */
#include "support/test.h"

#include <dlock/dlock.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FORKS = 20, WINDOW_US = 8000 };

static const char *uri;
static sem_t begun;

/* 0: it is open (LAZY), or refused. */
static int open_client(uint32_t flags) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err;
    dlock_client *client;
    options.flags = flags;
    int rc = dlock_open(uri, &options, &client, &err);
    if (rc == 0) dlock_close(client);
    if (rc == 0 || (rc == DLOCK_EUNAVAILABLE && flags == 0)) return 0;
    fprintf(stderr, "dlock_open: %d %s\n", rc, err.message);
    return 1;
}

static void *open_clients(void *arg) {
    const uint32_t *flags = arg;
    sem_post(&begun);
    open_client(*flags);
    for (int i = 0; i < 5; i++) open_client(*flags);
    return NULL;
}

/* In a separate process, in which no module is loaded yet: returns the end of the child that it forks after us. */
static int fork_amid(uint32_t flags, long us) {
    const struct timespec pause = {.tv_nsec = us * 1000};
    pthread_t thread;
    int status = -1;
    sem_init(&begun, 0, 0);
    if (pthread_create(&thread, NULL, open_clients, &flags) != 0) {
        perror("pthread_create");
        return -1;
    }
    sem_wait(&begun);
    nanosleep(&pause, NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(open_client(flags));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) perror("fork");
    if (status) fprintf(stderr, "the child that was forked after %ld us: status %#x\n", us, (unsigned)status);
    return status;
}

static void forks(uint32_t flags) {
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) _exit(fork_amid(flags, (long)WINDOW_US * i / FORKS) != 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

TEST(while_a_module_is_loaded) {
    forks(DLOCK_CLIENT_LAZY);
}

TEST(while_a_thread_connects) {
    forks(0);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    uri = argv[1];
    return tests_run(argc - 1, argv + 1, NULL, NULL, NULL, NULL);
}
