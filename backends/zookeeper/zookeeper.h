/* Internal header of the zookeeper backend.
 *
 * The layout is that of Curator's InterProcessMutex, so that clients of Curator and of dlock share one queue: a
 * container node per lock name, and in it one ephemeral sequential node per claim, `_c_<uuid>-lock-<sequence>`. The
 * node with the lowest sequence holds the lock; every other claim watches the node before its own. The uuid is derived
 * from the token, so that a node whose create was never answered is found by listing. The fence is the node's czxid.
 *
 * One connection is one ZooKeeper session, and serves all threads. Requests are asynchronous, and state.c waits for
 * their answers with a deadline: completions may come late, or never. The library's threads only store answers and
 * queue wake-ups; they never call into the handle. One mutex guards everything that changes after connect; it is never
 * held across a call into the library.
 *
 * A grant lives and dies with the session. How long the session is sure to live follows from writes that the ensemble
 * has committed; see validity.c. The library's pings and a sync prove nothing: a follower that has lost its leader
 * still answers pings, and a leader that has lost its followers still answers a sync.
 *
 * The files; each calls those below it only:
 *   zookeeper
 *   claims
 *   locks  permits
 *   uses  wear  renew  inspect
 *   attempt
 *   session  node  check
 *   address  call
 *   state
 *   watch  validity  alone  names  reach  errors
 */
#ifndef DLOCK_ZOOKEEPER_H
#define DLOCK_ZOOKEEPER_H

#include <dlock/backend_socket.h>

#include <pthread.h>
#include <zookeeper/zookeeper.h>

enum {
    ZOOKEEPER_NAME_SIZE = 241,  /* an encoded lock name, with the NUL; has to fit into a list cursor */
    ZOOKEEPER_NODE_SIZE = 256,  /* name of a claim's node, with the NUL; dlock's have 56 or 57 characters */
    ZOOKEEPER_BASE_SIZE = 1024, /* the path in the URI, with the NUL */
    ZOOKEEPER_PATH_SIZE = ZOOKEEPER_BASE_SIZE + ZOOKEEPER_NAME_SIZE + 8 + ZOOKEEPER_NODE_SIZE,
    ZOOKEEPER_DATA_SIZE = DLOCK_TOKEN_MAX + 1 + 256 + 24, /* token, newline, name, newline, since */
    ZOOKEEPER_BUCKETS = 1024
};

/* Fences are below this (<dlock/backend.h>). */
#define ZOOKEEPER_FENCE_END (UINT64_C(1) << 55)

struct zookeeper;

/* ---- names.c ----------------------------------------------------------------------------------------------------- */

/* The variable parts of the names of a claim's nodes. */
struct zookeeper_label {
    char uuid[37];
    uint32_t limit; /* of permits; 0 for locks */
};

/* Kinds of nodes in the queue: `lock-`, `__WRIT__`, `__READ__`, `lease-`. The flag TRY marks a node that is deleted at
 * once if it does not hold the lock. */
enum zookeeper_kind { ZOOKEEPER_MUTEX, ZOOKEEPER_WRITER, ZOOKEEPER_READER, ZOOKEEPER_LEASE, ZOOKEEPER_TRY = 4 };

/* A claim's place in the queue, as one listing shows it. */
struct zookeeper_queue_view {
    uint32_t members; /* nodes in the queue; the members below count and name only these */
    uint32_t misfits; /* nodes with another limit than this claim's, left out of the queue */
    bool permits;     /* the containers of permits exist */
    bool own;         /* a node with the claim's uuid exists */
    bool equal;       /* another node has the same sequence: a fault of the server */
    enum zookeeper_kind own_kind;
    int32_t own_sequence;
    char twin[ZOOKEEPER_NODE_SIZE];   /* another node with the claim's uuid; usually "" */
    uint32_t ahead;                   /* nodes before the claim's; for a reader, writers only */
    uint32_t fleeting;                /* of these, tries, which are deleted shortly */
    char before[ZOOKEEPER_NODE_SIZE]; /* the last of the nodes ahead */
};

