/* A long batch that lets others go first: it saves its state after each step, and gives the lock up when one waits.
 *
 *     batch URI NAME STATE-FILE STEPS
 */
#include <dlock/dlock.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool wanted;

/* Runs on a thread of the library: it only leaves word for the batch. */
static void other_waits(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    atomic_store(&wanted, true);
}

static int load(const char *path) {
    int step = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%d", &step) != 1) step = 0;
    fclose(file);
    return step;
}

static int save(const char *path, int step) {
    FILE *file = fopen(path, "w");
    if (!file) return -1;
    fprintf(file, "%d\n", step);
    return fclose(file);
}

/* Another process may have gone on with the batch while this one waited, so the state is read anew. */
static int run(dlock_lock *lock, const char *path, int steps, struct dlock_error *err) {
    for (int step = 0; step < steps;) {
        int rc = dlock_acquire(lock, DLOCK_FOREVER, err);
        if (rc != 0) return rc;
        atomic_store(&wanted, false);
        for (step = load(path); step < steps && !atomic_load(&wanted) && dlock_held(lock);) {
            usleep(50000); /* the work of one step */
            if (save(path, ++step) != 0) perror(path), exit(1);
        }
        printf("%s after step %d\n", step < steps ? "yields" : "ends", step);
        fflush(stdout);
        if ((rc = dlock_release(lock, err)) != 0) return rc;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: %s URI NAME STATE-FILE STEPS\n", argv[0]), 64;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client;
    dlock_lock *lock = NULL;
    struct dlock_error err;
    options.on_wanted = other_waits; /* refused (ENOTSUP) without `wanted` in dlock backends */
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, argv[2], &options, &lock, &err);
        if (rc == 0) rc = run(lock, argv[3], atoi(argv[4]), &err);
        dlock_free(lock);
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
