/* Locks in ZooKeeper: what the parts of this backend share.
 *
 * The layout is that of Curator's InterProcessMutex, so that Curator and we stand in one queue: a container node per
 * lock name, in it one ephemeral sequential node per claim, `_c_<uuid>-lock-<sequence>`. The lowest sequence holds the
 * lock; every other one watches the node before it. The uuid is made from the token, so that a create whose answer was
 * lost is found by listing. The fence is the node's czxid.
 *
 * One connection is one ZooKeeper session, and serves every thread. All requests are asynchronous, with a wait of our
 * own (state.c): completions may come late, or never. The library's threads only store answers and queue wake-ups; they
 * never call into the handle. One mutex guards everything that changes after connect; it is never held across a call
 * into the library.
 *
 * A grant lives and dies with the session. How long that is sure to live follows from writes that the ensemble has
 * committed, see validity.c; neither the library's pings nor a sync prove anything: a follower that has lost its leader
 * answers the ones, a leader that has lost its followers the other.
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
    ZOOKEEPER_NAME_SIZE = 241,  /* of a lock name as a node's, with the NUL: a list cursor must hold it */
    ZOOKEEPER_NODE_SIZE = 256,  /* of a claim's node name, with the NUL; ours have 56 or 57 characters */
    ZOOKEEPER_BASE_SIZE = 1024, /* of the path in the URI */
    ZOOKEEPER_PATH_SIZE = ZOOKEEPER_BASE_SIZE + ZOOKEEPER_NAME_SIZE + 8 + ZOOKEEPER_NODE_SIZE,
    ZOOKEEPER_DATA_SIZE = DLOCK_TOKEN_MAX + 1 + 256 + 24, /* token, newline, name, newline, since */
    ZOOKEEPER_BUCKETS = 1024
};

/* Fences are below this (<dlock/backend.h>). */
#define ZOOKEEPER_FENCE_END (UINT64_C(1) << 55)

struct zookeeper;

/* ---- names.c ----------------------------------------------------------------------------------------------------- */

/* Contents of the names of a claim's nodes. */
struct zookeeper_label {
    char uuid[37];
    uint32_t limit; /* of permits, else 0 */
};

/* Kinds of nodes in the queue: `lock-`, `__WRIT__`, `__READ__`, `lease-`. A try is to leave at once where it is not
 * first. */
enum zookeeper_kind { ZOOKEEPER_MUTEX, ZOOKEEPER_WRITER, ZOOKEEPER_READER, ZOOKEEPER_LEASE, ZOOKEEPER_TRY = 4 };

/* A claim's place in the queue, as a listing shows it. */
struct zookeeper_queue_view {
    uint32_t members; /* nodes in the queue; all that follows is about these */
    uint32_t misfits; /* nodes of another limit than ours, which are in nobody's way */
    bool permits;     /* there are the containers of permits */
    bool own;         /* a node with our uuid is there */
    bool equal;       /* and another one with the same sequence: the server has miscounted */
    enum zookeeper_kind own_kind;
    int32_t own_sequence;
    char twin[ZOOKEEPER_NODE_SIZE];   /* another one with our uuid; "" usually */
    uint32_t ahead;                   /* nodes before ours, for readers without readers */
    uint32_t fleeting;                /* of these, tries that are about to leave */
    char before[ZOOKEEPER_NODE_SIZE]; /* the last one of these */
};

/* The path of a lock's container. */
void zookeeper_path(const struct zookeeper *z, const char *name, char path[ZOOKEEPER_PATH_SIZE]);
/* dir/node; false: too long to be real. */
bool zookeeper_join(const char *dir, const char *node, char path[ZOOKEEPER_PATH_SIZE]);
/* The name whose container is called `node`; false: it was cut (then only the data of its nodes tells), or it is no
 * lock's. */
bool zookeeper_name(const struct zookeeper *z, const char *node, char name[256], bool *cut);
void zookeeper_label(const struct dlock_claim *claim, struct zookeeper_label *label);
/* A node of a claim; without its sequence where `sequence` is NULL. */
void zookeeper_node(const struct zookeeper_label *label, enum zookeeper_kind kind, const int32_t *sequence,
                    char node[ZOOKEEPER_NODE_SIZE]);
