/* Acquire, renew and release, each with one round trip per batch. */
#include "redis.h"

#include <inttypes.h>
#include <stdlib.h>

/* A hundred years: Redis can add this to any clock without overflow. */
#define MAX_LEASE_MS INT64_C(3155760000000)
/* The scripts compare fences as Lua numbers, which are exact up to this. */
#define FLOOR_END (UINT64_C(1) << 53)

/* A batch under way. A claim that is refused here is answered at once and skipped. */
struct batch {
    struct dlock_claim *const *claims;
    bool asks;              /* the batch asks whether this client is known to listen */
    bool explained;         /* `why` explains a claim's result */
    bool again;             /* to be repeated, for dead waiters that a release left, or for lost data */
    bool repeated;          /* this is such a repetition: releases have their results */
    int64_t begun_us;       /* before anything was sent: durations in answers start here, however late they arrive */
    struct dlock_error why; /* valid if explained */
};

/* Sets a claim's result, and the batch's explanation if it has none yet, or just who holds a lock. */
static void explain(struct batch *batch, struct dlock_claim *claim, int result, const char *why) {
    claim->result = result;
    if (!batch->explained || batch->why.code == DLOCK_EBUSY) dlock_fail(&batch->why, result, "%s", why);
    batch->explained = true;
}

/* Explains that the server has data under a claim's name that dlock did not write. */
static void explain_data(struct batch *batch, struct dlock_claim *claim, const redisReply *reply) {
    char why[REDIS_NAME_MAX + 400];
    snprintf(
        why, sizeof why,
        "the server has other data under the name \"%s\": its key, or one beside it ({…}:dlock:…), holds what dlock "
        "did not write: %.200s",
        claim->name, reply->str);
    explain(batch, claim, DLOCK_EINVAL, why);
}

void redis_add_rest(const struct redis *redis, struct redis_call *call) {
    if (!*redis->fences) return;
    while (call->n < REDIS_MAX_ARGS - 2) call->args[call->n++] = "";
    call->args[call->n++] = redis->fences;
    if (redis->member) call->args[call->n++] = redis->member->place;
}

static int64_t lease_of(const struct dlock_claim *claim) {
    return claim->lease_ms > MAX_LEASE_MS ? MAX_LEASE_MS : claim->lease_ms;
}

/* Returns for how long of its lease a grant can be used. */
static int64_t kept_of(const struct redis *redis, const struct dlock_claim *claim) {
    return lease_of(claim) - (redis->master.strict ? REDIS_SURE_MS : 0);
}

/* Writes a number that is not negative. */
static const char *decimal(char out[24], int64_t number) {
    char *at = out + 23;
    *at = '\0';
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    return at;
}

/* Returns the kind of a claim's grant, as library.lua defines it. */
static const char *kind_of(char out[40], const struct dlock_claim *claim) {
    bool lingers = claim->flags & DLOCK_CLAIM_LINGER;
    switch (claim->mode) {
    case DLOCK_SHARED: return REDIS_KIND_SHARED;
    case DLOCK_PERMIT: snprintf(out, 40, REDIS_KIND_PERMITS "%" PRIu32, claim->limit); return out;
    default: return lingers ? " " : "";
    }
}

bool redis_limit_of(const char *kind, uint32_t *limit) {
    const size_t word = sizeof REDIS_KIND_PERMITS - 1;
    int64_t number;
    if (strncmp(kind, REDIS_KIND_PERMITS, word) != 0) return false;
    kind += word;
    if (strspn(kind, "0123456789") != strlen(kind) || strlen(kind) > 10) return false;
    number = strtoll(kind, NULL, 10);
    *limit = (uint32_t)number;
    return number > 0 && number <= UINT32_MAX;
}

/* Reads an array of exactly `elements`, of which the first n are integers. */
static bool read_integers(const redisReply *reply, size_t elements, int64_t *out, size_t n) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != elements) return false;
    for (size_t i = 0; i < n; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER) return false;
        out[i] = reply->element[i]->integer;
    }
    return true;
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

/* For how long after a fence from the clock the next ones may be incremented (acquire.lua). */
#define COUNT_MS 1000
/* No fence that may be incremented is smaller. */
#define COUNT_FROM INT64_C(1000000000000000)

