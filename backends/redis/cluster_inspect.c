/* Inspect, list, break and check in a cluster: inspect and break go to the lock's node, list and check to one node
 * after the other. */
#include "cluster.h"

#include <stdlib.h>

/* ---- one lock ---------------------------------------------------------------------------------------------------- */

struct question {
    int (*ask)(struct question *question, struct redis *redis, int timeout_ms, struct dlock_error *err);
    const char *name;
    dlock_each each;
    void *arg;
};

static int ask_inspect(struct question *question, struct redis *redis, int timeout_ms, struct dlock_error *err) {
    return redis_inspect(redis, question->name, question->each, question->arg, timeout_ms, err);
}

static int ask_waiters(struct question *question, struct redis *redis, int timeout_ms, struct dlock_error *err) {
    return redis_waiters(redis, question->name, question->each, question->arg, timeout_ms, err);
}

static int ask_break(struct question *question, struct redis *redis, int timeout_ms, struct dlock_error *err) {
    return redis_break(redis, question->name, timeout_ms, err);
}

/* Asks once. *again: another node has to be asked; *tries: after a pause. Otherwise returns 0 or an error. */
static int ask_once(struct cluster *cluster, struct question *question, unsigned slot, bool *again, bool *tries,
                    int64_t deadline_us, struct dlock_error *err) {
    bool asks;
    struct cluster_node *node = cluster_route(cluster, slot, &asks);
    *again = *tries = false;
    cluster->n_redirects = 0;
    if (!node) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no node of the cluster serves slot %u", slot);
    int rc = cluster_reach(cluster, node, deadline_us, err);
    if (rc) return rc;
    if (!*node->member.tag) {
        *again = *tries = true;
        return 0;
    }
    node->member.asking = asks;
    rc = question->ask(question, &node->redis, dlock_left_ms(deadline_us), err);
    node->member.asking = false;
    *again = node->member.n_moves > 0;
    cluster_learn(cluster, node, tries);
    if (rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO) cluster_drop(node);
    return rc;
}

static int ask(struct cluster *cluster, struct question *question, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    const unsigned slot = cluster_slot_of(question->name);
    bool again = true, tries = false;
    int rc = cluster_refresh(cluster, deadline_us, err);
    const int64_t begun_us = dlock_now_us();
    cluster->n_redirects = 0;
    for (int round = 0; rc == 0 && again; round++) {
        if (!cluster_begin_round(round, tries, begun_us, deadline_us))
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "slot %u of the cluster %s", slot,
                              cluster_nowhere(round, tries));
        rc = ask_once(cluster, question, slot, &again, &tries, deadline_us, err);
        if (again) rc = cluster->stale ? cluster_refresh(cluster, deadline_us, err) : 0;
    }
    return rc;
}

int cluster_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct question question = {ask_inspect, name, each, arg};
    return ask(conn, &question, timeout_ms, err);
}

int cluster_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct question question = {ask_waiters, name, each, arg};
    return ask(conn, &question, timeout_ms, err);
}

int cluster_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct question question = {ask_break, name, NULL, NULL};
    return ask(conn, &question, timeout_ms, err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static unsigned first_slot_of(const struct cluster *cluster, uint8_t owner) {
    unsigned slot = 0;
    while (cluster->owner[slot] != owner) slot++;
    return slot;
}

/* Nodes are listed in the order of their first slots. Returns the first such slot from `from` on; REDIS_SLOTS: none. */
static unsigned next_first(const struct cluster *cluster, unsigned from) {
    while (from < REDIS_SLOTS && (!cluster->owner[from] || first_slot_of(cluster, cluster->owner[from]) != from))
        from++;
    return from;
}

struct page {
    dlock_each each;
    void *arg;
    bool ended; /* `each` has returned non-zero */
};

static int pass_on(const struct dlock_info *info, void *arg) {
    struct page *page = arg;
    int rc = page->each(info, page->arg);
    page->ended = rc != 0;
    return rc;
}

/* The cursor consists of a node's first slot, a colon, and that node's own cursor. */
int cluster_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                 struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct cluster *cluster = conn;
    struct page page = {each, arg, false};
    char inner[256] = "", *end = NULL;
    const unsigned long from = *cursor ? strtoul(cursor, &end, 10) : 0;
    int rc = cluster_refresh(cluster, deadline_us, err);
    if (rc) return rc;
    const unsigned slot = next_first(cluster, from < REDIS_SLOTS ? (unsigned)from : REDIS_SLOTS);
    if (slot == REDIS_SLOTS) return 0;
    if (end && *end == ':' && slot == from) snprintf(inner, sizeof inner, "%s", end + 1);
    struct cluster_node *node = cluster->nodes[cluster->owner[slot] - 1];
    rc = cluster_reach(cluster, node, deadline_us, err);
    if (rc) return rc;
    rc = redis_list(&node->redis, prefix, inner, pass_on, &page, dlock_left_ms(deadline_us), err);
    node->member.n_moves = 0; /* of locks that are being moved */
    if (rc < 0) {
        cluster_drop(node);
        return rc;
    }
    const unsigned next = rc == 1 ? slot : next_first(cluster, slot + 1);
    if (page.ended || next == REDIS_SLOTS) return 0;
    snprintf(cursor, 256, "%u:%.200s", next, rc == 1 ? inner : "");
    return 1;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

struct finder {
    const char *where; /* the node that the findings are about */
    dlock_each_finding each;
    void *arg;
    bool ended;
};

static int pass_finding(const struct dlock_finding *finding, void *arg) {
    struct finder *finder = arg;
    char what[700];
    struct dlock_finding told = *finding;
    snprintf(what, sizeof what, "%s: %s", finder->where, finding->what);
    told.what = what;
    finder->ended = finder->each(&told, finder->arg) != 0;
    return finder->ended;
}

/* Reads a setting by CONFIG GET; "": the node does not tell it. */
static int read_setting(struct redis *redis, const char *name, char *out, size_t size, int64_t deadline_us,
                        struct dlock_error *err) {
    redisReply *reply;
    *out = '\0';
    redis_command(redis, "CONFIG", "GET", name, (char *)NULL);
    int rc = redis_reply(redis, deadline_us, &reply, err);
    if (rc) return rc;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[1]->type == REDIS_REPLY_STRING)
        snprintf(out, size, "%s", reply->element[1]->str);
    freeReplyObject(reply);
    return 0;
}

