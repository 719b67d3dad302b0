/* Something that has to happen once, such as a migration, done by the first process that comes: check, lock, check
 * again.
 *
 *     once URI NAME FILE      FILE is what has to exist afterwards
 */
#include <dlock/dlock.h>

#include <stdio.h>
#include <unistd.h>

static int migrate(const char *path) {
    FILE *file = fopen(path, "w");
    printf("%ld migrates\n", (long)getpid());
    return file && fputs("version 2\n", file) >= 0 && fclose(file) == 0 ? 0 : -1;
}

static int ensure(dlock_client *client, const char *name, const char *path, struct dlock_error *err) {
    dlock_lock *lock;
    int done = 0;
    int rc = dlock_new(client, name, NULL, &lock, err);
    if (rc != 0) return rc;
    rc = dlock_acquire(lock, 60000, err);
    if (rc == 0) {
        /* The previous holder of the lock may have done it after our first check. */
        if (access(path, F_OK) != 0) done = migrate(path);
        rc = dlock_release(lock, err);
    }
    dlock_free(lock);
    if (done != 0) perror(path);
    return done != 0 ? done : rc;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s URI NAME FILE\n", argv[0]), 64;
    if (access(argv[3], F_OK) == 0) return 0; /* the usual case needs no lock at all */
    dlock_client *client;
    struct dlock_error err = {0, ""};
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = ensure(client, argv[2], argv[3], &err);
        dlock_close(client);
    }
    if (err.code != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
