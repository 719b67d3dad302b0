/* Shared by the files of the API. Functions expect the client's mutex unless they say otherwise. */
#ifndef DLOCK_CORE_API_API_H
#define DLOCK_CORE_API_API_H

#include "guardian/guardian.h"
#include "threads/threads.h"

/* ---- lock.c ---- */

/* 0: the caller has to acquire; 1: re-entered; or why neither is possible. */
int dlock__try_reenter(struct dlock_lock *lock, struct dlock_error *err);
/* Takes one acquisition back. 1: it was the last, and *claim has to be released at the server; 0: done. */
int dlock__release_one(struct dlock_lock *lock, struct dlock__claim **claim, struct dlock_error *err);
/* The caller's grant, held or lost; NULL: none. Of several permits the youngest, of this handle if there is one. */
struct dlock__claim *dlock__owned(struct dlock_lock *lock);
/* EOWNER. */
int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err);
/* Copies what the caller knows of the struct; what this library does not know has to be zero. No mutex needed. */
int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err);

#endif
