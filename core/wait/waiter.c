/* Waiting for a name. Waiters of one process form the name's line; the one at the head asks the server, with one
 * acquisition, until it is granted, gives up, or is cancelled. The waiters behind it get the lock by local hand-over
 * (state/handover.c) or by becoming the head.
 *
 * A waiter is a small state machine that takes turns: its thread takes them (blocking.c), or the engine for a waiter
 * without one. */
#include "base/probe.h"
#include "wait/wait.h"

#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_US = 40000, /* least time for an answer: one that the deadline cut short would look like an outage */
    LISTEN_US = 20000  /* a wait shorter than this polls */
};

static struct dlock_client *client_of(const struct dlock__waiter *waiter) {
    return waiter->lock->client;
}

static struct dlock__name *name_of(const struct dlock__waiter *waiter) {
    return waiter->lock->name;
}

/* The acquisition that the waiter asks with. Only the head of the line has one. */
static struct dlock__acquisition *acq_of(const struct dlock__waiter *waiter) {
    struct dlock__name *name = name_of(waiter);
    return name->head == waiter ? name->asking : NULL;
}

/* ---- the end of a wait ---- */

/* Ends the wait: takes the waiter out of the line. */
static void finish(struct dlock__waiter *waiter, int result) {
    struct dlock__name *name = name_of(waiter);
    waiter->done = waiter->over = true;
    waiter->result = result;
    waiter->lock->waiting--;
    dlock__stats_waited(waiter);
    if (result != 0) dlock__tell_wait(DLOCK_EVENT_GIVEN_UP, waiter);
    if (!dlock__name_has(name, waiter)) return;
    dlock__name_remove(name, waiter);
    const struct dlock__acquisition *in_the_way = dlock__name_exclusive(name);
    if (!in_the_way || dlock__lingers(in_the_way)) dlock__name_signal(name); /* the next one may like its terms */
}

static int why_code(const struct dlock__waiter *waiter) {
    return waiter->why ? waiter->why->code : 0;
}

/* Sets the waiter's error, unless the caller did not ask for one. Returns `code`. */
DLOCK_PRINTF(3, 4)
static int explain(struct dlock__waiter *waiter, int code, const char *format, ...) {
    struct dlock_error *why = waiter->why;
    if (!why && !waiter->latch) why = waiter->why = malloc(sizeof *why);
    if (why) {
        char message[sizeof why->message]; /* an argument may point to the old message */
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof message, format, args);
        va_end(args);
        why->code = code;
        memcpy(why->message, message, sizeof message);
    }
    return code;
}

static void explain_not_ready(struct dlock__waiter *waiter) {
    struct dlock_error err;
    dlock__name_not_ready(name_of(waiter), &err);
    explain(waiter, err.code, "%s", err.message);
}

static void explain_busy(struct dlock__waiter *waiter) {
    const char *shown = dlock__name_shown(name_of(waiter));
    if (why_code(waiter) == DLOCK_EBUSY)
        explain(waiter, DLOCK_EBUSY, "lock \"%s\" is busy: %s", shown, waiter->why->message);
    else
        explain(waiter, DLOCK_EBUSY, "lock \"%s\" is held by somebody else", shown);
}

/* True, with an error set, if the server grants nothing yet and so no holder is known. */
static bool not_ready(struct dlock__waiter *waiter) {
    if (dlock__name_ready(name_of(waiter), NULL) == 0) return false;
    explain_not_ready(waiter);
    return true;
}

/* The result at the deadline. A question still open then says nothing about the server if earlier ones were
 * answered. */
static int timed_out(struct dlock__waiter *waiter) {
    const char *shown = dlock__name_shown(name_of(waiter));
    int code = why_code(waiter);
    if (code == DLOCK_EAUTH || (code == DLOCK_EUNAVAILABLE && !waiter->heard)) return code;
    if (not_ready(waiter)) return DLOCK_ENOTREADY;
    if (code == DLOCK_EBUSY)
        return explain(waiter, DLOCK_ETIMEDOUT, "lock \"%s\" was not granted in time: %s", shown, waiter->why->message);
    return explain(waiter, DLOCK_ETIMEDOUT, "lock \"%s\" was held by somebody else until the deadline", shown);
}

