/* dlock_acquire_async and dlock_release_async, with callbacks on the worker thread. */
#include "actor.h"
#include "async.h"

#include <stdio.h>
#include <string.h>

struct dlock_options async_options(int64_t lease_ms) {
    struct dlock_options options = options_with(lease_ms, 0);
    options.owner = DLOCK_OWNER_HANDLE;
    return options;
}

static _Thread_local bool calling; /* this thread is in the call that begins the operation */

static void note_end(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct async *async = arg;
    if (calling) FAIL("the callback ran inside of the call");
    if (lock != async->lock) FAIL("the callback got another handle");
    if (err && (err->code == 0 || !err->message[0] || strchr(err->message, '\n')))
        FAIL("the callback got an error without a code, or without a message of one line");
    async->thread = pthread_self();
    async->at_turn = async->turn ? atomic_fetch_add(async->turn, 1) : 0;
    atomic_store(&async->code, err ? err->code : 0);
    atomic_fetch_add(&async->calls, 1);
}

int async_acquire(struct async *async, int64_t timeout_ms) {
    calling = true;
    int code = dlock_acquire_async(async->lock, timeout_ms, note_end, async);
    calling = false;
    return code;
}

int async_release(struct async *async) {
    calling = true;
    int code = dlock_release_async(async->lock, note_end, async);
    calling = false;
    return code;
}

void async_finish(const char *file, int line, int wanted, struct async *async, int calls) {
    for (int64_t until = now_ms() + PATIENCE_MS; atomic_load(&async->calls) < calls; sleep_ms(1))
        if (now_ms() > until) fail_at(file, line, "the callback does not come");
    if (atomic_load(&async->calls) > calls) fail_at(file, line, "the callback came more than once");
    int code = atomic_load(&async->code);
    if (code != wanted)
        fail_at(file, line, "the callback got \"%s\" instead of \"%s\"", dlock_strerror(code), dlock_strerror(wanted));
}

void case_async_acquire_and_release(void) {
    struct dlock_options options = async_options(RENEWED_LEASE_MS);
    dlock_client *client = open_client();
    struct async async = {.lock = new_lock(client, suite.name, &options)};
    uint64_t fence = 0;
    for (int i = 0; i < 5; i++) {
        EXPECT_CODE(0, async_acquire(&async, i % 2 ? 0 : DLOCK_FOREVER));
        ASYNC_FINISH(0, &async, 2 * i + 1);
        EXPECT(!pthread_equal(async.thread, pthread_self()));
        EXPECT(dlock_held(async.lock) && dlock_fence(async.lock) > fence);
        fence = dlock_fence(async.lock);
        EXPECT_TAKEN(suite.name);
        if (i == 0) sleep_ms(RENEWED_LEASE_MS * 5 / 4); /* it is renewed as well */
        EXPECT(dlock_held(async.lock));
        EXPECT_CODE(0, async_release(&async));
        ASYNC_FINISH(0, &async, 2 * i + 2);
        EXPECT(!dlock_held(async.lock));
        EXPECT_FREE(suite.name);
    }
    /* Acquire with one kind of call, release with the other. */
    EXPECT_CODE(0, async_acquire(&async, PATIENCE_MS));
    ASYNC_FINISH(0, &async, 11);
    EXPECT_CODE(0, dlock_release(async.lock, ERR));
    EXPECT_CODE(0, dlock_acquire(async.lock, 0, ERR));
    EXPECT_CODE(0, async_release(&async));
    ASYNC_FINISH(0, &async, 12);
    dlock_free(async.lock);
    dlock_close(client);
    EXPECT(atomic_load(&async.calls) == 12);
}

void case_async_ends_of_waits(void) {
    struct dlock_options options = async_options(LONG_LEASE_MS);
    dlock_client *client = open_client(), *other = open_client();
    struct async async = {.lock = new_lock(client, suite.name, &options)};
    dlock_lock *held = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    EXPECT_CODE(0, async_acquire(&async, 0));
    ASYNC_FINISH(DLOCK_EBUSY, &async, 1);
    int64_t begun = now_ms();
    EXPECT_CODE(0, async_acquire(&async, MOMENT_MS));
    EXPECT_BETWEEN(0, MOMENT_MS - 1, now_ms() - begun); /* the call itself does not wait */
    ASYNC_FINISH(DLOCK_ETIMEDOUT, &async, 2);
    EXPECT_BETWEEN(MOMENT_MS - 1, MOMENT_MS + SLACK_MS, now_ms() - begun);
    EXPECT_CODE(0, async_acquire(&async, DLOCK_FOREVER));
    sleep_ms(200);
    EXPECT_CODE(0, dlock_cancel(async.lock));
    ASYNC_FINISH(DLOCK_ECANCELED, &async, 3);
    EXPECT_CODE(0, dlock_cancel(async.lock)); /* is not remembered */
    EXPECT_CODE(0, async_acquire(&async, PATIENCE_MS));
    sleep_ms(200);
    EXPECT(atomic_load(&async.calls) == 3 && !dlock_held(async.lock));
    EXPECT_CODE(0, dlock_release(held, ERR));
    ASYNC_FINISH(0, &async, 4);
    EXPECT(dlock_held(async.lock));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(held, 0, ERR));
    dlock_free(async.lock);
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
    dlock_free(held);
    dlock_close(client);
    dlock_close(other);
    EXPECT(atomic_load(&async.calls) == 4);
}