/* Two names with one hash share an entry of redis.counts. That would matter only with a server that went back to an
 * earlier state and kept its connections. */
static uint64_t hash(const char *name) {
    return dlock_hash(name, strlen(name), DLOCK_HASH_SEED);
}

static bool may_count(const struct redis *redis, const char *name) {
    uint64_t key = hash(name);
    uint32_t left_ms = redis->counts[key % REDIS_COUNTS].until_ms - (uint32_t)(dlock_now_us() / 1000);
    return redis->counts[key % REDIS_COUNTS].name == key >> 32 && left_ms > 0 && left_ms <= COUNT_MS;
}

static void note_clock(struct redis *redis, const char *name, int64_t asked_us) {
    uint64_t key = hash(name);
    redis->counts[key % REDIS_COUNTS].name = (uint32_t)(key >> 32);
    redis->counts[key % REDIS_COUNTS].until_ms = (uint32_t)(asked_us / 1000) + COUNT_MS;
}

/* Returns the script's argument that says how the lock is asked for (acquire.lua). */
static const char *how_of(const struct redis *redis, bool waits, bool asks, bool counts) {
    if (counts) return waits ? "w" : "";
    if (redis->peer->quarantine_ms <= 0) return asks ? "whc" : waits ? "wc" : "c";
    return asks ? redis->asks : waits ? redis->waits : redis->waits + 1; /* without "w" */
}

/* For how long a connection relies on the server's word that this client listens there. The limit is for a connection
 * that was not used while the master changed to and fro: the client may be listening at another server by then. */
#define HEARD_US 1000000

static void write_acquire(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    struct batch *batch = arg;
    const struct dlock_claim *claim = batch->claims[i];
    const bool may_wait = claim->flags & DLOCK_CLAIM_QUEUE;
    const bool asks = may_wait && dlock_now_us() >= redis->heard_until_us;
    const bool counts = !asks && may_count(redis, claim->name);
    batch->asks |= asks;
    call->script = REDIS_ACQUIRE;
    call->name = claim->name;
    call->args[0] = claim->token;
    call->args[1] = decimal(call->lease, lease_of(claim));
    call->args[2] = how_of(redis, may_wait, asks, counts);
    call->args[3] = kind_of(call->kind, claim);
    call->args[4] = redis_may_grant(redis);
    /* Trailing arguments with default values are left out: each argument costs the server time. */
    call->n = strcmp(call->args[4], "1") != 0 || *redis->fences ? 5 : *call->args[3] ? 4 : *call->args[2] ? 3 : 2;
    redis_add_rest(redis, call);
}

/* Returns when a busy claim should retry. If the holder is another program's client, its release wakes no waiter, so
 * the first in the queue has to poll. */
static int64_t retry_ms(const struct dlock_claim *claim, int64_t position, int64_t remaining_ms, bool ours) {
    if (position < 0 || (position == 0 && (!ours || remaining_ms < 0))) return -1;
    if (remaining_ms == 0) return 0;
    return dlock_queue_retry_ms(position, remaining_ms, lease_of(claim));
}

/* Answers a claim that would be granted without the quarantine. While the server refuses to write, the quarantine does
 * not end: the claim fails for the same reason. */
static void quarantined(const struct redis *redis, struct batch *batch, struct dlock_claim *claim, int64_t position) {
    if (position < 0 && redis->unrecorded.code) {
        explain(batch, claim, redis->unrecorded.code, redis->unrecorded.message);
        return;
    }
    claim->result = DLOCK_ENOTREADY;
    claim->ready_ms = redis_quarantine_left_ms(redis);
    if (claim->ready_ms == 0) claim->ready_ms = 1; /* it ended while the answer was under way */
    if (position >= 0) claim->retry_ms = dlock_queue_retry_ms(position, claim->ready_ms, lease_of(claim));
}

/* Explains how the name is in use according to acquire.lua. False: its answer is malformed. */
static bool in_use(struct batch *batch, struct dlock_claim *claim, const char *as) {
    char used[32] = "a lock", asked[32] = "a lock", why[REDIS_NAME_MAX + 100];
    uint32_t limit;
    if (*as && !redis_limit_of(as, &limit)) return false;
    if (*as) snprintf(used, sizeof used, "%" PRIu32 " permits", limit);
    if (claim->mode == DLOCK_PERMIT) snprintf(asked, sizeof asked, "%" PRIu32 " permits", claim->limit);
    snprintf(why, sizeof why, "lock \"%s\" is in use as %s; it was asked for as %s", claim->name, used, asked);
    explain(batch, claim, DLOCK_EINVAL, why);
    return true;
}

