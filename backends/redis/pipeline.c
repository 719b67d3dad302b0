/* Calling scripts for many locks in one round trip. */
#include "redis.h"

/* Most calls that are written before replies are read; most locks in one call. */
#define CHUNK 256
#define MANY 32
/* Number of words before the keys: EVALSHA, the SHA-1, the number of keys. */
#define HEAD 3
/* Most keys of a lock, and the longest of them. */
#define KEYS 8
#define LONGEST (REDIS_KEY_MAX + 24)

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Writes the companion keys of a lock (library.lua). A node of a cluster must be given all of them: it then refuses a
 * script if some are on another node. While the slot is being moved it must refuse the script even if it has all of
 * them, since it would refuse the script's own calls after the first key that the script deletes; the last key, which
 * never exists, causes that. Other servers are not given them: a cycle would take 4 % longer. */
static void add_companions(const char *key, char keys[KEYS - 1][LONGEST], const char **words) {
    static const char *const others[KEYS - 1] = {"fence", "queue", "waiters", "holders", "grants", "turn", "never"};
    for (size_t i = 0; i < KEYS - 1; i++) {
        stpcpy(stpcpy(stpcpy(stpcpy(keys[i], "{"), key), "}:dlock:"), others[i]);
        words[i] = keys[i];
    }
}

static void write_one(struct redis *redis, const struct redis_call *call) {
    char key[REDIS_KEY_MAX + 1], companions[KEYS - 1][LONGEST];
    const char *words[HEAD + KEYS + REDIS_MAX_ARGS] = {"EVALSHA", redis_sha1(call->script), "1", call->name};
    size_t lengths[HEAD + KEYS + REDIS_MAX_ARGS] = {7, 40, 1}, n = HEAD + 1;
    if (!redis_is_plain(call->name)) {
        dlock_encode_name(key, sizeof key, call->name, REDIS_SPECIAL, false);
        words[HEAD] = key;
    }
    if (redis->member) {
        add_companions(words[HEAD], companions, words + n);
        n += KEYS - 1;
        words[HEAD - 1] = "8";
        if (redis->member->asking) redis_command(redis, "ASKING", (char *)NULL);
    }
    for (size_t i = 0; i < call->n; i++) words[n++] = call->args[i];
    for (size_t i = HEAD; i < n; i++) lengths[i] = strlen(words[i]);
    redis_request(redis, n, words, lengths);
}

/* Writes one call for n locks (many.lua). */
static void write_many(struct redis *redis, const struct redis_call *calls, size_t n) {
    const char *words[HEAD + 1 + MANY * (1 + REDIS_MAX_ARGS)] = {"EVALSHA",
                                                                 redis_sha1(REDIS_MANY + (int)calls->script)};
    size_t lengths[HEAD + 1 + MANY * (1 + REDIS_MAX_ARGS)] = {7, 40}, at = HEAD;
    char count[8], each[8];
    snprintf(count, sizeof count, "%zu", n);
    snprintf(each, sizeof each, "%zu", calls->n);
    words[2] = count;
    for (size_t i = 0; i < n; i++) words[at++] = calls[i].name;
    words[at++] = each;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < calls->n; j++) words[at++] = calls[i].args[j];
    for (size_t i = 2; i < at; i++) lengths[i] = strlen(words[i]);
    redis_request(redis, at, words, lengths);
}

/* True if a call can be combined with the first one. */
static bool goes_along(const struct redis_call *first, const struct redis_call *call) {
    return call->script == first->script && call->n == first->n && redis_is_plain(call->name);
}

/* Writes a call for as many locks from the `from`-th on as can be combined. Returns their number, and in *script the
 * script that it calls. */
