/* The core's structures, and who may touch what.
 *
 * One mutex per client guards everything below except what is marked otherwise; it is never held across a call into a
 * backend, a callback, or the resolver. Functions named dlock__… expect it held unless they say so.
 *
 *   lock.c      the API on handles: owners, re-entry, the way into acquire and release
 *   acquire.c   the waiter at the head of a name asks the server until granted, given up or cancelled
 *   drive.c     the thread that waits: takes its waiter's turns
 *   release.c   giving grants back: local hand-over, release, loss
 *   downgrade.c from writer to reader                            linger.c  released locks that stay for a while
 *   claim.c     one acquisition: validity, life cycle             name.c    the name table
 *   token.c     what names it to the server
 *   pool.c      connections and the operations that wait for one  conn.c    one connection's life
 *   password.c  passwords that stand in a file
 *   batch.c     one request and its answer: see batch.h
 *   session.c   connections that carry one claim each             watch.c   what those say unasked
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
    atomic_bool live; /* `data` may own descriptors: read by the fork handler */
    bool connected;   /* the last operation left it usable */
    bool busy;        /* THREADSAFE: somebody connects or disconnects it right now; carrying a claim: a call on it */
    unsigned users;   /* THREADSAFE: calls in progress, the listener counts as one */
    struct dlock__claim *claim; /* SESSION, not THREADSAFE: the one it carries; claim->home is this one then */
    bool waiting;               /* PENDING: its blocking request is not answered yet */
    int fd;                     /* PENDING: what `listen` gave, in client->watch; -1: none */
    bool watched;               /* PENDING: the keeper is told when that polls readable */
    int64_t rest_us;            /* when it is to be told to rest, if it is idle then */
    int64_t ended_us;           /* when the last claim that it carried was over */
    max_align_t data[];         /* the backend's, conn_size bytes */
};

/* ---- claims ---- */

enum dlock__phase {
    DLOCK__ASKING,     /* an acquire is being sent */
    DLOCK__WAITING,    /* busy: queued at the server, or to be asked again at due_us */
    DLOCK__CONFIRMING, /* granted by a wake whose age nobody knows, or about to be handed over in this process (then
                        * its ordinal is above 0): the keeper renews before it counts */
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
    bool resent;         /* an earlier send of this operation may have been executed */
    int64_t deadline_us; /* of the request */
    int64_t leave_us;    /* of the thread that waits for it */
    int64_t prepared_us;
    int64_t sent_us;           /* before the request that was answered was sent */
    int result;                /* of the connection if that failed, else of the claim */
    bool unsent;               /* it failed before anything was sent */
    bool late;                 /* it failed for lack of time */
    uint32_t bell;             /* what the thread that waits for it hears of client->bell; 0: that one left */
    struct dlock_error *err;   /* that thread's */
    struct dlock__conn *conn;  /* handed over to lead the next batch */
    struct dlock__claim *next; /* in client->pending */
    bool look;                 /* a LOOK came while ASKING */
    struct {
        bool here; /* a GRANTED came while ASKING */
        uint64_t fence;
        int64_t server_us, kept_ms, received_us;
    } wake;
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

/* What a claim needs only while it is more than a wait: thousands of waits are small. */
struct dlock__gear {
    struct dlock__op op; /* the first member: the gear is found by it */
    struct dlock__hold hold;
    struct dlock__gear *spare; /* next in client->spare_gear */
};

/* One acquisition as the server knows it. Reference counted: the name (current, asking), the lost list, the janitor, a
 * renewal in progress and an operation in progress each hold one. */
struct dlock__claim {
    struct dlock__claim *all_next, *all_prev; /* client->claims: every live claim, the keeper's work list */
    struct dlock__name *name;                 /* holds a reference */
    struct dlock__claim *next;                /* in name->held, or name->lost */
    struct dlock__claim *orphan_next;         /* in client->orphans */
    struct dlock__op *op;                     /* its gear's; NULL: it has none, being WAITING, or an orphan that was */
    struct dlock__hold *hold;                 /* its gear's, the first of a list; the others are malloc'ed */
    unsigned refs;
    enum dlock__phase phase : 8;
    enum dlock_owner owner : 8; /* of the grant */
    uint8_t token_room;         /* bytes of `token` */

