/* The core's structures, and who may touch what.
 *
 * One mutex per client guards everything below except what is marked otherwise; it is never held across a call into a
 * backend, a callback, or the resolver. Functions named dlock__… expect it held unless they say so.
 *
 *   lock.c      the API on handles: owners, re-entry, the way into acquire and release
 *   acquire.c   the waiter at the head of a name asks the server until granted, given up or cancelled
 *   release.c   giving grants back: local hand-over, release, loss
 *   downgrade.c from writer to reader                            linger.c  released locks that stay for a while
 *   claim.c     one acquisition: token, validity, life cycle      name.c    the name table
 *   pool.c      connections and the operations that wait for one  conn.c    one connection's life
 *   listener.c  the connection that gets wake-ups                 keeper.c  timers, renewals, wake-ups
 *   callback.c  the worker thread that calls the application      janitor.c the thread that releases what nobody owns
 *   async.c     the thread that drives waits and releases without a thread of their own
 *   guardian*.c the helper process that releases what we leave when we die: see guardian.h
 *   all.c       several locks at once                             ticket.c  grants that change hands between processes
 */
#ifndef DLOCK_CORE_CLIENT_H
#define DLOCK_CORE_CLIENT_H

#include "env.h"
#include "guardian.h"
#include "registry.h"
#include "resolve.h"
#include "uri.h"

#include <stdatomic.h>
#include <stdbool.h>

#define DLOCK__LEASE_MIN_MS INT64_C(100)
#define DLOCK__LEASE_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)
/* The fence's low byte. */
#define DLOCK__ORDINAL_MAX 255
/* An operation takes at most this many claims. */
#define DLOCK__BATCH 256
/* Names as a backend sees them, prefix included. */
#define DLOCK__FULL_NAME_MAX 255

struct dlock__name;
struct dlock__waiter;

/* ---- connections ---- */

struct dlock__conn {
    struct dlock__conn *all;  /* next in client->conns; never removed before the client ends */
    struct dlock__conn *idle; /* next in client->idle */
    struct dlock_client *client;
    struct dlock_peer peer;
    atomic_bool live;   /* `data` may own descriptors: read by the fork handler */
    bool connected;     /* the last operation left it usable */
    bool busy;          /* THREADSAFE: somebody connects or disconnects it right now */
    unsigned users;     /* THREADSAFE: calls in progress, the listener counts as one */
    max_align_t data[]; /* the backend's, conn_size bytes */
};

/* ---- claims ---- */

enum dlock__phase {
    DLOCK__ASKING,     /* an acquire is being sent */
    DLOCK__WAITING,    /* busy: queued at the server, or to be asked again at due_us */
    DLOCK__CONFIRMING, /* granted by a wake whose age nobody knows: the keeper renews before it counts */
    DLOCK__HELD,       /* granted */
    DLOCK__RELEASING,  /* being given back by its owner, or leaving the queue */
    DLOCK__LOST,       /* ended before its release */
    DLOCK__ORPHAN      /* nobody's: the janitor releases it */
};

enum dlock__op_kind { DLOCK__ACQUIRE, DLOCK__RENEW, DLOCK__RELEASE };
enum dlock__op_status { DLOCK__OP_NONE, DLOCK__OP_PENDING, DLOCK__OP_RUNNING, DLOCK__OP_DONE };

/* One request about one claim, as the pool handles it. */
struct dlock__op {
    struct dlock_claim arg; /* what the backend sees; while RUNNING it belongs to the thread that runs the batch */
    enum dlock__op_kind kind;
    enum dlock__op_status status;
    bool resent;               /* an earlier send of this operation may have been executed */
    int64_t deadline_us;       /* of the request */
    int64_t leave_us;          /* of the thread that waits for it */
    int64_t sent_us;           /* before the request that was answered was sent */
    int result;                /* of the connection if that failed, else of the claim */
    bool unsent;               /* it failed before anything was sent */
    pthread_cond_t *cond;      /* of the thread that waits for it; NULL: that one left */
    struct dlock_error *err;   /* that thread's */
    struct dlock__conn *conn;  /* handed over to lead the next batch */
    struct dlock__claim *next; /* in client->pending */
};

/* Something to tell the application, in client->callback. */
struct dlock__event {
    struct dlock__event *next;
    enum { DLOCK__EVENT_LOST, DLOCK__EVENT_ASYNC } kind; /* in a hold, with a reference to its claim; in an async */
};

