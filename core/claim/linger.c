/* Released locks that stay with the process for a while (`linger=`), and are taken again for nothing. The grant goes
 * back to the server when its time is over, when somebody here wants it otherwise, and when the server says that
 * another client asks (WANTED). */
#include "claim/client.h"

/* Leaves some for a downgrade and for tickets. */
enum { ORDINAL_MAX = DLOCK__ORDINAL_MAX - 55 };

/* The thread that lets it linger briefly ends that itself; if it is stopped meanwhile, the keeper does. */
enum { BRIEFLY_US = 1000 };

bool dlock__linger_wanted(const struct dlock_lock *lock) {
    return lock->client->uri->linger_ms > 0 && lock->mode == DLOCK_EXCLUSIVE && !(lock->flags & DLOCK_FIXED_LEASE);
}

bool dlock__linger_begin(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    struct dlock_client *client = name->client;
    if (!claim->may_linger || name->head || client->closed || claim->release_sent) return false;
    if (claim->mode != DLOCK_EXCLUSIVE || claim->ordinal >= ORDINAL_MAX) return false;
    dlock__claim_disown(claim);
    dlock__claim_linger(claim, dlock__after(dlock__now(client), dlock__us(client->uri->linger_ms)));
    dlock__keeper_arm(client, claim->linger_until_us);
    return true;
}

enum dlock__briefly dlock__linger_briefly(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    struct dlock_client *client = name->client;
    if (!name->short_holds || name->head || claim->contended || !dlock__may_stay(claim)) return DLOCK__BRIEFLY_SEND;
    if (dlock__now(client) >= claim->sure_until_us) return DLOCK__BRIEFLY_SEND;
    unsigned ordinal = claim->ordinal, seen = atomic_load_explicit(&name->taken, memory_order_relaxed);
    int cpu = dlock__cpu(), next_cpu = name->cpu;
    name->cpu = cpu;
    dlock__claim_linger(claim, dlock__now(client) + BRIEFLY_US);
    dlock__leave(client);
    (cpu == next_cpu ? dlock__yield_once : dlock__spin)(&name->taken, seen); /* it cannot run while this thread does */
    dlock__enter(client);
    if (claim->ordinal != ordinal) return DLOCK__BRIEFLY_TAKEN;
    if (!dlock__lingers(claim)) return DLOCK__BRIEFLY_ENDED;
    dlock__claim_release(claim);
    name->short_holds = false;
    return DLOCK__BRIEFLY_SEND;
}

struct dlock__claim *dlock__linger_take(struct dlock_lock *lock) {
    struct dlock__claim *claim = dlock__name_exclusive(lock->name);
    if (!claim || !dlock__lingers(claim)) return NULL;
    dlock__expire_if_due(claim);
    if (!dlock__lingers(claim) || !dlock__same_terms(claim, lock)) return NULL; /* its time was over */
    dlock__claim_keep(claim, DLOCK__HELD);
    dlock__next_turn(claim);
    atomic_fetch_add_explicit(&claim->name->taken, 1, memory_order_release);
    return claim;
}

struct dlock__claim *dlock__linger_misfit(const struct dlock_lock *lock) {
    struct dlock__claim *claim = dlock__name_exclusive(lock->name);
    return claim && dlock__lingers(claim) && !dlock__same_terms(claim, lock) ? claim : NULL;
}

void dlock__linger_not(struct dlock__claim *claim) {
    claim->may_linger = false;
    if (dlock__lingers(claim)) dlock__linger_end(claim);
}
