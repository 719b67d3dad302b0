/* Calling a script for many locks in one round trip. */
#include "redis.h"

/* How many locks are written before the replies are read; how many of them one call may be for. */
#define CHUNK 256
#define MANY 32
/* Words of a call before its arguments: EVALSHA, the SHA-1, 1, the key. */
#define HEAD 4

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_one(struct redis *redis, const struct redis_call *call) {
    char key[REDIS_KEY_MAX + 1];
    const char *words[HEAD + REDIS_MAX_ARGS] = {"EVALSHA", redis->sha[call->script], "1", call->name};
    size_t lengths[HEAD + REDIS_MAX_ARGS] = {7, 40, 1};
    if (!redis_is_plain(call->name)) {
        dlock_encode_name(key, sizeof key, call->name, REDIS_SPECIAL, false);
        words[HEAD - 1] = key;
    }
    for (size_t i = 0; i < call->n; i++) words[HEAD + i] = call->args[i];
    for (size_t i = HEAD - 1; i < HEAD + call->n; i++) lengths[i] = strlen(words[i]);
    redis_request(redis, HEAD + call->n, words, lengths);
}

/* One call for n locks (many_begin.lua). */
static void write_many(struct redis *redis, const struct redis_call *calls, size_t n) {
    const char *words[HEAD + MANY * (1 + REDIS_MAX_ARGS)] = {"EVALSHA", redis->sha[REDIS_MANY + calls->script]};
    size_t lengths[HEAD + MANY * (1 + REDIS_MAX_ARGS)] = {7, 40}, at = 3;
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

/* Whether the lock may go along with those before it. */
static bool goes_along(const struct redis_call *first, const struct redis_call *call) {
    return call->script == first->script && call->n == first->n && redis_is_plain(call->name);
}

/* Writes a call for the locks from the `from`-th on that go together; returns how many these are. */
static size_t write_some(struct redis *redis, const struct redis_calls *calls, size_t from, size_t to) {
    struct redis_call list[MANY];
    size_t n = 1;
    calls->write(redis, from, &list[0], calls->arg);
    if (list[0].script <= REDIS_RELEASE && redis->sha[REDIS_MANY + list[0].script][0] && redis_is_plain(list[0].name))
        for (; n < MANY && from + n < to; n++) {
            calls->write(redis, from + n, &list[n], calls->arg);
            if (!goes_along(list, &list[n])) break;
        }
    if (n > 1)
        write_many(redis, list, n);
    else
        write_one(redis, list);
    return n;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int judge(struct redis *redis, const struct redis_calls *calls, size_t i, const redisReply *reply,
                 struct dlock_error *err) {
    if (reply->type == REDIS_REPLY_ERROR && !redis_error_is(reply, "WRONGTYPE"))
        return redis_refused(redis, reply, err);
    return calls->read(redis, i, reply, calls->arg, err);
}

/* Reads the reply to the call for n locks from the i-th on. `missing` is set, instead of answering, when the server
 * does not have the script; NULL: that is an error. */
static int take_answer(struct redis *redis, const struct redis_calls *calls, size_t i, size_t n, bool *missing,
                       int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int first = redis_reply(redis, deadline_us, &reply, err);
    if (first) return first;
    if (missing && redis_error_is(reply, "NOSCRIPT"))
        *missing = true;
    else if (n == 1 || reply->type == REDIS_REPLY_ERROR)
        first = judge(redis, calls, i, reply, err);
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements != n)
        first = redis_nonsense(redis, "the replies for several locks", err);
    else
        for (size_t j = 0; j < n; j++) {
            int rc = judge(redis, calls, i + j, reply->element[j], first ? NULL : err);
            if (!first) first = rc;
        }
    freeReplyObject(reply);
    return first;
}

/* ---- round trips ------------------------------------------------------------------------------------------------- */

/* Gives the server the scripts that it lost (SCRIPT FLUSH), and calls again what is missing, each for itself. */
static int call_again(struct redis *redis, const struct redis_calls *calls, size_t from, size_t to, const bool *missing,
                      int64_t deadline_us, struct dlock_error *err) {
    memset(redis->sha[REDIS_MANY], 0, sizeof redis->sha - REDIS_MANY * sizeof redis->sha[0]);
    redis_load(redis, 0, REDIS_MANY);
    for (size_t i = from; i < to; i++)
        if (missing[i - from]) write_some(redis, calls, i, i + 1);
    int first = redis_loaded(redis, 0, REDIS_MANY, deadline_us, err);
    if (redis->broken) return first;
    for (size_t i = from; i < to; i++) {
        int rc = missing[i - from] ? take_answer(redis, calls, i, 1, NULL, deadline_us, first ? NULL : err) : 0;
        if (!first) first = rc;
    }
    return first;
}

static int run_chunk(struct redis *redis, const struct redis_calls *calls, size_t from, size_t to, int64_t deadline_us,
                     struct dlock_error *err) {
    bool missing[CHUNK] = {false}, any = false;
    uint8_t sizes[CHUNK];
    int first = 0;
    for (size_t i = from; i < to; i += sizes[i - from]) sizes[i - from] = (uint8_t)write_some(redis, calls, i, to);
    for (size_t i = from; i < to; i += sizes[i - from]) {
        size_t n = sizes[i - from];
        bool lost = false;
        int rc = take_answer(redis, calls, i, n, &lost, deadline_us, first ? NULL : err);
        for (size_t j = i; j < i + n; j++) missing[j - from] = lost;
        any = any || lost;
        if (!first) first = rc;
    }
    return first || !any ? first : call_again(redis, calls, from, to, missing, deadline_us, err);
}

int redis_run(struct redis *redis, const struct redis_calls *calls, int64_t deadline_us, struct dlock_error *err) {
    int rc = 0;
    for (size_t from = 0; from < calls->count && rc == 0; from += CHUNK) {
        size_t to = calls->count - from > CHUNK ? from + CHUNK : calls->count;
        rc = run_chunk(redis, calls, from, to, deadline_us, err);
    }
    return rc;
}

int redis_learn_many(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    if (redis->sha[REDIS_MANY + REDIS_RELEASE][0]) return 0;
    redis_load(redis, REDIS_MANY, REDIS_SCRIPTS);
    return redis_loaded(redis, REDIS_MANY, REDIS_SCRIPTS, deadline_us, err);
}
