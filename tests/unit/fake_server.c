/* The lock server in memory: see fake_server.h. */
#include "fake_server.h"

#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>

struct known_name {
    char name[DLOCK_NAME_MAX + 56];
    uint64_t fence;
    unsigned grants;
};

static struct server_entry entries[SERVER_ENTRIES];
static size_t entries_end; /* nothing is used from here on */
static struct known_name names[SERVER_NAMES];
static size_t names_count;
static uint64_t order;
static int64_t offset_us, handover_ms, ready_us;
static server_tell *tell;
static server_want *want;
static server_listens *listens;

static void server_promote(const struct server_rules *rules, const char *name, const char *asking);

void server_reset(server_tell *tell_now, server_want *want_now, server_listens *listens_now) {
    memset(entries, 0, entries_end * sizeof *entries);
    entries_end = names_count = 0;
    order = 0;
    offset_us = INT64_C(77000000000); /* keeps the server's clock apart from the local one */
    handover_ms = 3000;
    ready_us = 0;
    tell = tell_now;
    want = want_now;
    listens = listens_now;
}

int64_t server_now_us(void) {
    return dlock__now_us() + offset_us;
}
void server_step_us(int64_t us) {
    offset_us += us;
}
void server_ready_in_ms(int64_t ms) {
    ready_us = dlock__now_us() + ms * 1000;
}
void server_handover_ms(int64_t ms) {
    handover_ms = ms;
}

struct server_entry *server_find(const char *name, const char *token) {
    for (size_t i = 0; i < entries_end; i++)
        if (entries[i].used && strcmp(entries[i].name, name) == 0 && strcmp(entries[i].token, token) == 0)
            return &entries[i];
    return NULL;
}

static bool holds(const struct server_entry *entry, const char *name) {
    return entry->used && entry->held && strcmp(entry->name, name) == 0 && entry->until_us > server_now_us();
}

struct server_entry *server_holder(const char *name) {
    for (size_t i = 0; i < entries_end; i++)
        if (holds(&entries[i], name)) return &entries[i];
    return NULL;
}

unsigned server_holders(const char *name) {
    unsigned count = 0;
    for (size_t i = 0; i < entries_end; i++) count += holds(&entries[i], name);
    return count;
}

/* Is there room for one more? */
static bool fits(const char *name, enum dlock_mode mode, uint32_t limit) {
    if (mode == DLOCK_PERMIT) return server_holders(name) < limit;
    for (size_t i = 0; i < entries_end; i++)
        if (holds(&entries[i], name) && (mode == DLOCK_EXCLUSIVE || entries[i].mode == DLOCK_EXCLUSIVE)) return false;
    return true;
}

struct server_entry *server_at(size_t index) {
    return index < entries_end ? &entries[index] : NULL;
}

static struct known_name *known(const char *name) {
    for (size_t i = 0; i < names_count; i++)
        if (strcmp(names[i].name, name) == 0) return &names[i];
    if (names_count == SERVER_NAMES) abort();
    struct known_name *fresh = &names[names_count++];
    *fresh = (struct known_name){.fence = 0};
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    return fresh;
}

unsigned server_grants(const char *name) {
    return known(name)->grants;
}

unsigned server_waiters(const char *name) {
    unsigned count = 0;
    for (size_t i = 0; i < entries_end; i++)
        count += entries[i].used && !entries[i].held && strcmp(entries[i].name, name) == 0;
    return count;
}

static struct server_entry *entry_add(const struct dlock_claim *claim, unsigned conn) {
    size_t at = 0;
    while (at < SERVER_ENTRIES && entries[at].used) at++;
    if (at == SERVER_ENTRIES) abort();
    if (at == entries_end) entries_end++;
    struct server_entry *entry = &entries[at];
    *entry = (struct server_entry){.used = true, .conn = conn, .order = ++order};
    snprintf(entry->name, sizeof entry->name, "%s", claim->name);
    snprintf(entry->token, sizeof entry->token, "%s", claim->token);
    entry->mode = claim->mode;
    entry->limit = claim->limit;
    entry->lease_ms = claim->lease_ms;
    entry->linger = claim->flags & DLOCK_CLAIM_LINGER;
    return entry;
}

