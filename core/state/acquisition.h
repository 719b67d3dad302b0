/* One acquisition as the server knows it, and the request slot that it asks with. The client's mutex guards all of it;
 * functions expect the mutex held unless their comment says otherwise. */
#ifndef DLOCK_CORE_STATE_ACQUISITION_H
#define DLOCK_CORE_STATE_ACQUISITION_H

#include "base/env.h"
#include "base/heap.h"

#include <dlock/backend.h>

#include <stdatomic.h>
#include <stdbool.h>

/* The largest ordinal, the fence's low byte. */
#define DLOCK__ORDINAL_MAX 255
/* Most acquisitions in one request. */
#define DLOCK__BATCH 256

struct dlock_client;
struct dlock__conn;
struct dlock__name;
struct dlock__waiter;

/* The head of grant.c says what is true in each state, and by which functions it changes. */
enum dlock__acq_state {
    DLOCK__ASKING,      /* an acquire is being sent; the state of a new, zeroed acquisition */
    DLOCK__WAITING,     /* busy: queued at the server, or asking again at ask_at_us */
    DLOCK__CONFIRMING,  /* about to be handed over in this process, once a renewal has confirmed it */
    DLOCK__HELD,        /* granted */
    DLOCK__DOWNGRADING, /* HELD with `mode` SHARED, which the server has not confirmed yet */
    DLOCK__LINGERING,   /* granted, without a holder, until linger_until_us */
    DLOCK__RELEASING,   /* its owner gives it back, or its waiter leaves the queue */
    DLOCK__LOST,        /* ended before its release */
    DLOCK__LOST_ORPHAN, /* LOST, and the engine releases it at the server */
    DLOCK__ORPHAN,      /* has no owner: the engine releases it */
    DLOCK__GONE         /* an orphan of which the server keeps nothing any more */
};

enum dlock__op_kind { DLOCK__ACQUIRE, DLOCK__RENEW, DLOCK__RELEASE };

enum dlock__op_status { DLOCK__OP_NONE, DLOCK__OP_PENDING, DLOCK__OP_RUNNING, DLOCK__OP_DONE };

/* A call that waits until its grant's lease restarts. */
struct dlock__extension {
    int64_t lease_ms;
    int result; /* EUNAVAILABLE until there is an answer */
};

/* The last confirmation of a grant, and its loss. */
struct dlock__loss {
    int64_t confirmed_us;   /* when the request was sent by whose answer the grant is valid */
    int64_t unconfirmed_us; /* LOST: how long before the loss that was */
    int64_t stalled_us;     /* LOST: for how much of that this process did not run, at least */
    enum dlock_loss why; /* not LOST: BROKEN, if a message said so that a renewal has not answered yet; else NOT_LOST */
};

/* One request about one acquisition, as the pool handles it. */
struct dlock__op {
    struct dlock_claim arg; /* the backend's argument; while RUNNING it belongs to the thread that runs the batch */
    enum dlock__op_kind kind;
    enum dlock__op_status status;
    bool resent;         /* an earlier send may have been executed, or of an answered release this one */
    int64_t deadline_us; /* of the request */
    int64_t leave_us;    /* deadline of the thread that waits for it */
    int64_t prepared_us;
    int64_t sent_us;                 /* time just before the answered request was sent */
    int result;                      /* the connection's error if it failed, else the acquisition's result */
    bool late;                       /* it failed because its time was up */
    bool asked;                      /* sent by the engine, which has yet to look at the answer: no other thread may
                                      * send it */
    uint32_t bell;                   /* bits of client->ops.bell that wake the thread that waits for it; 0: it has
                                      * left */
    struct dlock_error *err;         /* the waiting thread's error buffer */
    struct dlock__conn *conn;        /* a connection handed over for leading the next batch */
    struct dlock__acquisition *next; /* in client->ops.pending */
    bool look, woken, lost;          /* a LOOK, a GRANTED, or a LOST, arrived while ASKING */
    struct dlock_wake wake;          /* that GRANTED; its strings are no longer valid */
    int64_t received_us;
    struct dlock__extension *extension; /* HELD, DOWNGRADING: terms of the next renewal; NULL: the usual lease */
    struct dlock__loss loss;
};

/* An event to tell the application about, queued in client->callback. */
struct dlock__event {
    struct dlock__event *next, *prev;
    enum {
        DLOCK__EVENT_LOST,
        DLOCK__EVENT_ASYNC,
        DLOCK__EVENT_WANTED
    } kind : 8; /* LOST: member of a hold, with a reference to its acquisition; ASYNC: member of a dlock__async; WANTED:
                 * member of a dlock__watch */
    bool queued;
};

