/* A job that many hosts start at the same time and one of them does: a host that finds the lock held has nothing to do.
 * (If the job is over before the last host starts, that host does it again: see once.c for work that must happen once.)
 *
 *     try URI NAME
 */
#include <dlock/dlock.h>

#include <stdio.h>
#include <unistd.h>

static void work(void) {
    puts("doing the job");
    sleep(1);
}

static int try_it(dlock_client *client, const char *name, struct dlock_error *err) {
    dlock_lock *lock;
    int rc = dlock_new(client, name, NULL, &lock, err);
    if (rc != 0) return rc;
    rc = dlock_acquire(lock, 0, err); /* tries once, without waiting */
    if (rc == 0) {
        work();
        rc = dlock_release(lock, err);
    } else if (rc == DLOCK_EBUSY) {
        puts("somebody else does it");
        rc = 0;
    }
    dlock_free(lock);
    return rc;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: %s URI NAME\n", argv[0]), 64;
    dlock_client *client;
    struct dlock_error err;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = try_it(client, argv[2], &err);
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
