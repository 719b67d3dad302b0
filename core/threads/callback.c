/* The worker thread that calls the application, including its log. The keeper never does, since it has leases to renew.
 * For the same reason this thread watches the ends of grants with an on_lost: a loss is reported in time even while the
 * keeper is in a renewal that hangs. */
#include "threads/threads.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void unqueue(struct dlock_client *client, struct dlock__event *event) {
    *(event->prev ? &event->prev->next : &client->callback.first) = event->next;
    *(event->next ? &event->next->prev : &client->callback.last) = event->prev;
    event->queued = false;
}

/* Removes and returns the first event, of one handle or (NULL) of any. */
static struct dlock__event *pop(struct dlock_client *client, const struct dlock_lock *lock) {
    struct dlock__event *event = client->callback.first;
    while (event && lock && dlock__event_lock(event) != lock) event = event->next;
    if (event) unqueue(client, event);
    return event;
}

static void count_told(struct dlock__acquisition *acq) {
    acq->untold--;
    if (acq->untold == 0 && dlock__acq_orphaned(acq)) dlock__orphan(acq);
}

/* Drops the event of a loss or a wish that its handle need not be told of. */
static void not_told(struct dlock__event *event) {
    if (event->kind == DLOCK__EVENT_WANTED) return;
    struct dlock__acquisition *acq = dlock__event_hold(event)->acq;
    count_told(acq);
    dlock__acq_put(acq);
}

/* True if this thread runs the on_lost of the loss that is being reported. */
static bool reports(const struct dlock_client *client) {
    return client->callback.loses && client->callback.runner == dlock__thread_id();
}

/* An on_lost that releases its own grant may want the lock again, and would wait for the lost grant: that is released at
 * the server although the callback still runs. */
void dlock__callback_released(struct dlock__hold *hold) {
    struct dlock_client *client = hold->acq->name->client;
    if (hold->event.queued) {
        unqueue(client, &hold->event);
        not_told(&hold->event);
    } else if (client->callback.loses == hold && reports(client)) {
        client->callback.loses = NULL;
        count_told(hold->acq);
    }
}

void dlock__callback_await(struct dlock_client *client, int64_t deadline_us) {
    const struct dlock__hold *const *loses = (const struct dlock__hold *const *)&client->callback.loses;
    while (*loses && (*loses)->count == 0 && !reports(client) && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
}

const struct dlock__acquisition *dlock__callback_reports(const struct dlock_lock *lock) {
    const struct dlock_client *client = lock->client;
    return client->callback.running == lock && reports(client) ? client->callback.loses->acq : NULL;
}

/* The first leaves the mutex for a call of the application, the second enters it afterwards. */
static void leave_for_call(struct dlock_client *client) {
    if (client->callback.calls++ == 0) client->callback.begun_us = dlock__now(client);
    dlock__leave(client);
}

static void enter_after_call(struct dlock_client *client) {
    dlock__enter(client);
    if (--client->callback.calls == 0) client->callback.spent_us += dlock__now(client) - client->callback.begun_us;
}

static void call_lost(struct dlock_client *client, struct dlock__event *event) {
    struct dlock__hold *hold = dlock__event_hold(event);
    struct dlock__acquisition *acq = hold->acq;
    struct dlock_lock *lock = hold->handle;
    dlock_callback on_lost = lock->on_lost;
    void *arg = lock->on_lost_arg;
    struct dlock_error err;
    dlock__loss_fail(acq, "", &err);
    client->callback.loses = hold;
    leave_for_call(client);
    on_lost(lock, &err, arg);
    enter_after_call(client);
    if (client->callback.loses) count_told(acq);
    client->callback.loses = NULL;
    dlock__acq_put(acq);
}

/* The grant may have been released since the event was queued. */
static void call_wanted(struct dlock_client *client, struct dlock__event *event) {
    const struct dlock__watch *watch = dlock__event_watch(event);
    struct dlock_lock *lock = watch->lock;
    const struct dlock__acquisition *acq = dlock__name_exclusive(lock->name);
    const struct dlock__hold *hold = lock->holds;
    while (hold && (hold->acq != acq || hold->count == 0)) hold = hold->other;
    if (!hold || !acq->wanted) return;
    leave_for_call(client);
    watch->on_wanted(lock, NULL, watch->arg);
    enter_after_call(client);
}

static void call_async(struct dlock_client *client, struct dlock__event *event) {
    struct dlock__async *async = dlock__event_async(event);
    struct dlock__waiter *waiter = &async->waiter;
    struct dlock_lock *lock = waiter->lock;
    struct dlock_error plain, *err = NULL;
    if (waiter->result != 0) {
        err = waiter->why ? waiter->why : &plain;
        if (!waiter->why || err->code != waiter->result)
            dlock_fail(err, waiter->result, "lock \"%s\": %s", dlock__name_shown(lock->name),
                       dlock_strerror(waiter->result));
    }
    lock->async--;
    leave_for_call(client);
    async->call(lock, err, async->arg);
    free(waiter->why);
    free(async);
    enter_after_call(client);
}

static void call(struct dlock_client *client, struct dlock__event *event) {
    struct dlock_lock *lock = dlock__event_lock(event);
    client->callback.running = lock;
    client->callback.runner = dlock__thread_id();
    switch (event->kind) {
    case DLOCK__EVENT_LOST: call_lost(client, event); break;
    case DLOCK__EVENT_ASYNC: call_async(client, event); break;
    case DLOCK__EVENT_WANTED: call_wanted(client, event); break;
    }
    client->callback.running = NULL;
    pthread_cond_broadcast(&client->changed);
    if (lock->over) dlock__lock_destroy(lock);
}

static bool pass_line_on(struct dlock_client *client) {
    struct dlock__line *line = client->callback.lines;
    if (!line) return false;
    client->callback.lines = line->next;
    client->callback.n_lines--;
    leave_for_call(client);
    if (line->event.kind)
        client->event(&line->event, client->event_arg);
    else
        client->log(line->level, line->text, client->log_arg);
    free(line);
    enter_after_call(client);
    return true;
}

/* Sleeps until then or until dlock__callback_wake(). A timer advances while the machine is suspended, which a condition
 * variable's clock does not. */
static void sleep_until(struct dlock_client *client, int64_t at_us) {
    struct pollfd timer = {.fd = client->callback.timer, .events = POLLIN};
    dlock__timer_set(timer.fd, at_us);
    client->callback.asleep = true;
    dlock__leave(client);
    poll(&timer, 1, -1);
    dlock__enter(client);
    client->callback.asleep = false;
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    dlock__enter(client);
    while (!client->callback.stop && !dlock__forked(client)) { /* a child that was forked in a callback ends here */
        if (dlock__now_us() >= client->callback.armed_us) client->callback.armed_us = dlock__expire_all(client);
        if (pass_line_on(client)) continue;
        int64_t until_us =
            client->engine.asking || client->engine.releasing ? dlock__async_expire(client) : DLOCK__NEVER;
        if (client->callback.first && !client->callback.manual && !client->callback.running) {
            call(client, pop(client, NULL));
            continue;
        }
        if (until_us < client->callback.armed_us) client->callback.armed_us = until_us;
        sleep_until(client, client->callback.armed_us);
    }
    dlock__leave(client);
    return NULL;
}

/* ---- MANUAL ---- */

int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err) {
    client->callback.manual = true;
    client->callback.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->callback.fd < 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no descriptor left for the client; raise the limit (ulimit -n)");
    return 0;
}