/* How often an acquisition is held through one handle; its event queues the handle's on_lost. */
struct dlock__hold {
    struct dlock__event event;
    uint32_t count;
    struct dlock__hold *next; /* in acq->hold */
    struct dlock__acquisition *acq;
    struct dlock_lock *handle;       /* NULL: the handle was freed, or there is no owner yet; set by dlock__hold_set */
    int64_t since_us;                /* the slot's: since when the present owner has the grant */
    struct dlock__hold *other, **at; /* other holds in handle->holds; `at` points to the link to this one */
};

/* The memory for a request or a grant. An acquisition that only waits has none, so that thousands of waits stay
 * small. */
struct dlock__slot {
    struct dlock__op op;       /* first member: the slot is found by the address of its op */
    struct dlock__timer timer; /* set by grant.c while the acquisition is granted or an orphan */
    struct dlock__hold hold;
    struct dlock__slot *spare; /* next in client->spare_slots */
};

/* What requests without an answer may still do, and a place in the server's queue. unanswered.c explains and changes
 * it. */
struct dlock__unanswered {
    int64_t late_until_us; /* such a request is executed before this time, or never; 0: all of them are settled */
    uint32_t shortest_ms;  /* the shortest lease that one of them asks for, or less */
    uint32_t longest_ms;   /* the longest one, or the usual one */
    bool late_acquire : 1; /* one of them is an acquire, which may make a grant */
    bool queued : 1;       /* a QUEUE acquire was sent since the last grant */
    bool untold : 1;       /* queued, and no GRANTED came since the last answer; after the grant: one may come */
};

/* One acquisition as the server knows it. Reference counted: its place in the name (`asking`, `held` or `lost`), the
 * engine (for an orphan), a renewal in progress, an operation in progress, each queued on_lost, and a waiter's `handed`
 * and `leaving` hold one reference each. */
struct dlock__acquisition {
    struct dlock__acquisition *all_next, *all_prev; /* client->acquisitions: every live acquisition */
    struct dlock__name *name;                       /* holds a reference */
    struct dlock__acquisition *next;                /* in name->held, name->lost or client->engine.bare */
    struct dlock__op *op;     /* the slot's; NULL: no slot, in a waiting acquisition, or an orphan that only waited */
    struct dlock__hold *hold; /* the slot's, head of a list whose other members are malloc'ed */
    unsigned refs;
    enum dlock__acq_state state : 8;
    enum dlock_owner owner : 8; /* of the grant */
    uint8_t token_room;         /* bytes of `token` */

    /* the request; its token is at the end of the struct */
    enum dlock_mode mode : 8;
    uint32_t limit;
    uint32_t guarded; /* index of its entry in the guardian's table; 0: none */
    int64_t lease_ms;

    /* times of what is due next; beside the lease, since a renewal reads and writes just these */
    int64_t ask_at_us;      /* WAITING: its next acquire */
    int64_t renew_at_us;    /* CONFIRMING to LINGERING: its next renewal */
    int64_t valid_until_us; /* HELD to LINGERING; DLOCK__NEVER: ends only with its connection */
    int64_t pause_us;       /* backoff after a failed renewal or release; 0: the last one worked */

    struct dlock__unanswered unanswered;
    uint64_t backend_state[4];
    unsigned session; /* client->pool.session at its last request, whose break ended what the request left */
    unsigned untold;  /* its on_losts that have not returned; its release waits for them, for one lease at most */

    /* the grant */
    uint64_t server_fence;
    int64_t granted_us;      /* when this process got the grant from the server */
    int64_t sure_until_us;   /* so recently confirmed that a hand-over before this time needs no renewal */
    int64_t linger_until_us; /* LINGERING */
    uint8_t ordinal;         /* hand-overs inside this process: the fence's low byte */
    uint32_t flags : 8;      /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    bool renewing : 1;       /* the keeper has it in a request */
    bool watched : 1;        /* it was acquired with LINGER: the server sends WANTED */
    bool wanted : 1;         /* a WANTED came, or may have been missed: it may linger no more */
    bool contended : 1;      /* the server said busy before it granted this */

    /* its owner: a thread (`thread`), through one or several handles; or one handle, hold->handle */
    uint32_t count; /* sum of all holds; 1, without a hold, until its waiter has been told */
    uint64_t thread;

    char token[];
};

/* ---- token.c ---- */

/* Most bytes of a token of this client. */
size_t dlock__token_room(const struct dlock_client *client);

/* Writes a new token for the acquisition's mode and limit: "<client>.<16 hex digits>@host:pid", with "-s" behind the
 * digits for a reader, "-p<limit>" for a permit. These let a client that has lost all memory of an acquisition release
 * it. */
