/* redis+cluster: a connection of dlock's is one to each node of a cluster that it has needed so far, and a map that says
 * which node has which hash slot. */
#ifndef DLOCK_REDIS_CLUSTER_H
#define DLOCK_REDIS_CLUSTER_H

#include "redis.h"

/* Most nodes that are known at once. */
#define CLUSTER_NODES 250
/* Longest name that a node may have: the cluster announces none that is longer. */
#define CLUSTER_NAME_MAX 255
/* Most keys of a stream in a URI. */
#define CLUSTER_KEYS 8
/* Most slots that one call follows at once to where a node says that they are. */
#define CLUSTER_REDIRECTS 16

struct cluster_node {
    struct redis redis;
    struct redis_member member;
    char id[41], address[64];
    char name[CLUSTER_NAME_MAX + 1]; /* that it is known by: its certificate has to bear that */
    int port;
    bool serves;              /* it has slots */
    bool failed;              /* it was of no use lately: others go first */
    bool leaving[REDIS_TAGS]; /* hash tags whose slots are on their way to another node */
};

struct cluster {
    const struct dlock_peer *peer;
    struct redis_address address; /* its strings are ours */
    char *user, *password;
    struct dlock_uri uri; /* with the stream's keys alone; they are ours, too */
    struct dlock_param keys[CLUSTER_KEYS];
    char fences[24];
    struct cluster_node *nodes[CLUSTER_NODES]; /* until a new map has no slot for them */
    size_t n_nodes;
    uint8_t owner[REDIS_SLOTS]; /* the number of its node, plus 1; 0: nobody's */
    bool stale;                 /* the map: it is asked for anew before the next call */
    int64_t mapped_us;          /* when it was asked for */
    size_t teller;              /* which node is asked next */
    struct {
        unsigned slot;
        struct cluster_node *node;
        bool asking;                /* it is on its way there */
    } redirects[CLUSTER_REDIRECTS]; /* where the calls of the next round for these slots go, whatever the map says */
    size_t n_redirects;

    int epoll;                     /* of a listener, plus 1; 0: none */
    struct cluster_node *readable; /* what came over it is not read to its end */
    int64_t probed_us;
};

/* ---- map.c: which node has a slot -------------------------------------------------------------------------------- */

/* The node with this address; NULL: no memory, or too many. */
struct cluster_node *cluster_node_at(struct cluster *cluster, const char *address, int port);

/* The slot of a lock. */
unsigned cluster_slot_of(const char *name);

/* The node that a call for this slot goes to; NULL: none is known. *asking: the slot is on its way there. */
struct cluster_node *cluster_route(const struct cluster *cluster, unsigned slot, bool *asking);

/* Has a connected node tell which node has which slots. Other nodes that have none then, and that no call of the next
 * round goes to, are forgotten. EUNAVAILABLE, EPROTO, ENOMEM, EINVAL: the map is as it was. */
int cluster_read_map(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err);

/* What the node's members said about slots comes into the map; `tries`: some are to be asked again after a moment. */
void cluster_learn(struct cluster *cluster, struct cluster_node *node, bool *tries);

/* Chooses what is the node's own: its hash tag, and how its channels begin. */
void cluster_settle_node(struct cluster *cluster, struct cluster_node *node);

/* ---- nodes.c: connections to them -------------------------------------------------------------------------------- */

/* Connects to it, if that has not been done. As connect. */
int cluster_reach(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err);

/* Drops the connection to it. */
void cluster_drop(struct cluster_node *node);

/* Asks for the map again, if it is time to: the first node that answers. EUNAVAILABLE: none does. */
int cluster_refresh(struct cluster *cluster, int64_t deadline_us, struct dlock_error *err);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch cluster_acquire, cluster_renew, cluster_release;
int cluster_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int cluster_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int cluster_probe(void *conn, struct dlock_error *err);
int cluster_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int cluster_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                 struct dlock_error *err);
int cluster_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int cluster_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* cluster.c: the table, for redis.c */
extern const struct dlock_backend redis_cluster_backend;

#endif
