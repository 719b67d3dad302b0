/* A waiter that has a thread: that takes its turns, and in between sleeps; or spins for a moment, where the
 * owner before it may be done sooner than it would be asleep. */
#include "wait/wait.h"

#include <string.h>

/* Next after another thread of this process, which may be done in a moment. */
static bool next_in_turn(const struct dlock__waiter *waiter) {
    const struct dlock__name *name = waiter->lock->name;
    return name->head == waiter && !name->asking && dlock__name_exclusive(name);
}

/* True: something has happened. Leaves the mutex. */
static bool spin(struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    unsigned seen = atomic_load_explicit(&waiter->word, memory_order_relaxed);
    bool short_holds = waiter->lock->name->short_holds;
    dlock__leave(client);
    (short_holds ? dlock__spin_then_yield : dlock__spin)(&waiter->word, seen);
    dlock__enter(client);
    return atomic_load_explicit(&waiter->word, memory_order_relaxed) != seen;
}

static void sleep_until(struct dlock__waiter *waiter, int64_t until_us) {
    struct dlock_client *client = waiter->lock->client;
    unsigned asleep = atomic_load_explicit(&waiter->word, memory_order_relaxed) | 1;
    atomic_store_explicit(&waiter->word, asleep, memory_order_relaxed);
    dlock__leave(client);
    dlock__futex_wait(&waiter->word, asleep, UINT32_MAX, until_us);
    dlock__enter(client);
    if (atomic_load_explicit(&waiter->word, memory_order_relaxed) == asleep)
        atomic_store_explicit(&waiter->word, asleep - 1, memory_order_relaxed); /* nobody woke it */
}

void dlock__waiter_drive(struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    for (;;) {
        int64_t until_us = DLOCK__NEVER;
        enum dlock__turn turn = dlock__waiter_turn(waiter, &until_us);
        if (turn == DLOCK__TURN_OVER) return;
        if (turn == DLOCK__TURN_SLEEP) {
            if (next_in_turn(waiter) && spin(waiter)) continue;
            sleep_until(waiter, until_us);
        } else {
            struct dlock__claim *claim = waiter->lock->name->asking;
            if (claim->op->arg.flags & DLOCK_CLAIM_QUEUE && dlock__can(client, DLOCK_CAP_PENDING))
                claim->op->arg.flags |= DLOCK_CLAIM_AWAITED;
            dlock__op_send(&claim, 1);
            dlock__waiter_answered(waiter);
        }
    }
}

int dlock__acquire(struct dlock_lock *lock, bool try_only, int64_t deadline_us, struct dlock_error *err) {
    struct dlock__waiter waiter;
    struct dlock_error why;
    why.code = 0;
    memset(&waiter, 0, sizeof waiter);
    waiter.why = &why;
    waiter.has_thread = true;
    dlock__waiter_enter(&waiter, lock, try_only, deadline_us);
    dlock__waiter_drive(&waiter);
    if (waiter.result != 0 && err) *err = why;
    return waiter.result;
}
