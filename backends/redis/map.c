/* The map of the hash slots, as one node reports it (CLUSTER SLOTS), corrected by redirections from others. */
#include "cluster.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static struct cluster_node *find_node(const struct cluster *cluster, const char *host, int port) {
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i]->port == port && strcmp(cluster->nodes[i]->host, host) == 0) return cluster->nodes[i];
    return NULL;
}

struct cluster_node *cluster_node_at(struct cluster *cluster, const char *host, int port) {
    struct cluster_node *node = find_node(cluster, host, port);
    if (node || cluster->n_nodes == CLUSTER_NODES) return node;
    node = calloc(1, sizeof *node);
    if (!node) return NULL;
    snprintf(node->host, sizeof node->host, "%s", host);
    snprintf(node->name, sizeof node->name, "%s", host);
    node->port = port;
    cluster->nodes[cluster->n_nodes] = node; /* before the count, which a concurrently forked child reads */
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

struct cluster_node *cluster_route(const struct cluster *cluster, unsigned slot, bool *asking) {
    *asking = false;
    for (size_t i = 0; i < cluster->n_redirects; i++) {
        if (cluster->redirects[i].slot != slot) continue;
        *asking = cluster->redirects[i].asking;
        return cluster->redirects[i].node;
    }
    return cluster->owner[slot] ? cluster->nodes[cluster->owner[slot] - 1] : NULL;
}

/* ---- a node's hash tag ------------------------------------------------------------------------------------------- */

static bool has_tag(const struct cluster *cluster, const struct cluster_node *node, unsigned number) {
    char tag[12];
    const int length = snprintf(tag, sizeof tag, "%u", number);
    const unsigned slot = redis_slot_of(tag, (size_t)length);
    if (number < REDIS_TAGS && node->leaving[number]) return false;
    return cluster->owner[slot] && cluster->nodes[cluster->owner[slot] - 1] == node;
}

/* Chooses a node's hash tag. All clients choose the same one. It changes only when its slot leaves the node, or by
 * chance when slots come to it. */
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
    /* the node has few slots */
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

/* Returns additional data about a node; NULL: none. */
static const char *more_of(const redisReply *node, const char *what) {
    const redisReply *more = node->elements > 3 ? node->element[3] : NULL;
    for (size_t i = 0; more && more->type == REDIS_REPLY_ARRAY && i + 1 < more->elements; i += 2)
        if (more->element[i]->type == REDIS_REPLY_STRING && strcmp(more->element[i]->str, what) == 0 &&
            more->element[i + 1]->type == REDIS_REPLY_STRING)
            return more->element[i + 1]->str;
    return NULL;
}

/* Returns the name that the cluster announces for a node; NULL: none. */
static const char *name_of(const redisReply *node) {
    const redisReply *said = node->element[0];
    const char *name = more_of(node, "hostname");
    if (!name && said->type == REDIS_REPLY_STRING && !is_numeric(said->str)) name = said->str;
    return name && redis_is_host(name) ? name : NULL;
}

static bool is_unknown(const redisReply *host) {
    return host->type == REDIS_REPLY_NIL || !*host->str || strcmp(host->str, "?") == 0;
}

/* Returns the address that is announced beside a node's name, or in place of it; "": none. */
static const char *address_of(const redisReply *node) {
    const char *address = more_of(node, "ip");
    return address && is_numeric(address) && strlen(address) < sizeof((struct cluster_node *)0)->address ? address : "";
}

/* Returns the host of a node. nil and "" mean that the node does not know its own address, and "?" that it has no name:
 * without an "ip" it is then on the host of the reporting node. */
static const char *host_of(const struct cluster_node *teller, const redisReply *node) {
    if (!is_unknown(node->element[0])) return node->element[0]->str;
    return *address_of(node) ? address_of(node) : teller->host;
}

/* Reads a node: an array of address, port, id, and possibly more. NULL: `err` says why. */
static struct cluster_node *read_node(struct cluster *cluster, struct cluster_node *teller, const redisReply *reply,
                                      struct dlock_error *err) {
    redisReply *const *part = reply->element;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
        (part[0]->type != REDIS_REPLY_STRING && part[0]->type != REDIS_REPLY_NIL) ||
        part[1]->type != REDIS_REPLY_INTEGER || part[1]->integer < 1 || part[1]->integer > 65535 ||
        part[2]->type != REDIS_REPLY_STRING || part[2]->len >= sizeof teller->id ||
        !redis_is_host(host_of(teller, reply))) {
        redis_nonsense(&teller->redis, "the reply to CLUSTER SLOTS", err);
        return NULL;
    }
    const char *host = host_of(teller, reply);
    const int port = (int)part[1]->integer;
    /* one that was connected to by what the URI says, and is announced by a name */
    if (port == teller->port && !find_node(cluster, host, port) &&
        (strcmp(host, teller->name) == 0 || strcmp(address_of(reply), teller->host) == 0))
        snprintf(teller->host, sizeof teller->host, "%s", host);
    struct cluster_node *node = cluster_node_at(cluster, host, port);
    if (!node)
        dlock_fail(err, DLOCK_ENOMEM, "out of memory for the nodes of the cluster, or more than %d", CLUSTER_NODES);
    return node;
}

