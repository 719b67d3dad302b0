/* Wake-ups in a cluster: one connection to each node that has slots, all behind one epoll descriptor. This client does
 * not listen on a node that cannot be reached at that time, or that joins later; that node says so to the first claim
 * that waits there, and the core then reconnects its listener. */
#include "cluster.h"

#include <sys/epoll.h>

/* Longest time for a node to answer a probe. */
#define ANSWER_US 1000000

static int watch(struct cluster *cluster, struct cluster_node *node, struct dlock_error *err) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = node};
    if (epoll_ctl(cluster->epoll - 1, EPOLL_CTL_ADD, node->redis.stream.fd, &event) == 0) return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "a connection cannot be watched: %s", strerror(errno));
}

/* Subscribes at a node. Returns 1, 0 (the node cannot be reached) or the code that ends the listener. */
static int listen_at(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    int fd, rc = cluster_reach(cluster, node, deadline_us, err);
    if (rc == 0) rc = redis_listen(&node->redis, &fd, dlock_left_ms(deadline_us), err);
    if (rc == 0) rc = watch(cluster, node, err);
    if (rc == 0) return 1;
    cluster_drop(node);
    return rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? 0 : rc;
}

int cluster_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct cluster *cluster = conn;
    size_t listens = 0, left = 0;
    struct dlock_error why = {0, "no node has slots"};
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left; raise the limit (ulimit -n)");
    cluster->epoll = epoll + 1;
    for (size_t i = 0; i < cluster->n_nodes; i++) left += cluster->nodes[i]->serves;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct cluster_node *node = cluster->nodes[i];
        if (!node->serves) {
            cluster_drop(node);
            continue;
        }
        const int64_t now_us = dlock_now_us();
        int rc = listen_at(cluster, node, now_us + (deadline_us - now_us) / (int64_t)left--, &why);
        if (rc < 0) {
            if (err) *err = why;
            return rc;
        }
        listens += (size_t)rc;
    }
    if (listens == 0)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "no node of the cluster brings wake-ups: %s", why.message);
    *fd = epoll;
    return 0;
}

/* Nodes that have not answered the last probe are not probed again. */
int cluster_probe(void *conn, struct dlock_error *err) {
    struct cluster *cluster = conn;
    const int64_t now_us = dlock_now_us();
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct cluster_node *node = cluster->nodes[i];
        struct redis *redis = &node->redis;
        if (!redis->reader) continue;
        if (redis->unanswered) {
            if (now_us - node->probed_us < ANSWER_US) continue;
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s does not answer probes", redis->where);
        }
        int rc = redis_probe(redis, err);
        if (rc) return rc;
        node->probed_us = now_us;
    }
    return 0;
}

/* True if all nodes have answered the probe. */
static bool all_heard(const struct cluster *cluster) {
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i]->redis.reader && cluster->nodes[i]->redis.unanswered) return false;
    return true;
}

int cluster_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct cluster *cluster = conn;
    for (;;) {
        struct epoll_event event;
        if (!cluster->readable) {
            if (epoll_wait(cluster->epoll - 1, &event, 1, 0) != 1) return 0;
            cluster->readable = event.data.ptr;
        }
        int rc = redis_wake(&cluster->readable->redis, out, err);
        if (rc < 0) return rc;
        if (rc == 0)
            cluster->readable = NULL;
        else if (out->kind != DLOCK_WAKE_HEARD || all_heard(cluster))
            return 1;
    }
}
