/* DLOCK_CLIENT_MANUAL: callbacks run in dlock_client_dispatch, for programs with an event loop. */
#include "actor.h"
#include "async.h"

#include <poll.h>
#include <stdio.h>

static dlock_client *open_manual(void) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = DLOCK_CLIENT_MANUAL;
    dlock_client *client = NULL;
    EXPECT_CODE(0, dlock_open(suite.uri, &options, &client, ERR));
    return client;
}

/* A poll loop, until `wanted` callbacks have run in all. Fails if there are none for too long. */
static void loop_until(dlock_client *client, atomic_int *calls, int wanted) {
    while (atomic_load(calls) < wanted) {
        struct pollfd readable = {dlock_client_fd(client), POLLIN, 0};
        EXPECT(readable.fd >= 0);
        if (poll(&readable, 1, PATIENCE_MS) != 1) FAIL("nothing to dispatch: %d of %d", atomic_load(calls), wanted);
        EXPECT(dlock_client_dispatch(client) >= 0);
    }
}

static bool is_readable(dlock_client *client, int within_ms) {
    struct pollfd readable = {dlock_client_fd(client), POLLIN, 0};
    return poll(&readable, 1, within_ms) == 1;
}

void case_manual_dispatch(void) {
    struct dlock_options options = async_options(RENEWED_LEASE_MS);
    SCOPED_CLIENT *client = open_manual();
    struct async async = {.lock = new_lock(client, suite.name, &options)};
    int fd = dlock_client_fd(client);
    EXPECT(fd >= 0);
    EXPECT(dlock_client_dispatch(client) == 0);
    EXPECT(!is_readable(client, 0));
    for (int i = 0; i < 3; i++) {
        EXPECT_CODE(0, async_acquire(&async, PATIENCE_MS));
        EXPECT(is_readable(client, PATIENCE_MS));
        sleep_ms(100);
        EXPECT(atomic_load(&async.calls) == 2 * i); /* not before the dispatch */
        EXPECT(dlock_client_dispatch(client) == 1);
        ASYNC_FINISH(0, &async, 2 * i + 1);
        EXPECT(pthread_equal(async.thread, pthread_self()));
        EXPECT(dlock_client_dispatch(client) == 0);
        EXPECT(!is_readable(client, 0) && dlock_client_fd(client) == fd);
        EXPECT(dlock_held(async.lock));
        /* Renewal does not depend on the event loop. */
        if (i == 0) sleep_ms(RENEWED_LEASE_MS * 5 / 4);
        EXPECT(dlock_held(async.lock));
        EXPECT_CODE(0, async_release(&async));
        loop_until(client, &async.calls, 2 * i + 2);
        ASYNC_FINISH(0, &async, 2 * i + 2);
        EXPECT(pthread_equal(async.thread, pthread_self()));
        EXPECT_FREE(suite.name);
    }
    dlock_free(async.lock);
}

