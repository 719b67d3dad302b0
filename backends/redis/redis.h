/* The Redis backend's inside: one connection, and what its files offer each other.
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
 *   incarnation  scripts  info  rights  master
 *   slots  sentinel
 *   wire  address */
#ifndef DLOCK_REDIS_H
#define DLOCK_REDIS_H

#include <stream.h>

#include <hiredis.h>
#include <stdint.h>

/* Longest key of a lock: a name of 255 bytes, every one of them encoded as three. */
#define REDIS_NAME_MAX 255
#define REDIS_KEY_MAX (3 * REDIS_NAME_MAX)
/* Most arguments of a script. */
#define REDIS_MAX_ARGS 6

/* Encoded in keys besides '%': Redis Cluster takes what stands in braces for the hash slot. */
#define REDIS_SPECIAL "{}"

/* How many names a connection remembers for a moment. */
#define REDIS_COUNTS 1024

/* The backend, which is a scheme, too. */
#if STREAM_IS_TLS
#define REDIS_NAME "rediss"
#else
#define REDIS_NAME "redis"
#endif

/* A scheme; most Sentinels that are asked; and where they listen. */
#define REDIS_SENTINEL REDIS_NAME "+sentinel"
#define REDIS_SENTINELS 16
#define REDIS_SENTINEL_PORT 26379

/* Another scheme; how many hash slots a cluster has; how many hash tags may be a node's own (cluster.lua). */
#define REDIS_CLUSTER REDIS_NAME "+cluster"
#define REDIS_SLOTS 16384
#define REDIS_TAGS 256

/* Fences are below this (<dlock/backend.h>). */
#define REDIS_FENCE_END (INT64_C(1) << 55)

/* The first three stand again from REDIS_MANY on, for several locks in one call, and all from REDIS_IN_CLUSTER on. */
enum redis_script {
    REDIS_ACQUIRE,
    REDIS_RENEW,
    REDIS_RELEASE,
    REDIS_BREAK,
    REDIS_INSPECT,
    REDIS_MANY,
    REDIS_IN_CLUSTER = REDIS_MANY + REDIS_RELEASE + 1,
    REDIS_SCRIPTS = REDIS_IN_CLUSTER + REDIS_INSPECT + 1
};

/* Where a member of a cluster says that a slot is. */
struct redis_move {
    enum { REDIS_MOVED, REDIS_ASK, REDIS_TRYAGAIN } kind;
    unsigned slot;    /* unknown for TRYAGAIN, as is where it is */
    char address[64]; /* as the cluster knows it; "": at the same as this one */
    int port;
};
#define REDIS_MOVES 16

/* Of a connection to a member of a cluster. */
struct redis_member {
    char tag[12];   /* its slot is this node's: for what is about the node itself; "": none is known */
    char place[64]; /* how the names of this node's channels begin (cluster.lua) */
    bool asking;    /* what is sent is for slots that are on their way to this node */
    struct redis_move moves[REDIS_MOVES]; /* the first that were said; calls that got such an answer have no other */
    size_t n_moves;
};

/* What the Sentinels have said, which are asked again and again where there is a quarantine. */
struct redis_master {
    char address[64]; /* numeric */
    int port;
    int quorum;
    bool strict;    /* a majority of them has to say so again and again (master.c) */
    char epoch[24]; /* then: of the failover that made it the master; else "" */
};
/* So much of a lease goes to the question whether the server is still the master. */
#define REDIS_SURE_MS 200

struct redis {
    const struct dlock_peer *peer;
    struct redis_member *member; /* NULL: this is no member of a cluster */
    int version;                 /* the first number of it */
    redisReader *reader;         /* NULL: not connected */
    struct stream stream;        /* its descriptor blocks for a moment at most; open when there is a reader */
    bool impatient;              /* the descriptor might block for long: never let it */
    bool drained; /* nothing was left behind what was received last; the descriptor says when there is more */
    bool broken;  /* an answer is missing or makes no sense: nothing that comes can be trusted any more */
    char *out;    /* requests: out_size bytes, of which `written` are used and `sent` has the socket taken */
    size_t out_size, written, sent;
    size_t unanswered;                       /* requests whose replies were not read yet */
    size_t elements;                         /* array elements in the reply that is being read */
    const redisReplyObjectFunctions *parser; /* hiredis' own */
    redisReplyObjectFunctions bounded;       /* the same with a limit on arrays */
    char where[160];                         /* the server, for error messages */

    struct {
        uint32_t name, until_ms; /* its hash; the local clock, which may have come round */
    } counts[REDIS_COUNTS];      /* whose fences may be counted up (acquire.lua), by that hash */
    int64_t heard_until_us; /* so long it is taken for granted that the server knows that this client listens; 0: not */
    char fences[24]; /* how long fences are kept, in ms, as scripts are told; empty: as long as they do by themselves */
    int64_t quarantine_until_us; /* nothing is granted before; local clock; 0: no quarantine */
    int64_t check_us;            /* when to ask the server again whether it is still the same master; local clock */
    bool asked;                  /* that is being asked, before the calls that are being written */
    char quarantine[24];         /* in ms, as scripts are told then */

