/* Ways in which a grant ends: handed to another thread of this process, released at the server, or lost. */
#include "client.h"

/* After so many local hand-overs in a row other processes get their turn; the fence's low byte would hold 255. */
enum { HAND_OVERS_MAX = 32 };

/* Whoever has it for no longer is worth waiting for without sleeping. */
enum { BRISK_US = 100 };

/* Where no queue knows who is next, our own waiters stand back after that: for as long as a wake-up may take, or, where
 * others poll or nobody needs to be woken, for about as long as this process has had the lock. Then any question finds
 * it free with a chance of at least one in three, and no more than half of the time is lost when nobody asks. */
enum { YIELD_WAKE_US = 5000, YIELD_POLL_US = 50000 };

enum { RETRY_MIN_US = 10000, RETRY_MAX_US = 300000 };

bool dlock__same_wish(const struct dlock__claim *claim, const struct dlock_lock *lock) {
    return claim->mode == lock->mode && claim->limit == lock->limit && claim->lease_ms == lock->lease_ms &&
           claim->options == lock->options;
}

bool dlock__may_stay(const struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    if (claim->mode != DLOCK_EXCLUSIVE) return false; /* the server knows who is next among readers and permits */
    if (claim->options & DLOCK_FIXED_LEASE || claim->ordinal >= HAND_OVERS_MAX || claim->release_sent) return false;
    return !client->closed && dlock__now(client) < dlock__after(claim->granted_us, dlock__us(claim->lease_ms));
}

void dlock__next_turn(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    name->brisk = dlock__now(name->client) - name->turn_us < BRISK_US;
    claim->ordinal++;
}

/* The next waiter of this process owns the same grant, with a greater fence: without a word to the server if that has
 * just confirmed it. A grant that has ended unnoticed is not handed on beside the one that came after it. */
static bool hand_over(struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    struct dlock__waiter *next = name->head;
    if (!next || next->done || name->asking || !dlock__same_wish(claim, next->lock) || !dlock__may_stay(claim))
        return false;
    if (dlock__now(name->client) >= next->deadline_us) return false;
    name->cpu = dlock__cpu();
    dlock__next_turn(claim);
    if (dlock__now(name->client) < claim->sure_until_us)
        dlock__deliver(claim);
    else
        dlock__claim_confirm(claim);
    return true;
}

int dlock__release_result(const struct dlock__claim *claim) {
    return claim->op->result == DLOCK_ELOST && claim->op->resent ? 0 : claim->op->result;
}

bool dlock__release_again(const struct dlock__claim *claim, int64_t sent_us) {
    struct dlock_client *client = claim->name->client;
    bool hung = dlock__one_each(client) && dlock__now(client) - sent_us >= dlock__us(client->uri->timeout_ms) / 2;
    return dlock__release_result(claim) == DLOCK_EUNAVAILABLE && claim->op->status != DLOCK__OP_RUNNING && !hung;
}

int dlock__give_back_send(struct dlock__claim *claim, struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    int64_t deadline = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms)), pause = RETRY_MIN_US;
    pthread_cond_t never;
    for (;;) {
        int64_t sent_us = dlock__now(client);
        dlock__op_run(claim, DLOCK__RELEASE, 0, deadline, err);
        int64_t again = dlock__now(client) + pause;
        if (!dlock__release_again(claim, sent_us) || again >= deadline) return dlock__release_result(claim);
        dlock__cond_init(&never);
        while (dlock__now(client) < again) dlock__wait(client, &never, again);
        pthread_cond_destroy(&never);
        pause = dlock__longer_pause(pause, RETRY_MIN_US, RETRY_MAX_US);
    }
}

bool dlock__give_back_begin(struct dlock__claim *claim) {
    if (hand_over(claim) || dlock__linger_begin(claim)) return true;
    claim->phase = DLOCK__RELEASING; /* from here on it is not renewed */
    if (claim->downgrading) pthread_cond_broadcast(&claim->name->client->changed);
    dlock__claim_disown(claim);
    return false;
}

static void stand_back(const struct dlock__claim *claim) {
    struct dlock__name *name = claim->name;
    int64_t now = dlock__now(name->client), most = now - claim->granted_us;
    if (most > YIELD_POLL_US) most = YIELD_POLL_US;
    if (dlock__can(name->client, DLOCK_CAP_WAKE) && claim->op->arg.retry_ms != 0) most = YIELD_WAKE_US;
    name->yield_until_us = now + dlock__jitter(name->client, most / 2, most);
}

int dlock__give_back_end(struct dlock__claim *claim, int rc, const struct dlock_error *why, struct dlock_error *err) {
    struct dlock__name *name = claim->name;
    struct dlock_client *client = name->client;
    const char *shown = dlock__name_shown(name);
    dlock__name_unhold(name, claim);
    bool more = name->head || claim->ordinal >= HAND_OVERS_MAX; /* of this process: now or in a moment */
    if (more && !dlock__can(client, DLOCK_CAP_QUEUE)) stand_back(claim);
    if (rc == DLOCK_ELOST) {
        rc = dlock_fail(err, rc, "lock \"%s\" was lost before its release: the server no longer knew it", shown);
    } else if (rc != 0) {
        dlock__orphan(claim);
        rc = dlock_fail(err, rc, "the release of lock \"%s\" was not confirmed, its lease ends it: %s", shown,
                        why && why->code ? why->message : dlock_strerror(rc));
    }
    dlock__name_signal(name);
    dlock__claim_put(claim);
    return rc;
}

int dlock__give_back(struct dlock__claim *claim, struct dlock_error *err) {
    if (dlock__give_back_begin(claim)) return 0;
    struct dlock_error why;
    why.code = 0;
    int rc = dlock__give_back_send(claim, &why);
    return dlock__give_back_end(claim, rc, &why, err);
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
    bool handing_over = claim->phase == DLOCK__CONFIRMING;
    claim->phase = DLOCK__LOST;
    if (handing_over) {
        lose_hand_over(claim);
        return;
    }
    if (claim->downgrading) pthread_cond_broadcast(&name->client->changed);
    dlock__name_unhold(name, claim);
    if (dlock__lingers(claim)) { /* nobody here held it any more */
        dlock__orphan(claim);
        dlock__claim_put(claim);
        dlock__name_signal(name);
        return;
    }
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

void dlock__settle(struct dlock__claim *claim) {
    if (claim->phase == DLOCK__HELD && dlock__now(claim->name->client) >= claim->valid_until_us) dlock__lose(claim);
}
