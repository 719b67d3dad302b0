/* The lines that README.md begins with. */
#include <dlock/dlock.h>
#include <stdio.h>

int main(void) {
    dlock_client *client;
    dlock_lock *lock;
    struct dlock_error err = {0, ""};
    if (dlock_open("file:", NULL, &client, &err) != 0) return fprintf(stderr, "%s\n", err.message), 1;
    if (dlock_new(client, "nightly-report", NULL, &lock, &err) == 0) {
        if (dlock_acquire(lock, 5000, &err) == 0) { /* waits up to 5 s */
            printf("nobody else writes the report now; fence %llu\n", (unsigned long long)dlock_fence(lock));
            dlock_release(lock, &err);
        }
        dlock_free(lock);
    }
    dlock_close(client);
    return err.code == 0 ? 0 : (fprintf(stderr, "%s\n", err.message), 1);
}