/* Writes the path of a lock's container. */
void zookeeper_path(const struct zookeeper *z, const char *name, char path[ZOOKEEPER_PATH_SIZE]);
/* Writes dir/node. False: it is too long to be a lock's. */
bool zookeeper_join(const char *dir, const char *node, char path[ZOOKEEPER_PATH_SIZE]);
/* Decodes the name of the lock whose container is called `node`. False: it is not a lock's, or the name was cut (*cut),
 * and is then found in the data of the nodes only. */
bool zookeeper_name(const struct zookeeper *z, const char *node, char name[256], bool *cut);
void zookeeper_label(const struct dlock_claim *claim, struct zookeeper_label *label);
/* Writes the name of a claim's node, without a sequence if `sequence` is NULL. */
void zookeeper_node(const struct zookeeper_label *label, enum zookeeper_kind kind, const int32_t *sequence,
                    char node[ZOOKEEPER_NODE_SIZE]);
/* Parses the name of a node made by dlock, Curator or kazoo. False: it is not in the queue. */
bool zookeeper_place(const char *node, enum zookeeper_kind *kind, int32_t *sequence);
bool zookeeper_reads(enum zookeeper_kind kind);
/* Returns the limit in the name of a node made by dlock; 0: none. */
uint32_t zookeeper_limit(const char *node);
/* Moves the nodes of the queue to the front, in order, and returns their number. */
size_t zookeeper_sort(char **names, size_t n);
/* Returns how many of the first of these sorted nodes hold the lock: one writer, or one or more readers. */
size_t zookeeper_holders(char *const *names, size_t members);
/* Fills `view` from a listing. `label` NULL: for no claim. `known`: the claim's sequence if it is known, else NULL.
 * False: a name is too long, to be reported as EPROTO. */
bool zookeeper_view_queue(const struct String_vector *nodes, const struct zookeeper_label *label, const int32_t *known,
                          struct zookeeper_queue_view *view);

/* ---- state.c: whether there is a session ------------------------------------------------------------------------- */

enum zookeeper_state { ZOOKEEPER_CONNECTING, ZOOKEEPER_CONNECTED, ZOOKEEPER_EXPIRED, ZOOKEEPER_NOT_ALLOWED };

/* Marks the session as over. Called with the mutex. */
void zookeeper_died(struct zookeeper *z, enum zookeeper_state how);
/* True if the session is over. Called with the mutex. */
bool zookeeper_is_dead(const struct zookeeper *z);
/* Waits until the session is connected. Returns 0, EUNAVAILABLE or EAUTH; *dead: the session is over. */
int zookeeper_ready(struct zookeeper *z, int64_t deadline_us, bool *dead, struct dlock_error *err);

void zookeeper_cond_init(pthread_cond_t *cond);
/* Waits once on z->mutex, no longer than until deadline_us; false when it has passed. */
bool zookeeper_cond_wait(struct zookeeper *z, pthread_cond_t *cond, int64_t deadline_us);
/* Waits for 5 ms, or until the session's state changes, before repeating a request with an inconclusive answer. */
void zookeeper_pause(struct zookeeper *z);

/* ---- call.c: requests and their answers -------------------------------------------------------------------------- */

struct zookeeper_call;

struct zookeeper_request {
    struct zookeeper_call *call;
    int rc; /* ZOK or the library's error; ZOPERATIONTIMEOUT: unanswered */
    struct zookeeper_watch *watch;
    zoo_op_result_t *results;               /* of a transaction's parts; owned */
    struct Stat stat;                       /* create, get */
    char node[ZOOKEEPER_NODE_SIZE];         /* create: the name of the new node */
    size_t size;                            /* get: bytes in `data` */
    char data[ZOOKEEPER_DATA_SIZE];         /* get: the beginning of the data, NUL-terminated */
    const struct zookeeper_label *label;    /* queue, in: has to stay valid until the call ends */
    const struct zookeeper_request *create; /* queue, in: the create sent just before, or NULL */
    const int32_t *known;                   /* queue, in: the claim's sequence if it is known, or NULL */
    bool sensible;                          /* queue: zookeeper_view_queue() has accepted the listing */
    struct zookeeper_queue_view view;       /* queue */
    char **names;                           /* children: array and names are owned */
    size_t n_names;
};

