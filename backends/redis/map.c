/* The map of the hash slots, as a node tells it (CLUSTER SLOTS), and as answers of others correct it. */
#include "cluster.h"

#include <stdlib.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

struct cluster_node *cluster_node_at(struct cluster *cluster, const char *address, int port) {
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i]->port == port && strcmp(cluster->nodes[i]->address, address) == 0)
            return cluster->nodes[i];
    struct cluster_node *node = cluster->n_nodes < CLUSTER_NODES ? calloc(1, sizeof *node) : NULL;
    if (!node) return NULL;
    snprintf(node->address, sizeof node->address, "%s", address);
    node->port = port;
    cluster->nodes[cluster->n_nodes] = node; /* first: a child forked meanwhile looks here */
    cluster->n_nodes++;
    return node;
}

static size_t number_of(const struct cluster *cluster, const struct cluster_node *node) {
    size_t i = 0;
    while (cluster->nodes[i] != node) i++;
    return i;
}

unsigned cluster_slot_of(const char *name) {
    char key[REDIS_KEY_MAX + 1];
    dlock_encode_name(key, sizeof key, name, REDIS_SPECIAL, false);
    return redis_slot_of(key, strlen(key));
}

struct cluster_node *cluster_route(const struct cluster *cluster, unsigned slot) {
    for (size_t i = 0; i < cluster->n_asks; i++)
        if (cluster->asks[i].slot == slot) return cluster->asks[i].node;
    return cluster->owner[slot] ? cluster->nodes[cluster->owner[slot] - 1] : NULL;
}

/* ---- what is a node's own ---------------------------------------------------------------------------------------- */

static bool has_tag(const struct cluster *cluster, const struct cluster_node *node, unsigned number) {
    char tag[12];
    const int length = snprintf(tag, sizeof tag, "%u", number);
    const unsigned slot = redis_slot_of(tag, (size_t)length);
    if (number < REDIS_TAGS && node->leaving[number]) return false;
    return cluster->owner[slot] && cluster->nodes[cluster->owner[slot] - 1] == node;
}

/* All clients come to the same, and to another one only if that slot leaves the node, or by chance when others come. */
static unsigned choose_tag(const struct cluster *cluster, const struct cluster_node *node) {
    uint64_t least = UINT64_MAX;
    unsigned chosen = REDIS_TAGS;
    for (unsigned i = 0; i < REDIS_TAGS; i++) {
        const char byte = (char)i;
        const uint64_t rank = dlock_hash(&byte, 1, dlock_hash(node->id, strlen(node->id), DLOCK_HASH_SEED));
        if (rank >= least || !has_tag(cluster, node, i)) continue;
        least = rank;
        chosen = i;
    }
    /* It has few slots. */
    const unsigned most = 64 * REDIS_SLOTS;
    while (chosen >= REDIS_TAGS && chosen < most && !has_tag(cluster, node, chosen)) chosen++;
    return chosen;
}

void cluster_settle_node(struct cluster *cluster, struct cluster_node *node) {
    struct redis_member *member = &node->member;
    const unsigned tag = node->serves ? choose_tag(cluster, node) : 0;
    char chosen[sizeof member->tag] = "";
    if (node->serves) snprintf(chosen, sizeof chosen, "%u", tag);
    if (strcmp(chosen, member->tag) != 0) node->redis.check_us = 0;
    memcpy(member->tag, chosen, sizeof chosen);
    if (node->redis.version >= 7 && tag < REDIS_TAGS)
        snprintf(member->place, sizeof member->place, "dlock:{%s}:", chosen);
    else
        snprintf(member->place, sizeof member->place, "dlock:%s:", node->id);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_numeric(const char *address) {
    union dlock_socket_address unused;
    return dlock_socket_address(NULL, address, 1, &unused) != 0;
}

/* The address of a node that is called by its name; NULL: it is not said. */
static const char *numeric_of(const redisReply *node) {
    const redisReply *more = node->elements > 3 ? node->element[3] : NULL;
    for (size_t i = 0; more && more->type == REDIS_REPLY_ARRAY && i + 1 < more->elements; i += 2)
        if (more->element[i]->type == REDIS_REPLY_STRING && strcmp(more->element[i]->str, "ip") == 0 &&
            more->element[i + 1]->type == REDIS_REPLY_STRING && is_numeric(more->element[i + 1]->str))
            return more->element[i + 1]->str;
    return NULL;
}

/* An array of address, port, id, and maybe more. `teller` may not know its own address. NULL: `err` says why. */
static struct cluster_node *read_node(struct cluster *cluster, struct cluster_node *teller, const redisReply *reply,
                                      struct dlock_error *err) {
    redisReply *const *part = reply->element;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 || part[1]->type != REDIS_REPLY_INTEGER ||
        part[1]->integer < 1 || part[1]->integer > 65535 || part[2]->type != REDIS_REPLY_STRING || part[2]->len > 40) {
        redis_nonsense(&teller->redis, "CLUSTER SLOTS", err);
        return NULL;
    }
    const char *address = part[0]->type == REDIS_REPLY_STRING ? part[0]->str : "";
    if (!*address || strcmp(address, "?") == 0)
        address = teller->address;
    else if (!is_numeric(address))
        address = numeric_of(reply);
    if (!address || strlen(address) >= sizeof teller->address) {
        dlock_fail(err, DLOCK_EINVAL,
                   "the cluster knows its node %.100s by a name, which dlock does not look up: set "
                   "cluster-preferred-endpoint-type ip",
                   part[0]->str);
        return NULL;
    }
    struct cluster_node *node = cluster_node_at(cluster, address, (int)part[1]->integer);
    if (!node) {
        dlock_fail(err, DLOCK_ENOMEM, "out of memory for the nodes of the cluster, or more than %d", CLUSTER_NODES);
        return NULL;
    }
    snprintf(node->id, sizeof node->id, "%s", part[2]->str);
    return node;
}

