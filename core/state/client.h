/* A client, and the parts that its threads own. One mutex per client guards everything here except what is marked
 * otherwise. It is never held across a call into a backend, a callback, or the resolver. Functions named dlock__…
 * expect it held unless their comment says otherwise. */
#ifndef DLOCK_CORE_STATE_CLIENT_H
#define DLOCK_CORE_STATE_CLIENT_H

#include "plugin/plugin.h"
#include "state/guard.h"
#include "state/parts.h"
#include "uri/resolve.h"
#include "uri/uri.h"

/* So many powers of two times DLOCK_LEASE_MIN_MS cover every lease. */
enum { DLOCK__LEASES = 30 };

struct dlock_client {
    pthread_mutex_t mutex;
    pthread_cond_t changed;      /* rare events: a call ended, the listener came up, a callback ended */
    struct dlock_client *listed; /* next of all clients of the process, under fork.c's mutex */
    unsigned fork_generation;    /* constant, as is the next group */

    const struct dlock_backend *backend;
    const struct dlock__module *module;
    struct dlock__uri *uri;
    struct dlock__resolver *resolver;
    uint32_t base_caps; /* as in struct dlock__server */
    void (*_Atomic log)(int level, const char *message, void *arg);
    void *log_arg;
    void (*event)(const struct dlock_event *event, void *arg);
    void *event_arg;
    char id[25];
    char token_tail[77]; /* @host:pid, and @label if it has one; with it the longest token has DLOCK_TOKEN_MAX bytes */
    size_t token_tail_size;
    int64_t quarantine_ms;
    struct dlock__guard *guard; /* NULL: no guardian */

    uint32_t leases[DLOCK__LEASES]; /* handles whose grants are renewed, counted by the power of two of their lease */
    int64_t longest_lease_ms;       /* longest lease of such a handle */
    unsigned refs;                  /* one of the opener, one of each handle */
    int64_t closed;                 /* by when dlock_close has to return, except for callbacks; 0: it was not called */
    bool stopped;                   /* it acquires nothing any more */
    bool watches;                   /* a handle had an on_wanted: wake-ups are read at once */
    bool ended;                     /* its threads and connections have, too */
    unsigned inside;                /* threads in a call on this client */
    const atomic_uint *to_wake; /* a latch to wake when the mutex is left: sooner, its thread would only wait for the
                                 * mutex */
    int64_t now_us;             /* dlock__now: read once since the mutex was taken; 0: not read yet */
    uint64_t tokens;            /* number of tokens made */
    uint64_t token_key[2];      /* random key: keeps the next tokens unpredictable */
    uint64_t jitter;            /* state of the pseudo-random generator that spreads retries; not for secrets */

    struct dlock__name **names;
    size_t n_names, n_buckets;
    size_t bucket_room, bucket_half; /* memory for so many buckets; the greatest power of two <= n_buckets */
    struct dlock__acquisition *acquisitions;
    size_t n_waiting;                 /* of them, those in WAITING */
    size_t n_queued;                  /* of those: WAITING, with a place in the server's queue */
    uint64_t walks;                   /* over all of them: dlock__acq_first */
    struct dlock__acquisition *spare; /* freed acquisitions, reused so that a steady state allocates nothing */
    struct dlock__slot *spare_slots;
    size_t n_spare, n_spare_slots;

    struct dlock__part *parts;        /* of calls in progress on several handles */
    struct dlock__exported *exported; /* exported tokens: their grants belong to others, even if a wake-up announces
                                       * them */

