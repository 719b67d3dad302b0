/* Things that end, or begin, at the wrong moment: each was, or could have been, a bug. */
#include "fixture.h"

#include <stdatomic.h>

/* Half a second after it began to wait. */
static void scene_wait(struct scene *s, int64_t timeout_ms) {
    scene_begin(s, 0, timeout_ms);
    fake_advance_ms(500);
}

/* Nothing is left, nothing was reported, and the lock can be had. */
static void scene_end(struct scene *s) {
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(s->lost.calls, 0);
    assert_int_equal(acquire_by(s->actor, s->lock, 0), 0);
    assert_int_equal(release_by(s->actor, s->lock), 0);
}

/* The grant arrives for a waiter that was cancelled but has not run since, and lapses before it does. */
TEST(a_grant_for_a_cancelled_waiter_lapses) {
    struct scene s;
    scene_wait(&s, -1);
    actor_park(s.actor);
    dlock_cancel(s.lock);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 100000);
    fake_other_release(&s.other, "n");
    fake_settle();
    fake_advance_ms(LEASE_MS);
    actor_unpark();
    wait_for(s.actor, 200);
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
    assert_int_equal(s.lost.calls, 0);
    scene_end(&s);
    /* Nor does it haunt the name: the next loss is one loss. */
    struct actor *other = actor_new();
    assert_int_equal(acquire_by(s.actor, s.lock, 0), 0);
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    assert_int_equal(s.lost.calls, 1);
    assert_false(held_by(other, s.lock));
    assert_int_equal(release_by(other, s.lock), DLOCK_EOWNER);
    assert_int_equal(release_by(s.actor, s.lock), DLOCK_ELOST);
    assert_int_equal(release_by(s.actor, s.lock), DLOCK_EOWNER);
}

TEST(a_grant_for_a_cancelled_waiter_is_given_back) {
    struct scene s;
    scene_wait(&s, -1);
    actor_park(s.actor);
    dlock_cancel(s.lock);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_string_not_equal(fake_holder("n").token, "");
    fake_advance_ms(2 * LEASE_MS);
    actor_unpark();
    wait_for(s.actor, 200);
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
    scene_end(&s);
}

TEST(a_deadline_while_confirming) {
    struct scene s;
    scene_wait(&s, 2000);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 100000);
    fake_server_step_ms(-5000);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_true(wait_for(s.actor, 1700) <= 1600000);
    assert_true(result(s.actor) == DLOCK_ETIMEDOUT || result(s.actor) == DLOCK_EUNAVAILABLE);
    scene_end(&s);
}

TEST(a_deadline_while_a_confirmation_is_on_its_way) {
    struct scene s;
    scene_wait(&s, 2000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_server_step_ms(-5000);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    assert_true(wait_for(s.actor, 1700) <= 1600000);
    assert_int_equal(result(s.actor), DLOCK_ETIMEDOUT);
    fake_slow_go();
    scene_end(&s);
}

TEST(a_cancel_while_confirming) {
    struct scene s;
    scene_wait(&s, -1);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_server_step_ms(-5000);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    dlock_cancel(s.lock);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
    scene_end(&s);
}

TEST(a_close_while_confirming) {
    struct scene s;
    scene_wait(&s, -1);
    struct actor *closer = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_server_step_ms(-5000);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    begin_close(closer, s.client);
    fake_slow_go();
    assert_true(wait_for(closer, 3200) <= 3100000);
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
    assert_string_equal(fake_holder("n").token, "");
}

/* While a release is in flight, no local thread owns the name: others wait for its end. */
TEST(a_wait_begun_during_a_release) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *first = actor_new(), *second = actor_new(), *hasty = actor_new();
    assert_int_equal(acquire_by(first, lock, 0), 0);
    uint64_t fence = fence_by(first, lock);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
    begin_release(first, lock);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_acquire(second, lock, 5000);
    assert_int_equal(acquire_by(hasty, lock, 0), DLOCK_EBUSY);
    assert_false(over(second));
    fake_advance_ms(1000);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(first), 0);
    wait_for(second, 1000);
    assert_int_equal(result(second), 0);
    assert_true(fence_by(second, lock) > fence);
}

/* A lease that ends while its release hangs was released by its owner: that is no loss to report. */
TEST(a_lease_that_ends_during_its_release) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock_with(client_new("fake:"), "n", 0, 1000, &lost);
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
    begin_release(actor, lock);
    fake_advance_ms(2000);
    fake_slow_go();
    wait_for(actor, 1200);
    assert_true(result(actor) == DLOCK_ELOST || result(actor) == 0);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
}

