/* A name as this process knows it: its handles, its line of waiters, and its acquisitions. */
#ifndef DLOCK_CORE_STATE_NAME_H
#define DLOCK_CORE_STATE_NAME_H

#include "state/acquisition.h"

/* What is known about how long others hold a name, for waiters that poll (rhythm.c). Protected by the client's
 * mutex. */
struct dlock__rhythm {
    uint64_t fence;            /* of the grant that blocked the last question; 0: unknown, or none */
    int64_t seen_us;           /* when it was seen */
    int64_t since_us, blur_us; /* when that grant began, and the error of that */
    int64_t hold_us, off_us;   /* how long such grants last, and the error of that; 0: unknown */
    int64_t released_us;       /* when this process last released the name; 0: never */
    int64_t paid_us;           /* the time by which all questions would have been due at an even pace */
    uint32_t met, usual;       /* grants to others since the last one to this process; their usual number */
    bool guessed;              /* the begin of that grant was not observed */
    bool odd;                  /* the hold before was very different from earlier ones */
};

/* Everything that this process knows of one name. Lives while a handle or an acquisition refers to it. */
struct dlock__name {
    struct dlock__name *chain; /* hash bucket */
    struct dlock_client *client;
    unsigned refs;
    uint32_t hash;
    bool in_batch;                     /* set only while the pool collects a batch without duplicate names */
    bool short_holds;                  /* threads of this process take turns with short holds: spinning pays */
    atomic_uint taken;                 /* counts how often a lingering grant was taken */
    int cpu;                           /* CPU of the last release before a local hand-over */
    int64_t turn_us;                   /* when the present holder was told */
    struct dlock__acquisition *held;   /* HELD to RELEASING, but for waits given up; youngest first; an exclusive one is
                                        * alone */
    struct dlock__acquisition *asking; /* the head waiter's acquisition: ASKING, WAITING or CONFIRMING */
    struct dlock__acquisition *lost;   /* lost, and not yet released as often as acquired */
    struct dlock__waiter *head, *tail;
    int64_t backoff_until_us;     /* other processes' turn: the head asks no earlier */
    struct dlock__rhythm *rhythm; /* NULL: nothing is known */
    int64_t ready_at_us; /* the server's last word on when it begins to grant; 0: it does; DLOCK__NEVER: unknown */
    bool accepted; /* the server has granted it, or said busy, to this client: its credentials and rights were right */
    struct dlock_error *outage; /* why the last acquire had no answer, or was refused; NULL: neither */
    char text[];                /* with the prefix */
};

/* Thread number of a grant that is owned by a handle; dlock__thread_id() never returns it. */
#define DLOCK__ANY_THREAD UINT64_MAX

/* A handle's on_wanted. */
struct dlock__watch {
    struct dlock__event event;
    struct dlock_lock *lock;
    dlock_callback on_wanted;
    void *arg;
};

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
    struct dlock__watch *watch; /* its on_wanted; NULL: none */
    struct dlock__hold *holds;  /* of the acquisitions held through this handle, youngest first */
    struct {
        const struct dlock__acquisition *acq; /* of those that it holds (under the mutex); NULL: none */
        atomic_uint_fast64_t thread;          /* its owner, or DLOCK__ANY_THREAD if that is the handle; 0: none */
        atomic_int_fast64_t until_us;         /* its valid-until, as long as `thread` is not changed */
    } shown;                                  /* what dlock_held reads without the mutex */
    uint32_t inside;                          /* threads in a call on it */
    uint32_t waiting;                         /* waits on it, in line or about to leave the line */
    uint32_t cancels;                         /* how often all waits on it were cancelled */
    uint32_t async;                           /* asynchronous operations whose callback has not begun */
    bool freed;                               /* dlock_free was called */
    bool over;                                /* … and has ended: whoever uses it last destroys it */
};

/* What a thread sleeps on while it takes the turns of its waiter, or of all waiters of a dlock_acquire_all. */
struct dlock__latch {
    atomic_uint word;      /* counts wakes in steps of 2; odd, under the waiters' mutex, while the thread sleeps */
    atomic_bool cancelled; /* set, for good, by a thread that ends one of the handles */
    bool own;              /* only threads with the mutex of the waiters' client wake it */
};

/* A handle's part in a call about several handles. */
struct dlock__part {
    struct dlock__part *next, *prev; /* in client->parts */
    struct dlock_lock *lock;
    struct dlock__latch *latch;
};

/* A waiter of this process for a name. Waiters are served in order of arrival; only the head of the line asks the
 * server. */