    struct dlock__timers timers;
    struct dlock__pool pool;
    struct dlock__ops ops;
    struct dlock__clock_sample clock_sample;
    struct dlock__listener listener;
    struct dlock__keeper keeper;
    struct dlock__callbacks callback;
    struct dlock__engine engine;
    struct dlock_stats stats; /* its `size` is not used; `last_answer_ms` is set by dlock_client_stats */
    int64_t answered_us;      /* when the server last answered anything; 0: it has not yet */
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

/* The first of all acquisitions, for a walk over them. With 100,000 locks that takes long, and no other thread gets the
 * mutex during it: so it is only for failures. Counted for tests. */
static inline struct dlock__acquisition *dlock__acq_first(struct dlock_client *client) {
    client->walks++;
    return client->acquisitions;
}

/* Milliseconds to microseconds without overflow. */
static inline int64_t dlock__us(int64_t ms) {
    return ms >= DLOCK__NEVER / 1000 ? DLOCK__NEVER : ms * 1000;
}

/* The time `us` after `now_us`, without overflow. */
static inline int64_t dlock__after(int64_t now_us, int64_t us) {
    return us >= DLOCK__NEVER - now_us ? DLOCK__NEVER : now_us + us;
}

/* The time, read once while the mutex is held: for deadlines, and to see what is due. */
static inline int64_t dlock__now(struct dlock_client *client) {
    if (client->now_us == 0) client->now_us = dlock__now_us();
    return client->now_us;
}

/* Sends the wake-up in `to_wake`. To be called before a wait, which leaves the mutex as well. */
static inline void dlock__wake_due(struct dlock_client *client) {
    if (client->to_wake) dlock__futex_wake(client->to_wake, UINT32_MAX);
    client->to_wake = NULL;
}

/* Waits as dlock__cond_wait, with a wake-up in `to_wake` sent before. */
static inline void dlock__wait(struct dlock_client *client, pthread_cond_t *cond, int64_t until_us) {
    struct dlock__sleep sleep = {.cond = cond};
    dlock__sleep_begin(client, &sleep, until_us);
    dlock__wake_due(client);
    dlock__cond_wait(cond, &client->mutex, until_us);
    dlock__timer_disarm(&sleep.timer);
    client->now_us = 0;
}

/* Wakes threads that wait for a connection, or for a request that another thread sends. */
static inline void dlock__bell_ring(struct dlock_client *client, uint32_t bits) {
    atomic_fetch_add(&client->ops.bell, 1);
    dlock__futex_wake(&client->ops.bell, bits);
}

/* Wakes the callback thread if it sleeps. */
static inline void dlock__callback_wake(struct dlock_client *client) {
    if (client->callback.asleep) dlock__timer_set(client->callback.timer, 0);
    client->callback.asleep = false;
}

/* The next pause of a backoff: twice pause_us, within bounds; the shortest if pause_us is 0. */
static inline int64_t dlock__longer_pause(int64_t pause_us, int64_t least_us, int64_t most_us) {
    if (pause_us > most_us / 2) return most_us;
    return pause_us * 2 < least_us ? least_us : pause_us * 2;
}

/* ---- client.c ---- */

enum { DLOCK__BREATH_US = 50 };

/* Leaves the mutex for about as long as it takes to wake a thread that waits for it. A thread that works long under the
 * mutex must call this now and then: taking the mutex again at once, it would be faster than the threads it has just
 * woken. */
void dlock__breathe(struct dlock_client *client);

/* A pseudo-random number in [low, high]. */
int64_t dlock__jitter(struct dlock_client *client, int64_t low, int64_t high);

/* ---- tell.c ---- */

/* Tell what happened to the client, to a grant, or to a waiter, if the client has an `event`. With the mutex. */
void dlock__tell(struct dlock_client *client, enum dlock_event_kind kind);
void dlock__tell_grant(enum dlock_event_kind kind, const struct dlock__acquisition *acq, int64_t waited_us,
                       const char *text);
void dlock__tell_wait(enum dlock_event_kind kind, const struct dlock__waiter *waiter);

/* Passes one line to the application's log. Without the mutex. Lines of the keeper go through the callback thread, so
 * that the keeper does not wait for the application. */
DLOCK_PRINTF(3, 4) void dlock__log(struct dlock_client *client, int level, const char *format, ...);

/* Drops one reference; the last one frees the client. Without the mutex. */
void dlock__client_put(struct dlock_client *client);

/* The earlier of deadline_us, the URI's `timeout` from now, and the end of dlock_close. */
static inline int64_t dlock__bounded(struct dlock_client *client, int64_t deadline_us) {
    int64_t most = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms));
    if (client->closed && client->closed < most) most = client->closed;
    return deadline_us < most ? deadline_us : most;
}

/* The deadline of an acquire with this timeout; a try has the URI's `timeout`. */
static inline int64_t dlock__deadline(struct dlock_client *client, int64_t timeout_ms) {
    int64_t wait_ms = timeout_ms < 0 ? DLOCK_FOREVER : timeout_ms == 0 ? client->uri->timeout_ms : timeout_ms;
    return dlock__after(dlock__now(client), dlock__us(wait_ms));
}

