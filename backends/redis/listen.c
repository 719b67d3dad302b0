/* Wake-ups: one connection per client, subscribed to one channel that is named after the client. In a cluster there is
 * one per node, and the channel's name begins with the node's prefix. */
#include "redis.h"

#include <fcntl.h>
#include <stdlib.h>

/* Most messages of unknown kinds that one call skips. */
#define MAX_SKIPPED 1000

static bool is_string(const redisReply *reply, const char *text) {
    return reply->type == REDIS_REPLY_STRING && reply->len == strlen(text) && memcmp(reply->str, text, reply->len) == 0;
}

/* Sharded channels of a cluster have a hash tag. */
static bool is_sharded(const struct redis *redis) {
    return redis->member && strchr(redis->member->place, '{');
}

/* True if this is a message of this kind about the channel: three elements, of which the first two are known. `kind` is
 * the one of sharded channels; others lack its first letter. */
static bool is_about(const struct redis *redis, const redisReply *reply, const char *kind) {
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           is_string(reply->element[0], is_sharded(redis) ? kind : kind + 1) &&
           is_string(reply->element[1], redis->channel);
}

int redis_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    struct redis *redis = conn;
    redisReply *reply;
    int rc;
    snprintf(redis->channel, sizeof redis->channel, "%s%.24s",
             redis->member ? redis->member->place : "dlock:", redis->peer->client);
    redis_command(redis, is_sharded(redis) ? "SSUBSCRIBE" : "SUBSCRIBE", redis->channel, (char *)NULL);
    if ((rc = redis_reply(redis, dlock_deadline_us(timeout_ms), &reply, err)) != 0) return rc;
    if (reply->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, reply, err);
    else if (!is_about(redis, reply, "ssubscribe"))
        rc = redis_nonsense(redis, "the reply to SUBSCRIBE", err);
    freeReplyObject(reply);
    /* From now on the core polls the descriptor. */
    if (fcntl(redis->stream.fd, F_SETFL, fcntl(redis->stream.fd, F_GETFL) | O_NONBLOCK) == 0) redis->impatient = true;
    if (rc == 0) *fd = redis->stream.fd;
    return rc;
}

/* Takes the next word off *text, with the space that ends it. False: there is none, or it is too long. */
static bool take_word(const char **text, char *out, size_t size) {
    const char *end = strchr(*text, ' ');
    if (!end || end == *text || (size_t)(end - *text) >= size) return false;
    memcpy(out, *text, (size_t)(end - *text));
    out[end - *text] = '\0';
    *text = end + 1;
    return true;
}

/* The messages: a word and the key, with a token between them in some. PUBLISH is not a write command, so any read-only
 * user can send them: a grant has neither fence nor age, and the core asks for both. */
static const struct message {
    const char *word;
    enum dlock_wake_kind kind;
    bool has_token;
} messages[] = {
    {"granted ", DLOCK_WAKE_GRANTED, true}, /* library.lua */
    {"broken ", DLOCK_WAKE_BROKEN, true},   /* break.lua */
    {"wanted ", DLOCK_WAKE_WANTED, false},
    {"look ", DLOCK_WAKE_LOOK, false},
};

/* Reads what follows the word. */
static bool read_rest(struct redis *redis, const struct message *message, const char *text, size_t length,
                      struct dlock_wake *out) {
    const char *const end = text + length;
    if (message->has_token &&
        (!take_word(&text, redis->token, sizeof redis->token) || strncmp(redis->token, redis->peer->client, 24) != 0))
        return false;
    if (!redis_decode_key(text, (size_t)(end - text), redis->name)) return false;
    *out = (struct dlock_wake){.kind = message->kind, .name = redis->name};
    if (message->has_token) out->token = redis->token;
    return true;
}

/* Reads a message. Returns 1 (`out` is filled), 0 (an unknown kind, of a newer version) or EPROTO. */
static int read_message(struct redis *redis, const redisReply *payload, struct dlock_wake *out,
                        struct dlock_error *err) {
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        const size_t length = strlen(messages[i].word);
        if (strncmp(payload->str, messages[i].word, length) != 0) continue;
        if (read_rest(redis, &messages[i], payload->str + length, payload->len - length, out)) return 1;
        return redis_nonsense(redis, "a wake-up", err);
    }
    return 0;
}

int redis_probe(void *conn, struct dlock_error *err) {
    struct redis *redis = conn;
    redis_command(redis, "PING", (char *)NULL);
    return redis_push(redis, err);
}

static int heard(struct redis *redis, struct dlock_wake *out) {
    redis->unanswered--;
    *out = (struct dlock_wake){.kind = DLOCK_WAKE_HEARD};
    return 1;
}

/* True for the answer to a probe: a subscriber's PONG is an array, and an error reply is as good. */
static bool is_pong(const redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR) return true;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && is_string(reply->element[0], "pong");
}

int redis_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct redis *redis = conn;
    for (int skipped = 0; skipped < MAX_SKIPPED; skipped++) {
        redisReply *reply;
        int rc = redis_poll_reply(redis, &reply, err);
        if (rc <= 0) return rc;
        if (is_about(redis, reply, "smessage") && reply->element[2]->type == REDIS_REPLY_STRING)
            rc = read_message(redis, reply->element[2], out, err);
        else if (redis->unanswered && is_pong(reply))
            rc = heard(redis, out);
        else
            rc = redis_nonsense(redis, "not a message of the subscription", err);
        freeReplyObject(reply);
        if (rc != 0) return rc;
    }
    return redis_nonsense(redis, "wake-ups of unknown kinds", err);
}
