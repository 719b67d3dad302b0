/* Waiting for a name, in the order of its line, and giving grants back. Functions expect the client's mutex held. */
#ifndef DLOCK_CORE_WAIT_WAIT_H
#define DLOCK_CORE_WAIT_WAIT_H

#include "io/io.h"

/* ---- waiter.c ---- */

enum dlock__turn {
    DLOCK__TURN_ASK,   /* its acquisition's request is prepared: send it, then call dlock__waiter_answered */
    DLOCK__TURN_LEAVE, /* release waiter->leaving, then call dlock__waiter_left; only with a latch */
    DLOCK__TURN_SLEEP, /* nothing to do until *until_us, unless it is woken */
    DLOCK__TURN_OVER   /* the result is in waiter->result, its message in waiter->why */
};

/* Puts a new waiter into the line. A try that cannot succeed is over at once. */
void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, bool try_only, int64_t deadline_us);
/* Decides what the waiter does next, from everything that has happened since. With a latch this may bring up the
 * listener, and leaves the mutex then. */
enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us);
/* Takes over the answer to its acquisition's request. Leaves the mutex if it brings up the listener. */
void dlock__waiter_answered(struct dlock__waiter *waiter);
/* Ends the wait, after the release of what the waiter gave up was answered, or had no answer in time. */
void dlock__waiter_left(struct dlock__waiter *waiter);
/* Ends a wait whose deadline passed while its request hangs. */
void dlock__waiter_expire(struct dlock__waiter *waiter);
/* Ends a wait with ECANCELED. */
void dlock__waiter_cancel(struct dlock__waiter *waiter);

/* ---- pause.c ---- */

/* When to ask again after an answer without a grant, unless something happens before. If the waiter may not be told of a
 * release, since it has no place in a queue, no later than a last question before the deadline. */
int64_t dlock__ask_again_at(struct dlock__waiter *waiter, const struct dlock__acquisition *acq,
                            const struct dlock_claim *answer);
/* The same after a question that the server has not answered. */
int64_t dlock__ask_after_outage_at(struct dlock__waiter *waiter);
/* The latest time for a question whose answer should arrive by the deadline. */
int64_t dlock__last_question(const struct dlock__waiter *waiter);

/* ---- blocking.c ---- */

/* Waits in line and asks the server, for a caller who holds nothing. Returns 0 (the caller owns the grant) or an error.
 * Leaves the mutex in between. */
int dlock__acquire(struct dlock_lock *lock, bool try_only, int64_t deadline_us, struct dlock_error *err);
/* Takes the turns of n waiters of one client, which have the calling thread's latch, until all are over. Their requests
 * at the same time are one. `any`: the first that ends with a grant, or an error other than EBUSY and ETIMEDOUT, ends the
 * others with ECANCELED. Leaves the mutex in between. */
void dlock__waiters_drive(struct dlock__waiter *const *waiters, size_t n, bool any);
/* Sleeps until until_us, until this thread's latch is woken, or until it is cancelled. Leaves the mutex in between. */
void dlock__latch_sleep(struct dlock_client *client, struct dlock__latch *latch, int64_t until_us);

/* ---- release.c ---- */

/* Releases n acquisitions of one client, at most DLOCK__BATCH, by one request, which may take until deadline_us. `why`
 * gets the server's message about the first. Leaves the mutex in between. */
void dlock__release_send(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us,
                         struct dlock_error *why);
/* When a release that failed is sent again: after a random pause, which grows. */
int64_t dlock__release_retry_at(struct dlock__acquisition *acq);
/* The same for a release that must be answered by deadline_us. DLOCK__NEVER: it was answered, or repeating it is
 * useless. */
int64_t dlock__release_again_at(struct dlock__acquisition *acq, int64_t deadline_us);
/* Gives the owner's last hold back. True: the grant stays in this process, with its next owner or lingering. False: the
 * acquisition is RELEASING, and its release has to be sent. */
bool dlock__give_back_begin(struct dlock__acquisition *acq);
/* Ends a release with `rc`; `why` is the server's message, and may be NULL. Returns the error for the caller, with a
 * message in `err`. */
int dlock__give_back_end(struct dlock__acquisition *acq, int rc, const struct dlock_error *why,
                         struct dlock_error *err);
/* Sends the releases of n RELEASING acquisitions of one client, in as few requests as possible, until all are answered
 * or deadline_us has come, and ends them. Returns the first error. Leaves the mutex in between. */
int dlock__give_back(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us, struct dlock_error *err);
/* Waits until an exclusive acquisition is over that another thread releases. Leaves the mutex in between. */
int dlock__give_back_await(struct dlock__acquisition *acq, int64_t deadline_us, struct dlock_error *err);

/* Release a lingering acquisition whose terms differ before its name is acquired, so that not even a try meets our own
 * grant. dlock__linger_clear_begin returns that acquisition, now RELEASING, or NULL. dlock__linger_clear
 * sends the releases of n of one client, each once, and ends them; it leaves the mutex in between. */
struct dlock__acquisition *dlock__linger_clear_begin(struct dlock_lock *lock);
void dlock__linger_clear(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us);

#endif