/* The requests of one operation. The operation and every unanswered request hold a reference. */
struct zookeeper_call {
    struct zookeeper *z;
    struct zookeeper_call *next, *prev; /* the list z->calls */
    unsigned refs, pending;
    bool left; /* the operation no longer waits: answers are discarded */
    int64_t sent_us;
    pthread_cond_t answered;
    size_t n, capacity;
    struct zookeeper_request requests[];
};

/* Allocates a call with room for n requests. NULL: out of memory. */
struct zookeeper_call *zookeeper_call(struct zookeeper *z, size_t n);
/* Each sends one request, whose result is read after zookeeper_call_wait(). Unsendable requests are completed at
 * once. */
struct zookeeper_request *zookeeper_ask_container(struct zookeeper_call *call, const char *path);
struct zookeeper_request *zookeeper_ask_create(struct zookeeper_call *call, const char *path, const char *data);
struct zookeeper_request *zookeeper_ask_queue(struct zookeeper_call *call, const char *dir,
                                              const struct zookeeper_label *label, const int32_t *known,
                                              const struct zookeeper_request *create, struct zookeeper_watch *watch);
struct zookeeper_request *zookeeper_ask_children(struct zookeeper_call *call, const char *dir);
struct zookeeper_request *zookeeper_ask_get(struct zookeeper_call *call, const char *path,
                                            struct zookeeper_watch *watch);
struct zookeeper_request *zookeeper_ask_delete(struct zookeeper_call *call, const char *path);
struct zookeeper_request *zookeeper_ask_exists(struct zookeeper_call *call, const char *path);
/* Sends a transaction that checks that "/" exists. It changes nothing and wakes no watch, needs the right to read, and is
 * committed like every other write. */
struct zookeeper_request *zookeeper_ask_write(struct zookeeper_call *call);
/* Sends a transaction that creates the reader's node and deletes the writer's. */
struct zookeeper_request *zookeeper_ask_downgrade(struct zookeeper_call *call, const char *reader, const char *data,
                                                  const char *writer);
/* Waits for all answers. False: not all came until deadline_us; unanswered requests then have the rc ZOPERATIONTIMEOUT,
 * and nothing else of them may be read. */
bool zookeeper_call_wait(struct zookeeper_call *call, int64_t deadline_us);
/* Ends the operation's use of the call, which is freed now or with its last answer. */
void zookeeper_call_end(struct zookeeper_call *call);
/* Frees the calls that were never answered. Called after the handle has been closed. */
void zookeeper_calls_free(struct zookeeper *z);
/* Returns when the oldest request that has no answer yet was sent; INT64_MAX: all have one. Called with the mutex. */
int64_t zookeeper_unanswered_us(const struct zookeeper *z);

/* ---- errors.c: errors of answers --------------------------------------------------------------------------------- */

/* True if a transaction was committed, either as requested or as the refusal of one of its parts. */
bool zookeeper_committed(const struct zookeeper_request *transaction);
/* True for an answer that says nothing about the outcome. */
bool zookeeper_unknown(int rc);
/* Sets err for an error of the server's and returns the code. */
int zookeeper_refused(const struct zookeeper *z, int rc, const char *what, const char *path, struct dlock_error *err);
int zookeeper_silent(const struct zookeeper *z, struct dlock_error *err);

/* ---- watch.c: watches and wake-ups ------------------------------------------------------------------------------- */

/* A data watch on a node, or a watch on its children. In z->watches from its request until it fires. */
struct zookeeper_watch {
    struct zookeeper *z;
    struct zookeeper_watch *next;
    char *name;  /* of the lock */
    bool before; /* a claim of this client stands right behind the node */
    bool wanted; /* on a lock's container: the grant may linger, so a new node means WANTED */
    bool own;    /* on the node of a grant of this client, which only others delete while that is so */
    bool shared; /* more than one operation relies on it */
    char path[];
};

enum { ZOOKEEPER_WATCHED_MAX = 512 << 10 };

