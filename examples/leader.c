/* Leader election: of all processes that run this, one is the leader. When it ends, dies or loses the lock, another one
 * becomes the leader.
 *
 *     leader URI NAME SECONDS
 */
#include <dlock/dlock.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int wake[2]; /* a pipe that wakes the leader */

/* Runs on a thread of the library when the lock was lost: prints why, and wakes the leader. */
static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    fprintf(stderr, "%s\n", err->message);
    (void)!write(wake[1], "", 1);
}

/* Does the leader's work, in short steps, so that it soon notices the loss of the lock. A step may still be in progress
 * then: so the resources that it changes should get the fence, and refuse smaller ones. */
static void lead(dlock_lock *lock, time_t end) {
    struct pollfd woken = {wake[0], POLLIN, 0};
    char word;
    while (dlock_held(lock) && time(NULL) < end) {
        printf("%ld leads, fence %llu\n", (long)getpid(), (unsigned long long)dlock_fence(lock));
        fflush(stdout);
        if (poll(&woken, 1, 200) > 0) (void)!read(wake[0], &word, 1);
    }
}

static int compete(dlock_lock *lock, time_t end, struct dlock_error *err) {
    while (time(NULL) < end) {
        int rc = dlock_acquire(lock, (end - time(NULL)) * 1000, err);
        if (rc == DLOCK_ETIMEDOUT) return 0;
        if (rc != 0) return rc;
        lead(lock, end);
        rc = dlock_release(lock, err);
        if (rc != 0 && rc != DLOCK_ELOST) return rc;
        if (rc == DLOCK_ELOST) sleep(1); /* lets waiting processes go first, since not every server has a queue */
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s URI NAME SECONDS\n", argv[0]), 64;
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = lost;
    if (pipe(wake) != 0) return perror("pipe"), 1;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, argv[2], &options, &lock, &err);
        if (rc == 0) {
            rc = compete(lock, time(NULL) + atol(argv[3]), &err);
            dlock_free(lock);
        }
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
