/* Waits that are cancelled, or end, while the server grants what they wait for. */
#include "fixture.h"

TEST(a_cancelled_wait_leaves_the_queue) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    begin_acquire(actor, lock, -1);
    assert_int_equal(fake_waiters("n"), 1);
    assert_int_equal(dlock_cancel(lock), 0);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(error_of(actor)->code, DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
}

TEST(a_cancel_during_a_request_leaves_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, -1);
    assert_int_equal(dlock_cancel(lock), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_false(held_by(actor, lock));
    assert_string_equal(fake_holder("n").token, "");
}

TEST(a_cancel_during_a_request_that_hangs_ends_in_time) {
    dlock_lock *lock = lock_new(client_new("fake:?timeout=1s"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, -1);
    assert_int_equal(dlock_cancel(lock), 0);
    assert_true(wait_for(actor, 2200) <= 2100000);
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
}

/* The server has granted it, the wake is on its way. */
TEST(a_cancel_that_races_with_the_grant_leaves_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, -1);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    assert_string_not_equal(fake_holder("n").token, "");
    dlock_cancel(lock);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_string_equal(fake_holder("n").token, "");
    fake_wakes_hold(false);
    fake_advance_ms(100);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
}

TEST(a_deadline_that_races_with_the_grant_leaves_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 1000);
    fake_advance_ms(999);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    fake_advance_ms(101);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_string_equal(fake_holder("n").token, "");
    fake_wakes_hold(false);
    fake_advance_ms(100);
    assert_string_equal(fake_holder("n").token, "");
}

/* `waiter` is handed the lock, and that lapses before it runs again. */
struct lapsed {
    dlock_client *client;
    dlock_lock *lock;
    struct actor *waiter;
};

static void lapse(struct lapsed *l) {
    l->client = client_new("fake:");
    dlock_lock *held = lock_new(l->client, "n");
    struct actor *holder = actor_new();
    l->lock = lock_new(l->client, "n");
    l->waiter = actor_new();
    assert_int_equal(acquire_by(holder, held, 0), 0);
    begin_acquire(l->waiter, l->lock, -1);
    actor_park(l->waiter);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 100000);
    assert_int_equal(release_by(holder, held), 0);
    fake_advance_ms(LEASE_MS);
    fake_faults_clear();
    fake_other_acquire("n", 600000);
}

TEST(a_cancel_reaches_a_waiter_whose_grant_lapsed_before_it_ran) {
    struct lapsed l;
    lapse(&l);
    assert_int_equal(dlock_cancel(l.lock), 0);
    actor_unpark();
    fake_settle();
    assert_int_equal(result(l.waiter), DLOCK_ECANCELED);
    assert_int_equal(error_of(l.waiter)->code, DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
}

TEST(a_free_ends_a_waiter_whose_grant_lapsed_before_it_ran) {
    struct lapsed l;
    struct actor *other = actor_new();
    lapse(&l);
    begin_free(other, l.lock);
    assert_false(over(other));
    actor_unpark();
    fake_settle();
    assert_true(over(other));
    assert_int_equal(result(l.waiter), DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
}

/* Without a cancel it keeps waiting for a new grant. */
TEST(a_waiter_whose_grant_lapsed_before_it_ran_waits_on) {
    struct lapsed l;
    lapse(&l);
    actor_unpark();
    fake_settle();
    assert_false(over(l.waiter));
    struct fake_grant other = fake_holder("n");
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(l.waiter), 0);
    assert_int_equal(release_by(l.waiter, l.lock), 0);
}

/* Its grant is still an orphan when the client is closed, and the close has nothing to release. */
TEST(a_close_passes_by_what_lapsed_before_its_waiter_ran) {
    struct lapsed l;
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 100000);
    lapse(&l);
    assert_int_equal(dlock_cancel(l.lock), 0);
    actor_unpark();
    fake_settle();
    assert_int_equal(result(l.waiter), DLOCK_ECANCELED);
    client_end(l.client);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
