/* One acquisition as the server knows it, and what it takes to ask for it. The client's mutex guards all of it, and
 * functions expect that held unless they say otherwise. */
#ifndef DLOCK_CORE_STATE_ACQUISITION_H
#define DLOCK_CORE_STATE_ACQUISITION_H

#include "base/env.h"
#include "base/heap.h"

#include <dlock/backend.h>

#include <stdatomic.h>
#include <stdbool.h>

#define DLOCK__LEASE_MIN_MS INT64_C(100)
#define DLOCK__LEASE_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)
/* The fence's low byte. */
#define DLOCK__ORDINAL_MAX 255
/* An operation takes at most this many acquisitions. */
#define DLOCK__BATCH 256
/* Names as a backend sees them, prefix included. */
#define DLOCK__FULL_NAME_MAX 255

struct dlock_client;
struct dlock__conn;
struct dlock__name;
struct dlock__waiter;

/* The top of grant.c says what is true in each state and how one follows another; that file alone changes it. */
enum dlock__acq_state {
    DLOCK__ASKING,      /* an acquire is being sent; a new acquisition, which is zeroed */
    DLOCK__WAITING,     /* busy: queued at the server, or to be asked again at ask_at_us */
    DLOCK__CONFIRMING,  /* about to be handed over in this process: the keeper renews before it counts */
    DLOCK__HELD,        /* granted */
    DLOCK__DOWNGRADING, /* HELD, `mode` is SHARED, and the server has not said yes to that */
    DLOCK__LINGERING,   /* granted, held by nobody, until linger_until_us */
    DLOCK__RELEASING,   /* being given back by its owner, or leaving the queue */
    DLOCK__LOST,        /* ended before its release */
    DLOCK__LOST_ORPHAN, /* LOST, and the engine releases it at the server */
    DLOCK__ORPHAN,      /* nobody's: the engine releases it */
    DLOCK__GONE         /* an orphan of which the server keeps nothing any more */
};

enum dlock__op_kind { DLOCK__ACQUIRE, DLOCK__RENEW, DLOCK__RELEASE };

enum dlock__op_status { DLOCK__OP_NONE, DLOCK__OP_PENDING, DLOCK__OP_RUNNING, DLOCK__OP_DONE };

/* A call that waits for its grant's lease to be set anew. */
struct dlock__extension {
    int64_t lease_ms;
    int result; /* EUNAVAILABLE until there is an answer */
};

/* One request about one acquisition, as the pool handles it. */
struct dlock__op {
    struct dlock_claim arg; /* what the backend sees; while RUNNING it belongs to the thread that runs the batch */
    enum dlock__op_kind kind;
    enum dlock__op_status status;
    bool resent;         /* an earlier send of this operation may have been executed */
    int64_t deadline_us; /* of the request */
    int64_t leave_us;    /* of the thread that waits for it */
    int64_t prepared_us;
    int64_t sent_us;                 /* before the request that was answered was sent */
    int result;                      /* of the connection if that failed, else of the acquisition */
    bool late;                       /* it failed for lack of time */
    bool asked;                      /* by the engine, which has yet to look at the answer: nobody else may send it */
    uint32_t bell;                   /* what the thread that waits for it hears of client->ops.bell; 0: that one left */
    struct dlock_error *err;         /* that thread's */
    struct dlock__conn *conn;        /* handed over to lead the next batch */
    struct dlock__acquisition *next; /* in client->ops.pending */
    struct dlock__extension *extension; /* HELD, DOWNGRADING: for its next renewal; NULL: none */
    bool look, woken;                   /* a LOOK, or a GRANTED, came while ASKING */
    struct dlock_wake wake;             /* the latter; its texts are not there any more */
    int64_t received_us;
};

/* Something to tell the application, in client->callback. */
struct dlock__event {
    struct dlock__event *next;
    enum {
        DLOCK__EVENT_LOST,
        DLOCK__EVENT_ASYNC
    } kind; /* in a hold, with a reference to its acquisition; in an async */
};

/* How often an acquisition is held through one handle, and that handle's on_lost when it is to run. */
struct dlock__hold {
    struct dlock__event event;
    uint32_t count;
    struct dlock__hold *next; /* in acq->hold */
    struct dlock__acquisition *acq;
    struct dlock_lock *handle;       /* NULL: freed, or nobody yet; set by dlock__hold_set */
    struct dlock__hold *other, **at; /* in handle->holds */
};

/* Needed by an acquisition only while it is more than a wait: thousands of waits are small. */
struct dlock__slot {
    struct dlock__op op; /* the first member: the slot is found by it */
    struct dlock__hold hold;
    struct dlock__timer timer; /* set by grant.c: while the acquisition is granted, or an orphan */
    struct dlock__slot *spare; /* next in client->spare_slots */
};

