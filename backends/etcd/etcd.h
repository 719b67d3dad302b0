/* Internal header of the etcd backend, which talks to etcd 3.4 or newer through its JSON gateway.
 *
 * The layout is that of `etcdctl lock` and etcd's own recipes, so that their clients and dlock's share one queue. Each
 * claim has a key, `<base><name>/<lease in hex>`, followed by `/<slot>` for all but one of a client's simultaneous
 * claims. Later claims reuse the same keys, since etcd remembers each key until it is compacted, and scans all of them.
 * Keys are ordered by create revision: a claim holds its lock when no earlier key conflicts with it. The create
 * revision is the fence. The value is the mode, unless exclusive, and the token; such keys of other programs are
 * treated as exclusive. Keys that merely share a name's prefix are ignored.
 *
 * A grant lives as long as the lease that its key is attached to. When the lease has ended, or the members have a new
 * leader, the connection gets another lease and moves its keys to it. So every claim remembers its lease. lease.c
 * explains how long a lease is sure to live.
 *
 * One connection serves all threads. Each request has a libcurl handle with a connection that is kept alive. Each waiter has its own stream, which reports the deletion of the key before the waiter's (watch.c). One mutex
 * guards the members that change after connect, another one the streams; neither is held during a request.
 *
 * The files; each calls those below it only:
 *   etcd
 *   acquire  release  renew  inspect  check
 *   view  watch
 *   lease
 *   http
 *   errors
 *   reply  names  address
 */
#ifndef DLOCK_ETCD_H
#define DLOCK_ETCD_H

#include <dlock/backend_http.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    ETCD_BASE_SIZE = 512,                                                               /* the text before a name */
    ETCD_NAME_SIZE = 3 * 255 + 1,                                                       /* an encoded name */
    ETCD_KEY_SIZE = ETCD_BASE_SIZE + ETCD_NAME_SIZE + 1 + 16 + 1 + DLOCK_TOKEN_MAX + 1, /* a claim's key */
    ETCD_KEY64_SIZE = 4 * ETCD_KEY_SIZE / 3 + 8,                                        /* the same in base64 */
    ETCD_REPLY_MAX = 16 << 20,                                                          /* longest answer */
    ETCD_HOSTS = 64,
    ETCD_VALUE_SIZE = DLOCK_TOKEN_MAX + 32,
    ETCD_SLOTS = 1 << 16, /* most simultaneous claims of a connection */
    ETCD_CROWDED = 256,
    ETCD_BATCH = 64 /* claims in one transaction; a server takes 128 operations */
};

#define ETCD_FENCE_END (INT64_C(1) << 55)

/* Results of a request besides 0 and dlock's codes. They stay inside this backend: err never holds them, only dlock's
 * codes. */
enum { ETCD_LEASE_GONE = 1, ETCD_TOKEN_OLD = 2 };

struct etcd;

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct etcd_address {
    struct dlock_http_host hosts[ETCD_HOSTS]; /* these, and their number, guarded by the connection's mutex */
    size_t n;
    char base[ETCD_BASE_SIZE]; /* with its '/' at the end */
    char where[64];            /* for messages */
    int ttl_s;
    char *user, *password;
};

int etcd_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Reads the URI. Returns 0, EINVAL, ENOTSUP or ENOMEM. */
int etcd_address(struct etcd *z, const struct dlock_uri *uri, struct dlock_error *err);
void etcd_address_free(struct etcd_address *address);
/* Takes the members' addresses from the core, if it has found other ones; else has it look the names up, for a later
 * call. Does not wait for a name server. */
bool etcd_have_moved(struct etcd *z);

/* ---- names.c: keys ----------------------------------------------------------------------------------------------- */

/* Writes the prefix of the keys of a name or, with `end`, the first key after them. */
void etcd_prefix(const struct etcd_address *address, const char *name, bool end, char key[ETCD_KEY_SIZE]);
/* Adds `"key":…,"range_end":…` for all keys of a name. */
void etcd_add_range(struct dlock_text *text, const struct etcd *z, const char *name);
/* Writes the prefix of the keys of all names that begin with `start`. */
void etcd_start(const struct etcd_address *address, const char *start, char key[ETCD_KEY_SIZE]);
void etcd_key(const struct etcd_address *address, const struct dlock_claim *claim, char key[ETCD_KEY_SIZE]);
/* Writes the key that closes the claim's slot, so that no key is put for it any more. An acquire that was not answered may
 * be executed after the claim was released, because a leader that was stopped passes it on to the next one; its key would
 * stay in the queue as long as the lease lives. Or it may be executed after the claim's key was moved to another lease,
 * and would move it back. */