static void granted(const struct redis *redis, struct dlock_claim *claim, int64_t server_us, int64_t fence) {
    claim->server_us = server_us;
    claim->fence = (uint64_t)fence;
    claim->kept_ms = kept_of(redis, claim);
    claim->result = 0;
}

/* Handles the loss of the name's fence: the acquire is repeated once, after asking since when the server has been the
 * master. */
static int forgotten(struct redis *redis, struct batch *batch, struct dlock_claim *claim, struct dlock_error *err) {
    if (batch->repeated) return redis_nonsense(redis, "the result of acquire.lua", err);
    redis->counts[hash(claim->name) % REDIS_COUNTS].until_ms = (uint32_t)(dlock_now_us() / 1000);
    redis->check_us = 0;
    batch->again = true;
    return 0;
}

static int read_acquire(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    struct batch *batch = arg;
    struct dlock_claim *claim = batch->claims[i];
    enum { SERVER_US, FENCE, POSITION, REMAINING, OURS, N };
    int64_t answer[N];
    redis->queued = false;
    if (reply->type == REDIS_REPLY_ERROR) {
        explain_data(batch, claim, reply);
        return 0;
    }
    if (reply->type == REDIS_REPLY_STRING && in_use(batch, claim, reply->str)) return 0;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) return forgotten(redis, batch, claim, err);
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0 && reply->integer < REDIS_FENCE_END) {
        granted(redis, claim, reply->integer, reply->integer);
        note_clock(redis, claim->name, batch->begun_us);
        return 0;
    }
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer < -COUNT_FROM && reply->integer > -REDIS_FENCE_END) {
        granted(redis, claim, 0, -reply->integer);
        return 0;
    }
    const redisReply *holder = reply->type == REDIS_REPLY_ARRAY && reply->elements == N + 1 ? reply->element[N] : NULL;
    if (!read_integers(reply, holder ? N + 1 : N, answer, N) || (holder && holder->type != REDIS_REPLY_STRING) ||
        answer[SERVER_US] <= 0 || answer[FENCE] < 0 || answer[FENCE] >= REDIS_FENCE_END || answer[POSITION] < -1 ||
        answer[POSITION] > INT32_MAX || answer[REMAINING] < -2 || answer[OURS] < 0 || answer[OURS] > 3)
        return redis_nonsense(redis, "the result of acquire.lua", err);
    claim->server_us = answer[SERVER_US];
    if (answer[FENCE]) {
        granted(redis, claim, answer[SERVER_US], answer[FENCE]);
    } else if (redis->peer->quarantine_ms > 0 && answer[REMAINING] == -2) {
        quarantined(redis, batch, claim, answer[POSITION]);
    } else {
        const bool unheard = answer[OURS] & 2;
        redis->queued = answer[POSITION] >= 0;
        claim->retry_ms = retry_ms(claim, answer[POSITION], answer[REMAINING], answer[OURS] & 1);
        claim->result = DLOCK_EBUSY;
        if (holder && !batch->explained) {
            dlock_held_by(&batch->why, holder->str);
            batch->explained = true;
        }
        if (unheard) claim->hints = DLOCK_HINT_UNHEARD;
        if (answer[POSITION] >= 0 && (unheard || batch->asks))
            redis->heard_until_us = unheard ? 0 : batch->begun_us + HEARD_US;
        const int64_t left_ms = redis_quarantine_left_ms(redis), at_its_end_ms = left_ms + 1 + answer[POSITION] * 5;
        if (left_ms > 0 && claim->retry_ms > at_its_end_ms)
            claim->retry_ms = at_its_end_ms; /* a release during the quarantine wakes no waiter */
    }
    return 0;
}

/* ---- renew ------------------------------------------------------------------------------------------------------- */

