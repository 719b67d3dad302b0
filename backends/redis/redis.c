/* Redis: the table of operations, and the greeting of a new connection. The lock itself is in the .lua files. */
#include "redis.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define OLDEST_VERSION 5
#define DEFAULT_PORT 6379

/* ---- what the server says about itself --------------------------------------------------------------------------- */

bool redis_info_field(const redisReply *info, const char *field, char *out, size_t size) {
    const size_t length = strlen(field);
    for (const char *line = info->type == REDIS_REPLY_STRING ? info->str : NULL; line && *line;
         line = strchr(line, '\n')) {
        size_t n;
        if (*line == '\n') line++;
        if (strncmp(line, field, length) != 0 || line[length] != ':') continue;
        line += length + 1;
        n = strcspn(line, "\r\n");
        if (n >= size) n = size - 1;
        memcpy(out, line, n);
        out[n] = '\0';
        return true;
    }
    return false;
}

/* Whether this server can do what we promise. */
static int check_server(struct redis *redis, const redisReply *info, struct dlock_error *err) {
    char version[32], mode[32];
    if (!redis_info_field(info, "redis_version", version, sizeof version))
        return redis_nonsense(redis, "INFO names no redis_version", err);
    if (strtol(version, NULL, 10) < OLDEST_VERSION)
        return dlock_fail(err, DLOCK_ENOTSUP, "redis at %s is version %s; dlock needs %d or newer", redis->where,
                          version, OLDEST_VERSION);
    /* Valkey calls it server_mode. */
    if ((redis_info_field(info, "redis_mode", mode, sizeof mode) ||
         redis_info_field(info, "server_mode", mode, sizeof mode)) &&
        strcmp(mode, "standalone") != 0)
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "redis at %s runs in %s mode, which dlock does not support; name a standalone server or the "
                          "master itself",
                          redis->where, mode);
    return 0;
}

static int check_role(struct redis *redis, const redisReply *info, struct dlock_error *err) {
    char role[32], host[128] = "?", port[16] = "?";
    if (!redis_info_field(info, "role", role, sizeof role) || strcmp(role, "slave") != 0) return 0;
    redis_info_field(info, "master_host", host, sizeof host);
    redis_info_field(info, "master_port", port, sizeof port);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "redis at %s is a replica; name its master (it says %s:%s)",
                      redis->where, host, port);
}

/* A connection ends with its server, so what the uptime says now holds for as long as the connection lives. What the
 * server is set to do now says nothing about what it was set to do before it was restarted: only the uptime counts. */
static void begin_quarantine(struct redis *redis, const redisReply *server) {
    char uptime[24] = "0";
    int64_t up_s;
    redis_info_field(server, "uptime_in_seconds", uptime, sizeof uptime);
    up_s = strtoll(uptime, NULL, 10) - 1; /* in whole seconds, the difference of two rounded clocks */
    if (up_s < 0) up_s = 0;
    if (up_s > redis->peer->quarantine_ms / 1000) return;
    redis->quarantine_until_us = dlock_now_us() - up_s * 1000000 + redis->peer->quarantine_ms * 1000;
}

/* ---- the greeting: everything in one round trip ------------------------------------------------------------------ */

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
}

/* The reply to AUTH. What the server says is not repeated, but for its first word: it might contain the password. */
static int read_auth(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ERROR) {
        rc = redis_refused(redis, reply, NULL);
        if (rc == DLOCK_EUNAVAILABLE)
            redis_refused(redis, reply, err);
        else if (strstr(reply->str, "without any password configured"))
            rc = dlock_fail(err, DLOCK_EAUTH, "redis at %s has no password: leave it out of the URI", redis->where);
        else
            rc = dlock_fail(err, DLOCK_EAUTH, "redis at %s refused the user or the password (%.*s)", redis->where,
                            (int)(strcspn(reply->str, " ") < 20 ? strcspn(reply->str, " ") : 20), reply->str);
    }
    freeReplyObject(reply);
    return rc;
}