/* An array of arrays: the first slot, the last one, the master, and its replicas. */
static int read_ranges(struct cluster *cluster, struct cluster_node *teller, const redisReply *reply,
                       struct dlock_error *err) {
    if (reply->type == REDIS_REPLY_ERROR) return redis_refused(&teller->redis, reply, err);
    if (reply->type != REDIS_REPLY_ARRAY) return redis_nonsense(&teller->redis, "CLUSTER SLOTS", err);
    memset(cluster->owner, 0, sizeof cluster->owner);
    for (size_t i = 0; i < cluster->n_nodes; i++) cluster->nodes[i]->serves = false;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *range = reply->element[i];
        redisReply *const *part = range->element;
        if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || part[0]->type != REDIS_REPLY_INTEGER ||
            part[1]->type != REDIS_REPLY_INTEGER || part[0]->integer < 0 || part[1]->integer >= REDIS_SLOTS)
            return redis_nonsense(&teller->redis, "CLUSTER SLOTS", err);
        struct dlock_error why;
        struct cluster_node *node = read_node(cluster, teller, part[2], &why);
        if (!node) {
            if (err) *err = why;
            return why.code;
        }
        node->serves = true;
        const uint8_t owner = (uint8_t)(number_of(cluster, node) + 1);
        for (long long slot = part[0]->integer; slot <= part[1]->integer; slot++) cluster->owner[slot] = owner;
    }
    for (size_t i = 0; i < cluster->n_nodes; i++) cluster_settle_node(cluster, cluster->nodes[i]);
    if (reply->elements > 0) return 0;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s knows of no node with slots", teller->redis.where);
}

int cluster_read_map(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    redis_command(&node->redis, "CLUSTER", "SLOTS", (char *)NULL);
    int rc = redis_reply(&node->redis, deadline_us, &reply, err);
    if (rc) return rc;
    rc = read_ranges(cluster, node, reply, err);
    freeReplyObject(reply);
    return rc;
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

/* The slot of the node's own tag is on its way to another one. */
static bool is_own_slot(const struct cluster_node *node, unsigned slot) {
    return redis_slot_of(node->member.tag, strlen(node->member.tag)) == slot;
}

void cluster_learn(struct cluster *cluster, struct cluster_node *node, bool *tries) {
    for (size_t i = 0; i < node->member.n_moves; i++) {
        const struct redis_move *move = &node->member.moves[i];
        const char *address = *move->address ? move->address : node->address;
        if (move->kind == REDIS_TRYAGAIN) {
            *tries = true;
            continue;
        }
        struct cluster_node *to = is_numeric(address) ? cluster_node_at(cluster, address, move->port) : NULL;
        if (move->kind == REDIS_MOVED) {
            cluster->stale = true;
            cluster->mapped_us = 0;
            if (to) cluster->owner[move->slot] = (uint8_t)(number_of(cluster, to) + 1);
        } else if (is_own_slot(node, move->slot) && atoi(node->member.tag) < REDIS_TAGS) {
            node->leaving[atoi(node->member.tag)] = true;
            cluster_settle_node(cluster, node);
        } else if (to && cluster->n_asks < CLUSTER_ASKS) {
            cluster->asks[cluster->n_asks].slot = move->slot;
            cluster->asks[cluster->n_asks++].node = to;
        }
    }
    node->member.n_moves = 0;
}
