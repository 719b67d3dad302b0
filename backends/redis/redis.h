/* The redis backend: one connection, and what its files share.
 *
 * The files; each calls those below it only:
 *   redis
 *   cluster
 *   cluster_claims  cluster_inspect  cluster_listen
 *   nodes
 *   map
 *   inspect
 *   claims
 *   pipeline  listen  check  greeting
 *   incarnation  scripts  rights  master
 *   slots  sentinel
 *   info
 *   wire  address */
#ifndef DLOCK_REDIS_H
#define DLOCK_REDIS_H

#include <dlock/backend_stream.h>

#include <hiredis.h>
#include <stdint.h>

/* Longest name and longest key of a lock: each byte may be encoded as three. */
#define REDIS_NAME_MAX 255
#define REDIS_KEY_MAX (3 * REDIS_NAME_MAX)
/* Most arguments of a script. */
#define REDIS_MAX_ARGS 7

/* Longest name of a host, and the default port. */
#define REDIS_HOST_MAX 255
#define REDIS_PORT 6379

/* Encoded in keys besides '%': Redis Cluster computes the hash slot from text in braces. */
#define REDIS_SPECIAL "{}"

/* Number of entries in redis.counts. */
#define REDIS_COUNTS 1024

/* The name of the backend, and of its main scheme; and that scheme's alias, which is the same with each ending. */
#if DLOCK_STREAM_IS_TLS
#define REDIS_NAME "rediss"
#define REDIS_ALIAS "valkeys"
#else
#define REDIS_NAME "redis"
#define REDIS_ALIAS "valkey"
#endif

/* The scheme for Sentinels; at how many addresses they are asked at most; their default port. */
#define REDIS_SENTINEL REDIS_NAME "+sentinel"
#define REDIS_SENTINELS 16
#define REDIS_SENTINEL_PORT 26379

/* The scheme for clusters; the number of hash slots of a cluster; how many hash tags are candidates for a node's own
 * tag (channel.lua). */
#define REDIS_CLUSTER REDIS_NAME "+cluster"
#define REDIS_SLOTS 16384
#define REDIS_TAGS 256

/* Fences are below this (<dlock/backend.h>). */
#define REDIS_FENCE_END (INT64_C(1) << 55)

/* The first three also exist for several locks in one call, from REDIS_MANY on. */
enum redis_script {
    REDIS_ACQUIRE,
    REDIS_RENEW,
    REDIS_RELEASE,
    REDIS_BREAK,
    REDIS_INSPECT,
    REDIS_MANY,
    REDIS_SCRIPTS = REDIS_MANY + REDIS_RELEASE + 1
};

/* An error reply by which a member of a cluster says where a slot is. */
struct redis_move {
    enum { REDIS_MOVED, REDIS_ASK, REDIS_TRYAGAIN } kind;
    unsigned slot;                 /* slot, host and port are unknown for TRYAGAIN */
    char host[REDIS_HOST_MAX + 1]; /* as the cluster announces it; "": this member's */
    int port;
};
#define REDIS_MOVES 16

/* A connection's state as one to a member of a cluster. */
struct redis_member {
    char tag[12];   /* hash tag of keys about the node itself, in one of its slots; "": none known */
    char place[64]; /* prefix of this node's channels (channel.lua) */
    bool asking;    /* requests are for slots that are being moved to this node */
    struct redis_move moves[REDIS_MOVES]; /* the first such replies; the calls that got them have no other answer */
    size_t n_moves;
};

/* The master that the Sentinels have named. With a quarantine they are asked regularly. */
struct redis_master {
    char host[REDIS_HOST_MAX + 1]; /* a name or an address */
    int port;
    int quorum;
    bool strict;    /* a majority of them has to confirm it regularly (master.c) */
    char epoch[24]; /* if strict: epoch of the failover that made it the master; else "" */
};
/* The part of a lease that cannot be used, since the server has to be confirmed as the master (master.c). */
#define REDIS_SURE_MS 200