/* The reply to SELECT. */
static int read_select(struct redis *redis, int db, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ERROR) {
        rc = redis_refused(redis, reply, err);
        if (rc == DLOCK_EPROTO) rc = dlock_fail(err, DLOCK_EINVAL, "redis at %s has no database %d", redis->where, db);
    }
    freeReplyObject(reply);
    return rc;
}

/* A reply that must be a text. */
static int read_text(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    int rc = redis_reply(redis, deadline_us, reply, err);
    if (rc) return rc;
    if ((*reply)->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, *reply, err);
    else if ((*reply)->type != REDIS_REPLY_STRING)
        rc = redis_nonsense(redis, "INFO", err);
    if (rc) freeReplyObject(*reply);
    return rc;
}

/* The reply to PUBLISH: scripts wake waiters with it, and go on where it fails. So it is tried before. */
static int read_publish(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (redis_error_is(reply, "NOPERM"))
        rc = dlock_fail(err, DLOCK_EAUTH,
                        "redis at %s does not let this user send the messages that wake waiters: give it +publish and "
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
    rc = check_server(redis, server, err);
    if (rc == 0) rc = read_text(redis, deadline_us, &replication, err);
    if (rc == 0) {
        rc = check_role(redis, replication, err);
        freeReplyObject(replication);
    }
    if (rc == 0) rc = read_publish(redis, deadline_us, err);
    if (rc == 0 && redis->peer->quarantine_ms > 0) begin_quarantine(redis, server);
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
    /* CLIENT SETNAME is a courtesy to operators, unless the server has no room for anybody. */
    if (reply->type == REDIS_REPLY_ERROR) rc = redis_refused(redis, reply, err);
    freeReplyObject(reply);
    return rc == DLOCK_EUNAVAILABLE ? rc : read_info(redis, deadline_us, err);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static int try_address(struct redis *redis, const struct redis_address *address, int64_t deadline_us,
                       struct dlock_error *err) {
    int rc = redis_dial(redis, address, deadline_us, err);
    if (rc) return rc;
    write_greeting(redis, address);
    size_t asked = redis->unanswered;
    if ((rc = read_greeting(redis, address, deadline_us, err)) == 0) return 0;
    if (redis->unanswered == asked) dlock_doubt(err, "Redis"); /* it has not answered one command */
    redis_hang_up(redis);
    return rc;
}

static int redis_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                         struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    const size_t n = uri->n_hosts ? uri->n_hosts : 1;
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct redis *redis = conn;
    struct redis_address address;
    struct dlock_error last;
    int rc = redis_address(uri, &address, err);
    redis->peer = peer;
    if (rc) return rc;
    if (address.fences_ms) snprintf(redis->fences, sizeof redis->fences, "%" PRId64, address.fences_ms);
    for (size_t i = 0; i < n; i++) {
        /* A silent address must leave time for those after it. */
        int64_t now_us = dlock_now_us(), share_us = (deadline_us - now_us) / (int64_t)(n - i);
        address.host = hosts[i].address;
        address.port = hosts[i].port ? hosts[i].port : DEFAULT_PORT;
        rc = try_address(redis, &address, now_us + share_us, &last);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) break;
    }
    if (rc && err) *err = last;
    return rc;
}

static void redis_disconnect(void *conn) {
    redis_hang_up(conn);
}

static void redis_abandon(void *conn) {
    struct redis *redis = conn;
    if (redis->reader) close(redis->fd);
    if (redis->dialing) close(redis->dialing - 1);
}

static const char *const schemes[] = {"redis", "rediss", "redis+unix", NULL};
static const char *const keys[] = {"db", "fences", NULL};

DLOCK_BACKEND(redis) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "redis",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE |
            DLOCK_CAP_WANTED,
    .conn_size = sizeof(struct redis),
    .connect = redis_connect,
    .disconnect = redis_disconnect,
    .acquire = redis_acquire,
    .renew = redis_renew,
    .release = redis_release,
    .abandon = redis_abandon,
    .listen = redis_listen,
    .wake = redis_wake,
    .inspect = redis_inspect,
    .list = redis_list,
    .break_lock = redis_break,
    .check = redis_check,
    .probe = redis_probe,
};
