/* The .lua files: the scripts made of them, loading these, and the keys that they are given. */
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
#include "many_begin.lua.h"
#include "many_end.lua.h"
#include "queue.lua.h"
#include "release.lua.h"
#include "release_fast.lua.h"
#include "release_held.lua.h"
#include "renew.lua.h"
#include "renew_fast.lua.h"

/* A script is made of these files, one after the other. What most calls need stands before what the others need: Lua
 * makes each function anew whenever it comes to its definition. */
struct part {
    const char *text;
    size_t length;
};
#define PART(file) \
    { file##_lua_text, sizeof file##_lua_text - 1 }
#define MAX_PARTS 11

/* What the calls of a single lock and those of many have in common. */
#define NEXT_PARTS                                                                                                  \
    PART(layout), PART(acquire_next), PART(fence), PART(acquire_fast), PART(held), PART(queue), PART(acquire_held), \
        PART(holders), PART(acquire)
#define RENEW_PARTS PART(layout), PART(fence), PART(held), PART(renew_fast), PART(queue), PART(holders), PART(renew)
#define RELEASE_PARTS                                                                                          \
    PART(layout), PART(held), PART(release_fast), PART(fence), PART(queue), PART(release_held), PART(holders), \
        PART(release)

static const struct part scripts[REDIS_SCRIPTS][MAX_PARTS] = {
    [REDIS_ACQUIRE] = {PART(layout), PART(fence), PART(acquire_fast), PART(held), PART(queue), PART(acquire_held),
                       PART(holders), PART(acquire)},
    [REDIS_ACQUIRE_NEXT] = {NEXT_PARTS},
    [REDIS_RENEW] = {RENEW_PARTS},
    [REDIS_RELEASE] = {RELEASE_PARTS},
    [REDIS_MANY + REDIS_ACQUIRE_NEXT] = {PART(many_begin), NEXT_PARTS, PART(many_end)},
    [REDIS_MANY + REDIS_RENEW] = {PART(many_begin), RENEW_PARTS, PART(many_end)},
    [REDIS_MANY + REDIS_RELEASE] = {PART(many_begin), RELEASE_PARTS, PART(many_end)},
    [REDIS_BREAK] = {PART(layout), PART(held), PART(fence), PART(queue), PART(holders), PART(break)},
    [REDIS_INSPECT] = {PART(layout), PART(held), PART(fence), PART(queue), PART(holders), PART(inspect)},
};

/* No script is longer than all of the files together. */
#define MAX_SCRIPT                                                                                                   \
    (sizeof layout_lua_text + sizeof fence_lua_text + sizeof held_lua_text + sizeof queue_lua_text +                 \
     sizeof holders_lua_text + sizeof acquire_fast_lua_text + sizeof acquire_held_lua_text +                         \
     sizeof acquire_next_lua_text + sizeof acquire_lua_text + sizeof renew_fast_lua_text + sizeof renew_lua_text +   \
     sizeof release_fast_lua_text + sizeof release_held_lua_text + sizeof release_lua_text + sizeof break_lua_text + \
     sizeof inspect_lua_text + sizeof many_begin_lua_text + sizeof many_end_lua_text)

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

void redis_load(struct redis *redis, int from, int to) {
    for (int i = from; i < to; i++) load(redis, scripts[i]);
}

static int loaded(struct redis *redis, const redisReply *reply, char sha[41], struct dlock_error *err) {
    if (reply->type == REDIS_REPLY_ERROR) return redis_refused(redis, reply, err);
    if (reply->type != REDIS_REPLY_STRING || reply->len != 40 || strspn(reply->str, "0123456789abcdef") != 40)
        return redis_nonsense(redis, "no SHA1 for SCRIPT LOAD", err);
    memcpy(sha, reply->str, 41);
    return 0;
}

int redis_loaded(struct redis *redis, int from, int to, int64_t deadline_us, struct dlock_error *err) {
    int first = 0;
    for (int i = from; i < to; i++) {
        redisReply *reply;
        int rc = redis_reply(redis, deadline_us, &reply, first ? NULL : err);
        if (rc) return first ? first : rc;
        rc = loaded(redis, reply, redis->sha[i], first ? NULL : err);
        freeReplyObject(reply);
        if (!first) first = rc;
    }
    return first;
}

bool redis_is_plain(const char *name) {
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
