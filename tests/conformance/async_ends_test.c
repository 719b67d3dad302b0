/* Asynchronous calls that are cut short by cancel, free and close at every moment. Each callback runs exactly once, and
 * no grant is left behind. */
#include "async.h"

#include <sched.h>

/* A cancel coincides with the grant: the callback says which came first, and afterwards another client gets the lock at
 * once. */
void case_async_cancel_races_with_the_grant(void) {
    enum { ROUNDS = 60 };
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, &options);
    struct async async = {.lock = new_lock(client, suite.name, &options)};
    int calls = 0, granted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        EXPECT_CODE(0, async_acquire(&async, DLOCK_FOREVER));
        sleep_ms(i % 7);
        EXPECT_CODE(0, dlock_release(held, ERR));
        if (i % 3 == 1) sched_yield();
        if (i % 3 == 2) sleep_ms(1);
        EXPECT_CODE(0, dlock_cancel(async.lock));
        calls++;
        for (int64_t until = now_ms() + PATIENCE_MS; atomic_load(&async.calls) < calls; sched_yield())
            if (now_ms() > until) FAIL("the callback does not come");
        int code = atomic_load(&async.code);
        if (code == 0) {
            granted++;
            EXPECT(dlock_held(async.lock));
            EXPECT_CODE(0, async_release(&async));
            ASYNC_FINISH(0, &async, ++calls);
        } else {
            EXPECT_CODE(DLOCK_ECANCELED, code);
            EXPECT(!dlock_held(async.lock));
        }
    }
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
    EXPECT(atomic_load(&async.calls) == calls && calls == ROUNDS + granted);
    dlock_free(async.lock);
}

/* The same for handles in line on one name, cancelled in any order while the lock goes from one to the next. */
void case_async_cancel_in_line(void) {
    enum { LINE = 30, ROUNDS = 6 };
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, &options);
    struct async line[LINE] = {0};
    for (int i = 0; i < LINE; i++) line[i].lock = new_lock(client, suite.name, &options);
    unsigned random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        for (int i = 0; i < LINE; i++) {
            atomic_store(&line[i].calls, 0);
            EXPECT_CODE(0, async_acquire(&line[i], DLOCK_FOREVER));
        }
        sleep_ms(round * 5);
        EXPECT_CODE(0, dlock_release(held, ERR));
        for (int i = 0; i < LINE; i++) {
            random = random * 1103515245 + 12345;
            EXPECT_CODE(0, dlock_cancel(line[random / 65536 % LINE].lock));
            dlock_lock *granted = line[i].lock;
            if (dlock_held(granted)) EXPECT_CODE(0, dlock_release(granted, ERR));
        }
        for (int i = 0; i < LINE; i++) EXPECT_CODE(0, dlock_cancel(line[i].lock));
        for (int i = 0; i < LINE; i++) {
            for (int64_t until = now_ms() + PATIENCE_MS; atomic_load(&line[i].calls) < 1; sleep_ms(1))
                if (now_ms() > until) FAIL("callback %d does not come", i);
            int code = atomic_load(&line[i].code);
            if (code != 0) EXPECT_CODE(DLOCK_ECANCELED, code);
            if (dlock_held(line[i].lock)) EXPECT_CODE(0, dlock_release(line[i].lock, ERR));
        }
        for (int i = 0; i < LINE; i++) EXPECT(!dlock_held(line[i].lock) && atomic_load(&line[i].calls) == 1);
    }
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
    for (int i = 0; i < LINE; i++) dlock_free(line[i].lock);
}

/* dlock_free ends the handle's wait, whose callback has run when it returns, and releases a grant that came first. */
void case_async_free_while_waiting(void) {
    enum { ROUNDS = 40 };
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, &options);
    for (int i = 0; i < ROUNDS; i++) {
        struct async async = {.lock = new_lock(client, suite.name, &options)};
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        EXPECT_CODE(0, async_acquire(&async, DLOCK_FOREVER));
        if (i % 4) sleep_ms(i % 5);
        if (i % 2) EXPECT_CODE(0, dlock_release(held, ERR)); /* so it may be granted right now */
        dlock_free(async.lock);
        EXPECT(atomic_load(&async.calls) == 1);
        int code = atomic_load(&async.code);
        if (code != 0 || i % 2 == 0) EXPECT_CODE(DLOCK_ECANCELED, code);
        if (i % 2 == 0) EXPECT_CODE(0, dlock_release(held, ERR));
        sleep_ms(i % 3); /* a second call would come now */
        EXPECT(atomic_load(&async.calls) == 1);
    }
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
}

