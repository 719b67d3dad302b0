/* Waits and releases without a thread of their own. One thread drives them all: it gives every record that has
 * something to do a turn, sends what they ask as batches, and sleeps until the next of them is due. While it is in a
 * request, the callback thread watches the deadlines of those who wait for it. */
#include "wait/wait.h"

#include <stdlib.h>

enum {
    RETRY_MIN_US = 10000, /* between tries of a release */
    RETRY_MAX_US = 300000,
    LATE_US = 50000 /* who has had no turn for so long after his deadline ends without one */
};

static struct dlock__async *async_of(struct dlock__waiter *waiter) {
    return (struct dlock__async *)waiter;
}

static struct dlock_client *client_of(const struct dlock__async *async) {
    return async->waiter.lock->client;
}

static struct dlock__async *async_of_timer(struct dlock__timer *timer) {
    return (struct dlock__async *)((char *)timer - offsetof(struct dlock__async, timer));
}

static void wake_up(struct dlock__async *async) {
    dlock__timer_disarm(&async->timer);
}

/* There is room: one place for each record. */
static void sleep_until(struct dlock__async *async, int64_t until_us) {
    dlock__timer_arm(&async->timer, &client_of(async)->async.sleepers, until_us);
}

/* ---- whose turn it is ---- */

void dlock__async_ready(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    if (async->waiter.ready || async->waiter.asking) return;
    int64_t now = dlock__now(client), deadline_us = async->waiter.deadline_us;
    sleep_until(async, dlock__after(deadline_us > now ? deadline_us : now, LATE_US));
    async->waiter.ready = true;
    async->next = NULL;
    async->prev = client->async.last;
    *(async->prev ? &async->prev->next : &client->async.ready) = async;
    client->async.last = async;
    pthread_cond_signal(&client->async.cond);
    if (client->async.busy) dlock__callback_watch(client, async->timer.at_us);
}

static void not_ready(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    if (!async->waiter.ready) return;
    *(async->prev ? &async->prev->next : &client->async.ready) = async->next;
    *(async->next ? &async->next->prev : &client->async.last) = async->prev;
    async->waiter.ready = false;
}

void dlock__async_over(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    wake_up(async);
    client->async.n--;
    dlock__callback_async(async);
}

static void wake(struct dlock__waiter *waiter) {
    dlock__async_ready(async_of(waiter));
}

/* Nobody was there to give it its turn by its deadline. */
static void end_late(struct dlock__async *async) {
    struct dlock__waiter *waiter = &async->waiter;
    const struct dlock__name *name = waiter->lock->name;
    not_ready(async);
    if (async->waiter.leaving) {
        waiter->why = malloc(sizeof *waiter->why);
        waiter->result = dlock__give_back_end(async->waiter.leaving, DLOCK_EUNAVAILABLE, NULL, waiter->why);
    } else {
        int64_t until_us;
        bool unasked = !waiter->done && name->head == waiter && !name->asking && !dlock__name_exclusive(name);
        if (async->waiter.asking || unasked || dlock__waiter_turn(waiter, &until_us) != DLOCK__TURN_OVER)
            dlock__waiter_leave(waiter);
    }
    dlock__async_over(async);
}

int64_t dlock__async_expire(struct dlock_client *client) {
    struct dlock__timer *timer;
    while ((timer = dlock__heap_first(&client->async.sleepers))) {
        struct dlock__async *first = async_of_timer(timer);
        if (timer->at_us > dlock__now(client)) return timer->at_us;
        if (first->waiter.asking || first->waiter.ready)
            end_late(first);
        else
            dlock__async_ready(first);
    }
    return DLOCK__NEVER;
}

/* ---- requests ---- */

struct requests {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    struct dlock__async *asyncs[DLOCK__BATCH]; /* of releases; who asks may be over before the answer is here */
    size_t n;
    enum dlock__op_kind kind;
};

static void add(struct requests *requests, struct dlock__acquisition *acq, struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    struct dlock_error *err = &client->async.errors[requests->n];
    err->code = 0;
    acq->op->err = err;
    acq->op->status = DLOCK__OP_RUNNING; /* as good as sent: whoever ends it now leaves its release to the janitor */
    acq->refs++;
    async->waiter.asking = true;
    requests->kind = acq->op->kind;
    requests->asyncs[requests->n] = async;
    requests->acqs[requests->n++] = acq;
}

static void acquire_turn(struct dlock__async *async, struct requests *requests) {
    int64_t until_us = DLOCK__NEVER;
    switch (dlock__waiter_turn(&async->waiter, &until_us)) {
    case DLOCK__TURN_OVER: dlock__async_over(async); return;
    case DLOCK__TURN_SLEEP: sleep_until(async, until_us); return;
    case DLOCK__TURN_LEAVE: return; /* never: it has no latch */
    case DLOCK__TURN_ASK: break;
    }
    add(requests, async->waiter.lock->name->asking, async);
    sleep_until(async, async->waiter.lock->name->asking->op->leave_us);
}

static void release_turn(struct dlock__async *async, struct requests *requests) {
    dlock__op_prepare(async->waiter.leaving, DLOCK__RELEASE, 0, async->waiter.deadline_us, NULL);
    add(requests, async->waiter.leaving, async);
}

/* Turns for everybody who is ready, until a request is full or the next is of another kind. */
static void gather(struct dlock_client *client, struct requests *requests) {
    requests->n = 0;
    while (client->async.ready && requests->n < DLOCK__BATCH) {
        struct dlock__async *async = client->async.ready;
        enum dlock__op_kind kind = async->waiter.leaving ? DLOCK__RELEASE : DLOCK__ACQUIRE;
        if (requests->n > 0 && kind != requests->kind) break;
        not_ready(async);
        wake_up(async);
        (async->waiter.leaving ? release_turn : acquire_turn)(async, requests);
    }
}

