/* What a client notes for its guardian. A client without a guardian pays one test of client->guard. */
#ifndef DLOCK_CORE_STATE_GUARD_H
#define DLOCK_CORE_STATE_GUARD_H

#include <dlock/dlock.h>

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct dlock__acquisition;
struct dlock__guard_table;

struct dlock__guard {
    struct dlock__guard_table *table;
    pid_t helper; /* process id of the helper; 0: none was started */
    bool adopted; /* the helper is our child, since this process adopted orphans when it was started */
    int end;      /* a pidfd of the helper, which the keeper polls; -1: none, or its end was noticed */
    bool busy;    /* a thread starts a helper, without the mutex */
    bool joinable;
    pthread_t thread;   /* replaces a helper that died */
    bool missing;       /* the last attempt to replace it failed */
    int64_t restart_us; /* the next attempt to replace it, at the earliest */
    uint32_t free;      /* the first unused entry; 0: none */
};

/* Enters an acquisition whose name, token, mode, limit and lease are set. Call it before the first request that may
 * grant it: after that the guardian releases it when this process dies. With the mutex. Returns 0 or ENOMEM. */
int dlock__guard_enter(struct dlock__acquisition *acq);

/* Updates the entry: mode, the backend's state, the longest lease that was asked for, valid-until. An acquisition that
 * has no holder, as it waits, is handed over or is being released, protects no work: its end is no reason to kill a
 * process group. With the mutex. */
void dlock__guard_note(struct dlock__acquisition *acq);

/* Its holder is done with it: no group of its own works under it any more. With the mutex. */
void dlock__guard_disown(struct dlock__acquisition *acq);

/* True if a process group works under any of the client's grants. With the mutex. */
bool dlock__guard_has_group(const struct dlock__guard_table *table);

/* Removes the entry: the release was answered, or the acquisition is no longer this process's to release. With the
 * mutex. */
void dlock__guard_leave(struct dlock__acquisition *acq);

/* Tells the helper to look at the table, because something in it has changed. */
void dlock__guard_call(struct dlock__guard_table *table);

#endif