struct dlock__waiter {
    struct dlock__waiter *next, *prev;
    struct dlock_lock *lock;
    uint64_t thread;
    int64_t began_us, deadline_us;
    struct dlock__acquisition *handed; /* its grant, in name->held when it was given, with a reference; may be lost by
                                        * now */
    struct dlock_error *why;           /* the server's last message, in the end the error; NULL: not needed yet */
    struct dlock__latch *latch;        /* of the thread that takes its turns; NULL: the engine takes them */
    /* A RELEASING acquisition, with a reference, whose release must be sent before the waiter is over: one that it gave
     * up or, in an async release, the one to release. */
    struct dlock__acquisition *leaving;
    int result;
    uint32_t cancels;  /* lock->cancels when the wait began: a greater value there means that it was cancelled */
    uint32_t pause_us; /* last pause between its questions, with decorrelated jitter */
    uint16_t trip_us;  /* time from its last question to the answer "busy", at most what its type holds */
    bool try_only : 1;
    bool heard : 1; /* the server has said "busy", and has not become unreachable since */
    bool done : 1;  /* `result` is final; the acquisition may yet be given up. 0: `handed` is its grant, and it is
                     * out of the line */
    bool over : 1;  /* nothing more happens to it */
    bool waits : 1; /* its first question did not end it: it counts in the statistics */
    /* for waiters without a thread: */
    bool ready : 1;  /* in client->engine.ready */
    bool asking : 1; /* its request is on the way */
};

/* A timed sleep of a thread. Its own clock stops while the machine is suspended, so the keeper, whose timer does
 * not, wakes it in time. */
struct dlock__sleep {
    struct dlock__timer timer;
    struct dlock__latch *latch; /* what the thread sleeps on: this, or `cond` */
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

/* The owner of an event. */
static inline struct dlock__hold *dlock__event_hold(struct dlock__event *event) {
    return (struct dlock__hold *)((char *)event - offsetof(struct dlock__hold, event));
}

static inline struct dlock__async *dlock__event_async(struct dlock__event *event) {
    return (struct dlock__async *)((char *)event - offsetof(struct dlock__async, event));
}

static inline struct dlock__watch *dlock__event_watch(struct dlock__event *event) {
    return (struct dlock__watch *)((char *)event - offsetof(struct dlock__watch, event));
}

static inline struct dlock_lock *dlock__event_lock(struct dlock__event *event) {
    switch (event->kind) {
    case DLOCK__EVENT_LOST: return dlock__event_hold(event)->handle;
    case DLOCK__EVENT_ASYNC: return dlock__event_async(event)->waiter.lock;
    case DLOCK__EVENT_WANTED: break;
    }
    return dlock__event_watch(event)->lock;
}

/* ---- name.c ---- */

/* The entry for a full name, made if need be, with one more reference. NULL: out of memory. */
struct dlock__name *dlock__name_get(struct dlock_client *client, const char *text);
void dlock__name_put(struct dlock__name *name);
/* The entry, if there is one, without a reference. */
struct dlock__name *dlock__name_find(struct dlock_client *client, const char *text);
/* `name` without the client's prefix. */
const char *dlock__name_shown(const struct dlock__name *name);
/* Returns 0, or EINVAL with a message. Needs no mutex. */
int dlock__name_check(const char *name, struct dlock_error *err);
/* Inserts the waiter into the line behind `before`; NULL: at the head. */
void dlock__name_insert(struct dlock__name *name, struct dlock__waiter *waiter, struct dlock__waiter *before);
void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter);
static inline bool dlock__name_has(const struct dlock__name *name, const struct dlock__waiter *waiter) {
    return waiter->prev || name->head == waiter;
}
/* Gives the waiter at the head a turn. */
void dlock__name_signal(struct dlock__name *name);
/* Adds to, and removes from, name->held; the reference goes along. dlock__held_remove returns false if it was not
 * there. */
void dlock__held_add(struct dlock__name *name, struct dlock__acquisition *acq);
bool dlock__held_remove(struct dlock__name *name, struct dlock__acquisition *acq);
/* The exclusive acquisition in name->held, or NULL. While there is one, no waiter of this process asks the server. */
static inline struct dlock__acquisition *dlock__name_exclusive(const struct dlock__name *name) {
    return name->held && name->held->mode == DLOCK_EXCLUSIVE ? name->held : NULL;
}

/* Reports that the server, by its last answer, grants nothing yet. dlock__name_ready: ENOTREADY, with a message, if
 * that still holds now, else 0. dlock__name_not_ready: always ENOTREADY, for a caller that was just answered so. */
int dlock__name_ready(const struct dlock__name *name, struct dlock_error *err);
int dlock__name_not_ready(const struct dlock__name *name, struct dlock_error *err);
/* Notes why an acquire was not answered, or refused; NULL: neither. dlock__name_outage returns that: EUNAVAILABLE,
 * EAUTH, or 0. */
