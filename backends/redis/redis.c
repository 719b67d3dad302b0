/* Redis: the table of operations, and the greeting of a new connection. The lock itself is in the .lua files. */
#include "redis.h"

#include <inttypes.h>
#include <unistd.h>

#define DEFAULT_PORT 6379

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
    redis_ask_incarnation(redis);
}

/* The reply to AUTH. The server's text is not repeated, but for its first word: it might contain the password. */
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

/* The reply to SELECT. */
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
        rc = redis_check_role(redis, replication, err);
        freeReplyObject(replication);
    }
    if (rc == 0) rc = read_publish(redis, deadline_us, err);
    if (rc == 0 && redis->asked) {
        rc = redis_read_incarnation(redis, deadline_us, err);
        /* The next call that may grant asks again, and says so; the doctor names all rights that are missing. */
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
    redis->asked = false;
    redis->check_us = 0;
    write_greeting(redis, address);
    size_t asked = redis->unanswered;
    if ((rc = read_greeting(redis, address, deadline_us, err)) == 0) return 0;
    if (redis->unanswered == asked)
        stream_doubt(err, "Redis", address->socket ? NULL : "rediss"); /* it has not answered one command */
    redis_hang_up(redis);
    return rc;
}

/* The first of the hosts that is a master. */
static int try_hosts(struct redis *redis, struct redis_address *address, const struct dlock_host *hosts, size_t n,
                     int64_t deadline_us, struct dlock_error *err) {
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < n; i++) {
        /* A silent address must leave time for those after it. */
        int64_t now_us = dlock_now_us(), share_us = (deadline_us - now_us) / (int64_t)(n - i);
        address->host = &hosts[i];
        address->port = hosts[i].port ? hosts[i].port : DEFAULT_PORT;
        rc = try_address(redis, address, now_us + share_us, err);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) break;
    }
    return rc;
}

/* The master that the Sentinels on these hosts name. */
static int try_sentinels(struct redis *redis, struct redis_address *address, const struct dlock_host *hosts, size_t n,
                         int64_t deadline_us, struct dlock_error *err) {
    const int64_t now_us = dlock_now_us();
    int rc = redis_find_master(redis, address, hosts, n, now_us + (deadline_us - now_us) / 2, err);
    if (rc) return rc;
    const struct dlock_host master = {redis->master.address, redis->master.address, redis->master.port};
    return try_hosts(redis, address, &master, 1, deadline_us, err);
}

static int redis_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                         struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", 0};
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
    rc = (address.master ? try_sentinels : try_hosts)(redis, &address, hosts, n, deadline_us, &last);
    if (rc && err) *err = last;
    return rc;
}

static void redis_disconnect(void *conn) {
    redis_hang_up(conn);
}

static void redis_abandon(void *conn) {
    struct redis *redis = conn;
    if (redis->reader) close(redis->stream.fd);
    if (redis->stream.dialing) close(redis->stream.dialing - 1);
    for (size_t i = 0; i < REDIS_SENTINELS; i++)
        if (redis->sentinels[i]) close(redis->sentinels[i] - 1);
}

/* Over TLS it is another backend, in a module of its own, without Sentinels. */
#if STREAM_IS_TLS
static const char *const schemes[] = {"rediss", NULL};
static const char *const keys[] = {"db", "fences", STREAM_KEYS NULL};
#define NAME "rediss"
DLOCK_BACKEND(rediss) = {
#else
static const char *const schemes[] = {"redis", "redis+unix", REDIS_SENTINEL, NULL};
static const char *const keys[] = {"db", "fences", "sentinel_user", "sentinel_password", STREAM_KEYS NULL};
#define NAME "redis"
DLOCK_BACKEND(redis) = {
#endif
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = NAME,
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
    .accepts = stream_accepts,
};