/* A map being read. */
struct fresh {
    uint8_t owner[REDIS_SLOTS];
    const redisReply *nodes[CLUSTER_NODES]; /* the reply about each node that has slots */
};

/* Reads a range: an array of its first slot, its last slot, the master, and the replicas. */
static int read_range(struct cluster *cluster, struct cluster_node *teller, const redisReply *range,
                      struct fresh *fresh, struct dlock_error *err) {
    redisReply *const *part = range->element;
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || part[0]->type != REDIS_REPLY_INTEGER ||
        part[1]->type != REDIS_REPLY_INTEGER || part[0]->integer < 0 || part[0]->integer > part[1]->integer ||
        part[1]->integer >= REDIS_SLOTS)
        return redis_nonsense(&teller->redis, "the reply to CLUSTER SLOTS", err);
    struct dlock_error why;
    const struct cluster_node *node = read_node(cluster, teller, part[2], &why);
    if (!node) {
        if (err) *err = why;
        return why.code;
    }
    const size_t number = number_of(cluster, node);
    for (long long slot = part[0]->integer; slot <= part[1]->integer; slot++) {
        if (fresh->owner[slot]) return redis_nonsense(&teller->redis, "CLUSTER SLOTS has a slot twice", err);
        fresh->owner[slot] = (uint8_t)(number + 1);
    }
    fresh->nodes[number] = part[2];
    return 0;
}

/* Stores a node's id, address and name. If no name is announced, one from the URI stays, or else its address. A node
 * without a host is on the host of the reporting node. */
static void introduce(struct cluster_node *node, const redisReply *said, const struct cluster_node *teller) {
    const char *name = name_of(said);
    if (!name && is_unknown(said->element[0]) && node != teller) name = teller->name;
    snprintf(node->id, sizeof node->id, "%s", said->element[2]->str);
    snprintf(node->address, sizeof node->address, "%s", is_numeric(node->host) ? "" : address_of(said));
    if (name) snprintf(node->name, sizeof node->name, "%s", name);
}

/* True if the next round is redirected to this node. */
static bool is_next(const struct cluster *cluster, const struct cluster_node *node) {
    for (size_t i = 0; i < cluster->n_redirects; i++)
        if (cluster->redirects[i].node == node) return true;
    return false;
}

/* Forgets the nodes without slots, except the reporting one and those to which the next round is redirected, and
 * renumbers the others. */
static void forget_nodes(struct cluster *cluster, const struct cluster_node *teller) {
    uint8_t numbers[CLUSTER_NODES + 1] = {0};
    bool owns[CLUSTER_NODES + 1] = {false};
    size_t kept = 0;
    for (size_t i = 0; i < REDIS_SLOTS; i++) owns[cluster->owner[i]] = true;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct cluster_node *node = cluster->nodes[i];
        if (owns[i + 1] || node == teller || is_next(cluster, node)) {
            cluster->nodes[kept++] = node;
            numbers[i + 1] = (uint8_t)kept;
            continue;
        }
        redis_hang_up(&node->redis);
        cluster->nodes[i] = NULL; /* cleared first, since a child forked during cleanup reads it */
        atomic_signal_fence(memory_order_seq_cst);
        free(node);
    }
    for (size_t i = 0; i < REDIS_SLOTS; i++) cluster->owner[i] = numbers[cluster->owner[i]];
    cluster->n_nodes = kept;
}

