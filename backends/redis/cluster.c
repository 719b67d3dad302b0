/* redis+cluster: the table of operations, connecting and disconnecting. */
#include "cluster.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Reads the map from the first of the hosts that knows it. */
static int find_map(struct cluster *cluster, const struct dlock_host *hosts, size_t n, int64_t deadline_us,
                    struct dlock_error *err) {
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < n; i++) {
        /* A silent address must leave time for the next ones. */
        const int64_t now_us = dlock_now_us(), until_us = now_us + (deadline_us - now_us) / (int64_t)(n - i);
        struct cluster_node *node =
            cluster_node_at(cluster, hosts[i].address, hosts[i].port ? hosts[i].port : REDIS_PORT);
        if (!node) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the nodes of the cluster");
        snprintf(node->name, sizeof node->name, "%s", hosts[i].host);
        node->reachable = true;
        rc = cluster_reach(cluster, node, until_us, err);
        if (rc == 0) rc = cluster_read_map(cluster, node, until_us, err);
        if (rc == 0) {
            cluster->mapped_us = dlock_now_us();
            cluster->stale = false;
            return 0;
        }
        cluster_drop(node);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) return rc;
    }
    return rc;
}

static int cluster_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                           struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", 0};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct cluster *cluster = conn;
    cluster->peer = peer;
    return find_map(cluster, uri->n_hosts ? uri->hosts : &local, uri->n_hosts ? uri->n_hosts : 1, deadline_us, err);
}

static void cluster_disconnect(void *conn) {
    struct cluster *cluster = conn;
    const int epoll = cluster->epoll - 1;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct cluster_node *node = cluster->nodes[i];
        cluster_drop(node);
        cluster->nodes[i] = NULL; /* cleared first, since a child forked during cleanup reads it */
        atomic_signal_fence(memory_order_seq_cst);
        free(node);
    }
    cluster->n_nodes = 0;
    cluster->epoll = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (epoll >= 0) close(epoll);
}

static void cluster_abandon(void *conn) {
    struct cluster *cluster = conn;
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i]) redis_abandon(&cluster->nodes[i]->redis);
    if (cluster->epoll) close(cluster->epoll - 1);
}

static const char *const schemes[] = {REDIS_CLUSTER, REDIS_ALIAS "+cluster", NULL};
static const char *const keys[] = {"db", "fences", DLOCK_STREAM_KEYS NULL};

const struct dlock_backend redis_cluster_backend = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = REDIS_NAME,
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE |
            DLOCK_CAP_WANTED,
    .conn_size = sizeof(struct cluster),
    .connect = cluster_connect,
    .disconnect = cluster_disconnect,
    .acquire = cluster_acquire,
    .renew = cluster_renew,
    .release = cluster_release,
    .abandon = cluster_abandon,
    .listen = cluster_listen,
    .wake = cluster_wake,
    .inspect = cluster_inspect,
    .waiters = cluster_waiters,
    .list = cluster_list,
    .break_lock = cluster_break,
    .check = cluster_check,
    .probe = cluster_probe,
    .accepts = redis_accepts,
};