void dlock__token_write(struct dlock__acquisition *acq);

/* True if `text` can be a token, of any client. */
bool dlock__token_check(const char *text);

/* Sets mode and limit to those in the acquisition's token. */
void dlock__token_read(struct dlock__acquisition *acq);

/* ---- acquisition.c ---- */

/* Makes an acquisition with a new token for what `lock` wants, in state ASKING. NULL: out of memory. */
struct dlock__acquisition *dlock__acq_new(struct dlock_lock *lock);
/* The same for an existing token (of a wake-up without a waiter, or a ticket), with the mode in it. */
struct dlock__acquisition *dlock__acq_for_token(struct dlock__name *name, const char *token);
void dlock__acq_put(struct dlock__acquisition *acq);

/* Gives an acquisition that only waited a slot, which a request or a grant needs. False: out of memory. */
bool dlock__slot_attach(struct dlock__acquisition *acq);
/* Takes the slot from an acquisition that only waits from now on, for use by others. */
void dlock__slot_detach(struct dlock__acquisition *acq);
/* True while its request is on the way or waits for a connection: the slot then belongs to the pool. */
bool dlock__acq_in_request(const struct dlock__acquisition *acq);
/* The acquisition's hold through this handle, made if need be and `make` is set. NULL: none, or out of memory. */
struct dlock__hold *dlock__acq_hold(struct dlock__acquisition *acq, struct dlock_lock *handle, bool make);
/* Sets the handle that the hold belongs to; NULL: none. */
void dlock__hold_set(struct dlock__hold *hold, struct dlock_lock *handle);
/* Shows the acquisition to dlock_held in the handles that it is held through, or hides it, as its state and times are
 * now. */
void dlock__acq_show(const struct dlock__acquisition *acq);
/* Removes its owner: all holds. */
void dlock__acq_disown(struct dlock__acquisition *acq);
/* The live acquisition with this token, or NULL. `name`, with the prefix, is where it is looked for first. */
struct dlock__acquisition *dlock__acq_find(struct dlock_client *client, const char *name, const char *token);
/* Orders pointers to acquisitions by name, for qsort: every batch is sent in this order. */
int dlock__acq_by_name(const void *a, const void *b);
static inline uint64_t dlock__acq_fence(const struct dlock__acquisition *acq) {
    return acq->server_fence << 8 | acq->ordinal;
}
/* The acquisition whose slot has this timer. */
struct dlock__acquisition *dlock__timer_acq(struct dlock__timer *timer);

/* ---- unanswered.c: every change of acq->unanswered ---- */

/* It may be in the server's queue from now on, or has left it with a grant. */
void dlock__acq_queued(struct dlock__acquisition *acq, bool queued);
/* A GRANTED has come, or an answer without one. */
void dlock__acq_told(struct dlock__acquisition *acq, bool told);
/* A request that asked for this lease got no answer. */
void dlock__acq_not_answered(struct dlock__acquisition *acq, enum dlock__op_kind kind, int64_t lease_ms);
/* The server has answered a request sent at sent_us. */
void dlock__acq_settle(struct dlock__acquisition *acq, int64_t sent_us);
static inline void dlock__acq_answered(struct dlock__acquisition *acq, int64_t sent_us) {
    if (acq->unanswered.late_until_us) dlock__acq_settle(acq, sent_us);
}
/* Its grant ends here earlier than the server has confirmed. */
void dlock__acq_cut_short(struct dlock__acquisition *acq);
/* It is an orphan: what it has may last one lease longer. */
void dlock__acq_given_up(struct dlock__acquisition *acq, int64_t now_us);
/* Its session has ended, with everything that was sent in it. */
void dlock__acq_session_ended(struct dlock__acquisition *acq);

/* The time until which the server may keep something unknown here, as far as leases end it; 0: nothing. */
int64_t dlock__acq_late_end_us(const struct dlock__acquisition *acq);
/* True if an acquire that was not answered may still reach the server, and be granted, after a request sent at `us`. */
bool dlock__acq_may_come_late(const struct dlock__acquisition *acq, int64_t us);
/* True if such an acquire may have made, or may yet make, a new grant: a renewal's answer is then not about one
 * grant. */
bool dlock__acq_may_be_granted_anew(const struct dlock__acquisition *acq);
/* True if the server or the backend may still keep something for an acquisition that is not granted. */
bool dlock__acq_may_remain(const struct dlock__acquisition *acq);
/* The shortest lease that the server may have set by, or after, the answer to a request sent at sent_us, which asked
 * for lease_ms. */
