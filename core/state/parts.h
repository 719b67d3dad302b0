/* The parts of a client. Its mutex guards all of them, except what is marked otherwise. Each says which files use it,
 * and which threads these run in. */
#ifndef DLOCK_CORE_STATE_PARTS_H
#define DLOCK_CORE_STATE_PARTS_H

#include "state/name.h"

struct dlock__conn {
    struct dlock__conn *all;  /* next in pool.conns; never removed before the client ends */
    struct dlock__conn *idle; /* next in pool.idle */
    struct dlock_client *client;
    struct dlock_peer peer;
    atomic_bool live; /* `data` may own descriptors: read by the fork handler */
    bool connected;   /* the last operation left it usable */
    bool busy; /* THREADSAFE: somebody connects or disconnects it right now; carrying an acquisition: a call on it */
    unsigned users;                 /* THREADSAFE: calls in progress, the listener counts as one */
    struct dlock__acquisition *acq; /* SESSION, not THREADSAFE: the one it carries; acq->conn is this one then */
    bool waiting;                   /* PENDING: its blocking request is not answered yet */
    int fd;                         /* PENDING: what `listen` gave, in pool.watch; -1: none */
    bool broken;                    /* so the one here before ended: opening it again is a reconnect */
    bool watched;                   /* PENDING: the keeper is told when that polls readable */
    bool unwatched;                 /* PENDING: it is in pool.unwatched */
    struct dlock__conn *next_unwatched;
    int64_t rest_us;    /* when it is to be told to rest, if it is idle then */
    int64_t ended_us;   /* when the last acquisition that it carried was over */
    max_align_t data[]; /* the backend's, conn_size bytes */
};

/* io/pool.c, io/conn.c and io/dedicated.c, in every thread that sends requests. */
struct dlock__pool {
    struct dlock__conn *conns, *idle;
    unsigned n;                    /* opened for the pool, at most uri->connections */
    unsigned n_idle;               /* connected ones in `idle`, where connections carry one acquisition each */
    struct dlock__conn *shared;    /* THREADSAFE: the only one */
    unsigned session;              /* SESSION|THREADSAFE: counts the connections that broke */
    int watch;                     /* PENDING: an epoll descriptor, which the keeper polls; else -1 */
    struct dlock__conn *unwatched; /* PENDING: to be watched by the keeper's next round */
};

/* io/op.c, in every thread that sends requests. */
struct dlock__ops {
    struct dlock__acquisition *pending, *last; /* operations that wait for a connection */
    unsigned n_pending, n_sent;                /* how many; and how many operations are on the way */
    atomic_uint bell;                          /* for those who wait for a connection, or for somebody else's request */
    unsigned bells;                            /* bits of it that were given out */
    bool coalescing[DLOCK__RELEASE + 1];       /* of this kind: somebody is about to send all that wait */
    bool backlogged;        /* there were more operations than connections just now: there may be again */
    int64_t coalesce_at_us; /* nobody is waited for before: others than ours are ready on this processor */
};

/* state/grant.c and state/notify.c set them, in any thread; the keeper looks at what is due. */
struct dlock__timers {
    struct dlock__heap next;   /* of grants: the next renewal, or the end where that comes first */
    struct dlock__heap due;    /* the end of those whose renewal is due, or on the way */
    struct dlock__heap sleeps; /* of threads, for longer */
    size_t slots;              /* spare ones too: each heap has a place for the timer of each */
    uint64_t looks;            /* at acquisitions, because of these: counted for tests */
};

/* A request's send time and the server's clock in its answer; dies with any reconnect. state/grant.c, in every thread
 * that gets answers. */
struct dlock__clock_sample {
    int64_t sent_us, server_us; /* 0: none yet */
};

enum dlock__listener_state { DLOCK__LISTENER_DOWN, DLOCK__LISTENER_CONNECTING, DLOCK__LISTENER_UP };

/* io/listener.c and io/wake.c. A thread that waits brings it up; the keeper reads, probes and drops it. */
struct dlock__listener {
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
};

/* threads/keeper.c, in its thread. Any thread arms it (state/notify.c). */
struct dlock__keeper {
    bool started, stop;
    pthread_t thread;
    atomic_uint_fast64_t id; /* dlock__thread_id() of that */
    int control, timer;      /* eventfd, timerfd */
    int64_t armed_us;        /* the timer goes off then at the latest */
    struct dlock__conn *conn;
    bool borrows;        /* it waits for a connection of the pool */
    int64_t patience_us; /* for an answer, as the last renewal taught: the needs of others cut none shorter */
    struct dlock__acquisition *batch[DLOCK__BATCH]; /* here: renewal never runs out of memory */
    struct dlock_claim args[DLOCK__BATCH], *arg_pointers[DLOCK__BATCH];
};

/* A line of the keeper's for the log: the callback thread passes it to the application. */
struct dlock__line {
    struct dlock__line *next;
    int level;
    char text[];
};

/* threads/callback.c, in its thread, and in those that dispatch. Any thread leaves word (state/notify.c). */
struct dlock__callbacks {
    bool started, stop;
    pthread_t thread;
    pthread_cond_t cond;
    bool manual; /* dlock_client_dispatch calls; the thread only looks for lost grants */
    int fd;      /* eventfd: something is queued; -1: not MANUAL */
    struct dlock__event *first, *last;
    struct dlock__line *lines, *last_line;
    size_t n_lines;
    struct dlock_lock *running;       /* whose callback runs */
    uint64_t runner;                  /* … in which thread */
    struct dlock__acquisition *loses; /* … and the loss that it is told of, unless it has released that */
    int64_t armed_us;                 /* it looks at what ends then at the latest */
};

/* threads/engine.c, in its thread or two of them. Any thread leaves orphans (state/grant.c) and gives waits a turn. */
struct dlock__engine {
    pthread_t threads[2]; /* which are alike */
    unsigned n_threads;
    bool stop;
    bool asking;    /* one of them is in a request of those that had a turn */
    bool releasing; /* one is in a request of orphans */
    pthread_cond_t cond;
    void (*wake)(struct dlock__waiter *waiter); /* gives a waiter without a thread a turn */
    size_t n;                                   /* asynchronous operations that are not over */
    struct dlock__async *ready, *last;          /* they have a turn */
    struct dlock__heap sleepers;                /* of all that are to have one, with room for each record */
    struct dlock_error *errors;                 /* DLOCK__BATCH: what the server said */
    struct dlock__heap orphans;                 /* with room for each slot */
    struct dlock__acquisition *bare;            /* orphans without a slot: due as soon as there is memory for one */
};

#endif
