/* Waiting for a name. Waiters of one process stand in line in the name; the one at the head asks the server, with one
 * claim, until it is granted, gives up, or is cancelled. Whoever comes in meanwhile waits behind it, and gets the lock
 * by local hand-over (release.c) or by becoming the head. */
#include "client.h"

#include <string.h>

enum {
    POLL_MIN_US = 1000,
    POLL_MAX_US = 50000,     /* servers without wake-ups */
    DEAF_MAX_US = 500000,    /* servers with wake-ups while our listener is down */
    OUTAGE_MIN_US = 10000,   /* between tries while the server is away */
    OUTAGE_MAX_US = 1000000, /* "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), decorrelated */
    HOPELESS_US = 20000,     /* so close to the deadline nothing is asked again; and what a question gets at least */
    LEAVE_US = 70000,        /* for leaving the queue after the deadline */
    SLEEP_MAX_MS = 3600000   /* whatever a backend says, somebody looks again */
};

/* One head waiter's dealings with the server. */
struct asker {
    struct dlock_client *client;
    struct dlock__name *name;
    struct dlock__waiter *waiter;
    struct dlock__claim *claim;
    int64_t pause_us; /* the last decorrelated pause */
    struct dlock_error last;
};

static int64_t next_pause(struct asker *a, int64_t low, int64_t high) {
    int64_t top = (a->pause_us > low ? a->pause_us : low) * 3;
    a->pause_us = dlock__jitter(a->client, low, top < high ? top : high);
    return a->pause_us;
}

/* ---- giving up ---- */

static int timed_out(struct asker *a, struct dlock_error *err) {
    const char *shown = dlock__name_shown(a->name);
    if (a->last.code == DLOCK_EUNAVAILABLE) {
        if (err) *err = a->last;
        return DLOCK_EUNAVAILABLE;
    }
    if (a->last.code == DLOCK_EBUSY)
        return dlock_fail(err, DLOCK_ETIMEDOUT, "lock \"%s\" was not granted in time: %s", shown, a->last.message);
    return dlock_fail(err, DLOCK_ETIMEDOUT, "lock \"%s\" was held by somebody else until the deadline", shown);
}

static int ended(struct dlock__waiter *waiter, struct dlock_error *err) {
    if (waiter->result == DLOCK_ECANCELED)
        return dlock_fail(err, DLOCK_ECANCELED, "the wait for lock \"%s\" was cancelled",
                          dlock__name_shown(waiter->lock->name));
    return waiter->result;
}

/* The claim is not wanted any more: leaves nothing behind at the server. */
static void give_up(struct asker *a) {
    struct dlock__claim *claim = a->claim;
    struct dlock_error ignored;
    a->name->asking = NULL;
    if (claim->op.status == DLOCK__OP_RUNNING) {
        dlock__orphan(claim); /* its answer is still to come */
    } else if (dlock__claim_lingers(claim) || (claim->server_fence && !dlock__claim_outlived(claim))) {
        claim->phase = DLOCK__RELEASING;
        bool uncertain = claim->may_be_held;
        int64_t until = dlock__now_us() + LEAVE_US;
        int rc = dlock__op_run(claim, DLOCK__RELEASE, 0, until, &ignored);
        if ((rc != 0 && rc != DLOCK_ELOST) || uncertain) dlock__orphan(claim);
    }
    dlock__claim_put(claim);
    a->claim = NULL;
}

/* ---- being granted ---- */

/* The waiter is the owner from here on, though not yet told: while no handle holds it no on_lost runs. */
static void own(struct dlock__claim *claim, struct dlock__waiter *waiter) {
    claim->name->asking = NULL;
    claim->name->current = claim; /* with the asker's, or the last owner's, reference */
    dlock__claim_disown(claim);
    claim->owner = waiter->lock->owner;
    claim->thread = waiter->thread;
    claim->count = 1;
    claim->queued = false;
}

/* The owner is about to be told. */
static void hold_through(struct dlock__claim *claim, struct dlock_lock *lock) {
    claim->hold.handle = lock;
    claim->hold.count = 1;
    if (lock->on_lost) dlock__callback_arm(lock->client, claim->valid_until_us);
}

void dlock__waiter_cancel(struct dlock__waiter *waiter) {
    if (waiter->done) return;
    waiter->done = true;
    waiter->result = DLOCK_ECANCELED;
    pthread_cond_signal(&waiter->cond);
}

void dlock__deliver(struct dlock__claim *claim) {
    struct dlock__waiter *waiter = claim->name->head;
    own(claim, waiter);
    claim->refs++;
    waiter->handed = claim;
    waiter->done = true;
    waiter->result = 0;
    dlock__name_remove(claim->name, waiter);
    pthread_cond_signal(&waiter->cond);
}