/* How often a claim is held through one handle, and that handle's on_lost when it is to run. */
struct dlock__hold {
    struct dlock__event event;
    uint32_t count;
    struct dlock__hold *next; /* in claim->hold */
    struct dlock__claim *claim;
    struct dlock_lock *handle; /* NULL: freed, or nobody yet */
};

/* One acquisition as the server knows it. Reference counted: the name (current, asking), the lost list, the janitor, a
 * renewal in progress and an operation in progress each hold one. */
struct dlock__claim {
    struct dlock__claim *all_next, *all_prev; /* client->claims: every live claim, the keeper's work list */
    struct dlock__name *name;                 /* holds a reference */
    unsigned refs;
    enum dlock__phase phase;
    struct dlock__op op;

    /* what was asked */
    char token[DLOCK_TOKEN_MAX + 1];
    enum dlock_mode mode;
    uint32_t limit;
    uint32_t options; /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    int64_t lease_ms;
    uint64_t state[4];
    uint32_t guarded;        /* its entry in the guardian's table; 0: none */
    unsigned session;        /* client->session when it was last sent: what it left in an older one died with that */
    bool renewing;           /* the keeper has it in a request */
    bool downgrading;        /* `mode` is SHARED, and the server has not said yes to that */
    bool may_linger;         /* its holder may keep it after the release: nobody else has asked so far */
    bool wanted;             /* a WANTED came, or may have been missed, before the grant */
    bool queued;             /* a QUEUE acquire was sent since the last release */
    bool may_be_held;        /* an acquire or renewal without answer: the server may hold more than we know */
    bool release_sent;       /* no local hand-over any more, and not-found is then no surprise */
    int64_t last_unknown_us; /* when that was */

    /* the grant */
    uint64_t server_fence;
    unsigned ordinal;       /* hand-overs inside this process, the fence's low byte */
    int64_t granted_us;     /* when the server granted it to this process */
    int64_t valid_until_us; /* DLOCK__NEVER: as long as its connection lives */
    int64_t renew_at_us;
    int64_t linger_until_us; /* HELD by nobody; DLOCK__NEVER: not lingering */
    int64_t renew_pause_us;  /* back-off after a failed renewal; 0: the last one worked */

    /* who has it: a thread, through one handle or several; or a handle, which is then hold.handle */
    enum dlock_owner owner;
    uint64_t thread;
    uint32_t count;          /* of all holds; 1 and no hold while its waiter has not been told */
    struct dlock__hold hold; /* the first of a list; the others are malloc'ed */

    /* waiting */
    int64_t due_us; /* WAITING: ask again then */
    bool look;      /* a LOOK came while ASKING */
    struct {
        bool here; /* a GRANTED came while ASKING */
        uint64_t fence;
        int64_t server_us, kept_ms, received_us;
    } wake;

    struct dlock__claim *held_next;   /* name->held */
    struct dlock__claim *lost_next;   /* name->lost */
    struct dlock__claim *orphan_next; /* client->orphans */
    bool orphaned;
    int64_t orphan_due_us, orphan_until_us, orphan_pause_us;
};

/* ---- names, handles, waiters ---- */

/* What this process knows of one name. Lives while a handle or a claim refers to it. */
struct dlock__name {
    struct dlock__name *chain; /* hash bucket */
    struct dlock_client *client;
    unsigned refs;
    uint32_t hash;
    bool in_batch;               /* only while the pool gathers one */
    struct dlock__claim *held;   /* HELD or RELEASING, the youngest first; an exclusive one is alone */
    struct dlock__claim *asking; /* the head waiter's: ASKING, WAITING or CONFIRMING */
    struct dlock__claim *lost;   /* lost and not yet released as often as acquired */
    struct dlock__waiter *head, *tail;
    int64_t yield_until_us; /* other processes' turn: the head asks no earlier */
    char text[];            /* with the prefix */
};

struct dlock_lock {
    struct dlock__name *name;
    struct dlock_client *client;
    enum dlock_owner owner;
    enum dlock_mode mode;
    uint32_t limit;
    uint32_t options;
    int64_t lease_ms;
    dlock_callback on_lost;
    void *on_lost_arg;
    uint32_t inside;   /* threads in a call on it */
    uint32_t waiting;  /* waits on it, in line or about to leave it */
    uint32_t async;    /* asynchronous operations whose callback has not begun */
    bool freed;        /* dlock_free is at work */
    bool freed_inside; /* … by its own callback: the callback's thread destroys it */
};