/* One acquisition as the server knows it. Reference counted: the name (current, asking), the lost list, the engine, a
 * renewal in progress and an operation in progress each hold one. */
struct dlock__acquisition {
    struct dlock__acquisition *all_next, *all_prev; /* client->acquisitions: every live acquisition */
    struct dlock__name *name;                       /* holds a reference */
    struct dlock__acquisition *next;                /* in name->held, name->lost or client->engine.bare */
    struct dlock__op *op;     /* its slot's; NULL: it has none, being WAITING, or an orphan that was */
    struct dlock__hold *hold; /* its slot's, the first of a list; the others are malloc'ed */
    unsigned refs;
    enum dlock__acq_state state : 8;
    enum dlock_owner owner : 8; /* of the grant */
    uint8_t token_room;         /* bytes of `token` */

    /* the request; its token is at the end */
    enum dlock_mode mode : 8;
    uint32_t limit;
    uint32_t unknown_lease_ms;   /* with unknown_until_us: the shortest lease that it may set, or less */
    uint32_t unknown_longest_ms; /* the longest, ever */
    int64_t lease_ms;
    uint64_t backend_state[4];
    struct dlock__conn *conn; /* SESSION, not THREADSAFE: the connection that it lives in; NULL: it is nowhere */
    uint32_t guarded;         /* its entry in the guardian's table; 0: none */
    unsigned session;    /* client->pool.session when it was last sent: what it left in an older one died with that */
    unsigned untold;     /* on_losts of it that have not returned: until then the server keeps what it has of it */
    uint32_t flags : 8;  /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    bool renewing : 1;   /* the keeper has it in a request */
    bool may_linger : 1; /* its holder may keep it after the release: nobody else has asked so far */
    bool wanted : 1;     /* a WANTED came, or may have been missed, before the grant */
    bool queued : 1;     /* a QUEUE acquire was sent since the last release */
    bool outcome_unknown : 1; /* an acquire or renewal without answer: the server may hold more than we know */
    bool late_acquire : 1;    /* one without answer: it may be executed yet, whatever the next was answered */
    bool release_sent : 1;    /* no local hand-over any more, and not-found is then no surprise */
    bool untold_grant : 1;    /* it was queued, and a question brought its grant: a wake-up may still do so, too */
    bool told : 1;            /* a GRANTED came in a wake-up since the last answer: it may be over, the next one says */
    bool contended : 1;       /* the server said that others are there, before it granted this */
    int64_t unknown_until_us; /* the server may execute that until then, and keep what it did for one lease more */

    /* the times at which something is next */
    int64_t ask_at_us;      /* WAITING */
    int64_t renew_at_us;    /* CONFIRMING to LINGERING */
    int64_t valid_until_us; /* HELD to LINGERING; DLOCK__NEVER: as long as its connection lives */
    int64_t pause_us;       /* back-off after a failed renewal, or release; 0: the last one worked */

    /* the grant */
    uint64_t server_fence;
    int64_t granted_us;      /* when the server granted it to this process */
    int64_t sure_until_us;   /* the server confirmed it so lately that it may be handed over without a question */
    int64_t linger_until_us; /* LINGERING */
    unsigned ordinal;        /* hand-overs inside this process, the fence's low byte */

    /* its owner: a thread, through one handle or several; or a handle, which is then hold->handle */
    uint32_t count; /* of all holds; 1 and no hold while its waiter has not been told */
    uint64_t thread;

    char token[];
};

/* ---- token.c ---- */

/* Bytes that a token of this client needs at most. */
size_t dlock__token_room(const struct dlock_client *client);

/* Gives the acquisition a new token, for its mode and limit: "<client>.<16 hex digits>@host:pid", with "-s" behind the
 * digits for a reader, "-p<limit>" for a permit: enough to release what this client has forgotten. */
void dlock__token_write(struct dlock__acquisition *acq);

/* Whether it can be a token, of any client. */
bool dlock__token_check(const char *text);

/* Sets the mode, and the limit, to what stands in the acquisition's token. */
void dlock__token_read(struct dlock__acquisition *acq);

/* ---- acquisition.c ---- */

/* An acquisition with a new token for what `lock` wants, in state ASKING; NULL: out of memory. */
struct dlock__acquisition *dlock__acq_new(struct dlock_lock *lock);
/* The same for a token that was made before (a wake for nobody, a ticket), with the mode that it tells. */
struct dlock__acquisition *dlock__acq_for_token(struct dlock__name *name, const char *token);
void dlock__acq_put(struct dlock__acquisition *acq);

