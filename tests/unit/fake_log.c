/* The events at the fake server, and its other clients: see fake_log.h and fake_backend.h. */
#include "fake_log.h"

#include "base/env.h"

#include <stdlib.h>

enum { MAX_LOG = 20000 };

pthread_mutex_t fake_guard = PTHREAD_MUTEX_INITIALIZER;
static struct fake_command commands[MAX_LOG];
static size_t size;
static unsigned epoch, serial, calls[FAKE_OPS];
static const struct server_rules other_rules = {.queue = true};

static struct fake_command *line_add(enum fake_op op, const struct fake_conn *conn, int timeout_ms) {
    if (size == MAX_LOG) {
        fprintf(stderr, "fake backend: %d requests: the core asks without a pause\n", MAX_LOG);
        abort();
    }
    struct fake_command *line = &commands[size++];
    *line = (struct fake_command){.op = op, .call = serial, .conn = conn->id, .timeout_ms = timeout_ms};
    line->at_us = dlock__now_us();
    line->result = DLOCK_EUNAVAILABLE;
    return line;
}

struct log_place log_begin(enum fake_op op, const struct fake_conn *conn, struct dlock_claim *const *claims, size_t n,
                           int timeout_ms) {
    struct log_place place = {size, epoch};
    serial++;
    calls[op]++;
    if (!n) line_add(op, conn, timeout_ms);
    for (size_t i = 0; i < n; i++) {
        struct fake_command *line = line_add(op, conn, timeout_ms);
        snprintf(line->name, sizeof line->name, "%s", claims[i]->name);
        snprintf(line->token, sizeof line->token, "%s", claims[i]->token);
        line->flags = claims[i]->flags;
        line->mode = claims[i]->mode;
        line->limit = claims[i]->limit;
        line->lease_ms = claims[i]->lease_ms;
    }
    return place;
}

void log_answer(struct log_place place, size_t i, int result, uint64_t fence) {
    if (place.epoch != epoch) return;
    commands[place.first + i].result = result;
    commands[place.first + i].fence = fence;
}

void log_wake(const struct fake_conn *conn, const struct dlock_wake *wake) {
    serial++;
    calls[FAKE_WAKE]++;
    struct fake_command *line = line_add(FAKE_WAKE, conn, 0);
    line->result = (int)wake->kind;
    line->fence = wake->fence;
    snprintf(line->name, sizeof line->name, "%s", wake->name ? wake->name : "");
    snprintf(line->token, sizeof line->token, "%s", wake->token ? wake->token : "");
}

/* ---- what a test reads ------------------------------------------------------------------------------------------- */

void fake_log_clear(void) {
    pthread_mutex_lock(&fake_guard);
    size = 0;
    epoch++;
    memset(calls, 0, sizeof calls);
    pthread_mutex_unlock(&fake_guard);
}

size_t fake_log_size(void) {
    pthread_mutex_lock(&fake_guard);
    size_t lines = size;
    pthread_mutex_unlock(&fake_guard);
    return lines;
}

struct fake_command fake_log_at(size_t index) {
    pthread_mutex_lock(&fake_guard);
    if (index >= size) abort();
    struct fake_command command = commands[index];
    pthread_mutex_unlock(&fake_guard);
    return command;
}

unsigned fake_calls(enum fake_op op) {
    pthread_mutex_lock(&fake_guard);
    unsigned count = calls[op];
    pthread_mutex_unlock(&fake_guard);
    return count;
}

static bool matches(const struct fake_command *line, enum fake_op op, const char *name) {
    return line->op == op && (!name || strcmp(line->name, name) == 0);
}

unsigned fake_claims(enum fake_op op, const char *name) {
    unsigned count = 0;
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < size; i++) count += matches(&commands[i], op, name);
    pthread_mutex_unlock(&fake_guard);
    return count;
}

bool fake_nth(enum fake_op op, const char *name, unsigned nth, struct fake_command *command) {
    bool found = false;
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < size && !found; i++) {
        if (!matches(&commands[i], op, name) || nth-- > 0) continue;
        *command = commands[i];
        found = true;
    }
    pthread_mutex_unlock(&fake_guard);
    return found;
}

