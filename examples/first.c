/* The smallest complete program. */
#include <dlock/dlock.h>
#include <stdio.h>

int main(void) {
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err;
    if (dlock_open("file:", NULL, &client, &err) != 0 || dlock_new(client, "nightly-report", NULL, &lock, &err) != 0)
        return fprintf(stderr, "%s\n", err.message), 1;
    int rc = dlock_acquire(lock, 5000, &err); /* waits up to 5 s */
    if (rc == 0) {
        printf("nobody else holds it; fence %llu\n", (unsigned long long)dlock_fence(lock));
        rc = dlock_release(lock, &err); /* DLOCK_ELOST: somebody else may have held it meanwhile */
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    dlock_free(lock);
    dlock_close(client);
    return rc != 0;
}