/* Gives an acquisition that merely waited what it needs for a request, or to be held. False: out of memory. */
bool dlock__slot_attach(struct dlock__acquisition *acq);
/* It merely waits from here on: lets others have that. */
void dlock__slot_detach(struct dlock__acquisition *acq);
/* Whether its request is on the way, or waits for a connection: it belongs to the pool until that is over. */
bool dlock__acq_in_request(const struct dlock__acquisition *acq);
/* The acquisition's hold through this handle, made if `make` is set; NULL: none, or out of memory. */
struct dlock__hold *dlock__acq_hold(struct dlock__acquisition *acq, struct dlock_lock *handle, bool make);
/* Sets the handle that the hold belongs to; NULL: none. */
void dlock__hold_set(struct dlock__hold *hold, struct dlock_lock *handle);
/* Shows, or hides, the acquisition in the handles that it is held through, as its state and times are now. */
void dlock__acq_show(const struct dlock__acquisition *acq);
/* Forgets who holds it. */
void dlock__acq_disown(struct dlock__acquisition *acq);
/* The live acquisition with this token, or NULL. */
struct dlock__acquisition *dlock__acq_find(struct dlock_client *client, const char *token);
/* Orders pointers to acquisitions by name, for qsort: the order in which every batch is sent. */
int dlock__acq_by_name(const void *a, const void *b);
static inline uint64_t dlock__acq_fence(const struct dlock__acquisition *acq) {
    return acq->server_fence << 8 | acq->ordinal;
}
/* Until when the server may keep something that nobody here knows of, as far as leases end it; 0: there is nothing. */
int64_t dlock__acq_unknown_end_us(const struct dlock__acquisition *acq);
/* Whether an acquire that nobody answered may reach the server, and would be granted, after what was sent at `us`. */
bool dlock__acq_may_come_late(const struct dlock__acquisition *acq, int64_t us);
/* Whether one may have been granted anew meanwhile, or may yet: what a renewal then says is not about one grant. */
bool dlock__acq_may_be_granted_anew(const struct dlock__acquisition *acq);
/* A request that asked for this lease got no answer. */
void dlock__acq_unanswered(struct dlock__acquisition *acq, int64_t lease_ms);
/* Whether the server or the backend may still keep something for an acquisition that is not granted. */
bool dlock__acq_may_remain(const struct dlock__acquisition *acq);

/* The acquisition whose slot has this timer. */
struct dlock__acquisition *dlock__timer_acq(struct dlock__timer *timer);

/* ---- grant.c: every change of acq->state ---- */

/* The acquire granted nothing: it asks again at ask_at_us, if nothing else happens. */
void dlock__acq_wait(struct dlock__acquisition *acq, int64_t ask_at_us);
/* The release, or the renewal before an export, is on the way: it is not renewed any more. */
void dlock__acq_release(struct dlock__acquisition *acq);
/* The next acquire is being prepared (ASKING); it stays ours after all, as it was (HELD, DOWNGRADING), or it lingered
 * and has an owner again (HELD). */
void dlock__acq_become(struct dlock__acquisition *acq, enum dlock__acq_state state);
/* From here on it counts as shared, and is renewed as that at once. */
void dlock__acq_downgrade(struct dlock__acquisition *acq);
/* The server has said yes to that. */
void dlock__acq_downgraded(struct dlock__acquisition *acq);
/* The next renewal, which is due at once, asks for that lease. It ends no later than on a server that executes the
 * request without answering. */
void dlock__acq_extend(struct dlock__acquisition *acq, struct dlock__extension *extension);
/* Whether the keeper renews it. */
static inline bool dlock__acq_is_renewed(const struct dlock__acquisition *acq) {
    return !(acq->flags & DLOCK_FIXED_LEASE) || acq->state != DLOCK__HELD || acq->op->extension;
}
/* Lets a waiting acquisition ask then, and one that is asking once more after the answer. */
void dlock__acq_ask_again(struct dlock__acquisition *acq, int64_t at_us);
/* Takes over an answered acquire (op.result == 0), or the renewal of what another process had, and its fence: 0 = HELD;
 * EUNAVAILABLE = the answer came too late to be of use, ask again; EPROTO = it makes no sense. */
int dlock__acq_granted(struct dlock__acquisition *acq, struct dlock_error *err);
/* How long the server has to keep a grant that is to be trusted for so long from now on. */
int64_t dlock__lease_for_ms(int64_t us);
/* Takes over an answered renewal that asked for lease_ms; false when it makes no sense, and then counts as not
 * answered. */