/* A node that has got a slot may have got it without its keys: it is asked before the next grant. */
static void gains(struct cluster_node *node) {
    node->redis.check_us = 0;
}

/* Reads the ranges. The map is unchanged unless all of them make sense. */
static int read_ranges(struct cluster *cluster, struct cluster_node *teller, const redisReply *reply,
                       struct dlock_error *err) {
    struct fresh fresh = {{0}, {NULL}};
    if (reply->type == REDIS_REPLY_ERROR) return redis_refused(&teller->redis, reply, err);
    if (reply->type != REDIS_REPLY_ARRAY) return redis_nonsense(&teller->redis, "the reply to CLUSTER SLOTS", err);
    if (reply->elements == 0)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s knows of no node with slots", teller->redis.where);
    for (size_t i = 0; i < reply->elements; i++) {
        int rc = read_range(cluster, teller, reply->element[i], &fresh, err);
        if (rc) return rc;
    }
    for (size_t i = 0; i < REDIS_SLOTS; i++)
        if (fresh.owner[i] && fresh.owner[i] != cluster->owner[i]) gains(cluster->nodes[fresh.owner[i] - 1]);
    memcpy(cluster->owner, fresh.owner, sizeof cluster->owner);
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct cluster_node *node = cluster->nodes[i];
        node->serves = fresh.nodes[i] != NULL;
        if (node->serves) introduce(node, fresh.nodes[i], teller);
    }
    for (size_t i = 0; i < cluster->n_nodes; i++) cluster_settle_node(cluster, cluster->nodes[i]);
    return 0;
}

int cluster_read_map(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err) {
    redisReply *reply;
    redis_command(&node->redis, "CLUSTER", "SLOTS", (char *)NULL);
    int rc = redis_reply(&node->redis, deadline_us, &reply, err);
    if (rc) return rc;
    rc = read_ranges(cluster, node, reply, err);
    freeReplyObject(reply);
    forget_nodes(cluster, node);
    return rc;
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

/* True if this is the slot of the node's own hash tag. */
static bool is_own_slot(const struct cluster_node *node, unsigned slot) {
    return redis_slot_of(node->member.tag, strlen(node->member.tag)) == slot;
}

void cluster_learn(struct cluster *cluster, struct cluster_node *node, bool *tries) {
    for (size_t i = 0; i < node->member.n_moves; i++) {
        const struct redis_move *move = &node->member.moves[i];
        const char *host = *move->host ? move->host : node->host;
        if (move->kind == REDIS_TRYAGAIN) {
            *tries = true;
            continue;
        }
        struct cluster_node *to = redis_is_host(host) ? cluster_node_at(cluster, host, move->port) : NULL;
        /* the map may show it after a moment */
        if (move->kind == REDIS_ASK && !to) *tries = true;
        if (move->kind == REDIS_MOVED) {
            cluster->stale = true;
            cluster->mapped_us = 0;
            if (to) cluster->owner[move->slot] = (uint8_t)(number_of(cluster, to) + 1);
            if (to) gains(to);
        } else if (is_own_slot(node, move->slot) && atoi(node->member.tag) < REDIS_TAGS) {
            node->leaving[atoi(node->member.tag)] = true;
            cluster_settle_node(cluster, node);
            continue;
        }
        if (!to || cluster->n_redirects == CLUSTER_REDIRECTS) continue;
        cluster->redirects[cluster->n_redirects].slot = move->slot;
        cluster->redirects[cluster->n_redirects].node = to;
        cluster->redirects[cluster->n_redirects++].asking = move->kind == REDIS_ASK;
    }
    node->member.n_moves = 0;
}
