/* Checks the states of acquisitions, in builds with DLOCK_CHECK_STATES: each change against `ways`, and the state that
 * an acquisition leaves against the invariants in the table at the head of grant.c. They are checked when a state is
 * left, since a function that changes it has more to change afterwards. */
#include "state/client.h"

#ifdef DLOCK_CHECK_STATES
#include <stdio.h>
#include <stdlib.h>

#define TO(state) (1u << DLOCK__##state)

static const unsigned ways[] = {
    [DLOCK__ASKING] = TO(ASKING) | TO(WAITING) | TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__WAITING] = TO(ASKING) | TO(WAITING) | TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__CONFIRMING] = TO(WAITING) | TO(HELD) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__HELD] = TO(CONFIRMING) | TO(DOWNGRADING) | TO(LINGERING) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__DOWNGRADING] = TO(HELD) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__LINGERING] = TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__RELEASING] = TO(LINGERING) | TO(ORPHAN),
    [DLOCK__LOST] = TO(LOST_ORPHAN),
    [DLOCK__LOST_ORPHAN] = TO(LOST_ORPHAN) | TO(LOST),
    [DLOCK__ORPHAN] = TO(ORPHAN) | TO(GONE),
    [DLOCK__GONE] = 0,
};

static const char *const words[] = {"ASKING",    "WAITING", "CONFIRMING",  "HELD",   "DOWNGRADING", "LINGERING",
                                    "RELEASING", "LOST",    "LOST_ORPHAN", "ORPHAN", "GONE"};

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (condition) break;                                                                                       \
        fprintf(stderr, "dlock: lock \"%s\" is %s, but not: %s\n", acq->name->text, words[acq->state], #condition); \
        abort();                                                                                                    \
    } while (0)

static bool in_list(const struct dlock__acquisition *list, const struct dlock__acquisition *acq) {
    while (list && list != acq) list = list->next;
    return list;
}

static bool has_no_owner(const struct dlock__acquisition *acq) {
    return acq->count == 0 && (!acq->hold || (!acq->hold->handle && acq->hold->count == 0 && !acq->hold->next));
}

/* What is true of all that is granted: CONFIRMING to LINGERING. */
static void check_grant(const struct dlock__acquisition *acq) {
    const struct dlock__timers *timers = &acq->name->client->timers;
    CHECK(acq->op && acq->server_fence > 0);
    CHECK(!acq->unanswered.queued);
    const struct dlock__timer *timer = &((const struct dlock__slot *)acq->op)->timer;
    if (!timer->heap) /* during a renewal only the end is watched */
        CHECK(acq->state == DLOCK__CONFIRMING || dlock__acq_end(acq) == DLOCK__NEVER);
    else
        CHECK(timer->heap == &timers->due || (timer->heap == &timers->next && !acq->renewing));
    CHECK(!timer->heap || acq->state == DLOCK__CONFIRMING || timer->at_us <= dlock__acq_end(acq));
}

void dlock__check_state(const struct dlock__acquisition *acq) {
    const struct dlock_client *client = acq->name->client;
    const struct dlock__timer *timer = acq->op ? &((const struct dlock__slot *)acq->op)->timer : NULL;
    bool fixed = acq->flags & DLOCK_FIXED_LEASE;
    CHECK(acq->unanswered.late_until_us || !acq->unanswered.late_acquire);
    if (acq->state < DLOCK__RELEASING) CHECK(!acq->op || acq->op->kind != DLOCK__RELEASE || !acq->op->resent);
    if (dlock__acq_orphaned(acq))
        CHECK(!timer || !timer->heap || timer->heap == &client->engine.orphans);
    else if (dlock__acq_renewable(acq))
        check_grant(acq);
    else
        CHECK(!timer || !timer->heap);
    switch (acq->state) {
    case DLOCK__ASKING: CHECK(acq->op && has_no_owner(acq)); return;
    case DLOCK__WAITING: CHECK(has_no_owner(acq)); return;
    case DLOCK__CONFIRMING: CHECK(has_no_owner(acq) && acq->mode == DLOCK_EXCLUSIVE && !fixed); return;
    case DLOCK__HELD: return;
    case DLOCK__DOWNGRADING: CHECK(acq->mode == DLOCK_SHARED); return;
    case DLOCK__LINGERING: CHECK(has_no_owner(acq) && acq->mode == DLOCK_EXCLUSIVE && !fixed); return;
    case DLOCK__RELEASING: CHECK(acq->op && has_no_owner(acq)); return;
    case DLOCK__LOST:
    case DLOCK__LOST_ORPHAN: CHECK(acq->op && acq->server_fence > 0); return;
    case DLOCK__ORPHAN:
        CHECK(has_no_owner(acq) && acq->name->asking != acq);
        CHECK(acq->unanswered.late_until_us || dlock__can(client, DLOCK_CAP_SESSION));
        return;
    case DLOCK__GONE: CHECK(has_no_owner(acq)); return;
    }
}

void dlock__check_way(const struct dlock__acquisition *acq, enum dlock__acq_state to) {
    if (!(ways[acq->state] & 1u << to)) {
        fprintf(stderr, "dlock: lock \"%s\": there is no way from %s to %s\n", acq->name->text, words[acq->state],
                words[to]);
        abort();
    }
    dlock__check_state(acq);
    bool elsewhere = acq->state == DLOCK__ASKING && to != DLOCK__WAITING; /* it is imported, or has no waiter */
    if (acq->state <= DLOCK__CONFIRMING && !elsewhere) CHECK(acq->name->asking == acq);
    if (acq->state >= DLOCK__HELD && acq->state <= DLOCK__LINGERING && to != DLOCK__ORPHAN)
        CHECK(in_list(acq->name->held, acq));
}
#endif