/* A release in progress ends well even if its handle is freed or its client closed. */
void case_async_free_while_releasing(void) {
    enum { ROUNDS = 20 };
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *other = open_client();
    SCOPED_LOCK *next = new_lock(other, suite.name, &options);
    for (int i = 0; i < ROUNDS; i++) {
        dlock_client *client = open_client();
        struct async async = {.lock = new_lock(client, suite.name, &options)};
        EXPECT_CODE(0, dlock_acquire(async.lock, SLACK_MS, ERR));
        EXPECT_CODE(0, async_release(&async));
        if (i % 2) {
            dlock_free(async.lock);
            EXPECT(atomic_load(&async.calls) == 1);
            dlock_close(client);
        } else {
            dlock_close(client);
            EXPECT(atomic_load(&async.calls) == 1);
            dlock_free(async.lock);
        }
        int code = atomic_load(&async.code);
        if (code != 0) EXPECT_CODE(DLOCK_ECANCELED, code);
        EXPECT_CODE(0, dlock_acquire(next, SLACK_MS, ERR));
        EXPECT_CODE(0, dlock_release(next, ERR));
        EXPECT(atomic_load(&async.calls) == 1);
    }
}

void case_async_close_while_waiting(void) {
    enum { N = 50, ROUNDS = 4 };
    struct dlock_options options = async_options(LONG_LEASE_MS);
    SCOPED_CLIENT *holder = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, &options);
    for (int round = 0; round < ROUNDS; round++) {
        static struct async all[N];
        dlock_client *client = open_client();
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        for (int i = 0; i < N; i++) {
            all[i] = (struct async){.lock = new_lock(client, suite.name, &options)};
            EXPECT_CODE(0, async_acquire(&all[i], DLOCK_FOREVER));
        }
        sleep_ms(round * 40);
        if (round % 2) EXPECT_CODE(0, dlock_release(held, ERR)); /* one of them may be granted right now */
        int64_t begun = now_ms();
        dlock_close(client);
        EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
        int granted = 0;
        for (int i = 0; i < N; i++) {
            EXPECT(atomic_load(&all[i].calls) == 1);
            int code = atomic_load(&all[i].code);
            granted += code == 0;
            if (code != 0) EXPECT_CODE(DLOCK_ECANCELED, code);
            EXPECT(!dlock_held(all[i].lock));
            EXPECT_CODE(DLOCK_ECANCELED, async_acquire(&all[i], DLOCK_FOREVER));
        }
        EXPECT(granted <= round % 2);
        if (round % 2 == 0) EXPECT_CODE(0, dlock_release(held, ERR));
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR)); /* nothing was left held */
        EXPECT_CODE(0, dlock_release(held, ERR));
        for (int i = 0; i < N; i++) dlock_free(all[i].lock);
        for (int i = 0; i < N; i++) EXPECT(atomic_load(&all[i].calls) == 1);
    }
}

static void free_inside(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    if (err && err->code != DLOCK_ETIMEDOUT) FAIL("the callback got %s", err->message);
    dlock_free(lock);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The callback frees its own handle, after a grant and after a time-out. */
void case_async_callback_frees_its_handle(void) {
    struct dlock_options options = async_options(LONG_LEASE_MS);
    dlock_client *client = open_client(), *other = open_client();
    dlock_lock *held = new_lock(other, suite.name, &options);
    atomic_int ended = 0;
    for (int i = 0; i < 6; i++) {
        if (i % 2) EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        EXPECT_CODE(0, dlock_acquire_async(new_lock(client, suite.name, &options), i % 2 ? MOMENT_MS : PATIENCE_MS,
                                           free_inside, &ended));
        for (int64_t until = now_ms() + PATIENCE_MS; atomic_load(&ended) <= i; sleep_ms(1))
            if (now_ms() > until) FAIL("the callback does not come");
        if (i % 2) EXPECT_CODE(0, dlock_release(held, ERR));
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR)); /* a wait that timed out may still be leaving the queue */
        EXPECT_CODE(0, dlock_release(held, ERR));
    }
    dlock_free(held);
    dlock_close(client);
    dlock_close(other);
    EXPECT(atomic_load(&ended) == 6);
}
