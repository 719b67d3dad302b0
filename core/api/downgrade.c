/* From writer to reader. The keeper does it, as a renewal that says SHARED: so it is never overtaken by a renewal that
 * still says EXCLUSIVE, and is tried again as renewals are. */
#include "api/api.h"

static int check(struct dlock_lock *lock, const struct dlock__claim *claim, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (!dlock__can(lock->client, DLOCK_CAP_SHARED))
        return dlock_fail(err, DLOCK_ENOTSUP, "backend %s has no shared locks", lock->client->backend->name);
    if (!claim) return dlock__not_owned(lock, err);
    if (dlock__claim_lost(claim))
        return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before its downgrade", shown);
    if (claim->mode != DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%s\" is not held exclusively: there is nothing to downgrade",
                          shown);
    return dlock__fence_can_grow(claim, err);
}

/* From here on the claim counts as shared, whatever becomes of the request: a writer's rights are given up at once. */
static int downgrade(struct dlock_lock *lock, struct dlock__claim *claim, struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    const char *shown = dlock__name_shown(claim->name);
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    bool ours = dlock__owned_after_renewal(lock, claim);
    if (ours && claim->phase == DLOCK__HELD && claim->mode == DLOCK_EXCLUSIVE) dlock__claim_downgrade(claim);
    while (ours && claim->phase == DLOCK__DOWNGRADING && !client->closed && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    if (dlock__claim_lost(claim))
        return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before its downgrade", shown);
    if (!ours || !dlock__claim_held(claim))
        return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released before its downgrade", shown);
    if (claim->phase == DLOCK__DOWNGRADING && client->closed)
        return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    if (claim->phase == DLOCK__DOWNGRADING)
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
    struct dlock__claim *claim = dlock__owned(lock);
    rc = check(lock, claim, err);
    if (rc == 0) {
        claim->refs++;
        rc = downgrade(lock, claim, err);
        dlock__claim_put(claim);
    }
    return dlock__lock_end(lock, rc);
}