/* Keeps what the server said: the place where it stands is for the next request. */
static void remember(struct dlock__waiter *waiter, const struct dlock_error *err) {
    if (err->code == 0) return;
    if (!waiter->why) waiter->why = malloc(sizeof *waiter->why);
    if (waiter->why) *waiter->why = *err;
}

static void acquire_answered(struct dlock__acquisition *acq, const struct dlock_error *err) {
    struct dlock__name *name = acq->name;
    if (name->asking != acq) { /* whoever asked has left */
        if (dlock__acq_orphaned(acq)) pthread_cond_signal(&name->client->janitor.cond);
        return;
    }
    struct dlock__async *async = async_of(name->head);
    wake_up(async); /* from here on nobody but this thread ends it */
    remember(&async->waiter, err);
    dlock__waiter_answered(&async->waiter);
    async->waiter.asking = false;
    dlock__async_ready(async);
}

static void release_answered(struct dlock__async *async, const struct dlock_error *err) {
    struct dlock__acquisition *acq = async->waiter.leaving;
    struct dlock__waiter *waiter = &async->waiter;
    int rc = dlock__release_result(acq);
    waiter->pause_us = dlock__longer_pause(waiter->pause_us, RETRY_MIN_US, RETRY_MAX_US);
    int64_t again = dlock__now_us() + waiter->pause_us;
    async->waiter.asking = false;
    if (rc == DLOCK_EUNAVAILABLE && acq->op->status != DLOCK__OP_RUNNING && again < waiter->deadline_us) {
        sleep_until(async, again);
        return;
    }
    if (rc != 0) waiter->why = malloc(sizeof *waiter->why);
    waiter->result = dlock__give_back_end(acq, rc, err, waiter->why);
    dlock__async_over(async);
}

/* The mutex is about to be left for longer: somebody else has to look at the next deadline. */
static void watch(struct dlock_client *client) {
    int64_t first_us = dlock__heap_first_us(&client->async.sleepers);
    if (first_us != DLOCK__NEVER) dlock__callback_watch(client, first_us);
}

static void send(struct dlock_client *client, struct requests *requests) {
    watch(client);
    dlock__op_send(requests->acqs, requests->n);
    for (size_t i = 0; i < requests->n; i++) {
        struct dlock__acquisition *acq = requests->acqs[i];
        if (requests->kind == DLOCK__RELEASE)
            release_answered(requests->asyncs[i], &client->async.errors[i]);
        else
            acquire_answered(acq, &client->async.errors[i]);
        dlock__acq_put(acq);
    }
}

/* Only who hears that others ask may linger: not in a turn, which must not leave the mutex. */
static void listen_to_linger(struct dlock_client *client) {
    if (client->uri->linger_ms == 0 || !client->async.ready || client->listener.state == DLOCK__LISTENER_UP) return;
    if (dlock__now(client) >= client->listener.retry_at_us) dlock__listener_ensure(client, DLOCK__NEVER);
}

/* Releases what lingers under other terms than a wait that is ready has: that must not leave the mutex in its turn. */
static void clear_lingering(struct dlock_client *client) {
    for (struct dlock__async *async = client->async.ready; async;) {
        struct dlock__acquisition *acq = async->waiter.leaving ? NULL : dlock__linger_clear_begin(async->waiter.lock);
        if (acq) dlock__linger_clear(&acq, 1, async->waiter.deadline_us);
        async = acq ? client->async.ready : async->next; /* the mutex was left: from the beginning */
    }
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    struct requests requests;
    dlock__enter(client);
    while (!client->async.stop || client->async.n > 0) {
        client->async.busy = true;
        watch(client);
        listen_to_linger(client);
        if (client->uri->linger_ms > 0) clear_lingering(client);
        gather(client, &requests);
        if (requests.n > 0) send(client, &requests);
        client->async.busy = false;
        if (requests.n > 0) continue;
        int64_t until_us = dlock__async_expire(client);
        if (!client->async.ready && !(client->async.stop && client->async.n == 0))
            dlock__wait(client, &client->async.cond, until_us);
    }
    dlock__leave(client);
    return NULL;
}

static int start(struct dlock_client *client, struct dlock_error *err) {
    if (client->async.started) return 0;
    if (!client->async.errors) client->async.errors = calloc(DLOCK__BATCH, sizeof *client->async.errors);
    if (!client->async.errors) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for asynchronous waits");
    if (dlock__thread_start(&client->async.thread, run, client) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no thread for asynchronous waits; raise the limit (ulimit -u)");
    client->async.wake = wake;
    client->async.started = true;
    return 0;
}

void dlock__async_stop(struct dlock_client *client) {
    dlock__enter(client);
    client->async.stop = true;
    pthread_cond_signal(&client->async.cond);
    dlock__leave(client);
    if (client->async.started) pthread_join(client->async.thread, NULL);
    dlock__heap_free(&client->async.sleepers);
    free(client->async.errors);
}

/* ---- the API ---- */

/* A record of an operation that has begun. */
int dlock__async_make(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **out) {
    struct dlock_client *client = lock->client;
    int rc = start(client, NULL);
    if (rc != 0) return rc;
    struct dlock__async *async = NULL;
    if (dlock__heap_reserve(&client->async.sleepers, client->async.n + 1)) async = calloc(1, sizeof *async);
    if (!async) return DLOCK_ENOMEM;
    async->waiter.lock = lock;
    async->call = done;
    async->arg = arg;
    *out = async;
    return 0;
}

void dlock__async_begun(struct dlock__async *async) {
    client_of(async)->async.n++;
    async->waiter.lock->async++;
}
