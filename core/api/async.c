/* Acquire and release without waiting: the asynchronous calls. */
#include "api/api.h"

#include <stdlib.h>

/* Begins either call. Returns 0 with the mutex held and a record in *async, or an error without. */
static int begin(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **async) {
    if (!done) return DLOCK_EINVAL;
    int rc = dlock__lock_begin(lock, NULL);
    if (rc != 0) return rc;
    if (lock->owner != DLOCK_OWNER_HANDLE) rc = DLOCK_ENOTSUP;
    if (rc == 0) rc = dlock__callback_start(lock->client, NULL);
    if (rc == 0) rc = dlock__async_make(lock, done, arg, async);
    return rc == 0 ? 0 : dlock__lock_end(lock, rc);
}

int dlock_acquire_async(dlock_lock *lock, int64_t timeout_ms, dlock_callback done, void *arg) {
    struct dlock__async *async;
    int rc = begin(lock, done, arg, &async);
    if (rc != 0) return rc;
    if ((rc = dlock__try_reenter(lock, NULL)) < 0) {
        free(async);
        return dlock__lock_end(lock, rc);
    }
    if (rc == 0) dlock__waiter_enter(&async->waiter, lock, timeout_ms == 0, dlock__deadline(lock->client, timeout_ms));
    dlock__async_begin(async, rc == 1 || async->waiter.over); /* it lingered here, or is a try that cannot succeed */
    return dlock__lock_end(lock, 0);
}

int dlock_release_async(dlock_lock *lock, dlock_callback done, void *arg) {
    struct dlock__async *async;
    struct dlock_error err;
    int rc = begin(lock, done, arg, &async);
    if (rc != 0) return rc;
    if (!dlock__owned(lock)) {
        free(async);
        return dlock__lock_end(lock, DLOCK_EOWNER);
    }
    async->waiter.result = dlock__release_one(lock, dlock__owned(lock), &async->waiter.leaving, &err);
    async->waiter.deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    dlock__async_begin(async, async->waiter.result != 1);
    return dlock__lock_end(lock, 0);
}