/* Somebody of this process who waits for a name, first come first served. The head one talks to the server. */
struct dlock__waiter {
    struct dlock__waiter *next, *prev;
    struct dlock_lock *lock;
    uint64_t thread;
    int64_t deadline_us;
    struct dlock__claim *handed; /* among name->held when it was given; holds a reference; may be lost by now */
    int64_t pause_us;            /* the last decorrelated pause between its questions */
    struct dlock_error *why;     /* what the server said last, in the end the error; NULL: nobody needed it yet */
    pthread_cond_t *cond;        /* of the thread that waits; NULL: async.c's */
    atomic_uint woken;           /* counts wakes: that thread may look before it sleeps */
    int result;
    bool try_only;
    bool in_line;
    bool done; /* `result` counts: 0 = out of the line, `handed` is its grant; else cancelled and still in line */
    bool over; /* nothing more happens to it */
};

/* An acquire or release that no thread waits for. */
struct dlock__async {
    struct dlock__waiter waiter; /* the first member: async.c finds the record by it */
    struct dlock__event event;
    struct dlock__claim *releasing; /* with the name's reference; NULL: this is an acquire */
    dlock_callback call;
    void *arg;
    struct dlock__async *next, *prev; /* in client->async.ready */
    int64_t until_us;                 /* the key of the heap: a turn is due; asking or ready: it ends without one */
    size_t heap_at;                   /* its place there, from 1 on; 0: not in it */
    bool ready, asking;
};

/* ---- the client ---- */

enum dlock__listener_state { DLOCK__LISTENER_DOWN, DLOCK__LISTENER_CONNECTING, DLOCK__LISTENER_UP };

struct dlock_client {
    pthread_mutex_t mutex;
    pthread_cond_t changed;      /* rare things: a call left, the listener came up, a callback ended */
    struct dlock_client *listed; /* next of every client of the process, under fork.c's mutex */
    unsigned fork_generation;    /* constant, like the next group */

    const struct dlock_backend *backend;
    const struct dlock__module *module;
    struct dlock__uri *uri;
    struct dlock__resolver *resolver;
    void (*log)(int level, const char *message, void *arg);
    void *log_arg;
    char id[25];
    char token_tail[64]; /* @host:pid */
    int64_t quarantine_ms;
    struct dlock__guard *guard; /* NULL: no guardian */

    int64_t shortest_lease_ms; /* of all renewed handles so far: no renewal may hang for much of it */
    unsigned refs;             /* the opener, each handle */
    bool closed;
    unsigned inside; /* threads in a call on this client */
    int64_t now_us;  /* the time since the mutex was taken last, read once; 0: not yet */
    uint64_t tokens; /* handed out so far */
    uint64_t jitter; /* state of a small generator: spreads retries, guards nothing */

    struct dlock__name **names;
    size_t n_names, n_buckets;
    struct dlock__claim *claims;
    struct dlock__claim *spare; /* freed claims, kept so that a steady state allocates nothing */
    size_t n_spare;

    struct dlock__conn *conns, *idle;
    unsigned n_pool;                             /* opened for the pool, at most uri->connections */
    struct dlock__claim *pending, *pending_tail; /* operations that wait for a connection */
    struct dlock__conn *shared;                  /* THREADSAFE: the only one */
    unsigned session;                            /* SESSION|THREADSAFE: counts the connections that broke */

    /* A request's send time and the server's clock in its answer (DESIGN §1.3); dies with any reconnect. */
    struct {
        bool known;
        int64_t sent_us, server_us;
    } pair;

    struct {
        enum dlock__listener_state state;
        struct dlock__conn *conn;
        int fd;
        int64_t retry_at_us; /* after a failure; DLOCK__NEVER: this server wakes nobody (ENOTSUP) */
        int64_t pause_us;
    } listener;

    struct {
        bool started, stop;
        pthread_t thread;
        int control, timer; /* eventfd, timerfd */
        int64_t armed_us;   /* the timer goes off then at the latest */
        struct dlock__conn *conn;
        struct dlock__claim **batch; /* DLOCK__BATCH each: renewal never runs out of memory */
        struct dlock_claim *args;
        struct dlock_claim **arg_pointers;
    } keeper;

