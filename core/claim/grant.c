/* The states of an acquisition. This file alone changes claim->phase, and every change is in the table below:
 *
 *     ASKING --busy--> WAITING --GRANTED wake-up, age unproved--> CONFIRMING
 *       | ^              | ^ |                                      |  |  ^
 *       | +--due, LOOK---+ +-|---ELOST, the connection broke--------+  |  |
 *       | granted            | GRANTED wake-up, age proved             |  |
 *       v                    v                                 renewed |  | local hand-over, long
 *     HELD <-----------------+-----------------------------------------+  | since confirmed
 *       |------------------------------------------------------------------+
 *       |--local hand-over--> HELD, with the next ordinal
 *       |--downgrade--> DOWNGRADING --confirmed--> HELD, with the next ordinal
 *       |--release, linger=--> LINGERING --taken again--> HELD     --its time is over, WANTED, lost--> ORPHAN
 *       |--release, export--> RELEASING --answered--> gone     --no answer--> ORPHAN
 *       +--valid-until, ELOST, the connection broke--> LOST --as many releases as acquires--> gone
 *
 *     given up while ASKING, WAITING or CONFIRMING --> RELEASING (a thread sees to it) or ORPHAN
 *     LOST --the server may keep it--> LOST_ORPHAN --acknowledged, or its lease is over--> LOST
 *     ORPHAN --acknowledged, or its lease is over--> GONE
 *
 * state       what is true, and who refers to it             left by
 * ASKING      an acquire is sent, or about to be; it is      dlock__claim_granted, _imported -> HELD; _wait -> WAITING;
 *             name->asking                                   given up: _release -> RELEASING, dlock__orphan -> ORPHAN
 * WAITING     busy; it stands in the server's queue, or      dlock__claim_ask -> ASKING; _woken -> HELD, CONFIRMING;
 *             asks again at ask_at_us; name->asking          given up, as ASKING
 * CONFIRMING  granted, and the keeper renews it before that  dlock__claim_renewed -> HELD, or WAITING for a cancelled
 *             counts; name->asking; ordinal > 0: a           waiter; _lapsed -> WAITING; dlock__lose -> LOST (a
 *             hand-over of this process                      hand-over); given up, as ASKING
 * HELD        granted, until valid_until_us; name->held      dlock__claim_confirm -> CONFIRMING; _downgrade ->
 *                                                            DOWNGRADING; _linger -> LINGERING; _release -> RELEASING;
 *                                                            dlock__lose -> LOST; dlock__orphan -> ORPHAN (close)
 * DOWNGRADING as HELD, counts as shared, and the keeper      dlock__claim_downgraded -> HELD; else as HELD
 *             renews it as that; name->held
 * LINGERING   as HELD, and nobody holds it; name->held       dlock__claim_keep -> HELD; _release -> RELEASING;
 *                                                            dlock__linger_end -> ORPHAN
 * RELEASING   its release, or the renewal before an export,  dlock__claim_keep -> HELD, DOWNGRADING (the export
 *             is on the way; name->held, or nobody           failed); _linger -> LINGERING; dlock__orphan -> ORPHAN;
 *                                                            answered: gone
 * LOST        over before its release; name->lost until      dlock__orphan -> LOST_ORPHAN; the last release: gone
 *             everybody has released it
 * LOST_ORPHAN the same, and the janitor releases it, after   dlock__orphan_gone -> LOST
 *             its on_losts have returned; name->lost as
 *             above, and client->janitor.orphans
 * ORPHAN      nobody's; the janitor releases it;             dlock__orphan_gone -> GONE
 *             client->janitor.orphans
 * GONE        only a request that is on the way knows it     -
 *
 * Each place named here has a reference. A renewal of the keeper's (`renewing`) and an operation in a batch have one of
 * their own: neither is a state, since both go on whatever becomes of the claim meanwhile. */
#include "claim/client.h"

#ifdef DLOCK_CHECK_STATES
#include <stdio.h>
#include <stdlib.h>

#define TO(state) (1u << DLOCK__##state)