    struct redis_master master;
    struct redis_sentinels *sentinels; /* NULL: there are none */

    char channel[96];              /* what we are subscribed to */
    char name[REDIS_NAME_MAX + 1]; /* of the last wake-up, as is the token */
    char token[DLOCK_TOKEN_MAX + 1];
};

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct redis_address {
    const char *socket; /* of a Unix socket; else NULL */
    const struct dlock_uri *uri;
    const struct dlock_host *host;
    int port;
    const char *user, *password; /* NULL: none */
    int db;
    int64_t fences_ms;  /* how long fences are kept; 0: the URI does not say */
    const char *master; /* what the Sentinels, which the hosts are then, call it; else NULL */
    const char *sentinel_user, *sentinel_password; /* NULL: none */
};

/* Reads what the URI asks for, all but the host. EINVAL. */
int redis_address(const struct dlock_uri *uri, struct redis_address *address, struct dlock_error *err);

/* ---- wire.c: the socket, deadlines, requests and replies --------------------------------------------------------- */

/* Connects the socket. EUNAVAILABLE, ENOMEM. */
int redis_dial(struct redis *redis, const struct redis_address *address, int64_t deadline_us, struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void redis_hang_up(struct redis *redis);

/* Closes its descriptors in a forked child. */
void redis_abandon(struct redis *redis);

/* A parser of replies with bounds; NULL: no memory. */
redisReader *redis_new_reader(struct redis *redis);

/* Forgets what was written, and frees it. */
void redis_forget_requests(struct redis *redis);

/* Appends a request to what the next redis_reply() sends. ENOMEM breaks the connection. */
void redis_request(struct redis *redis, size_t n, const char *const *words, const size_t *lengths);

/* The same with NUL-terminated words; the last argument is NULL. */
void redis_command(struct redis *redis, ...);

/* Sends what is to be sent and waits for the reply to the next unanswered request; free it with freeReplyObject().
 * EUNAVAILABLE, EPROTO. */
int redis_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err);

/* Sends what is to be sent, as far as that does not block. EUNAVAILABLE. */
int redis_push(struct redis *redis, struct dlock_error *err);

/* Takes one reply that is already there, without blocking: 1; 0: none is. EUNAVAILABLE, EPROTO. */
int redis_poll_reply(struct redis *redis, redisReply **reply, struct dlock_error *err);

/* An answer that makes no sense: breaks the connection; EPROTO. */
int redis_nonsense(struct redis *redis, const char *what, struct dlock_error *err);

/* Whether an error reply is of this kind ("NOSCRIPT"), by itself or as the reason why a script failed. */
bool redis_error_is(const redisReply *reply, const char *kind);

/* Whether an error reply is about the data of one name, which dlock did not write, and not about the server. */
bool redis_is_foreign_data(const redisReply *reply);

/* The code for an error reply, with the server's reason in `err`. */
int redis_refused(const struct redis *redis, const redisReply *reply, struct dlock_error *err);

/* ---- scripts.c: the .lua files ----------------------------------------------------------------------------------- */

/* The name that EVALSHA knows a script by: computed when it was built, so nothing is sent that the server has. */
const char *redis_sha1(int script);

