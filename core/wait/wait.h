/* Waiting for a name, in the order of its line, and giving grants back. Functions expect the client's mutex. */
#ifndef DLOCK_CORE_WAIT_WAIT_H
#define DLOCK_CORE_WAIT_WAIT_H

#include "io/io.h"

/* ---- waiter.c ---- */

enum dlock__turn {
    DLOCK__TURN_ASK,   /* its acquisition's request is prepared: send it, and tell dlock__waiter_answered */
    DLOCK__TURN_LEAVE, /* release waiter->leaving, and tell the end of that with dlock__waiter_left; not without a latch
                        */
    DLOCK__TURN_SLEEP, /* nothing to do until *until_us, or until it is woken */
    DLOCK__TURN_OVER   /* waiter->result, with words in waiter->why */
};

/* Puts a new waiter into the line, unless it is a try that stands no chance (then it is over). */
void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, bool try_only, int64_t deadline_us);
/* Says what the waiter does next, from everything that happened meanwhile. If it has a latch this may bring up the
 * listener, and leaves the mutex then. */
enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us);
/* Takes over the answer to its acquisition's request. Leaves the mutex when it brings up the listener. */
void dlock__waiter_answered(struct dlock__waiter *waiter);
/* The release of what it gave up is answered, or will not be in time: the wait is over. */
void dlock__waiter_left(struct dlock__waiter *waiter);
/* Ends a wait whose deadline passed while its request hangs. */
void dlock__waiter_leave(struct dlock__waiter *waiter);
/* Ends a wait with ECANCELED. */
void dlock__waiter_cancel(struct dlock__waiter *waiter);

/* ---- blocking.c ---- */

/* Waits in line and asks the server, for an owner who holds nothing. 0: the grant is the waiter's. */
int dlock__acquire(struct dlock_lock *lock, bool try_only, int64_t deadline_us, struct dlock_error *err);
/* All turns of n waiters of one client, which have this thread's latch, until all are over: what they ask at the same
 * time is one request. Leaves the mutex meanwhile. */
void dlock__waiters_drive(struct dlock__waiter *const *waiters, size_t n);
/* Sleeps until until_us, a change for this thread's latch, or its cancellation. Leaves the mutex meanwhile. */
void dlock__latch_sleep(struct dlock_client *client, struct dlock__latch *latch, int64_t until_us);

/* ---- release.c ---- */

/* One request that releases n acquisitions of one client, at most DLOCK__BATCH, for as long as until deadline_us; `why`
 * is what the server says to the first. Leaves the mutex meanwhile. */
void dlock__release_send(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us,
                         struct dlock_error *why);
/* The meaning of the answer to a release: "not found" is success if it was sent before. */
int dlock__release_result(const struct dlock__acquisition *acq);
/* When a release without success is sent again: after a random pause, which grows. */
int64_t dlock__release_retry_at(struct dlock__acquisition *acq);
/* The same for one that has to be answered by the deadline; DLOCK__NEVER: it is, or another request is of no use. */
int64_t dlock__release_again_at(struct dlock__acquisition *acq, int64_t deadline_us);
/* The owner's last release. True: the grant stays in this process, with its next owner or lingering, and that was all;
 * false: it is RELEASING, and has to be sent. */
bool dlock__give_back_begin(struct dlock__acquisition *acq);
/* The end of that, as `rc` says; `why` is what the server said, and may be NULL. Returns rc, with words. */
int dlock__give_back_end(struct dlock__acquisition *acq, int rc, const struct dlock_error *why,
                         struct dlock_error *err);
/* Sends the releases of n acquisitions of one client, which are RELEASING, and ends them: as few requests as possible,
 * again until they are answered or deadline_us. The first error. Leaves the mutex meanwhile. */
int dlock__give_back(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us, struct dlock_error *err);
/* Waits until an exclusive acquisition is over whose release is in other hands. Leaves the mutex meanwhile. */
int dlock__give_back_await(struct dlock__acquisition *acq, int64_t deadline_us, struct dlock_error *err);

/* A lingering acquisition that does not fit is released before its name is acquired, so that not even a try finds our
 * own grant in its way. The first gives the acquisition, which is RELEASING then, or NULL; the second sends n of one
 * client's, once, and ends them. Leaves the mutex meanwhile. */
struct dlock__acquisition *dlock__linger_clear_begin(struct dlock_lock *lock);
void dlock__linger_clear(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us);

#endif
