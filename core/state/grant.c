/* The states of an acquisition. This file alone changes acq->state; check.c checks each change.
 *
 *     ASKING <-----> WAITING <-----+
 *        |              |          |
 *        +----> HELD <--+          |
 *                |                 |
 *                +<--> CONFIRMING -+
 *                +<--> DOWNGRADING
 *                +<--> LINGERING <--- RELEASING
 *
 *     all of these -----------------> RELEASING ---> ORPHAN ---> GONE; or ORPHAN at once
 *     CONFIRMING, HELD, DOWNGRADING -> LOST <---> LOST_ORPHAN
 *
 *     ASKING to WAITING, and back              [acq_wait, acq_become]
 *     ASKING or WAITING to HELD                [acq_granted, acq_woken]
 *     HELD to CONFIRMING, and back; to WAITING [acq_confirm, acq_renewed]
 *     HELD to DOWNGRADING, and back            [acq_downgrade, acq_downgraded]
 *     to LINGERING, and back to HELD           [acq_linger, acq_become]
 *     to RELEASING; to ORPHAN or LOST_ORPHAN   [acq_release; orphan, linger_end]
 *     to LOST; to GONE, or back to LOST        [lose; orphan_gone]
 *
 * ASKING       An acquire is being sent, or will be. It has a slot and no owner.
 * WAITING      The server said busy, or nothing: it is in the queue, or sends a request at ask_at_us. No owner.
 * CONFIRMING   To be handed over here after a renewal. Exclusive, its lease is not fixed, no owner.
 * HELD         Granted, and in name->held. Its owner may not know of it yet.
 * DOWNGRADING  As HELD, and shared here; the server has not confirmed that.
 * LINGERING    As HELD without an owner. Exclusive, its lease is not fixed. Ends at linger_until_us.
 * RELEASING    Its release was or will be sent, or it was exported. No owner; in name->held unless a wait gave it up.
 * LOST         Ended before its release; in name->lost until its owner has released it as often as acquired.
 * LOST_ORPHAN  As LOST, and the engine releases it: after its on_losts, or one lease.
 * ORPHAN       No owner, in no list of its name; the engine releases it. late_until_us is set, except in sessions.
 * GONE         No owner, and the server keeps nothing of it; a request that was sent earlier may still end.
 *
 * Until CONFIRMING it is name->asking, unless it is imported. From CONFIRMING to LINGERING it is granted: it has a fence,
 * no place in the server's queue, and a timer that goes off no later than its end, in the heap `due` during a renewal.
 * Before RELEASING no release was ever sent, so the token is the grant's; afterwards the only timer is the engine's.
 *
 * Each place that an acquisition is in holds a reference: name->asking, ->held or ->lost, and the engine for orphans. So
 * do a renewal by the keeper (`renewing`) and an operation in a batch, which are no states: both continue through all
 * changes of the acquisition's state. */
#include "base/probe.h"
#include "state/client.h"

/* Returns the timer of a grant. Only grants have one: they have a slot, and so a place in the heaps. */
static struct dlock__timer *timer_of(const struct dlock__acquisition *acq) {
    return &((struct dlock__slot *)acq->op)->timer;
}

/* Sets the timer by the state and times of a grant. */
static void set_timer(struct dlock__acquisition *acq) {
    struct dlock__timer *timer = timer_of(acq);
    struct dlock_client *client = acq->name->client;
    int64_t end_us = dlock__acq_end(acq);
    if (acq->renewing)
        dlock__timer_arm(timer, &client->timers.due, end_us);
    else
        dlock__timer_arm(timer, &client->timers.next, acq->renew_at_us < end_us ? acq->renew_at_us : end_us);
    dlock__acq_show(acq);
}

static void unset_timer(struct dlock__acquisition *acq) {
    dlock__timer_disarm(timer_of(acq));
    dlock__acq_show(acq);
}

static void set_state(struct dlock__acquisition *acq, enum dlock__acq_state to) {
    dlock__check_way(acq, to);
    bool before = dlock__acq_renewable(acq);
    dlock__acq_count(acq, -1);
    acq->state = to;
    dlock__acq_count(acq, 1);
    if (dlock__acq_renewable(acq))
        set_timer(acq);
    else if (before)
        unset_timer(acq);
    if (acq->guarded) dlock__guard_note(acq);
}

