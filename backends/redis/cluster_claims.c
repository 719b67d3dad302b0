/* Claims in a cluster: a batch is split by node, and each part is one call there. Claims that a node answers with a
 * redirection go to the other node in the next round. Claims whose node cannot be reached get that as their result, and
 * do not affect the others. */
#include "cluster.h"

#include <limits.h>

/* Most claims that are split at a time. */
#define PART 256
/* The result of a claim that has none yet. */
#define PENDING INT_MAX

struct part {
    struct cluster *cluster;
    dlock_batch *call;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t deadline_us;
    struct dlock_error *err;
    bool explained;          /* `err` is set */
    bool tries;              /* some slots are being moved */
    struct dlock_error lost; /* why a connection broke that the next round makes again; code 0: none */
    unsigned slots[PART];
    struct cluster_node *nodes[PART]; /* each claim's node in this round; NULL: none */
    bool asks[PART];                  /* its slot is being moved to that node */
    bool sent[PART];                  /* an earlier round sent it, and lost the answer with the connection */
};

static void explain(struct part *part, const struct dlock_error *why) {
    if (part->err && (!part->explained || part->err->code == DLOCK_EBUSY))
        *part->err = *why; /* errors before holders */
    part->explained = true;
}

/* Ends the claims of this round for this node that have no result yet. */
static void end_all(struct part *part, const struct cluster_node *node, bool asks, const struct dlock_error *why) {
    for (size_t i = 0; i < part->n; i++)
        if (part->nodes[i] == node && part->asks[i] == asks && part->claims[i]->result == PENDING)
            part->claims[i]->result = why->code;
    explain(part, why);
}