    struct {
        bool started, stop;
        pthread_t thread;
        pthread_cond_t cond;
        bool manual; /* dlock_client_dispatch calls; the thread only looks for lost grants */
        int fd;      /* eventfd: something is queued; -1: not MANUAL */
        struct dlock__event *first, *last;
        struct dlock_lock *running; /* whose callback runs */
        uint64_t runner;            /* … in which thread */
        int64_t armed_us;           /* it looks for lost grants then at the latest */
        int64_t asleep_us;          /* it sleeps until then; 0: it is awake */
    } callback;

    struct {
        bool started, stop;
        pthread_t thread;
        pthread_cond_t cond;
        bool busy;                         /* in a request: somebody else has to watch the deadlines */
        size_t n;                          /* records that are not over */
        struct dlock__async *ready, *last; /* they have a turn */
        struct dlock__async **heap;        /* by time; room for `heap_size` */
        size_t n_heap, heap_size;
        struct dlock_error *errors; /* DLOCK__BATCH: what the server said */
    } async;

    struct {
        bool started, stop;
        pthread_t thread;
        pthread_cond_t cond;
        struct dlock__claim *orphans;
    } janitor;
};

static inline void dlock__enter(struct dlock_client *client) {
    pthread_mutex_lock(&client->mutex);
    client->now_us = 0;
}
static inline void dlock__leave(struct dlock_client *client) {
    pthread_mutex_unlock(&client->mutex);
}
static inline bool dlock__can(const struct dlock_client *client, uint32_t caps) {
    return (client->backend->caps & caps) == caps;
}

/* Milliseconds to microseconds without overflow. */
static inline int64_t dlock__us(int64_t ms) {
    return ms >= DLOCK__NEVER / 1000 ? DLOCK__NEVER : ms * 1000;
}

/* `us` from `now_us`, without overflow. */
static inline int64_t dlock__after(int64_t now_us, int64_t us) {
    return us >= DLOCK__NEVER - now_us ? DLOCK__NEVER : now_us + us;
}

/* The time, read once for as long as the mutex is not left: for deadlines, and for what has passed by now. */
static inline int64_t dlock__now(struct dlock_client *client) {
    if (client->now_us == 0) client->now_us = dlock__now_us();
    return client->now_us;
}

/* Waits as dlock__cond_wait. */
static inline void dlock__wait(struct dlock_client *client, pthread_cond_t *cond, int64_t until_us) {
    dlock__cond_wait(cond, &client->mutex, until_us);
    client->now_us = 0;
}

/* What is left at now_us until deadline_us as a backend's timeout_ms: rounded up, at least 1. */
int dlock__timeout_ms(int64_t now_us, int64_t deadline_us);

/* A pseudo-random number in [low, high]. */
int64_t dlock__jitter(struct dlock_client *client, int64_t low, int64_t high);

/* One line for the application's log. Without the mutex. */
DLOCK_PRINTF(3, 4) void dlock__log(struct dlock_client *client, int level, const char *format, ...);

/* Drops one reference; the last one frees the client. Without the mutex. */
void dlock__client_put(struct dlock_client *client);

/* The calling thread, never reused for another one. */
uint64_t dlock__thread_id(void);

/* ---- fork.c ---- */

/* True in a process forked after the client was opened. No mutex needed. */
bool dlock__forked(const struct dlock_client *client);
int dlock__forked_error(struct dlock_error *err);
/* Notes, and forgets, a client whose connections a forked child must abandon. Without the mutex. */
int dlock__fork_watch(struct dlock_client *client, struct dlock_error *err);
void dlock__fork_unwatch(struct dlock_client *client);

/* ---- name.c ---- */