void etcd_closed_slot(const struct etcd_address *address, const struct dlock_claim *claim, char key[ETCD_KEY_SIZE]);
/* Returns whether `at` is such a key, and writes the first key after all of them. */
bool etcd_after_closed_slots(const struct etcd_address *address, const char *at, char key[ETCD_KEY_SIZE]);
/* Returns whether this is the key of a claim of that name. Other keys that begin with the name's prefix are not part of its
 * queue: they belong to locks of a path that begins with the name, or to other programs. */
bool etcd_is_key(const struct etcd_address *address, const char *name, const char *key);
/* Decodes the name in a key. False: the key is not below the base, or not a claim's. A name has one encoding: a key
 * with another one is no claim's, and may sort elsewhere than the name. */
bool etcd_name(const struct etcd_address *address, const char *key, char name[256]);
/* Writes the token in a key's value, or "lease:0x…" for a key of another program. */
void etcd_token(const struct etcd_address *address, const char *key, const char *value,
                char token[DLOCK_TOKEN_MAX + 1]);
/* Stores the lease and the slot that are in the name of a claim's key. */
void etcd_read_key(const struct etcd_address *address, const char *key, struct dlock_claim *claim);
/* The first writes the value of a claim's key, the second parses such a value. */
void etcd_value(const struct dlock_claim *claim, char text[ETCD_VALUE_SIZE]);
void etcd_mode(const char *text, enum dlock_mode *mode, uint32_t *limit);

/* ---- reply.c: answers -------------------------------------------------------------------------------------------- */

struct etcd_reply {
    json_t *root;
    json_t *body;     /* the server's answer, part of root */
    uint64_t term;    /* term of the leader, as known to the member that answered */
    int64_t revision; /* revision of the store */
    uint64_t cluster; /* 0: it does not say */
    /* of the request, also after an error: */
    bool repeated; /* a copy of it had no answer, and may have been executed */
    bool settled;  /* of an error: the request has taken effect already, or never will */
};

/* Returns a number; 0 if it is missing, since the gateway leaves zeros out; -1: it is no such number. */
int64_t etcd_int(const json_t *object, const char *key);
const char *etcd_string(const json_t *object, const char *key); /* NULL: none */
/* Parses n bytes. False: they are malformed; otherwise the caller has to end the reply. */
bool etcd_reply_read(struct etcd_reply *reply, const char *text, size_t n);
void etcd_reply_end(struct etcd_reply *reply);
/* Returns the answer to operation i of a transaction; NULL: there is none of this kind. */
json_t *etcd_response(const json_t *transaction, size_t i, const char *kind);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* Sets err for an error answer and returns a code, LEASE_GONE or TOKEN_OLD. */
int etcd_refused(const struct etcd *z, long status, const struct etcd_reply *reply, struct dlock_error *err);
/* True for a refusal after which the request is not executed any more. It may have been: the put that fills etcd is. */
bool etcd_settled(const struct etcd_reply *reply);
int etcd_nonsense(const struct etcd *z, const char *what, struct dlock_error *err);
int etcd_no_memory(struct dlock_error *err);
int etcd_unsettled(const struct etcd *z, struct dlock_error *err); /* the leader changes until the deadline */
int etcd_stranger(const struct dlock_http_host *host,
                  struct dlock_error *err); /* of another cluster than the members before */
/* Returns the code of a request that cannot fail with LEASE_GONE or TOKEN_OLD: both become EPROTO, also in err. */
int etcd_code(int rc, struct dlock_error *err);

/* ---- http.c: requests -------------------------------------------------------------------------------------------- */

enum etcd_repeat { ETCD_ONCE, ETCD_REPEAT }; /* after no answer, may it be sent to another member? */

/* Sends a request and frees the body. Returns 0 (the caller has to end `reply`), a code or LEASE_GONE; then of `reply`
 * only `repeated` and `settled` are set; the latter says nothing about a request that may have been sent to several
 * members. */
int etcd_post(struct etcd *z, const char *path, struct dlock_text *body, enum etcd_repeat repeat, int64_t deadline_us,
              struct etcd_reply *reply, struct dlock_error *err);
/* Sets up a handle for a request to a member. The caller frees the headers and *connect. NULL: out of memory. */
struct curl_slist *etcd_prepare(struct etcd *z, CURL *easy, const struct dlock_http_host *host, const char *path,
                                struct curl_slist **connect);
int etcd_authenticate(struct etcd *z, int64_t deadline_us, struct dlock_error *err);
/* Stores the address of the member in use, and returns its number: its place in the URI, plus a multiple of ETCD_HOSTS
 * that grows with each change of the addresses. */
