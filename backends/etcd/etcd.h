/* Locks in etcd 3.4 and newer, by its JSON gateway: what the parts of this backend share.
 *
 * The layout is that of `etcdctl lock` and etcd's own recipes, so that they and we stand in one queue: a key for each
 * claim, `<base><name>/<lease in hex>`, here with `/<slot>` behind it where a client has several claims at a time. The
 * next claim takes the same key again: etcd remembers each key until it is compacted, and looks at all of them.
 * Keys stand in the order of their create revisions: a claim has its lock when nothing before it is in its way. That
 * revision is its fence. The value is the mode, unless exclusive, and the token; other programs' keys count as exclusive.
 *
 * A grant lives as long as the lease does. A lease of etcd's that has ended may be followed by another one on the same
 * connection: every claim knows the lease that it was made in. How long one is sure to live: lease.c.
 *
 * One connection serves every thread. Each request takes a channel, a handle of libcurl's with a connection that is
 * kept alive. A waiter has a stream of its own that tells when the key before it goes (watch.c). One mutex guards the
 * members that change after connect, another one the streams; neither is held while a request is on its way.
 *
 * The files; each calls those below it only:
 *   etcd
 *   acquire  release  renew  inspect  check
 *   view  watch
 *   lease
 *   http
 *   sockets  errors
 *   reply  names  address
 *   text
 */
#ifndef DLOCK_ETCD_H
#define DLOCK_ETCD_H

#include <dlock/backend_socket.h>

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    ETCD_BASE_SIZE = 512,                                                               /* of what precedes a name */
    ETCD_NAME_SIZE = 3 * 255 + 1,                                                       /* of an encoded name */
    ETCD_KEY_SIZE = ETCD_BASE_SIZE + ETCD_NAME_SIZE + 1 + 16 + 1 + DLOCK_TOKEN_MAX + 1, /* of a claim's key */
    ETCD_REPLY_MAX = 16 << 20,                                                          /* no answer is longer */
    ETCD_HOSTS = 64,
    ETCD_VALUE_SIZE = DLOCK_TOKEN_MAX + 32,
    ETCD_SLOTS = 1 << 16, /* claims of a connection at a time */
    ETCD_SOCKETS = 1024,
    ETCD_CROWDED = 256,
    ETCD_BATCH = 64 /* claims in one transaction; a server takes 128 operations */
};

#define ETCD_FENCE_END (INT64_C(1) << 55)

/* A request's result besides 0 and dlock's codes. Such a result stays in this backend: err has a code of dlock's. */
enum { ETCD_LEASE_GONE = 1, ETCD_TOKEN_OLD = 2 };

struct etcd;

/* ---- text.c: texts that grow ------------------------------------------------------------------------------------- */

struct etcd_text {
    char *at; /* NUL-terminated; NULL while nothing is in it */
    size_t n, room;
    bool failed; /* no memory: it is not whole */
};

DLOCK_PRINTF(2, 3) void etcd_add(struct etcd_text *text, const char *format, ...);
void etcd_add_bytes(struct etcd_text *text, const void *bytes, size_t n);
/* As JSON: base64 in quotes. */
void etcd_add_base64(struct etcd_text *text, const char *bytes);
/* A JSON string. */
void etcd_add_string(struct etcd_text *text, const char *string);
void etcd_text_free(struct etcd_text *text);
/* Decodes into `out`, NUL-terminated; false: not base64, too long, or it has a NUL in it. */
bool etcd_base64(const char *text, char *out, size_t size);

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct etcd_address {
    struct etcd_host {
        char url[320];     /* "https://name:2379" */
        char connect[128]; /* "::address:port", as libcurl takes it */
    } hosts[ETCD_HOSTS];
    size_t n;
    char base[ETCD_BASE_SIZE]; /* with its '/' at the end */
    char where[64];            /* for messages */
    int ttl_s;
    bool tls, insecure;
    char *ca, *cert, *key, *user, *password;
};

int etcd_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* 0, EINVAL, ENOMEM. */
int etcd_address(struct etcd_address *address, const struct dlock_uri *uri, struct dlock_error *err);
void etcd_address_free(struct etcd_address *address);

/* ---- names.c: keys ----------------------------------------------------------------------------------------------- */

/* The prefix that the keys of a name have, or with `end` the first key behind them. */
void etcd_prefix(const struct etcd_address *address, const char *name, bool end, char key[ETCD_KEY_SIZE]);
/* Adds `"key":…,"range_end":…` for all keys of a name. */
void etcd_add_range(struct etcd_text *text, const struct etcd *z, const char *name);
/* The prefix of every name that begins with `start`. */
void etcd_start(const struct etcd_address *address, const char *start, char key[ETCD_KEY_SIZE]);
void etcd_key(const struct etcd_address *address, const struct dlock_claim *claim, int64_t lease,
              char key[ETCD_KEY_SIZE]);