bool dlock__acq_renewed(struct dlock__acquisition *acq, int64_t sent_us, int64_t lease_ms, int64_t kept_ms);
/* Takes over a GRANTED wake: HELD; or WAITING, and asks again at once, when nothing proves that it is not over; nothing
 * when it makes no sense. */
void dlock__acq_woken(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us);
/* A GRANTED for an acquisition that was asking or waiting when it was sent. */
void dlock__wake_granted(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us);
/* An answer with the server's clock arrived: remember it for wakes. */
void dlock__clock_sample_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us);
/* The head of the line has this HELD acquisition, whose owner is done with it, once the server has confirmed it. */
void dlock__acq_confirm(struct dlock__acquisition *acq);
/* Whether this process has a grant of it, which is to be renewed, and whose end is a loss. */
static inline bool dlock__acq_renewable(const struct dlock__acquisition *acq) {
    return acq->state >= DLOCK__CONFIRMING && acq->state <= DLOCK__LINGERING;
}
/* The time until which it is granted, or lingers. */
static inline int64_t dlock__acq_end(const struct dlock__acquisition *acq) {
    bool lingers = acq->state == DLOCK__LINGERING && acq->linger_until_us < acq->valid_until_us;
    return lingers ? acq->linger_until_us : acq->valid_until_us;
}
/* Whether somebody of this process holds it, or is about to be told so. */
static inline bool dlock__acq_held(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__HELD || acq->state == DLOCK__DOWNGRADING;
}
static inline bool dlock__acq_lost(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__LOST || acq->state == DLOCK__LOST_ORPHAN;
}
/* Whether it is with the engine. */
static inline bool dlock__acq_orphaned(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__ORPHAN || acq->state == DLOCK__LOST_ORPHAN;
}
/* The calling thread, or the handle, holds an acquisition of name->held that nobody held. */
void dlock__own(struct dlock__acquisition *acq, struct dlock_lock *lock);
/* A grant came by wake-up or hand-over for the waiter at the head of the line, which was not cancelled: it owns the
 * acquisition, which is then among name->held, and leaves the line. */
void dlock__deliver(struct dlock__acquisition *acq);

/* The same for a waiter that is not told yet: while no handle holds the acquisition no on_lost runs. */
void dlock__own_for(struct dlock__acquisition *acq, struct dlock__waiter *waiter);
/* The owner is about to be told. */
void dlock__hold_through(struct dlock__acquisition *acq, struct dlock_lock *lock);

/* Nobody wants this acquisition any more, but the server may keep it: it is released until that is certain, and not
 * before its on_losts have returned, since the release may give it to somebody else. */
void dlock__orphan(struct dlock__acquisition *acq);
/* It is released then. */
void dlock__orphan_at(struct dlock__acquisition *acq, int64_t at_us);
/* The engine is done with it. */
void dlock__orphan_gone(struct dlock__acquisition *acq);
/* A grant that this process has (dlock__acq_renewable) ends before its release: owner told, waiters may ask. */
void dlock__lose(struct dlock__acquisition *acq);
/* Takes a lost acquisition off its name's list; the caller gets that list's reference. */
void dlock__lost_remove(struct dlock__acquisition *acq);
/* dlock__lose, if its time is over. */
void dlock__expire_if_due(struct dlock__acquisition *acq);
/* It is in a renewal, which has a reference: its end is watched meanwhile. */
void dlock__acq_renewing(struct dlock__acquisition *acq);
/* It is renewed then, if nothing else happens. Sets its timer anew, also when another of its times has changed. */
void dlock__acq_renew_at(struct dlock__acquisition *acq, int64_t at_us);
/* Nobody holds it any more; it goes back to the server then, unless it is taken again. */
void dlock__acq_linger(struct dlock__acquisition *acq, int64_t until_us);
/* It lingers, and goes back to the server. */
void dlock__linger_end(struct dlock__acquisition *acq);
/* A connection broke: what is known of the server's clock, and of grants that lived in it, died with it. */
void dlock__connection_epoch_ended(struct dlock_client *client);

/* ---- due.c ---- */

/* Loses all acquisitions of a client whose time is over, and gives back what has lingered for long enough; those to be
 * renewed are in client->timers.due then. Returns when there is more to do. Leaves the mutex meanwhile. */
int64_t dlock__expire_all(struct dlock_client *client);
/* Takes an acquisition out of the timers that is due, the one that ends first, or has something due by then; NULL:
 * there is none. */
struct dlock__acquisition *dlock__renewal_take(struct dlock_client *client, int64_t until_us);

#endif