size_t etcd_member(struct etcd *z, struct dlock_http_host *host);
size_t etcd_members(struct etcd *z);
/* Makes requests ask this member first, unless the addresses have changed since it had this number. */
void etcd_use_member(struct etcd *z, size_t number);
void etcd_requests_free(struct etcd *z);

/* ---- lease.c ----------------------------------------------------------------------------------------------------- */

/* A snapshot of the lease. */
struct etcd_lease {
    int64_t id;      /* 0: there is no lease */
    int64_t sent_us; /* taken before sending the last request that renewed it and was answered */
    int64_t ttl_ms;
    uint64_t term; /* in which it was granted, and renewed since */
};

/* Stores a lease, after granting it, or renewing it when `1 / share` of its TTL has passed. Returns 0 or a code. */
enum { ETCD_KEEP_SHARE = 3 };
int etcd_lease(struct etcd *z, int share, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err);
/* Renews the lease whatever its age. If it has ended or is from another term, stores a new one. Returns 0 or a code. */
int etcd_keep_alive(struct etcd *z, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err);
/* Stores a slot, from 1 up, that no other claim of the lease in the key's name has; 0: none is left. */
void etcd_take_slot(struct etcd *z, struct dlock_claim *claim);
/* Gives a slot back when its key is gone. False: an unanswered request may still put or delete that key; the slot is
 * not used again in this lease, and in the former case has to be closed. */
bool etcd_give_slot(struct etcd *z, struct dlock_claim *claim);
/* Forgets a lease that has ended. */
void etcd_lease_gone(struct etcd *z, int64_t id);
/* Returns how long after `from_us` the lease is sure to live. The proof is a request that was sent after `lease` was
 * known, and was answered in `term`. 0: it proves nothing. */
int64_t etcd_kept_ms(const struct etcd_lease *lease, uint64_t term, int64_t from_us);
/* True if the lease may still live, by this host's clock. */
bool etcd_lease_lives(struct etcd *z);
struct etcd_lease etcd_lease_known(struct etcd *z);

/* ---- view.c: the queue ------------------------------------------------------------------------------------------- */

/* Indexes of dlock_claim.state: the lease that the claim's key is attached to; the key's create revision where it is
 * known; flags, and the slot above them; the lease in the key's name, which is the one that it was put in. */
enum { ETCD_LEASE, ETCD_REVISION, ETCD_FLAGS, ETCD_NAMED };
enum { ETCD_SLOT_SHIFT = 8 };
enum {
    ETCD_QUEUED = 1,  /* the claim's key stays while it waits */
    ETCD_GRANTED = 2, /* the claim was told that it is granted */
    ETCD_WRITER = 4,  /* the claim's key says that it is exclusive */
    ETCD_UNSURE = 8,  /* a request that puts the claim's key was not answered */
    ETCD_DEEP = 16,   /* other keys begin like those of the name: a view reads all of them */
    ETCD_USED_UP = 32 /* a request that deletes the claim's key was not answered */
};

static inline uint64_t etcd_slot(const struct dlock_claim *claim) {
    return claim->state[ETCD_FLAGS] >> ETCD_SLOT_SHIFT;
}

struct etcd_view {
    int64_t own; /* the create revision of the claim's key; 0: there is no key */
    bool blocked;
    bool cut;            /* the keys before the claim's were not shown: repeat the query with its revision */
    bool deep;           /* keys that belong to no claim were shown instead: repeat the query with ETCD_DEEP */
    int64_t need;        /* permits: how many keys have to go first */
    const char *blocker; /* the key that has to go first, in base64; not the view's own; NULL for permits */
    bool misused;        /* the name is in use in another way, as follows */
    enum dlock_mode used;
    uint32_t used_limit;
};

/* The first adds operations that read the claim's key and the one that blocked it at the revision `seen`. The second
 * reads the answers, and returns whether nothing has changed since. */
void etcd_add_glance(struct dlock_text *text, const char *key, const char *blocker64);
bool etcd_read_glance(const json_t *transaction, const struct dlock_claim *claim, int64_t seen);
/* The number of operations that etcd_add_view() adds to a transaction, to show a claim's place. */
enum { ETCD_VIEW_OPERATIONS = 3 };
void etcd_add_view(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, const char *key);
/* The first adds a comparison that fails once the claim's slot is closed, the second an operation that closes it. The
 * lease is one that lives longer than any lease in which the slot's key may still be put. */
void etcd_add_if_open(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim);
void etcd_add_close(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, int64_t lease);
/* Adds a comparison that fails unless the claim's key is the one that it was granted. */
void etcd_add_if_there(struct dlock_text *text, const struct dlock_claim *claim, const char *key);
/* Adds an operation that puts a claim's key. */
void etcd_add_put(struct dlock_text *text, const struct dlock_claim *claim, const char *key, int64_t lease);
/* The first adds an operation that puts a claim's key, which is there, into this lease, with the claim's value. The key
 * keeps its place. The second reads the answer, and stores the lease in the claim. */