/* Notes that the next round sends the claims of this one for this node again. */
static void note_sent(struct part *part, const struct cluster_node *node, bool asks) {
    for (size_t i = 0; i < part->n; i++)
        if (part->nodes[i] == node && part->asks[i] == asks && part->claims[i]->result == PENDING) part->sent[i] = true;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* Calls a node for its claims. A node without slots is skipped: it has no place for the key that says since when it is
 * a master. */
static int call_node(struct part *part, struct cluster_node *node, bool asks, int64_t deadline_us,
                     struct dlock_error *why) {
    struct dlock_claim *some[PART];
    size_t n = 0;
    int rc = cluster_reach(part->cluster, node, deadline_us, why);
    if (rc) return rc;
    if (!*node->member.tag) {
        part->tries = true;
        return 0;
    }
    for (size_t i = 0; i < part->n; i++)
        if (part->nodes[i] == node && part->asks[i] == asks) some[n++] = part->claims[i];
    node->member.asking = asks;
    rc = part->call(&node->redis, some, n, dlock_left_ms(deadline_us), why);
    node->member.asking = false;
    cluster_learn(part->cluster, node, &part->tries);
    return rc == REDIS_ELSEWHERE ? 0 : rc;
}

/* Calls a node and handles failures of its connection. Returns 0 or the code that ends the whole batch. */
static int run_group(struct part *part, struct cluster_node *node, bool asks, int64_t deadline_us) {
    struct dlock_error why;
    const bool reused = node->redis.reader != NULL;
    why.code = 0;
    int rc = call_node(part, node, asks, deadline_us, &why);
    if (rc == 0) {
        node->failed = false;
        if (why.code) explain(part, &why);
        return 0;
    }
    cluster_drop(node);
    if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) {
        if (part->err) *part->err = why;
        return rc;
    }
    part->cluster->stale = node->failed = true;
    /* An existing connection may have died long ago: the next round makes a new one. */
    part->lost = why;
    if (rc == DLOCK_EPROTO || !reused || dlock_now_us() >= deadline_us)
        end_all(part, node, asks, &why);
    else
        note_sent(part, node, asks);
    return 0;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Chooses the node of each claim without a result, and answers claims whose slot has no node. Returns the number of
 * claims to send. */
static size_t route_all(struct part *part) {
    struct cluster *cluster = part->cluster;
    size_t pending = 0;
    for (size_t i = 0; i < part->n; i++) {
        struct dlock_claim *claim = part->claims[i];
        part->nodes[i] = NULL;
        if (claim->result != PENDING) continue;
        part->nodes[i] = cluster_route(cluster, part->slots[i], &part->asks[i]);
        if (part->nodes[i]) {
            pending++;
            continue;
        }
        struct dlock_error why;
        claim->result = dlock_fail(&why, DLOCK_EUNAVAILABLE, "no node of the cluster serves slot %u, of lock \"%s\"",
                                   part->slots[i], claim->name);
        cluster->stale = true;
        explain(part, &why);
    }
    cluster->n_redirects = 0;
    return pending;
}

/* Calls each node once. Nodes that failed lately come last. Each node gets half of the time left, the last one all of
 * it. */
static int run_round(struct part *part, size_t pending) {
    bool done[PART] = {false};
    for (int failed = 0; failed < 2; failed++)
        for (size_t i = 0; i < part->n; i++) {
            struct cluster_node *node = part->nodes[i];
            if (!node || done[i] || (!failed && node->failed)) continue;
            for (size_t j = i; j < part->n; j++) {
                if (part->nodes[j] != node || part->asks[j] != part->asks[i]) continue;
                done[j] = true;
                pending--;
            }
            const int64_t now_us = dlock_now_us(), left_us = part->deadline_us - now_us;
            int rc = run_group(part, node, part->asks[i], now_us + (pending ? left_us / 2 : left_us));
            if (rc) return rc;
        }
    return 0;
}

/* Ends the claims that have no result after the last round. */
static void give_up(struct part *part, int fruitless) {
    for (size_t i = 0; i < part->n; i++) {
        struct dlock_error why = part->lost;
        if (part->claims[i]->result != PENDING) continue;
        if (!why.code)
            dlock_fail(&why, DLOCK_EUNAVAILABLE, "slot %u of the cluster, of lock \"%s\", %s", part->slots[i],
                       part->claims[i]->name, cluster_nowhere(fruitless, part->tries));
        part->claims[i]->result = why.code;
        explain(part, &why);
    }
}

static int run_part(struct part *part) {
    struct cluster *cluster = part->cluster;
    const int64_t begun_us = dlock_now_us();
    size_t pending = part->n + 1, before;
    int fruitless = 0;
    cluster->n_redirects = 0;
    part->tries = false;
    part->lost.code = 0;
    for (size_t i = 0; i < part->n; i++) {
        part->slots[i] = cluster_slot_of(part->claims[i]->name);
        part->claims[i]->result = PENDING;
        part->sent[i] = false;
    }
    while (before = pending, (pending = route_all(part)) > 0) {
        fruitless = pending < before ? 0 : fruitless + 1;
        if (!cluster_begin_round(fruitless, part->tries, begun_us, part->deadline_us)) {
            give_up(part, fruitless);
            break;
        }
        part->tries = false;
        part->lost.code = 0;
        int rc = run_round(part, pending);
        if (rc) return rc;
        /* a failure here is reported for the claims by the next round */
        if (cluster->stale) cluster_refresh(cluster, part->deadline_us, NULL);
    }
    /* The clocks of nodes differ, so server_us is this host's clock, as of before the nodes worked on the
     * claims. */
    for (size_t i = 0; i < part->n; i++) {
        if (part->claims[i]->server_us) part->claims[i]->server_us = begun_us;
        if (part->sent[i]) part->claims[i]->hints |= DLOCK_HINT_RESENT;
    }
    return 0;
}

static int run(struct cluster *cluster, dlock_batch *call, struct dlock_claim *const *claims, size_t n, int timeout_ms,
               struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct part part = {.cluster = cluster, .call = call, .deadline_us = deadline_us, .err = err};
    int rc = cluster_refresh(cluster, deadline_us, err);
    for (size_t from = 0; from < n && rc == 0; from += PART) {
        part.claims = claims + from;
        part.n = n - from < PART ? n - from : PART;
        rc = run_part(&part);
    }
    return rc;
}

int cluster_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run(conn, redis_acquire, claims, n, timeout_ms, err);
}

int cluster_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run(conn, redis_renew, claims, n, timeout_ms, err);
}

int cluster_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run(conn, redis_release, claims, n, timeout_ms, err);
}
