/* The parts of a client. Its mutex guards all of them, except what is marked otherwise. Each part says which files use
 * it, and in which threads they run.
 *
 * A member of an acquisition, its op, or a waiter is written by one file once it is made, except:
 *
 *     acquisition.refs, next        each file that takes or gives a reference; the list that it is in
 *     .mode, flags, lease_ms        ticket.c for an import; grant.c: other terms; keeper.c: an extension was confirmed
 *     .backend_state                every answer: batch.c, keeper.c; op.c in a new session
 *     .pause_us                     repeated requests: grant.c begins, release.c and keeper.c make it longer
 *     .ordinal                      a new holder: grant.c, handover.c, ticket.c
 *     .renewing, untold             begin and end: grant.c and keeper.c, notify.c and callback.c
 *     .count                        grant.c: its owner; lock.c: the owner's calls; acquisition.c: no owner
 *     op.status, result, late       op.c: not sent; batch.c: sent; engine.c: status only, for a request to be sent
 *     .err, extension               a caller waits, or leaves: op.c, engine.c, renew.c; keeper.c: an extension's answer
 *     .look, woken                  grant.c, a loss wake.c: a wake-up during a request; waiter.c: the request has ended
 *     .lost                         wake.c: a loss during a request; op.c: the next request begins
 *     waiter.handed, done, result   grant.c: it was handed a grant; waiter.c: everything else */
#ifndef DLOCK_CORE_STATE_PARTS_H
#define DLOCK_CORE_STATE_PARTS_H

#include "state/name.h"

struct dlock__conn {
    struct dlock__conn *all;  /* next in pool.conns; stays there until the client ends */
    struct dlock__conn *idle; /* next in pool.idle */
    struct dlock_client *client;
    struct dlock_peer peer;
    atomic_bool live;   /* `data` may own descriptors; read by the fork handler */
    bool connected;     /* usable, as the last operation left it */
    bool busy;          /* THREADSAFE: a thread connects or disconnects it right now */
    bool broken;        /* its predecessor broke: opening it again is a reconnect */
    unsigned users;     /* THREADSAFE: calls in progress; including the listener */
    max_align_t data[]; /* the backend's conn_size bytes */
};

/* io/pool.c and io/conn.c, in every thread that sends requests. */
struct dlock__pool {
    struct dlock__conn *conns, *idle;
    unsigned n;                 /* connections made for the pool, at most uri->connections */
    struct dlock__conn *shared; /* THREADSAFE: the only connection */
    unsigned session;           /* SESSION: number of times that the connection broke */
};

/* io/op.c, in every thread that sends requests. */
struct dlock__ops {
    struct dlock__acquisition *pending, *last; /* operations that wait for a connection */
    unsigned n_pending, n_sent;                /* operations in `pending`; and operations on the way */
    atomic_uint bell;                          /* rung for threads that wait for a connection or for another thread's
                                                * request */
    unsigned bells;                            /* number of bits of it given out */
    bool coalescing[DLOCK__RELEASE + 1];       /* by kind: a thread will send all that wait */
    bool backlogged; /* lately there were more operations than connections, and there may be again */
    /* No thread waits for more requests before this time, since the ready threads on this CPU are not ours. */
    int64_t coalesce_at_us;
};

/* state/grant.c and state/notify.c set them, in any thread; the keeper looks at what is due. */
struct dlock__timers {
    struct dlock__heap next;   /* of grants: the next renewal, or an earlier end */
    struct dlock__heap due;    /* the end of grants whose renewal is due or on the way */
    struct dlock__heap sleeps; /* the end of long sleeps of threads */
    size_t slots;              /* including spare ones: each heap has a place for the timer of each */
    uint64_t looks;            /* acquisitions looked at because of these timers, counted for tests */
};

/* A request's send time and the server's clock in its answer; forgotten at each reconnect. state/grant.c, in every
 * thread that gets answers. */
struct dlock__clock_sample {
    int64_t sent_us, server_us; /* 0: none yet */
};

enum dlock__listener_state { DLOCK__LISTENER_DOWN, DLOCK__LISTENER_CONNECTING, DLOCK__LISTENER_UP };

/* io/listener.c and io/wake.c. A thread that waits connects it; the keeper probes and drops it. The wake-ups are read by
 * the keeper, or by the reader: a thread that waits, and so need not be woken by the keeper (wait/blocking.c). */