static void write_renew(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    const struct dlock_claim *claim = ((struct batch *)arg)->claims[i];
    const bool late = redis->master.strict && redis_quarantine_left_ms(redis) > 0;
    call->script = REDIS_RENEW;
    call->name = claim->name;
    call->args[0] = claim->token;
    call->args[1] = decimal(call->lease, lease_of(claim));
    call->args[2] = kind_of(call->kind, claim);
    call->args[3] = claim->mode != DLOCK_EXCLUSIVE ? redis_may_grant(redis) : late ? "0" : "1";
    call->n = claim->mode == DLOCK_EXCLUSIVE && !late && !*redis->fences ? 2 : 4;
    if (claim->floor > 0) {
        snprintf(call->floor, sizeof call->floor, "%016" PRIu64, claim->floor);
        call->args[4] = call->floor;
        call->n = 5;
    }
    redis_add_rest(redis, call);
}

static int read_renew(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    struct dlock_claim *claim = ((struct batch *)arg)->claims[i];
    if (reply->type == REDIS_REPLY_ERROR) {
        claim->result = DLOCK_ELOST; /* the key or one of its companions no longer holds dlock's data */
        return 0;
    }
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0)
        return redis_nonsense(redis, "the result of renew.lua", err);
    if (reply->integer == 0) {
        claim->result = DLOCK_ELOST;
        return 0;
    }
    claim->server_us = reply->integer;
    claim->kept_ms = kept_of(redis, claim);
    claim->hints = DLOCK_HINT_LISTEN; /* a lock that is held for long hears of a break */
    claim->result = 0;
    return 0;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

static void write_release(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    const struct dlock_claim *claim = ((struct batch *)arg)->claims[i];
    call->script = REDIS_RELEASE;
    call->name = claim->name;
    call->args[0] = claim->token;
    call->args[1] = redis_may_grant(redis);
    call->n = strcmp(call->args[1], "1") == 0 && !*redis->fences ? 1 : 2;
    redis_add_rest(redis, call);
}

static int read_release(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    enum { HAD = 1, AGAIN = 2 };
    struct batch *batch = arg;
    struct dlock_claim *claim = batch->claims[i];
    int64_t answer = reply->type == REDIS_REPLY_ERROR ? 0 : reply->integer;
    if (reply->type != REDIS_REPLY_ERROR && reply->type != REDIS_REPLY_INTEGER)
        return redis_nonsense(redis, "the result of release.lua", err);
    if (answer < 0 || answer > (HAD | AGAIN)) return redis_nonsense(redis, "the result of release.lua", err);
    if (!batch->repeated) claim->result = answer & HAD ? 0 : DLOCK_ELOST;
    if (answer & AGAIN) batch->again = true;
    return 0;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* Refuses claims that are invalid. */
static bool acceptable(const struct redis *redis, struct batch *batch, struct dlock_claim *claim,
                       enum redis_script script) {
    size_t name = strlen(claim->name), token = strlen(claim->token);
    if (claim->mode == DLOCK_PERMIT && claim->limit == 0 && script != REDIS_RELEASE)
        explain(batch, claim, DLOCK_EINVAL, "the number of permits must be at least 1");
    else if (name == 0 || name > REDIS_NAME_MAX || token == 0 || token > DLOCK_TOKEN_MAX)
        explain(batch, claim, DLOCK_EINVAL, "a name has 1 to 255 bytes and a token 1 to 127");
    else if (claim->lease_ms <= 0 && script != REDIS_RELEASE)
        explain(batch, claim, DLOCK_EINVAL, "a lease must be longer than 0");
    else if (redis->master.strict && claim->lease_ms < 2 * REDIS_SURE_MS && script != REDIS_RELEASE)
        explain(batch, claim, DLOCK_EINVAL,
                "with Sentinels a lease must be at least 400 ms: 200 ms of it cannot be used");
    else if (claim->floor >= FLOOR_END && script == REDIS_RENEW)
        explain(batch, claim, DLOCK_EINVAL, "a fence cannot be raised that far: Redis counts exactly only up to 2^53");
    else
        return true;
    return false;
}

static int run_once(struct redis *redis, enum redis_script script, struct redis_pipeline pipeline, struct batch *batch,
                    struct dlock_claim *const *claims, size_t n, int64_t deadline_us, struct dlock_error *err) {
    size_t i = 0;
    pipeline.arg = batch;
    while (i < n) {
        int rc;
        if (!acceptable(redis, batch, claims[i], script)) {
            i++;
            continue;
        }
        batch->claims = claims + i;
        for (pipeline.count = 1; i + pipeline.count < n; pipeline.count++)
            if (!acceptable(redis, batch, claims[i + pipeline.count], script)) break;
        if ((rc = redis_run_pipeline(redis, &pipeline, deadline_us, err)) != 0) return rc;
        i += pipeline.count;
    }
    return 0;
}

static int run_batch(struct redis *redis, enum redis_script script, struct redis_pipeline pipeline,
                     struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct batch batch;
    batch.begun_us = redis->begun_us ? redis->begun_us : dlock_now_us();
    batch.asks = batch.explained = batch.again = batch.repeated = false;
    redis_doubt_master(redis);
    int rc = run_once(redis, script, pipeline, &batch, claims, n, deadline_us, err);
    while (rc == 0 && batch.again && dlock_now_us() < deadline_us) {
        batch.again = false;
        batch.repeated = true;
        rc = run_once(redis, script, pipeline, &batch, claims, n, deadline_us, err);
    }
    /* A release that ran out of time needs no error: the next waiter that asks does the rest. */
    if (rc == 0 && batch.again && script == REDIS_ACQUIRE)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s has lost data: no answer in time", redis->where);
    if (rc == 0) rc = redis_be_sure(redis, deadline_us, err);
    if (rc == 0 && batch.explained && err) *err = batch.why; /* on an error `err` is about the connection */
    return rc;
}

static const struct redis_pipeline pipelines[] = {
    [REDIS_ACQUIRE] = {.grants = true, .write = write_acquire, .read = read_acquire},
    [REDIS_RENEW] = {.grants = true, .write = write_renew, .read = read_renew},
    [REDIS_RELEASE] = {.grants = true, .write = write_release, .read = read_release},
};

int redis_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_batch(conn, REDIS_ACQUIRE, pipelines[REDIS_ACQUIRE], claims, n, timeout_ms, err);
}

