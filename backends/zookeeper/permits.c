/* Permits, in the layout of Curator's InterProcessSemaphoreV2: `leases` has one node per permit that is held, and who
 * waits stands in line in `locks`, as for a mutex. Only the first there may make a lease, a permit as soon as it is
 * among the first `limit` leases: so one waiter watches the leases, and the others one another.
 *
 * A permit that is free, with nobody waiting, is taken in one round trip, without standing in line before. That is safe
 * with Curator, who counts all leases, and gives none back that is not one too many: of two that come at once the later
 * one leaves again. The limit is in the names of nodes of ours. */
#include "asking.h"

/* A name has one use, and one limit, as long as it is held or waited for; the claim that came first is right. */
static int refuse(struct zookeeper_asking *a) {
    const struct zookeeper_stand *lease = &a->stands[0], *queue = &a->stands[1];
    uint32_t limit = lease->line.limit ? lease->line.limit : queue->line.limit;
    bool first = lease->line.older == 0 && queue->line.older == 0;
    bool locked = first && a->lock_members > 0, differs = limit && limit != a->claim->limit;
    if (!a->fresh || (!locked && !differs)) return 0;
    for (size_t i = 0; i < a->n_stands; i++) {
        int rc = zookeeper_leave(a, &a->stands[i]);
        if (rc != 0) return rc;
    }
    if (locked) return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as a lock", a->claim->name);
    return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as %u permits, not %u", a->claim->name, limit,
                      a->claim->limit);
}

/* With a lease: it is a permit if it is among the first ones, and nobody waited for it. */
static int take(struct zookeeper_asking *a) {
    struct zookeeper_stand *lease = &a->stands[0], *queue = &a->stands[1];
    bool in_turn = zookeeper_stands(lease, ZOOKEEPER_QUEUED) || queue->line.own || queue->line.members == 0;
    int rc;
    if (lease->line.ahead < a->claim->limit && in_turn) {
        *lease->word |= ZOOKEEPER_QUEUED; /* whoever comes to wait from now on waits for us, too */
        return (rc = zookeeper_leave(a, queue)) == 0 ? zookeeper_granted(a) : rc;
    }
    if (queue->line.own) {
        *queue->word |= ZOOKEEPER_QUEUED;
        return zookeeper_stay_leased(a, lease);
    }
    if ((rc = zookeeper_leave(a, lease)) != 0) return rc;
    if (!(a->claim->flags & DLOCK_CLAIM_QUEUE)) return DLOCK_EBUSY;
    rc = zookeeper_round(a, queue);
    return rc == ZOOKEEPER_LOOKED ? ZOOKEEPER_AGAIN : rc;
}

int zookeeper_permit_step(struct zookeeper_asking *a) {
    struct zookeeper_stand *lease = &a->stands[0], *queue = &a->stands[1];
    bool stands = zookeeper_stands(lease, ZOOKEEPER_SENT) || zookeeper_stands(queue, ZOOKEEPER_SENT);
    int rc = zookeeper_round(a, stands ? NULL : lease);
    if (rc != ZOOKEEPER_LOOKED || (rc = refuse(a)) != 0) return rc;
    if (lease->line.own) return take(a);
    if (!queue->line.own) return ZOOKEEPER_AGAIN;
    if (queue->line.ahead > 0) return zookeeper_stay(a, queue);
    rc = zookeeper_round(a, lease);
    return rc == ZOOKEEPER_LOOKED ? take(a) : rc;
}