static void entry_keep(const struct server_rules *rules, struct server_entry *entry, int64_t lease_ms) {
    entry->until_us = rules->forever ? DLOCK_FOREVER : server_now_us() + lease_ms * 1000;
}

static void entry_grant(struct server_entry *entry) {
    struct known_name *name = known(entry->name);
    uint64_t now = (uint64_t)server_now_us();
    name->fence = name->fence + 1 > now ? name->fence + 1 : now;
    name->grants++;
    entry->held = true;
    entry->fence = name->fence;
}

/* Removes a holder whose lease is over and hands its name on. */
static void expire(const struct server_rules *rules, const char *name, const char *asking) {
    for (size_t i = 0; i < entries_end; i++) {
        struct server_entry *entry = &entries[i];
        if (!entry->used || !entry->held || entry->until_us > server_now_us() || strcmp(entry->name, name) != 0)
            continue;
        entry->used = false;
        server_promote(rules, name, asking);
    }
}

static struct server_entry *first_waiter(const char *name) {
    struct server_entry *first = NULL;
    for (size_t i = 0; i < entries_end; i++) {
        struct server_entry *entry = &entries[i];
        if (!entry->used || entry->held || strcmp(entry->name, name) != 0) continue;
        if (!first || entry->order < first->order) first = entry;
    }
    return first;
}

/* Grants free room to the first waiters that listen. `asking` (may be NULL) needs no message: it gets an answer. */
static void server_promote(const struct server_rules *rules, const char *name, const char *asking) {
    struct server_entry *first;
    if (ready_us > dlock__now_us()) return;
    while (rules->queue && (first = first_waiter(name)) && fits(name, first->mode, first->limit)) {
        bool is_asking = asking && strcmp(first->token, asking) == 0;
        if (!is_asking && !listens(first)) {
            first->used = false;
            continue;
        }
        int64_t kept_ms = is_asking || first->lease_ms < handover_ms ? first->lease_ms : handover_ms;
        entry_grant(first);
        entry_keep(rules, first, kept_ms);
        if (!is_asking) tell(first, name, kept_ms);
    }
    if (!rules->queue && rules->look) tell(NULL, name, 0);
}

