/* Calls in other threads. */
#include "thread.h"

#include <time.h>

void *acquire_and_keep(void *arg) {
    struct call *call = arg;
    call->code = dlock_acquire(call->lock, call->timeout_ms, NULL);
    call->at_us = now_us();
    if (call->code != 0) return NULL; /* the handle may be freed */
    call->held = dlock_held(call->lock);
    call->fence = dlock_fence(call->lock);
    return NULL;
}

void *acquire_here(void *arg) {
    struct call *call = arg;
    acquire_and_keep(call);
    if (call->code == 0) EXPECT_CODE(0, dlock_release(call->lock, ERR));
    return NULL;
}

void *release_here(void *arg) {
    struct call *call = arg;
    call->held = dlock_held(call->lock);
    call->fence = dlock_fence(call->lock);
    call->code = dlock_release(call->lock, NULL);
    call->at_us = now_us();
    return NULL;
}

void join_cancelled(dlock_lock *lock, pthread_t thread) {
    struct timespec until;
    for (;;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_timedjoin_np(thread, NULL, &until) == 0) return;
        EXPECT_CODE(0, dlock_cancel(lock));
    }
}

struct call in_thread(void *(*run)(void *), dlock_lock *lock, int64_t timeout_ms) {
    struct call call = {.lock = lock, .timeout_ms = timeout_ms};
    pthread_join(start_thread(run, &call), NULL);
    return call;
}
