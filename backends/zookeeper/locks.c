/* Locks, exclusive and shared. A new claim costs one round trip: the create of its node and the listing go out back to
 * back. */
#include "asking.h"

/* A lock that nobody held before us, where the name once was used for permits: is it still? A claim of permits looks
 * for locks in the same way, after it has made its node, so at least one of the two sees the other. */
static int refuse_permits(struct zookeeper_asking *a) {
    struct zookeeper_asking other;
    struct dlock_claim permit = *a->claim;
    permit.mode = DLOCK_PERMIT;
    memset(permit.state, 0, sizeof permit.state);
    zookeeper_asking_begin(&other, a->z, &permit, a->deadline_us, a->err);
    int rc = zookeeper_round(&other, NULL);
    a->dead = other.dead;
    if (rc != ZOOKEEPER_LOOKED) return rc;
    a->fresh = false;
    if (other.stands[0].line.members == 0 && other.stands[1].line.members == 0) return 0;
    uint32_t limit = other.stands[0].line.limit;
    if ((rc = zookeeper_leave(a, &a->stands[0])) != 0) return rc;
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
    if (s->line.permits && a->fresh && s->line.older == 0 && (rc = refuse_permits(a)) != 0) return rc;
    if (s->line.ahead == 0) return zookeeper_granted(a);
    if (wait_for_tries(a)) return ZOOKEEPER_AGAIN;
    if (a->claim->flags & DLOCK_CLAIM_QUEUE || zookeeper_stands(s, ZOOKEEPER_QUEUED)) return zookeeper_stay(a, s);
    rc = zookeeper_leave(a, s);
    return rc == 0 ? DLOCK_EBUSY : rc;
}