static const unsigned ways[] = {
    [DLOCK__ASKING] = TO(ASKING) | TO(WAITING) | TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__WAITING] = TO(ASKING) | TO(WAITING) | TO(CONFIRMING) | TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__CONFIRMING] = TO(WAITING) | TO(HELD) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__HELD] = TO(CONFIRMING) | TO(DOWNGRADING) | TO(LINGERING) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__DOWNGRADING] = TO(HELD) | TO(RELEASING) | TO(LOST) | TO(ORPHAN),
    [DLOCK__LINGERING] = TO(HELD) | TO(RELEASING) | TO(ORPHAN),
    [DLOCK__RELEASING] = TO(HELD) | TO(DOWNGRADING) | TO(LINGERING) | TO(ORPHAN),
    [DLOCK__LOST] = TO(LOST_ORPHAN),
    [DLOCK__LOST_ORPHAN] = TO(LOST_ORPHAN) | TO(LOST),
    [DLOCK__ORPHAN] = TO(ORPHAN) | TO(GONE),
    [DLOCK__GONE] = 0,
};

static void check_way(const struct dlock__claim *claim, enum dlock__phase to) {
    static const char *const words[] = {"ASKING",    "WAITING", "CONFIRMING",  "HELD",   "DOWNGRADING", "LINGERING",
                                        "RELEASING", "LOST",    "LOST_ORPHAN", "ORPHAN", "GONE"};
    if (ways[claim->phase] & 1u << to) return;
    fprintf(stderr, "dlock: lock \"%s\": there is no way from %s to %s\n", claim->name->text, words[claim->phase],
            words[to]);
    abort();
}
#else
static inline void check_way(const struct dlock__claim *claim, enum dlock__phase to) {
    (void)claim;
    (void)to;
}
#endif

/* As its state and its times say: only the timers of grants are set, which have slots, and so room in the heaps. */
static void set_timers(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__slot *slot = (struct dlock__slot *)claim->op;
    if (!slot || (!dlock__claim_renewable(claim) && !slot->renewal.heap && !slot->end.heap)) return;
    bool renewed = dlock__claim_renewable(claim) && !claim->renewing, lingers = claim->phase == DLOCK__LINGERING;
    bool own_end = claim->flags & DLOCK_FIXED_LEASE || lingers, ends = dlock__claim_held(claim) || lingers;
    int64_t end_us = claim->valid_until_us;
    if (lingers && claim->linger_until_us < end_us) end_us = claim->linger_until_us;
    dlock__timer_arm(&slot->renewal, &client->timers.renewals, renewed ? claim->renew_at_us : DLOCK__NEVER);
    dlock__timer_arm(&slot->end, own_end ? &client->timers.own_ends : &client->timers.ends,
                     ends ? end_us : DLOCK__NEVER);
}

static void set_state(struct dlock__claim *claim, enum dlock__phase to) {
    check_way(claim, to);
    claim->phase = to;
    set_timers(claim);
    dlock__guard_valid_until(claim);
}

void dlock__claim_ask(struct dlock__claim *claim) {
    set_state(claim, DLOCK__ASKING);
}

void dlock__claim_wait(struct dlock__claim *claim, int64_t ask_at_us) {
    set_state(claim, DLOCK__WAITING);
    claim->ask_at_us = ask_at_us;
}

void dlock__claim_release(struct dlock__claim *claim) {
    bool downgrading = claim->phase == DLOCK__DOWNGRADING;
    set_state(claim, DLOCK__RELEASING);
    if (downgrading) pthread_cond_broadcast(&claim->name->client->changed);
}

void dlock__claim_keep(struct dlock__claim *claim, enum dlock__phase as) {
    set_state(claim, as);
}

void dlock__claim_downgrade(struct dlock__claim *claim) {
    set_state(claim, DLOCK__DOWNGRADING);
    claim->mode = DLOCK_SHARED;
    dlock__guard_note(claim);
    dlock__claim_renew_at(claim, dlock__now(claim->name->client));
}