static size_t write_some(struct redis *redis, const struct redis_pipeline *pipeline, size_t from, size_t to,
                         int *script) {
    struct redis_call list[MANY];
    size_t n = 1;
    pipeline->write(redis, from, &list[0], pipeline->arg);
    if (!redis->member && list[0].script <= REDIS_RELEASE && redis_is_plain(list[0].name))
        for (; n < MANY && from + n < to; n++) {
            pipeline->write(redis, from + n, &list[n], pipeline->arg);
            if (!goes_along(list, &list[n])) break;
        }
    *script = (int)list[0].script + (n > 1 ? REDIS_MANY : 0);
    if (n > 1)
        write_many(redis, list, n);
    else
        write_one(redis, list);
    return n;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int judge(struct redis *redis, const struct redis_pipeline *pipeline, size_t i, const redisReply *reply,
                 struct dlock_error *err) {
    if (redis->member && redis_note_move(redis->member, reply)) {
        /* the missing slot may be that of the node's own key (incarnation.lua) */
        if (strstr(reply->str, "non local key")) redis->check_us = 0;
        return 0;
    }
    if (reply->type == REDIS_REPLY_ERROR && !redis_is_foreign_data(reply)) return redis_refused(redis, reply, err);
    return pipeline->read(redis, i, reply, pipeline->arg, err);
}

/* Reads the reply to ASKING or TIME. */
static int skip_answer(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc == 0) freeReplyObject(reply);
    return rc;
}

/* Reads the reply to the call for n locks from the i-th on. If the server lacks the script, *missing is set instead of
 * answering the locks; `missing` NULL: that is an error. */
static int take_answer(struct redis *redis, const struct redis_pipeline *pipeline, size_t i, size_t n, bool *missing,
                       int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int first = redis->member && redis->member->asking ? skip_answer(redis, deadline_us, err) : 0;
    if (first == 0) first = redis_reply(redis, deadline_us, &reply, err);
    if (first) return first;
    if (missing && redis_error_is(reply, "NOSCRIPT"))
        *missing = true;
    else if (n == 1 || reply->type == REDIS_REPLY_ERROR)
        first = judge(redis, pipeline, i, reply, err);
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != n)
        first = redis_nonsense(redis, "the replies for several locks", err);
    else
        for (size_t j = 0; j < n; j++) {
            int rc = judge(redis, pipeline, i + j, reply->element[j], first ? NULL : err);
            if (!first) first = rc;
        }
    freeReplyObject(reply);
    return first;
}

/* ---- round trips ------------------------------------------------------------------------------------------------- */

/* Some of the locks, whose calls are sent together. */
struct chunk {
    const struct redis_pipeline *pipeline;
    size_t from, to;
    bool asks[CHUNK];     /* these have to be sent, or sent again; the others are answered */
    uint8_t sizes[CHUNK]; /* the number of locks in the call that begins here */
    bool missing[REDIS_SCRIPTS];
};

/* Writes the calls that have to be sent. */
static void write_chunk(struct redis *redis, struct chunk *chunk, int scripts[CHUNK]) {
    size_t n;
    for (size_t i = chunk->from; i < chunk->to; i += n) {
        size_t at = i - chunk->from, end = i + 1;
        n = 1;
        if (!chunk->asks[at]) continue;
        while (end < chunk->to && chunk->asks[end - chunk->from]) end++;
        n = write_some(redis, chunk->pipeline, i, end, &scripts[at]);
        chunk->sizes[at] = (uint8_t)n;
    }
}

/* Reads the answers. A call whose script the server lacks is marked to be sent again, and *any set; `any` NULL: that is
 * an error. */
static int read_chunk(struct redis *redis, struct chunk *chunk, const int scripts[CHUNK], bool *any,
                      int64_t deadline_us, struct dlock_error *err) {
    int first = 0;
    size_t n;
    for (size_t i = chunk->from; i < chunk->to; i += n) {
        size_t at = i - chunk->from;
        bool lost = false;
        int rc;
        n = 1;
        if (!chunk->asks[at]) continue;
        n = chunk->sizes[at];
        rc = take_answer(redis, chunk->pipeline, i, n, any ? &lost : NULL, deadline_us, first ? NULL : err);
        for (size_t j = 0; j < n; j++) chunk->asks[at + j] = lost;
        if (lost) chunk->missing[scripts[at]] = *any = true;
        if (!first) first = rc;
        if (redis->broken) break;
    }
    return first;
}