/* The name in a key; false: it is not below the base. */
bool etcd_name(const struct etcd_address *address, const char *key, char name[256]);
/* The token in a key's value, or "lease:0x…" for another program's. */
void etcd_token(const struct etcd_address *address, const char *key, const char *value,
                char token[DLOCK_TOKEN_MAX + 1]);
/* The number behind the lease in a key; 0: there is none. */
uint64_t etcd_slot_of(const char *key);
/* The value of a claim's key, and what such a value says. */
void etcd_value(const struct dlock_claim *claim, char text[ETCD_VALUE_SIZE]);
void etcd_mode(const char *text, enum dlock_mode *mode, uint32_t *limit);

/* ---- reply.c: answers -------------------------------------------------------------------------------------------- */

struct etcd_reply {
    json_t *root;
    json_t *body;     /* in it: what the server answers */
    uint64_t term;    /* of its leader, as the answering member knows it */
    int64_t revision; /* of its store */
};

/* 0 where it is missing, as the gateway leaves zeros out; -1: no such number. */
int64_t etcd_int(const json_t *object, const char *key);
const char *etcd_string(const json_t *object, const char *key); /* NULL: none */
/* Reads a text of n bytes; false: it makes no sense. The caller ends it. */
bool etcd_reply_read(struct etcd_reply *reply, const char *text, size_t n);
void etcd_reply_end(struct etcd_reply *reply);
/* The answer to operation i of a transaction; NULL: there is none of that kind. */
json_t *etcd_response(const json_t *transaction, size_t i, const char *kind);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* An answer that is none: sets err and returns a code, LEASE_GONE or TOKEN_OLD. */
int etcd_refused(const struct etcd *z, long status, const struct etcd_reply *reply, struct dlock_error *err);
int etcd_nonsense(const struct etcd *z, const char *what, struct dlock_error *err);
int etcd_no_memory(struct dlock_error *err);
/* LEASE_GONE. */
int etcd_lease_ended(const struct etcd *z, struct dlock_error *err);
/* The code of a request that LEASE_GONE or TOKEN_OLD is no answer to: it is, and err has, EPROTO then. */
int etcd_code(int rc, struct dlock_error *err);
/* libcurl's code, of a request to a member. A stranger can be connected to, and has never answered. */
int etcd_failed(const struct etcd *z, const struct etcd_host *host, bool stranger, CURLcode code, const char *why,
                struct dlock_error *err);

/* ---- sockets.c: libcurl's descriptors ---------------------------------------------------------------------------- */

/* Has libcurl open and close sockets here. */
void etcd_sockets(struct etcd *z, CURL *easy);
void etcd_sockets_abandon(struct etcd *z);
/* Between these no SIGPIPE reaches the process: OpenSSL writes without asking for that. */
struct etcd_signals {
    sigset_t before;
    bool pending;
};
void etcd_signals_off(const struct etcd *z, struct etcd_signals *signals);
void etcd_signals_on(const struct etcd *z, const struct etcd_signals *signals);

/* ---- http.c: requests -------------------------------------------------------------------------------------------- */

enum etcd_repeat { ETCD_ONCE, ETCD_REPEAT }; /* whether it may be sent to a second member after no answer */

/* Sends a request. 0: `reply` is to be ended; else a code, LEASE_GONE. Ends the body. */
int etcd_post(struct etcd *z, const char *path, struct etcd_text *body, enum etcd_repeat repeat, int64_t deadline_us,
              struct etcd_reply *reply, struct dlock_error *err);
/* Sets up a handle for a request to a member; the headers are the caller's to free. NULL: out of memory. */
struct curl_slist *etcd_prepare(struct etcd *z, CURL *easy, const struct etcd_host *host, const char *path,
                                struct curl_slist **connect);
int etcd_authenticate(struct etcd *z, int64_t deadline_us, struct dlock_error *err);
const struct etcd_host *etcd_member(struct etcd *z, size_t *number);
void etcd_channels_free(struct etcd *z);

/* ---- lease.c ----------------------------------------------------------------------------------------------------- */

/* The lease, as it was known at one moment. */
struct etcd_lease {
    int64_t id;      /* 0: there is none */
    int64_t sent_us; /* of the last answered request that set it anew, before it was sent */
    int64_t ttl_ms;
    uint64_t term;
};

