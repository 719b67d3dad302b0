/* Exclusive and shared locks. A new claim costs one round trip: the create of its node and the listing are sent back to
 * back, or the create alone suffices (alone.c). */
#include "attempt.h"

/* Pauses if all nodes ahead are tries, which will be deleted shortly. False: there is another, or no time. */
static bool wait_for_tries(struct zookeeper_attempt *a) {
    const struct zookeeper_queue_view *view = &a->slots[0].view;
    if (view->ahead != view->fleeting || a->moments == 0 || dlock_now_us() >= a->deadline_us) return false;
    a->moments--;
    zookeeper_pause(a->z);
    return true;
}

int zookeeper_lock_step(struct zookeeper_attempt *a) {
    struct zookeeper_slot *s = &a->slots[0];
    int rc = zookeeper_await_container(a);
    if (rc != 0 || (rc = zookeeper_await_use(a)) != 0) return rc;
    rc = zookeeper_round(a, zookeeper_slot_has(s, ZOOKEEPER_SENT) ? NULL : s);
    if (rc != ZOOKEEPER_LOOKED || (rc = zookeeper_check_use(a, s->view.permits)) != 0) return rc;
    if (s->view.members == 1 && !s->view.permits) *s->word |= ZOOKEEPER_LONELY;
    if (s->view.ahead == 0 && zookeeper_is_worn(s)) return zookeeper_retire(a, s);
    if (s->view.ahead == 0) {
        bool lingers = a->claim->flags & DLOCK_CLAIM_LINGER && a->claim->mode == DLOCK_EXCLUSIVE;
        return lingers && (rc = zookeeper_watch_others(a)) != 0 ? rc : zookeeper_granted(a);
    }
    if (wait_for_tries(a)) return ZOOKEEPER_AGAIN;
    if (a->claim->flags & DLOCK_CLAIM_QUEUE || zookeeper_slot_has(s, ZOOKEEPER_QUEUED)) return zookeeper_stay(a, s);
    rc = zookeeper_leave(a, s);
    return rc == 0 ? DLOCK_EBUSY : rc;
}
