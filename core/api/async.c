/* Acquire and release for callers that do not wait. */
#include "api/api.h"

#include <stdlib.h>

int dlock_acquire_async(dlock_lock *lock, int64_t timeout_ms, dlock_callback done, void *arg) {
    if (!done) return DLOCK_EINVAL;
    int rc = dlock__lock_begin(lock, NULL);
    if (rc != 0) return rc;
    struct dlock__async *async = NULL;
    if (lock->owner != DLOCK_OWNER_HANDLE) rc = DLOCK_ENOTSUP;
    if (rc == 0) rc = dlock__callback_start(lock->client, NULL);
    if (rc == 0) rc = dlock__async_make(lock, done, arg, &async);
    if (rc == 0 && (rc = dlock__try_reenter(lock, NULL)) < 0) free(async);
    if (rc >= 0) {
        dlock__async_begun(async);
        if (rc == 0)
            dlock__waiter_enter(&async->waiter, lock, timeout_ms == 0, dlock__deadline(lock->client, timeout_ms));
        if (rc == 1 || async->waiter.over) /* it lingered here, or is a try without a chance */
            dlock__async_over(async);
        else
            dlock__async_ready(async);
        rc = 0;
    }
    return dlock__lock_end(lock, rc);
}

int dlock_release_async(dlock_lock *lock, dlock_callback done, void *arg) {
    if (!done) return DLOCK_EINVAL;
    int rc = dlock__lock_begin(lock, NULL);
    if (rc != 0) return rc;
    struct dlock__async *async = NULL;
    struct dlock_error err;
    if (lock->owner != DLOCK_OWNER_HANDLE) rc = DLOCK_ENOTSUP;
    if (rc == 0 && !dlock__owned(lock)) rc = DLOCK_EOWNER;
    if (rc == 0) rc = dlock__callback_start(lock->client, NULL);
    if (rc == 0) rc = dlock__async_make(lock, done, arg, &async);
    if (rc == 0) {
        dlock__async_begun(async);
        async->waiter.result = dlock__release_one(lock, &async->waiter.leaving, &err);
        async->waiter.deadline_us = dlock__after(dlock__now_us(), dlock__us(lock->client->uri->timeout_ms));
        if (async->waiter.result == 1)
            dlock__async_ready(async);
        else
            dlock__async_over(async);
    }
    return dlock__lock_end(lock, rc);
}