void etcd_add_move(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, const char *key,
                   int64_t lease);
enum etcd_moved {
    ETCD_MOVED,
    ETCD_GONE,     /* there is no such key any more */
    ETCD_ELSEWHERE /* the key is in another lease than was known, and perhaps has an older value: move it from there */
};
enum etcd_moved etcd_read_move(const json_t *nested, struct dlock_claim *claim, int64_t lease);
/* Adds a transaction that deletes the key of a claim, but not a later claim's key of the same name. */
void etcd_add_delete(struct dlock_text *text, const struct dlock_claim *claim, const char *key);
/* Returns how many keys it has deleted; -1: the answer is malformed. */
int64_t etcd_deleted(const json_t *transaction);
/* Reads from a key's value how its claim uses the name. */
void etcd_mode_of(const json_t *kv, enum dlock_mode *mode, uint32_t *limit);
/* Reads the answers to the operations of etcd_add_view(), starting with number `at`. False: they are malformed. */
bool etcd_read_view(const struct etcd *z, const json_t *transaction, size_t at, const struct dlock_claim *claim,
                    const char *key, struct etcd_view *view);

/* ---- watch.c ----------------------------------------------------------------------------------------------------- */

/* Queues a LOOK for the claim's name once the view may have changed since `revision`. False: it cannot, and the waiter
 * has to poll. A name has one stream, that of the last waiter to ask, since the core lets one waiter per name ask at a
 * time. */
bool etcd_watch(struct etcd *z, const struct dlock_claim *claim, const struct etcd_view *view, int64_t revision);
/* What a waiter knows of its place while it has a stream. */
struct etcd_glance {
    int64_t seen;      /* the revision of its last look */
    int64_t silent_us; /* for how long the stream has told nothing since then; INT64_MAX: it has, or may not work */
    char blocker[ETCD_KEY64_SIZE]; /* the key that blocked it then, in base64; "": a number of keys did */
};
/* Writes it. False: the claim has no stream. */
bool etcd_watched(struct etcd *z, const struct dlock_claim *claim, struct etcd_glance *glance);
/* Ends the claim's stream, if it has one. A stream of another claim of the name continues. */
void etcd_unwatch(struct etcd *z, const struct dlock_claim *claim);
int etcd_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int etcd_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int etcd_watches_begin(struct etcd *z, struct dlock_error *err);
void etcd_watches_free(struct etcd *z);

/* ---- the operations ---------------------------------------------------------------------------------------------- */

dlock_batch etcd_acquire, etcd_renew, etcd_release;
int etcd_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int etcd_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int etcd_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err);
int etcd_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int etcd_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

/* ---- the connection ---------------------------------------------------------------------------------------------- */

struct etcd {
    const struct dlock_peer *peer;
    struct etcd_address address;
    struct dlock_http http;
    atomic_bool crowded[ETCD_CROWDED]; /* by a name's hash: the last acquire of it found other keys */
    atomic_uint_least64_t cluster;     /* the one that has answered; 0: none has */
    atomic_bool full;                  /* the last refusal was for lack of space, or by an overloaded server */
    atomic_bool astray;                /* no member has answered since one did not */
    pthread_mutex_t mutex;
    /* guarded by the mutex: */
    size_t host;       /* the number of the member in use */
    int64_t sought_us; /* when the core was last asked for addresses */
    char *token;       /* the user's authentication token, or NULL */
    int64_t slots_lease;
    unsigned char slots[ETCD_SLOTS / 8]; /* bits: which slots of that lease are taken */
    struct dlock_http_request *idle;     /* with their connections */
    struct etcd_lease lease;
    /* about the streams, guarded by watch_mutex: */
    pthread_mutex_t watch_mutex;
    CURLM *multi;
    int poll_fd, timer_fd, event_fd;
    struct etcd_watch *watches;
    size_t n_watches;
    int64_t failed_us; /* when a stream last ended without any message */
    char woken[256];   /* the name of the last wake-up, which the core reads */
};

/* The core's connection is a pointer to this struct. */
static inline struct etcd *etcd_of(void *conn) {
    return *(struct etcd **)conn;
}

/* Returns what a failed request means for the connection: EUNAVAILABLE if the lease has ended as well, so that the core
 * resolves the members' names again; otherwise 0. */
static inline int etcd_verdict(struct etcd *z, int rc) {
    return rc == DLOCK_EUNAVAILABLE && !etcd_lease_lives(z) ? DLOCK_EUNAVAILABLE : 0;
}

#endif