struct zookeeper_wake {
    struct zookeeper_wake *next;
    enum dlock_wake_kind kind;
    char *name; /* NULL: all names */
};

enum zookeeper_watched { ZOOKEEPER_WATCH_THERE, ZOOKEEPER_WATCHES_FULL, ZOOKEEPER_WATCH_NO_MEMORY };

/* Enters a new watch, for zookeeper_ask_get, or, if the path is a container's, for zookeeper_ask_queue. NULL: *why. */
struct zookeeper_watch *zookeeper_watch_new(struct zookeeper *z, const char *path, const char *name, bool wanted,
                                            enum zookeeper_watched *why);
/* Enters a watch on the node of a grant, for zookeeper_ask_get. NULL: it is there already, or waiters need the room. */
struct zookeeper_watch *zookeeper_watch_own(struct zookeeper *z, const char *path, const char *name);
void zookeeper_watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context);
/* Handles the answer to the request that sets the watch, which is freed if it was not set. `left`: no operation waits
 * for that answer. Called with the mutex. */
void zookeeper_watch_answered(struct zookeeper_watch *watch, int rc, bool left);
/* Frees a watch whose request cannot be sent. Called without the mutex. */
void zookeeper_watch_cancel(struct zookeeper_watch *watch);
/* Called before this client deletes its node at `path`, or in the container there: changes mean nothing any more. */
void zookeeper_watch_forget(struct zookeeper *z, const char *path);
/* Queues a wake-up. Called with the mutex. */
void zookeeper_wake_queue(struct zookeeper *z, enum dlock_wake_kind kind, const char *name);
void zookeeper_watches_free(struct zookeeper *z);
int zookeeper_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);

/* ---- address.c --------------------------------------------------------------------------------------------------- */

struct zookeeper_address {
    char *hosts; /* in the library's format; owned */
    size_t n;
    int session_ms;
};

/* The backend's `accepts`. */
int zookeeper_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Reads everything but credentials into z->address, base, where, acl and writer. Returns 0, EINVAL or ENOMEM. */
int zookeeper_address(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err);
/* Takes the servers' addresses into z->address, if the core has found other ones; else has it look the names up, for a
 * later call. Does not wait for a name server. Called with the mutex. */
bool zookeeper_have_moved(struct zookeeper *z);
/* Passes user:password and every auth= to the handle. */
int zookeeper_credentials(struct zookeeper *z, const struct dlock_uri *uri, int64_t deadline_us,
                          struct dlock_error *err);
/* In reach.c. Finds out why no session began, or why a session that began (`began`) was unusable, and sets err if it
 * knows more than err already says. Returns EUNAVAILABLE. */
int zookeeper_explain(const struct zookeeper *z, const struct dlock_uri *uri, bool began, int64_t deadline_us,
                      struct dlock_error *err);

/* In reach.c. Ends this process's connections to the server that the session is connected to; the library then connects to
 * the next one. It does not show its descriptors, so these are found by their peer's address. */
void zookeeper_hang_up(const struct zookeeper *z);

/* ---- node.c ------------------------------------------------------------------------------------------------------ */

/* Returns the number of containers on a path. */
size_t zookeeper_depth(const char *dir);
/* Requests the creation of a lock's container and, if `deep`, of its parents: one request each. */
void zookeeper_ask_containers(struct zookeeper_call *call, const char *dir, bool deep);
/* Deletes a node, repeating the request until it is answered. Returns 0, ELOST (there was none), EUNAVAILABLE, EAUTH or
 * EPROTO; *dead as in zookeeper_ready. */
int zookeeper_delete(struct zookeeper *z, const char *path, int64_t deadline_us, bool *dead, struct dlock_error *err);
/* The same in two steps. The first sends the request (NULL: out of memory). The second takes ownership of the call, and
 * sends one first if it is NULL. */
struct zookeeper_call *zookeeper_delete_begin(struct zookeeper *z, const char *path);
int zookeeper_delete_end(struct zookeeper *z, struct zookeeper_call *call, const char *path, int64_t deadline_us,
                         bool *dead, struct dlock_error *err);

/* ---- claims.c, attempt.c, renew.c, inspect.c --------------------------------------------------------------------- */