/* Loads the missing scripts into the server, which is new, was restarted or flushed them, and sends the marked calls
 * again. */
static int call_again(struct redis *redis, struct chunk *chunk, int scripts[CHUNK], int64_t deadline_us,
                      struct dlock_error *err) {
    int first = 0, rc;
    for (int i = 0; i < REDIS_SCRIPTS; i++)
        if (chunk->missing[i]) redis_load(redis, i);
    write_chunk(redis, chunk, scripts);
    for (int i = 0; i < REDIS_SCRIPTS && !redis->broken; i++) {
        rc = chunk->missing[i] ? redis_loaded(redis, deadline_us, first ? NULL : err) : 0;
        if (!first) first = rc;
    }
    if (redis->broken) return first;
    rc = read_chunk(redis, chunk, scripts, NULL, deadline_us, first ? NULL : err);
    return first ? first : rc;
}

int redis_begin_pipeline(struct redis *redis, const struct redis_pipeline *pipeline, struct dlock_error *err) {
    struct redis_call call;
    pipeline->write(redis, 0, &call, pipeline->arg);
    write_one(redis, &call);
    redis->begun = call.script;
    return redis_push(redis, err);
}

/* Reads the answer to redis_begin_pipeline(). */
static int end_chunk(struct redis *redis, struct chunk *chunk, int64_t deadline_us, struct dlock_error *err) {
    int scripts[CHUNK];
    bool any = false;
    scripts[0] = redis->begun;
    chunk->sizes[0] = 1;
    redis->begun_us = 0;
    const int rc = read_chunk(redis, chunk, scripts, &any, deadline_us, err);
    return rc || !any ? rc : call_again(redis, chunk, scripts, deadline_us, err);
}

static int run_chunk(struct redis *redis, const struct redis_pipeline *pipeline, size_t from, size_t to,
                     int64_t deadline_us, struct dlock_error *err) {
    struct chunk chunk = {.pipeline = pipeline, .from = from, .to = to};
    int scripts[CHUNK], rc;
    int first = 0;
    bool any = false;
    memset(chunk.asks, true, to - from);
    if (redis->begun_us) return end_chunk(redis, &chunk, deadline_us, err);
    if (pipeline->grants) redis_ask_incarnation(redis);
    /* In a cluster the key that is asked for may have moved to another node, so the answer is awaited first. */
    if (redis->member && redis->asked && (first = redis_read_incarnation(redis, deadline_us, err)) != 0) return first;
    const bool asks_time = pipeline->behind && !redis->asked; /* that question has a separate reply */
    if (asks_time) redis_command(redis, "TIME", (char *)NULL);
    write_chunk(redis, &chunk, scripts);
    if (asks_time && (first = skip_answer(redis, deadline_us, err)) != 0) return first;
    if (redis->asked) first = redis_read_incarnation(redis, deadline_us, err);
    if (first && redis->broken) return first;
    rc = read_chunk(redis, &chunk, scripts, &any, deadline_us, first ? NULL : err);
    if (first) return first;
    return rc || !any ? rc : call_again(redis, &chunk, scripts, deadline_us, err);
}

int redis_run_pipeline(struct redis *redis, const struct redis_pipeline *pipeline, int64_t deadline_us,
                       struct dlock_error *err) {
    int rc = 0;
    for (size_t from = 0; from < pipeline->count && rc == 0; from += CHUNK) {
        size_t to = pipeline->count - from > CHUNK ? from + CHUNK : pipeline->count;
        rc = run_chunk(redis, pipeline, from, to, deadline_us, err);
    }
    return rc;
}
