/* From one thread of this process to the next, without a word to the server: whether that may be, and when its
 * threads back off for those of others. */
#include "state/client.h"

/* After so many local hand-overs in a row other processes get their turn; the fence's low byte would hold 255. */
enum { HAND_OVERS_MAX = 32 };

/* An owner that has it for no longer is worth waiting for without sleeping. */
enum { SHORT_HOLD_US = 100 };

/* Where no queue knows who is next, our own waiters back off after that: for as long as a wake-up may take, or, where
 * others poll or nobody needs to be woken, for about as long as this process has had the lock. Then any question finds
 * it free with a chance of at least one in three, and no more than half of the time is lost when nobody asks. */
enum { BACKOFF_WAKE_US = 5000, BACKOFF_POLL_US = 50000 };

bool dlock__same_terms(const struct dlock__acquisition *acq, const struct dlock_lock *lock) {
    return acq->mode == lock->mode && acq->limit == lock->limit && acq->lease_ms == lock->lease_ms &&
           acq->flags == lock->flags;
}

bool dlock__may_stay(const struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    if (acq->mode != DLOCK_EXCLUSIVE) return false; /* the server knows who is next among readers and permits */
    if (acq->flags & DLOCK_FIXED_LEASE || acq->ordinal >= HAND_OVERS_MAX || acq->release_sent) return false;
    return !client->closed && dlock__now(client) < dlock__after(acq->granted_us, dlock__us(acq->lease_ms));
}

void dlock__next_turn(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    name->short_holds = dlock__now(name->client) - name->turn_us < SHORT_HOLD_US;
    acq->ordinal++;
}

/* The next waiter of this process owns the same grant, with a greater fence: without a word to the server if that has
 * just confirmed it. A grant that has ended unnoticed is not handed on beside the one that came after it. */
bool dlock__hand_over(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock__waiter *next = name->head;
    if (!next || next->done || name->asking || !dlock__same_terms(acq, next->lock) || !dlock__may_stay(acq))
        return false;
    if (dlock__now(name->client) >= next->deadline_us) return false;
    name->cpu = dlock__cpu();
    dlock__next_turn(acq);
    if (dlock__now(name->client) < acq->sure_until_us)
        dlock__deliver(acq);
    else
        dlock__acq_confirm(acq);
    return true;
}

void dlock__back_off(const struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    bool more = name->head || acq->ordinal >= HAND_OVERS_MAX; /* of this process: now or in a moment */
    if (!more || dlock__can(name->client, DLOCK_CAP_QUEUE)) return;
    int64_t now = dlock__now(name->client), most = now - acq->granted_us;
    if (most > BACKOFF_POLL_US) most = BACKOFF_POLL_US;
    if (dlock__can(name->client, DLOCK_CAP_WAKE) && acq->op->arg.retry_ms != 0) most = BACKOFF_WAKE_US;
    name->backoff_until_us = now + dlock__jitter(name->client, most / 2, most);
}
