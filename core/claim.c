/* One acquisition: how long it is valid, and its life cycle. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Freed claims kept per client. */
enum { SPARE_MAX = 64 };

/* A grant of less than this is as good as none. */
enum { USEFUL_US = 5000 };

/* Between threads of this process a grant goes from hand to hand without a question for so long after the server has
 * confirmed it: so many times as long as that took, within bounds. A question then costs little beside the time that
 * has passed. */
enum { SURE_TIMES = 20, SURE_MIN_US = 20000, SURE_MAX_US = 100000 };

void dlock__claim_unlink(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    *(claim->all_prev ? &claim->all_prev->all_next : &client->claims) = claim->all_next;
    *(claim->all_next ? &claim->all_next->all_prev : &client->claims_last) = claim->all_prev;
}

void dlock__claim_append(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    claim->all_next = NULL;
    claim->all_prev = client->claims_last;
    *(claim->all_prev ? &claim->all_prev->all_next : &client->claims) = claim;
    client->claims_last = claim;
}

static struct dlock__claim *make(struct dlock__name *name, size_t token_room) {
    struct dlock_client *client = name->client;
    struct dlock__claim *claim = client->spare;
    if (claim && claim->token_room >= token_room) {
        client->spare = claim->all_next;
        client->n_spare--;
        token_room = claim->token_room;
        memset(claim, 0, sizeof *claim);
    } else if (!(claim = calloc(1, sizeof *claim + token_room))) {
        return NULL;
    }
    claim->token_room = (uint8_t)token_room;
    claim->name = name;
    if (!dlock__claim_equip(claim)) {
        free(claim);
        return NULL;
    }
    claim->refs = 1;
    name->refs++;
    claim->phase = DLOCK__ASKING;
    claim->session = client->session;
    claim->valid_until_us = claim->due_us = claim->linger_until_us = DLOCK__NEVER;
    claim->all_next = client->claims;
    *(client->claims ? &client->claims->all_prev : &client->claims_last) = claim;
    client->claims = claim;
    return claim;
}

bool dlock__claim_equip(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__gear *gear = client->spare_gear;
    if (claim->op) return true;
    if (gear) {
        client->spare_gear = gear->spare;
        client->n_spare_gear--;
        memset(gear, 0, sizeof *gear);
    } else if (!(gear = calloc(1, sizeof *gear))) {
        return false;
    }
    gear->hold.claim = claim;
    claim->op = &gear->op;
    claim->hold = &gear->hold;
    return true;
}

void dlock__claim_strip(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__gear *gear = (struct dlock__gear *)claim->op;
    if (!gear) return;
    dlock__claim_disown(claim);
    claim->op = NULL;
    claim->hold = NULL;
    if (client->n_spare_gear >= SPARE_MAX) {
        free(gear);
        return;
    }
    gear->spare = client->spare_gear;
    client->spare_gear = gear;
    client->n_spare_gear++;
}

void dlock__claim_ask_again(struct dlock__claim *claim, int64_t at_us) {
    if (claim->phase == DLOCK__ASKING) claim->op->look = true;
    if (claim->phase != DLOCK__WAITING) return;
    claim->due_us = at_us;
    dlock__name_signal(claim->name);
}

bool dlock__claim_in_request(const struct dlock__claim *claim) {
    return claim->op && (claim->op->status == DLOCK__OP_RUNNING || claim->op->status == DLOCK__OP_PENDING);
}

struct dlock__claim *dlock__claim_new(struct dlock_lock *lock) {
    struct dlock__claim *claim = make(lock->name, dlock__token_room(lock->client));
    if (!claim) return NULL;
    claim->mode = lock->mode;
    claim->limit = lock->limit;
    dlock__token_write(claim);
    claim->options = lock->options;
    claim->lease_ms = lock->lease_ms;
    if (dlock__guard_enter(claim) == 0) return claim;
    dlock__claim_put(claim);
    return NULL;
}

struct dlock__claim *dlock__claim_for_token(struct dlock__name *name, const char *token) {
    size_t size = strlen(token) + 1;
    struct dlock__claim *claim = size <= DLOCK_TOKEN_MAX + 1 ? make(name, size) : NULL;
    if (!claim) return NULL;
    memcpy(claim->token, token, size);
    dlock__token_read(claim);
    claim->lease_ms = name->client->uri->lease_ms;
    return claim;
}

void dlock__claim_put(struct dlock__claim *claim) {
    if (--claim->refs > 0) return;
    struct dlock_client *client = claim->name->client;
    dlock__claim_unlink(claim);
    if (claim->home) claim->home->claim = NULL; /* the client ends, and its connections with it */
    dlock__claim_strip(claim);
    dlock__guard_leave(claim);
    dlock__name_put(claim->name);
    if (client->n_spare >= SPARE_MAX || claim->token_room < dlock__token_room(client)) {
        free(claim);
        return;
    }
    claim->all_next = client->spare;
    client->spare = claim;
    client->n_spare++;
}

struct dlock__hold *dlock__claim_hold(struct dlock__claim *claim, struct dlock_lock *handle, bool make) {
    struct dlock__hold *hold = claim->hold, *unused = NULL;
    for (; hold; hold = hold->next) {
        if (hold->handle == handle) return hold;
        if (!hold->handle && hold->count == 0) unused = hold;
    }
    if (!make) return NULL;
    if (!unused) {
        unused = calloc(1, sizeof *unused);
        if (!unused) return NULL;
        unused->claim = claim;
        unused->next = claim->hold->next;
        claim->hold->next = unused;
    }
    unused->handle = handle;
    return unused;
}