/* Calls that wait need no dispatch, and run no callbacks themselves. */
void case_manual_calls_that_wait(void) {
    SCOPED_CLIENT *client = open_manual(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *held = new_lock(other, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(lock, MOMENT_MS, ERR));
    EXPECT_CODE(0, dlock_release(held, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT(dlock_client_dispatch(client) == 0 && !is_readable(client, 0));
}

struct loss {
    atomic_int calls;
    pthread_t thread;
};

static void note_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct loss *loss = arg;
    EXPECT(err && err->code == DLOCK_ELOST && !dlock_held(lock));
    loss->thread = pthread_self();
    atomic_fetch_add(&loss->calls, 1);
}

/* A loss shows at once in dlock_held; on_lost waits for the dispatch. */
void case_manual_on_lost(void) {
    struct loss loss = {0};
    struct dlock_options options = async_options(LEASE_MS / 2);
    options.flags = DLOCK_FIXED_LEASE;
    options.on_lost = note_loss;
    options.on_lost_arg = &loss;
    dlock_client *client = open_manual();
    dlock_lock *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT(is_readable(client, LEASE_MS + SLACK_MS));
    EXPECT(!dlock_held(lock) && atomic_load(&loss.calls) == 0);
    EXPECT(dlock_client_dispatch(client) == 1);
    EXPECT(atomic_load(&loss.calls) == 1 && pthread_equal(loss.thread, pthread_self()));
    EXPECT(!is_readable(client, 0));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_close(client);
    EXPECT(atomic_load(&loss.calls) == 1);
}

/* Hundreds of waits in one loop, some of which are cancelled or time out. */
void case_manual_loop(void) {
    enum { N = 120 };
    static struct async all[N];
    atomic_int turn = 0;
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *client = open_manual(), *other = open_client();
    SCOPED_LOCK *held = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    for (int i = 0; i < N; i++) {
        all[i] = (struct async){.lock = new_lock(client, suite.name, &options), .turn = &turn};
        EXPECT_CODE(0, async_acquire(&all[i], i % 3 == 1 ? 300 : DLOCK_FOREVER));
    }
    for (int i = 2; i < N; i += 3) EXPECT_CODE(0, dlock_cancel(all[i].lock));
    loop_until(client, &turn, N / 3 * 2);
    EXPECT(atomic_load(&turn) == N / 3 * 2);
    for (int i = 0; i < N; i++) {
        if (i % 3) ASYNC_FINISH(i % 3 == 1 ? DLOCK_ETIMEDOUT : DLOCK_ECANCELED, &all[i], 1);
        if (i % 3 == 0) EXPECT(atomic_load(&all[i].calls) == 0);
    }
    EXPECT_CODE(0, dlock_release(held, ERR));
    for (int i = 0; i < N; i += 3) {
        loop_until(client, &all[i].calls, 1);
        ASYNC_FINISH(0, &all[i], 1);
        EXPECT(dlock_held(all[i].lock));
        EXPECT_CODE(0, async_release(&all[i]));
        loop_until(client, &all[i].calls, 2);
    }
    EXPECT_FREE(suite.name);
    for (int i = 0; i < N; i++) dlock_free(all[i].lock);
}

/* A pending callback is called when its handle or its client ends, in the thread that ends it, exactly once. */
void case_manual_ends(void) {
    struct dlock_options options = async_options(LONG_LEASE_MS);
    dlock_client *client = open_manual(), *other = open_client();
    SCOPED_LOCK *held = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    struct async freed = {.lock = new_lock(client, suite.name, &options)}, closed = freed, done = freed;
    closed.lock = new_lock(client, suite.name, &options);
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "other");
    done.lock = new_lock(client, name, &options);
    EXPECT_CODE(0, async_acquire(&freed, DLOCK_FOREVER));
    EXPECT_CODE(0, async_acquire(&closed, DLOCK_FOREVER));
    EXPECT_CODE(0, async_acquire(&done, DLOCK_FOREVER));
    EXPECT(is_readable(client, PATIENCE_MS)); /* the other name's callback, which is not dispatched */
    int64_t begun = now_ms();
    dlock_free(freed.lock);
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    EXPECT(atomic_load(&freed.calls) == 1 && atomic_load(&closed.calls) == 0);
    EXPECT_CODE(DLOCK_ECANCELED, atomic_load(&freed.code));
    EXPECT(pthread_equal(freed.thread, pthread_self()));
    dlock_close(client);
    EXPECT_BETWEEN(0, SLACK_MS * 2, now_ms() - begun);
    EXPECT(atomic_load(&closed.calls) == 1 && atomic_load(&done.calls) == 1 && atomic_load(&freed.calls) == 1);
    EXPECT_CODE(DLOCK_ECANCELED, atomic_load(&closed.code));
    EXPECT(!dlock_held(done.lock));
    EXPECT_FREE(name);
    dlock_free(closed.lock);
    dlock_free(done.lock);
    EXPECT(atomic_load(&closed.calls) == 1 && atomic_load(&done.calls) == 1);
    dlock_close(other);
}
