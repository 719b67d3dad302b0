/* One call in another thread of the case, with what it brought. */
#ifndef CONFORMANCE_THREAD_H
#define CONFORMANCE_THREAD_H

#include "suite.h"

struct call {
    dlock_lock *lock;
    int64_t timeout_ms;
    int code;
    bool held; /* as that thread sees it after a grant; release_here: before it */
    uint64_t fence;
    int64_t at_us; /* when the call returned */
};

/* For start_thread; the argument is a struct call. acquire_here gives back what it was granted. */
void *acquire_here(void *call);
void *acquire_and_keep(void *call);
void *release_here(void *call);

/* Waits for the end of a thread whose wait on this lock has been cancelled. One that was too late to wait by then, on a
 * busy machine, is cancelled again. */
void join_cancelled(dlock_lock *lock, pthread_t thread);

/* One of these, from beginning to end. */
struct call in_thread(void *(*run)(void *), dlock_lock *lock, int64_t timeout_ms);

#endif