/* The entry for a full name, made if need be, with one more reference; NULL: out of memory. */
struct dlock__name *dlock__name_get(struct dlock_client *client, const char *text);
void dlock__name_put(struct dlock__name *name);
/* The entry if there is one, without a reference. */
struct dlock__name *dlock__name_find(struct dlock_client *client, const char *text);
/* `name` without the client's prefix. */
const char *dlock__name_shown(const struct dlock__name *name);
/* 0, or EINVAL with a message. No mutex needed. */
int dlock__name_check(const char *name, struct dlock_error *err);
void dlock__name_append(struct dlock__name *name, struct dlock__waiter *waiter);
/* Back to the front of the line, but behind the head if that one is asking: name->asking is always the head's. */
void dlock__name_return(struct dlock__name *name, struct dlock__waiter *waiter);
void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter);
/* Wakes the waiter at the head, who looks around again. */
void dlock__name_signal(struct dlock__name *name);
/* Adds to, and removes from, name->held; the reference goes along. False: it was not there. */
void dlock__name_hold(struct dlock__name *name, struct dlock__claim *claim);
bool dlock__name_unhold(struct dlock__name *name, struct dlock__claim *claim);
/* The exclusive claim that is HELD or RELEASING, or NULL: while there is one nobody of this process asks the server. */
struct dlock__claim *dlock__name_exclusive(const struct dlock__name *name);

/* ---- claim.c ---- */

/* A claim with a new token for what `lock` wants, in phase ASKING; NULL: out of memory. */
struct dlock__claim *dlock__claim_new(struct dlock_lock *lock);
/* The same for a token that somebody else made up (a wake for nobody). */
struct dlock__claim *dlock__claim_for_token(struct dlock__name *name, const char *token);
void dlock__claim_put(struct dlock__claim *claim);
/* The claim's hold through this handle, made if `make` is set; NULL: none, or out of memory. */
struct dlock__hold *dlock__claim_hold(struct dlock__claim *claim, struct dlock_lock *handle, bool make);
/* Forgets who holds it. */
void dlock__claim_disown(struct dlock__claim *claim);
/* The live claim with this token, or NULL. */
struct dlock__claim *dlock__claim_find(struct dlock_client *client, const char *token);
/* Orders pointers to claims by name, for qsort: the order in which every batch is sent. */
int dlock__claim_by_name(const void *a, const void *b);
uint64_t dlock__claim_fence(const struct dlock__claim *claim);
/* Takes over an answered acquire (op.result == 0): 0 = HELD; EUNAVAILABLE = the answer came too late to be of use, ask
 * again; EPROTO = it makes no sense. */
int dlock__claim_granted(struct dlock__claim *claim, struct dlock_error *err);
/* Takes over the answered renewal of a grant that another process had: as dlock__claim_granted. */
int dlock__claim_imported(struct dlock__claim *claim, uint64_t fence, unsigned ordinal, struct dlock_error *err);
/* Takes over an answered renewal; false when it makes no sense, and then counts as not answered. */
bool dlock__claim_renewed(struct dlock__claim *claim, int64_t sent_us, int64_t kept_ms);
/* Takes over a GRANTED wake: HELD, or CONFIRMING with a renewal due at once, or nothing when the wake makes no sense.
 */
void dlock__claim_woken(struct dlock__claim *claim, uint64_t fence, int64_t server_us, int64_t kept_ms,
                        int64_t received_us);
/* An answer with the server's clock arrived: remember it for wakes. */
void dlock__pair_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us);
/* Whether a connection that has ended took everything about this claim along. */
bool dlock__claim_outlived(const struct dlock__claim *claim);
/* Whether the server or the backend may still keep something for a claim that is not granted. */
bool dlock__claim_may_remain(const struct dlock__claim *claim);

/* ---- conn.c: without the mutex, by the thread that has the connection ---- */

/* A new, unconnected connection, listed in the client. NULL: out of memory. With the mutex. */
struct dlock__conn *dlock__conn_new(struct dlock_client *client);
int dlock__conn_open(struct dlock__conn *conn, int64_t deadline_us, bool lookup, struct dlock_error *err);
void dlock__conn_close(struct dlock__conn *conn);
/* The backend's batch operation of this kind. */
dlock_batch *dlock__conn_batch(struct dlock_client *client, enum dlock__op_kind kind);

/* ---- pool.c ---- */

/* Describes a request about the claim, to be answered until deadline_us at the latest (the URI's `timeout` bounds it
 * too). `err` is the sender's, and may be NULL. */
void dlock__op_prepare(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err);
/* Sends what was prepared for n claims (at most DLOCK__BATCH) of one client, of one kind, no name twice, as one request
 * and waits for the answers. Leaves the mutex meanwhile. Every claim's op.result tells what became of it; op.unsent
 * whether nothing was sent. EUNAVAILABLE while op.status is still RUNNING: the answer may come later, the claim belongs
 * to the pool until then. */