void dlock__claim_disown(struct dlock__claim *claim) {
    claim->count = 0;
    if (!claim->hold) return;
    while (claim->hold->next) {
        struct dlock__hold *hold = claim->hold->next;
        claim->hold->next = hold->next;
        free(hold);
    }
    claim->hold->handle = NULL;
    claim->hold->count = 0;
}

struct dlock__claim *dlock__claim_find(struct dlock_client *client, const char *token) {
    struct dlock__claim *claim = client->claims;
    while (claim && strcmp(claim->token, token) != 0) claim = claim->all_next;
    return claim;
}

int dlock__claim_by_name(const void *a, const void *b) {
    const struct dlock__claim *const *left = a, *const *right = b;
    return strcmp((*left)->name->text, (*right)->name->text);
}

uint64_t dlock__claim_fence(const struct dlock__claim *claim) {
    return claim->server_fence << 8 | claim->ordinal;
}

bool dlock__claim_outlived(const struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    return dlock__one_each(client) ? !claim->home : claim->session != client->session;
}

bool dlock__claim_may_remain(const struct dlock__claim *claim) {
    if (dlock__claim_outlived(claim)) return false;
    return claim->queued || claim->may_be_held || claim->state[0] || claim->state[1] || claim->state[2] ||
           claim->state[3] || dlock__can(claim->name->client, DLOCK_CAP_SESSION);
}

/* ---- validity (DESIGN §1.3) ---- */

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
    bool fixed = claim->options & DLOCK_FIXED_LEASE;
    int64_t lease_ms = kept_ms < claim->lease_ms ? kept_ms : claim->lease_ms;
    int64_t now = dlock__now(claim->name->client), sure_us = SURE_TIMES * (now - from_us);
    if (sure_us < SURE_MIN_US) sure_us = SURE_MIN_US;
    claim->sure_until_us = now + (sure_us < SURE_MAX_US ? sure_us : SURE_MAX_US);
    if (kept_ms == DLOCK_FOREVER && !fixed)
        claim->valid_until_us = DLOCK__NEVER;
    else
        claim->valid_until_us = dlock__after(from_us, usable_us(lease_ms));
    claim->due_us = fixed ? DLOCK__NEVER : dlock__after(from_us, dlock__us(lease_ms) / 3);
    claim->pause_us = 0;
}

static void arm(struct dlock__claim *claim) {
    int64_t at = claim->valid_until_us < claim->due_us ? claim->valid_until_us : claim->due_us;
    if (at != DLOCK__NEVER) dlock__keeper_arm(claim->name->client, at);
}

static void begin_grant(struct dlock__claim *claim, uint64_t fence) {
    claim->server_fence = fence;
    claim->ordinal = 0;
    claim->granted_us = dlock__now(claim->name->client);
}

static void hold(struct dlock__claim *claim) {
    claim->phase = DLOCK__HELD;
    claim->may_be_held = false;
    dlock__guard_valid_until(claim);
    arm(claim);
}

/* A grant that the asker did not fetch itself. If that one was cancelled meanwhile it will give the claim up, grant and
 * all. */
static void hold_for_waiter(struct dlock__claim *claim) {
    if (claim->name->head->done) {
        claim->phase = DLOCK__WAITING;
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
    if (dlock__claim_outlived(claim))
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
    claim->may_be_held = false;
    if (claim->phase != DLOCK__CONFIRMING) return true;
    if (claim->valid_until_us > dlock__now(claim->name->client)) {
        hold_for_waiter(claim);
    } else {
        claim->due_us = dlock__now(claim->name->client); /* the answer was too slow: confirm again */
    }
    return true;
}

/* Counts a grant's age from the last answered request: false when that proves nothing. */
static bool wake_valid_until(struct dlock_client *client, int64_t server_us, int64_t kept_ms, int64_t received_us,
                             int64_t *until_us) {
    if (!client->pair.known || server_us <= 0) return false;
    int64_t delta = server_us - client->pair.server_us, passed = received_us - client->pair.sent_us;
    if (delta < 0 || passed < 0 || delta > passed + passed / 100 + 2000) return false;
    int64_t from = dlock__after(client->pair.sent_us, delta);
    if (from > received_us) from = received_us;
    *until_us = from + usable_us(kept_ms) - delta / 100;
    return *until_us > dlock__now(client) + USEFUL_US;
}

/* At once. */
static void confirm(struct dlock__claim *claim) {
    claim->phase = DLOCK__CONFIRMING;
    claim->valid_until_us = DLOCK__NEVER;
    claim->due_us = dlock__now(claim->name->client);
    dlock__keeper_arm(claim->name->client, claim->due_us);
}

void dlock__claim_woken(struct dlock__claim *claim, uint64_t fence, int64_t server_us, int64_t kept_ms,
                        int64_t received_us) {
    struct dlock_client *client = claim->name->client;
    if (!fence_sensible(fence) || !kept_sensible(claim, &kept_ms)) return;
    if (!dlock__claim_equip(claim)) { /* as if it had not come: the answer to the next question says the same */
        claim->due_us = dlock__now(client);
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
    if (!known || (claim->options & DLOCK_FIXED_LEASE && !whole)) {
        confirm(claim);
        return;
    }
    schedule(claim, received_us, kept_ms);
    if (until_us < claim->valid_until_us) {
        claim->due_us -= claim->valid_until_us - until_us;
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

void dlock__pair_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us) {
    if (server_us <= 0 || (client->pair.known && sent_us < client->pair.sent_us)) return;
    client->pair.known = true;
    client->pair.sent_us = sent_us;
    client->pair.server_us = server_us;
}
