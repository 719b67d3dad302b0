/* The quarantine: a server grants nothing until it has been the same master for that long. */
#include "redis.h"

#include "incarnation.lua.h"

#include <inttypes.h>

/* The age of the last answered question from which on it is repeated, together with other requests. A promotion may
 * keep connections open: Sentinel closes them, REPLICAOF does not. The answer may have been in the socket for a long
 * time. */
#define CHECK_US 1000000

const char *redis_record_key(const struct redis *redis, char out[REDIS_KEY_MAX + 40]) {
    char prefix[REDIS_KEY_MAX + 1];
    dlock_encode_name(prefix, sizeof prefix, redis->peer->prefix ? redis->peer->prefix : "", REDIS_SPECIAL, false);
    if (redis->member)
        snprintf(out, REDIS_KEY_MAX + 40, "dlock:{%s}:incarnation:%s", redis->member->tag, prefix);
    else
        snprintf(out, REDIS_KEY_MAX + 40, "{%s}:dlock:incarnation", prefix);
    return out;
}

/* Uses EVAL, since a server that lacks the script would cost another round trip. */
void redis_ask_incarnation(struct redis *redis) {
    const int64_t now_us = dlock_now_us();
    if (redis->peer->quarantine_ms <= 0 || now_us < redis->check_us) return;
    char key[REDIS_KEY_MAX + 40];
    redis_record_key(redis, key);
    redis_command(redis, "EVAL", incarnation_lua_text, "1", key, redis->master.epoch, (char *)NULL);
    snprintf(redis->asks, sizeof redis->asks, "whm%" PRId64 " %s", redis->peer->quarantine_ms, key);
    snprintf(redis->waits, sizeof redis->waits, "wm%" PRId64 " %s", redis->peer->quarantine_ms, key);
    redis->asked = true;
    redis->asked_us = now_us;
}

/* Handles a refusal. A server that cannot write the record, for lack of memory, disk or replicas, begins its quarantine
 * later: it refuses acquires for the same reason, which is stored, and the next call tries again. A writable replica
 * has its master's record, which the scripts would trust. */
static int refused(struct redis *redis, const redisReply *reply, struct dlock_error *err) {
    char key[REDIS_KEY_MAX + 40];
    struct dlock_error why;
    int rc = redis_refused(redis, reply, &why);
    if (rc == DLOCK_EAUTH)
        return dlock_fail(err, rc,
                          "Redis at %s does not let this user see whether the server was restarted or promoted: give "
                          "it +eval and the key ~%.100s, or set quarantine=0 (%.120s)",
                          redis->where, redis_record_key(redis, key), reply->str);
    if (rc != DLOCK_EUNAVAILABLE || redis_error_is(reply, "READONLY")) return redis_refused(redis, reply, err);
    redis->unrecorded = why;
    return 0;
}

int redis_read_incarnation(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    const int64_t quarantine_ms = redis->peer->quarantine_ms;
    redisReply *reply;
    int64_t age_ms = 0;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    redis->asked = false;
    if (rc) return rc;
    redis->unrecorded.code = 0;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0)
        age_ms = reply->integer;
    else if (redis->member && redis_note_move(redis->member, reply))
        rc = REDIS_ELSEWHERE;
    else if (reply->type == REDIS_REPLY_ERROR)
        rc = refused(redis, reply, err);
    else
        rc = redis_nonsense(redis, "the age of the master's incarnation", err);
    freeReplyObject(reply);
    if (rc) return rc;
    const int64_t now_us = dlock_now_us();
    redis->quarantine_until_us = age_ms < quarantine_ms ? now_us + (quarantine_ms - age_ms) * 1000 : 0;
    redis->check_us = redis->asked_us + CHECK_US;
    return 0;
}

int64_t redis_quarantine_left_ms(const struct redis *redis) {
    int64_t left_us = redis->quarantine_until_us ? redis->quarantine_until_us - dlock_now_us() : 0;
    return left_us > 0 ? left_us / 1000 + 1 : 0;
}

const char *redis_may_grant(const struct redis *redis) {
    if (redis->asked) return redis->waits + 2; /* without "wm" */
    return redis_quarantine_left_ms(redis) ? "0" : "1";
}
