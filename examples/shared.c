/* Many processes read a file, one writes it. The writer becomes a reader without letting go, so it reads its own text.
 *
 *     shared URI NAME FILE           reads
 *     shared URI NAME FILE TEXT      writes TEXT, then reads
 */
#include <dlock/dlock.h>

#include <stdio.h>
#include <unistd.h>

static int write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    return file && fprintf(file, "%s\n", text) >= 0 && fclose(file) == 0 ? 0 : -1;
}

static int read_text(const char *path) {
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) return -1;
    printf("read: %s", line);
    fflush(stdout);
    fclose(file);
    sleep(1); /* a long read: other readers may read at the same time, writers wait */
    return 0;
}

static int visit(dlock_lock *lock, const char *path, const char *text, struct dlock_error *err) {
    int done = 0;
    int rc = dlock_acquire(lock, 30000, err);
    if (rc != 0) return rc;
    if (text) {
        done = write_text(path, text);
        rc = dlock_downgrade(lock, err); /* now other readers may read; no other writer can come in between */
    }
    if (rc == 0 && done == 0) done = read_text(path);
    if (done != 0) perror(path);
    int released = dlock_release(lock, rc == 0 ? err : NULL);
    return rc != 0 ? rc : released;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return fprintf(stderr, "usage: %s URI NAME FILE [TEXT]\n", argv[0]), 64;
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.mode = argc == 5 ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, argv[2], &options, &lock, &err);
        if (rc == 0) {
            rc = visit(lock, argv[3], argv[4], &err);
            dlock_free(lock);
        }
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
