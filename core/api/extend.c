/* A grant's lease is set anew by its holder. The keeper does it, as a renewal with another lease: so no other renewal
 * of the same grant is on the way, and it is tried again as renewals are. */
#include "api/api.h"

static int check(struct dlock_lock *lock, const struct dlock__acquisition *acq, int64_t *lease_ms,
                 struct dlock_error *err) {
    if (!acq) return dlock__not_owned(lock, err);
    bool fixed = acq->flags & DLOCK_FIXED_LEASE;
    if (*lease_ms == 0) *lease_ms = fixed ? lock->lease_ms : acq->lease_ms;
    if (!fixed && *lease_ms != acq->lease_ms)
        return dlock_fail(err, DLOCK_EINVAL,
                          "lock \"%s\" is renewed in the background, every time for %lld ms: give that, or 0, or "
                          "acquire it with DLOCK_FIXED_LEASE",
                          dlock__name_shown(lock->name), (long long)acq->lease_ms);
    return dlock__lease_check(lock->client, *lease_ms, err);
}

/* Whether the caller has it, and there is time. */
static bool goes_on(struct dlock_lock *lock, const struct dlock__acquisition *acq, int64_t deadline_us) {
    return dlock__owned(lock) == acq && dlock__acq_held(acq) && !lock->client->closed &&
           dlock__now(lock->client) < deadline_us;
}

/* For something to change, no longer than the grant lasts. */
static void wait(const struct dlock__acquisition *acq, int64_t deadline_us) {
    struct dlock_client *client = acq->name->client;
    dlock__wait(client, &client->changed, acq->valid_until_us < deadline_us ? acq->valid_until_us : deadline_us);
}

/* One at a time, and none that a renewal has outrun which is on the way. */
static void extend(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock__extension *extension) {
    struct dlock_client *client = lock->client;
    int64_t deadline_us = dlock__bounded(client, DLOCK__NEVER);
    while ((acq->renewing || acq->op->extension) && goes_on(lock, acq, deadline_us)) wait(acq, deadline_us);
    if (!goes_on(lock, acq, deadline_us)) return;
    dlock__acq_extend(acq, extension);
    while (extension->result == DLOCK_EUNAVAILABLE && goes_on(lock, acq, deadline_us)) wait(acq, deadline_us);
    if (acq->op->extension != extension) return;
    acq->op->extension = NULL;
    if (!dlock__acq_is_renewed(acq)) dlock__acq_renew_at(acq, DLOCK__NEVER);
    pthread_cond_broadcast(&client->changed); /* the next one */
}

/* What became of it. */
static int outcome(struct dlock_lock *lock, const struct dlock__acquisition *acq, int result, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (dlock__acq_lost(acq)) return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before its extension", shown);
    if (dlock__owned(lock) != acq || !dlock__acq_held(acq))
        return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released before its extension", shown);
    if (result == 0) return 0;
    if (lock->client->closed) return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    return dlock_fail(err, result, "lock \"%s\" is held, its extension was not confirmed: %s", shown,
                      dlock_strerror(result));
}

int dlock_extend(dlock_lock *lock, int64_t lease_ms, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    struct dlock__extension extension = {lease_ms, DLOCK_EUNAVAILABLE};
    rc = check(lock, acq, &extension.lease_ms, err);
    if (rc == 0) {
        acq->refs++;
        extend(lock, acq, &extension);
        rc = outcome(lock, acq, extension.result, err);
        dlock__acq_put(acq);
    }
    return dlock__lock_end(lock, rc);
}