/* Adds `n` to the counts of waits, if this one waits. `queued` does not change while it is WAITING. */
static inline void dlock__acq_count(const struct dlock__acquisition *acq, int n) {
    if (acq->state == DLOCK__HELD || acq->state == DLOCK__DOWNGRADING) acq->name->client->stats.held += (uint64_t)n;
    if (acq->state != DLOCK__WAITING) return;
    acq->name->client->n_waiting += (size_t)n;
    if (acq->unanswered.queued) acq->name->client->n_queued += (size_t)n;
}

/* True if a connection that has ended took everything of this acquisition along. */
static inline bool dlock__acq_died_with_connection(const struct dlock__acquisition *acq) {
    return acq->session != acq->name->client->pool.session;
}

/* ---- call.c ---- */

/* The way into and out of every call on a handle. dlock__lock_begin returns 0 with the mutex held, or an error without;
 * dlock__lock_end leaves the mutex and returns rc. */
int dlock__lock_begin(struct dlock_lock *lock, struct dlock_error *err);
int dlock__lock_end(struct dlock_lock *lock, int rc);
/* The same for calls on clients. */
int dlock__client_begin(struct dlock_client *client, struct dlock_error *err);
int dlock__client_end(struct dlock_client *client, int rc);

/* Counts a handle whose grants are renewed: 1 for a new one, -1 for one that ends. */
void dlock__lock_count(const struct dlock_lock *lock, int difference);
/* A lower bound of the shortest lease of those handles: more than half of it. */
int64_t dlock__shortest_lease_ms(const struct dlock_client *client);

/* Frees the memory of a handle when dlock_free is done with it, unless another thread is in a call on it, or its callback
 * runs: then that calls this again. */
void dlock__lock_destroy(struct dlock_lock *lock);

/* ---- stats.c ---- */

/* Count a wait: at its begin, if the waiter has to wait and is no try; and at its end, if it had to wait. */
void dlock__stats_waits(struct dlock__waiter *waiter);
void dlock__stats_waited(const struct dlock__waiter *waiter);
/* Counts the time for which the present owner has held it, at the end of that. */
void dlock__stats_held(const struct dlock__acquisition *acq);
/* Counts, and tells of, a grant that ended before its release, and of which an owner was told. */
void dlock__stats_lost(const struct dlock__acquisition *acq);
/* Notes that the server has answered. */
static inline void dlock__stats_answered(struct dlock_client *client) {
    client->answered_us = dlock__now(client);
}

/* ---- fork.c ---- */

extern atomic_uint dlock__fork_generation; /* forks between the first process and this one */
/* True in a process forked after the client was opened. No mutex needed. */
static inline bool dlock__forked(const struct dlock_client *client) {
    return client->fork_generation != atomic_load_explicit(&dlock__fork_generation, memory_order_relaxed);
}
int dlock__forked_error(struct dlock_error *err);
/* Installs the fork handler. To be called before anything of base/forking.h installs its own, so that a fork waits for
 * foreign code before it takes the clients' mutexes. Returns 0 or ENOMEM. */
int dlock__fork_prepare(struct dlock_error *err);
/* Registers, and removes, a client whose connections a forked child must abandon. Without the mutex. */
void dlock__fork_watch(struct dlock_client *client);
void dlock__fork_unwatch(struct dlock_client *client);

/* ---- token.c ---- */

/* Writes the end of this client's tokens, for the process `pid` on `host`. Of the label as many characters as fit. */
void dlock__token_tail(struct dlock_client *client, const char *host, long pid, const char *label);

/* True if the token's grant has left this client with a ticket a while ago: a wake-up may still announce it. */
bool dlock__exported(const struct dlock_client *client, const char *token);
void dlock__exported_free(struct dlock_client *client);

/* Remembers the acquisition's token before it is exported, if a wake-up may still announce its grant: otherwise that
 * would look like an unwanted grant, and would be released. Returns 0 or ENOMEM. */
int dlock__exported_remember(const struct dlock__acquisition *acq, struct dlock_error *err);

#endif