void dlock__acq_wait(struct dlock__acquisition *acq, int64_t ask_at_us) {
    set_state(acq, DLOCK__WAITING);
    acq->ask_at_us = ask_at_us;
}

void dlock__acq_release(struct dlock__acquisition *acq) {
    bool awaited = acq->state == DLOCK__DOWNGRADING || acq->op->extension;
    set_state(acq, DLOCK__RELEASING);
    if (awaited) pthread_cond_broadcast(&acq->name->client->changed);
}

void dlock__acq_become(struct dlock__acquisition *acq, enum dlock__acq_state state) {
    set_state(acq, state);
}

void dlock__acq_downgrade(struct dlock__acquisition *acq) {
    acq->mode = DLOCK_SHARED;
    set_state(acq, DLOCK__DOWNGRADING);
    dlock__acq_renew_at(acq, dlock__now(acq->name->client));
}

void dlock__acq_downgraded(struct dlock__acquisition *acq) {
    set_state(acq, DLOCK__HELD);
    acq->ordinal++;                /* a reader is another holder than the writer was */
    dlock__name_signal(acq->name); /* other readers can be granted, too */
}

/* ---- how long a grant is valid ---- */

/* A grant that would be valid for less than this is not used. */
enum { USEFUL_US = 5000 };

/* How far the clocks of a server and of its predecessors may differ: a day. */
static const int64_t fence_ahead_us = INT64_C(86400) * 1000000;

/* For this long after the server has confirmed a grant, local hand-overs need no renewal: SURE_TIMES times as long as
 * the request took, within bounds. A renewal then costs little compared with the time that has passed. */
enum { SURE_TIMES = 20, SURE_MIN_US = 20000, SURE_MAX_US = 100000 };

/* The part of a lease in which the grant is valid here: clocks may differ by 1 %, and 2 ms are for everything else. */
static int64_t usable_us(int64_t kept_ms) {
    int64_t us = dlock__us(kept_ms);
    return us - us / 100 - 2000;
}

int64_t dlock__lease_for_ms(int64_t us) {
    return us <= 0 ? 1 : (us + 2000) * 100 / 99 / 1000 + 1;
}

/* True if the server's kept_ms makes sense. A server may keep a grant for less than it was asked; more is cut to
 * lease_ms. */
static bool kept_sensible(struct dlock__acquisition *acq, int64_t lease_ms, int64_t *kept_ms) {
    struct dlock_client *client = acq->name->client;
    if (*kept_ms == DLOCK_FOREVER) return dlock__can(client, DLOCK_CAP_SESSION) && !dlock__can(client, DLOCK_CAP_LEASE);
    if (*kept_ms > lease_ms) *kept_ms = lease_ms;
    return *kept_ms > 0;
}

static void schedule(struct dlock__acquisition *acq, int64_t from_us, int64_t lease_ms, int64_t kept_ms) {
    bool fixed = acq->flags & DLOCK_FIXED_LEASE;
    acq->op->loss.confirmed_us = from_us;
    acq->op->loss.why = DLOCK_NOT_LOST;
    if (kept_ms < lease_ms) lease_ms = kept_ms;
    lease_ms = dlock__acq_least_ms(acq, from_us, lease_ms);
    int64_t now = dlock__now(acq->name->client), sure_us = SURE_TIMES * (now - from_us);
    if (sure_us < SURE_MIN_US) sure_us = SURE_MIN_US;
    acq->sure_until_us = now + (sure_us < SURE_MAX_US ? sure_us : SURE_MAX_US);
    if (kept_ms == DLOCK_FOREVER && !fixed)
        acq->valid_until_us = DLOCK__NEVER;
    else
        acq->valid_until_us = dlock__after(from_us, usable_us(lease_ms));
    acq->renew_at_us = fixed ? DLOCK__NEVER : dlock__after(from_us, dlock__us(lease_ms) / 3);
    acq->pause_us = 0;
}

static void arm_keeper(const struct dlock__acquisition *acq) {
    int64_t first_us = acq->valid_until_us < acq->renew_at_us ? acq->valid_until_us : acq->renew_at_us;
    if (first_us != DLOCK__NEVER) dlock__keeper_arm(acq->name->client, first_us);
}

