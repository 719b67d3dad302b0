/* From writer to reader. The keeper does it, as a renewal that says SHARED: so it is never overtaken by a renewal that
 * still says EXCLUSIVE, and is tried again as renewals are. From the beginning on the acquisition counts as shared. */
#include "api/api.h"

static int check(struct dlock_lock *lock, const struct dlock__acquisition *acq, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (!dlock__can(lock->client, DLOCK_CAP_SHARED))
        return dlock_fail(err, DLOCK_ENOTSUP, "backend %s has no shared locks", lock->client->backend->name);
    if (!acq) return dlock__not_owned(lock, err);
    if (dlock__acq_lost(acq)) return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before its downgrade", shown);
    if (acq->mode != DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%s\" is not held exclusively: there is nothing to downgrade",
                          shown);
    return dlock__fence_can_grow(acq, err);
}

int dlock_downgrade(dlock_lock *lock, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    rc = check(lock, acq, err);
    if (rc == 0) {
        acq->refs++;
        dlock__acq_downgrade(acq); /* whatever becomes of the request: a writer's rights are given up at once */
        rc = dlock__downgrade_await(acq, err);
        if (rc == 0 && !dlock__acq_held(acq))
            rc = dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released before its downgrade",
                            dlock__name_shown(lock->name));
        dlock__acq_put(acq);
    }
    return dlock__lock_end(lock, rc);
}
