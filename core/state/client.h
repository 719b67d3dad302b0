/* A client, and the parts that its threads own. One mutex per client guards everything here except
 * what is marked otherwise; it is never held across a call into a backend, a callback, or the resolver. Functions named
 * dlock__… expect it held unless they say so. */
#ifndef DLOCK_CORE_STATE_CLIENT_H
#define DLOCK_CORE_STATE_CLIENT_H

#include "plugin/plugin.h"
#include "state/guard.h"
#include "state/parts.h"
#include "uri/resolve.h"
#include "uri/uri.h"

/* DLOCK_LEASE_MIN_MS times two to the power of this is more than any lease. */
enum { DLOCK__LEASES = 30 };

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
    size_t token_tail_size;
    int64_t quarantine_ms;
    struct dlock__guard *guard; /* NULL: no guardian */

    uint32_t leases[DLOCK__LEASES]; /* handles whose grants are renewed, by the power of two of their lease */
    int64_t longest_lease_ms;       /* of such a handle, so far */
    unsigned refs;                  /* the opener, each handle */
    bool closed;
    unsigned inside;            /* threads in a call on this client */
    const atomic_uint *to_wake; /* as soon as the mutex is free: the thread would only run into that */
    int64_t now_us;             /* the time since the mutex was taken last, read once; 0: not yet */
    uint64_t tokens;            /* handed out so far */
    uint64_t token_key[2];      /* random: what makes one token tell nothing of another */
    uint64_t jitter;            /* state of a small generator: spreads retries, guards nothing */

    struct dlock__name **names;
    size_t n_names, n_buckets;
    struct dlock__acquisition *acquisitions;
    struct dlock__acquisition *spare; /* freed acquisitions, kept so that a steady state allocates nothing */
    struct dlock__slot *spare_slots;
    size_t n_spare, n_spare_slots;

    struct dlock__part *parts;        /* of calls in progress about several handles */
    struct dlock__exported *exported; /* tokens whose grants are somebody else's now, whatever a wake-up says */

    struct dlock__timers timers;
    struct dlock__pool pool;
    struct dlock__ops ops;
    struct dlock__clock_sample clock_sample;
    struct dlock__listener listener;
    struct dlock__keeper keeper;
    struct dlock__callbacks callback;
    struct dlock__engine engine;
    struct dlock_stats stats; /* its `size` is not used */
};

static inline void dlock__enter(struct dlock_client *client) {
    pthread_mutex_lock(&client->mutex);
    client->now_us = 0;
}
static inline void dlock__leave(struct dlock_client *client) {
    const atomic_uint *word = client->to_wake;
    client->to_wake = NULL;
    pthread_mutex_unlock(&client->mutex);
    if (word) dlock__futex_wake(word, UINT32_MAX);
}

static inline bool dlock__can(const struct dlock_client *client, uint32_t caps) {
    return (client->backend->caps & caps) == caps;
}

/* Whether a connection carries one acquisition, from acquire to release. */
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

/* Call it before a wait, which leaves the mutex as well. */
static inline void dlock__wake_due(struct dlock_client *client) {
    if (client->to_wake) dlock__futex_wake(client->to_wake, UINT32_MAX);
    client->to_wake = NULL;
}

/* Waits as dlock__cond_wait. */
static inline void dlock__wait(struct dlock_client *client, pthread_cond_t *cond, int64_t until_us) {
    struct dlock__sleep sleep = {.cond = cond};
    dlock__sleep_begin(client, &sleep, until_us);
    dlock__wake_due(client);
    dlock__cond_wait(cond, &client->mutex, until_us);
    dlock__timer_disarm(&sleep.timer);
    client->now_us = 0;
}

/* Wakes threads that wait for a connection, or for a request in another thread's hands. */
static inline void dlock__bell_ring(struct dlock_client *client, uint32_t bits) {
    atomic_fetch_add(&client->ops.bell, 1);
    dlock__futex_wake(&client->ops.bell, bits);
}

/* The pause after one that was in vain: twice as long, within bounds; after none the shortest. */
static inline int64_t dlock__longer_pause(int64_t pause_us, int64_t least_us, int64_t most_us) {
    if (pause_us > most_us / 2) return most_us;
    return pause_us * 2 < least_us ? least_us : pause_us * 2;
}

