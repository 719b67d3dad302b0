/* Takes a lock that this thread holds again and again: reentry_test.sh counts what one more time costs. */
#include "fake_backend.h"

#include <dlock/dlock.h>

#include <stdlib.h>

int main(int argc, char **argv) {
    dlock_client *client;
    dlock_lock *lock;
    if (argc != 2) return 64;
    fake_backend_reset();
    if (dlock_open("fake:", NULL, &client, NULL) != 0 || dlock_new(client, "n", NULL, &lock, NULL) != 0) return 1;
    if (dlock_acquire(lock, 0, NULL) != 0) return 1;
    for (long left = atol(argv[1]); left > 0; left--)
        if (dlock_acquire(lock, 0, NULL) != 0 || dlock_release(lock, NULL) != 0) return 1;
    dlock_close(client);
    dlock_free(lock);
    return 0;
}
