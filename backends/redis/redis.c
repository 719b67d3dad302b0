/* The table of operations, and choosing the server to connect to. The locks themselves are implemented in the .lua
 * files. */
#include "cluster.h"

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* Connects to the first of the URI's hosts that is a master. */
static int meet_master(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    return redis_meet(conn, uri, NULL, peer, timeout_ms, err);
}

/* With Sentinels, the host is the master that they name. */
static int redis_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                         struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct redis *redis = conn;
    if (!redis_scheme_ends(uri, "+sentinel")) return meet_master(conn, uri, peer, timeout_ms, err);
    redis->peer = peer;
    int rc = redis_find_master(redis, uri, dlock_deadline_us(timeout_ms / 2), err);
    if (rc) return rc;
    return peer->connect_again(peer, redis->master.host, redis->master.port, meet_master, redis,
                               dlock_left_ms(deadline_us), err);
}

static void redis_disconnect(void *conn) {
    redis_forget_sentinels(conn);
    redis_hang_up(conn);
}

static void redis_close_in_child(void *conn) {
    const struct redis *redis = conn;
    redis_sentinels_abandon(redis->sentinels);
    redis_abandon(conn);
}

static const char *const keys[] = {"db", "fences", "sentinel_user", "sentinel_password", DLOCK_STREAM_KEYS NULL};

static const struct dlock_backend *redis_variant(const struct dlock_uri *uri) {
    return redis_scheme_ends(uri, "+cluster") ? &redis_cluster_backend : NULL;
}

static const char *const schemes[] = {REDIS_NAME,   REDIS_SENTINEL,          REDIS_CLUSTER,
                                      REDIS_ALIAS,  REDIS_ALIAS "+sentinel", REDIS_ALIAS "+cluster",
#if !DLOCK_STREAM_IS_TLS
                                      "redis+unix", REDIS_ALIAS "+unix",
#endif
                                      NULL};

/* The TLS variant is a separate backend, in a separate module. */
#if DLOCK_STREAM_IS_TLS
DLOCK_BACKEND(rediss) = {
#else
DLOCK_BACKEND(redis) = {
#endif
    .variant = redis_variant,
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = REDIS_NAME,
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE |
            DLOCK_CAP_WANTED | DLOCK_CAP_FLOOR,
    .conn_size = sizeof(struct redis),
    .connect = redis_connect,
    .disconnect = redis_disconnect,
    .acquire = redis_acquire,
    .renew = redis_renew,
    .release = redis_release,
    .begin = redis_begin,
    .abandon = redis_close_in_child,
    .listen = redis_listen,
    .wake = redis_wake,
    .inspect = redis_inspect,
    .waiters = redis_waiters,
    .list = redis_list,
    .break_lock = redis_break,
    .check = redis_check,
    .probe = redis_probe,
    .accepts = redis_accepts,
};
