/* Notes of a client for its guardian. All of it costs a client without one a look at client->guard. */
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
    pid_t helper; /* 0: none was started */
    bool adopted; /* … and it is our child: this process adopted orphans when it was started */
    bool busy;    /* somebody starts a helper, without the mutex */
    bool joinable;
    pthread_t thread;   /* replaces one that died */
    bool missing;       /* the last attempt to replace it failed */
    int64_t restart_us; /* not before */
    uint32_t free;      /* the first unused entry */
};

/* Notes an acquisition whose name, token, mode, limit and lease are set: before the first request that may grant it is
 * sent. From here on the guardian releases it when this process dies. With the mutex. 0 or ENOMEM. */
int dlock__guard_enter(struct dlock__acquisition *acq);

/* Notes what has changed of it: its mode, the backend's state, the longest lease that was asked for, its valid-until.
 * What is being given back, or is held by nobody, protects no work any more: its end is no reason to kill the process
 * group. With the mutex. */
void dlock__guard_note(struct dlock__acquisition *acq);

/* Forgets the acquisition: its release was answered, or it is no longer this process's to release. With the mutex. */
void dlock__guard_leave(struct dlock__acquisition *acq);

/* Something in the table has changed that the helper has to look at. */
void dlock__guard_call(struct dlock__guard_table *table);

#endif
