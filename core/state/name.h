/* A name as this process knows it: its handles, its line of waiters, the acquisitions that are held or asked for. */
#ifndef DLOCK_CORE_STATE_NAME_H
#define DLOCK_CORE_STATE_NAME_H

#include "state/acquisition.h"

/* Everything that this process knows of one name. Lives while a handle or an acquisition refers to it. */
struct dlock__name {
    struct dlock__name *chain; /* hash bucket */
    struct dlock_client *client;
    unsigned refs;
    uint32_t hash;
    bool in_batch;                     /* only while the pool gathers one that has no name twice */
    bool short_holds;                  /* threads of this process take turns, each for a moment: it pays to spin */
    atomic_uint taken;                 /* counts takes of what lingers */
    int cpu;                           /* where the last release of a turn ran */
    int64_t turn_us;                   /* when the present holder was told */
    struct dlock__acquisition *held;   /* HELD to RELEASING, the youngest first; an exclusive one is alone */
    struct dlock__acquisition *asking; /* the head waiter's: ASKING, WAITING or CONFIRMING */
    struct dlock__acquisition *lost;   /* lost and not yet released as often as acquired */
    struct dlock__waiter *head, *tail;
    int64_t backoff_until_us; /* other processes' turn: the head asks no earlier */
    int64_t ready_at_us;      /* the server grants nothing before, as it said last; 0: it does; DLOCK__NEVER: unknown */
    char text[];              /* with the prefix */
};

/* Owned by a handle; dlock__thread_id() is never that. */
#define DLOCK__ANY_THREAD UINT64_MAX

struct dlock_lock {
    struct dlock__name *name;
    struct dlock_client *client;
    enum dlock_owner owner;
    enum dlock_mode mode;
    uint32_t limit;
    uint32_t flags;
    int64_t lease_ms;
    dlock_callback on_lost;
    void *on_lost_arg;
    struct dlock__hold *holds; /* of acquisitions through it, the youngest first */
    struct {
        const struct dlock__acquisition *acq; /* one that is held through it, and by the mutex; NULL: none */
        atomic_uint_fast64_t thread;          /* its owner, DLOCK__ANY_THREAD for the handle; 0: none */
        atomic_int_fast64_t until_us;         /* while that is the owner */
    } shown;                                  /* what dlock_held reads without the mutex */
    uint32_t inside;                          /* threads in a call on it */
    uint32_t waiting;                         /* waits on it, in line or about to leave it */
    uint32_t cancels;                         /* so often all waits on it were ended */
    uint32_t async;                           /* asynchronous operations whose callback has not begun */
    bool freed;                               /* dlock_free is at work */
    bool freed_inside;                        /* … by its own callback: the callback's thread destroys it */
};

/* A thread that takes the turns of waiters, of one or of those of a dlock_acquire_all, sleeps on this. */
struct dlock__latch {
    atomic_uint word;      /* counts wakes, in steps of 2; odd, which changes under the waiters' mutex: it sleeps */
    atomic_bool cancelled; /* by the thread that ended one of the handles; stays */
};

/* A handle's part in a call about several. */
struct dlock__part {
    struct dlock__part *next, *prev; /* in client->parts */
    struct dlock_lock *lock;
    struct dlock__latch *latch;
};

/* Somebody of this process who waits for a name, first come first served. The head one talks to the server. */
struct dlock__waiter {
    struct dlock__waiter *next, *prev;
    struct dlock_lock *lock;
    uint64_t thread;
    int64_t began_us, deadline_us;
    struct dlock__acquisition *handed; /* among name->held when it was given; holds a reference; may be lost by now */
    struct dlock_error *why;           /* what the server said last, in the end the error; NULL: nobody needed it yet */
    struct dlock__latch *latch;        /* of the thread that takes its turns; NULL: the engine does */
    /* RELEASING, which has to be sent before it is over: what it gave up, or (an async release) all that it is about;
     * with a reference */
    struct dlock__acquisition *leaving;
    int result;
    uint32_t cancels;  /* lock->cancels when it began to wait: that one is greater when it was cancelled */
    uint32_t pause_us; /* the last decorrelated pause between its questions */
    uint16_t trip_us;  /* from its last question to "busy", for as much of that as matters */
    bool try_only : 1;
    bool heard : 1; /* the server has said "busy", and is not known to be out of reach since */
    bool in_line : 1;
    bool done : 1;  /* `result` counts: 0 = out of the line, `handed` is its grant; else cancelled and still in line */
    bool over : 1;  /* nothing more happens to it */
    bool waits : 1; /* its first question did not settle it: it is counted */
    /* those that the engine takes the turns of */
    bool ready : 1;  /* in client->engine.ready */
    bool asking : 1; /* its request is on the way */
};

/* A sleep that ends by itself, but by a clock that stands still while the machine is suspended: the keeper, whose timer
 * goes on, ends it by the right one. */
struct dlock__sleep {
    struct dlock__timer timer;
    struct dlock__latch *latch; /* that the thread sleeps on, or */
    pthread_cond_t *cond;
};

