/* What is around a fragment that waits for a client's descriptor and for signals. The lock is held elsewhere, and the
 * signal is there from the start. */
#include <dlock/dlock.h>

#include <poll.h>
#include <unistd.h>

static int pending, cancelled;

static void ended(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    cancelled += err && err->code == DLOCK_ECANCELED;
    pending--;
}

#define released ended

int main(void) {
    dlock_client *client, *holder;
    dlock_lock *lock, *held;
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    int pipes[2];
    manual.flags = DLOCK_CLIENT_MANUAL;
    options.owner = DLOCK_OWNER_HANDLE;
    if (pipe(pipes) != 0 || write(pipes[1], "", 1) != 1) return 1;
    const int signals = pipes[0];
    if (dlock_open("file:locks", NULL, &holder, NULL) != 0 || dlock_new(holder, "loop", NULL, &held, NULL) != 0 ||
        dlock_acquire(held, 0, NULL) != 0 || dlock_open("file:locks", &manual, &client, NULL) != 0 ||
        dlock_new(client, "loop", &options, &lock, NULL) != 0 ||
        dlock_acquire_async(lock, DLOCK_FOREVER, ended, NULL) != 0)
        return 1;
    pending = 1;
#include BLOCK
    dlock_free(held);
    dlock_close(holder);
    return cancelled != 1;
}