void dlock__acq_renew_at(struct dlock__acquisition *acq, int64_t at_us) {
    acq->renew_at_us = at_us;
    set_timer(acq);
    arm_keeper(acq);
}

void dlock__acq_extend(struct dlock__acquisition *acq, struct dlock__extension *extension) {
    struct dlock_client *client = acq->name->client;
    int64_t end_us = dlock__after(dlock__now(client), usable_us(extension->lease_ms));
    acq->op->extension = extension;
    if (acq->flags & DLOCK_FIXED_LEASE && end_us < acq->valid_until_us) {
        acq->valid_until_us = end_us;
        dlock__acq_cut_short(acq);
        dlock__callback_arm(client, end_us);
    }
    dlock__guard_note(acq);
    dlock__acq_renew_at(acq, dlock__now(client));
}

bool dlock__acq_strengthen(struct dlock__acquisition *acq, const struct dlock_lock *lock) {
    bool fixed = acq->flags & DLOCK_FIXED_LEASE, stays_fixed = fixed && lock->flags & DLOCK_FIXED_LEASE;
    bool longer = lock->lease_ms > acq->lease_ms;
    if (stays_fixed) return !longer;
    if (!fixed && !longer) return true;
    acq->flags &= 0xffU ^ DLOCK_FIXED_LEASE;
    if (longer) acq->lease_ms = lock->lease_ms;
    dlock__guard_note(acq);
    dlock__acq_renew_at(acq, dlock__now(acq->name->client)); /* the server learns the lease by that */
    return true;
}

void dlock__acq_linger(struct dlock__acquisition *acq, int64_t until_us) {
    acq->linger_until_us = until_us;
    set_state(acq, DLOCK__LINGERING);
}

static void begin_grant(struct dlock__acquisition *acq, uint64_t fence) {
    acq->server_fence = fence;
    acq->ordinal = 0;
    acq->granted_us = dlock__now(acq->name->client);
}

static void hold(struct dlock__acquisition *acq) {
    set_state(acq, DLOCK__HELD);
    if (acq->unanswered.queued) dlock__acq_queued(acq, false);
    arm_keeper(acq);
}

/* Makes the waiter the owner, not told yet, and moves the acquisition from name->asking to name->held. While no handle
 * holds the acquisition no on_lost runs. */
static void own_for(struct dlock__acquisition *acq, struct dlock__waiter *waiter) {
    struct dlock__name *name = acq->name;
    name->ready_at_us = 0;
    name->accepted = true;
    if (name->outage) dlock__name_unanswered(name, NULL);
    if (name->asking == acq) {
        name->asking = NULL;
        dlock__held_add(name, acq); /* with the asker's reference */
    }
    dlock__acq_disown(acq);
    acq->owner = waiter->lock->owner;
    acq->thread = waiter->thread;
    acq->count = 1;
    dlock__guard_note(acq);
}

void dlock__hold_through(struct dlock__acquisition *acq, struct dlock_lock *lock, int64_t began_us) {
    dlock__hold_set(acq->hold, lock);
    acq->hold->count = 1;
    acq->name->turn_us = acq->hold->since_us = dlock__now(lock->client);
    lock->client->stats.grants++;
    /* an ordinal above 0: handed over, taken while it lingered, or imported */
    lock->client->stats.local_grants += acq->ordinal > 0;
    DLOCK__PROBE_GRANT(granted, acq);
    dlock__tell_grant(DLOCK_EVENT_GRANTED, acq, acq->hold->since_us - began_us, "");
    if (acq->wanted) dlock__callback_wanted(acq);
    if (lock->on_lost) dlock__callback_arm(lock->client, acq->valid_until_us);
}

void dlock__own(struct dlock__acquisition *acq, struct dlock_lock *lock) {
    acq->owner = lock->owner;
    acq->thread = dlock__thread_id();
    acq->count = 1;
    dlock__hold_through(acq, lock, dlock__now(lock->client));
}

void dlock__own_now(struct dlock__acquisition *acq, struct dlock__waiter *waiter) {
    own_for(acq, waiter);
    dlock__hold_through(acq, waiter->lock, waiter->began_us);
}