    /* what was asked; and the token, at the end */
    enum dlock_mode mode : 8;
    uint32_t limit;
    uint32_t options; /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    int64_t lease_ms;
    uint64_t state[4];
    struct dlock__conn *home; /* SESSION, not THREADSAFE: the connection that it lives in; NULL: it is nowhere */
    uint32_t guarded;         /* its entry in the guardian's table; 0: none */
    unsigned session;         /* client->session when it was last sent: what it left in an older one died with that */
    bool renewing;            /* the keeper has it in a request */
    bool downgrading;         /* `mode` is SHARED, and the server has not said yes to that */
    bool may_linger;          /* its holder may keep it after the release: nobody else has asked so far */
    bool wanted;              /* a WANTED came, or may have been missed, before the grant */
    bool queued;              /* a QUEUE acquire was sent since the last release */
    bool may_be_held;         /* an acquire or renewal without answer: the server may hold more than we know */
    bool release_sent;        /* no local hand-over any more, and not-found is then no surprise */
    bool orphaned;
    bool orphan_when_told;   /* as soon as `untold` is 0 */
    bool told_early;         /* one of those, which runs, has released it and is no longer counted */
    unsigned untold;         /* on_losts of it that have not returned: until then the server keeps what it has of it */
    bool untold_grant;       /* it was queued, and a question brought its grant: a wake-up may still do so, too */
    bool contended;          /* the server said that others are there, before it granted this */
    int64_t last_unknown_us; /* when that was: may_be_held */

    /* what is next */
    int64_t due_us;   /* WAITING: ask again; HELD, CONFIRMING: renew; orphaned: release again */
    int64_t pause_us; /* back-off after a failed renewal, or release; 0: the last one worked */
    union {
        int64_t valid_until_us;  /* HELD; DLOCK__NEVER: as long as its connection lives */
        int64_t orphan_until_us; /* orphaned: its lease ends it */
    };

    /* the grant */
    uint64_t server_fence;
    int64_t granted_us;      /* when the server granted it to this process */
    int64_t sure_until_us;   /* the server confirmed it so lately that it may be handed over without a question */
    int64_t linger_until_us; /* HELD by nobody; DLOCK__NEVER: not lingering */
    unsigned ordinal;        /* hand-overs inside this process, the fence's low byte */

    /* who has it: a thread, through one handle or several; or a handle, which is then hold->handle */
    uint32_t count; /* of all holds; 1 and no hold while its waiter has not been told */
    uint64_t thread;

    char token[];
};

/* ---- names, handles, waiters ---- */

/* What this process knows of one name. Lives while a handle or a claim refers to it. */
struct dlock__name {
    struct dlock__name *chain; /* hash bucket */
    struct dlock_client *client;
    unsigned refs;
    uint32_t hash;
    bool in_batch;               /* only while the pool gathers one */
    bool brisk;                  /* threads of this process take turns, each for a moment: it pays to look out */
    atomic_uint taken;           /* counts takes of what lingers */
    int cpu;                     /* where the last release of a turn ran */
    int64_t turn_us;             /* when the present holder was told */
    struct dlock__claim *held;   /* HELD or RELEASING, the youngest first; an exclusive one is alone */
    struct dlock__claim *asking; /* the head waiter's: ASKING, WAITING or CONFIRMING */
    struct dlock__claim *lost;   /* lost and not yet released as often as acquired */
    struct dlock__waiter *head, *tail;
    int64_t yield_until_us; /* other processes' turn: the head asks no earlier */
    int64_t ready_at_us; /* the server, asked for it last, grants nothing before; 0: it does; DLOCK__NEVER: who knows */
    char text[];         /* with the prefix */
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
    atomic_bool signalling;      /* somebody is about to signal it: its `cond` may not go yet */
    bool asleep;                 /* that thread waits for `cond` */
    uint16_t trip_us;            /* from its last question to "busy", for as much of that as matters */
    int result;
    bool try_only : 1;
    bool heard : 1; /* the server has said "busy", and is not known to be out of reach since */
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

struct dlock__exported {
    struct dlock__exported *next;
    int64_t until_us;
    char token[DLOCK_TOKEN_MAX + 1];
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
    unsigned inside;                 /* threads in a call on this client */
    struct dlock__waiter *to_signal; /* as soon as the mutex is free: its thread would only run into that */
    int64_t now_us;                  /* the time since the mutex was taken last, read once; 0: not yet */
    uint64_t tokens;                 /* handed out so far */
    uint64_t token_key[2];           /* random: what makes one token tell nothing of another */
    uint64_t jitter;                 /* state of a small generator: spreads retries, guards nothing */

