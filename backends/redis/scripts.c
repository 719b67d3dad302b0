/* The .lua files: loading them, and calling one for many locks in one round trip. */
#include "redis.h"

#include "acquire.lua.h"
#include "acquire_fast.lua.h"
#include "acquire_held.lua.h"
#include "acquire_next.lua.h"
#include "break.lua.h"
#include "fence.lua.h"
#include "held.lua.h"
#include "holders.lua.h"
#include "inspect.lua.h"
#include "layout.lua.h"
#include "queue.lua.h"
#include "release.lua.h"
#include "release_fast.lua.h"
#include "release_held.lua.h"
#include "renew.lua.h"
#include "renew_fast.lua.h"

/* How many calls are written before their replies are read. */
#define CHUNK 256
/* Words of a call before its arguments: EVALSHA, the SHA-1, 1, the key. */
#define HEAD 4

/* A script is made of these files, one after the other. What most calls need stands before what the others need: Lua
 * makes each function anew whenever it comes to its definition. */
struct part {
    const char *text;
    size_t length;
};
#define PART(file) \
    { file##_lua_text, sizeof file##_lua_text - 1 }
#define MAX_PARTS 9

static const struct part scripts[REDIS_SCRIPTS][MAX_PARTS] = {
    [REDIS_ACQUIRE] = {PART(layout), PART(fence), PART(acquire_fast), PART(held), PART(queue), PART(acquire_held),
                       PART(holders), PART(acquire)},
    [REDIS_ACQUIRE_NEXT] = {PART(layout), PART(acquire_next), PART(fence), PART(acquire_fast), PART(held), PART(queue),
                            PART(acquire_held), PART(holders), PART(acquire)},
    [REDIS_RENEW] = {PART(layout), PART(fence), PART(held), PART(renew_fast), PART(queue), PART(holders), PART(renew)},
    [REDIS_RELEASE] = {PART(layout), PART(held), PART(release_fast), PART(fence), PART(queue), PART(release_held),
                       PART(holders), PART(release)},
    [REDIS_BREAK] = {PART(layout), PART(held), PART(fence), PART(queue), PART(holders), PART(break)},
    [REDIS_INSPECT] = {PART(layout), PART(held), PART(fence), PART(queue), PART(holders), PART(inspect)},
};

/* No script is longer than all of the files together. */
#define MAX_SCRIPT                                                                                                   \
    (sizeof layout_lua_text + sizeof fence_lua_text + sizeof held_lua_text + sizeof queue_lua_text +                 \
     sizeof holders_lua_text + sizeof acquire_fast_lua_text + sizeof acquire_held_lua_text +                         \
     sizeof acquire_next_lua_text + sizeof acquire_lua_text + sizeof renew_fast_lua_text + sizeof renew_lua_text +   \
     sizeof release_fast_lua_text + sizeof release_held_lua_text + sizeof release_lua_text + sizeof break_lua_text + \
     sizeof inspect_lua_text)

static void load(struct redis *redis, const struct part *part) {
    char text[MAX_SCRIPT];
    const char *words[] = {"SCRIPT", "LOAD", text};
    size_t lengths[] = {6, 4, 0};
    for (const struct part *end = part + MAX_PARTS; part < end && part->text; part++) {
        memcpy(text + lengths[2], part->text, part->length);
        lengths[2] += part->length;
    }
    redis_request(redis, 3, words, lengths);
}

void redis_load(struct redis *redis) {
    for (size_t i = 0; i < REDIS_SCRIPTS; i++) load(redis, scripts[i]);
}

static int loaded(struct redis *redis, const redisReply *reply, char sha[41], struct dlock_error *err) {
    if (reply->type == REDIS_REPLY_ERROR) return redis_refused(redis, reply, err);
    if (reply->type != REDIS_REPLY_STRING || reply->len != 40 || strspn(reply->str, "0123456789abcdef") != 40)
        return redis_nonsense(redis, "no SHA1 for SCRIPT LOAD", err);
    memcpy(sha, reply->str, 41);
    return 0;
}

int redis_loaded(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    int first = 0;
    for (size_t i = 0; i < REDIS_SCRIPTS; i++) {
        redisReply *reply;
        int rc = redis_reply(redis, deadline_us, &reply, first ? NULL : err);
        if (rc) return first ? first : rc;
        rc = loaded(redis, reply, redis->sha[i], first ? NULL : err);
        freeReplyObject(reply);
        if (!first) first = rc;
    }
    return first;
}

/* Whether a name is surely its own key, as most are. */
static bool is_plain(const char *name) {
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == '%' || *p == '{' || *p >= '}') return false;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool redis_decode_key(const char *key, size_t length, char *name) {
    char again[REDIS_KEY_MAX + 1];
    size_t used = 0;
    if (length == 0 || length > REDIS_KEY_MAX || strlen(key) != length) return false;
    for (const char *p = key; *p; p++) {
        int byte = (unsigned char)*p;
        if (byte == '%') {
            int high = hex_digit(p[1]), low = high < 0 ? -1 : hex_digit(p[2]);
            if (low < 0) return false;
            byte = high << 4 | low;
            p += 2;
        }
        if (byte < 0x20 || byte == 0x7f || used == REDIS_NAME_MAX) return false;
        name[used++] = (char)byte;
    }
    name[used] = '\0';
    /* Only what we would write is ours: one name has one key. */
    dlock_encode_name(again, sizeof again, name, REDIS_SPECIAL, false);
    return strcmp(again, key) == 0;
}

void redis_call(struct redis *redis, enum redis_script script, const char *name, size_t n, const char *const *args) {
    char key[REDIS_KEY_MAX + 1];
    const char *words[HEAD + REDIS_MAX_ARGS] = {"EVALSHA", redis->sha[script], "1", name};
    size_t lengths[HEAD + REDIS_MAX_ARGS] = {7, 40, 1};
    if (!is_plain(name)) {
        dlock_encode_name(key, sizeof key, name, REDIS_SPECIAL, false);
        words[HEAD - 1] = key;
    }
    for (size_t i = 0; i < n; i++) words[HEAD + i] = args[i];
    for (size_t i = HEAD - 1; i < HEAD + n; i++) lengths[i] = strlen(words[i]);
    redis_request(redis, HEAD + n, words, lengths);
}

/* Reads the reply to the i-th call. `missing` is set, instead of answering, when the server does not have the script;
 * NULL: that is an error. */
static int take_answer(struct redis *redis, const struct redis_calls *calls, size_t i, bool *missing,
                       int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (missing && redis_error_is(reply, "NOSCRIPT"))
        *missing = true;
    else if (reply->type == REDIS_REPLY_ERROR && !redis_error_is(reply, "WRONGTYPE"))
        rc = redis_refused(redis, reply, err);
    else
        rc = calls->read(redis, i, reply, calls->arg, err);
    freeReplyObject(reply);
    return rc;
}

/* Gives the server the scripts that it lost (SCRIPT FLUSH), and calls again what is missing. */
static int call_again(struct redis *redis, const struct redis_calls *calls, size_t from, size_t to, const bool *missing,
                      int64_t deadline_us, struct dlock_error *err) {
    redis_load(redis);
    for (size_t i = from; i < to; i++)
        if (missing[i - from]) calls->write(redis, i, calls->arg);
    int first = redis_loaded(redis, deadline_us, err);
    if (redis->broken) return first;
    for (size_t i = from; i < to; i++) {
        int rc = missing[i - from] ? take_answer(redis, calls, i, NULL, deadline_us, first ? NULL : err) : 0;
        if (!first) first = rc;
    }
    return first;
}

static int run_chunk(struct redis *redis, const struct redis_calls *calls, size_t from, size_t to, int64_t deadline_us,
                     struct dlock_error *err) {
    bool missing[CHUNK] = {false}, any = false;
    int first = 0;
    for (size_t i = from; i < to; i++) calls->write(redis, i, calls->arg);
    for (size_t i = from; i < to; i++) {
        int rc = take_answer(redis, calls, i, &missing[i - from], deadline_us, first ? NULL : err);
        any = any || missing[i - from];
        if (!first) first = rc;
    }
    return first || !any ? first : call_again(redis, calls, from, to, missing, deadline_us, err);
}

int redis_run(struct redis *redis, const struct redis_calls *calls, int64_t deadline_us, struct dlock_error *err) {
    for (size_t from = 0; from < calls->count; from += CHUNK) {
        size_t to = calls->count - from > CHUNK ? from + CHUNK : calls->count;
        int rc = run_chunk(redis, calls, from, to, deadline_us, err);
        if (rc) return rc;
    }
    return 0;
}
