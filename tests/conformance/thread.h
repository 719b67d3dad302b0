/* One call in another thread of the case, and its result. */
#ifndef CONFORMANCE_THREAD_H
#define CONFORMANCE_THREAD_H

#include "suite.h"

struct call {
    dlock_lock *lock;
    int64_t timeout_ms;
    int code;
    bool held; /* seen by that thread after a grant; release_here: before the release */
    uint64_t fence;
    int64_t at_us; /* when the call returned */
};

/* Functions for start_thread; the argument is a struct call. acquire_here releases what it was granted. */
void *acquire_here(void *call);
void *acquire_and_keep(void *call);
void *release_here(void *call);

/* Waits for the end of a thread whose wait on this lock has been cancelled. On a busy machine the wait may begin only
 * after the cancel: then it is cancelled again. */
void join_cancelled(dlock_lock *lock, pthread_t thread);

/* Runs one of these functions in a thread, from beginning to end. */
struct call in_thread(void *(*run)(void *), dlock_lock *lock, int64_t timeout_ms);

#endif