int dlock_client_fd(dlock_client *client) {
    if (!client) return DLOCK_EINVAL;
    if (dlock__forked(client)) return DLOCK_EFORKED;
    return client->callback.manual ? client->callback.fd : DLOCK_ENOTSUP;
}

int dlock_client_dispatch(dlock_client *client) {
    int rc = dlock__client_begin(client, NULL);
    if (rc != 0) return rc;
    if (!client->callback.manual) return dlock__client_end(client, DLOCK_ENOTSUP);
    /* One callback at a time. A dispatch inside a callback returns, so that the callback can continue. */
    while (client->callback.running && client->callback.runner != dlock__thread_id() && !client->closed)
        dlock__wait(client, &client->changed, DLOCK__NEVER);
    if (client->callback.running) return dlock__client_end(client, 0);
    int calls = 0;
    size_t left = 0;
    uint64_t count;
    if (read(client->callback.fd, &count, sizeof count) < 0) {
        /* nothing was queued */
    }
    /* Events that these calls queue wait for the next dispatch: a callback that queues another one would never end. */
    for (const struct dlock__event *event = client->callback.first; event; event = event->next) left++;
    for (; client->callback.first && left > 0 && !dlock__forked(client); left--) {
        call(client, pop(client, NULL));
        calls++;
    }
    return dlock__client_end(client, dlock__forked(client) ? DLOCK_EFORKED : calls);
}

/* ---- for other threads ---- */

int dlock__callback_start(struct dlock_client *client, struct dlock_error *err) {
    if (client->callback.started) return 0;
    client->callback.armed_us = DLOCK__NEVER;
    if (client->callback.timer < 0) client->callback.timer = dlock__timer_open();
    if (client->callback.timer < 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no descriptor left for callbacks; raise the limit (ulimit -n)");
    if (dlock__thread_start(&client->callback.thread, run, client) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no thread for callbacks; raise the limit (ulimit -u, ulimit -v)");
    client->callback.started = true;
    return 0;
}

static bool runs_elsewhere(const struct dlock_lock *lock) {
    const struct dlock_client *client = lock->client;
    return client->callback.running == lock && client->callback.runner != dlock__thread_id();
}

void dlock__callback_forget(struct dlock_lock *lock) {
    struct dlock_client *client = lock->client;
    while (!dlock__forked(client)) {
        struct dlock__event *event = pop(client, lock);
        if (event && event->kind != DLOCK__EVENT_ASYNC)
            not_told(event);
        else if (event)
            call_async(client, event);
        else if (lock->async > 0 || runs_elsewhere(lock))
            dlock__wait(client, &client->changed, DLOCK__NEVER);
        else
            return;
    }
}

void dlock__callback_stop(struct dlock_client *client) {
    dlock__enter(client);
    client->callback.stop = true;
    dlock__callback_wake(client);
    dlock__leave(client);
    if (client->callback.started) pthread_join(client->callback.thread, NULL);
    dlock__enter(client);
    client->callback.started = false;
    struct dlock__event *event;
    while (pass_line_on(client)) {
    }
    while (!dlock__forked(client) && (event = pop(client, NULL))) {
        if (event->kind != DLOCK__EVENT_ASYNC)
            not_told(event);
        else
            call(client, event);
    }
    dlock__leave(client);
    if (client->callback.fd >= 0) close(client->callback.fd);
    if (client->callback.timer >= 0) close(client->callback.timer);
}