void dlock__claim_downgraded(struct dlock__claim *claim) {
    set_state(claim, DLOCK__HELD);
    claim->ordinal++;                /* a reader is another holder than the writer was */
    dlock__name_signal(claim->name); /* readers may go along */
}

/* ---- how long a grant is valid ---- */

/* A grant of less than this is as good as none. */
enum { USEFUL_US = 5000 };

/* Between threads of this process a grant goes from hand to hand without a question for so long after the server has
 * confirmed it: so many times as long as that took, within bounds. A question then costs little beside the time that
 * has passed. */
enum { SURE_TIMES = 20, SURE_MIN_US = 20000, SURE_MAX_US = 100000 };

/* How much of a lease is ours: clocks may differ by 1 %, and 2 ms are for everything else. */
static int64_t usable_us(int64_t kept_ms) {
    int64_t us = dlock__us(kept_ms);
    return us - us / 100 - 2000;
}

/* The server may keep a grant for less than we asked, never for more as far as we are concerned. */
static bool kept_sensible(struct dlock__claim *claim, int64_t *kept_ms) {
    struct dlock_client *client = claim->name->client;
    if (*kept_ms == DLOCK_FOREVER) return dlock__can(client, DLOCK_CAP_SESSION);
    if (*kept_ms > claim->lease_ms) *kept_ms = claim->lease_ms;
    return *kept_ms > 0;
}

static void schedule(struct dlock__claim *claim, int64_t from_us, int64_t kept_ms) {
    bool fixed = claim->flags & DLOCK_FIXED_LEASE;
    int64_t lease_ms = kept_ms < claim->lease_ms ? kept_ms : claim->lease_ms;
    int64_t now = dlock__now(claim->name->client), sure_us = SURE_TIMES * (now - from_us);
    if (sure_us < SURE_MIN_US) sure_us = SURE_MIN_US;
    claim->sure_until_us = now + (sure_us < SURE_MAX_US ? sure_us : SURE_MAX_US);
    if (kept_ms == DLOCK_FOREVER && !fixed)
        claim->valid_until_us = DLOCK__NEVER;
    else
        claim->valid_until_us = dlock__after(from_us, usable_us(lease_ms));
    claim->renew_at_us = fixed ? DLOCK__NEVER : dlock__after(from_us, dlock__us(lease_ms) / 3);
    claim->pause_us = 0;
}

static void arm_keeper(const struct dlock__claim *claim) {
    int64_t first_us = claim->valid_until_us < claim->renew_at_us ? claim->valid_until_us : claim->renew_at_us;
    if (first_us != DLOCK__NEVER) dlock__keeper_arm(claim->name->client, first_us);
}

void dlock__claim_renew_at(struct dlock__claim *claim, int64_t at_us) {
    claim->renew_at_us = at_us;
    set_timers(claim);
    arm_keeper(claim);
}

void dlock__claim_linger(struct dlock__claim *claim, int64_t until_us) {
    claim->linger_until_us = until_us;
    set_state(claim, DLOCK__LINGERING);
}

static void begin_grant(struct dlock__claim *claim, uint64_t fence) {
    claim->server_fence = fence;
    claim->ordinal = 0;
    claim->granted_us = dlock__now(claim->name->client);
}

static void hold(struct dlock__claim *claim) {
    set_state(claim, DLOCK__HELD);
    claim->outcome_unknown = false;
    arm_keeper(claim);
}

/* The waiter is the owner from here on, though not yet told: while no handle holds it no on_lost runs. */
void dlock__own_for(struct dlock__claim *claim, struct dlock__waiter *waiter) {
    struct dlock__name *name = claim->name;
    dlock__name_heard(name, 0, 0);
    if (name->asking == claim) {
        name->asking = NULL;
        dlock__name_hold(name, claim); /* with the asker's reference */
    }
    dlock__claim_disown(claim);
    claim->owner = waiter->lock->owner;
    claim->thread = waiter->thread;
    claim->count = 1;
    claim->queued = false;
}