/* The waiter's thread is awake and looks at what it was given: false when the grant ended meanwhile (this process may
 * have been stopped between the two), and was then never reported to anybody. */
static bool take(struct dlock__waiter *waiter) {
    struct dlock__claim *claim = waiter->handed;
    waiter->handed = NULL;
    dlock__settle(claim);
    bool good = claim->phase == DLOCK__HELD;
    if (good) {
        hold_through(claim, waiter->lock);
    } else if (claim->phase == DLOCK__LOST) {
        dlock__lost_remove(claim);
        dlock__claim_put(claim);
    }
    dlock__claim_put(claim);
    return good;
}

/* ---- waiting ---- */

/* When to ask again after a busy answer, if nothing else happens. */
static int64_t ask_again_at(struct asker *a) {
    struct dlock_client *client = a->client;
    int64_t retry_ms = a->claim->op.arg.retry_ms, now = dlock__now_us();
    bool deaf = dlock__can(client, DLOCK_CAP_WAKE) && client->listener.state != DLOCK__LISTENER_UP;
    bool for_good = client->listener.retry_at_us == DLOCK__NEVER;
    if (deaf || retry_ms < 0) return now + next_pause(a, POLL_MIN_US, deaf && !for_good ? DEAF_MAX_US : POLL_MAX_US);
    if (retry_ms == DLOCK_FOREVER) return DLOCK__NEVER;
    if (retry_ms > SLEEP_MAX_MS) retry_ms = SLEEP_MAX_MS;
    int64_t least = next_pause(a, POLL_MIN_US, POLL_MAX_US); /* "at once" is no reason for a tight loop */
    int64_t pause = retry_ms * 1000 + dlock__jitter(client, 0, retry_ms * 100);
    return now + (pause > least ? pause : least);
}

static bool hopeless(const struct dlock__waiter *waiter, int64_t ask_us) {
    return waiter->deadline_us - HOPELESS_US < ask_us;
}

/* Until granted by a wake, ended from outside, or it is time to ask again. */
static void wait_turn(struct asker *a) {
    struct dlock__claim *claim = a->claim;
    struct dlock__waiter *waiter = a->waiter;
    for (;;) {
        if (waiter->done) return;
        int64_t until = claim->phase == DLOCK__CONFIRMING ? DLOCK__NEVER : claim->due_us;
        if (hopeless(waiter, until)) until = waiter->deadline_us;
        if (dlock__now_us() >= until) return;
        dlock__cond_wait(&waiter->cond, &a->client->mutex, until);
    }
}

/* A busy answer: sets the claim waiting, unless what came while we asked says otherwise. */
static void busy(struct asker *a) {
    struct dlock__claim *claim = a->claim;
    bool look = claim->look;
    claim->phase = DLOCK__WAITING;
    claim->due_us = ask_again_at(a);
    claim->look = false;
    if (claim->wake.here) {
        claim->wake.here = false;
        /* A grant from before this answer is over; one from after it counts; one of the same microsecond is confirmed.
         */
        int64_t answered_us = claim->op.arg.server_us, server_us = claim->wake.server_us;
        if (server_us >= answered_us)
            dlock__claim_woken(claim, claim->wake.fence, server_us > answered_us ? server_us : 0, claim->wake.kept_ms,
                               claim->wake.received_us);
    }
    if (look) claim->due_us = dlock__now_us();
}

/* Even a wait that is nearly over gives its question the time of a round trip: cut short, it would look like an outage.
 */
static int64_t least_deadline(const struct dlock__waiter *waiter) {
    int64_t now = dlock__now_us();
    if (waiter->try_only) return dlock__after(now, dlock__us(waiter->lock->client->uri->timeout_ms));
    return waiter->deadline_us - HOPELESS_US > now ? waiter->deadline_us : now + HOPELESS_US;
}

/* One question: 0 = granted, EBUSY, EUNAVAILABLE = worth asking again, anything else is final. */
static int ask(struct asker *a) {
    struct dlock__claim *claim = a->claim;
    struct dlock__waiter *waiter = a->waiter;
    bool queue =
        !waiter->try_only && dlock__can(a->client, DLOCK_CAP_QUEUE) && a->client->listener.state == DLOCK__LISTENER_UP;
    claim->phase = DLOCK__ASKING;
    a->last.code = 0;
    int64_t until = least_deadline(waiter);
    int rc = dlock__op_run(claim, DLOCK__ACQUIRE, queue ? DLOCK_CLAIM_QUEUE : 0, until, &a->last);
    if (rc == 0) {
        rc = dlock__claim_granted(claim, &a->last);
        if (rc != 0) { /* granted there, but of no use here */
            claim->may_be_held = true;
            claim->last_unknown_us = dlock__now_us();
        }
    }
    return rc;
}