/* Reads a node's name, ours, Curator's or kazoo's; false: it does not stand in the queue. */
bool zookeeper_place(const char *node, enum zookeeper_kind *kind, int32_t *sequence);
bool zookeeper_reads(enum zookeeper_kind kind);
/* The limit that a node of ours names; 0: it names none. */
uint32_t zookeeper_limit(const char *node);
/* Moves those that stand in the queue to the front, in order, and returns their number. */
size_t zookeeper_sort(char **names, size_t n);
/* How many of them, in order, hold the lock: one writer, or readers. */
size_t zookeeper_holders(char *const *names, size_t members);
/* Finds places. `label` may be NULL; `known` is our sequence where we know it, else NULL. False: EPROTO. */
bool zookeeper_view_queue(const struct String_vector *nodes, const struct zookeeper_label *label, const int32_t *known,
                          struct zookeeper_queue_view *view);

/* ---- state.c: whether there is a session ------------------------------------------------------------------------- */

enum zookeeper_state { ZOOKEEPER_CONNECTING, ZOOKEEPER_CONNECTED, ZOOKEEPER_EXPIRED, ZOOKEEPER_NOT_ALLOWED };

/* With the mutex: the session is over. */
void zookeeper_died(struct zookeeper *z, enum zookeeper_state how);
/* With the mutex: whether it is, for good. */
bool zookeeper_is_dead(const struct zookeeper *z);
/* Waits until the session is connected: 0, or EUNAVAILABLE; *dead tells whether for good. */
int zookeeper_ready(struct zookeeper *z, int64_t deadline_us, bool *dead, struct dlock_error *err);

void zookeeper_cond_init(pthread_cond_t *cond);
/* One wait on z->mutex, until deadline_us at the latest; false when it has passed. */
bool zookeeper_cond_wait(struct zookeeper *z, pthread_cond_t *cond, int64_t deadline_us);
/* A moment, after an answer that says nothing, or until the session's state changes. */
void zookeeper_pause(struct zookeeper *z);

/* ---- call.c: requests and their answers -------------------------------------------------------------------------- */

struct zookeeper_call;

struct zookeeper_request {
    struct zookeeper_call *call;
    int rc; /* ZOK or the library's error; ZOPERATIONTIMEOUT: not answered */
    struct zookeeper_watch *watch;
    zoo_op_result_t *results;               /* of a transaction's parts; malloc'ed */
    struct Stat stat;                       /* create, get */
    char node[ZOOKEEPER_NODE_SIZE];         /* create: the name it got */
    size_t size;                            /* get: bytes in `data` */
    char data[ZOOKEEPER_DATA_SIZE];         /* get: its begin, NUL-terminated */
    const struct zookeeper_label *label;    /* queue, in: valid until the call ends */
    const struct zookeeper_request *create; /* queue, in: the create before it, or NULL */
    const int32_t *known;                   /* queue, in */
    bool sensible;                          /* queue */
    struct zookeeper_queue_view view;       /* queue */
    char **names;                           /* children: each malloc'ed */
    size_t n_names;
};

/* The requests of one operation. Referred to by it and by every unanswered request. */
struct zookeeper_call {
    struct zookeeper *z;
    struct zookeeper_call *next, *prev; /* z->calls */
    unsigned refs, pending;
    bool left; /* its operation does not wait any more: answers are dropped */
    int64_t sent_us;
    pthread_cond_t answered;
    size_t n, capacity;
    struct zookeeper_request requests[];
};

/* Room for n requests; NULL: out of memory. */
struct zookeeper_call *zookeeper_call(struct zookeeper *z, size_t n);
/* Each sends one request. */
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
/* In one transaction: checks that all n nodes are there. It changes nothing, wakes nobody, needs the right to read, and
 * is committed like every other write. */
