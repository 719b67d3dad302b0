/* Of all processes that run this, one is the leader. When it ends, or dies, or loses the lock, another one is.
 *
 *     leader URI NAME SECONDS
 */
#include <dlock/dlock.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_bool deposed;

/* Runs on a thread of the library, before anybody else can be granted the lock: says so, and leaves. */
static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    fprintf(stderr, "%s\n", err->message);
    atomic_store(&deposed, true);
}

/* What a leader does, in steps short enough to notice in time that it is none any more. Whatever it changes gets the
 * fence along, and refuses smaller ones: a step may still be under way when the lock is lost. */
static void lead(uint64_t fence, time_t end) {
    while (!atomic_load(&deposed) && time(NULL) < end) {
        printf("%ld leads, fence %llu\n", (long)getpid(), (unsigned long long)fence);
        fflush(stdout);
        usleep(200000);
    }
}

static int compete(dlock_lock *lock, time_t end, struct dlock_error *err) {
    while (time(NULL) < end) {
        atomic_store(&deposed, false);
        int rc = dlock_acquire(lock, (end - time(NULL)) * 1000, err);
        if (rc == DLOCK_ETIMEDOUT) return 0;
        if (rc != 0) return rc;
        lead(dlock_fence(lock), end);
        rc = dlock_release(lock, err);
        if (rc != 0 && rc != DLOCK_ELOST) return rc; /* after a loss: a follower again */
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