/* Indexes of dlock_claim.state. PLACE is about the node that is the grant, QUEUE about the one with which a claim waits
 * for a permit. FENCE is the czxid of the grant's node or, until that exists, of the queue's. */
enum { ZOOKEEPER_SESSION, ZOOKEEPER_FENCE, ZOOKEEPER_PLACE, ZOOKEEPER_QUEUE };
#define ZOOKEEPER_SENT (UINT64_C(1) << 32)       /* a create was sent in this session */
#define ZOOKEEPER_KNOWN (UINT64_C(1) << 33)      /* the create was answered: the low half is the node's sequence */
#define ZOOKEEPER_QUEUED (UINT64_C(1) << 34)     /* the node stays while the claim waits */
#define ZOOKEEPER_DOWNGRADED (UINT64_C(1) << 35) /* the fence is the czxid of the writer's node before */
#define ZOOKEEPER_RIGHTFUL (UINT64_C(1) << 39)   /* the name was not in another use when the node was made */
#define ZOOKEEPER_GRANTED (UINT64_C(1) << 40)
#define ZOOKEEPER_LONELY (UINT64_C(1) << 41) /* no other node was in the queue */
#define ZOOKEEPER_WORN (UINT64_C(1) << 42)   /* no node is made before the container has been deleted: wear.c */
/* With how many renewals in succession the node was not looked at. */
#define ZOOKEEPER_UNSEEN(word) ((word) >> 43 & ZOOKEEPER_UNSEEN_MAX)
#define ZOOKEEPER_UNSEEN_OF(n) ((uint64_t)(n) << 43)
#define ZOOKEEPER_UNSEEN_MAX 1023
#define ZOOKEEPER_OF_KIND(kind) ((uint64_t)(kind) << 36)
#define ZOOKEEPER_KIND(word) ((enum zookeeper_kind)((word) >> 36 & 7))

/* Writes the path of a grant's node, which has ZOOKEEPER_KNOWN, as one of this kind. */
void zookeeper_claim_path(const struct zookeeper *z, const struct dlock_claim *claim, enum zookeeper_kind kind,
                          char path[ZOOKEEPER_PATH_SIZE]);
/* Writes the data of a claim's node. `since`: the czxid of the claim's earlier node that this one replaces; else 0. */
void zookeeper_write_data(const struct zookeeper *z, const struct dlock_claim *claim, uint64_t since,
                          char data[ZOOKEEPER_DATA_SIZE]);
/* Reads `since` from the data of a node; 0: there is none. */
uint64_t zookeeper_since(const char *data);
uint64_t zookeeper_session(struct zookeeper *z);

dlock_batch zookeeper_acquire, zookeeper_renew, zookeeper_release;
int zookeeper_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
int zookeeper_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
int zookeeper_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err);
int zookeeper_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int zookeeper_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* ---- alone.c: locks without contention --------------------------------------------------------------------------- */

enum { ZOOKEEPER_ALONE = 64 };

/* A node of this client's that was alone in its queue and has been deleted. */
struct zookeeper_alone {
    char name[256]; /* of the lock */
    int32_t sequence;
    uint64_t czxid;
    bool good;
    unsigned doubts; /* the number of further such nodes to be disregarded */
};

void zookeeper_alone_went(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid);
/* The first is true if the next node's create may show without a listing that the node is alone; the second if it
 * has. */
bool zookeeper_alone_hopes(struct zookeeper *z, const char *name);
bool zookeeper_alone_still(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid);

/* ---- validity.c: how long the session is sure to live ------------------------------------------------------------ */

enum { ZOOKEEPER_TOUCHES = 8 };

struct zookeeper_validity {
    struct zookeeper_touch {
        int64_t sent_us, ripe_us; /* a request that touched the session; a write sent from ripe_us on proves that the
                                   * leader knows */
    } touches[ZOOKEEPER_TOUCHES]; /* oldest first */
    size_t n;
    int64_t alive_us; /* the leader's timeout of the session did not begin before this */
};