void dlock__name_unanswered(struct dlock__name *name, const struct dlock_error *why);
int dlock__name_outage(const struct dlock__name *name, struct dlock_error *err);

/* ---- handover.c ---- */

/* Hands the grant to the next waiter of this process, if there is one and its terms allow it. False: it has to be
 * released. */
bool dlock__hand_over(struct dlock__acquisition *acq);
/* After a release: makes this process's waiters back off where no server queue decides who is next, so that others can
 * ask. */
void dlock__back_off(const struct dlock__acquisition *acq);

static inline bool dlock__lingers(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__LINGERING;
}

/* Makes a HELD acquisition linger instead of being released. False: it has to be released. */
bool dlock__linger_begin(struct dlock__acquisition *acq);
enum dlock__briefly {
    DLOCK__BRIEFLY_SEND,  /* not taken: send the release */
    DLOCK__BRIEFLY_TAKEN, /* another thread has taken it, and may have released it again */
    DLOCK__BRIEFLY_ENDED  /* another thread releases it, or it was lost */
};
/* Called before a release is sent, if name->short_holds: waits a moment for the next thread of this process, which is
 * likely to want the lock before the release could have reached the server. The caller has a reference. Leaves the
 * mutex meanwhile. */
enum dlock__briefly dlock__linger_briefly(struct dlock__acquisition *acq);
/* Takes the lingering acquisition of this name for a new owner. NULL: there is none, or its terms differ. */
struct dlock__acquisition *dlock__linger_take(struct dlock_lock *lock);
/* The lingering acquisition of this name whose terms differ: it must be released before the lock's waiter asks. */
struct dlock__acquisition *dlock__linger_misfit(const struct dlock_lock *lock);
/* Forbids lingering, and ends it if the acquisition lingers. */
void dlock__linger_not(struct dlock__acquisition *acq);

/* ---- rhythm.c ---- */

/* Learn from the server: dlock__rhythm_busy from a busy answer with the holder's fence (0: unknown),
 * dlock__rhythm_granted from a grant to this process, dlock__rhythm_released from the end of a hold of held_us. Only
 * dlock__rhythm_busy with a fence makes the record; without memory for it nothing is learned. */
void dlock__rhythm_busy(struct dlock__rhythm **rhythm, uint64_t fence, int64_t now_us);
void dlock__rhythm_granted(struct dlock__rhythm *rhythm, int64_t now_us);
void dlock__rhythm_released(struct dlock__rhythm *rhythm, int64_t held_us, int64_t now_us);
/* True if the end of the grant that blocks the waiters can be predicted. */
bool dlock__rhythm_is_known(const struct dlock__rhythm *rhythm);
/* Returns when to ask next; DLOCK__NEVER: nothing is known about the holder. */
int64_t dlock__rhythm_next(const struct dlock__rhythm *rhythm, struct dlock_client *client, int64_t now_us);

/* ---- notify.c ---- */

/* Gives the waiter a turn now. */
void dlock__waiter_wake(struct dlock__waiter *waiter);
/* Ends the calls in progress on several handles that include this one (NULL: all of them). */
void dlock__parts_cancel(struct dlock_client *client, const struct dlock_lock *lock);
/* Begins a sleep that the keeper ends in time. Short sleeps are not watched: they cannot end much too late. */
void dlock__sleep_begin(struct dlock_client *client, struct dlock__sleep *sleep, int64_t until_us);
/* Called by the keeper: wakes the threads whose time is over. Returns the end of the first sleep that is left. */
int64_t dlock__sleeps_end(struct dlock_client *client);
/* Makes sure that the keeper is awake at at_us. Wakes no thread now. */
void dlock__keeper_arm(struct dlock_client *client, int64_t at_us);
/* Wakes the keeper, because the set of descriptors changed or it has a thread to start. */
void dlock__keeper_kick(struct dlock_client *client);
/* Makes sure that the callback thread is awake at at_us, when a grant with an on_lost ends, or an asynchronous wait
 * whose request may hang. Wakes no thread now. */
void dlock__callback_arm(struct dlock_client *client, int64_t at_us);
/* Queues the on_lost of each handle that holds the acquisition. */
void dlock__callback_lost(struct dlock__acquisition *acq);
/* Queues the on_wanted of each handle that holds the acquisition, which is wanted. */
void dlock__callback_wanted(struct dlock__acquisition *acq);
/* Queues the callback at the end of an asynchronous operation. */
void dlock__callback_async(struct dlock__async *async);

#endif