    struct dlock__name **names;
    size_t n_names, n_buckets;
    struct dlock__claim *claims, *claims_last; /* those that were renewed last are at the end */
    struct dlock__claim *spare;                /* freed claims, kept so that a steady state allocates nothing */
    struct dlock__gear *spare_gear;
    size_t n_spare, n_spare_gear;

    struct dlock__exported *exported; /* tokens whose grants are somebody else's now, whatever a wake-up says */

    struct dlock__conn *conns, *idle;
    unsigned n_pool;                             /* opened for the pool, at most uri->connections */
    unsigned n_idle;                             /* connected ones in `idle`, where connections carry one claim each */
    int watch;                                   /* PENDING: an epoll descriptor; else -1 */
    struct dlock__claim *pending, *pending_tail; /* operations that wait for a connection */
    unsigned n_pending, n_sent;                  /* how many; and how many operations are on the way */
    atomic_uint bell;                   /* for those who wait for a connection, or for somebody else's request */
    unsigned bells;                     /* bits of it that were given out */
    bool gathering[DLOCK__RELEASE + 1]; /* of this kind: somebody is about to send all that wait */
    bool crowded;                       /* there were more operations than connections just now: there may be again */
    int64_t invite_at_us;               /* nobody is waited for before: others than ours are ready on this processor */
    struct dlock__conn *shared;         /* THREADSAFE: the only one */
    unsigned session;                   /* SESSION|THREADSAFE: counts the connections that broke */

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
        int64_t up_us;        /* since when */
        int64_t probe_at_us;  /* the next probe; DLOCK__NEVER: nobody waits */
        int64_t answer_by_us; /* what was probed brings something by then, or is dead; DLOCK__NEVER: not probed */
        bool doubted;         /* it is probed even if nobody waits */
        bool unheard;         /* the server knows of no listener: the keeper drops this one */
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
        struct dlock__claim *loses; /* … and the loss that it is told of */
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

static inline void dlock__signal(struct dlock__waiter *waiter) {
    pthread_cond_signal(waiter->cond);
    atomic_store_explicit(&waiter->signalling, false, memory_order_release);
}
static inline void dlock__enter(struct dlock_client *client) {
    pthread_mutex_lock(&client->mutex);
    client->now_us = 0;
}
static inline void dlock__leave(struct dlock_client *client) {
    struct dlock__waiter *waiter = client->to_signal;
    client->to_signal = NULL;
    pthread_mutex_unlock(&client->mutex);
    if (waiter) dlock__signal(waiter);
}
static inline bool dlock__can(const struct dlock_client *client, uint32_t caps) {
    return (client->backend->caps & caps) == caps;
}

/* Whether a connection carries one claim, from acquire to release. */
static inline bool dlock__one_each(const struct dlock_client *client) {
    return dlock__can(client, DLOCK_CAP_SESSION) && !dlock__can(client, DLOCK_CAP_THREADSAFE);
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

/* Before a wait, which leaves the mutex as well. */
static inline void dlock__signal_due(struct dlock_client *client) {
    if (client->to_signal) dlock__signal(client->to_signal);
    client->to_signal = NULL;
}

/* Waits as dlock__cond_wait. */
static inline void dlock__wait(struct dlock_client *client, pthread_cond_t *cond, int64_t until_us) {
    dlock__signal_due(client);
    dlock__cond_wait(cond, &client->mutex, until_us);
    client->now_us = 0;
}

/* The pause after one that was in vain: twice as long, within bounds; after none the shortest. */
static inline int64_t dlock__longer_pause(int64_t pause_us, int64_t least_us, int64_t most_us) {
    if (pause_us > most_us / 2) return most_us;
    return pause_us * 2 < least_us ? least_us : pause_us * 2;
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

#include "parts.h"

#endif