/* A downgrade grants the lock to waiting readers. Any other renewal at a server that is no longer the master, or whose
 * data were replaced, would extend grants that may have gone to others by now. */
int redis_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_batch(conn, REDIS_RENEW, pipelines[REDIS_RENEW], claims, n, timeout_ms, err);
}

int redis_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    /* If this client had to wait, another one probably waits now: it gets its grant before this caller gets the reply,
     * which with several processors makes a hand-over a third shorter. */
    struct redis_pipeline pipeline = pipelines[REDIS_RELEASE];
    pipeline.behind = ((struct redis *)conn)->queued;
    return run_batch(conn, REDIS_RELEASE, pipeline, claims, n, timeout_ms, err);
}

/* True if an operation on the claim is one call of a script and nothing else, as far as this side knows. */
static bool is_one_call(const struct redis *redis, enum dlock_operation operation, const struct dlock_claim *claim) {
    const int64_t now_us = dlock_now_us();
    if (redis->member || redis->master.strict || redis->broken || redis->unanswered > 0) return false;
    if (redis->peer->quarantine_ms > 0 && now_us >= redis->check_us) return false;
    if (operation == DLOCK_RELEASE) return !redis->queued;
    return operation == DLOCK_RENEW || !(claim->flags & DLOCK_CLAIM_QUEUE) || now_us < redis->heard_until_us;
}

int redis_begin(void *conn, enum dlock_operation operation, struct dlock_claim *claim, int *fd,
                struct dlock_error *err) {
    static const enum redis_script scripts[] = {
        [DLOCK_ACQUIRE] = REDIS_ACQUIRE, [DLOCK_RENEW] = REDIS_RENEW, [DLOCK_RELEASE] = REDIS_RELEASE};
    const enum redis_script script = scripts[operation];
    struct redis *redis = conn;
    struct batch batch = {.claims = &claim};
    struct redis_pipeline pipeline = pipelines[script];
    pipeline.arg = &batch;
    *fd = -1;
    if (!is_one_call(redis, operation, claim) || !acceptable(redis, &batch, claim, script)) return 0;
    redis->begun_us = dlock_now_us();
    int rc = redis_begin_pipeline(redis, &pipeline, err);
    if (rc == 0) *fd = redis->stream.fd;
    return rc;
}