static inline int64_t dlock__acq_least_ms(const struct dlock__acquisition *acq, int64_t sent_us, int64_t lease_ms) {
    bool late = sent_us < acq->unanswered.late_until_us;
    return late && acq->unanswered.shortest_ms < lease_ms ? acq->unanswered.shortest_ms : lease_ms;
}

/* ---- check.c ---- */

/* Abort unless the invariants of its state hold; and unless it may change to `to`. */
#ifdef DLOCK_CHECK_STATES
void dlock__check_state(const struct dlock__acquisition *acq);
void dlock__check_way(const struct dlock__acquisition *acq, enum dlock__acq_state to);
#else
static inline void dlock__check_state(const struct dlock__acquisition *acq) {
    (void)acq;
}
static inline void dlock__check_way(const struct dlock__acquisition *acq, enum dlock__acq_state to) {
    (void)acq;
    (void)to;
}
#endif

/* ---- grant.c: every change of acq->state ---- */

/* Sets an acquisition that was not granted WAITING; it asks again at ask_at_us if nothing happens before. */
void dlock__acq_wait(struct dlock__acquisition *acq, int64_t ask_at_us);
/* Its release is on the way, or it is being exported: ends its renewals. */
void dlock__acq_release(struct dlock__acquisition *acq);
/* Sets ASKING (the next acquire is being prepared) or HELD (it lingered and has an owner again). */
void dlock__acq_become(struct dlock__acquisition *acq, enum dlock__acq_state state);
/* Treats the grant as shared from now on; it is renewed as shared at once. */
void dlock__acq_downgrade(struct dlock__acquisition *acq);
/* The server has confirmed the downgrade. */
void dlock__acq_downgraded(struct dlock__acquisition *acq);
/* Makes the next renewal, which is due at once, ask for the extension's lease. Until then the grant is valid no longer
 * than on a server that executes the request without answering. */
void dlock__acq_extend(struct dlock__acquisition *acq, struct dlock__extension *extension);
/* Gives a grant that is held the stronger of its terms and the handle's: it is renewed unless both leases are
 * fixed, for the longer of the two. False: it has a shorter fixed lease than the handle's, which only dlock_extend
 * changes. */
bool dlock__acq_strengthen(struct dlock__acquisition *acq, const struct dlock_lock *lock);
/* True if the keeper renews it. */
static inline bool dlock__acq_is_renewed(const struct dlock__acquisition *acq) {
    return !(acq->flags & DLOCK_FIXED_LEASE) || acq->state != DLOCK__HELD || acq->op->extension;
}
/* Lets a waiting acquisition ask at once, and one that is asking once more after the answer. */
void dlock__acq_ask_again(struct dlock__acquisition *acq);
/* Takes over an answered acquire (op.result == 0), or the renewal of an imported grant, and its fence. 0: HELD;
 * EUNAVAILABLE: the answer came too late to be of use, ask again; EPROTO: it is invalid. */
int dlock__acq_granted(struct dlock__acquisition *acq, struct dlock_error *err);
/* The lease, in milliseconds, that the server must keep for a grant to be valid for `us` from now on. */
int64_t dlock__lease_for_ms(int64_t us);
/* Takes over an answered renewal that asked for lease_ms. False if the answer is invalid; it is then treated as not
 * answered. */
bool dlock__acq_renewed(struct dlock__acquisition *acq, int64_t sent_us, int64_t lease_ms, int64_t kept_ms);
/* Takes over a GRANTED wake-up. Sets HELD if its age is proved; else the acquisition stays WAITING and asks at once. A
 * wake-up that is invalid is ignored. */
void dlock__acq_woken(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us);
/* Handles a GRANTED for an acquisition: takes it over while WAITING, keeps it for the answer while ASKING. */
void dlock__wake_granted(struct dlock__acquisition *acq, const struct dlock_wake *wake, int64_t received_us);
/* Stores the server's clock from an answer, by which the age of later wake-ups is judged. */
void dlock__clock_sample_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us);
/* Sets CONFIRMING: the head of the line gets this HELD acquisition, whose owner is done with it, once a renewal has
 * confirmed it. */
