/* The client's own threads. */
#ifndef DLOCK_CORE_THREADS_THREADS_H
#define DLOCK_CORE_THREADS_THREADS_H

#include "wait/wait.h"

/* ---- keeper.c ---- */

/* Starts it if need be. 0 or ENOMEM. */
int dlock__keeper_start(struct dlock_client *client, struct dlock_error *err);
/* Ends the thread and closes its connection. Without the mutex. */
void dlock__keeper_stop(struct dlock_client *client);

/* ---- callback.c ---- */

/* Starts the thread if need be. 0 or ENOMEM. */
int dlock__callback_start(struct dlock_client *client, struct dlock_error *err);
/* Makes the client a MANUAL one. Without the mutex. */
int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err);
/* The lost acquisition was released as often as it was acquired. An on_lost that does so is told, though it runs. */
void dlock__callback_released(struct dlock__acquisition *acq);
/* Forgets queued on_losts of the handle, calls the ends of its asynchronous operations, and waits for a running
 * callback, unless called from it. Leaves the mutex meanwhile. */
void dlock__callback_forget(struct dlock_lock *lock);
/* Calls what is queued for asynchronous operations, and ends the thread. Without the mutex. */
void dlock__callback_stop(struct dlock_client *client);

/* ---- engine.c ---- */

/* Starts a thread if there is an orphan and none for it. The keeper's. */
void dlock__engine_look(struct dlock_client *client);
/* Ends the threads; orphans that are left are released once, by this one, until deadline_us. Without the mutex. */
void dlock__engine_stop(struct dlock_client *client, int64_t deadline_us);

/* A record of an asynchronous operation that begins; a thread for it is started if need be. 0 or ENOMEM. */
int dlock__async_make(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **out);
/* It begins, with a turn, or is over already, and its callback is queued. */
void dlock__async_begin(struct dlock__async *async, bool over);
/* Gives a turn to waits that are due, and ends those whose deadline passed while their request, or another one, hangs.
 * Returns when to look again, at the earliest. */
int64_t dlock__async_expire(struct dlock_client *client);

#endif
