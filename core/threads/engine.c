/* The engine sends the requests that no thread waits for: the turns of asynchronous waits, asynchronous releases, and
 * the releases of orphans, which have no owner any more but the server may keep (waits given up without an answer,
 * releases without an answer, grants that came too late). Waits and releases have a turn when something has happened to
 * them or their time has come; the ready ones share one request. Orphans have no turns, only a time.
 *
 * A request blocks its thread, and a wait must not wait for an orphan whose server is silent. So there is one
 * thread as long as there are only waits or only orphans, and a second one, equal to the first, as soon as there are
 * both. Of each kind one request is on the way. Meanwhile the callback thread watches the deadlines of waits. */
#include "threads/threads.h"

#include <stdlib.h>

enum {
    LATE_US = 50000,       /* a wait that got no turn for this long after its deadline ends without one */
    REPEAT_MIN_US = 50000, /* between releases of an acquire that may come late */
    MEMORY_US = 1000000,   /* next try after there was no memory for a request */
    THREAD_US = 1000000    /* … or no thread for orphans */
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

/* Sets the time of the next turn. Cannot fail: the heap has a place for each record. */
static void sleep_until(struct dlock__async *async, int64_t until_us) {
    dlock__timer_arm(&async->timer, &client_of(async)->engine.sleepers, until_us);
}

/* ---- whose turn it is ---- */

static void make_ready(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    if (async->waiter.ready || async->waiter.asking) return;
    int64_t now = dlock__now(client), deadline_us = async->waiter.deadline_us;
    sleep_until(async, dlock__after(deadline_us > now ? deadline_us : now, LATE_US));
    async->waiter.ready = true;
    async->next = NULL;
    async->prev = client->engine.last;
    *(async->prev ? &async->prev->next : &client->engine.ready) = async;
    client->engine.last = async;
    pthread_cond_signal(&client->engine.cond);
    if (client->engine.asking || client->engine.releasing) dlock__callback_arm(client, async->timer.at_us);
}

static void not_ready(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    if (!async->waiter.ready) return;
    *(async->prev ? &async->prev->next : &client->engine.ready) = async->next;
    *(async->next ? &async->next->prev : &client->engine.last) = async->prev;
    async->waiter.ready = false;
}

static void end(struct dlock__async *async) {
    struct dlock_client *client = client_of(async);
    dlock__timer_disarm(&async->timer);
    client->engine.n--;
    if (client->closed) pthread_cond_broadcast(&client->changed); /* dlock_close waits for the last one */
    dlock__callback_async(async);
}

static void wake(struct dlock__waiter *waiter) {
    struct dlock__async *async = async_of(waiter);
    struct dlock_client *client = client_of(async);
    make_ready(async);
    if (waiter->result != DLOCK_ECANCELED || (waiter->asking && !waiter->lock->name->asking->op->asked)) return;
    sleep_until(async, dlock__after(dlock__bounded(client, waiter->deadline_us), LATE_US)); /* a request may hang */
    dlock__callback_arm(client, async->timer.at_us);
}

/* Ends an asynchronous release with `rc`; `err` is the server's message, or NULL. */
static void end_release(struct dlock__async *async, int rc, const struct dlock_error *err) {
    struct dlock__waiter *waiter = &async->waiter;
    if (rc != 0) waiter->why = malloc(sizeof *waiter->why);
    waiter->result = dlock__give_back_end(waiter->leaving, rc, err, waiter->why);
    end(async);
}

/* Ends a wait that got no turn by its deadline, or a release whose request hangs. */
static void end_late(struct dlock__async *async) {
    struct dlock__waiter *waiter = &async->waiter;
    const struct dlock__name *name = waiter->lock->name;
    int64_t until_us;
    not_ready(async);
    if (waiter->leaving) {
        end_release(async, DLOCK_EUNAVAILABLE, NULL);
        return;
    }
    bool unasked = !waiter->done && name->head == waiter && !name->asking && !dlock__name_exclusive(name);
    if (waiter->asking || unasked || dlock__waiter_turn(waiter, &until_us) != DLOCK__TURN_OVER)
        dlock__waiter_expire(waiter);
    end(async);
}

int64_t dlock__async_expire(struct dlock_client *client) {
    struct dlock__timer *timer;
    while ((timer = dlock__heap_first(&client->engine.sleepers))) {
        struct dlock__async *first = async_of_timer(timer);
        if (timer->at_us > dlock__now(client)) return timer->at_us;
        if (first->waiter.asking || first->waiter.ready)
            end_late(first);
        else
            make_ready(first);
    }
    return DLOCK__NEVER;
}

/* ---- requests ---- */

struct requests {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    struct dlock__async *asyncs[DLOCK__BATCH]; /* of releases; an asker may be over before the answer */
    size_t n;
    enum dlock__op_kind kind;
};

static void add(struct requests *requests, struct dlock__acquisition *acq, struct dlock__async *async) {
    struct dlock_error *err = &acq->name->client->engine.errors[requests->n];
    err->code = 0;
    acq->op->err = err;
    acq->op->status = DLOCK__OP_RUNNING; /* treated as sent: if its wait ends now it becomes an orphan */
    acq->op->asked = true;
    acq->refs++;
    async->waiter.asking = true;
    requests->kind = acq->op->kind;
    requests->asyncs[requests->n] = async;
    requests->acqs[requests->n++] = acq;
}

static void acquire_turn(struct dlock__async *async, struct requests *requests) {
    int64_t until_us = DLOCK__NEVER;
    switch (dlock__waiter_turn(&async->waiter, &until_us)) {
    case DLOCK__TURN_OVER: end(async); return;
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
    sleep_until(async, dlock__after(async->waiter.deadline_us, LATE_US));
}

/* Has the callback thread watch the next deadline. To be called before the mutex is left for a request. */
static void watch(struct dlock_client *client) {
    dlock__callback_arm(client, dlock__heap_first_us(&client->engine.sleepers));
}

/* Releases the grant that lingers under other terms than the wait has, whether for `linger` or only until its releaser
 * has the mutex again. Leaves the mutex, so it cannot be part of a turn. */
static void clear_lingering(const struct dlock__async *async) {
    struct dlock__acquisition *acq = dlock__linger_clear_begin(async->waiter.lock);
    watch(client_of(async));
    dlock__linger_clear(&acq, 1, async->waiter.deadline_us);
}

/* Takes the turns of those that are ready, until a request is full, or the next turn is of another kind or has to wait
 * for a release of what lingers. */
static void gather(struct dlock_client *client, struct requests *requests) {
    requests->n = 0;
    while (client->engine.ready && requests->n < DLOCK__BATCH) {
        struct dlock__async *async = client->engine.ready;
        enum dlock__op_kind kind = async->waiter.leaving ? DLOCK__RELEASE : DLOCK__ACQUIRE;
        bool misfit = kind == DLOCK__ACQUIRE && dlock__linger_misfit(async->waiter.lock);
        if (requests->n > 0 && (misfit || kind != requests->kind)) break;
        if (misfit) {
            clear_lingering(async);
            continue;
        }
        not_ready(async);
        dlock__timer_disarm(&async->timer);
        (async->waiter.leaving ? release_turn : acquire_turn)(async, requests);
    }
}

/* Copies the server's message to the waiter, since its buffer is reused for the next request. */
static void remember(struct dlock__waiter *waiter, const struct dlock_error *err) {
    if (err->code == 0) return;
    if (!waiter->why) waiter->why = malloc(sizeof *waiter->why);
    if (waiter->why) *waiter->why = *err;
}

static void acquire_answered(struct dlock__acquisition *acq, const struct dlock_error *err) {
    struct dlock__name *name = acq->name;
    if (name->asking != acq) return; /* its waiter has left */
    struct dlock__async *async = async_of(name->head);
    dlock__timer_disarm(&async->timer); /* from here on only this thread ends it */
    remember(&async->waiter, err);
    dlock__waiter_answered(&async->waiter);
    async->waiter.asking = false;
    make_ready(async);
}

static void release_answered(struct dlock__async *async, const struct dlock_error *err) {
    struct dlock__waiter *waiter = &async->waiter;
    int64_t again_us = dlock__release_again_at(waiter->leaving, waiter->deadline_us);
    waiter->asking = false;
    if (again_us != DLOCK__NEVER)
        sleep_until(async, again_us);
    else
        end_release(async, waiter->leaving->op->result, err);
}

static void send(struct dlock_client *client, struct requests *requests) {
    watch(client);
    dlock__op_send(requests->acqs, requests->n);
    for (size_t i = 0; i < requests->n; i++) {
        struct dlock__acquisition *acq = requests->acqs[i];
        acq->op->asked = false;
        if (dlock__acq_orphaned(acq)) /* its wait or release has ended: now it can be released */
            dlock__orphan(acq);
        else if (requests->kind == DLOCK__RELEASE)
            release_answered(requests->asyncs[i], &client->engine.errors[i]);
        else
            acquire_answered(acq, &client->engine.errors[i]);
        dlock__acq_put(acq);
    }
}

/* Brings up the listener before the first request: a grant may linger only while wake-ups report other clients' requests,
 * and where a session has to be opened for each claim, only a wake-up can bring an answer that takes long, without
 * delaying others. Leaves the mutex, so it cannot be part of a turn. */
static void listen_early(struct dlock_client *client) {
    if (client->uri->linger_ms == 0 && !dlock__can(client, DLOCK_CAP_SESSION | DLOCK_CAP_WAKE)) return;
    watch(client);
    if (client->listener.state != DLOCK__LISTENER_UP && dlock__now(client) >= client->listener.retry_at_us)
        dlock__listener_ensure(client, DLOCK__NEVER);
}

/* Takes turns and sends one request. False: none is ready, or the other thread is in such a request. */
static bool take_turns(struct dlock_client *client) {
    struct requests requests;
    if (client->engine.asking) return false;
    if (!client->engine.ready) dlock__async_expire(client);
    if (!client->engine.ready) return false;
    client->engine.asking = true;
    listen_early(client);
    gather(client, &requests);
    if (requests.n > 0) send(client, &requests);
    client->engine.asking = false;
    return true;
}

/* ---- orphans ---- */

static void drop(struct dlock__acquisition *acq) {
    dlock__orphan_gone(acq);
    pthread_cond_broadcast(&acq->name->client->changed); /* for dlock__give_back_await */
    dlock__acq_put(acq);
}

/* Collects the orphans that are due by until_us, for one request. Orphans that died with their connection are dropped.
 * Orphans in a request are skipped; they are due again when it is answered. */
static size_t gather_orphans(struct dlock_client *client, struct dlock__acquisition **acqs, int64_t until_us) {
    struct dlock__engine *engine = &client->engine;
    struct dlock__timer *first;
    size_t n = 0;
    while (n < DLOCK__BATCH) {
        struct dlock__acquisition *acq = engine->bare;
        if (acq && dlock__slot_attach(acq)) {
            engine->bare = acq->next;
        } else if ((first = dlock__heap_first(&engine->orphans)) && first->at_us <= until_us) {
            acq = dlock__timer_acq(first);
            dlock__timer_disarm(first);
        } else {
            break;
        }
        if (dlock__acq_in_request(acq)) continue;
        if (dlock__acq_died_with_connection(acq))
            drop(acq);
        else
            acqs[n++] = acq;
    }
    return n;
}

/* Decides about an orphan after an answer, or none. A lost acquire may still be executed later, so its token is
 * released repeatedly, until a release is answered that was sent when the acquire could no longer come, or until the
 * lease that it could have got is over. An orphan that was queued is released until the server has acknowledged. */
static void orphan_answered(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    int rc = acq->op->result;
    int64_t now = dlock__now(client), lease = dlock__us(acq->lease_ms);
    bool answered = rc == 0 || rc == DLOCK_ELOST || rc == DLOCK_EINVAL || rc == DLOCK_ENOTSUP;
    bool lease_over = now >= dlock__acq_late_end_us(acq);
    bool lives_on = acq->unanswered.queued || dlock__can(client, DLOCK_CAP_SESSION); /* whatever its lease says */
    if (answered ? !dlock__acq_may_come_late(acq, acq->op->sent_us)
                 : lease_over && !lives_on && !dlock__acq_in_request(acq))
        drop(acq);
    else if (answered)
        dlock__orphan_at(acq, now + (lease / 4 > REPEAT_MIN_US ? lease / 4 : REPEAT_MIN_US));
    else
        dlock__orphan_at(acq, dlock__release_retry_at(acq));
}

/* Releases the orphans that are due, in one request. False: none is due, or the other thread is in such a request. */
static bool release_orphans(struct dlock_client *client) {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    if (client->engine.releasing) return false;
    size_t n = gather_orphans(client, acqs, dlock__now_us());
    if (n == 0) return false;
    client->engine.releasing = true;
    watch(client);
    dlock__release_send(acqs, n, DLOCK__NEVER, NULL);
    client->engine.releasing = false;
    for (size_t i = 0; i < n; i++) orphan_answered(acqs[i]);
    return true;
}

/* ---- the threads ---- */

static void *run(void *arg) {
    struct dlock_client *client = arg;
    const struct dlock__engine *engine = &client->engine;
    dlock__enter(client);
    while (!engine->stop) {
        if (take_turns(client) || release_orphans(client)) {
            pthread_cond_signal(&client->engine.cond); /* the other one may have waited for this one */
            continue;
        }
        int64_t turn_us = engine->asking ? DLOCK__NEVER : dlock__heap_first_us(&engine->sleepers);
        int64_t orphan_us = engine->releasing ? DLOCK__NEVER : dlock__heap_first_us(&engine->orphans);
        int64_t memory_us = engine->bare ? dlock__now(client) + MEMORY_US : DLOCK__NEVER;
        int64_t until_us = turn_us < orphan_us ? turn_us : orphan_us;
        dlock__wait(client, &client->engine.cond, until_us < memory_us ? until_us : memory_us);
    }
    dlock__leave(client);
    return NULL;
}

static bool has_orphans(const struct dlock__engine *engine) {
    return engine->releasing || engine->orphans.n > 0 || engine->bare;
}

/* Starts threads until there are n. Returns 0 if there is at least one, else ENOMEM. */
static int start(struct dlock_client *client, unsigned n) {
    struct dlock__engine *engine = &client->engine;
    while (engine->n_threads < n && dlock__thread_start(&engine->threads[engine->n_threads], run, client) == 0)
        engine->n_threads++;
    return engine->n_threads > 0 ? 0 : DLOCK_ENOMEM;
}

void dlock__engine_look(struct dlock_client *client) {
    if (!has_orphans(&client->engine) || client->closed) return;
    if (start(client, 1 + (client->engine.n > 0)) != 0)
        dlock__keeper_arm(client, dlock__after(dlock__now(client), THREAD_US)); /* it looks again */
}

void dlock__engine_stop(struct dlock_client *client) {
    struct dlock__engine *engine = &client->engine;
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    bool reachable = true;
    dlock__enter(client);
    engine->stop = true;
    pthread_cond_broadcast(&engine->cond);
    dlock__leave(client);
    for (unsigned i = 0; i < engine->n_threads; i++) pthread_join(engine->threads[i], NULL);
    dlock__enter(client);
    engine->n_threads = 0;
    for (size_t n; (n = gather_orphans(client, acqs, DLOCK__NEVER)) > 0;) {
        if (reachable && dlock__now(client) < client->closed) {
            dlock__release_send(acqs, n, client->closed, NULL);
            reachable = acqs[0]->op->result != DLOCK_EUNAVAILABLE;
        }
        for (size_t i = 0; i < n; i++) drop(acqs[i]);
    }
    for (struct dlock__acquisition *acq; (acq = engine->bare); drop(acq)) engine->bare = acq->next; /* no memory */
    dlock__leave(client);
}

/* ---- the API ---- */

int dlock__async_make(struct dlock_lock *lock, dlock_callback done, void *arg, struct dlock__async **out) {
    struct dlock__engine *engine = &lock->client->engine;
    if (!engine->errors) engine->errors = calloc(DLOCK__BATCH, sizeof *engine->errors);
    engine->wake = wake;
    if (!engine->errors || start(lock->client, 1 + has_orphans(engine)) != 0 ||
        !dlock__heap_reserve(&engine->sleepers, engine->n + 1))
        return DLOCK_ENOMEM;
    struct dlock__async *async = calloc(1, sizeof *async);
    if (!async) return DLOCK_ENOMEM;
    async->waiter.lock = lock;
    async->call = done;
    async->arg = arg;
    *out = async;
    return 0;
}

void dlock__async_begin(struct dlock__async *async, bool over) {
    client_of(async)->engine.n++;
    async->waiter.lock->async++;
    (over ? end : make_ready)(async);
}
