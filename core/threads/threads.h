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
/* Starts it if the keeper has something for the log. The keeper's. */
void dlock__callback_look(struct dlock_client *client);
/* Makes the client a MANUAL one. Without the mutex. */
int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err);
/* The lost acquisition has been released as often as it was acquired. An on_lost that does so is told, though it runs.
 * */
void dlock__callback_released(struct dlock__acquisition *acq);
/* Forgets queued on_losts of the handle, calls the ends of its asynchronous operations, and waits for a running
 * callback, unless called from it. Leaves the mutex meanwhile. */
void dlock__callback_forget(struct dlock_lock *lock);
/* Calls what is queued for asynchronous operations, and ends the thread. Without the mutex. */
void dlock__callback_stop(struct dlock_client *client);

/* ---- janitor.c ---- */

/* Starts the thread if there is something for it to do. The keeper's. */
void dlock__janitor_start(struct dlock_client *client);

/* Ends the thread; what is left is released once, until deadline_us. Without the mutex. */
void dlock__janitor_stop(struct dlock_client *client, int64_t deadline_us);

#endif