void case_async_refused(void) {
    struct dlock_options options = async_options(LONG_LEASE_MS), brief = async_options(LEASE_MS / 2);
    brief.flags = DLOCK_FIXED_LEASE;
    dlock_client *client = open_client(), *other = open_client();
    SCOPED_LOCK *by_thread = new_lock(client, suite.name, NULL), *held = new_lock(other, suite.name, &options);
    struct async async = {.lock = new_lock(client, suite.name, &options)};
    EXPECT_CODE(DLOCK_ENOTSUP, dlock_acquire_async(by_thread, 0, never_called, NULL));
    EXPECT_CODE(0, dlock_acquire(by_thread, 0, ERR));
    EXPECT_CODE(DLOCK_ENOTSUP, dlock_release_async(by_thread, never_called, NULL));
    EXPECT_CODE(0, dlock_release(by_thread, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_acquire_async(async.lock, 0, NULL, NULL));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release_async(async.lock, never_called, NULL));
    /* One at a time: neither while it is held nor while it is waited for. */
    EXPECT_CODE(0, dlock_acquire(async.lock, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_async(async.lock, DLOCK_FOREVER, never_called, NULL));
    EXPECT_CODE(0, dlock_release(async.lock, ERR));
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
    EXPECT_CODE(0, async_acquire(&async, DLOCK_FOREVER));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_async(async.lock, DLOCK_FOREVER, never_called, NULL));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release_async(async.lock, never_called, NULL));
    EXPECT_CODE(0, dlock_release(held, ERR));
    ASYNC_FINISH(0, &async, 1);
    EXPECT_CODE(0, async_release(&async));
    ASYNC_FINISH(0, &async, 2);
    /* A grant that has ended. */
    struct async ends = {.lock = new_lock(client, suite.name, &brief)};
    EXPECT_CODE(0, async_acquire(&ends, SLACK_MS));
    ASYNC_FINISH(0, &ends, 1);
    sleep_ms(LEASE_MS);
    EXPECT_CODE(0, async_release(&ends));
    ASYNC_FINISH(DLOCK_ELOST, &ends, 2);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release_async(ends.lock, never_called, NULL));
    dlock_close(client);
    EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire_async(async.lock, 0, never_called, NULL));
    dlock_free(ends.lock);
    dlock_free(async.lock);
    dlock_close(other);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

enum { MANY = 200 };

/* Waits on one name are served in the order in which they began. */
void case_async_many_on_one_name(void) {
    static struct async all[MANY];
    atomic_int turn = 0;
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *held = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    for (int i = 0; i < MANY; i++) {
        all[i].lock = new_lock(client, suite.name, &options);
        all[i].turn = &turn;
        EXPECT_CODE(0, async_acquire(&all[i], DLOCK_FOREVER));
    }
    sleep_ms(200);
    EXPECT(atomic_load(&turn) == 0);
    EXPECT_CODE(0, dlock_release(held, ERR));
    uint64_t fence = 0;
    for (int i = 0; i < MANY; i++) {
        ASYNC_FINISH(0, &all[i], 1);
        EXPECT_BETWEEN(i, i, all[i].at_turn);
        all[i].turn = NULL; /* count grants only */
        EXPECT(dlock_held(all[i].lock) && dlock_fence(all[i].lock) > fence);
        fence = dlock_fence(all[i].lock);
        EXPECT(i + 1 == MANY || !dlock_held(all[i + 1].lock));
        EXPECT_CODE(0, async_release(&all[i]));
        ASYNC_FINISH(0, &all[i], 2);
    }
    EXPECT_FREE(suite.name);
    for (int i = 0; i < MANY; i++) dlock_free(all[i].lock);
}