/* The owner is about to be told. */
void dlock__hold_through(struct dlock__claim *claim, struct dlock_lock *lock) {
    dlock__hold_set(claim->hold, lock);
    claim->hold->count = 1;
    claim->name->turn_us = dlock__now(lock->client);
    if (lock->on_lost) dlock__callback_arm(lock->client, claim->valid_until_us);
}

void dlock__own(struct dlock__claim *claim, struct dlock_lock *lock) {
    claim->owner = lock->owner;
    claim->thread = dlock__thread_id();
    claim->count = 1;
    dlock__hold_through(claim, lock);
}

void dlock__deliver(struct dlock__claim *claim) {
    struct dlock__waiter *waiter = claim->name->head;
    dlock__own_for(claim, waiter);
    claim->refs++;
    waiter->handed = claim;
    waiter->done = true;
    waiter->result = 0;
    dlock__name_remove(claim->name, waiter);
    dlock__waiter_wake(waiter);
    if (claim->mode != DLOCK_EXCLUSIVE) dlock__name_signal(claim->name); /* there may be room for more */
}

/* A grant that the asker did not fetch itself. If that one was cancelled meanwhile it will give the claim up, grant and
 * all. */
static void hold_for_waiter(struct dlock__claim *claim) {
    if (claim->name->head->done) {
        set_state(claim, DLOCK__WAITING);
        return;
    }
    hold(claim);
    dlock__deliver(claim);
}

static bool fence_sensible(uint64_t fence) {
    return fence > 0 && fence < UINT64_C(1) << 55;
}

int dlock__claim_granted(struct dlock__claim *claim, struct dlock_error *err) {
    int64_t kept_ms = claim->op->arg.kept_ms;
    const char *shown = dlock__name_shown(claim->name);
    if (!fence_sensible(claim->op->arg.fence))
        return dlock_fail(err, DLOCK_EPROTO, "lock \"%s\": the server granted it with the impossible fence %llu", shown,
                          (unsigned long long)claim->op->arg.fence);
    if (!kept_sensible(claim, &kept_ms))
        return dlock_fail(err, DLOCK_EPROTO, "lock \"%s\": the server granted it for the impossible time of %lld ms",
                          shown, (long long)kept_ms);
    if (dlock__claim_died_with_connection(claim))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the connection that it lives in broke", shown);
    schedule(claim, claim->op->sent_us, kept_ms);
    if (claim->valid_until_us <= dlock__now(claim->name->client))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the answer took longer than the lease of %lld ms",
                          shown, (long long)kept_ms);
    begin_grant(claim, claim->op->arg.fence);
    hold(claim);
    return 0;
}

int dlock__claim_imported(struct dlock__claim *claim, uint64_t fence, unsigned ordinal, struct dlock_error *err) {
    claim->op->arg.fence = fence;
    int rc = dlock__claim_granted(claim, err);
    claim->ordinal = ordinal;
    return rc;
}

bool dlock__claim_renewed(struct dlock__claim *claim, int64_t sent_us, int64_t kept_ms) {
    if (!kept_sensible(claim, &kept_ms)) return false;
    schedule(claim, sent_us, kept_ms);
    dlock__guard_valid_until(claim);
    claim->outcome_unknown = false;
    if (claim->phase != DLOCK__CONFIRMING)
        dlock__claim_renew_at(claim, claim->renew_at_us);
    else if (claim->valid_until_us > dlock__now(claim->name->client))
        hold_for_waiter(claim);
    else /* the answer was too slow: confirm again */
        dlock__claim_renew_at(claim, dlock__now(claim->name->client));
    return true;
}

/* Counts a grant's age from the last answered request: false when that proves nothing. */
static bool wake_valid_until(struct dlock_client *client, int64_t server_us, int64_t kept_ms, int64_t received_us,
                             int64_t *until_us) {
    if (!client->clock_sample.known || server_us <= 0) return false;
    int64_t delta = server_us - client->clock_sample.server_us, passed = received_us - client->clock_sample.sent_us;
    if (delta < 0 || passed < 0 || delta > passed + passed / 100 + 2000) return false;
    int64_t from = dlock__after(client->clock_sample.sent_us, delta);
    if (from > received_us) from = received_us;
    *until_us = from + usable_us(kept_ms) - delta / 100;
    return *until_us > dlock__now(client) + USEFUL_US;
}

