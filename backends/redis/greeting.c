/* The requests on a new connection, all in one round trip. */
#include "redis.h"

#include <inttypes.h>

/* The default of the scripts. */
#define FENCES_MS INT64_C(600000)

static void write_greeting(struct redis *redis, const struct redis_address *address) {
    char db[16], name[40];
    if (address->user)
        redis_command(redis, "AUTH", address->user, address->password, (char *)NULL);
    else if (address->password)
        redis_command(redis, "AUTH", address->password, (char *)NULL);
    snprintf(db, sizeof db, "%d", address->db);
    if (address->db) redis_command(redis, "SELECT", db, (char *)NULL);
    snprintf(name, sizeof name, "dlock:%.24s", redis->peer->client);
    redis_command(redis, "CLIENT", "SETNAME", name, (char *)NULL);
    redis_command(redis, "INFO", "server", (char *)NULL);
    redis_command(redis, "INFO", "replication", (char *)NULL);
    redis_command(redis, "PUBLISH", "dlock:hello", "", (char *)NULL);
    if (!redis->member) redis_ask_incarnation(redis); /* a member's key for that is not known yet */
}

/* Reads the reply to AUTH. Only the first word of the server's text is repeated, since the rest may contain the
 * password. */
static int read_auth(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ERROR) {
        rc = redis_refused(redis, reply, NULL);
        if (rc == DLOCK_EUNAVAILABLE)
            redis_refused(redis, reply, err);
        else if (strstr(reply->str, "without any password configured"))
            rc = dlock_fail(err, DLOCK_EAUTH, "Redis at %s has no password: leave it out of the URI", redis->where);
        else
            rc = dlock_fail(err, DLOCK_EAUTH, "Redis at %s refused the user or the password (%.*s)", redis->where,
                            (int)(strcspn(reply->str, " ") < 20 ? strcspn(reply->str, " ") : 20), reply->str);
    }
    freeReplyObject(reply);
    return rc;
}

/* Reads the reply to SELECT. */
static int read_select(struct redis *redis, int db, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ERROR) {
        rc = redis_refused(redis, reply, err);
        if (rc == DLOCK_EPROTO) rc = dlock_fail(err, DLOCK_EINVAL, "Redis at %s has no database %d", redis->where, db);
    }
    freeReplyObject(reply);
    return rc;
}

/* Reads a reply that must be a text. */
static int read_text(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    int rc = redis_reply(redis, deadline_us, reply, err);
    if (rc) return rc;
    if ((*reply)->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, *reply, err);
    else if ((*reply)->type != REDIS_REPLY_STRING)
        rc = redis_nonsense(redis, "the reply to INFO", err);
    if (rc) freeReplyObject(*reply);
    return rc;
}

/* Reads the reply to PUBLISH, which is tried here because scripts use it to wake waiters and ignore its failure. */
static int read_publish(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (redis_error_is(reply, "NOPERM"))
        rc = dlock_fail(err, DLOCK_EAUTH,
                        "Redis at %s does not let this user send the messages that wake waiters: give it +publish and "
                        "the channels &dlock:*",
                        redis->where);
    else if (reply->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, reply, err);
    freeReplyObject(reply);
    return rc;
}

static int read_info(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *server, *replication;
    int rc = read_text(redis, deadline_us, &server, err);
    if (rc) return rc;
    rc = redis_check_server(redis, server, err);
    if (rc == 0) rc = read_text(redis, deadline_us, &replication, err);
    if (rc == 0) {
        /* a member of a cluster is judged by its slots instead */
        rc = redis->member ? 0 : redis_check_role(redis, replication, err);
        freeReplyObject(replication);
    }
    if (rc == 0) rc = read_publish(redis, deadline_us, err);
    if (rc == 0 && redis->asked) {
        rc = redis_read_incarnation(redis, deadline_us, err);
        /* The next call that may grant repeats the query and reports this; `check` names all missing rights. */
        if (rc == DLOCK_EAUTH && !redis->broken) rc = 0;
    }
    freeReplyObject(server);
    return rc;
}

static int read_greeting(struct redis *redis, const struct redis_address *address, int64_t deadline_us,
                         struct dlock_error *err) {
    redisReply *reply;
    int rc;
    if (address->password && (rc = read_auth(redis, deadline_us, err)) != 0) return rc;
    if (address->db && (rc = read_select(redis, address->db, deadline_us, err)) != 0) return rc;
    if ((rc = redis_reply(redis, deadline_us, &reply, err)) != 0) return rc;
    /* CLIENT SETNAME is for operators only, and may fail, unless the server refuses all clients. */
    if (reply->type == REDIS_REPLY_ERROR) rc = redis_refused(redis, reply, err);
    freeReplyObject(reply);
    return rc == DLOCK_EUNAVAILABLE ? rc : read_info(redis, deadline_us, err);
}

/* Doubts that this is a Redis server, after it has not answered any command. */
static void doubt(const struct redis *redis, const struct redis_address *address, struct dlock_error *err) {
    dlock_stream_doubt(err, "Redis", address->socket ? NULL : redis->member ? "rediss+cluster" : "rediss");
    if (!err || !strstr(err->message, REDIS_CLOSED)) return;
    const size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, " (twemproxy does not pass on what dlock needs)");
}

static int meet(struct redis *redis, const struct redis_address *address, const struct dlock_host *host,
                int64_t deadline_us, struct dlock_error *err) {
    int rc = redis_dial(redis, address, host, deadline_us, err);
    if (rc) return rc;
    redis->asked = false;
    redis->check_us = 0;
    write_greeting(redis, address);
    size_t asked = redis->unanswered;
    if ((rc = read_greeting(redis, address, deadline_us, err)) == 0) return 0;
    if (redis->unanswered == asked) doubt(redis, address, err);
    redis_hang_up(redis);
    return rc;
}

int redis_meet(struct redis *redis, const struct dlock_uri *uri, const char *name, const struct dlock_peer *peer,
               int timeout_ms, struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", 0};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    const size_t n = uri->n_hosts ? uri->n_hosts : 1;
    struct redis_address address;
    struct dlock_error last;
    int rc = redis_address(uri, &address, err);
    if (rc) return rc;
    redis->peer = peer;
    if (address.fences_ms || redis->member)
        snprintf(redis->fences, sizeof redis->fences, "%" PRId64, address.fences_ms ? address.fences_ms : FENCES_MS);
    for (size_t i = 0; i < n; i++) {
        /* A silent address must leave time for the next ones. */
        const int64_t now_us = dlock_now_us(), share_us = (deadline_us - now_us) / (int64_t)(n - i);
        struct dlock_host host = uri->n_hosts ? uri->hosts[i] : local;
        if (name) host.host = name;
        if (!host.port) host.port = REDIS_PORT;
        rc = meet(redis, &address, &host, now_us + share_us, &last);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) break;
    }
    if (rc && err) *err = last;
    return rc;
}