void dlock__deliver(struct dlock__acquisition *acq) {
    struct dlock__waiter *waiter = acq->name->head;
    own_for(acq, waiter);
    acq->refs++;
    waiter->handed = acq;
    waiter->done = true;
    waiter->result = 0;
    dlock__name_remove(acq->name, waiter);
    dlock__waiter_wake(waiter);
    if (acq->mode != DLOCK_EXCLUSIVE) dlock__name_signal(acq->name); /* there may be room for more readers or permits */
}

/* Holds a grant that the waiter did not get as an answer. A waiter that was cancelled in between will give the
 * acquisition up instead, with its grant. */
static void hold_for_waiter(struct dlock__acquisition *acq) {
    if (acq->name->head->done) {
        set_state(acq, DLOCK__WAITING);
        return;
    }
    hold(acq);
    dlock__deliver(acq);
}

static bool fence_sensible(uint64_t fence) {
    return fence > 0 && fence < UINT64_C(1) << 55;
}

int dlock__acq_granted(struct dlock__acquisition *acq, struct dlock_error *err) {
    int64_t kept_ms = acq->op->arg.kept_ms;
    if (!fence_sensible(acq->op->arg.fence))
        return dlock_fail(err, DLOCK_EPROTO, "lock \"%s\": the server granted it with the impossible fence %llu",
                          dlock__name_shown(acq->name), (unsigned long long)acq->op->arg.fence);
    if (!kept_sensible(acq, acq->lease_ms, &kept_ms))
        return dlock_fail(err, DLOCK_EPROTO, "lock \"%s\": the server granted it for the impossible time of %lld ms",
                          dlock__name_shown(acq->name), (long long)kept_ms);
    if (dlock__acq_died_with_connection(acq))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the connection that it lives in broke",
                          dlock__name_shown(acq->name));
    if (acq->op->lost)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the server ended a grant while it was asked for",
                          dlock__name_shown(acq->name));
    schedule(acq, acq->op->sent_us, acq->lease_ms, kept_ms);
    if (acq->valid_until_us <= dlock__now(acq->name->client))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the answer took longer than the lease of %lld ms",
                          dlock__name_shown(acq->name), (long long)kept_ms);
    begin_grant(acq, acq->op->arg.fence);
    dlock__acq_answered(acq, acq->op->sent_us);
    if (acq->unanswered.queued) dlock__acq_told(acq, acq->op->woken);
    hold(acq);
    return 0;
}

bool dlock__acq_renewed(struct dlock__acquisition *acq, int64_t sent_us, int64_t lease_ms, int64_t kept_ms) {
    if (!kept_sensible(acq, lease_ms, &kept_ms)) return false;
    schedule(acq, sent_us, lease_ms, kept_ms);
    dlock__guard_note(acq);
    dlock__acq_answered(acq, sent_us);
    DLOCK__PROBE_GRANT(renewed, acq);
    if (acq->state != DLOCK__CONFIRMING)
        dlock__acq_renew_at(acq, acq->renew_at_us);
    else if (acq->valid_until_us > dlock__now(acq->name->client))
        hold_for_waiter(acq);
    else /* the answer came too late: confirm again */
        dlock__acq_renew_at(acq, dlock__now(acq->name->client));
    return true;
}

/* Computes a wake-up's valid-until from its age, counted from the last clock sample. False if that proves nothing. */
static bool wake_valid_until(struct dlock_client *client, int64_t server_us, int64_t kept_ms, int64_t received_us,
                             int64_t *until_us) {
    if (client->clock_sample.server_us == 0 || server_us <= 0) return false;
    int64_t delta = server_us - client->clock_sample.server_us, passed = received_us - client->clock_sample.sent_us;
    if (delta < 0 || passed < 0 || delta > passed + passed / 100 + 2000) return false;
    int64_t from = dlock__after(client->clock_sample.sent_us, delta);
    if (from > received_us) from = received_us;
    *until_us = from + usable_us(kept_ms) - delta / 100;
    return *until_us > dlock__now(client) + USEFUL_US;
}

/* True unless the fence lies further ahead of the server's clock than one that follows a clock can. Such a one may be
 * forged, and no honest fence would ever be greater. Numbers that follow no clock are far smaller. After a clock was
 * set back the check only costs a request, whose answer has the fence. */