/* At once. */
static void confirm(struct dlock__claim *claim) {
    set_state(claim, DLOCK__CONFIRMING);
    claim->valid_until_us = DLOCK__NEVER;
    dlock__claim_renew_at(claim, dlock__now(claim->name->client));
}

void dlock__claim_woken(struct dlock__claim *claim, uint64_t fence, int64_t server_us, int64_t kept_ms,
                        int64_t received_us) {
    struct dlock_client *client = claim->name->client;
    if (!fence_sensible(fence) || !kept_sensible(claim, &kept_ms)) return;
    if (!dlock__slot_attach(claim)) { /* as if it had not come: the answer to the next question says the same */
        claim->ask_at_us = dlock__now(client);
        dlock__name_signal(claim->name);
        return;
    }
    begin_grant(claim, fence);
    claim->pause_us = 0;
    int64_t until_us = DLOCK__NEVER;
    bool known = kept_ms == DLOCK_FOREVER || wake_valid_until(client, server_us, kept_ms, received_us, &until_us);
    /* A hand-over is confirmed by a renewal. A fixed lease has none, so it is confirmed, and made whole, before it
     * counts. */
    bool whole = kept_ms >= claim->lease_ms && dlock__can(client, DLOCK_CAP_SESSION);
    if (!known || (claim->flags & DLOCK_FIXED_LEASE && !whole)) {
        confirm(claim);
        return;
    }
    schedule(claim, received_us, kept_ms);
    if (until_us < claim->valid_until_us) {
        claim->renew_at_us -= claim->valid_until_us - until_us;
        claim->valid_until_us = until_us;
    }
    hold_for_waiter(claim);
}

void dlock__claim_confirm(struct dlock__claim *claim) {
    dlock__name_unhold(claim->name, claim);
    claim->name->asking = claim; /* with that list's reference */
    dlock__claim_disown(claim);
    claim->pause_us = 0;
    confirm(claim);
}

void dlock__clock_sample_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us) {
    if (server_us <= 0 || (client->clock_sample.known && sent_us < client->clock_sample.sent_us)) return;
    client->clock_sample.known = true;
    client->clock_sample.sent_us = sent_us;
    client->clock_sample.server_us = server_us;
}

void dlock__claim_lapsed(struct dlock__claim *claim) {
    if (claim->phase == DLOCK__CONFIRMING) set_state(claim, DLOCK__WAITING);
    if (claim->phase == DLOCK__WAITING) claim->server_fence = 0;
    dlock__claim_ask_again(claim, dlock__now_us());
}

void dlock__claim_ask_again(struct dlock__claim *claim, int64_t at_us) {
    if (claim->phase == DLOCK__ASKING) claim->op->look = true;
    if (claim->phase != DLOCK__WAITING) return;
    claim->ask_at_us = at_us;
    dlock__name_signal(claim->name);
}

void dlock__wake_granted(struct dlock__claim *claim, const struct dlock_wake *wake, int64_t received_us) {
    if (claim->phase == DLOCK__WAITING) {
        dlock__claim_woken(claim, wake->fence, wake->server_us, wake->kept_ms, received_us);
    } else if (claim->phase == DLOCK__ASKING) {
        claim->op->wake.here = true;
        claim->op->wake.fence = wake->fence;
        claim->op->wake.server_us = wake->server_us;
        claim->op->wake.kept_ms = wake->kept_ms;
        claim->op->wake.received_us = received_us;
    }
}

