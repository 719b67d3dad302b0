/* Renewals that a holder asks for: with another lease, before an export, or from writer to reader. The keeper sends
 * them, so that no other renewal of the same grant is on the way, and repeats them as any renewal. From the beginning of
 * its downgrade an acquisition is treated as shared. */
#include "api/api.h"

/* Returns 0, or an error if the caller no longer has the grant; `before` follows "was lost" in the message. */
static int check_owned(struct dlock_lock *lock, const struct dlock__acquisition *acq, const char *before,
                       struct dlock_error *err) {
    if (!acq) return dlock__not_owned(lock, err);
    bool owned = dlock__owned(lock) == acq; /* called first, since it notices the grant's end */
    if (dlock__acq_lost(acq)) return dlock__loss_fail(acq, before, err);
    if (owned && dlock__acq_held(acq)) return 0;
    if (lock->client->closed) return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released%s", dlock__name_shown(lock->name), before);
}

/* ---- another lease ---- */

static int check_lease(struct dlock_lock *lock, const struct dlock__acquisition *acq, int64_t *lease_ms,
                       struct dlock_error *err) {
    bool fixed = acq->flags & DLOCK_FIXED_LEASE;
    if (*lease_ms == 0) *lease_ms = fixed ? lock->lease_ms : acq->lease_ms;
    if (!fixed && *lease_ms != acq->lease_ms)
        return dlock_fail(err, DLOCK_EINVAL,
                          "lock \"%s\" is renewed in the background, every time for %lld ms: extend it by that, or "
                          "by the default, or acquire it with a fixed lease",
                          dlock__name_shown(lock->name), (long long)acq->lease_ms);
    return dlock__lease_check(lock->client, *lease_ms, err);
}

/* True while the caller has the grant and time is left. */
static bool goes_on(struct dlock_lock *lock, const struct dlock__acquisition *acq, int64_t deadline_us) {
    return check_owned(lock, acq, "", NULL) == 0 && !lock->client->closed && dlock__now(lock->client) < deadline_us;
}

/* Waits for a change, at most until the grant's valid-until. */
static void wait(const struct dlock__acquisition *acq, int64_t deadline_us) {
    struct dlock_client *client = acq->name->client;
    dlock__wait(client, &client->changed, acq->valid_until_us < deadline_us ? acq->valid_until_us : deadline_us);
}

/* Has the keeper send the extension and waits for the result. One extension at a time, and only while no other renewal
 * is on the way: that one's answer would set the old lease. */
static void extend(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock__extension *extension,
                   int64_t deadline_us) {
    struct dlock_client *client = lock->client;
    while ((acq->renewing || acq->op->extension) && goes_on(lock, acq, deadline_us)) wait(acq, deadline_us);
    if (!goes_on(lock, acq, deadline_us)) return;
    dlock__acq_extend(acq, extension);
    while (extension->result == DLOCK_EUNAVAILABLE && goes_on(lock, acq, deadline_us)) wait(acq, deadline_us);
    if (acq->op->extension != extension) return;
    acq->op->extension = NULL;
    if (!dlock__acq_is_renewed(acq)) dlock__acq_renew_at(acq, DLOCK__NEVER);
    pthread_cond_broadcast(&client->changed); /* lets the next one begin */
}

int dlock_extend(dlock_lock *lock, int64_t lease_ms, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    struct dlock__extension extension = {lease_ms, DLOCK_EUNAVAILABLE};
    rc = check_owned(lock, acq, " before its extension", err);
    if (rc == 0) rc = check_lease(lock, acq, &extension.lease_ms, err);
    if (rc != 0) return dlock__lock_end(lock, rc);
    acq->refs++;
    extend(lock, acq, &extension, dlock__bounded(lock->client, DLOCK__NEVER));
    rc = check_owned(lock, acq, " before its extension", err);
    if (rc == 0 && extension.result != 0 && lock->client->closed)
        rc = dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    else if (rc == 0 && extension.result != 0)
        rc = dlock_fail(err, extension.result, "lock \"%s\" is held, its extension was not confirmed: %s",
                        dlock__name_shown(lock->name), dlock_strerror(extension.result));
    dlock__acq_put(acq);
    return dlock__lock_end(lock, rc);
}

/* ---- before an export ---- */

int dlock__renew_to_export(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock_error *err) {
    struct dlock__extension extension = {acq->lease_ms, DLOCK_EUNAVAILABLE};
    int64_t deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    if (acq->flags & DLOCK_FIXED_LEASE)
        extension.result = 0;
    else
        extend(lock, acq, &extension, deadline_us);
    while ((acq->renewing || acq->state == DLOCK__DOWNGRADING) && goes_on(lock, acq, deadline_us))
        wait(acq, deadline_us);
    int rc = check_owned(lock, acq, " before its export", err);
    if (rc != 0) return rc;
    if (lock->client->closed) return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    if (acq->renewing || acq->state == DLOCK__DOWNGRADING) extension.result = DLOCK_EUNAVAILABLE;
    if (extension.result == 0) return 0;
    return dlock_fail(err, extension.result, "lock \"%s\" is still held here, its export failed: %s",
                      dlock__name_shown(lock->name), dlock_strerror(extension.result));
}

/* ---- from writer to reader ---- */

static int check_downgrade(struct dlock_lock *lock, const struct dlock__acquisition *acq, struct dlock_error *err) {
    if (!dlock__can(lock->client, DLOCK_CAP_SHARED))
        return dlock__not_supported(lock->client, DLOCK_CAP_SHARED, "has no shared locks", err);
    int rc = check_owned(lock, acq, " before its downgrade", err);
    if (rc != 0) return rc;
    if (acq->mode != DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%s\" is not held exclusively: there is nothing to downgrade",
                          dlock__name_shown(lock->name));
    return dlock__fence_can_grow(acq, err);
}

int dlock_downgrade(dlock_lock *lock, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    rc = check_downgrade(lock, acq, err);
    if (rc != 0) return dlock__lock_end(lock, rc);
    acq->refs++;
    dlock__acq_downgrade(acq); /* a writer's rights end at once, whatever becomes of the request */
    rc = dlock__downgrade_await(acq, err);
    if (rc == 0) rc = check_owned(lock, acq, " before its downgrade", err);
    dlock__acq_put(acq);
    return dlock__lock_end(lock, rc);
}