TEST(a_release_right_after_a_suspend_says_lost) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    fake_jump_ms(60000);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
}

/* The handle through which the grant came is gone, another one of the same thread still holds it: that one is told. */
TEST(a_loss_is_told_through_the_handle_that_is_left) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *first = lock_new(client, "n"), *second = watched_lock(client, "n", &lost);
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    assert_int_equal(dlock_acquire(second, 0, NULL), 0);
    lock_end(first);
    assert_true(dlock_held(second));
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    assert_false(dlock_held(second));
    assert_int_equal(lost.calls, 1);
    assert_ptr_equal(lost.lock, second);
    assert_int_equal(dlock_release(second, NULL), DLOCK_ELOST);
}

TEST(timeouts_of_any_size_are_taken) {
    const int64_t timeouts_ms[] = {-1, -5, INT64_MIN, INT64_MAX, INT64_MAX - 1, INT64_MAX / 1000, INT64_MAX / 1000 + 1};
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 60000000);
    for (size_t i = 0; i < sizeof timeouts_ms / sizeof *timeouts_ms; i++) {
        begin_acquire(actor, lock, timeouts_ms[i]);
        fake_advance_ms(60000);
        assert_false(over(actor));
        dlock_cancel(lock);
        fake_settle();
        assert_int_equal(result(actor), DLOCK_ECANCELED);
    }
}

TEST(no_request_gets_more_time_than_the_uri_allows) {
    dlock_client *client = client_new("fake://127.0.0.1:7000,[::1]/path?timeout=2s&other=1");
    dlock_lock *lock = lock_new(client, "n"), *wanted = lock_new(client, "m");
    struct actor *actor = actor_new();
    fake_other_acquire("m", 600000);
    assert_int_equal(dlock_acquire(lock, 60000, NULL), 0);
    begin_acquire(actor, wanted, 15000);
    fake_advance_ms(5000);
    fake_server_cut();
    wait_for(actor, 16000);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_true(fake_calls(FAKE_RENEW) && fake_calls(FAKE_LISTEN) && fake_calls(FAKE_RELEASE) > 1);
    for (size_t i = 0; i < fake_log_size(); i++) {
        struct fake_command command = fake_log_at(i);
        if (command.op != FAKE_WAKE && command.op != FAKE_PROBE && command.op != FAKE_DISCONNECT)
            assert_in_range(command.timeout_ms, 1, 2000);
    }
}

TEST(errors_are_written_on_failure_only) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct dlock_error err = {12345, "untouched"};
    assert_int_equal(dlock_acquire(lock, 1000, &err), 0);
    assert_int_equal(dlock_acquire(lock, 0, &err), 0);
    assert_int_equal(dlock_release(lock, &err), 0);
    assert_int_equal(dlock_release(lock, &err), 0);
    assert_int_equal(err.code, 12345);
    assert_string_equal(err.message, "untouched");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1); /* survived */
    assert_int_equal(dlock_acquire(lock, 0, &err), 0);
    assert_int_equal(err.code, 12345);
    assert_int_equal(dlock_release(lock, &err), 0);
    assert_int_equal(dlock_release(lock, &err), DLOCK_EOWNER);
    assert_int_equal(err.code, DLOCK_EOWNER);
}

/* VOLATILE backends forget at a restart: leases longer than the quarantine would not be protected. */
TEST(quarantine_bounds_the_lease) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err;
    dlock_lock *lock = NULL;
    dlock_client *usual = client_new("fakevolatile:?lease=5s");
    assert_int_equal(fake_last_quarantine_ms(), 5000);
    options.lease_ms = 5001;
    assert_int_equal(dlock_new(usual, "n", &options, &lock, &err), DLOCK_EINVAL);
    options.lease_ms = 5000;
    lock_new_with(usual, "n", &options);
    dlock_client *longer = client_new("fakevolatile:?lease=5s&quarantine=30s");
    assert_int_equal(fake_last_quarantine_ms(), 30000);
    options.lease_ms = 30001;
    assert_int_equal(dlock_new(longer, "n", &options, &lock, &err), DLOCK_EINVAL);
    dlock_client *off = client_new("fakevolatile:?quarantine=0");
    assert_int_equal(fake_last_quarantine_ms(), 0);
    lock_new_with(off, "n", &options);
    client_new("fake:");
    assert_int_equal(fake_last_quarantine_ms(), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