void dlock__op_send(struct dlock__claim *const *claims, size_t n);
/* Both for one claim; returns op.result. */
int dlock__op_run(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err);
/* Takes a connection for something other than a claim, connected; give it back with dlock__pool_give, `rc` being what
 * the backend returned. Leaves the mutex meanwhile. */
int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **conn,
                     struct dlock_error *err);
void dlock__pool_give(struct dlock__conn *conn, int rc);

/* ---- listener.c ---- */

/* Brings up the connection that gets wake-ups, or waits for whoever does. Leaves the mutex meanwhile. True: it is up.
 */
bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us);
/* The keeper saw it die. Leaves the mutex meanwhile. */
void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why);

/* ---- keeper.c ---- */

/* Starts it if need be. 0 or ENOMEM. */
int dlock__keeper_start(struct dlock_client *client, struct dlock_error *err);
/* Something has to happen at at_us: makes sure that the keeper is awake then. Wakes nobody. */
void dlock__keeper_arm(struct dlock_client *client, int64_t at_us);
/* The set of descriptors changed. */
void dlock__keeper_kick(struct dlock_client *client);
/* Ends the thread and closes its connection. Without the mutex. */
void dlock__keeper_stop(struct dlock_client *client);

/* ---- wake.c ---- */

/* Reads and acts on every wake-up that is there; with the mutex, which it leaves meanwhile. 0, or the listener is dead.
 */
int dlock__wakes_read(struct dlock_client *client, struct dlock_error *err);

/* ---- callback.c ---- */

/* Starts the thread if need be. 0 or ENOMEM. */
int dlock__callback_start(struct dlock_client *client, struct dlock_error *err);
/* A grant with an on_lost ends at at_us at the latest: makes sure that the thread is awake then. Wakes it only if it
 * would sleep longer. */
void dlock__callback_arm(struct dlock_client *client, int64_t at_us);
/* Makes the client a MANUAL one. Without the mutex. */
int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err);
/* Queues the on_lost of the handles that hold the claim. */
void dlock__callback_lost(struct dlock__claim *claim);
/* Queues the end of an asynchronous operation. */
void dlock__callback_async(struct dlock__async *async);
/* Looks at the deadlines of asynchronous waits, at_us being the first, as long as async.busy. */
void dlock__callback_watch(struct dlock_client *client, int64_t at_us);
/* Forgets queued on_losts of the handle, calls the ends of its asynchronous operations, and waits for a running
 * callback, unless called from it. Leaves the mutex meanwhile. */
void dlock__callback_forget(struct dlock_lock *lock);
/* Calls what is queued for asynchronous operations, and ends the thread. Without the mutex. */
void dlock__callback_stop(struct dlock_client *client);

/* ---- async.c ---- */

/* The waiter without a thread has a turn. */
void dlock__async_wake(struct dlock__waiter *waiter);
/* Ends the waits whose deadline passed while their request hangs; the next time to look, at the earliest. */
int64_t dlock__async_expire(struct dlock_client *client);
/* Ends what is left, and the thread. Without the mutex. */
void dlock__async_stop(struct dlock_client *client);

/* ---- janitor.c ---- */

/* Nobody wants this claim any more, but the server may keep it: release it until that is certain. */
void dlock__orphan(struct dlock__claim *claim);
/* Ends the thread; what is left is released once, until deadline_us. Without the mutex. */
void dlock__janitor_stop(struct dlock_client *client, int64_t deadline_us);

/* ---- lock.c ---- */

/* The way into and out of every call on a handle: 0 and the mutex, or why not. */
int dlock__lock_begin(struct dlock_lock *lock, struct dlock_error *err);
int dlock__lock_end(struct dlock_lock *lock, int rc);
/* The same for calls on clients. */
int dlock__client_begin(struct dlock_client *client, struct dlock_error *err);
int dlock__client_end(struct dlock_client *client, int rc);
/* 0: the caller has to acquire; 1: re-entered; or why neither is possible. */
int dlock__enter_again(struct dlock_lock *lock, struct dlock_error *err);
/* Takes one acquisition back. 1: it was the last, and *claim has to be released at the server; 0: done. */
int dlock__release_one(struct dlock_lock *lock, struct dlock__claim **claim, struct dlock_error *err);
/* The caller's grant, held or lost; NULL: none. Of several permits the youngest, of this handle if there is one. */
struct dlock__claim *dlock__owned(struct dlock_lock *lock);
/* EOWNER. */
int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err);
/* Copies what the caller knows of the struct; what this library does not know has to be zero. No mutex needed. */
int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err);
/* Frees the memory of a handle that nothing refers to any more. */
void dlock__lock_destroy(struct dlock_lock *lock);

