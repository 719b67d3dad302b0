/* Waiting for a name, in the order of its line, and giving grants back. Functions expect the client's mutex. */
#ifndef DLOCK_CORE_WAIT_WAIT_H
#define DLOCK_CORE_WAIT_WAIT_H

#include "io/io.h"

/* ---- waiter.c ---- */

enum dlock__turn {
    DLOCK__TURN_ASK,   /* its claim's request is prepared: send it, and tell the answer with dlock__waiter_answered */
    DLOCK__TURN_SLEEP, /* nothing to do until *until_us, or until it is woken */
    DLOCK__TURN_OVER   /* waiter->result, with words in waiter->why */
};

/* When an acquire with this timeout ends: a try has the URI's `timeout`. */
int64_t dlock__deadline(struct dlock_client *client, int64_t timeout_ms);
/* Puts a new waiter into the line, unless it is a try that stands no chance (then it is over). */
void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, int64_t timeout_ms);
/* What it does next; looks at everything that happened meanwhile. Leaves the mutex when it gives up a claim. */
enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us);
/* Takes over the answer to its claim's request. Leaves the mutex when it gives up the claim, or brings up the listener.
 */
void dlock__waiter_answered(struct dlock__waiter *waiter);
/* Its deadline passed while its request hangs. */
void dlock__waiter_leave(struct dlock__waiter *waiter);
/* Ends a wait with ECANCELED. */
void dlock__waiter_cancel(struct dlock__waiter *waiter);

/* ---- blocking.c ---- */

/* Waits in line and asks the server, for an owner who holds nothing. 0: the grant is the waiter's. */
int dlock__acquire(struct dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err);
/* All turns of a waiter with a thread: this one. Leaves the mutex meanwhile. */
void dlock__waiter_drive(struct dlock__waiter *waiter);

/* ---- async.c ---- */

/* Ends the waits whose deadline passed while their request hangs; the next time to look, at the earliest. */
int64_t dlock__async_expire(struct dlock_client *client);
/* Ends what is left, and the thread. Without the mutex. */
void dlock__async_stop(struct dlock_client *client);

/* A record of an operation that begins; its thread is started if need be. 0 or ENOMEM. */
int dlock__async_make(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **out);
/* It has begun; it has a turn; it is over, and its callback is queued. */
void dlock__async_begun(struct dlock__async *async);
void dlock__async_ready(struct dlock__async *async);
void dlock__async_over(struct dlock__async *async);

/* ---- release.c ---- */

/* The owner's last release: hands over locally, or releases at the server. */
int dlock__give_back(struct dlock__claim *claim, struct dlock_error *err);
/* What the answer to a release means: of one that was sent before, "not found" is what success left behind. */
int dlock__release_result(const struct dlock__claim *claim);
/* Whether a release that was sent at sent_us and got no answer is worth another request: not when the only connection
 * that could tell was closed since it kept silent. */
bool dlock__release_again(const struct dlock__claim *claim, int64_t sent_us);
/* Sends the release until it is answered, for one `timeout`. */
int dlock__give_back_send(struct dlock__claim *claim, struct dlock_error *why);
/* The same in parts: the first decides, true = it was handed over locally, and that was all. Then its release is sent.
 * The last takes over the answer; `why` is what the server said, and may be NULL. */
bool dlock__give_back_begin(struct dlock__claim *claim);
int dlock__give_back_end(struct dlock__claim *claim, int rc, const struct dlock_error *why, struct dlock_error *err);

/* Releases a lingering claim that does not fit, so that not even a try finds our own grant in its way. Leaves the mutex
 * meanwhile. */
void dlock__linger_clear(struct dlock_lock *lock, int64_t deadline_us);

#endif
