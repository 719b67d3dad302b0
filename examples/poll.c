/* A single thread with a poll(2) loop that goes on while it waits for a lock. A line on standard input ends the wait.
 *
 *     poll URI NAME WAIT-MS
 */
#include <dlock/dlock.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool over;
static int outcome;

static void released(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    outcome = err ? err->code : 0;
    puts(err ? err->message : "released");
    over = true;
}

/* Is called by dlock_client_dispatch, in the loop's own thread, so it may use all data of the loop. */
static void acquired(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)arg;
    outcome = err ? err->code : 0;
    if (err) puts(err->message);
    if (!err) printf("acquired, fence %llu\n", (unsigned long long)dlock_fence(lock));
    if (err || dlock_release_async(lock, released, NULL) != 0) over = true;
}

static void loop(dlock_client *client, dlock_lock *lock) {
    struct pollfd fds[] = {{dlock_client_fd(client), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    char line[64];
    while (!over) {
        if (poll(fds, 2, 1000) == 0) puts("the loop goes on");
        if (fds[0].revents) dlock_client_dispatch(client);
        if (fds[1].revents && read(STDIN_FILENO, line, sizeof line) > 0) dlock_cancel(lock);
        if (fds[1].revents) fds[1].fd = -1; /* one line, or the end of it */
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s URI NAME WAIT-MS\n", argv[0]), 64;
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err;
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    options.owner = DLOCK_OWNER_HANDLE; /* asynchronous locks are owned by their handles */
    int rc = dlock_open(argv[1], &manual, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, argv[2], &options, &lock, &err);
        if (rc == 0) {
            rc = dlock_acquire_async(lock, atol(argv[3]), acquired, NULL);
            if (rc == 0) loop(client, lock);
            dlock_free(lock);
        }
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", dlock_strerror(rc));
    return rc != 0 || outcome != 0;
}