static int refused(struct dlock__waiter *waiter) {
    if (not_ready(waiter)) return DLOCK_ENOTREADY;
    return explain(waiter, DLOCK_EBUSY, "lock \"%s\" is held or waited for in this process",
                   dlock__name_shown(name_of(waiter)));
}

/* The result of a waiter whose question is still open at the deadline. */
static int unanswered(struct dlock__waiter *waiter) {
    char where[200];
    dlock__uri_where(client_of(waiter)->uri, where, sizeof where);
    explain(waiter, DLOCK_EUNAVAILABLE, "lock \"%s\": no answer from %s until the deadline",
            dlock__name_shown(name_of(waiter)), where);
    return waiter->heard ? timed_out(waiter) : DLOCK_EUNAVAILABLE;
}

/* The result of a waiter whose deadline passed while it waited in line. A try stands there only while an answer to this
 * process is awaited. */
static int late_in_line(struct dlock__waiter *waiter) {
    if (waiter->try_only) return unanswered(waiter);
    if (not_ready(waiter)) return DLOCK_ENOTREADY;
    return explain(waiter, DLOCK_ETIMEDOUT, "lock \"%s\" was held or waited for in this process until the deadline",
                   dlock__name_shown(name_of(waiter)));
}

static int cancelled(struct dlock__waiter *waiter) {
    if (waiter->result != DLOCK_ECANCELED) return waiter->result;
    return explain(waiter, DLOCK_ECANCELED, "the wait for lock \"%s\" was cancelled",
                   dlock__name_shown(name_of(waiter)));
}

/* Gives up the acquisition, so that nothing stays at the server. With a thread (and memory for a slot) it becomes
 * `leaving`, to be released before the wait is over; else the engine releases it. */
static void give_up(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = acq_of(waiter);
    if (!acq) return;
    bool unseen = acq->state == DLOCK__ASKING && acq->op->status == DLOCK__OP_DONE && acq->op->result == 0;
    bool left = dlock__acq_may_remain(acq) || ((unseen || acq->server_fence) && !dlock__acq_died_with_connection(acq));
    bool in_request = dlock__acq_in_request(acq);
    if (left && !in_request && waiter->latch && dlock__slot_attach(acq)) {
        dlock__acq_release(acq);
        name_of(waiter)->asking = NULL;
        waiter->leaving = acq; /* with the reference of name->asking */
        return;
    }
    if (left || in_request) dlock__orphan(acq);
    name_of(waiter)->asking = NULL;
    dlock__acq_put(acq);
}

/* Ends the wait with `result`, after the release of an abandoned acquisition if there is one. */
static enum dlock__turn end(struct dlock__waiter *waiter, int result) {
    waiter->done = true;
    waiter->result = result;
    if (waiter->leaving) return DLOCK__TURN_LEAVE;
    finish(waiter, result);
    return DLOCK__TURN_OVER;
}

void dlock__waiter_left(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = waiter->leaving;
    int rc = acq->op->result;
    waiter->leaving = NULL;
    if ((rc != 0 && rc != DLOCK_ELOST) || dlock__acq_may_come_late(acq, acq->op->sent_us)) dlock__orphan(acq);
    dlock__acq_put(acq);
    finish(waiter, waiter->result);
}

void dlock__waiter_expire(struct dlock__waiter *waiter) {
    give_up(waiter);
    end(waiter, waiter->done ? cancelled(waiter) : unanswered(waiter));
}

void dlock__waiter_cancel(struct dlock__waiter *waiter) {
    if (waiter->done) return;
    waiter->done = true;
    waiter->result = DLOCK_ECANCELED;
    dlock__waiter_wake(waiter);
}