/* Notes that the session has begun; it was requested at sent_us or later. Called with the mutex. */
void zookeeper_began(struct zookeeper *z, int64_t sent_us);
/* Notes that the session has a new connection. Called with the mutex. */
void zookeeper_moved(struct zookeeper *z);
/* Notes that the server has just answered a request that was sent at sent_us or later. Called with the mutex. */
void zookeeper_touched(struct zookeeper *z, int64_t sent_us);
/* Returns when the latest answered request that is remembered was sent. Called with the mutex. */
int64_t zookeeper_last_touch(const struct zookeeper *z);
/* Notes that a write that was sent at sent_us or later has been committed. Called without the mutex. */
void zookeeper_wrote(struct zookeeper *z, int64_t sent_us);
/* Returns for how long from `from_us` on the session is sure to live; may be negative. Called without the mutex. */
int64_t zookeeper_kept_ms(struct zookeeper *z, int64_t from_us);
/* Returns the time after which a server has reported a sign of life to the leader. */
int64_t zookeeper_report_us(int session_ms);

/* ---- the connection ---------------------------------------------------------------------------------------------- */

/* One session. It is allocated separately, since the library's threads may outlive the core's connection. */
struct zookeeper {
    const struct dlock_peer *peer; /* not after the core's connection has ended: see `leaving` */
    struct zookeeper_address address;
    char base[ZOOKEEPER_BASE_SIZE]; /* "" or "/locks" */
    char where[64];                 /* for messages */
    const struct ACL_vector *acl;
    enum zookeeper_kind writer; /* the kind of node of an exclusive claim */
    int event_fd;
    bool started;     /* the session's thread was started */
    int64_t begun_us; /* taken before the session was requested */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* signals changes of state, leaving, closed, handle and open_error */
    /* guarded by the mutex: */
    unsigned refs;     /* held by the core's connection and by the session's thread */
    bool leaving;      /* the core's connection ends */
    bool closed;       /* the handle has been closed */
    zhandle_t *handle; /* constant once zookeeper_open() has returned */
    int open_error;    /* an errno: why there is no handle */
    enum zookeeper_state state;
    bool was_connected;
    int64_t sign_us;   /* when the last sign of life was sent */
    int64_t linked_us; /* when the connection was made, or this process resumed after a suspension */
    int64_t looked_us; /* when the session's thread last looked whether answers are due */
    int64_t hung_us;   /* when a silent server was last left */
    int64_t wrote_us;  /* when the last write that was committed was sent, or earlier */
    /* renew.c: since when renewals are counted, and how many; with how many of its renewals a claim is looked at */
    int64_t counted_us;
    size_t renewed;
    unsigned look_every;
    int64_t sought_us; /* when the servers' names were last looked up */
    uint64_t session;
    int session_ms; /* the shortest that was negotiated */
    struct zookeeper_validity validity;
    struct zookeeper_alone alone[ZOOKEEPER_ALONE];
    struct zookeeper_call *calls;
    struct zookeeper_call *names; /* inspect.c: the list of names, from one page to the next */
    struct zookeeper_watch *watches[ZOOKEEPER_BUCKETS];
    size_t watched_bytes;
    bool doubts; /* the watch on a grant's node has fired: the next renewal looks at each of its nodes */
    struct zookeeper_wake *wakes, **wakes_end;
    struct zookeeper_wake *woken; /* the last one handed out, whose strings the core reads */
    bool look;                    /* a wake-up was lost for lack of memory: all waiters have to look */
};

/* The core's connection is a pointer to the session. */
static inline struct zookeeper *zookeeper_of(void *conn) {
    return *(struct zookeeper **)conn;
}

/* ---- session.c --------------------------------------------------------------------------------------------------- */

/* Allocates a session. NULL: out of memory or descriptors. */
struct zookeeper *zookeeper_new(struct dlock_error *err);
/* Begins the session at z->address, without waiting until it is connected. Returns 0, EINVAL, ENOMEM or
 * EUNAVAILABLE. */
int zookeeper_open(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err);
/* Ends the session, or leaves that to its thread if it takes longer than 200 ms. `z` is freed then or later. */
void zookeeper_leave_session(struct zookeeper *z);
int zookeeper_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);

#endif
