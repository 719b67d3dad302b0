/* Several processes add to one number in one file, under one lock; examples/quickstart.sh starts them.
 *
 *     counter URI FILE ROUNDS     prints "fence value pid" for each of its updates
 *
 * The fence is stored beside the number. Each grant has a greater fence than all before it. So if our fence is not
 * greater than the stored one, we are too late: another process was granted the lock since, and we must not undo its
 * update. */
#include <dlock/dlock.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The protected work: reads the number, adds one, writes it back. It is not atomic, so it needs the lock. */
static int add_one(const char *path, uint64_t fence) {
    uint64_t value = 0, last_fence = 0;
    FILE *file = fopen(path, "r");
    if (file) {
        int n = fscanf(file, "%" SCNu64 " %" SCNu64, &value, &last_fence);
        fclose(file);
        if (n != 2) return fprintf(stderr, "%s: damaged\n", path), -1;
    }
    if (fence <= last_fence) return fprintf(stderr, "fence %" PRIu64 " came too late\n", fence), -1;
    file = fopen(path, "w");
    if (!file || fprintf(file, "%" PRIu64 " %" PRIu64 "\n", value + 1, fence) < 0 || fclose(file) != 0)
        return perror(path), -1;
    printf("%" PRIu64 " %" PRIu64 " %ld\n", fence, value + 1, (long)getpid());
    return fflush(stdout);
}

static int count(dlock_lock *lock, const char *path, long rounds, struct dlock_error *err) {
    while (rounds-- > 0) {
        int rc = dlock_acquire(lock, 30000, err);
        if (rc != 0) return rc;
        int done = add_one(path, dlock_fence(lock));
        usleep(500); /* makes the others wait */
        rc = dlock_release(lock, err);
        if (rc != 0) return rc; /* DLOCK_ELOST: another process may have worked at the same time */
        if (done != 0) exit(1);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s URI FILE ROUNDS\n", argv[0]), 64;
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, "counter", NULL, &lock, &err);
        if (rc == 0) {
            rc = count(lock, argv[2], atol(argv[3]), &err);
            dlock_free(lock);
        }
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
