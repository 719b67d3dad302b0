/* dlock_acquire_all, and one of its locks is lost while another one is waited for. */
#include "fixture.h"

static dlock_lock *fixed_lock(dlock_client *client, const char *name) {
    struct dlock_options fixed = {.size = sizeof fixed, .flags = DLOCK_FIXED_LEASE, .lease_ms = 1000};
    return lock_new_with(client, name, &fixed);
}

/* Its lease ends before the other lock is free: it is acquired again, and both are held in the end. */
TEST(what_has_ended_meanwhile_is_acquired_anew) {
    dlock_client *client = client_new("fake:");
    struct actor *actor = actor_new();
    struct all all = {{fixed_lock(client, "a"), lock_new(client, "b")}, 2, 10000, {0}};
    struct fake_grant other = taken("b");
    begin_call(actor, acquire_all, &all);
    fake_advance_ms(3000);
    fake_other_release(&other, "b");
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    for (size_t i = 0; i < all.n; i++) assert_true(held_by(actor, all.locks[i]));
    assert_int_equal(fake_grants("a"), 2);
    begin_call(actor, release_all, &all);
    assert_int_equal(result(actor), 0);
}

/* Another client has it by then: the call waits for it as for any other, until the deadline. */
TEST(it_may_be_taken_by_then) {
    dlock_client *client = client_new("fake:");
    struct actor *actor = actor_new();
    struct all all = {{fixed_lock(client, "a"), lock_new(client, "b")}, 2, 10000, {0}};
    struct fake_grant b = taken("b");
    begin_call(actor, acquire_all, &all);
    fake_advance_ms(3000);
    taken("a");
    fake_other_release(&b, "b");
    assert_in_range(wait_for(actor, 8000), 6900000, 7100000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(release_by(actor, all.locks[0]), DLOCK_EOWNER);
}

/* The second server takes longer than the first one's lease, each time. */
TEST(it_is_not_tried_for_ever) {
    enum { LOSSES = 8 };
    struct actor *actor = actor_new();
    struct all all = {{fixed_lock(client_new("fake:"), "a"), lock_new(client_new("fake:"), "b")}, 2, -1, {0}};
    for (int i = 0; i < LOSSES; i++) {
        fake_fault(FAKE_ACQUIRE, FAKE_PASS, 1);
        fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    }
    begin_call(actor, acquire_all, &all);
    for (int i = 0; i < LOSSES; i++) {
        assert_int_equal(fake_slow_waiting(), 1);
        fake_advance_ms(1500);
        fake_slow_go();
        fake_settle();
    }
    assert_int_equal(result(actor), DLOCK_ELOST);
    assert_non_null(strstr(all.err.message, "\"a\""));
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(release_by(actor, all.locks[0]), DLOCK_EOWNER);
}

/* The caller had it before the call, and has to release that first. */
TEST(one_that_was_entered_anew_and_is_lost_is_an_error) {
    dlock_client *client = client_new("fake:");
    struct actor *actor = actor_new();
    struct all all = {{fixed_lock(client, "a"), lock_new(client, "b")}, 2, 10000, {0}};
    struct fake_grant other = taken("b");
    assert_int_equal(acquire_by(actor, all.locks[0], 0), 0);
    begin_call(actor, acquire_all, &all);
    fake_advance_ms(3000);
    fake_other_release(&other, "b");
    wait_for(actor, 1000);
    assert_int_equal(result(actor), DLOCK_ELOST);
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(release_by(actor, all.locks[0]), DLOCK_ELOST);
    assert_int_equal(release_by(actor, all.locks[0]), DLOCK_EOWNER);
}

/* A call releases exactly the permits that it has acquired, even if those have ended and the caller's own has not. */
TEST(a_permit_from_before_the_call_stays) {
    struct dlock_options own = {.size = sizeof own, .mode = DLOCK_PERMIT, .limit = 3}, fixed = own;
    fixed.flags = DLOCK_FIXED_LEASE;
    fixed.lease_ms = 200;
    dlock_client *client = client_new("fakefull:");
    dlock_lock *before = lock_new_with(client, "p", &own), *more = lock_new_with(client, "p", &fixed);
    struct all all = {{more, more}, 2, 10000, {0}};
    struct actor *actor = actor_new();
    fake_other_acquire_as("p", DLOCK_PERMIT, 3, 600000);
    assert_int_equal(acquire_by(actor, before, 0), 0);
    begin_call(actor, acquire_all, &all);
    wait_for(actor, 10100); /* the second permit is granted only when the first one has ended */
    assert_int_equal(result(actor), DLOCK_ELOST);
    assert_true(held_by(actor, before));
    assert_int_equal(release_by(actor, before), 0);
    assert_int_equal(release_by(actor, before), DLOCK_EOWNER);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
