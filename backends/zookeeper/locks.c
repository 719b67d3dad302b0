/* Locks, exclusive and shared. A new claim costs one round trip: the create of its node and the listing go out back to
 * back, or the create is enough (alone.c). */
#include "asking.h"

/* Where the name was used for permits: is it still? The claim that came first is right, and the other one sees its
 * node: each looks for the other's after it has made its own. */
static int refuse_permits(struct zookeeper_asking *a) {
    struct zookeeper_asking permits;
    struct dlock_claim claim = *a->claim;
    bool older = false;
    claim.mode = DLOCK_PERMIT;
    memset(claim.state, 0, sizeof claim.state);
    zookeeper_asking_begin(&permits, a->z, &claim, a->deadline_us, a->err);
    for (size_t i = 0; i < permits.n_stands && !older; i++) {
        int rc = zookeeper_find_older(a, permits.stands[i].dir, &older);
        if (rc != 0) return rc;
    }
    if (!older) return 0;
    int rc = zookeeper_round(&permits, NULL);
    uint32_t limit = permits.stands[0].line.limit ? permits.stands[0].line.limit : permits.stands[1].line.limit;
    if (rc == ZOOKEEPER_LOOKED) rc = zookeeper_leave(a, &a->stands[0]);
    if (rc != 0) return rc;
    if (limit)
        return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as %u permits", a->claim->name, limit);
    return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as permits", a->claim->name);
}

/* Readers wait a moment for tries of writers that are to leave. */
static bool wait_for_tries(struct zookeeper_asking *a) {
    const struct zookeeper_line *line = &a->stands[0].line;
    if (line->ahead != line->fleeting || a->moments == 0 || dlock_now_us() >= a->deadline_us) return false;
    a->moments--;
    zookeeper_pause(a->z);
    return true;
}

int zookeeper_lock_step(struct zookeeper_asking *a) {
    struct zookeeper_stand *s = &a->stands[0];
    int rc = zookeeper_round(a, zookeeper_stands(s, ZOOKEEPER_SENT) ? NULL : s);
    if (rc != ZOOKEEPER_LOOKED) return rc;
    if (s->line.permits && !zookeeper_stands(s, ZOOKEEPER_RIGHTFUL) && (rc = refuse_permits(a)) != 0) return rc;
    *s->word |= ZOOKEEPER_RIGHTFUL;
    if (s->line.members == 1 && !s->line.permits) *s->word |= ZOOKEEPER_LONELY;
    if (s->line.ahead == 0) {
        bool lingers = a->claim->flags & DLOCK_CLAIM_LINGER && a->claim->mode == DLOCK_EXCLUSIVE;
        return lingers && (rc = zookeeper_watch_others(a)) != 0 ? rc : zookeeper_granted(a);
    }
    if (wait_for_tries(a)) return ZOOKEEPER_AGAIN;
    if (a->claim->flags & DLOCK_CLAIM_QUEUE || zookeeper_stands(s, ZOOKEEPER_QUEUED)) return zookeeper_stay(a, s);
    rc = zookeeper_leave(a, s);
    return rc == 0 ? DLOCK_EBUSY : rc;
}
