/* Released locks that stay with the process for a while (`linger=`), and are taken again for nothing. The grant goes
 * back to the server when its time is over, when somebody here wants it otherwise, and when the server says that
 * another client asks (WANTED). */
#include "state/client.h"

/* Leaves some for a downgrade and for tickets. */
enum { ORDINAL_MAX = DLOCK__ORDINAL_MAX - 55 };

/* The thread that lets it linger briefly ends that itself; if it is stopped meanwhile, the keeper does. Two threads that
 * share a lock on a Redis server get through a third more turns by that, 16 threads a sixth; on files, where a request
 * takes less than the spin, they got through half as many, so there it is not done. */
enum { BRIEFLY_US = 1000, REQUEST_MIN_US = 10 };

bool dlock__linger_wanted(const struct dlock_lock *lock) {
    return lock->client->uri->linger_ms > 0 && lock->mode == DLOCK_EXCLUSIVE && !(lock->flags & DLOCK_FIXED_LEASE);
}

bool dlock__linger_begin(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock_client *client = name->client;
    if (!acq->may_linger || name->head || client->closed || acq->release_sent) return false;
    if (acq->mode != DLOCK_EXCLUSIVE || acq->ordinal >= ORDINAL_MAX) return false;
    dlock__acq_disown(acq);
    dlock__acq_linger(acq, dlock__after(dlock__now(client), dlock__us(client->uri->linger_ms)));
    dlock__keeper_arm(client, acq->linger_until_us);
    return true;
}

enum dlock__briefly dlock__linger_briefly(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    struct dlock_client *client = name->client;
    if (name->head || acq->contended || !dlock__may_stay(acq)) return DLOCK__BRIEFLY_SEND;
    if (acq->granted_us - acq->op->sent_us < REQUEST_MIN_US) return DLOCK__BRIEFLY_SEND;
    if (dlock__now(client) >= acq->sure_until_us) return DLOCK__BRIEFLY_SEND;
    unsigned ordinal = acq->ordinal, seen = atomic_load_explicit(&name->taken, memory_order_relaxed);
    int cpu = dlock__cpu(), next_cpu = name->cpu;
    name->cpu = cpu;
    dlock__acq_linger(acq, dlock__now(client) + BRIEFLY_US);
    dlock__leave(client);
    (cpu == next_cpu ? dlock__yield_once : dlock__spin)(&name->taken, seen); /* it cannot run while this thread does */
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
    if (!dlock__lingers(acq) || !dlock__same_terms(acq, lock)) return NULL; /* its time was over */
    dlock__acq_keep(acq, DLOCK__HELD);
    dlock__next_turn(acq);
    atomic_fetch_add_explicit(&acq->name->taken, 1, memory_order_release);
    return acq;
}

struct dlock__acquisition *dlock__linger_misfit(const struct dlock_lock *lock) {
    struct dlock__acquisition *acq = dlock__name_exclusive(lock->name);
    return acq && dlock__lingers(acq) && !dlock__same_terms(acq, lock) ? acq : NULL;
}

void dlock__linger_not(struct dlock__acquisition *acq) {
    acq->may_linger = false;
    if (dlock__lingers(acq)) dlock__linger_end(acq);
}