/* ---- being granted ---- */

/* Takes over the grant that the waiter was handed. False: the grant has ended since (this process may have been
 * stopped), and no thread was told. */
static bool take(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = waiter->handed;
    waiter->handed = NULL;
    dlock__expire_if_due(acq);
    bool good = dlock__acq_held(acq);
    if (good) {
        dlock__hold_through(acq, waiter->lock, waiter->began_us);
    } else if (dlock__acq_lost(acq)) {
        dlock__acq_disown(acq); /* no owner has to release it */
        dlock__lost_remove(acq);
        dlock__acq_put(acq);
    }
    dlock__acq_put(acq);
    return good;
}

/* ---- asking ---- */

static int64_t question_deadline(const struct dlock__waiter *waiter) {
    int64_t least = dlock__now(client_of(waiter)) + ANSWER_US;
    return waiter->deadline_us > least ? waiter->deadline_us : least;
}

static enum dlock__turn out_of_memory(struct dlock__waiter *waiter) {
    give_up(waiter);
    return end(waiter, explain(waiter, DLOCK_ENOMEM, "out of memory for an acquisition"));
}

/* True if a grant for this handle may linger after its release. */
static bool may_linger(const struct dlock_lock *lock) {
    return lock->client->uri->linger_ms > 0 && lock->mode == DLOCK_EXCLUSIVE && !(lock->flags & DLOCK_FIXED_LEASE);
}

/* True if the server has to say when another client asks for what this handle was granted. */
static bool watches(const struct dlock_lock *lock) {
    return may_linger(lock) || lock->watch;
}

static enum dlock__turn ask(struct dlock__waiter *waiter) {
    struct dlock_client *client = client_of(waiter);
    struct dlock__acquisition *acq = acq_of(waiter);
    bool listening = client->listener.state == DLOCK__LISTENER_UP;
    bool queues = dlock__can(client, DLOCK_CAP_QUEUE) ||
                  (dlock__can(client, DLOCK_CAP_WAKE) && !dlock__can(client, DLOCK_CAP_SESSION));
    bool queue = !waiter->try_only && queues && listening;
    bool watched = watches(waiter->lock) && listening;
    uint32_t flags = (queue ? DLOCK_CLAIM_QUEUE : 0) | (watched ? DLOCK_CLAIM_LINGER : 0);
    if (!dlock__slot_attach(acq)) return out_of_memory(waiter);
    dlock__acq_become(acq, DLOCK__ASKING);
    if (waiter->why) waiter->why->code = 0;
    dlock__op_prepare(acq, DLOCK__ACQUIRE, flags, question_deadline(waiter), waiter->why);
    return DLOCK__TURN_ASK;
}

static enum dlock__turn ask_first(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = dlock__acq_new(waiter->lock);
    if (!acq) return out_of_memory(waiter);
    name_of(waiter)->asking = acq;
    return ask(waiter);
}

/* The head has to wait: tries behind it, which entered because they might have been granted together with it, have
 * failed. */
static void turn_tries_away(struct dlock__name *name) {
    for (struct dlock__waiter *waiter = name->head->next; waiter; waiter = waiter->next)
        if (waiter->try_only) dlock__waiter_wake(waiter);
}

/* Sets the acquisition WAITING after an answer without a grant, busy or not ready, unless a wake-up that came while it
 * was asking says otherwise. */