/* ---- client.c ---- */

/* Leaves the mutex for about as long as it takes to wake a thread that waits for it. A thread that does much with the
 * mutex has to do this now and then: one that takes it again at once is faster than those that it has just woken. */
void dlock__breathe(struct dlock_client *client);

/* A pseudo-random number in [low, high]. */
int64_t dlock__jitter(struct dlock_client *client, int64_t low, int64_t high);

/* One line for the application's log. Without the mutex; by the keeper, too: that does not wait for the application. */
DLOCK_PRINTF(3, 4) void dlock__log(struct dlock_client *client, int level, const char *format, ...);

/* Drops one reference; the last one frees the client. Without the mutex. */
void dlock__client_put(struct dlock_client *client);

/* deadline_us, but no later than the URI's `timeout` from now. */
static inline int64_t dlock__bounded(struct dlock_client *client, int64_t deadline_us) {
    int64_t most = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms));
    return deadline_us < most ? deadline_us : most;
}

/* When an acquire with this timeout ends: a try has the URI's `timeout`. */
static inline int64_t dlock__deadline(struct dlock_client *client, int64_t timeout_ms) {
    int64_t wait_ms = timeout_ms < 0 ? DLOCK_FOREVER : timeout_ms == 0 ? client->uri->timeout_ms : timeout_ms;
    return dlock__after(dlock__now(client), dlock__us(wait_ms));
}

/* Whether a connection that has ended took everything about this acquisition along. */
static inline bool dlock__acq_died_with_connection(const struct dlock__acquisition *acq) {
    const struct dlock_client *client = acq->name->client;
    return dlock__one_each(client) ? !acq->conn : acq->session != client->pool.session;
}

/* ---- call.c ---- */

/* The way into and out of every call on a handle: 0 and the mutex, or why not. */
int dlock__lock_begin(struct dlock_lock *lock, struct dlock_error *err);
int dlock__lock_end(struct dlock_lock *lock, int rc);
/* The same for calls on clients. */
int dlock__client_begin(struct dlock_client *client, struct dlock_error *err);
int dlock__client_end(struct dlock_client *client, int rc);

/* A handle is there whose grants are renewed, or (-1) no longer. */
void dlock__lock_count(const struct dlock_lock *lock, int difference);
/* It is at most the shortest lease of those handles, and more than half of it. */
int64_t dlock__shortest_lease_ms(const struct dlock_client *client);

/* Frees the memory of a handle that nothing refers to any more. */
void dlock__lock_destroy(struct dlock_lock *lock);

/* ---- stats.c ---- */

/* The waiter has to wait, which is counted unless it is a try. It is over, which is counted if it had to. */
void dlock__stats_waits(struct dlock__waiter *waiter);
void dlock__stats_waited(const struct dlock__waiter *waiter);
/* A grant that somebody has been told of has ended before its release. */
void dlock__stats_lost(const struct dlock__acquisition *acq);

/* ---- fork.c ---- */

extern atomic_uint dlock__fork_generation; /* forks between the first process and this one */
/* True in a process forked after the client was opened. No mutex needed. */
static inline bool dlock__forked(const struct dlock_client *client) {
    return client->fork_generation != atomic_load_explicit(&dlock__fork_generation, memory_order_relaxed);
}
int dlock__forked_error(struct dlock_error *err);
/* Notes, and forgets, a client whose connections a forked child must abandon. Without the mutex. */
int dlock__fork_watch(struct dlock_client *client, struct dlock_error *err);
void dlock__fork_unwatch(struct dlock_client *client);

/* ---- token.c ---- */

/* Whether the token's grant has left this client with a ticket a while ago: a wake-up may still tell of it. */
bool dlock__exported(const struct dlock_client *client, const char *token);
void dlock__exported_free(struct dlock_client *client);

/* Notes the acquisition's token before it is exported, if a wake-up may still tell of its grant: nobody here may take
 * that for a grant that nobody wants. 0 or ENOMEM. */
int dlock__exported_remember(const struct dlock__acquisition *acq, struct dlock_error *err);

#endif
