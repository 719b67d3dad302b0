/* An on_lost callback may end its handle and acquire the lock again before it returns. */
#include "fixture.h"

struct again {
    bool frees;
    dlock_lock *other;
    _Atomic int released, acquired;
    _Atomic int64_t waited_us;
};

static void acquire_anew(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct again *again = arg;
    assert_int_equal(err->code, DLOCK_ELOST);
    again->released = dlock_release(lock, NULL);
    if (again->frees) dlock_free(lock);
    int64_t began_us = dlock__now_us();
    again->acquired = dlock_acquire(again->other, 5000, NULL);
    again->waited_us = dlock__now_us() - began_us;
    if (again->acquired == 0) dlock_release(again->other, NULL);
}

/* The grant is lost here, but the server keeps it: the renewals' answers get lost. */
static void lose(struct again *again, enum dlock_owner owner) {
    struct dlock_options options = {.size = sizeof options, .owner = owner};
    dlock_client *client = client_new("fake:");
    again->released = again->acquired = 1;
    again->other = lock_new_with(client, "n", &by_handle);
    options.on_lost = acquire_anew;
    options.on_lost_arg = again;
    dlock_lock *lock = lock_new_with(client, "n", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    if (again->frees) lock_forget(lock);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
    fake_faults_clear();
    fake_advance_ms(6000);
    assert_int_equal(again->acquired, 0);
    assert_true(again->waited_us < 1000000);
}

TEST(an_on_lost_may_release_and_acquire_anew) {
    struct again again = {.frees = false};
    lose(&again, DLOCK_OWNER_HANDLE);
    assert_int_equal(again.released, DLOCK_ELOST);
}

/* Another thread is the owner, so that a release is none. */
TEST(an_on_lost_may_free_a_thread_s_handle_and_acquire_anew) {
    struct again again = {.frees = true};
    lose(&again, DLOCK_OWNER_THREAD);
    assert_int_equal(again.released, DLOCK_EOWNER);
}

/* The program's loop hangs: no thread dispatches, so on_lost does not run. This server has no leases. */
TEST(a_callback_that_never_comes_keeps_the_lock_for_one_lease_at_most) {
    const char *uri = "fakeforever:";
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    dlock_client *client;
    assert_int_equal(dlock_open(uri, &manual, &client, NULL), 0);
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock_with(client, "n", DLOCK_FIXED_LEASE, 1000, &lost);
    dlock_lock *other = lock_new_with(client_new(uri), "n", &by_handle);
    struct done done = {0};
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    begin_async(other, 60000, &done);
    fake_advance_us(valid_us(1000) + 999000);
    assert_false(dlock_held(lock));
    assert_int_equal(done.calls, 0);
    fake_advance_ms(100);
    assert_done(&done, 0);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(dlock_client_dispatch(client), 1);
    assert_int_equal(lost.code, DLOCK_ELOST);
    assert_true(dlock_held(other));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(other, NULL), 0);
    lock_end(lock);
    dlock_close(client);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
