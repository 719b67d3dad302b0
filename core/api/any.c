/* Whichever of several locks is free first. A waiter for each of them asks the server, all in one request, and waits in its
 * line; the first grant ends the other waits. One answer may grant several: the first in the list's order is kept. */
#include "api/api.h"

#include <stdlib.h>

enum { LEAVE_US = 70000 }; /* time for giving back after the deadline */

struct item {
    struct dlock__part part;
    struct dlock__waiter waiter;
    struct dlock_error err;
};

struct any {
    dlock_lock *const *locks;
    size_t n;
    struct item *items;
    struct dlock__waiter **waiters;   /* of the items */
    struct dlock__acquisition **acqs; /* what else was granted */
    struct dlock__latch latch;
    int64_t timeout_ms, deadline_us;
};

static int check(const struct any *any, struct dlock_error *err) {
    int rc = dlock__locks_check(any->locks, any->n, err);
    if (rc != 0) return rc;
    if (any->n == 0) return dlock_fail(err, DLOCK_EINVAL, "the list of locks is empty");
    for (size_t i = 1; i < any->n; i++) {
        if (any->locks[i]->client != any->locks[0]->client)
            return dlock_fail(err, DLOCK_EINVAL, "lock number %zu of the list is of another client than the first", i);
        for (size_t k = 0; k < i; k++)
            if (any->locks[i] == any->locks[k])
                return dlock_fail(err, DLOCK_EINVAL, "lock number %zu of the list stands in it before", i);
    }
    return 0;
}

/* Ends the call that acquired all locks whose waiters have a grant: keeps the first, and releases the others. Returns its
 * index; n: there is none. */
static size_t keep_one(struct any *any) {
    size_t kept = any->n, extra = 0;
    for (size_t i = 0; i < any->n; i++) {
        struct dlock_lock *lock = any->locks[i];
        if (any->items[i].waiter.result != 0) continue;
        if (kept == any->n)
            kept = i;
        else if (dlock__release_one(lock, dlock__owned(lock), &any->acqs[extra], NULL) == 1)
            extra++;
    }
    dlock__give_back(any->acqs, extra, dlock__bounded(any->locks[0]->client, dlock__after(any->deadline_us, LEAVE_US)),
                     NULL);
    return kept;
}

/* Returns the error that ended the call: of a cancel, or the first that is not about the time or our own doing; else the
 * first. */
static int explain(const struct any *any, struct dlock_error *err) {
    const struct item *why = &any->items[0];
    if (atomic_load(&any->latch.cancelled))
        return dlock_fail(err, DLOCK_ECANCELED, "the wait for one of %zu locks was cancelled", any->n);
    for (size_t i = any->n; i-- > 0;) {
        int result = any->items[i].waiter.result;
        if (result != DLOCK_EBUSY && result != DLOCK_ETIMEDOUT && result != DLOCK_ECANCELED) why = &any->items[i];
    }
    if (err) *err = why->err;
    return why->waiter.result;
}

/* With the mutex, which is left in between. */
static int acquire(struct any *any, size_t *which, struct dlock_error *err) {
    any->deadline_us = dlock__deadline(any->locks[0]->client, any->timeout_ms);
    for (size_t i = 0; i < any->n; i++) {
        int rc = dlock__try_reenter(any->locks[i], err);
        if (rc > 0) *which = i;
        if (rc != 0) return rc > 0 ? 0 : rc;
    }
    for (size_t i = 0; i < any->n; i++) {
        struct item *item = &any->items[i];
        item->waiter.why = &item->err;
        item->waiter.latch = &any->latch;
        any->waiters[i] = &item->waiter;
        dlock__waiter_enter(&item->waiter, any->locks[i], any->timeout_ms == 0, any->deadline_us);
    }
    dlock__waiters_drive(any->waiters, any->n, true);
    size_t kept = keep_one(any);
    if (kept == any->n) return explain(any, err);
    *which = kept;
    return 0;
}

/* In a call on all handles. */
static int acquire_in_call(struct any *any, size_t *which, struct dlock_error *err) {
    struct dlock_client *client = any->locks[0]->client;
    size_t n = 0;
    int rc = 0;
    while (n < any->n && (rc = dlock__part_begin(&any->items[n].part, any->locks[n], &any->latch, err)) == 0) n++;
    if (rc == 0) {
        dlock__enter(client);
        rc = acquire(any, which, err);
        dlock__leave(client);
    }
    while (n-- > 0) dlock__part_end(&any->items[n].part);
    return rc;
}

int dlock_acquire_any(dlock_lock *const *locks, size_t n, int64_t timeout_ms, size_t *which, struct dlock_error *err) {
    struct any any = {.locks = locks, .n = n, .timeout_ms = timeout_ms};
    if (!which) return dlock_fail(err, DLOCK_EINVAL, "dlock_acquire_any needs a place for the number of the lock");
    int rc = check(&any, err);
    if (rc != 0) return rc;
    any.items = calloc(n, sizeof *any.items);
    any.waiters = calloc(n, sizeof *any.waiters);
    any.acqs = calloc(n, sizeof *any.acqs);
    if (any.items && any.waiters && any.acqs)
        rc = acquire_in_call(&any, which, err);
    else
        rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory for %zu locks", n);
    free(any.items);
    free(any.waiters);
    free(any.acqs);
    return rc;
}