struct zookeeper_request *zookeeper_ask_checks(struct zookeeper_call *call, const char *const *paths, size_t n);
/* The same about "/", which is there. */
struct zookeeper_request *zookeeper_ask_write(struct zookeeper_call *call);
/* In one transaction: makes the reader's node and deletes the writer's. */
struct zookeeper_request *zookeeper_ask_downgrade(struct zookeeper_call *call, const char *reader, const char *data,
                                                  const char *writer);
/* Waits for all answers. False: not all came until deadline_us; the requests may then only be read for their rc being
 * ZOPERATIONTIMEOUT where no answer came. */
bool zookeeper_call_wait(struct zookeeper_call *call, int64_t deadline_us);
/* Frees it, now or when its last answer comes. */
void zookeeper_call_end(struct zookeeper_call *call);
/* After the handle was closed: frees what never was answered. */
void zookeeper_calls_free(struct zookeeper *z);

/* ---- errors.c: what answers mean --------------------------------------------------------------------------------- */

/* A transaction was committed: as it was asked for, or as the refusal of one of its parts. */
bool zookeeper_committed(const struct zookeeper_request *transaction);
/* True for an answer that says nothing about the outcome. */
bool zookeeper_unknown(int rc);
/* Sets err and returns the code for an error of the server's. */
int zookeeper_refused(const struct zookeeper *z, int rc, const char *what, const char *path, struct dlock_error *err);
int zookeeper_silent(const struct zookeeper *z, struct dlock_error *err);

/* ---- watch.c: watches and wake-ups ------------------------------------------------------------------------------- */

/* A data watch on one node, or a watch on the children of one. In z->watches from its request until it has fired. */
struct zookeeper_watch {
    struct zookeeper *z;
    struct zookeeper_watch *next;
    char *name;  /* the lock's */
    bool before; /* somebody of ours stands right behind it */
    bool wanted; /* on the container of a lock that a client of ours may linger on: who comes wants it */
    bool shared; /* more than one operation counts on it */
    char path[];
};

enum { ZOOKEEPER_WATCHED_MAX = 512 << 10 };

struct zookeeper_wake {
    struct zookeeper_wake *next;
    enum dlock_wake_kind kind;
    char *name; /* NULL: of all */
};

enum zookeeper_watched { ZOOKEEPER_WATCH_THERE, ZOOKEEPER_WATCHES_FULL, ZOOKEEPER_WATCH_NO_MEMORY };

/* A new watch, entered, for zookeeper_ask_get, or for zookeeper_ask_queue where the path is a container's. NULL: *why.
 */
struct zookeeper_watch *zookeeper_watch_new(struct zookeeper *z, const char *path, const char *name, bool wanted,
                                            enum zookeeper_watched *why);
void zookeeper_watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context);
/* With the mutex: the server's answer to the request that sets it; `left`: nobody waits for that answer. Frees the
 * watch when it was not set. */
void zookeeper_watch_answered(struct zookeeper_watch *watch, int rc, bool left);
/* Without the mutex: the request that sets it cannot be sent. */
void zookeeper_watch_cancel(struct zookeeper_watch *watch);
/* Our node in the container at `path` is about to be deleted by us: nobody needs to hear who comes. */
void zookeeper_watch_forget(struct zookeeper *z, const char *path);
/* With the mutex: queues a wake-up. */
void zookeeper_wake_queue(struct zookeeper *z, enum dlock_wake_kind kind, const char *name);
void zookeeper_watches_free(struct zookeeper *z);
int zookeeper_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);

/* ---- address.c --------------------------------------------------------------------------------------------------- */

struct zookeeper_address {
    char *hosts; /* as the library takes them */
    int session_ms;
};

/* Whether the URI makes sense, whatever its servers are. */
int zookeeper_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Reads everything but credentials: z->address, base, where, acl, writer. EINVAL, ENOMEM. */
int zookeeper_address(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err);
/* Hands user:password and every auth= to the handle. */
int zookeeper_credentials(struct zookeeper *z, const struct dlock_uri *uri, int64_t deadline_us,
                          struct dlock_error *err);