/* Busy, and the server could wake us if somebody listened: true = ask again at once, now that somebody does. */
static bool listen_first(struct asker *a) {
    struct dlock_client *client = a->client;
    if (!dlock__can(client, DLOCK_CAP_WAKE) || client->listener.state == DLOCK__LISTENER_UP) return false;
    if (dlock__now_us() < client->listener.retry_at_us || hopeless(a->waiter, dlock__now_us())) return false;
    return dlock__listener_ensure(client, a->waiter->deadline_us);
}

static int ask_until_done(struct asker *a, struct dlock_error *err) {
    struct dlock__waiter *waiter = a->waiter;
    for (;;) {
        int rc = ask(a);
        if (waiter->done) break;
        if (rc == 0) {
            own(a->claim, waiter);
            hold_through(a->claim, waiter->lock);
            return 0;
        }
        bool again = rc == DLOCK_EBUSY || rc == DLOCK_EUNAVAILABLE;
        if (waiter->try_only || !again || a->claim->op.status == DLOCK__OP_RUNNING) {
            give_up(a);
            if (rc == DLOCK_EBUSY && a->last.code != rc)
                return dlock_fail(err, rc, "lock \"%s\" is held by somebody else", dlock__name_shown(a->name));
            if (err) *err = a->last;
            return rc;
        }
        if (rc == DLOCK_EBUSY) {
            if (listen_first(a) && !hopeless(waiter, dlock__now_us())) continue;
            busy(a);
        } else {
            a->claim->phase = DLOCK__WAITING;
            a->claim->due_us = dlock__now_us() + next_pause(a, OUTAGE_MIN_US, OUTAGE_MAX_US);
        }
        wait_turn(a);
        if (waiter->done) break;
        if (dlock__now_us() >= waiter->deadline_us) {
            give_up(a);
            return timed_out(a, err);
        }
    }
    if (waiter->result == 0) return 0; /* delivered: the claim is the name's */
    give_up(a);
    return ended(waiter, err);
}

static int ask_server(struct dlock__waiter *waiter, struct dlock_error *err) {
    struct dlock_lock *lock = waiter->lock;
    struct asker a;
    a.client = lock->client;
    a.name = lock->name;
    a.waiter = waiter;
    a.pause_us = 0;
    a.last.code = 0;
    int rc = dlock__keeper_start(a.client, err);
    if (rc != 0) return rc;
    a.claim = dlock__claim_new(lock);
    if (!a.claim) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a claim");
    a.name->asking = a.claim;
    return ask_until_done(&a, err);
}

static int64_t deadline_of(int64_t timeout_ms) {
    return timeout_ms < 0 ? DLOCK__NEVER : dlock__after(dlock__now_us(), dlock__us(timeout_ms));
}

/* Stands in line until at its head with nobody holding (and then asks), or until something else ends it. */
static int stand_in_line(struct dlock__waiter *waiter, struct dlock_error *err) {
    struct dlock__name *name = waiter->lock->name;
    while (!waiter->done) {
        int64_t now = dlock__now_us(), until = waiter->deadline_us;
        if (name->head == waiter && !name->current) {
            if (waiter->try_only) return ask_server(waiter, err);
            if (name->yield_until_us <= now && now < until) return ask_server(waiter, err);
            if (name->yield_until_us < until) until = name->yield_until_us;
        }
        if (now >= waiter->deadline_us)
            return dlock_fail(err, DLOCK_ETIMEDOUT, "lock \"%s\" was held in this process until the deadline",
                              dlock__name_shown(name));
        dlock__cond_wait(&waiter->cond, &waiter->lock->client->mutex, until);
    }
    return ended(waiter, err);
}

int dlock__acquire(struct dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err) {
    struct dlock__name *name = lock->name;
    if (timeout_ms == 0 && (name->current || name->head))
        return dlock_fail(err, DLOCK_EBUSY, "lock \"%s\" is held or waited for in this process",
                          dlock__name_shown(name));

    struct dlock__waiter waiter;
    memset(&waiter, 0, sizeof waiter);
    waiter.lock = lock;
    waiter.thread = dlock__thread_id();
    waiter.deadline_us = deadline_of(timeout_ms);
    waiter.try_only = timeout_ms == 0;
    dlock__cond_init(&waiter.cond);
    dlock__name_append(name, &waiter);
    int rc = stand_in_line(&waiter, err);
    while (waiter.handed && !take(&waiter)) {
        waiter.done = lock->client->closed;
        waiter.result = DLOCK_ECANCELED;
        dlock__name_return(name, &waiter);
        rc = stand_in_line(&waiter, err);
    }
    if (!waiter.done || rc != 0) { /* else a delivery took it out of the line */
        dlock__name_remove(name, &waiter);
        if (!name->current) dlock__name_signal(name);
    }
    pthread_cond_destroy(&waiter.cond);
    return rc;
}