static int check_settings(struct redis *redis, struct dlock_report *report, int64_t deadline_us,
                          struct dlock_error *err) {
    char coverage[8], timeout[24];
    int rc = read_setting(redis, "cluster-require-full-coverage", coverage, sizeof coverage, deadline_us, err);
    if (rc == 0) rc = read_setting(redis, "cluster-node-timeout", timeout, sizeof timeout, deadline_us, err);
    if (rc) return rc;
    if (strcmp(coverage, "yes") == 0)
        dlock_find(report,
                   "while one node is down, the others grant and renew nothing either: set "
                   "cluster-require-full-coverage no",
                   "cluster-require-full-coverage yes");
    if (*timeout)
        dlock_find(
            report, NULL,
            "cluster-node-timeout %s ms: a failover takes longer than that; locks whose leases are shorter are lost "
            "by then",
            timeout);
    return 0;
}

/* Updates what is known of the node's quarantine. redis_check() reports a lack of rights. */
static int look_at_quarantine(struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    redis_ask_incarnation(&node->redis);
    int rc = node->redis.asked ? redis_read_incarnation(&node->redis, deadline_us, err) : 0;
    node->member.n_moves = 0;
    return rc == DLOCK_EAUTH || rc == REDIS_ELSEWHERE ? 0 : rc;
}

static int check_node(struct cluster *cluster, struct cluster_node *node, struct finder *finder, bool *first,
                      int64_t deadline_us, struct dlock_error *err) {
    int rc = cluster_reach(cluster, node, deadline_us, err);
    if (rc == 0 && *first) {
        struct dlock_report report = {finder->each, finder->arg, false};
        rc = check_settings(&node->redis, &report, deadline_us, err);
        finder->ended = report.ended;
        *first = false;
    }
    if (rc == 0) rc = look_at_quarantine(node, deadline_us, err);
    if (rc == 0 && !finder->ended) {
        finder->where = node->redis.where;
        rc = redis_check(&node->redis, pass_finding, finder, dlock_left_ms(deadline_us), err);
    }
    if (rc) cluster_drop(node);
    return rc == REDIS_ELSEWHERE ? 0 : rc;
}

int cluster_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct cluster *cluster = conn;
    struct finder finder = {.each = each, .arg = arg};
    struct dlock_report report = {each, arg, false};
    size_t served = 0, nodes = 0;
    bool first = true;
    int rc = cluster_refresh(cluster, deadline_us, err);
    if (rc) return rc;
    for (size_t i = 0; i < REDIS_SLOTS; i++) served += cluster->owner[i] != 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) nodes += cluster->nodes[i]->serves;
    dlock_find(&report,
               served < REDIS_SLOTS ? "no node grants locks in the other slots: redis-cli --cluster fix" : NULL,
               "a cluster of %zu masters, with %zu of %d slots", nodes, served, REDIS_SLOTS);
    finder.ended = report.ended;
    for (size_t i = 0; i < cluster->n_nodes && !finder.ended && rc == 0; i++)
        if (cluster->nodes[i]->serves) rc = check_node(cluster, cluster->nodes[i], &finder, &first, deadline_us, err);
    return rc;
}
