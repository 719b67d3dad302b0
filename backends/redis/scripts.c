/* The scripts, loading them, and the keys of locks. */
#include "redis.h"

#include "acquire.lua.h"
#include "break.lua.h"
#include "inspect.lua.h"
#include "many_acquire.lua.h"
#include "many_release.lua.h"
#include "many_renew.lua.h"
#include "release.lua.h"
#include "renew.lua.h"

static const struct {
    const char *text;
    size_t length;
    const char *sha1;
} scripts[REDIS_SCRIPTS] = {
#define SCRIPT(file) \
    { file##_lua_text, sizeof file##_lua_text - 1, file##_lua_sha1 }
    [REDIS_ACQUIRE] = SCRIPT(acquire),
    [REDIS_RENEW] = SCRIPT(renew),
    [REDIS_RELEASE] = SCRIPT(release),
    [REDIS_MANY + REDIS_ACQUIRE] = SCRIPT(many_acquire),
    [REDIS_MANY + REDIS_RENEW] = SCRIPT(many_renew),
    [REDIS_MANY + REDIS_RELEASE] = SCRIPT(many_release),
    [REDIS_BREAK] = SCRIPT(break),
    [REDIS_INSPECT] = SCRIPT(inspect),
};

const char *redis_sha1(int script) {
    return scripts[script].sha1;
}

void redis_load(struct redis *redis, int script) {
    const char *words[] = {"SCRIPT", "LOAD", scripts[script].text};
    const size_t lengths[] = {6, 4, scripts[script].length};
    redis_request(redis, 3, words, lengths);
}

int redis_loaded(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, reply, err);
    else if (reply->type != REDIS_REPLY_STRING)
        rc = redis_nonsense(redis, "no SHA1 for SCRIPT LOAD", err);
    freeReplyObject(reply);
    return rc;
}

bool redis_is_plain(const char *name) {
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == '%' || *p == '{' || *p >= '}') return false;
    return true;
}

bool redis_decode_key(const char *key, size_t length, char *name) {
    char again[REDIS_KEY_MAX + 1];
    if (length == 0 || length > REDIS_KEY_MAX || strlen(key) != length) return false;
    if (!dlock_decode_name(name, REDIS_NAME_MAX + 1, key)) return false;
    /* Only a key that encoding yields is a lock's: each name has one key. */
    dlock_encode_name(again, sizeof again, name, REDIS_SPECIAL, false);
    return strcmp(again, key) == 0;
}