struct dlock__listener {
    enum dlock__listener_state state;
    struct dlock__conn *conn;
    int fd;
    struct dlock__latch *reader; /* what the reader sleeps on; NULL: there is none */
    int bell;                    /* an eventfd that wakes the reader; -1: none could be opened, so there is no reader */
    bool busy;                   /* a thread calls the backend's `wake` or `probe` */
    bool more;                   /* messages are left that the descriptor need not show any more */
    unsigned idle;               /* how often in a row it polled readable and brought nothing */
    int64_t keeper_at_us;        /* the keeper reads from this time, even if there is a reader */
    int64_t retry_at_us;         /* next attempt after a failure; DLOCK__NEVER: this server wakes no waiter (ENOTSUP) */
    int64_t pause_us;
    int64_t up_us;            /* since when it is up */
    unsigned brief;           /* how many in a row were lost soon after they were up */
    int64_t probe_at_us;      /* the next probe; DLOCK__NEVER: no waiter */
    int64_t answer_by_us;     /* when a probed connection without an answer is taken as dead; DLOCK__NEVER: no probe */
    bool doubted;             /* probe it even without a waiter */
    struct dlock_error broke; /* with a code: why the reader found it dead; the keeper drops it */
    bool unheard;             /* the server knows of no listener: the keeper drops this one */
    int64_t for_grants_us;    /* when the keeper connects it although there is no waiter, for a grant
                               * (DLOCK_HINT_LISTEN); DLOCK__NEVER: it does not */
};

/* threads/keeper.c, in its thread. Any thread arms it (state/notify.c). */
struct dlock__keeper {
    bool started, stop;
    pthread_t thread;
    atomic_uint_fast64_t id;          /* dlock__thread_id() of that thread */
    int control, timer;               /* an eventfd and a timerfd */
    int64_t armed_us;                 /* the timer goes off then, or earlier */
    int64_t asleep_us;                /* since when it waits for that; 0: it does not */
    int64_t stalled_us, continued_us; /* when this process last did not run: at least from then until then */
    struct dlock__conn *conn;
    bool borrows;        /* it waits for a connection of the pool */
    int64_t patience_us; /* twice the time of the last renewal: the least that a renewal gets */
    struct dlock__acquisition *batch[DLOCK__BATCH]; /* kept here, so that a renewal never runs out of memory */
    struct dlock_claim args[DLOCK__BATCH], *arg_pointers[DLOCK__BATCH];
};

/* An event, or a line of the keeper's for the log, which the callback thread passes to the application. */
struct dlock__line {
    struct dlock__line *next;
    int level;                /* of the log */
    struct dlock_event event; /* with a kind: it is an event, whose strings are below */
    char text[];
};

/* threads/callback.c, in its thread and in those that call dlock_client_dispatch. Any thread queues events
 * (state/notify.c). */
struct dlock__callbacks {
    bool started, stop;
    pthread_t thread;
    int timer;   /* a timerfd, on which the thread sleeps; -1: it was never started */
    bool asleep; /* it does, or will soon */
    bool manual; /* dlock_client_dispatch runs the callbacks; the thread only watches the ends of grants */
    int fd;      /* an eventfd, readable while something is queued; -1: not MANUAL */
    struct dlock__event *first, *last;
    struct dlock__line *lines, *last_line;
    size_t n_lines;
    uint32_t dropped;           /* events since the last line, for want of room */
    struct dlock_lock *running; /* the handle whose callback runs */
    uint64_t runner;            /* … the thread that it runs in */
    struct dlock__hold *loses;  /* … and the hold whose loss it reports, until the callback has released that */
    int64_t armed_us;           /* the thread wakes then, or earlier, to see what has ended */
    unsigned calls;             /* calls of the application that are not over, those in dlock_free, too */
    int64_t begun_us;           /* since when there is such a call, */
    int64_t spent_us;           /* and for how long there was one before; dlock_close restarts both */
};

/* threads/engine.c, in its threads. Any thread leaves orphans (state/grant.c) and gives waits a turn. */
struct dlock__engine {
    pthread_t threads[2]; /* equal in every respect */
    unsigned n_threads;
    bool stop;
    bool asking;    /* one of them sends a request of operations that had a turn */
    bool releasing; /* one of them sends a request of orphans */
    pthread_cond_t cond;
    void (*wake)(struct dlock__waiter *waiter); /* gives a waiter without a thread a turn */
    size_t n;                                   /* asynchronous operations that are not over */
    struct dlock__async *ready, *last;          /* those that have a turn */
    struct dlock__heap sleepers;                /* those that will have a turn at some time; has room for each record */
    struct dlock_error *errors;                 /* DLOCK__BATCH of them: the server's messages */
    struct dlock__heap orphans;                 /* has room for each slot */
    struct dlock__acquisition *bare;            /* orphans without a slot, released as soon as there is memory */
};

#endif