struct redis {
    const struct dlock_peer *peer;
    struct redis_member *member; /* NULL: not a member of a cluster */
    int version;                 /* major version */
    redisReader *reader;         /* NULL: not connected */
    struct dlock_stream stream;  /* blocks for a moment at most; open while there is a reader */
    bool impatient;              /* the descriptor must not be allowed to block */
    bool drained; /* the last recv() emptied the socket; the descriptor polls readable when there is more */
    bool broken;  /* an answer is missing or malformed: no further answer can be trusted */
    char *out;    /* requests: `written` of out_size bytes are used, and the socket has taken `sent` */
    size_t out_size, written, sent;
    size_t unanswered;                       /* requests whose replies have not been read */
    size_t elements, received;               /* array elements, and bytes, received of the current reply */
    const redisReplyObjectFunctions *parser; /* hiredis' functions */
    redisReplyObjectFunctions bounded;       /* the same, with limited arrays */
    char where[160];                         /* the server, for messages */

    struct {
        uint32_t name, until_ms;   /* hash of the name; local clock in ms, which may wrap */
    } counts[REDIS_COUNTS];        /* names whose fences may be incremented (acquire.lua), by that hash */
    int64_t begun_us;              /* when a call was sent whose answer the next pipeline reads; 0: none was */
    enum redis_script begun;       /* the script that it calls */
    bool queued;                   /* the last acquire found the lock held, and was put into its queue */
    int64_t heard_until_us;        /* until then the server is assumed to know that this client listens; 0: it is not */
    char fences[24];               /* how long fences are kept, in ms, an argument of scripts; "": it may be left out */
    int64_t quarantine_until_us;   /* nothing is granted before this, by the local clock; 0: no quarantine */
    struct dlock_error unrecorded; /* why the server cannot record the quarantine, which then lasts; code 0: it can */
    int64_t check_us;              /* when to check next whether the server is still the same master; local clock */
    bool asked;                    /* that question precedes the calls being written */
    int64_t asked_us;              /* when it was written last */
    char waits[REDIS_KEY_MAX + 64], asks[REDIS_KEY_MAX + 64]; /* arguments of acquire.lua with a quarantine */

    struct redis_master master;
    struct redis_sentinels *sentinels; /* NULL: no Sentinels */

    char channel[96];              /* the channel of the subscription */
    char name[REDIS_NAME_MAX + 1]; /* name and token of the last wake-up */
    char token[DLOCK_TOKEN_MAX + 1];
};

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct redis_address {
    const char *socket; /* path of a Unix socket; else NULL */
    const struct dlock_uri *uri;
    const char *user, *password; /* NULL: none */
    int db;
    int64_t fences_ms;                             /* how long fences are kept; 0: the default */
    const char *master;                            /* name of the master if the hosts are Sentinels; else NULL */
    const char *sentinel_user, *sentinel_password; /* NULL: none */
};

/* True if the URI's scheme has this ending, such as "+cluster". */
bool redis_scheme_ends(const struct dlock_uri *uri, const char *ending);

/* True if a text can be the name or the address of a host. */
bool redis_is_host(const char *text);

/* Reads everything of the URI but the host. Returns 0 or EINVAL. */
int redis_address(const struct dlock_uri *uri, struct redis_address *address, struct dlock_error *err);
/* The backend's `accepts`. */
int redis_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- wire.c: the socket, deadlines, requests and replies --------------------------------------------------------- */

/* Connects the socket. Returns 0, EUNAVAILABLE, EINVAL, ENOMEM, and over TLS EAUTH or EPROTO. */
int redis_dial(struct redis *redis, const struct redis_address *address, const struct dlock_host *host,
               int64_t deadline_us, struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void redis_hang_up(struct redis *redis);

/* Closes the descriptors in a forked child. */
void redis_abandon(struct redis *redis);

/* Returns a parser that limits the size of replies; NULL: out of memory. */
redisReader *redis_new_reader(struct redis *redis);

/* Frees the buffer of requests. */
void redis_forget_requests(struct redis *redis);

/* Appends a request to the bytes that the next redis_reply() sends. A lack of memory breaks the connection. */
void redis_request(struct redis *redis, size_t n, const char *const *words, const size_t *lengths);

/* The same with NUL-terminated words; the last argument is NULL. */
void redis_command(struct redis *redis, ...);

/* In the error of a connection that the server has ended. */
#define REDIS_CLOSED "the server closed the connection"

/* Sends what is unsent and waits for the reply to the next unanswered request, to be freed with freeReplyObject().
 * Returns 0, EUNAVAILABLE, EPROTO, and over TLS EAUTH. */
int redis_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err);

