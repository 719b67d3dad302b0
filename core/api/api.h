/* Shared by the files of the API. Functions expect the client's mutex held unless their comment says otherwise. */
#ifndef DLOCK_CORE_API_API_H
#define DLOCK_CORE_API_API_H

#include "guardian/guardian.h"
#include "threads/threads.h"

/* A call that a backend holds up is left alone so long after its deadline. */
enum { DLOCK__LATE_US = 100000 };

/* ---- lock.c ---- */

/* Tries to acquire without a wait. 0: the caller has to acquire; 1: re-entered, or took a lingering grant; or an
 * error. */
int dlock__try_reenter(struct dlock_lock *lock, struct dlock_error *err);
/* Takes back one acquire of `grant`, which is the caller's; NULL: EOWNER. 0: done. 1: it was the last, and *acq has to be
 * released at the server. 2: it was the last of a writer that continues as a reader, and *acq is being downgraded. */
int dlock__release_one(struct dlock_lock *lock, struct dlock__acquisition *grant, struct dlock__acquisition **acq,
                       struct dlock_error *err);
/* The caller's grant, held or lost; NULL: none. Of several permits the youngest, preferably one of this handle. */
struct dlock__acquisition *dlock__owned(struct dlock_lock *lock);
/* A permit of the caller that was granted through this handle at since_us or later, and is lost; NULL: none. */
struct dlock__acquisition *dlock__lost_permit(struct dlock_lock *lock, int64_t since_us);
/* Waits until an acquisition is no longer DOWNGRADING. 0, also if it was released in between; ELOST, ECANCELED,
 * EUNAVAILABLE. Leaves the mutex in between. */
int dlock__downgrade_await(struct dlock__acquisition *acq, struct dlock_error *err);
/* 0, or EINVAL: this grant's ordinal is the largest, so no greater fence can be made for a next owner in this
 * process. */
int dlock__fence_can_grow(const struct dlock__acquisition *acq, struct dlock_error *err);
/* Checks a lease from lock options, or of a call. Returns 0 or EINVAL. Needs no mutex. */
int dlock__lease_check(const struct dlock_client *client, int64_t lease_ms, struct dlock_error *err);
/* Returns ENOTSUP: the backend lacks these capabilities. `what` follows its name in the message, such as "has no permits".
 * Needs no mutex. */
int dlock__not_supported(const struct dlock_client *client, uint32_t caps, const char *what, struct dlock_error *err);
/* Returns EOWNER, with a message. */
int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err);
/* Copies the options, as much as the caller's version of the struct has. Members that this library does not know must
 * be zero. Needs no mutex. */
int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err);

/* ---- multi.c: calls on several handles. None of these expects the mutex held ---- */

/* Returns EINVAL or EFORKED, if there is a NULL in the list, or a handle of before a fork. */
int dlock__locks_check(dlock_lock *const *locks, size_t n, struct dlock_error *err);
/* Begins the call on one handle. From here on dlock_cancel and dlock_free of the handle, and dlock_close of its client,
 * cancel the latch, and the latter two wait for dlock__part_end. */
int dlock__part_begin(struct dlock__part *part, struct dlock_lock *lock, struct dlock__latch *latch,
                      struct dlock_error *err);
void dlock__part_end(struct dlock__part *part);

/* ---- renew.c ---- */

/* Restarts the lease of the caller's grant, unless it is fixed, and waits until no renewal of it is on the way and no
 * downgrade is awaited. Returns 0; ELOST, EOWNER or ECANCELED, if it is no longer the caller's; or another code, and it
 * is still held. Leaves the mutex in between. */
int dlock__renew_to_export(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock_error *err);

#endif