/* Appends a request that gives the server a script; reads the reply to that. */
void redis_load(struct redis *redis, int script);
int redis_loaded(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* Whether a name is surely its own key, as most are. */
bool redis_is_plain(const char *name);

/* The name whose lock key this is, into `name` (REDIS_NAME_MAX + 1 bytes); false: it is none of ours. */
bool redis_decode_key(const char *key, size_t length, char *name);

/* Kinds of grants that stand in a lock's key (library.lua); the second is followed by the limit. */
#define REDIS_KIND_SHARED "dlock:shared"
#define REDIS_KIND_PERMITS "dlock:permits:"

/* Reads the limit out of a kind; false: it is none of permits. */
bool redis_limit_of(const char *kind, uint32_t *limit);

/* ---- slots.c: hash slots, and answers that point to them ---------------------------------------------------------- */

/* The hash slot of a key, or of its hash tag. */
unsigned redis_slot_of(const char *key, size_t length);

/* Whether an error reply says that the slot is elsewhere, or on its way: then it is noted. */
bool redis_note_move(struct redis_member *member, const redisReply *reply);

/* ---- pipeline.c: calling them ------------------------------------------------------------------------------------ */

/* A script for one lock; `lease`, `how`, `kind` and `floor` are room for arguments. */
struct redis_call {
    enum redis_script script;
    const char *name;
    size_t n; /* arguments */
    const char *args[REDIS_MAX_ARGS];
    char lease[24], how[40], kind[40], floor[24];
};

/* Calls scripts for `count` locks in one round trip, or in two if the server has to be given scripts first.
 * `write` says how the i-th is called. `read` takes its reply, which is no error reply but for redis_is_foreign_data,
 * and returns 0 or what ends the connection. Every reply is read even when one is an error; the first error is
 * returned. */
#define REDIS_ELSEWHERE 1 /* in a cluster: nothing was sent, since a move was noted that concerns the node itself */
struct redis_pipeline {
    size_t count;
    bool grants; /* they may grant: the server is asked before whether it is still the same master, if it is time to */
    void (*write)(struct redis *redis, size_t i, struct redis_call *call, void *arg);
    int (*read)(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err);
    void *arg;
};
int redis_run_pipeline(struct redis *redis, const struct redis_pipeline *pipeline, int64_t deadline_us,
                       struct dlock_error *err);

/* ---- info.c: what the server says about itself ------------------------------------------------------------------- */

/* The value of a line "field:value" of INFO; false: there is none. */
bool redis_info_field(const redisReply *info, const char *field, char *out, size_t size);

/* Whether this server can do what we promise: 0, ENOTSUP, EPROTO. */
int redis_check_server(struct redis *redis, const redisReply *info, struct dlock_error *err);

/* Whether it is the master: 0, EUNAVAILABLE. */
int redis_check_role(struct redis *redis, const redisReply *info, struct dlock_error *err);

/* ---- greeting.c: a new connection -------------------------------------------------------------------------------- */

/* Connects, logs in, and checks what the server is: redis->peer and redis->member are set. As connect. */
int redis_meet(struct redis *redis, const struct redis_address *address, int64_t deadline_us, struct dlock_error *err);

/* ---- incarnation.c: the quarantine ------------------------------------------------------------------------------- */

/* The key that says since when the server is the master that it is now (incarnation.lua). */
#define REDIS_INCARNATION "{dlock}:incarnation"

/* Appends the question since when the server is the master that it is now, if there is a quarantine and it is time to
 * ask; `asked` says so. Reads the reply to that, with which the quarantine begins or goes on. EUNAVAILABLE, EPROTO,
 * EAUTH; REDIS_ELSEWHERE. */
void redis_ask_incarnation(struct redis *redis);
int redis_read_incarnation(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* > 0 while the quarantine lasts. */
int64_t redis_quarantine_left_ms(const struct redis *redis);

/* What the call of a script says about granting (library.lua): `1`; `0` while the quarantine lasts; its length while the
 * question above is unanswered. */
const char *redis_may_grant(const struct redis *redis);

/* ---- master.c: redis+sentinel ------------------------------------------------------------------------------------ */

/* Asks the Sentinels on these hosts for the master, and stores it in redis->master. EUNAVAILABLE, EAUTH, EPROTO, EINVAL
 * (none of them knows it; these are too few), ENOMEM. */
int redis_find_master(struct redis *redis, const struct redis_address *address, const struct dlock_host *hosts,
                      size_t n, int64_t deadline_us, struct dlock_error *err);
void redis_forget_sentinels(struct redis *redis);

/* How many there are; *answered: these have. Waits a moment for those that have not. */
size_t redis_count_sentinels(struct redis *redis, int64_t deadline_us, size_t *answered);

/* Asks them whether the server is still the master, if it is time to. Does not wait. */
void redis_doubt_master(struct redis *redis);

/* What the server has answered so far counts: waits until a majority has said lately that it is the master. EUNAVAILABLE:
 * another one is, or there is no majority any more or in time. */
int redis_be_sure(struct redis *redis, int64_t deadline_us, struct dlock_error *err);

/* The same without waiting: 1, or 0: that is not known at the moment. */
int redis_is_sure(struct redis *redis, struct dlock_error *err);

/* ---- sentinel.c: talking to Sentinels (sentinel.h) ---------------------------------------------------------------- */

/* Closes their descriptors in a forked child. */
void redis_sentinels_abandon(const struct redis_sentinels *sentinels);

/* ---- rights.c: what its user may do ------------------------------------------------------------------------------ */

/* Reports what is missing. EUNAVAILABLE, EPROTO. */
int redis_check_rights(struct redis *redis, struct dlock_report *report, int64_t deadline_us, struct dlock_error *err);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch redis_acquire, redis_renew, redis_release;

/* Has a script keep fences as long as the URI says; it knows the usual time itself. */
void redis_add_life(const struct redis *redis, struct redis_call *call);

int redis_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int redis_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int redis_probe(void *conn, struct dlock_error *err);
int redis_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int redis_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err);
int redis_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int redis_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