/* Sends what is unsent, as far as that does not block. Returns 0, EUNAVAILABLE, and over TLS EAUTH. */
int redis_push(struct redis *redis, struct dlock_error *err);

/* Reads one reply that has arrived, without blocking. Returns 1, 0 (there is none), EUNAVAILABLE or EPROTO. */
int redis_poll_reply(struct redis *redis, redisReply **reply, struct dlock_error *err);

/* Reports a malformed answer, and breaks the connection. Returns EPROTO. */
int redis_nonsense(struct redis *redis, const char *what, struct dlock_error *err);

/* True if an error reply is of this kind ("NOSCRIPT"), either directly or as the reason why a script failed. */
bool redis_error_is(const redisReply *reply, const char *kind);

/* True if an error reply is about data of one name that dlock did not write, not about the server. */
bool redis_is_foreign_data(const redisReply *reply);

/* Returns the code for an error reply, with the server's reason in `err`. */
int redis_refused(const struct redis *redis, const redisReply *reply, struct dlock_error *err);

/* ---- scripts.c: the .lua files ----------------------------------------------------------------------------------- */

/* Returns the SHA-1 of a script, for EVALSHA. It is computed at build time, so that a script that the server has need
 * not be sent. */
const char *redis_sha1(int script);

/* The first appends a request that loads a script into the server; the second reads the reply to it. */
void redis_load(struct redis *redis, int script);
int redis_loaded(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* True if a name is its own key, without encoding, as most are; may be false for some that are. */
bool redis_is_plain(const char *name);

/* Writes the name whose lock has this key into `name` (REDIS_NAME_MAX + 1 bytes). False: it is not the key of a
 * lock. */
bool redis_decode_key(const char *key, size_t length, char *name);

/* The words that a lock's key holds for joint grants (library.lua); the limit follows the second. */
#define REDIS_KIND_SHARED "dlock:shared"
#define REDIS_KIND_PERMITS "dlock:permits:"

/* Reads the limit in a kind. False: it is not a kind of permits. */
bool redis_limit_of(const char *kind, uint32_t *limit);

/* ---- slots.c: hash slots, and answers that point to them ---------------------------------------------------------- */

/* Returns the hash slot of a key without a hash tag, or of a hash tag. */
unsigned redis_slot_of(const char *key, size_t length);

/* True if a reply is an error that says that the slot is on another node or is being moved, which is then recorded. */
bool redis_note_move(struct redis_member *member, const redisReply *reply);

/* ---- pipeline.c: calling them ------------------------------------------------------------------------------------ */

/* One call of a script for one lock. `lease`, `kind` and `floor` are buffers for arguments. */
struct redis_call {
    enum redis_script script;
    const char *name;
    size_t n; /* number of args */
    const char *args[REDIS_MAX_ARGS];
    char lease[24], kind[40], floor[24];
};

/* Calls scripts for `count` locks in one round trip, or in two if the server lacks scripts. `write` fills in the i-th
 * call. `read` gets its reply, which is an error reply only if redis_is_foreign_data() says so, and returns 0 or the
 * code that ends the connection. Every reply is read even if one is an error; the first error is returned. */
#define REDIS_ELSEWHERE 1 /* in a cluster: nothing was sent, since the slot of the node's own keys has moved */
struct redis_pipeline {
    size_t count;
    bool grants; /* the calls may grant, or prolong: asks first whether the server is still the same master, if due */
    /* The server should send the calls' messages before their replies. It flushes the output of the client first whose
     * output has begun last: so a TIME precedes the calls. */
    bool behind;
    void (*write)(struct redis *redis, size_t i, struct redis_call *call, void *arg);
    int (*read)(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err);
    void *arg;
};
int redis_run_pipeline(struct redis *redis, const struct redis_pipeline *pipeline, int64_t deadline_us,
                       struct dlock_error *err);
/* Sends the only call of a pipeline, as far as that does not block. The next redis_run_pipeline(), with the same one,
 * reads the answer. Returns 0, EUNAVAILABLE, and over TLS EAUTH. */
int redis_begin_pipeline(struct redis *redis, const struct redis_pipeline *pipeline, struct dlock_error *err);

/* ---- info.c: the server's INFO ----------------------------------------------------------------------------------- */

/* Copies the value of a line "field:value" of INFO. False: there is none. */
bool redis_info_field(const redisReply *info, const char *field, char *out, size_t size);

/* Checks that the server is of a suitable version and mode. Returns 0, ENOTSUP or EPROTO. */
int redis_check_server(struct redis *redis, const redisReply *info, struct dlock_error *err);

/* Checks that the server is a master. Returns 0 or EUNAVAILABLE. */
int redis_check_role(struct redis *redis, const redisReply *info, struct dlock_error *err);

/* ---- greeting.c: a new connection -------------------------------------------------------------------------------- */

/* Connects to the first of the URI's hosts that can be reached and is a master, logs in and checks it. Over TLS its
 * certificate must have this name; NULL: that of the host. redis->member has to be set. Errors are those of the backend's
 * connect. */
int redis_meet(struct redis *redis, const struct dlock_uri *uri, const char *name, const struct dlock_peer *peer,
               int timeout_ms, struct dlock_error *err);

/* ---- incarnation.c: the quarantine ------------------------------------------------------------------------------- */

/* Returns the key that records since when the server has been the same master (incarnation.lua): one for each prefix,
 * so that users restricted to one prefix cannot change the record of another. */
const char *redis_record_key(const struct redis *redis, char out[REDIS_KEY_MAX + 40]);

/* The first appends the question since when the server has been the same master, if there is a quarantine and it is
 * time to ask, and sets `asked`. The second reads the answer, which starts or continues the quarantine. Returns 0,
 * EUNAVAILABLE, EPROTO, EAUTH or REDIS_ELSEWHERE. */
void redis_ask_incarnation(struct redis *redis);
int redis_read_incarnation(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* Returns the rest of the quarantine; 0: there is none. */
int64_t redis_quarantine_left_ms(const struct redis *redis);

/* Returns a script's argument about granting (library.lua): `1`: it may; `0`: not in the quarantine; the length of the
 * quarantine and the record's key while the question above is unanswered. */
const char *redis_may_grant(const struct redis *redis);

/* ---- master.c: redis+sentinel ------------------------------------------------------------------------------------ */

/* Asks the Sentinels that the URI names for the master, and stores it in redis->master. Returns 0, EUNAVAILABLE, EAUTH,
 * EPROTO, EINVAL (none of them knows it) or ENOMEM. */
int redis_find_master(struct redis *redis, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err);
void redis_forget_sentinels(struct redis *redis);

/* Returns the number of Sentinels that the URI names, and in *answered how many have answered, for which it waits a
 * moment. One to which several addresses lead is counted once. */
size_t redis_count_sentinels(struct redis *redis, int64_t deadline_us, size_t *answered);

/* Asks the Sentinels whether the server is still the master, if that is due. Does not wait for the answers. */
void redis_doubt_master(struct redis *redis);

/* Waits until a majority has confirmed the server as the master recently enough to make its previous answers valid.
 * Returns 0 or EUNAVAILABLE (another server is the master, or there is no majority in time). */
int redis_be_sure(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* ---- sentinel.c: talking to Sentinels (sentinel.h) ---------------------------------------------------------------- */

/* Closes their descriptors in a forked child. */
void redis_sentinels_abandon(const struct redis_sentinels *sentinels);

/* ---- rights.c: permissions of the user --------------------------------------------------------------------------- */

/* Reports the rights that the user lacks. Returns 0, EUNAVAILABLE or EPROTO. */
int redis_check_rights(struct redis *redis, struct dlock_report *report, int64_t deadline_us, struct dlock_error *err);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch redis_acquire, redis_renew, redis_release;
int redis_begin(void *conn, enum dlock_operation operation, struct dlock_claim *claim, int *fd,
                struct dlock_error *err);

/* Adds the last arguments of scripts: for how long fences are kept, and the channels of a cluster's member. Most calls
 * need neither. */
void redis_add_rest(const struct redis *redis, struct redis_call *call);

int redis_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int redis_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int redis_probe(void *conn, struct dlock_error *err);
int redis_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int redis_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int redis_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err);
int redis_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int redis_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