void case_async_many_names(void) {
    static struct async all[MANY], held[MANY];
    /* Without a queue all of them poll. In a session, all grants must outlive the crowd. */
    const int many = !(suite.caps & DLOCK_CAP_QUEUE) ? MANY / 8 : suite.caps & DLOCK_CAP_SESSION ? MANY / 2 : MANY;
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    for (int i = 0; i < many; i++) {
        held[i].lock = numbered_lock(other, i, &options);
        all[i].lock = numbered_lock(client, i, &options);
        EXPECT_CODE(0, async_acquire(&held[i], PATIENCE_MS));
    }
    for (int i = 0; i < many; i++) ASYNC_FINISH(0, &held[i], 1);
    for (int i = 0; i < many; i++) EXPECT_CODE(0, async_acquire(&all[i], PATIENCE_MS));
    sleep_ms(200);
    for (int i = 0; i < many; i++) EXPECT(atomic_load(&all[i].calls) == 0);
    for (int i = 0; i < many; i++) EXPECT_CODE(0, async_release(&held[i]));
    for (int i = 0; i < many; i++) ASYNC_FINISH(0, &all[i], 1);
    for (int i = 0; i < many; i++) ASYNC_FINISH(0, &held[i], 2);
    for (int i = 0; i < many; i++) EXPECT(dlock_held(all[i].lock));
    for (int i = 0; i < many; i++) EXPECT_CODE(0, async_release(&all[i]));
    for (int i = 0; i < many; i++) ASYNC_FINISH(0, &all[i], 2);
    for (int i = 0; i < many; i++) dlock_free(all[i].lock);
    for (int i = 0; i < many; i++) dlock_free(held[i].lock);
}

/* A release whose callback begins the next acquire. */
struct chain {
    atomic_int rounds;
    int wanted;
    _Atomic uint64_t fence;
};

static void chain_granted(dlock_lock *lock, const struct dlock_error *err, void *arg);

static void chain_released(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct chain *chain = arg;
    if (err) FAIL("a release in the chain failed: %s", err->message);
    if (atomic_fetch_add(&chain->rounds, 1) + 1 < chain->wanted)
        EXPECT_CODE(0, dlock_acquire_async(lock, PATIENCE_MS, chain_granted, chain));
}

static void chain_granted(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct chain *chain = arg;
    if (err) FAIL("an acquisition in the chain failed: %s", err->message);
    EXPECT(dlock_held(lock) && dlock_fence(lock) > atomic_load(&chain->fence));
    atomic_store(&chain->fence, dlock_fence(lock));
    EXPECT_CODE(0, dlock_release_async(lock, chain_released, chain));
}

void case_async_callbacks_go_on(void) {
    enum { CHAINS = 3 };
    struct chain chains[CHAINS] = {0};
    struct dlock_options options = async_options(0);
    SCOPED_CLIENT *client = open_client();
    dlock_lock *locks[CHAINS];
    for (int i = 0; i < CHAINS; i++) {
        chains[i].wanted = 60;
        locks[i] = new_lock(client, suite.name, &options);
        EXPECT_CODE(0, dlock_acquire_async(locks[i], PATIENCE_MS, chain_granted, &chains[i]));
    }
    for (int64_t until = now_ms() + PATIENCE_MS;
         atomic_load(&chains[0].rounds) < 60 || atomic_load(&chains[1].rounds) < 60 ||
         atomic_load(&chains[2].rounds) < 60;
         sleep_ms(2))
        if (now_ms() > until) FAIL("the chains stand still");
    EXPECT_FREE(suite.name);
    for (int i = 0; i < CHAINS; i++) dlock_free(locks[i]);
}

/* Readers in line are granted together. The quickest of some rounds counts, since the machine may be busy. */
void case_async_readers(void) {
    enum { N = 30, ROUNDS = 4 };
    static struct async all[N];
    struct dlock_options exclusive = async_options(LONG_LEASE_MS), shared = exclusive;
    shared.mode = DLOCK_SHARED;
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *held = new_lock(other, suite.name, &exclusive);
    for (int i = 0; i < N; i++) all[i].lock = new_lock(client, suite.name, &shared);
    int64_t best_ms = INT64_MAX;
    for (int calls = 0; calls < 2 * ROUNDS && best_ms > SLACK_MS; calls += 2) {
        EXPECT_CODE(0, dlock_acquire(held, PATIENCE_MS, ERR));
        for (int i = 0; i < N; i++) EXPECT_CODE(0, async_acquire(&all[i], PATIENCE_MS));
        sleep_ms(200);
        EXPECT(atomic_load(&all[0].calls) == calls);
        int64_t begun = now_ms();
        EXPECT_CODE(0, dlock_release(held, ERR));
        for (int i = 0; i < N; i++) ASYNC_FINISH(0, &all[i], calls + 1);
        if (now_ms() - begun < best_ms) best_ms = now_ms() - begun;
        for (int i = 0; i < N; i++) EXPECT(dlock_held(all[i].lock));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(held, 0, ERR));
        for (int i = 0; i < N; i++) EXPECT_CODE(0, async_release(&all[i]));
        for (int i = 0; i < N; i++) ASYNC_FINISH(0, &all[i], calls + 2);
    }
    EXPECT_BETWEEN(0, SLACK_MS, best_ms);
    EXPECT_FREE(suite.name);
    for (int i = 0; i < N; i++) dlock_free(all[i].lock);
}