/* A lease that will live for a while: 0 or a code. */
int etcd_lease(struct etcd *z, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err);
/* Sets it anew whatever its age: 0, LEASE_GONE, or a code. */
int etcd_keep_alive(struct etcd *z, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err);
/* A slot that no other claim of the lease has, plus 1; 0: there is none left. */
uint64_t etcd_take_slot(struct etcd *z, int64_t lease);
/* Gives it back, once its key has gone; false: a request may still be on its way that puts it. */
bool etcd_give_slot(struct etcd *z, struct dlock_claim *claim);
/* Forgets a lease that has ended. */
void etcd_lease_gone(struct etcd *z, int64_t id);
/* How long from `from_us` on it is sure to live, as a request shows that was sent after `lease` was known and was
 * answered in `term`; 0: that shows nothing. */
int64_t etcd_kept_ms(const struct etcd_lease *lease, uint64_t term, int64_t from_us);
/* Whether it may still live, by our clock. */
bool etcd_lease_lives(struct etcd *z);
struct etcd_lease etcd_lease_known(struct etcd *z);

/* ---- view.c: the queue ------------------------------------------------------------------------------------------- */

/* dlock_claim.state: the lease that its key is in, the key's create revision where it is known, flags. */
enum { ETCD_LEASE, ETCD_REVISION, ETCD_FLAGS, ETCD_SLOT };
enum {
    ETCD_QUEUED = 1,  /* its key stays while it waits */
    ETCD_GRANTED = 2, /* it was told so */
    ETCD_WRITER = 4,  /* its key says that it is exclusive */
    ETCD_UNSURE = 8   /* a request that puts its key was not answered */
};

struct etcd_view {
    int64_t own; /* the create revision of the claim's key; 0: it is not there */
    bool blocked;
    bool cut;            /* the keys before it were not shown: ask again, now that its revision is known */
    int64_t need;        /* of permits: so many keys have to go first */
    const char *blocker; /* the key, in base64, that has to go first; NULL for permits. Lives as long as the reply */
    bool misused;        /* the name is in use as something else: */
    enum dlock_mode used;
    uint32_t used_limit;
};

/* Adds the operations of a transaction that show a claim's place: */
enum { ETCD_VIEW_OPERATIONS = 3 };
void etcd_add_view(struct etcd_text *text, const struct etcd *z, const struct dlock_claim *claim, const char *key);
/* Adds a transaction that deletes the key of a claim, and nobody else's who has come to the same key since. */
void etcd_add_delete(struct etcd_text *text, const struct dlock_claim *claim, const char *key);
/* How many it has deleted; -1: that makes no sense. */
int64_t etcd_deleted(const json_t *transaction);
/* … and reads their answers, from number `at` on. False: they make no sense. */
bool etcd_read_view(const json_t *transaction, size_t at, const struct dlock_claim *claim, const char *key,
                    struct etcd_view *view);

/* ---- watch.c ----------------------------------------------------------------------------------------------------- */

/* Wakes `name` when the view may have changed since `revision`. False: nobody will; ask again soon. */
bool etcd_watch(struct etcd *z, const char *name, const struct etcd_view *view, int64_t revision);
/* Nobody waits for the name any more. */
void etcd_unwatch(struct etcd *z, const char *name);
int etcd_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int etcd_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int etcd_watches_begin(struct etcd *z, struct dlock_error *err);
void etcd_watches_free(struct etcd *z);

/* ---- the operations ---------------------------------------------------------------------------------------------- */

dlock_batch etcd_acquire, etcd_renew, etcd_release;
int etcd_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int etcd_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err);
int etcd_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int etcd_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

/* ---- the connection ---------------------------------------------------------------------------------------------- */

struct etcd {
    struct etcd_address address;
    atomic_int sockets[ETCD_SOCKETS];  /* descriptor + 1, or 0 */
    atomic_bool crowded[ETCD_CROWDED]; /* by a name's hash: others were there when it was asked for last */
    pthread_mutex_t mutex;
    /* with the mutex */
    size_t host; /* the member in use */
    char *token; /* of the user, or NULL */
    int64_t slots_lease;
    unsigned char slots[ETCD_SLOTS / 8]; /* bits: which keys of that lease are in use */
    struct etcd_channel *channels;
    struct etcd_lease lease;
    /* of the streams, with a mutex of their own */
    pthread_mutex_t watch_mutex;
    CURLM *multi;
    int poll_fd, timer_fd, event_fd;
    struct etcd_watch *watches;
    size_t n_watches;
    int64_t failed_us; /* when a stream ended that had brought nothing */
    char woken[256];   /* the name that the core reads */
};

/* The core keeps a pointer for a connection. */
static inline struct etcd *etcd_of(void *conn) {
    return *(struct etcd **)conn;
}

/* What a failed request means to a claim's connection: it is over when the lease is, so that the core looks up the
 * members' names again. 0 or EUNAVAILABLE. */
static inline int etcd_verdict(struct etcd *z, int rc) {
    return rc == DLOCK_EUNAVAILABLE && !etcd_lease_lives(z) ? DLOCK_EUNAVAILABLE : 0;
}

#endif
