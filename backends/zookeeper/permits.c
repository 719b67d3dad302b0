/* Permits, in the layout of Curator's InterProcessSemaphoreV2: `leases` has one node per held permit, and waiters queue
 * in `locks`, as for a mutex. Only the first in the queue may make a lease, which is a permit as soon as it is among
 * the first `limit` leases: so one waiter watches the leases, and every other one watches the waiter before it.
 *
 * A free permit without waiters is taken in one round trip, without queueing first. A lease that turns out to exceed
 * the limit, or to have overtaken a waiter in the queue, is given back. That does not disturb clients of Curator: they
 * make their lease when they are first in the queue, and have a permit as soon as there are no more leases than the
 * limit. The limit is part of the names of dlock's nodes. */
#include "attempt.h"

/* Decides about a lease that exists: it is a permit if it is among the first `limit` leases and has passed no
 * waiter. */
static int take(struct zookeeper_attempt *a) {
    struct zookeeper_slot *lease = &a->slots[0], *queue = &a->slots[1];
    bool in_turn = zookeeper_slot_has(lease, ZOOKEEPER_GRANTED) || queue->view.own || queue->view.members == 0;
    int rc;
    if (lease->view.ahead < a->claim->limit && in_turn) {
        if (zookeeper_is_worn(lease)) return zookeeper_retire(a, lease);
        *lease->word |= ZOOKEEPER_GRANTED | ZOOKEEPER_RIGHTFUL; /* later claims respect this one */
        return (rc = zookeeper_leave(a, queue)) == 0 ? zookeeper_granted(a) : rc;
    }
    if (queue->view.own) {
        *queue->word |= ZOOKEEPER_QUEUED;
        return zookeeper_stay_leased(a, lease);
    }
    if ((rc = zookeeper_leave(a, lease)) != 0) return rc;
    if (!(a->claim->flags & DLOCK_CLAIM_QUEUE)) return DLOCK_EBUSY;
    rc = zookeeper_round(a, queue);
    return rc == ZOOKEEPER_LOOKED ? ZOOKEEPER_AGAIN : rc;
}

int zookeeper_permit_step(struct zookeeper_attempt *a) {
    struct zookeeper_slot *lease = &a->slots[0], *queue = &a->slots[1];
    bool there = zookeeper_slot_has(lease, ZOOKEEPER_SENT) || zookeeper_slot_has(queue, ZOOKEEPER_SENT);
    int rc = zookeeper_await_container(a);
    if (rc != 0 || (rc = zookeeper_await_use(a)) != 0) return rc;
    if ((rc = zookeeper_round(a, there ? NULL : lease)) != ZOOKEEPER_LOOKED) return rc;
    bool others = a->lock_members > 0 || lease->view.misfits > 0 || queue->view.misfits > 0;
    if ((rc = zookeeper_check_use(a, others)) != 0) return rc;
    if (lease->view.own) return take(a);
    if (!queue->view.own) return ZOOKEEPER_AGAIN;
    if (queue->view.ahead > 0) return zookeeper_stay(a, queue);
    if (zookeeper_is_worn(queue)) return zookeeper_retire(a, queue);
    rc = zookeeper_round(a, lease);
    return rc == ZOOKEEPER_LOOKED ? take(a) : rc;
}
