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
    /* Only a key that encoding yields is a lock's: each name has one key. */
    dlock_encode_name(again, sizeof again, name, REDIS_SPECIAL, false);
    return strcmp(again, key) == 0;
}
