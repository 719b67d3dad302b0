/* One acquisition: how long it is valid, and its life cycle. */
#include "claim/client.h"

#include <stdlib.h>
#include <string.h>

/* Freed claims kept per client. */
enum { SPARE_MAX = 64 };

static void unlist(struct dlock__claim *claim) {
    *(claim->all_prev ? &claim->all_prev->all_next : &claim->name->client->claims) = claim->all_next;
    if (claim->all_next) claim->all_next->all_prev = claim->all_prev;
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
    if (!dlock__slot_attach(claim)) {
        free(claim);
        return NULL;
    }
    claim->refs = 1;
    name->refs++;
    claim->session = client->session;
    claim->ask_at_us = claim->renew_at_us = claim->release_at_us = DLOCK__NEVER;
    claim->valid_until_us = DLOCK__NEVER;
    claim->all_next = client->claims;
    if (claim->all_next) claim->all_next->all_prev = claim;
    client->claims = claim;
    return claim;
}

/* Room for the timers of one more slot. */
static bool make_timers(struct dlock_client *client) {
    size_t n = client->timers.slots + 1;
    return dlock__heap_reserve(&client->timers.renewals, n) && dlock__heap_reserve(&client->timers.ends, n) &&
           dlock__heap_reserve(&client->timers.own_ends, n);
}

struct dlock__claim *dlock__renewal_claim(struct dlock__timer *renewal) {
    return ((struct dlock__slot *)((char *)renewal - offsetof(struct dlock__slot, renewal)))->hold.claim;
}

struct dlock__claim *dlock__end_claim(struct dlock__timer *end) {
    return ((struct dlock__slot *)((char *)end - offsetof(struct dlock__slot, end)))->hold.claim;
}

bool dlock__slot_attach(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__slot *slot = client->spare_slots;
    if (claim->op) return true;
    if (!make_timers(client)) return false;
    if (slot) {
        client->spare_slots = slot->spare;
        client->n_spare_slots--;
        memset(slot, 0, sizeof *slot);
    } else if (!(slot = calloc(1, sizeof *slot))) {
        return false;
    }
    client->timers.slots++;
    slot->hold.claim = claim;
    claim->op = &slot->op;
    claim->hold = &slot->hold;
    return true;
}

void dlock__slot_detach(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__slot *slot = (struct dlock__slot *)claim->op;
    if (!slot) return;
    client->timers.slots--;
    dlock__timer_disarm(&slot->renewal);
    dlock__timer_disarm(&slot->end);
    dlock__claim_disown(claim);
    claim->op = NULL;
    claim->hold = NULL;
    if (client->n_spare_slots >= SPARE_MAX) {
        free(slot);
        return;
    }
    slot->spare = client->spare_slots;
    client->spare_slots = slot;
    client->n_spare_slots++;
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
    claim->flags = lock->flags;
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
    unlist(claim);
    if (claim->conn) claim->conn->claim = NULL; /* the client ends, and its connections with it */
    dlock__slot_detach(claim);
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

void dlock__hold_set(struct dlock__hold *hold, struct dlock_lock *handle) {
    if (hold->handle) {
        *hold->at = hold->other;
        if (hold->other) hold->other->at = hold->at;
    }
    hold->handle = handle;
    if (!handle) return;
    hold->at = &handle->holds;
    hold->other = handle->holds;
    if (hold->other) hold->other->at = &hold->other;
    handle->holds = hold;
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
    dlock__hold_set(unused, handle);
    return unused;
}

void dlock__claim_disown(struct dlock__claim *claim) {
    claim->count = 0;
    if (!claim->hold) return;
    while (claim->hold->next) {
        struct dlock__hold *hold = claim->hold->next;
        claim->hold->next = hold->next;
        dlock__hold_set(hold, NULL);
        free(hold);
    }
    dlock__hold_set(claim->hold, NULL);
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

bool dlock__claim_may_come_late(const struct dlock__claim *claim) {
    return claim->late_acquire &&
           dlock__now(claim->name->client) < dlock__after(claim->last_unknown_us, dlock__us(claim->lease_ms));
}

bool dlock__claim_may_remain(const struct dlock__claim *claim) {
    if (dlock__claim_died_with_connection(claim)) return false;
    return claim->queued || claim->outcome_unknown || dlock__claim_may_come_late(claim) || claim->state[0] ||
           claim->state[1] || claim->state[2] || claim->state[3] || dlock__can(claim->name->client, DLOCK_CAP_SESSION);
}
