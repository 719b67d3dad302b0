/* Waits for the lock until a signal ends the wait. */
#ifndef DLOCK_CLI_WAIT_H
#define DLOCK_CLI_WAIT_H

#include "signals.h"

#include <dlock/dlock.h>

struct wait_plan {
    dlock_client *client;
    dlock_lock *lock;
    const char *name;
    int64_t timeout_ms; /* as for dlock_acquire() */
    bool verbose;       /* report the holder that is waited for */
    const struct signals *signals;
};

/* Acquires the lock; blocks. Returns as dlock_acquire(). If a signal ends the wait, the lock is not held, the result is
 * DLOCK_ECANCELED and *sig is the signal; otherwise *sig is 0. */
int wait_for_lock(const struct wait_plan *plan, int *sig, struct dlock_error *err);

/* After the wait: returns who holds the lock, as holders_text() does, or "" if that is not known within a second, or nobody
 * does. Valid until the next call. */
const char *wait_holders(dlock_client *client, const char *name);

/* To be called before the client is closed: waits for the answer to the last question who holds the lock, at most the
 * URI's `timeout`. */
void wait_end(void);

#endif
