/* redis+cluster: one dlock connection consists of connections to the nodes of a cluster, made on demand, and a map of
 * which node has which hash slot. */
#ifndef DLOCK_REDIS_CLUSTER_H
#define DLOCK_REDIS_CLUSTER_H

#include "redis.h"

/* Most nodes that are known at a time. */
#define CLUSTER_NODES 250
/* Most redirections to other nodes that are followed in one round of a call. */
#define CLUSTER_REDIRECTS 16

struct cluster_node {
    struct redis redis;
    struct redis_member member;
    char id[41];
    char host[REDIS_HOST_MAX + 1]; /* a name or an address, and with the port what no other node has */
    int port;
    char address[64];              /* the address that is announced beside the name; "": none */
    char name[REDIS_HOST_MAX + 1]; /* the name that its certificate must have */
    bool serves;                   /* it has hash slots */
    bool failed;                   /* its last request failed: other nodes go first */
    bool reachable;                /* it is named in the URI, or was connected once */
    bool leaving[REDIS_TAGS];      /* hash tags whose slots are being moved to another node */
    int64_t probed_us;             /* a listener's: when its last probe was sent */
};

struct cluster {
    const struct dlock_peer *peer;
    struct cluster_node *nodes[CLUSTER_NODES]; /* forgotten when a new map has no slots for them */
    size_t n_nodes;
    uint8_t owner[REDIS_SLOTS]; /* index of the slot's node, plus 1; 0: none */
    bool stale;                 /* the map has to be read again before the next call */
    int64_t mapped_us;          /* when the map was last read */
    size_t teller;              /* which node is asked for the map next */
    struct {
        unsigned slot;
        struct cluster_node *node;
        bool asking;                /* the slot is being moved there */
    } redirects[CLUSTER_REDIRECTS]; /* override the map in the next round */
    size_t n_redirects;

    int epoll;                     /* a listener's epoll descriptor, plus 1; 0: none */
    struct cluster_node *readable; /* the node whose messages are being read */
};

/* ---- map.c: which node has a slot -------------------------------------------------------------------------------- */

/* Returns the node at this host, which is added if it is new; NULL: out of memory, or too many nodes. */
struct cluster_node *cluster_node_at(struct cluster *cluster, const char *host, int port);

/* Returns the slot of a lock. */
unsigned cluster_slot_of(const char *name);

/* Returns the node that a call for this slot goes to; NULL: none is known. *asking: the slot is being moved there. */
struct cluster_node *cluster_route(const struct cluster *cluster, unsigned slot, bool *asking);

/* Reads the map from a connected node. Forgets the other nodes that have no slots in it, except those to which the next
 * round is redirected. Returns 0, or EUNAVAILABLE, EPROTO, ENOMEM or EINVAL, and the map is unchanged. */
int cluster_read_map(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err);

/* Applies the moves that the node has reported to the map. *tries is set if some calls have to be repeated after a
 * moment. */
void cluster_learn(struct cluster *cluster, struct cluster_node *node, bool *tries);

/* Chooses the node's own hash tag and the prefix of its channels. */
void cluster_settle_node(struct cluster *cluster, struct cluster_node *node);

/* ---- nodes.c: connections to them -------------------------------------------------------------------------------- */

/* Connects to the node unless it is connected. Errors are those of the backend's connect. */
int cluster_reach(struct cluster *cluster, struct cluster_node *node, int64_t deadline_us, struct dlock_error *err);

/* Closes the connection to the node. */
void cluster_drop(struct cluster_node *node);

/* Reads the map again if that is due, from the first node that answers. Returns 0 or EUNAVAILABLE, among others. */
int cluster_refresh(struct cluster *cluster, int64_t deadline_us, struct dlock_error *err);

/* Returns whether a call may have another round after `fruitless` ones that answered nothing, before which it pauses.
 * False: its deadline has passed; or half a second has, in which a slot was on its way to another node (`tries`), or
 * nodes have sent the call from one to the other 16 times. */
bool cluster_begin_round(int fruitless, bool tries, int64_t begun_us, int64_t deadline_us);

/* Why cluster_begin_round() returned false: the end of a sentence about the slot. */
const char *cluster_nowhere(int fruitless, bool tries);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch cluster_acquire, cluster_renew, cluster_release;
int cluster_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int cluster_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int cluster_probe(void *conn, struct dlock_error *err);
int cluster_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int cluster_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int cluster_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                 struct dlock_error *err);
int cluster_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int cluster_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* In cluster.c: the table of operations, for redis.c. */
extern const struct dlock_backend redis_cluster_backend;

#endif