/* > 0 while nothing is granted. */
static int64_t ready_left_ms(void) {
    int64_t left_us = ready_us - dlock__now_us();
    return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

static int64_t retry_ms(const struct server_rules *rules, const struct server_entry *holder,
                        const struct server_entry *waiter, int64_t lease_ms) {
    if (!rules->queue) return rules->look ? 1000 : -1;
    if (!waiter || (!holder && ready_left_ms() == 0)) return -1;
    int64_t position = 0, left_ms = holder ? (holder->until_us - server_now_us()) / 1000 : 0;
    for (size_t i = 0; i < entries_end; i++) {
        const struct server_entry *entry = &entries[i];
        position += entry->used && !entry->held && entry->order < waiter->order && !strcmp(entry->name, waiter->name);
    }
    if (!holder) return ready_left_ms() + 1 + position * 1000;
    return dlock_queue_retry_ms(position, left_ms, lease_ms);
}

static void answer_grant(const struct server_rules *rules, struct dlock_claim *claim,
                         const struct server_entry *entry) {
    claim->result = 0;
    claim->fence = entry->fence;
    claim->kept_ms = rules->forever ? DLOCK_FOREVER : claim->lease_ms;
}

/* A name is either a lock, or permits, and then so many. */
static bool used_otherwise(const struct dlock_claim *claim) {
    for (size_t i = 0; i < entries_end; i++) {
        const struct server_entry *entry = &entries[i];
        if (!entry->used || strcmp(entry->name, claim->name) != 0) continue;
        if ((entry->mode == DLOCK_PERMIT) != (claim->mode == DLOCK_PERMIT) || entry->limit != claim->limit) return true;
    }
    return false;
}

/* Busy: tells the holders that set DLOCK_CLAIM_LINGER. */
static void tell_holders(const struct dlock_claim *claim) {
    for (size_t i = 0; i < entries_end; i++)
        if (holds(&entries[i], claim->name) && entries[i].linger && strcmp(entries[i].token, claim->token) != 0)
            want(&entries[i]);
}

void server_acquire(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim) {
    claim->server_us = server_now_us();
    expire(rules, claim->name, claim->token);
    if (used_otherwise(claim)) {
        claim->result = DLOCK_EINVAL;
        return;
    }
    /* No client barges: room goes to the first waiter. */
    if (rules->queue || !server_holder(claim->name)) server_promote(rules, claim->name, claim->token);
    struct server_entry *mine = server_find(claim->name, claim->token);
    bool free = fits(claim->name, claim->mode, claim->limit);
    if (!mine && !first_waiter(claim->name) && ready_left_ms() == 0 && free) {
        mine = entry_add(claim, conn);
        entry_grant(mine);
    }
    if (mine && mine->held) {
        entry_keep(rules, mine, claim->lease_ms);
        answer_grant(rules, claim, mine);
        return;
    }
    if (!mine && rules->queue && (claim->flags & DLOCK_CLAIM_QUEUE)) mine = entry_add(claim, conn);
    tell_holders(claim);
    claim->result = free && ready_left_ms() > 0 ? DLOCK_ENOTREADY : DLOCK_EBUSY;
    if (claim->result == DLOCK_ENOTREADY) claim->ready_ms = ready_left_ms();
    claim->retry_ms = retry_ms(rules, server_holder(claim->name), mine, claim->lease_ms);
    if (rules->tells && claim->result == DLOCK_EBUSY) claim->fence = server_holder(claim->name)->fence;
}

void server_renew(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim) {
    (void)conn;
    claim->server_us = server_now_us();
    expire(rules, claim->name, NULL);
    struct server_entry *mine = server_find(claim->name, claim->token);
    claim->result = DLOCK_ELOST;
    if (!mine || !mine->held) return;
    entry_keep(rules, mine, claim->lease_ms);
    claim->result = 0;
    claim->kept_ms = rules->forever ? DLOCK_FOREVER : claim->lease_ms;
    if (mine->mode != DLOCK_EXCLUSIVE || claim->mode != DLOCK_SHARED) return;
    mine->mode = DLOCK_SHARED;
    server_promote(rules, claim->name, NULL);
}

void server_release(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim) {
    (void)conn;
    claim->server_us = server_now_us();
    expire(rules, claim->name, NULL);
    struct server_entry *mine = server_find(claim->name, claim->token);
    claim->result = mine ? 0 : DLOCK_ELOST;
    if (!mine) return;
    bool held = mine->held;
    mine->used = false;
    if (held || rules->queue) server_promote(rules, claim->name, NULL);
}

int server_break(const struct server_rules *rules, const char *name) {
    struct server_entry *holder = server_holder(name);
    if (!holder) return DLOCK_ELOST;
    for (; holder; holder = server_holder(name)) holder->used = false;
    server_promote(rules, name, NULL);
    return 0;
}

void server_forget(void) {
    for (size_t i = 0; i < entries_end; i++) entries[i].used = false;
}

void server_drop_conn(const struct server_rules *rules, unsigned conn) {
    for (size_t i = 0; i < entries_end; i++) {
        struct server_entry *entry = &entries[i];
        if (!entry->used || entry->conn != conn) continue;
        entry->used = false;
        if (entry->held || rules->queue) server_promote(rules, entry->name, NULL);
    }
}
