/* The client's own threads. */
#ifndef DLOCK_CORE_THREADS_THREADS_H
#define DLOCK_CORE_THREADS_THREADS_H

#include "wait/wait.h"

/* ---- keeper.c ---- */

/* Starts the thread if need be. Returns 0 or ENOMEM. */
int dlock__keeper_start(struct dlock_client *client, struct dlock_error *err);
/* Ends the thread and closes its descriptors. Without the mutex. */
void dlock__keeper_stop(struct dlock_client *client);

/* ---- callback.c ---- */

/* Starts the thread if need be. Returns 0 or ENOMEM. */
int dlock__callback_start(struct dlock_client *client, struct dlock_error *err);
/* Makes the client a MANUAL one. Returns 0 or ENOMEM. Without the mutex. */
int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err);
/* To be called when a hold was released as often as it was acquired: its on_lost, if it is queued, is not called, and if
 * it runs in this thread it has reported the loss. The caller has a reference to the acquisition. */
void dlock__callback_released(struct dlock__hold *hold);
/* Waits while an on_lost of a released hold runs in another thread. Leaves the mutex in between. */
void dlock__callback_await(struct dlock_client *client, int64_t deadline_us);
/* The lost grant, if this thread runs the handle's on_lost, which has not released it; else NULL. */
const struct dlock__acquisition *dlock__callback_reports(const struct dlock_lock *lock);
/* Drops queued on_losts of the handle, calls the callbacks of its finished asynchronous operations, and waits for a
 * running callback, unless called from within it. Leaves the mutex in between. */
void dlock__callback_forget(struct dlock_lock *lock);
/* Calls what is queued for asynchronous operations, and ends the thread. Without the mutex. */
void dlock__callback_stop(struct dlock_client *client);

/* ---- engine.c ---- */

/* Called by the keeper: starts a thread if there is an orphan and no thread for it. */
void dlock__engine_look(struct dlock_client *client);
/* Ends the threads. The calling thread releases the orphans that are left, each once, until client->closed. Without the
 * mutex. */
void dlock__engine_stop(struct dlock_client *client);

/* Makes the record of an asynchronous operation, and starts a thread for it if need be. Returns 0 or ENOMEM. */
int dlock__async_make(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **out);
/* Begins the operation: gives it a turn, or queues its callback if it is over already. */
void dlock__async_begin(struct dlock__async *async, bool over);
/* Gives a turn to waits that are due, and ends those whose deadline passed while their request, or another one, hangs.
 * Returns the time to call it again. */
int64_t dlock__async_expire(struct dlock_client *client);

#endif
