/* dlock_cancel and dlock_client_stop. */
#include "actor.h"
#include "thread.h"

void case_cancel_ends_waits(void) {
    enum { N = 3 };
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *lock = new_lock(client, suite.name, NULL);
    SCOPED_LOCK *other = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    pthread_t threads[N + 1];
    struct call waits[N + 1];
    for (int i = 0; i <= N; i++) {
        waits[i] = (struct call){.lock = i < N ? lock : other, .timeout_ms = DLOCK_FOREVER};
        threads[i] = start_thread(acquire_here, &waits[i]);
    }
    sleep_ms(300);
    int64_t begun = now_ms();
    EXPECT_CODE(0, dlock_cancel(lock));
    for (int i = 0; i < N; i++) {
        join_cancelled(lock, threads[i]);
        EXPECT_CODE(DLOCK_ECANCELED, waits[i].code);
    }
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    /* The wait on the other handle continues, and gets its turn. */
    EXPECT(dlock_held(held));
    EXPECT_CODE(0, dlock_release(held, ERR));
    pthread_join(threads[N], NULL);
    EXPECT_CODE(0, waits[N].code);
}

void case_cancel_is_not_remembered(void) {
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_cancel(lock));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_cancel(lock)); /* what is held stays so */
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    EXPECT_CODE(0, dlock_cancel(lock));
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(lock, MOMENT_MS, ERR));
    EXPECT_BETWEEN(MOMENT_MS - 1, MOMENT_MS + SLACK_MS, now_ms() - begun);
    EXPECT_CODE(0, dlock_release(held, ERR));
}

/* A cancel coincides with a release: in either order, no client holds the lock without knowing it. */
void case_cancel_races_with_the_grant(void) {
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_LOCK *held = new_lock(holder, suite.name, &options), *lock = new_lock(client, suite.name, &options);
    for (int i = 0; i < 40; i++) {
        EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
        struct call wait = {.lock = lock, .timeout_ms = DLOCK_FOREVER};
        pthread_t thread = start_thread(acquire_here, &wait);
        sleep_ms(2 + i % 5);
        EXPECT_CODE(0, dlock_release(held, ERR));
        EXPECT_CODE(0, dlock_cancel(lock));
        pthread_join(thread, NULL);
        if (wait.code != 0) EXPECT_CODE(DLOCK_ECANCELED, wait.code);
    }
    EXPECT_CODE(0, dlock_acquire(held, SLACK_MS, ERR));
}

void case_stop_ends_waits(void) {
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "kept");
    struct dlock_options options = options_with(LEASE_MS, 0);
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *lock = new_lock(client, suite.name, NULL);
    SCOPED_LOCK *kept = new_lock(client, name, &options);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(kept, SLACK_MS, ERR));
    struct call wait = {.lock = lock, .timeout_ms = DLOCK_FOREVER}, late = wait;
    pthread_t thread = start_thread(acquire_here, &wait);
    sleep_ms(300);
    EXPECT_CODE(0, dlock_client_stop(client));
    run_threads(acquire_here, &late, 0, 1); /* as one that had not begun to wait */
    pthread_join(thread, NULL);
    EXPECT_CODE(DLOCK_ECANCELED, wait.code);
    EXPECT_CODE(DLOCK_ECANCELED, late.code);
    EXPECT_CODE(0, dlock_release(held, ERR));
    EXPECT_FREE(suite.name);
    EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire(lock, 0, ERR));
    sleep_ms(2 * LEASE_MS);
    EXPECT(dlock_held(kept));
    EXPECT_TAKEN(name);
    EXPECT_CODE(0, dlock_release(kept, ERR));
    EXPECT_FREE(name);
}
