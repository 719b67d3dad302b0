/* Successive asynchronous calls on one handle, and what their callbacks reported. */
#ifndef CONFORMANCE_ASYNC_H
#define CONFORMANCE_ASYNC_H

#include "suite.h"

#include <stdatomic.h>

struct async {
    dlock_lock *lock;
    atomic_int calls; /* of `done`, in all */
    atomic_int code;  /* of the last */
    pthread_t thread; /* the thread that ran the last */
    atomic_int *turn; /* counts the callbacks of several handles, may be NULL */
    int at_turn;
};

/* Begin a call with its own callback. Fail if the callback runs inside the call. */
int async_acquire(struct async *async, int64_t timeout_ms);
int async_release(struct async *async);

/* Waits until `calls` callbacks have run in all. Fails if there are more, or if the last one's code is not `wanted`. */
#define ASYNC_FINISH(wanted, async, calls) async_finish(__FILE__, __LINE__, wanted, async, calls)
void async_finish(const char *file, int line, int wanted, struct async *async, int calls);

/* Options for a handle with DLOCK_OWNER_HANDLE. */
struct dlock_options async_options(int64_t lease_ms);

#endif