static void busy(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = acq_of(waiter);
    struct dlock__op *op = acq->op;
    if (op->result == DLOCK_EBUSY) acq->contended = true;
    dlock__rhythm_busy(&name_of(waiter)->rhythm, op->result == DLOCK_EBUSY ? op->arg.fence : 0,
                       dlock__now(client_of(waiter)));
    if (op->result == DLOCK_EBUSY) dlock__acq_answered(acq, op->sent_us);
    dlock__acq_told(acq, false);
    if (acq->unanswered.queued) dlock__listener_awaited(client_of(waiter));
    if (op->arg.hints & DLOCK_HINT_UNHEARD) dlock__listener_unheard(client_of(waiter), op->sent_us);
    dlock__acq_wait(acq, op->look ? dlock__now(client_of(waiter)) : dlock__ask_again_at(waiter, acq, &op->arg));
    if (op->woken) {
        /* A wake-up from after this answer counts; at the same microsecond the order is unknown, so its age is
         * unproved. One from before is over, or the server worked on both at the same time: asking again tells. */
        bool counts = op->wake.server_us >= op->arg.server_us;
        if (op->wake.server_us == op->arg.server_us) op->wake.server_us = 0;
        if (counts)
            dlock__acq_woken(acq, &op->wake, op->received_us);
        else
            dlock__acq_wait(acq, dlock__now(client_of(waiter)));
    }
    op->look = op->woken = false;
    if (acq->state == DLOCK__WAITING) dlock__slot_detach(acq);
    if (!waiter->latch) dlock__listener_needs_keeper(client_of(waiter));
    if (dlock__name_has(name_of(waiter), waiter)) turn_tries_away(name_of(waiter));
}

/* True if the listener can be brought up now, and enough time is left for that. */
static bool may_listen(const struct dlock__waiter *waiter) {
    struct dlock_client *client = client_of(waiter);
    int64_t now = dlock__now(client);
    return now >= client->listener.retry_at_us && now + LISTEN_US <= waiter->deadline_us;
}

/* After a busy answer of a server with wake-ups: brings up the listener. True: ask again at once, now that wake-ups are
 * heard. */
static bool listen_first(struct dlock__waiter *waiter) {
    struct dlock_client *client = client_of(waiter);
    if (!dlock__can(client, DLOCK_CAP_WAKE) || client->listener.state == DLOCK__LISTENER_UP) return false;
    if (!may_listen(waiter)) return false;
    return dlock__listener_ensure(client, waiter->deadline_us) && dlock__now(client) < waiter->deadline_us;
}

/* Notes what an answer, or none, tells about the server. `heard` ends when the connection breaks, or nothing is
 * answered for a whole `timeout`. */
static void judge(struct dlock__waiter *waiter, int result) {
    struct dlock_client *client = client_of(waiter);
    int64_t trip_us = dlock__now(client) - acq_of(waiter)->op->prepared_us;
    if (result == DLOCK_EBUSY || result == DLOCK_ENOTREADY) {
        waiter->heard = name_of(waiter)->accepted = true;
        waiter->trip_us = (uint16_t)(trip_us < UINT16_MAX ? trip_us : UINT16_MAX);
    } else if (result == DLOCK_EUNAVAILABLE) {
        bool silent = trip_us >= dlock__us(client->uri->timeout_ms);
        waiter->heard = waiter->heard && acq_of(waiter)->op->late && !silent;
        if (waiter->heard) return; /* what it said before still counts */
    }
    bool told = why_code(waiter) == DLOCK_EUNAVAILABLE || why_code(waiter) == DLOCK_EAUTH;
    dlock__name_unanswered(name_of(waiter), told ? waiter->why : NULL);
    int64_t ready_ms = result == DLOCK_ENOTREADY ? acq_of(waiter)->op->arg.ready_ms : 0;
    if (ready_ms != 0) {
        client->stats.quarantines++;
        if (name_of(waiter)->ready_at_us == 0) dlock__tell_wait(DLOCK_EVENT_QUARANTINE, waiter);
    }
    name_of(waiter)->ready_at_us = ready_ms < 0   ? DLOCK__NEVER
                                   : ready_ms > 0 ? dlock__after(dlock__now(client), dlock__us(ready_ms))
                                                  : 0;
}

