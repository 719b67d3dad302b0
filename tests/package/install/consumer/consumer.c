/* Takes a lock with the installed library: consumer URI MODULE-FOLDER. C11, and C++11 through consumer.cpp. */
#include <dlock/backend.h>
#include <dlock/dlock.h>

#include <stdio.h>
#include <string.h>

static int failed(const char *what, const struct dlock_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
}

static int take(dlock_client *client) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err;
    dlock_lock *lock;
    options.owner = DLOCK_OWNER_HANDLE;
    if (dlock_new(client, "installed", &options, &lock, &err) != 0) return failed("dlock_new", &err);
    int rc = dlock_acquire(lock, 5000, &err);
    if (rc != 0) {
        failed("dlock_acquire", &err);
    } else if (!dlock_held(lock) || dlock_fence(lock) == 0) {
        rc = dlock_fail(&err, DLOCK_EPROTO, "acquired, but not held, or without a fence");
        failed("dlock_held", &err);
    } else {
        rc = dlock_release(lock, &err);
        if (rc != 0) failed("dlock_release", &err);
    }
    dlock_free(lock);
    return rc != 0;
}

int main(int argc, char **argv) {
    struct dlock_error err;
    dlock_client *client;
    if (argc != 3) return fprintf(stderr, "usage: %s URI MODULE-FOLDER\n", argv[0]), 2;
    if (strcmp(dlock_version(), DLOCK_VERSION) != 0)
        return fprintf(stderr, "the header is %s, the library %s\n", DLOCK_VERSION, dlock_version()), 1;
    if (dlock_open(argv[1], NULL, &client, &err) != 0) return failed("dlock_open", &err);
    const char *path = dlock_client_backend(client)->path;
    int rc = take(client);
    if (path && strncmp(path, argv[2], strlen(argv[2])) != 0) {
        fprintf(stderr, "the module is %s, and not from %s\n", path, argv[2]);
        rc = 1;
    }
    dlock_close(client);
    return rc;
}
