/* A backend that is linked into the program instead of loaded: registered once, then used by its URI like any other. */
#include <dlock/backend.h>
#include <dlock/dlock.h>

#include <stdio.h>

extern const struct dlock_backend dlock_backend_toy; /* toy/toy.c */

static int use(dlock_client *client, struct dlock_error *err) {
    dlock_lock *lock;
    int rc = dlock_new(client, "anything", NULL, &lock, err);
    if (rc != 0) return rc;
    rc = dlock_acquire(lock, 1000, err);
    if (rc == 0) {
        printf("locked with the backend %s\n", dlock_client_backend(client)->name);
        rc = dlock_release(lock, err);
    }
    dlock_free(lock);
    return rc;
}

int main(void) {
    dlock_client *client;
    struct dlock_error err;
    int rc = dlock_register(&dlock_backend_toy, &err);
    if (rc == 0) rc = dlock_open("toy:", NULL, &client, &err);
    if (rc == 0) {
        rc = use(client, &err);
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