static bool fence_credible(const struct dlock_client *client, uint64_t fence) {
    int64_t server_us = client->clock_sample.server_us;
    int64_t now_us = dlock__after(server_us, dlock__now_us() - client->clock_sample.sent_us);
    return server_us == 0 || fence <= (uint64_t)dlock__after(now_us, fence_ahead_us);
}

void dlock__acq_woken(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us) {
    struct dlock_client *client = acq->name->client;
    int64_t kept_ms = wake->kept_ms, until_us = DLOCK__NEVER;
    if (!fence_sensible(wake->fence) || !kept_sensible(acq, acq->lease_ms, &kept_ms)) return;
    if (dlock__acq_died_with_connection(acq)) return; /* a connection broke while the wake-up was being read */
    bool known = kept_ms == DLOCK_FOREVER || wake_valid_until(client, wake->server_us, kept_ms, received_us, &until_us);
    /* Without this a fixed lease would lack the time since the hand-over: only an answer to a request restarts it. A
     * lease that is renewed gets it back by the next renewal. */
    bool whole = kept_ms >= acq->lease_ms && dlock__can(client, DLOCK_CAP_SESSION);
    bool sure = known && (whole || !(acq->flags & DLOCK_FIXED_LEASE)) && fence_credible(client, wake->fence);
    dlock__acq_told(acq, true);
    /* The wake-up may announce a grant that is over and was followed by another one: only an answer has the fence of
     * the present grant. */
    if (!sure || !dlock__slot_attach(acq)) {
        dlock__acq_ask_again(acq);
        return;
    }
    begin_grant(acq, wake->fence);
    schedule(acq, received_us, acq->lease_ms, kept_ms);
    if (until_us < acq->valid_until_us) {
        acq->renew_at_us -= acq->valid_until_us - until_us;
        acq->valid_until_us = until_us;
    }
    hold_for_waiter(acq);
}

void dlock__acq_confirm(struct dlock__acquisition *acq) {
    set_state(acq, DLOCK__CONFIRMING);
    dlock__held_remove(acq->name, acq);
    acq->name->asking = acq; /* with the reference of name->held */
    dlock__acq_disown(acq);
    acq->pause_us = 0;
    acq->valid_until_us = DLOCK__NEVER;
    dlock__acq_renew_at(acq, dlock__now(acq->name->client));
}

void dlock__clock_sample_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us) {
    if (server_us > 0 && sent_us >= client->clock_sample.sent_us)
        client->clock_sample = (struct dlock__clock_sample){sent_us, server_us};
}

void dlock__acq_ask_again(struct dlock__acquisition *acq) {
    if (acq->state == DLOCK__ASKING) acq->op->look = true;
    if (acq->state != DLOCK__WAITING) return;
    acq->ask_at_us = dlock__now(acq->name->client);
    dlock__name_signal(acq->name);
}

void dlock__wake_granted(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us) {
    if (acq->state == DLOCK__WAITING) {
        dlock__acq_woken(acq, wake, received_us);
    } else if (acq->state == DLOCK__ASKING) {
        acq->op->woken = true;
        acq->op->wake = *wake;
        acq->op->received_us = received_us;
    }
}

void dlock__orphan(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    int64_t now = dlock__now_us();
    bool fresh = !dlock__acq_orphaned(acq);
    if (fresh) {
        acq->refs++;
        if (!acq->op) { /* it only waited */
            acq->next = client->engine.bare;
            client->engine.bare = acq;
        }
    }
    set_state(acq, dlock__acq_lost(acq) ? DLOCK__LOST_ORPHAN : DLOCK__ORPHAN);
    dlock__acq_given_up(acq, now);
    acq->pause_us = 0;
    if (acq->untold == 0)
        dlock__orphan_at(acq, now);
    else if (fresh) /* a callback that never returns must not keep the lock forever */
        dlock__orphan_at(acq, dlock__after(now, dlock__us(acq->lease_ms)));
}

void dlock__orphan_at(struct dlock__acquisition *acq, int64_t at_us) {
    struct dlock_client *client = acq->name->client;
    if (acq->op) dlock__timer_arm(&((struct dlock__slot *)acq->op)->timer, &client->engine.orphans, at_us);
    pthread_cond_signal(&client->engine.cond);
    if (client->engine.n_threads < 1 + (client->engine.n > 0) && !client->closed)
        dlock__keeper_kick(client); /* the keeper starts a thread */
}

