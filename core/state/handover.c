/* Hand-overs from one thread of this process to the next without a request: when one is allowed, and when this
 * process's waiters back off for other processes. Also lingering (`linger=`): released grants that stay with the
 * process for a while and are taken again without a request. A lingering grant is released when its time is over, when
 * a lock here wants the name on other terms, or when the server says that another client asks (WANTED). */
#include "state/client.h"

/* Most local hand-overs in a row, so that other processes get their turn; the fence's low byte would allow 255. */
enum { HAND_OVERS_MAX = 32 };

/* A hold that ends within this time is worth spinning for. */
enum { SHORT_HOLD_US = 100 };

/* Where no server queue decides who is next, this process's waiters back off after a release: for as long as a wake-up
 * may take, or, where others poll or the server woke no waiter, for about as long as this process held the lock. A
 * question of another client then finds the lock free with a probability of at least one in three, and at most half of
 * the time is lost when no other client asks. */
enum { BACKOFF_WAKE_US = 5000, BACKOFF_POLL_US = 50000 };

static bool same_terms(const struct dlock__acquisition *acq, const struct dlock_lock *lock) {
    if (lock->watch && !acq->watched) return false;
    return acq->mode == lock->mode && acq->limit == lock->limit && acq->lease_ms == lock->lease_ms &&
           acq->flags == lock->flags;
}

static bool may_stay(const struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    if (acq->mode != DLOCK_EXCLUSIVE) return false; /* the server knows who is next among readers and permits */
    if (acq->flags & DLOCK_FIXED_LEASE || acq->ordinal >= HAND_OVERS_MAX) return false;
    return !client->stopped && dlock__now(client) < dlock__after(acq->granted_us, dlock__us(acq->lease_ms));
}

static void next_turn(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    name->short_holds = dlock__now(name->client) - name->turn_us < SHORT_HOLD_US;
    acq->ordinal++;
}

/* The next waiter gets the same grant with a greater fence: without a request if the server has confirmed the grant
 * recently, else after a renewal. A grant that has ended unnoticed must not be handed on while a later grant of the
 * same token exists. */
bool dlock__hand_over(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock__waiter *next = name->head;
    if (!next || next->done || name->asking || !same_terms(acq, next->lock) || !may_stay(acq)) return false;
    bool sure = dlock__now(name->client) < acq->sure_until_us;
    if (dlock__now(name->client) >= next->deadline_us || (!sure && dlock__acq_may_be_granted_anew(acq))) return false;
    name->cpu = dlock__cpu();
    next_turn(acq);
    if (sure)
        dlock__deliver(acq);
    else
        dlock__acq_confirm(acq);
    return true;
}

void dlock__back_off(const struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    int64_t now = dlock__now(name->client), most = now - acq->granted_us;
    dlock__rhythm_released(name->rhythm, most, now);
    bool more = name->head || acq->ordinal >= HAND_OVERS_MAX; /* waiters of this process, now or in a moment */
    if (!more || dlock__can(name->client, DLOCK_CAP_QUEUE)) return;
    if (most > BACKOFF_POLL_US) most = BACKOFF_POLL_US;
    if (dlock__can(name->client, DLOCK_CAP_WAKE) && acq->op->arg.retry_ms != 0) most = BACKOFF_WAKE_US;
    name->backoff_until_us = now + dlock__jitter(name->client, most / 2, most);
}

/* ---- lingering ---- */

/* Leaves ordinals for a downgrade and for tickets. */
enum { ORDINAL_MAX = DLOCK__ORDINAL_MAX - 55 };

/* Lingering briefly: the releasing thread ends it itself. If that thread gets no processor, a thread that wants
 * the name in this process does, or the keeper in its next round after BRIEFLY_US, before the grant's next renewal.
 * The keeper's timer is not set for it: that would wake the keeper up to a thousand times a second, nearly
 * always for nothing. Measured with a Redis server: a third more turns with two threads that share a lock, a sixth more
 * with 16. On files a request takes less time than the spin, and two threads had half as many turns: there it is not
 * done (REQUEST_MIN_US). */
enum { BRIEFLY_US = 1000, REQUEST_MIN_US = 10 };

bool dlock__linger_begin(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock_client *client = name->client;
    if (client->uri->linger_ms == 0 || !acq->watched || acq->wanted || name->head || client->stopped) return false;
    if (acq->mode != DLOCK_EXCLUSIVE || acq->flags & DLOCK_FIXED_LEASE || acq->ordinal >= ORDINAL_MAX) return false;
    dlock__acq_disown(acq);
    dlock__acq_linger(acq, dlock__after(dlock__now(client), dlock__us(client->uri->linger_ms)));
    dlock__keeper_arm(client, acq->linger_until_us);
    return true;
}

enum dlock__briefly dlock__linger_briefly(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock_client *client = name->client;
    if (name->head || acq->contended || !may_stay(acq)) return DLOCK__BRIEFLY_SEND;
    if (acq->granted_us - acq->op->sent_us < REQUEST_MIN_US) return DLOCK__BRIEFLY_SEND;
    if (dlock__now(client) >= acq->sure_until_us) return DLOCK__BRIEFLY_SEND;
    unsigned ordinal = acq->ordinal, seen = atomic_load_explicit(&name->taken, memory_order_relaxed);
    int cpu = dlock__cpu(), next_cpu = name->cpu;
    name->cpu = cpu;
    dlock__acq_linger(acq, dlock__now(client) + BRIEFLY_US);
    dlock__leave(client);
    (cpu == next_cpu ? dlock__yield_once : dlock__spin)(&name->taken, seen); /* on this CPU the next thread cannot run
                                                                              * while this one spins */
    dlock__enter(client);
    if (acq->ordinal != ordinal) return DLOCK__BRIEFLY_TAKEN;
    if (!dlock__lingers(acq)) return DLOCK__BRIEFLY_ENDED;
    dlock__acq_release(acq);
    name->short_holds = false;
    return DLOCK__BRIEFLY_SEND;
}

struct dlock__acquisition *dlock__linger_take(struct dlock_lock *lock) {
    struct dlock__acquisition *acq = dlock__name_exclusive(lock->name);
    if (!acq || !dlock__lingers(acq)) return NULL;
    dlock__expire_if_due(acq);
    if (!dlock__lingers(acq) || !same_terms(acq, lock)) return NULL; /* its time was over */
    dlock__acq_become(acq, DLOCK__HELD);
    next_turn(acq);
    atomic_fetch_add_explicit(&acq->name->taken, 1, memory_order_release);
    return acq;
}

struct dlock__acquisition *dlock__linger_misfit(const struct dlock_lock *lock) {
    struct dlock__acquisition *acq = dlock__name_exclusive(lock->name);
    return acq && dlock__lingers(acq) && !same_terms(acq, lock) ? acq : NULL;
}

void dlock__linger_not(struct dlock__acquisition *acq) {
    bool was_wanted = acq->wanted;
    acq->wanted = true;
    if (dlock__lingers(acq))
        dlock__linger_end(acq);
    else if (!was_wanted)
        dlock__callback_wanted(acq);
}