/* reach.c: says why no session began, or, where something seemed to begin one, why nothing came of it, if it knows more
 * than err does. Returns EUNAVAILABLE. */
int zookeeper_explain(const struct zookeeper *z, const struct dlock_uri *uri, bool began, int64_t deadline_us,
                      struct dlock_error *err);

/* ---- node.c ------------------------------------------------------------------------------------------------------ */

/* How many containers there are on a path. */
size_t zookeeper_depth(const char *dir);
/* Asks for the container of a lock and, where `deep`, for its parents: as many requests as there are. */
void zookeeper_ask_containers(struct zookeeper_call *call, const char *dir, bool deep);
/* Deletes a node until that is answered: 0, ELOST (it was not there), EUNAVAILABLE, EAUTH, EPROTO. *dead as in
 * zookeeper_ready. */
int zookeeper_delete(struct zookeeper *z, const char *path, int64_t deadline_us, bool *dead, struct dlock_error *err);
/* The same in two steps: sends the request (NULL: out of memory), and takes its call over (NULL: sends it first). */
struct zookeeper_call *zookeeper_delete_begin(struct zookeeper *z, const char *path);
int zookeeper_delete_end(struct zookeeper *z, struct zookeeper_call *call, const char *path, int64_t deadline_us,
                         bool *dead, struct dlock_error *err);

/* ---- claims.c, attempt.c, renew.c, inspect.c --------------------------------------------------------------------- */

/* dlock_claim.state. PLACE is of the node that is the grant, QUEUE of the one in which a claim waits for a permit;
 * FENCE is the czxid of the grant's, or as long as there is none of the other. */
enum { ZOOKEEPER_SESSION, ZOOKEEPER_FENCE, ZOOKEEPER_PLACE, ZOOKEEPER_QUEUE };
#define ZOOKEEPER_SENT (UINT64_C(1) << 32)       /* a create was sent in this session */
#define ZOOKEEPER_KNOWN (UINT64_C(1) << 33)      /* it was answered: the low half is the node's sequence */
#define ZOOKEEPER_QUEUED (UINT64_C(1) << 34)     /* the node stays while the claim waits */
#define ZOOKEEPER_DOWNGRADED (UINT64_C(1) << 35) /* the fence is that of another node */
#define ZOOKEEPER_RIGHTFUL (UINT64_C(1) << 39)   /* the name was not in another use when the node was made */
#define ZOOKEEPER_GRANTED (UINT64_C(1) << 40)
#define ZOOKEEPER_LONELY (UINT64_C(1) << 41) /* nobody else stood in the queue */
#define ZOOKEEPER_WORN (UINT64_C(1) << 42)   /* no node is there before the container has been deleted: wear.c */
#define ZOOKEEPER_OF_KIND(kind) ((uint64_t)(kind) << 36)
#define ZOOKEEPER_KIND(word) ((enum zookeeper_kind)((word) >> 36 & 7))

/* The path of the node of a grant that has ZOOKEEPER_KNOWN, as one of this kind. */
void zookeeper_claim_path(const struct zookeeper *z, const struct dlock_claim *claim, enum zookeeper_kind kind,
                          char path[ZOOKEEPER_PATH_SIZE]);
/* The data of a claim's node. `since`: the czxid of the claim's node before, whose place it takes; else 0. */
void zookeeper_write_data(const struct zookeeper *z, const struct dlock_claim *claim, uint64_t since,
                          char data[ZOOKEEPER_DATA_SIZE]);
/* That `since`, from the data of a node; 0: there is none. */
uint64_t zookeeper_since(const char *data);
uint64_t zookeeper_session(struct zookeeper *z);

dlock_batch zookeeper_acquire, zookeeper_renew, zookeeper_release;
int zookeeper_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
int zookeeper_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err);
int zookeeper_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int zookeeper_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* ---- alone.c: locks that nobody else wants ----------------------------------------------------------------------- */

enum { ZOOKEEPER_ALONE = 64 };

