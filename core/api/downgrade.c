/* From writer to reader. The keeper does it, as a renewal that says SHARED: so it is never overtaken by a renewal that
 * still says EXCLUSIVE, and is tried again as renewals are. */
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

/* From here on the acquisition counts as shared, whatever becomes of the request: a writer's rights are given up at
 * once. */
static int downgrade(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    const char *shown = dlock__name_shown(acq->name);
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    bool ours = dlock__owned_after_renewal(lock, acq);
    if (ours && acq->state == DLOCK__HELD && acq->mode == DLOCK_EXCLUSIVE) dlock__acq_downgrade(acq);
    while (ours && acq->state == DLOCK__DOWNGRADING && !client->closed && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    if (dlock__acq_lost(acq)) return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before its downgrade", shown);
    if (!ours || !dlock__acq_held(acq))
        return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released before its downgrade", shown);
    if (acq->state == DLOCK__DOWNGRADING && client->closed)
        return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    if (acq->state == DLOCK__DOWNGRADING)
        return dlock_fail(
            err, DLOCK_EUNAVAILABLE,
            "the downgrade of lock \"%s\" was not confirmed in time: it is held shared or exclusively, and "
            "is still being tried",
            shown);
    return 0;
}

int dlock_downgrade(dlock_lock *lock, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    rc = check(lock, acq, err);
    if (rc == 0) {
        acq->refs++;
        rc = downgrade(lock, acq, err);
        dlock__acq_put(acq);
    }
    return dlock__lock_end(lock, rc);
}