void dlock__waiter_answered(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = acq_of(waiter);
    struct dlock_error err;
    int rc = acq->op->result;
    if (waiter->done) { /* cancelled in between: its next turn gives up the acquisition, grant and all */
        judge(waiter, rc);
        return;
    }
    bool untold = acq->unanswered.untold && !acq->op->woken;
    if (rc == 0) {
        rc = dlock__acq_granted(acq, &err);
        if (rc != 0) { /* granted by the server, but useless here: no acquire will come, but its grant is there */
            dlock__acq_not_answered(acq, DLOCK__RENEW, acq->op->arg.lease_ms);
            explain(waiter, rc, "%s", err.message);
        }
    }
    if (rc == 0) {
        dlock__rhythm_granted(name_of(waiter)->rhythm, dlock__now(client_of(waiter)));
        if (untold && waiter->heard) dlock__listener_doubted(client_of(waiter));
        acq->watched = acq->op->arg.flags & DLOCK_CLAIM_LINGER;
        if (acq->op->arg.hints & DLOCK_HINT_LISTEN) dlock__listener_for_grants(client_of(waiter));
        dlock__own_now(acq, waiter);
        finish(waiter, 0);
        return;
    }
    judge(waiter, rc);
    if (waiter->try_only || !dlock__asks_again(name_of(waiter)->accepted, rc) || acq->op->status == DLOCK__OP_RUNNING) {
        give_up(waiter);
        if (rc == DLOCK_EBUSY) explain_busy(waiter);
        if (rc == DLOCK_ENOTREADY) explain_not_ready(waiter);
        end(waiter, rc == DLOCK_EUNAVAILABLE && waiter->heard ? timed_out(waiter) : rc);
    } else if (rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EAUTH) {
        dlock__acq_wait(acq, dlock__ask_after_outage_at(waiter));
        dlock__slot_detach(acq);
    } else if (listen_first(waiter)) {
        dlock__acq_wait(acq, 0);
    } else {
        busy(waiter);
    }
}

/* ---- turns ---- */

/* Sleeps until a wake-up grants the lock, something else ends the wait, or it is time to ask again. */
static enum dlock__turn asker_turn(struct dlock__waiter *waiter, int64_t *until_us) {
    const struct dlock__acquisition *acq = acq_of(waiter);
    int64_t until = acq->state == DLOCK__CONFIRMING ? DLOCK__NEVER : acq->ask_at_us,
            now = dlock__now(client_of(waiter));
    if (until > waiter->deadline_us) until = waiter->deadline_us;
    if (now < until) {
        *until_us = until;
        return DLOCK__TURN_SLEEP;
    }
    if (now < waiter->deadline_us) return ask(waiter);
    give_up(waiter);
    return end(waiter, timed_out(waiter));
}

/* Takes the grant if it lingers in this process on the same terms. */
static bool take_lingering(struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = dlock__linger_take(waiter->lock);
    if (!acq) return false;
    dlock__own_now(acq, waiter);
    finish(waiter, 0);
    return true;
}

/* Brings up the listener, since only wake-ups report other clients' requests. True: it tried,
 * and left the mutex. */
static bool listen_to_watch(struct dlock__waiter *waiter) {
    struct dlock_client *client = client_of(waiter);
    if (!waiter->latch || !watches(waiter->lock)) return false; /* the engine does it itself */
    if (client->listener.state == DLOCK__LISTENER_UP) return false;
    if (!may_listen(waiter)) return false;
    dlock__listener_ensure(client, waiter->deadline_us);
    return true;
}

static void clear_lingering(const struct dlock__waiter *waiter) {
    struct dlock__acquisition *acq = dlock__linger_clear_begin(waiter->lock);
    dlock__linger_clear(&acq, 1, waiter->deadline_us);
}