void dlock__orphan(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    int64_t now = dlock__now_us();
    if (!dlock__claim_orphaned(claim)) {
        claim->refs++;
        claim->orphan_next = client->janitor.orphans;
        client->janitor.orphans = claim;
    }
    set_state(claim, dlock__claim_lost(claim) ? DLOCK__LOST_ORPHAN : DLOCK__ORPHAN);
    claim->late_acquire = dlock__claim_may_come_late(claim);
    if (!claim->outcome_unknown) claim->last_unknown_us = now; /* the janitor does until it is certain */
    claim->release_at_us = claim->untold > 0 ? DLOCK__NEVER : now;
    claim->pause_us = 0;
    if (client->janitor.started)
        pthread_cond_signal(&client->janitor.cond);
    else
        dlock__keeper_kick(client); /* which starts it */
}

void dlock__orphan_gone(struct dlock__claim *claim) {
    set_state(claim, claim->phase == DLOCK__LOST_ORPHAN ? DLOCK__LOST : DLOCK__GONE);
}

void dlock__orphan_late(struct dlock__claim *claim) {
    if (!dlock__claim_may_come_late(claim)) return;
    claim->outcome_unknown = true; /* as of the acquire: nothing else is */
    dlock__orphan(claim);
}

/* The waiter that it was to go to asks for a grant of its own. */
static void lose_hand_over(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    name->asking = NULL;
    if (dlock__claim_may_remain(claim)) dlock__orphan(claim);
    dlock__name_signal(name);
    dlock__claim_put(claim);
}

void dlock__lose(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    enum dlock__phase before = claim->phase;
    if (before == DLOCK__LINGERING) { /* nobody here held it any more */
        dlock__linger_end(claim);
        return;
    }
    set_state(claim, DLOCK__LOST);
    if (before == DLOCK__CONFIRMING) {
        lose_hand_over(claim);
        return;
    }
    if (before == DLOCK__DOWNGRADING) pthread_cond_broadcast(&name->client->changed);
    dlock__name_unhold(name, claim);
    claim->next = name->lost; /* takes over the reference */
    name->lost = claim;
    dlock__callback_lost(claim);
    if (dlock__claim_may_remain(claim)) dlock__orphan(claim);
    dlock__name_signal(name);
}

void dlock__lost_remove(struct dlock__claim *claim) {
    struct dlock__claim **at = &claim->name->lost;
    while (*at != claim) at = &(*at)->next;
    *at = claim->next;
}

void dlock__expire_if_due(struct dlock__claim *claim) {
    bool ends = dlock__claim_held(claim) || claim->phase == DLOCK__LINGERING;
    if (ends && dlock__now(claim->name->client) >= claim->valid_until_us) dlock__lose(claim);
}

void dlock__linger_end(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    dlock__name_unhold(name, claim);
    dlock__orphan(claim); /* the janitor releases it now */
    dlock__name_signal(name);
    dlock__claim_put(claim);
}

int64_t dlock__expire_all(struct dlock_client *client) {
    struct dlock__heap *heaps[] = {&client->timers.ends, &client->timers.own_ends};
    int64_t now_us = dlock__now_us(), next_us = DLOCK__NEVER;
    for (size_t i = 0; i < 2; i++) {
        while (dlock__heap_first_us(heaps[i]) <= now_us) {
            client->timers.looks++;
            dlock__lose(dlock__end_claim(dlock__heap_first(heaps[i]))); /* or it has lingered for long enough */
        }
        if (dlock__heap_first_us(heaps[i]) < next_us) next_us = dlock__heap_first_us(heaps[i]);
    }
    return next_us;
}

struct dlock__claim *dlock__renewal_take(struct dlock_client *client, int64_t until_us) {
    if (dlock__heap_first_us(&client->timers.renewals) > until_us) return NULL;
    struct dlock__timer *first = dlock__heap_first(&client->timers.renewals);
    dlock__timer_disarm(first);
    client->timers.looks++;
    return dlock__renewal_claim(first);
}

void dlock__connection_epoch_ended(struct dlock_client *client) {
    client->clock_sample.known = false;
    if (!dlock__can(client, DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE)) return;
    client->session++;
    for (struct dlock__claim *claim = client->claims, *next; claim; claim = next) {
        next = claim->all_next;
        if (dlock__claim_had(claim)) dlock__lose(claim);
    }
}
