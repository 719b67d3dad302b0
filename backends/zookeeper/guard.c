/* The system calls of the client library, which is linked with these names in place of the C library's. It opens
 * descriptors that children would inherit, aborts where it gets no thread, takes signals, seeds the program's random
 * numbers, believes whatever a server sends (stream.c), and waits 1.5 s for one that does not answer its goodbye. */
#include "zookeeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GOODBYE_MS = 200 };

/* Whose the calling thread is: one of the library's, or the one that opens or closes the handle. */
static _Thread_local struct zookeeper *current;
static _Thread_local bool closing;

long zookeeper_guard_random(void);
double zookeeper_guard_drand48(void);
void zookeeper_guard_srandom(unsigned seed);
void zookeeper_guard_srand48(long seed);
int zookeeper_guard_socket(int domain, int type, int protocol);
int zookeeper_guard_pipe(int fds[2]);
int zookeeper_guard_open(const char *path, int flags, ...);
int zookeeper_guard_close(int fd);
int zookeeper_guard_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
ssize_t zookeeper_guard_send(int fd, const void *data, size_t size, int flags);
ssize_t zookeeper_guard_recv(int fd, void *data, size_t size, int flags);
int zookeeper_guard_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int zookeeper_guard_socket(int domain, int type, int protocol) {
    int one = 1, fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    if (fd < 0) return fd;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (current) {
        atomic_store(&current->guard.socket, fd + 1);
        zookeeper_stream_begin(&current->guard.stream);
        zookeeper_touches_forget(current);
    }
    return fd;
}

int zookeeper_guard_pipe(int fds[2]) {
    int rc = pipe2(fds, O_CLOEXEC);
    if (rc != 0 || !current) return rc;
    atomic_store(&current->guard.pipe[0], fds[0] + 1);
    atomic_store(&current->guard.pipe[1], fds[1] + 1);
    return 0;
}

/* Only ever asked for /dev/urandom, to read. */
int zookeeper_guard_open(const char *path, int flags, ...) {
    return open(path, (flags & ~O_CREAT) | O_CLOEXEC);
}

int zookeeper_guard_close(int fd) {
    if (current) {
        atomic_int *slots[] = {&current->guard.socket, &current->guard.pipe[0], &current->guard.pipe[1]};
        for (size_t i = 0; i < 3; i++) {
            int expected = fd + 1;
            atomic_compare_exchange_strong(slots[i], &expected, 0);
        }
    }
    return close(fd);
}

int zookeeper_guard_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    if (closing && (timeout_ms < 0 || timeout_ms > GOODBYE_MS)) timeout_ms = GOODBYE_MS;
    return poll(fds, n, timeout_ms);
}

int zookeeper_guard_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    (void)attr;
    for (size_t i = 0; current && i < 2; i++) {
        struct zookeeper_thread *thread = &current->guard.threads[i];
        if (!thread->made || thread->taken) continue;
        pthread_mutex_lock(&current->mutex);
        thread->taken = true;
        thread->run = run;
        thread->arg = arg;
        *id = thread->id;
        pthread_cond_broadcast(&current->changed);
        pthread_mutex_unlock(&current->mutex);
        return 0;
    }
    return EAGAIN;
}

/* Whose connection a descriptor is; NULL: not one of ours, or no longer of interest. */
static struct zookeeper *conversation(int fd) {
    return current && !closing && atomic_load(&current->guard.socket) == fd + 1 ? current : NULL;
}

ssize_t zookeeper_guard_send(int fd, const void *data, size_t size, int flags) {
    struct zookeeper *z = conversation(fd);
    int64_t sent_us = dlock_now_us();
    ssize_t n = send(fd, data, size, flags);
    if (n > 0 && z && !zookeeper_stream_sent(&z->guard.stream, data, (size_t)n, sent_us)) {
        errno = ENOMEM;
        return -1;
    }
    return n;
}

ssize_t zookeeper_guard_recv(int fd, void *data, size_t size, int flags) {
    struct zookeeper *z = conversation(fd);
    if (!z) return recv(fd, data, size, flags);
    ssize_t n = zookeeper_stream_recv(&z->guard.stream, fd, data, size, flags);
    if (n < 0 && errno == EPROTO) {
        char message[128];
        snprintf(message, sizeof message, "ZooKeeper at %s sent an answer that makes no sense", z->where);
        z->peer->log(z->peer, DLOCK_LOG_ERROR, message);
    } else if (z->guard.stream.touched_us) {
        zookeeper_touched(z, z->guard.stream.touched_us);
        z->guard.stream.touched_us = 0;
    }
    return n;
}

/* It shuffles the servers, and draws when their list changes. */
long zookeeper_guard_random(void) {
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0) return 0;
    return number >> 1;
}

double zookeeper_guard_drand48(void) {
    return (double)zookeeper_guard_random() / 2147483648.0;
}

void zookeeper_guard_srandom(unsigned seed) {
    (void)seed;
}

void zookeeper_guard_srand48(long seed) {
    (void)seed;
}

/* Waits for its work; run is NULL when there will be none. */
static void *thread_main(void *arg) {
    struct zookeeper_thread *thread = arg;
    struct zookeeper *z = thread->owner;
    pthread_mutex_lock(&z->mutex);
    while (!thread->taken) pthread_cond_wait(&z->changed, &z->mutex);
    pthread_mutex_unlock(&z->mutex);
    current = z;
    return thread->run ? thread->run(thread->arg) : NULL;
}

int zookeeper_guard_init(struct zookeeper *z, struct dlock_error *err) {
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        struct zookeeper_thread *thread = &z->guard.threads[i];
        thread->owner = z;
        rc = pthread_create(&thread->id, NULL, thread_main, thread);
        thread->made = rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no threads for a ZooKeeper session; raise the limit (ulimit -u)");
    return 0;
}

static void discard(const char *message) {
    (void)message;
}

zhandle_t *zookeeper_guarded_init(struct zookeeper *z, const char *hosts, watcher_fn watcher, int session_ms) {
    zhandle_t *handle;
    current = z;
    zoo_set_debug_level((ZooLogLevel)0);
    handle = zookeeper_init2(hosts, watcher, session_ms, NULL, z, ZOO_NO_LOG_CLIENTENV, discard);
    current = NULL;
    return handle;
}

void zookeeper_guarded_close(struct zookeeper *z) {
    current = z;
    closing = true;
    zookeeper_close(z->handle);
    closing = false;
    current = NULL;
}

void zookeeper_guard_end(struct zookeeper *z) {
    zookeeper_stream_end(&z->guard.stream);
    for (size_t i = 0; i < 2; i++) {
        struct zookeeper_thread *thread = &z->guard.threads[i];
        if (!thread->made || thread->taken) continue;
        pthread_mutex_lock(&z->mutex);
        thread->taken = true;
        pthread_cond_broadcast(&z->changed);
        pthread_mutex_unlock(&z->mutex);
        pthread_join(thread->id, NULL);
    }
}

static void close_slot(atomic_int *slot) {
    int fd = atomic_exchange(slot, 0) - 1;
    if (fd >= 0) close(fd);
}

void zookeeper_guard_abandon(struct zookeeper *z) {
    close_slot(&z->guard.socket);
    close_slot(&z->guard.pipe[0]);
    close_slot(&z->guard.pipe[1]);
}