/* A node of ours that had the queue for itself, and has gone. */
struct zookeeper_alone {
    char name[256]; /* the lock's */
    int32_t sequence;
    uint64_t czxid;
    bool good;
    unsigned doubts; /* so many more are not believed */
};

void zookeeper_alone_went(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid);
/* Whether the next node may turn out to be alone without a listing; and whether it has. */
bool zookeeper_alone_hopes(struct zookeeper *z, const char *name);
bool zookeeper_alone_still(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid);

/* ---- validity.c: how long the session is sure to live ------------------------------------------------------------ */

enum { ZOOKEEPER_TOUCHES = 8 };

struct zookeeper_validity {
    struct zookeeper_touch {
        int64_t sent_us, ripe_us; /* a request that tells that we live; a write sent from ripe_us on proves that the
                                   * leader knows */
    } touches[ZOOKEEPER_TOUCHES]; /* oldest first */
    size_t n;
    int64_t alive_us; /* the leader's clock for our session did not begin before */
};

/* With the mutex: the session is there; it was not asked for before sent_us. */
void zookeeper_began(struct zookeeper *z, int64_t sent_us);
/* With the mutex: the session has a new connection. */
void zookeeper_moved(struct zookeeper *z);
/* With the mutex: the server has just answered a request that was not sent before sent_us. */
void zookeeper_touched(struct zookeeper *z, int64_t sent_us);
/* With the mutex: when the youngest request that was answered was sent, as far as that is remembered. */
int64_t zookeeper_last_touch(const struct zookeeper *z);
/* A write that was not sent before sent_us is committed. */
void zookeeper_wrote(struct zookeeper *z, int64_t sent_us);
/* How long from `from_us` on the session is sure to live; may be negative. */
int64_t zookeeper_kept_ms(struct zookeeper *z, int64_t from_us);
/* After so long our server has told the leader of a sign of life. */
int64_t zookeeper_report_us(int session_ms);

/* ---- the connection ---------------------------------------------------------------------------------------------- */

/* One session, in memory of its own: the library's threads may outlive the connection in the core. */
struct zookeeper {
    struct zookeeper_address address;
    char base[ZOOKEEPER_BASE_SIZE]; /* "" or "/locks" */
    char where[64];                 /* for messages */
    const struct ACL_vector *acl;
    enum zookeeper_kind writer; /* what exclusive locks stand in the queue as */
    int event_fd;
    bool started;     /* the thread was */
    int64_t begun_us; /* not later than the session was asked for */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* state, and what follows up to closed */
    /* with the mutex */
    unsigned refs;     /* the connection's and the thread's */
    bool leaving;      /* the connection ends */
    bool closed;       /* the handle is gone */
    zhandle_t *handle; /* constant once zookeeper_open() has returned */
    int open_error;    /* errno: there is none */
    enum zookeeper_state state;
    bool was_connected;
    int64_t sign_us; /* when the last sign of life was sent */
    uint64_t session;
    int session_ms; /* as negotiated */
    struct zookeeper_validity validity;
    struct zookeeper_alone alone[ZOOKEEPER_ALONE];
    struct zookeeper_call *calls;
    struct zookeeper_watch *watches[ZOOKEEPER_BUCKETS];
    size_t watched_bytes;
    struct zookeeper_wake *wakes, **wakes_end;
    struct zookeeper_wake *woken; /* whose strings the core reads */
    bool look;                    /* a wake-up was lost for want of memory: everybody looks */
};

/* The core keeps a pointer for a connection. */
static inline struct zookeeper *zookeeper_of(void *conn) {
    return *(struct zookeeper **)conn;
}

/* ---- session.c --------------------------------------------------------------------------------------------------- */

/* NULL: out of memory, or of descriptors. */
struct zookeeper *zookeeper_new(struct dlock_error *err);
/* Begins the session at z->address: 0, EINVAL, ENOMEM, EUNAVAILABLE. It is not connected yet. */
int zookeeper_open(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err);
/* Ends the session, or leaves that to its thread where it takes long. Frees `z`, then or later. */
void zookeeper_leave_session(struct zookeeper *z);
int zookeeper_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);

#endif
