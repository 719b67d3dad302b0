/* Waiting for the lock, in a way that a signal can end. */
#ifndef DLOCK_CLI_WAIT_H
#define DLOCK_CLI_WAIT_H

#include "signals.h"

#include <dlock/dlock.h>

struct wait_plan {
    dlock_client *client;
    dlock_lock *lock;
    const char *name;
    int64_t timeout_ms; /* as dlock_acquire() takes it */
    bool verbose;       /* says whom it waits for */
    const struct signals *signals;
};

/* Acquires the lock. Returns as dlock_acquire(). A signal ends the wait: then the lock is not held, the result is
 * ECANCELED and *sig the signal, which is otherwise 0. */
int wait_for_lock(const struct wait_plan *plan, int *sig, struct dlock_error *err);

#endif