void dlock__acq_confirm(struct dlock__acquisition *acq);
/* True if this process has its grant, which is renewed, and whose end is a loss. */
static inline bool dlock__acq_renewable(const struct dlock__acquisition *acq) {
    return acq->state >= DLOCK__CONFIRMING && acq->state <= DLOCK__LINGERING;
}
/* The end of the grant, or of its lingering if that is earlier. */
static inline int64_t dlock__acq_end(const struct dlock__acquisition *acq) {
    bool lingers = acq->state == DLOCK__LINGERING && acq->linger_until_us < acq->valid_until_us;
    return lingers ? acq->linger_until_us : acq->valid_until_us;
}
/* True if this process holds it, or will be told so. */
static inline bool dlock__acq_held(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__HELD || acq->state == DLOCK__DOWNGRADING;
}
static inline bool dlock__acq_lost(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__LOST || acq->state == DLOCK__LOST_ORPHAN;
}
/* True if the engine has it. */
static inline bool dlock__acq_orphaned(const struct dlock__acquisition *acq) {
    return acq->state == DLOCK__ORPHAN || acq->state == DLOCK__LOST_ORPHAN;
}
/* Makes the calling thread, or the handle, the owner of an acquisition in name->held that has no owner. */
void dlock__own(struct dlock__acquisition *acq, struct dlock_lock *lock);
/* Gives a grant from a wake-up or hand-over to the waiter at the head of the line, which must not be cancelled: it owns
 * the acquisition, now in name->held, and leaves the line. */
void dlock__deliver(struct dlock__acquisition *acq);

/* Has the owner's handle hold the acquisition: the owner, which has waited since began_us, will be told. */
void dlock__hold_through(struct dlock__acquisition *acq, struct dlock_lock *lock, int64_t began_us);
/* Makes the waiter, whose turn this is, the owner, through its handle. */
void dlock__own_now(struct dlock__acquisition *acq, struct dlock__waiter *waiter);

/* Gives the acquisition, which is not wanted any more, to the engine: it is released until the server certainly keeps
 * nothing of it. It waits for its on_losts to return, since the release may give the lock to others, but for one
 * lease at most. */
void dlock__orphan(struct dlock__acquisition *acq);
/* Sets the time of an orphan's next release. */
void dlock__orphan_at(struct dlock__acquisition *acq, int64_t at_us);
/* Ends an orphan that the engine is done with. */
void dlock__orphan_gone(struct dlock__acquisition *acq);
/* Ends a grant (dlock__acq_renewable) before its release: tells the owner, and lets waiters ask. */
void dlock__lose(struct dlock__acquisition *acq, enum dlock_loss why);
/* A message says that somebody broke the grant, which a renewal will tell. */
void dlock__acq_doubt(struct dlock__acquisition *acq);
/* Removes a lost acquisition from its name's list; the list's reference becomes the caller's. */
void dlock__lost_remove(struct dlock__acquisition *acq);
/* Calls dlock__lose if the grant's time is over. */
void dlock__expire_if_due(struct dlock__acquisition *acq);
/* Notes that it is in a renewal, which gets a reference; its end is watched during it. */
void dlock__acq_renewing(struct dlock__acquisition *acq);
/* Sets the time of the next renewal, and the timer, also after a change of another of its times. */
void dlock__acq_renew_at(struct dlock__acquisition *acq, int64_t at_us);
/* Sets LINGERING: it has no holder, and is released at until_us unless it is taken again. */
void dlock__acq_linger(struct dlock__acquisition *acq, int64_t until_us);
/* Ends the lingering: the engine releases it. */
void dlock__linger_end(struct dlock__acquisition *acq);
/* Ends what a broken connection took along: the clock sample, and all grants that lived in the connection. */
void dlock__connection_epoch_ended(struct dlock_client *client);
/* True if an acquisition asks, waits, is granted or is being released. */
bool dlock__connection_is_needed(struct dlock_client *client);

/* ---- loss.c ---- */

/* Notes why the grant is lost. EXPIRED becomes FIXED_END if its lease is fixed. */
void dlock__loss_note(struct dlock__acquisition *acq, enum dlock_loss why);
/* Why the server no longer has the grant. */
enum dlock_loss dlock__loss_at_server(const struct dlock__acquisition *acq);
/* Returns ELOST, with a message that says why it was lost; `before` may begin with " before". */
int dlock__loss_fail(const struct dlock__acquisition *acq, const char *before, struct dlock_error *err);
/* Notes whether the keeper has slept past the time for which it was armed. */
void dlock__stall_note(struct dlock_client *client);

/* ---- due.c ---- */

/* Ends all grants of a client whose time is over, and the lingering that has lasted long enough; moves those to be
 * renewed to client->timers.due. Returns the time of the next such event. Leaves the mutex in between. */
int64_t dlock__expire_all(struct dlock_client *client);
/* Takes an acquisition out of the timers for renewal: of those that are due the one that ends first, else the first
 * that is due by until_us. NULL: none. */
struct dlock__acquisition *dlock__renewal_take(struct dlock_client *client, int64_t until_us);

#endif