/* Sleeps until the waiter is the head of the line and nothing blocks it; then asks. */
static enum dlock__turn line_turn(struct dlock__waiter *waiter, int64_t *until_us) {
    struct dlock__name *name = name_of(waiter);
    int64_t now = dlock__now(client_of(waiter)), until = waiter->deadline_us;
    bool blocked = dlock__name_exclusive(name) != NULL;
    if (blocked && name->head == waiter) {
        if (take_lingering(waiter)) return DLOCK__TURN_OVER;
        if (dlock__linger_misfit(waiter->lock)) {
            if (waiter->latch) clear_lingering(waiter); /* the engine does it itself, before the turn */
            *until_us = waiter->latch ? 0 : until;      /* 0: the mutex was left, look again */
            return DLOCK__TURN_SLEEP;
        }
        blocked = dlock__name_exclusive(name) != NULL; /* what lingered may have ended */
    }
    if (name->head == waiter && !blocked) {
        if (listen_to_watch(waiter)) {
            *until_us = 0; /* the mutex was left: look again */
            return DLOCK__TURN_SLEEP;
        }
        int64_t ask_us = name->backoff_until_us, last = dlock__last_question(waiter);
        if (last < ask_us) ask_us = last;
        if (now < until && (waiter->try_only || ask_us <= now)) return ask_first(waiter);
        if (ask_us < until) until = ask_us;
    } else if (waiter->try_only && (blocked || (name->asking && name->asking->state != DLOCK__ASKING))) {
        finish(waiter, refused(waiter));
        return DLOCK__TURN_OVER;
    }
    if (now >= waiter->deadline_us) {
        finish(waiter, late_in_line(waiter));
        return DLOCK__TURN_OVER;
    }
    *until_us = until;
    return DLOCK__TURN_SLEEP;
}

enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us) {
    while (waiter->done && !waiter->over && !waiter->leaving) {
        if (waiter->handed && take(waiter)) {
            finish(waiter, 0);
        } else if (waiter->result == 0) { /* the grant has ended: back into the line */
            waiter->done = client_of(waiter)->stopped || waiter->cancels != waiter->lock->cancels;
            waiter->result = DLOCK_ECANCELED;
            struct dlock__name *name = name_of(waiter); /* whose `asking` always belongs to the head */
            dlock__name_insert(name, waiter, name->asking ? name->head : NULL);
        } else {
            give_up(waiter);
            end(waiter, cancelled(waiter));
        }
    }
    if (waiter->leaving) return DLOCK__TURN_LEAVE;
    if (waiter->over) return DLOCK__TURN_OVER;
    enum dlock__turn turn = (acq_of(waiter) ? asker_turn : line_turn)(waiter, until_us);
    if (turn == DLOCK__TURN_SLEEP && *until_us > 0) dlock__stats_waits(waiter);
    return turn;
}

/* True if a try may have others before it in the line: readers, and permits, may be granted together. */
static bool may_go_along(const struct dlock__name *name, const struct dlock_lock *lock) {
    const struct dlock__waiter *waiter = name->head;
    if (!waiter) return true;
    if (lock->mode == DLOCK_EXCLUSIVE || (name->asking && name->asking->state != DLOCK__ASKING)) return false;
    while (waiter && waiter->lock->mode == lock->mode) waiter = waiter->next;
    return !waiter;
}

void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, bool try_only, int64_t deadline_us) {
    struct dlock__name *name = lock->name;
    waiter->lock = lock;
    waiter->cancels = lock->cancels;
    lock->waiting++;
    waiter->thread = dlock__thread_id();
    waiter->try_only = try_only;
    waiter->began_us = dlock__now(lock->client);
    waiter->deadline_us = deadline_us;
    DLOCK__PROBE3(acquire_begin, (const char *)name->text, waiter->began_us, deadline_us);
    bool blocked = dlock__name_exclusive(name) && !dlock__linger_misfit(lock);
    if (waiter->try_only && (blocked || !may_go_along(name, lock)))
        finish(waiter, refused(waiter));
    else
        dlock__name_insert(name, waiter, name->tail);
}
