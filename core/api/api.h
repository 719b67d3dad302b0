/* Shared by the files of the API. Functions expect the client's mutex unless they say otherwise. */
#ifndef DLOCK_CORE_API_API_H
#define DLOCK_CORE_API_API_H

#include "guardian/guardian.h"
#include "threads/threads.h"

/* ---- lock.c ---- */

/* 0: the caller has to acquire; 1: re-entered; or why neither is possible. */
int dlock__try_reenter(struct dlock_lock *lock, struct dlock_error *err);
/* Takes one acquisition back. 1: it was the last, and *acq has to be released at the server; 2: it was the last of a
 * writer that goes on as a reader, and *acq is being downgraded; 0: done. */
int dlock__release_one(struct dlock_lock *lock, struct dlock__acquisition **acq, struct dlock_error *err);
/* The caller's grant, held or lost; NULL: none. Of several permits the youngest, of this handle if there is one. */
struct dlock__acquisition *dlock__owned(struct dlock_lock *lock);
/* Waits until an acquisition is DOWNGRADING no more: 0, also if it was released; ELOST, ECANCELED, EUNAVAILABLE. Leaves
 * the mutex. */
int dlock__downgrade_await(struct dlock__acquisition *acq, struct dlock_error *err);
/* 0, or EINVAL: the fence of this grant has no room to grow in this process, as the next owner's has to. */
int dlock__fence_can_grow(const struct dlock__acquisition *acq, struct dlock_error *err);
/* The lease of lock options, or of a call: 0, or EINVAL. No mutex needed. */
int dlock__lease_check(const struct dlock_client *client, int64_t lease_ms, struct dlock_error *err);
/* EOWNER. */
int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err);
/* Copies what the caller knows of the struct; what this library does not know has to be zero. No mutex needed. */
int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err);

#endif
