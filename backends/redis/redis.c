/* The table of operations, and choosing the server to connect to. The locks themselves are implemented in the .lua
 * files. */
#include "cluster.h"

#include <inttypes.h>

#define DEFAULT_PORT 6379

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* Connects to the first of the hosts that is a master. */
static int try_hosts(struct redis *redis, struct redis_address *address, const struct dlock_host *hosts, size_t n,
                     int64_t deadline_us, struct dlock_error *err) {
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < n; i++) {
        /* A silent address must leave time for the next ones. */
        int64_t now_us = dlock_now_us(), share_us = (deadline_us - now_us) / (int64_t)(n - i);
        address->host = &hosts[i];
        address->port = hosts[i].port ? hosts[i].port : DEFAULT_PORT;
        rc = redis_meet(redis, address, now_us + share_us, err);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) break;
    }
    return rc;
}

/* Connects to the master that the Sentinels on these hosts name. */
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
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
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
    .list = redis_list,
    .break_lock = redis_break,
    .check = redis_check,
    .probe = redis_probe,
    .accepts = redis_accepts,
};
