/* How one part of a client notifies another: wakes a waiter, sets the keeper's timer, queues a callback. Nothing here
 * waits, or calls the notified part. */
#include "state/client.h"

#include <unistd.h>

/* The keeper watches sleeps of at least this time. */
enum { LONG_US = 1000000 };

static void ring(int fd) {
    uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof one) < 0) {
        /* full: its thread will wake anyway */
    }
}

static void latch_wake(struct dlock_client *client, struct dlock__latch *latch) {
    unsigned asleep = atomic_load_explicit(&latch->word, memory_order_relaxed) & 1;
    atomic_fetch_add_explicit(&latch->word, 2 - asleep, memory_order_release);
    if (!asleep) return; /* the thread reads the word before it sleeps */
    if (client->listener.reader == latch) {
        ring(client->listener.bell);
        return;
    }
    dlock__wake_due(client);
    client->to_wake = &latch->word;
}

void dlock__waiter_wake(struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    struct dlock__latch *latch = waiter->latch;
    if (!latch) {
        client->engine.wake(waiter);
        return;
    }
    latch_wake(client, latch);
}

void dlock__sleep_begin(struct dlock_client *client, struct dlock__sleep *sleep, int64_t until_us) {
    if (until_us == DLOCK__NEVER || until_us - dlock__now(client) < LONG_US || !client->keeper.started) return;
    if (!dlock__heap_reserve(&client->timers.sleeps, client->timers.sleeps.n + 1)) return; /* the sleep may end late */
    dlock__timer_arm(&sleep->timer, &client->timers.sleeps, until_us);
    dlock__keeper_arm(client, until_us);
}

int64_t dlock__sleeps_end(struct dlock_client *client) {
    while (dlock__heap_first_us(&client->timers.sleeps) <= dlock__now(client)) {
        struct dlock__sleep *sleep = (struct dlock__sleep *)dlock__heap_first(&client->timers.sleeps);
        dlock__timer_disarm(&sleep->timer);
        if (sleep->latch)
            latch_wake(client, sleep->latch);
        else
            pthread_cond_broadcast(sleep->cond);
    }
    return dlock__heap_first_us(&client->timers.sleeps);
}

/* The thread may be waiting for a lock of another client, whose mutex is not held here; so this wakes it at once. */
void dlock__parts_cancel(struct dlock_client *client, const struct dlock_lock *lock) {
    for (struct dlock__part *part = client->parts; part; part = part->next) {
        if (lock && part->lock != lock) continue;
        atomic_store(&part->latch->cancelled, true);
        atomic_fetch_add(&part->latch->word, 2);
        dlock__futex_wake(&part->latch->word, UINT32_MAX);
    }
}

void dlock__keeper_arm(struct dlock_client *client, int64_t at_us) {
    if (at_us >= client->keeper.armed_us) return;
    client->keeper.armed_us = at_us;
    dlock__timer_set(client->keeper.timer, at_us);
}

void dlock__keeper_kick(struct dlock_client *client) {
    ring(client->keeper.control);
}

void dlock__callback_arm(struct dlock_client *client, int64_t at_us) {
    if (at_us >= client->callback.armed_us) return;
    client->callback.armed_us = at_us;
    if (client->callback.asleep) dlock__timer_set(client->callback.timer, at_us);
}

static void push(struct dlock_client *client, struct dlock__event *event) {
    event->next = NULL;
    event->prev = client->callback.last;
    *(event->prev ? &event->prev->next : &client->callback.first) = event;
    client->callback.last = event;
    event->queued = true;
    uint64_t one = 1;
    if (client->callback.manual && write(client->callback.fd, &one, sizeof one) < 0) {
        /* full: the descriptor is readable already */
    }
    dlock__callback_wake(client);
    if (dlock__event_lock(event)->freed) pthread_cond_broadcast(&client->changed); /* dlock_free waits for it */
}

/* True if the handle has an on_lost to call for this loss. */
static bool wants_word(const struct dlock__hold *hold) {
    return hold->count > 0 && hold->handle && hold->handle->on_lost && !hold->handle->freed;
}

void dlock__callback_lost(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    if (client->callback.stop) return;
    for (struct dlock__hold *hold = acq->hold; hold; hold = hold->next) {
        if (!wants_word(hold)) continue;
        hold->event.kind = DLOCK__EVENT_LOST;
        acq->refs++;
        acq->untold++;
        push(client, &hold->event);
    }
}

void dlock__callback_wanted(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    if (client->callback.stop || !dlock__acq_held(acq)) return;
    for (struct dlock__hold *hold = acq->hold; hold; hold = hold->next) {
        const struct dlock_lock *lock = hold->handle;
        if (hold->count == 0 || !lock || !lock->watch || lock->freed || lock->watch->event.queued) continue;
        lock->watch->event.kind = DLOCK__EVENT_WANTED;
        push(client, &lock->watch->event);
    }
}

void dlock__callback_async(struct dlock__async *async) {
    async->event.kind = DLOCK__EVENT_ASYNC;
    push(async->waiter.lock->client, &async->event);
}
