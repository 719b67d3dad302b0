/* Stopping: a client that acquires nothing any more, and closes that do not wait for what is not held. */
#include "fixture.h"

/* ---- dlock_client_stop ------------------------------------------------------------------------------------------- */

TEST(a_stop_ends_the_waits) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n"), *handle = lock_new_with(client, "m", &by_handle);
    struct actor *one = actor_new(), *several = actor_new();
    struct done done = {0};
    struct all all = {.locks = {lock_new(client, "a"), lock_new(client, "n")}, .n = 2, .timeout_ms = -1};
    taken("n");
    taken("m");
    begin_acquire(one, lock, -1);
    begin_async(handle, -1, &done);
    begin_call(several, acquire_all, &all);
    assert_int_equal(dlock_client_stop(client), 0);
    fake_settle();
    assert_int_equal(result(one), DLOCK_ECANCELED);
    assert_int_equal(result(several), DLOCK_ECANCELED);
    assert_done(&done, DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n") + fake_waiters("m"), 0);
    assert_string_equal(fake_holder("a").token, "");
}

TEST(nothing_is_acquired_after_a_stop) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n"), *handle = lock_new_with(client, "n", &by_handle);
    struct all all = {.locks = {lock}, .n = 1, .timeout_ms = 5000};
    struct done done = {0};
    struct dlock_error err = {0, ""};
    assert_int_equal(dlock_client_stop(client), 0);
    assert_int_equal(dlock_client_stop(client), 0);
    fake_log_clear();
    assert_int_equal(dlock_acquire(lock, 5000, &err), DLOCK_ECANCELED);
    assert_non_null(strstr(err.message, "stopped"));
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ECANCELED);
    assert_int_equal(dlock_acquire_async(handle, 0, note_done, &done), DLOCK_ECANCELED);
    assert_int_equal(acquire_all(&all), DLOCK_ECANCELED);
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(done.calls, 0);
    lock_end(handle);
    lock_end(lock);
    client_end(client);
    assert_int_equal(dlock_client_stop(NULL), DLOCK_EINVAL);
}

/* Other work with the client continues. */
TEST(what_is_held_at_a_stop_stays_held) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = lock_new(client, "n"), *once_more = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_client_stop(client), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_acquire(once_more, 0, NULL), 0);
    assert_int_equal(dlock_extend(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(once_more, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
}

/* A grant that would linger, or be handed over here, goes to the server. */
TEST(nothing_lingers_after_a_stop) {
    dlock_client *client = client_new("fakefull:?linger=5s");
    dlock_lock *lock = lock_new(client, "n");
    taken("other");
    struct actor *waiter = actor_new();
    begin_acquire(waiter, lock_new(client, "other"), -1); /* now wake-ups are heard */
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_not_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_client_stop(client), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
    fake_settle();
    assert_int_equal(result(waiter), DLOCK_ECANCELED);
}

/* ---- dlock_close_within ------------------------------------------------------------------------------------------ */

struct closing {
    dlock_client *client;
    int64_t within_ms;
};

static int close_it(void *arg) {
    const struct closing *closing = arg;
    dlock_close_within(closing->client, closing->within_ms);
    return 0;
}

static int64_t close_time_ms(dlock_client *client, int64_t within_ms) {
    struct actor *closer = actor_new();
    struct closing closing = {client, within_ms};
    client_forget(client);
    begin_call(closer, close_it, &closing);
    return wait_for(closer, 20000) / 1000;
}

TEST(a_close_takes_no_longer_than_it_may) {
    for (int i = 0; i < 4; i++) {
        static const int64_t within_ms[] = {500, 5000, DLOCK_FOREVER, 0}, most_ms[] = {600, 2100, 2100, 100};
        dlock_client *client = client_new("fake:?timeout=2s");
        dlock_lock *lock = lock_new(client, "n");
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_fault(FAKE_RELEASE, FAKE_SLOW, 100);
        int64_t took_ms = close_time_ms(client, within_ms[i]);
        assert_true(took_ms <= most_ms[i] && took_ms >= most_ms[i] - 100);
        fake_faults_clear();
        fake_slow_go();
        fake_server_forget();
        lock_end(lock);
    }
}

TEST(it_releases_what_is_held) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(close_time_ms(client, 500), 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ECANCELED);
}

/* The server is silent, and the release got no answer: its repetition is not worth another `timeout`. */
TEST(closing_with_nothing_held_waits_for_no_silent_server) {
    static const char *const kinds[] = {"fake:?timeout=2s", "fakeshared:?timeout=2s"};
    for (int i = 0; i < 2; i++) {
        dlock_client *client = client_new(kinds[i]);
        dlock_lock *lock = lock_new(client, "n");
        struct actor *actor = actor_new();
        assert_int_equal(acquire_by(actor, lock, 0), 0);
        fake_fault(FAKE_RELEASE, FAKE_SLOW, 100);
        begin_release(actor, lock);
        wait_for(actor, 2100);
        assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
        fake_advance_ms(100); /* it is sent again */
        lock_end(lock);
        assert_true(close_time_ms(client, DLOCK_FOREVER) <= 200);
        fake_faults_clear();
        fake_slow_go();
        fake_settle();
        fake_server_forget();
    }
}

/* … but the server gets a moment to answer. */
TEST(it_still_releases_what_was_not_answered) {
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 3);
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1);
    begin_release(actor, lock);
    wait_for(actor, 2100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_faults_clear();
    assert_int_equal(close_time_ms(client, DLOCK_FOREVER), 0);
    assert_string_equal(fake_holder("n").token, "");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