/* An acquire or release that no thread waits for. */
struct dlock__async {
    struct dlock__waiter waiter; /* the first member: the engine finds the record by it */
    struct dlock__event event;
    dlock_callback call;
    void *arg;
    struct dlock__async *next, *prev; /* in client->engine.ready */
    struct dlock__timer timer;        /* a turn is due; asking or ready: it ends without one */
};

struct dlock__exported {
    struct dlock__exported *next;
    int64_t until_us;
    char token[DLOCK_TOKEN_MAX + 1];
};

/* The subject of an event. */
static inline struct dlock__hold *dlock__event_hold(struct dlock__event *event) {
    return (struct dlock__hold *)((char *)event - offsetof(struct dlock__hold, event));
}

static inline struct dlock__async *dlock__event_async(struct dlock__event *event) {
    return (struct dlock__async *)((char *)event - offsetof(struct dlock__async, event));
}

static inline struct dlock_lock *dlock__event_lock(struct dlock__event *event) {
    return event->kind == DLOCK__EVENT_LOST ? dlock__event_hold(event)->handle : dlock__event_async(event)->waiter.lock;
}

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
/* Puts it into the line behind `before`; NULL: in front. */
void dlock__name_insert(struct dlock__name *name, struct dlock__waiter *waiter, struct dlock__waiter *before);
void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter);
/* Wakes the waiter at the head, who looks around again. */
void dlock__name_signal(struct dlock__name *name);
/* Adds to, and removes from, name->held; the reference goes along. False: it was not there. */
void dlock__name_hold(struct dlock__name *name, struct dlock__acquisition *acq);
bool dlock__name_unhold(struct dlock__name *name, struct dlock__acquisition *acq);
/* The exclusive acquisition among name->held, or NULL: while there is one nobody of this process asks the server. */
static inline struct dlock__acquisition *dlock__name_exclusive(const struct dlock__name *name) {
    return name->held && name->held->mode == DLOCK_EXCLUSIVE ? name->held : NULL;
}

/* Nobody holds it, and the server, as it said last, grants nothing yet: ENOTREADY with a message if that is so now,
 * else 0; and ENOTREADY if it was so when it answered. */
int dlock__name_ready(const struct dlock__name *name, struct dlock_error *err);
int dlock__name_not_ready(const struct dlock__name *name, struct dlock_error *err);

/* ---- handover.c ---- */

/* The next waiter of this process owns the same grant, if there is one who may. */
bool dlock__hand_over(struct dlock__acquisition *acq);
/* After a release: where no queue knows who is next this process's own waiters let others ask first. */
void dlock__back_off(const struct dlock__acquisition *acq);

static inline bool dlock__lingers(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__LINGERING;
}

/* Instead of the release of a HELD acquisition; false: it has to be released. */
bool dlock__linger_begin(struct dlock__acquisition *acq);
enum dlock__briefly {
    DLOCK__BRIEFLY_SEND,  /* nobody came */
    DLOCK__BRIEFLY_TAKEN, /* another thread has it, or had it */
    DLOCK__BRIEFLY_ENDED  /* somebody else releases it, or it was lost */
};
/* Instead of a release that is about to be sent, if name->short_holds: the next thread is likely to be back for the
 * lock before that could have reached the server. The caller has a reference. Leaves the mutex meanwhile. */
enum dlock__briefly dlock__linger_briefly(struct dlock__acquisition *acq);
/* The lingering acquisition of this name, for a new owner; NULL: there is none, or none that fits. */
struct dlock__acquisition *dlock__linger_take(struct dlock_lock *lock);
/* The lingering acquisition of this name that does not fit: it is to be released before the lock's waiter asks. */
struct dlock__acquisition *dlock__linger_misfit(const struct dlock_lock *lock);
/* It must not linger, or no longer. */
void dlock__linger_not(struct dlock__acquisition *acq);

/* ---- notify.c ---- */

/* It has a turn now. */
void dlock__waiter_wake(struct dlock__waiter *waiter);
/* Ends the calls in progress that are about this handle among others (NULL: about any). */
void dlock__parts_cancel(struct dlock_client *client, const struct dlock_lock *lock);
/* Begins and ends a sleep. One that is short is not watched: it does not end much too late. */
void dlock__sleep_begin(struct dlock_client *client, struct dlock__sleep *sleep, int64_t until_us);
/* The keeper's: wakes those whose time is over; the end of the first that is left. */
int64_t dlock__sleeps_end(struct dlock_client *client);
/* Something has to happen at at_us: makes sure that the keeper is awake then. Wakes nobody. */
void dlock__keeper_arm(struct dlock_client *client, int64_t at_us);
/* The set of descriptors changed. */
void dlock__keeper_kick(struct dlock_client *client);
/* A grant with an on_lost, or an asynchronous wait whose request may hang, ends at at_us at the latest: makes sure that
 * the thread is awake then. Wakes it only if it would sleep longer. */
void dlock__callback_arm(struct dlock_client *client, int64_t at_us);
/* Queues the on_lost of the handles that hold the acquisition. */
void dlock__callback_lost(struct dlock__acquisition *acq);
/* Queues the end of an asynchronous operation. */
void dlock__callback_async(struct dlock__async *async);

#endif