/* ---- acquire.c ---- */

enum dlock__turn {
    DLOCK__TURN_ASK,   /* its claim's request is prepared: send it, and tell the answer with dlock__waiter_answered */
    DLOCK__TURN_SLEEP, /* nothing to do until *until_us, or until it is woken */
    DLOCK__TURN_OVER   /* waiter->result, with words in waiter->why */
};

/* When an acquire with this timeout ends: a try has the URI's `timeout`. */
int64_t dlock__deadline(struct dlock_client *client, int64_t timeout_ms);
/* Waits in line and asks the server, for an owner who holds nothing. 0: the grant is the waiter's. */
int dlock__acquire(struct dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err);
/* All turns of a waiter with a thread: this one. Leaves the mutex meanwhile. */
void dlock__waiter_drive(struct dlock__waiter *waiter);
/* Puts a new waiter into the line, unless it is a try that stands no chance (then it is over). */
void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, int64_t timeout_ms);
/* What it does next; looks at everything that happened meanwhile. Leaves the mutex when it gives up a claim. */
enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us);
/* Takes over the answer to its claim's request. Leaves the mutex when it gives up the claim, or brings up the listener.
 */
void dlock__waiter_answered(struct dlock__waiter *waiter);
/* Its deadline passed while its request hangs. */
void dlock__waiter_leave(struct dlock__waiter *waiter);
/* Ends a wait with ECANCELED. */
void dlock__waiter_cancel(struct dlock__waiter *waiter);
/* It has a turn now. */
void dlock__waiter_wake(struct dlock__waiter *waiter);
/* The calling thread, or the handle, holds a claim of name->held that nobody held. */
void dlock__own(struct dlock__claim *claim, struct dlock_lock *lock);
/* A grant came by wake-up or hand-over for the waiter at the head of the line, who was not cancelled: it owns the
 * claim, which is then among name->held, and leaves the line. */
void dlock__deliver(struct dlock__claim *claim);

/* ---- linger.c ---- */

static inline bool dlock__lingers(const struct dlock__claim *claim) {
    return claim->linger_until_us != DLOCK__NEVER;
}

/* Whether a grant for this handle should be one that may linger. */
bool dlock__linger_wanted(const struct dlock_lock *lock);
/* Instead of the release of a HELD claim; false: it has to be released. */
bool dlock__linger_begin(struct dlock__claim *claim);
/* Lets the server have it. */
void dlock__linger_end(struct dlock__claim *claim);
/* The lingering claim of this name, for a new owner; NULL: there is none, or none that fits, and then it has ended. */
struct dlock__claim *dlock__linger_take(struct dlock_lock *lock);
/* Releases a lingering claim that does not fit, so that not even a try finds our own grant in its way. Leaves the mutex
 * meanwhile. */
void dlock__linger_clear(struct dlock_lock *lock, int64_t deadline_us);
/* It must not linger, or no longer. */
void dlock__linger_not(struct dlock__claim *claim);

/* ---- release.c ---- */

/* Whether the claim is what this handle would ask for. */
bool dlock__same_wish(const struct dlock__claim *claim, const struct dlock_lock *lock);

/* The owner's last release: hands over locally, or releases at the server. */
int dlock__give_back(struct dlock__claim *claim, struct dlock_error *err);
/* Sends the release until it is answered, for one `timeout`. */
int dlock__give_back_send(struct dlock__claim *claim, struct dlock_error *why);
/* The same in parts: the first decides, true = it was handed over locally, and that was all. Then its release is sent.
 * The last takes over the answer; `why` is what the server said, and may be NULL. */
bool dlock__give_back_begin(struct dlock__claim *claim);
int dlock__give_back_end(struct dlock__claim *claim, int rc, const struct dlock_error *why, struct dlock_error *err);
/* HELD ends before its release: owner told, waiters may ask. */
void dlock__lose(struct dlock__claim *claim);
/* Takes a lost claim off its name's list; the caller gets that list's reference. */
void dlock__lost_remove(struct dlock__claim *claim);
/* dlock__lose, if its time is over. */
void dlock__settle(struct dlock__claim *claim);

#endif