bool fake_last(enum fake_op op, const char *name, struct fake_command *command) {
    unsigned count = fake_claims(op, name);
    return count > 0 && fake_nth(op, name, count - 1, command);
}

static bool is_other(const struct server_entry *entry) {
    return entry->conn == 0;
}

struct fake_grant fake_holder(const char *name) {
    struct fake_grant grant = {.left_ms = 0};
    pthread_mutex_lock(&fake_guard);
    const struct server_entry *entry = server_holder(name);
    if (entry) {
        snprintf(grant.token, sizeof grant.token, "%s", entry->token);
        grant.other = is_other(entry);
        grant.fence = entry->fence;
        grant.left_ms = entry->until_us == DLOCK_FOREVER ? DLOCK_FOREVER : (entry->until_us - server_now_us()) / 1000;
    }
    pthread_mutex_unlock(&fake_guard);
    return grant;
}

unsigned fake_waiters(const char *name) {
    pthread_mutex_lock(&fake_guard);
    unsigned waiters = server_waiters(name);
    pthread_mutex_unlock(&fake_guard);
    return waiters;
}

unsigned fake_holders(const char *name) {
    pthread_mutex_lock(&fake_guard);
    unsigned holders = server_holders(name);
    pthread_mutex_unlock(&fake_guard);
    return holders;
}

unsigned fake_grants(const char *name) {
    pthread_mutex_lock(&fake_guard);
    unsigned grants = server_grants(name);
    pthread_mutex_unlock(&fake_guard);
    return grants;
}

unsigned fake_entries(void) {
    const struct server_entry *entry;
    unsigned count = 0;
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; (entry = server_at(i)); i++) {
        bool over = entry->held && entry->until_us <= server_now_us();
        count += entry->used && !is_other(entry) && !over;
    }
    pthread_mutex_unlock(&fake_guard);
    return count;
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

static struct dlock_claim other_claim(const char *name, const char *token, int64_t lease_ms) {
    return (struct dlock_claim){.name = name,
                                .token = token,
                                .flags = DLOCK_CLAIM_QUEUE,
                                .lease_ms = lease_ms,
                                .result = DLOCK_EPROTO,
                                .kept_ms = lease_ms,
                                .retry_ms = -1,
                                .ready_ms = -1};
}

void fake_other_acquire(const char *name, int64_t lease_ms) {
    fake_other_acquire_as(name, DLOCK_EXCLUSIVE, 0, lease_ms);
}

void fake_other_acquire_as(const char *name, enum dlock_mode mode, uint32_t limit, int64_t lease_ms) {
    static unsigned others;
    char token[32];
    pthread_mutex_lock(&fake_guard);
    snprintf(token, sizeof token, "other.%u", ++others);
    struct dlock_claim claim = other_claim(name, token, lease_ms);
    claim.mode = mode;
    claim.limit = limit;
    server_acquire(&other_rules, 0, &claim);
    pthread_mutex_unlock(&fake_guard);
}

void fake_other_release(const struct fake_grant *grant, const char *name) {
    struct dlock_claim claim = other_claim(name, grant->token, 1);
    pthread_mutex_lock(&fake_guard);
    server_release(&other_rules, 0, &claim);
    pthread_mutex_unlock(&fake_guard);
}

void fake_replay(const struct fake_command *command) {
    struct dlock_claim claim = other_claim(command->name, command->token, command->lease_ms);
    claim.flags = command->flags;
    claim.mode = command->mode;
    claim.limit = command->limit;
    pthread_mutex_lock(&fake_guard);
    if (command->op == FAKE_ACQUIRE) server_acquire(&other_rules, command->conn, &claim);
    if (command->op == FAKE_RENEW) server_renew(&other_rules, command->conn, &claim);
    if (command->op == FAKE_RELEASE) server_release(&other_rules, command->conn, &claim);
    pthread_mutex_unlock(&fake_guard);
}
