/* Connections to the nodes of a cluster, each made when it is first needed. */
#include "cluster.h"

/* Shortest and longest interval between two readings of the map. A node's redirection overrides the shortest one. The
 * longest one is there because a node's own hash tag may change when it gets slots. */
#define MAP_MIN_US 100000
#define MAP_MAX_US 60000000

/* Appends to an error of a node that only the cluster has named where that address comes from. */
static void doubt_address(const struct cluster_node *node, struct dlock_error *err) {
    if (!err || node->reachable) return;
    const size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used,
             "; the cluster announces the address %s:%d: if clients cannot reach it, set cluster-announce-ip and "
             "cluster-announce-port on that node",
             node->host, node->port);
}

static int meet(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                struct dlock_error *err) {
    struct cluster_node *node = conn;
    return redis_meet(&node->redis, uri, node->name, peer, timeout_ms, err);
}

/* Connects to a node at its host; or, if that is a name that leads nowhere, at the address announced beside it. */
static int connect_node(struct cluster_node *node, const struct dlock_peer *peer, int64_t deadline_us,
                        struct dlock_error *err) {
    const int left_ms = dlock_left_ms(deadline_us), first_ms = *node->address ? left_ms / 2 + 1 : left_ms;
    int rc = peer->connect_again(peer, node->host, node->port, meet, node, first_ms, err);
    if (rc != DLOCK_EUNAVAILABLE || !*node->address) return rc;
    return peer->connect_again(peer, node->address, node->port, meet, node, dlock_left_ms(deadline_us), NULL) ? rc : 0;
}

int cluster_reach(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    struct redis *redis = &node->redis;
    if (redis->reader) return 0;
    memset(redis, 0, sizeof *redis);
    redis->member = &node->member;
    node->member.n_moves = 0;
    int rc = connect_node(node, cluster->peer, deadline_us, err);
    node->failed = rc != 0;
    if (rc) {
        cluster->stale = true;
        if (rc == DLOCK_EUNAVAILABLE) doubt_address(node, err);
        return rc;
    }
    node->reachable = true;
    cluster_settle_node(cluster, node); /* depends on its version */
    return 0;
}

void cluster_drop(struct cluster_node *node) {
    redis_hang_up(&node->redis);
}

/* Reads the map from a connected node. */
static int ask(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    int rc = cluster_read_map(cluster, node, deadline_us, err);
    if (rc) {
        cluster_drop(node);
        return rc;
    }
    cluster->stale = false;
    cluster->mapped_us = dlock_now_us();
    return 0;
}

int cluster_refresh(struct cluster *cluster, int64_t deadline_us, struct dlock_error *err) {
    const int64_t since_us = dlock_now_us() - cluster->mapped_us;
    int first = 0;
    if (cluster->mapped_us && (cluster->stale ? since_us < MAP_MIN_US : since_us < MAP_MAX_US)) return 0;
    /* Connected nodes come first, then those not known to have failed. The first node to be asked changes each time,
     * since a node that was cut off keeps reporting an old map. */
    const size_t from = cluster->teller++;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < cluster->n_nodes; i++) { /* a malformed map adds no nodes */
            struct cluster_node *node = cluster->nodes[(from + i) % cluster->n_nodes];
            const bool connected = node->redis.reader != NULL;
            struct dlock_error why;
            if (pass == 0 ? !connected : connected || node->failed != (pass == 2)) continue;
            const int64_t now_us = dlock_now_us(), share_us = now_us + (deadline_us - now_us) / 3;
            int rc = cluster_reach(cluster, node, share_us, &why);
            if (rc == 0) rc = ask(cluster, node, share_us, &why);
            if (rc == 0) return 0;
            /* EINVAL and ENOMEM are no results of an operation; reconnecting reports them. */
            if (rc == DLOCK_EINVAL || rc == DLOCK_ENOMEM) rc = why.code = DLOCK_EUNAVAILABLE;
            /* an error of a node that can be reached says more than EUNAVAILABLE */
            if (first && (first != DLOCK_EUNAVAILABLE || rc == DLOCK_EUNAVAILABLE)) continue;
            first = rc;
            if (err) *err = why;
        }
    return first;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

bool cluster_begin_round(int fruitless, bool tries, int64_t begun_us, int64_t deadline_us) {
    enum { PATIENCE_US = 500000, PAUSE_MS = 10, MOVES = 16 /* as redis-py */, TRIES = 3 };
    if (tries || fruitless > 2) poll(NULL, 0, PAUSE_MS);
    const int64_t now_us = dlock_now_us();
    return now_us < deadline_us && (fruitless < (tries ? TRIES : MOVES) || now_us - begun_us <= PATIENCE_US);
}

const char *cluster_nowhere(int fruitless, bool tries) {
    if (tries) return "is on its way to another node";
    return fruitless > 1 ? "cannot be located: the nodes keep redirecting" : "was not reached in time";
}
