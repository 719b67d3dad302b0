/* Locks in an event loop (libevent): N locks at a time in one thread, in which all callbacks run.
 *
 *     event URI PREFIX N      acquires PREFIX0, PREFIX1, …, all at once, holds each for a moment, and releases it
 */
#include <dlock/dlock.h>
#include <event2/event.h>

#include <stdio.h>
#include <stdlib.h>

static struct event_base *base;
static int pending, failures;

static void ended(const struct dlock_error *err) {
    if (err) fprintf(stderr, "%s\n", err->message);
    failures += err != NULL;
    if (--pending == 0) event_base_loopbreak(base);
}

static void released(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    ended(err);
}

static void moment_over(evutil_socket_t fd, short what, void *lock) {
    (void)fd, (void)what;
    if (dlock_release_async(lock, released, NULL) != 0) exit(1);
}

static void acquired(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    const struct timeval moment = {0, 10000};
    if (!err) {
        printf("acquired %s, fence %llu\n", (const char *)arg, (unsigned long long)dlock_fence(lock));
        event_base_once(base, -1, EV_TIMEOUT, moment_over, lock, &moment);
    } else {
        ended(err);
    }
}

static void dispatch(evutil_socket_t fd, short what, void *client) {
    (void)fd, (void)what;
    dlock_client_dispatch(client);
}

static int start(dlock_client *client, char *name, dlock_lock **lock) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.owner = DLOCK_OWNER_HANDLE; /* asynchronous locks are owned by their handles */
    int rc = dlock_new(client, name, &options, lock, NULL);
    return rc != 0 ? rc : dlock_acquire_async(*lock, 30000, acquired, name);
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s URI PREFIX N\n", argv[0]), 64;
    enum { MOST = 1000 };
    static dlock_lock *locks[MOST];
    static char names[MOST][64];
    dlock_client *client;
    struct dlock_error err;
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    if (dlock_open(argv[1], &manual, &client, &err) != 0) return fprintf(stderr, "%s\n", err.message), 1;
    base = event_base_new();
    struct event *ready = event_new(base, dlock_client_fd(client), EV_READ | EV_PERSIST, dispatch, client);
    event_add(ready, NULL);
    for (; pending < atoi(argv[3]) && pending < MOST; pending++) {
        snprintf(names[pending], sizeof names[0], "%s%d", argv[2], pending);
        int rc = start(client, names[pending], &locks[pending]);
        if (rc != 0) return fprintf(stderr, "%s: %s\n", names[pending], dlock_strerror(rc)), 1;
    }
    if (pending) event_base_dispatch(base);
    for (int i = 0; i < MOST; i++) dlock_free(locks[i]);
    event_free(ready);
    event_base_free(base);
    dlock_close(client);
    return failures != 0;
}