void dlock__orphan_gone(struct dlock__acquisition *acq) {
    if (acq->op) dlock__timer_disarm(&((struct dlock__slot *)acq->op)->timer);
    set_state(acq, acq->state == DLOCK__LOST_ORPHAN ? DLOCK__LOST : DLOCK__GONE);
}

/* Loses a grant in CONFIRMING: the waiter that would have got it asks for another one. */
static void lose_hand_over(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    name->asking = NULL;
    if (dlock__acq_may_remain(acq)) dlock__orphan(acq);
    dlock__name_signal(name);
    dlock__acq_put(acq);
}

/* True if an owner has been told of the grant. */
static bool owner_knows(const struct dlock__acquisition *acq) {
    const struct dlock__hold *hold = acq->hold;
    while (hold && hold->count == 0) hold = hold->next;
    return hold != NULL;
}

void dlock__lose(struct dlock__acquisition *acq, enum dlock_loss why) {
    struct dlock__name *name = acq->name;
    enum dlock__acq_state before = acq->state;
    if (before == DLOCK__LINGERING) { /* not held here */
        dlock__linger_end(acq);
        return;
    }
    dlock__loss_note(acq, why);
    set_state(acq, DLOCK__LOST);
    if (before == DLOCK__CONFIRMING) {
        lose_hand_over(acq);
        return;
    }
    if (before == DLOCK__DOWNGRADING || acq->op->extension) pthread_cond_broadcast(&name->client->changed);
    dlock__held_remove(name, acq);
    acq->next = name->lost; /* with the reference of name->held */
    name->lost = acq;
    if (owner_knows(acq)) {
        dlock__stats_held(acq);
        dlock__stats_lost(acq);
    }
    dlock__callback_lost(acq);
    if (dlock__acq_may_remain(acq)) dlock__orphan(acq);
    dlock__name_signal(name);
}

void dlock__lost_remove(struct dlock__acquisition *acq) {
    struct dlock__acquisition **at = &acq->name->lost;
    while (*at != acq) at = &(*at)->next;
    *at = acq->next;
}

void dlock__expire_if_due(struct dlock__acquisition *acq) {
    bool ends = dlock__acq_held(acq) || acq->state == DLOCK__LINGERING;
    if (ends && dlock__now(acq->name->client) >= acq->valid_until_us) dlock__lose(acq, DLOCK_LOSS_EXPIRED);
}

void dlock__linger_end(struct dlock__acquisition *acq) {
    struct dlock__name *name = acq->name;
    dlock__held_remove(name, acq);
    dlock__orphan(acq); /* the engine releases it at once */
    dlock__name_signal(name);
    dlock__acq_put(acq);
}

/* Anybody may have sent the message: so at most one renewal follows each confirmation that is a moment old. */
void dlock__acq_doubt(struct dlock__acquisition *acq) {
    int64_t now = dlock__now(acq->name->client), at_us = acq->sure_until_us > now ? acq->sure_until_us : now;
    if (!dlock__acq_renewable(acq)) return;
    acq->op->loss.why = DLOCK_LOSS_BROKEN;
    if (dlock__acq_is_renewed(acq) && !acq->renewing && at_us < acq->renew_at_us) dlock__acq_renew_at(acq, at_us);
}

void dlock__acq_renewing(struct dlock__acquisition *acq) {
    acq->refs++;
    acq->renewing = true;
    dlock__timer_arm(timer_of(acq), &acq->name->client->timers.due, dlock__acq_end(acq));
}

void dlock__connection_epoch_ended(struct dlock_client *client) {
    client->clock_sample = (struct dlock__clock_sample){0};
    if (!dlock__can(client, DLOCK_CAP_SESSION)) return;
    client->pool.session++;
    for (struct dlock__acquisition *acq = dlock__acq_first(client), *next; acq; acq = next) {
        next = acq->all_next;
        /* even if a renewal of it is still to be answered */
        if (dlock__acq_renewable(acq)) dlock__lose(acq, DLOCK_LOSS_SESSION);
    }
}

bool dlock__connection_is_needed(struct dlock_client *client) {
    const struct dlock__acquisition *acq = dlock__acq_first(client);
    while (acq && acq->state > DLOCK__RELEASING) acq = acq->all_next;
    return acq;
}
