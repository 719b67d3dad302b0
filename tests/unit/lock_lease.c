/* How long a grant is a holder's, and what happens at its end (DESIGN §1.3, §1.4). */
#include "fixture.h"

#include <stdatomic.h>

static dlock_lock *fixed_lock(dlock_client *client, struct lost_count *lost) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    options.on_lost = lost ? count_lost : NULL;
    options.on_lost_arg = lost;
    return lock_new_with(client, "n", &options);
}

static void a_grant_is_valid_for_its_lease_less_the_margin(void **state) {
    (void)state;
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 9898);
    assert_int_equal(fake_holder("n").left_ms, 10000);

    fake_advance_us(valid_us(LEASE_MS) - 1);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 0);
    fake_advance_us(1);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_remaining_ms(lock), 0);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(lost.code, DLOCK_ELOST);
    assert_ptr_equal(lost.lock, lock);
    assert_int_equal(lost.at_us, sent_us + valid_us(LEASE_MS));

    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(lost.calls, 1);
}

static void keep_4_s(struct dlock_claim *claim) {
    claim->kept_ms = 4000;
}

static void what_the_server_granted_counts_not_what_was_asked(void **state) {
    (void)state;
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    fake_edit(FAKE_ACQUIRE, keep_4_s, 1);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 3958);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.at_us, sent_us + valid_us(4000));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

static void a_lease_comes_from_the_uri_or_the_options(void **state) {
    (void)state;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct fake_command command;
    dlock_client *client = client_new("fake:?lease=20s");
    dlock_lock *usual = lock_new(client, "usual");
    assert_int_equal(dlock_acquire(usual, 0, NULL), 0);
    assert_true(fake_last(FAKE_ACQUIRE, "usual", &command));
    assert_int_equal(command.lease_ms, 20000);
    assert_int_equal(dlock_remaining_ms(usual), 19798);
    options.lease_ms = 500;
    dlock_lock *brief = lock_new_with(client, "brief", &options);
    assert_int_equal(dlock_acquire(brief, 0, NULL), 0);
    assert_true(fake_last(FAKE_ACQUIRE, "brief", &command));
    assert_int_equal(command.lease_ms, 500);
    assert_int_equal(dlock_remaining_ms(brief), 493);
}

static void time_counts_from_before_the_request(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_advance_ms(500);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(remaining_by(actor, lock), 9898 - 500);
}

/* An answer that took longer than its lease is no grant. */
static void an_answer_slower_than_the_lease_is_asked_again(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:?lease=1s"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_advance_ms(1500);
    fake_slow_go();
    wait_for(actor, 2000);
    assert_int_equal(result(actor), 0);
    assert_true(remaining_by(actor, lock) > 0);
    assert_true(remaining_by(actor, lock) <= fake_holder("n").left_ms);
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
    assert_int_equal(release_by(actor, lock), 0);
}

static void a_try_answered_slower_than_the_lease_holds_nothing(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:?lease=1s"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 0);
    fake_advance_ms(1500);
    fake_slow_go();
    wait_for(actor, 500);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_false(held_by(actor, lock));
    fake_advance_ms(2000);
    assert_int_equal(fake_entries(), 0);
}

/* The server's clock runs 1 % faster and somebody is queued: the holder knows of its loss first. */
static void loss_is_known_before_anyone_else_is_granted(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_other_acquire("n", LEASE_MS);
    bool was_held = true;
    int64_t began = dlock__now_us();
    for (int ms = 0; ms < 10100; ms = (int)((dlock__now_us() - began) / 1000)) {
        fake_advance_ms(ms < 9800 ? 100 : 1);
        if (ms % 100 == 0) fake_server_step_ms(1);
        bool held = dlock_held(lock), other_can = strcmp(fake_holder("n").token, "") == 0 || fake_holder("n").other;
        assert_false(held && other_can);
        assert_true(was_held || !held);
        was_held = held;
    }
    assert_false(was_held);
}

static void after_a_suspend_a_lock_is_not_held(void **state) {
    (void)state;
    struct lost_count lost = {0};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = count_lost;
    options.on_lost_arg = &lost;
    dlock_lock *lock = lock_new_with(client_new("fake:"), "n", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    fake_jump_ms(60000);
    /* No thread of the library has run since. */
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_remaining_ms(lock), 0);
    fake_settle();
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(lost.calls, 1);
}

static void every_counted_release_after_a_loss_says_so(void **state) {
    (void)state;
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_fence(lock), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_fence(lock) > fence);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 2);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

static void a_stale_release_does_not_free_the_next_holder(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(LEASE_MS + 1);
    fake_other_acquire("n", LEASE_MS);
    assert_true(fake_holder("n").other);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    fake_advance_ms(1000);
    assert_true(fake_holder("n").other);
}

static void a_fixed_lease_is_never_renewed(void **state) {
    (void)state;
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* Somebody else of this process who waits for the name gets on with it once it is lost. */
static void a_local_waiter_asks_once_the_holder_has_lost(void **state) {
    (void)state;
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = fixed_lock(client, NULL), *other = lock_new(client, "n");
    struct actor *waiter = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    begin_acquire(waiter, other, 20000);
    fake_advance_us(valid_us(LEASE_MS) - 1);
    assert_false(over(waiter));
    int64_t passed_us = wait_for(waiter, 1500);
    assert_true(passed_us > 0);
    assert_int_equal(result(waiter), 0);
    assert_true(fence_by(waiter, other) > fence);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_true(held_by(waiter, other));
    assert_int_equal(release_by(waiter, other), 0);
}

int main(int argc, char **argv) {
    only(argc, argv);
    const struct CMUnitTest tests[] = {
        LOCK_TEST(a_grant_is_valid_for_its_lease_less_the_margin),
        LOCK_TEST(what_the_server_granted_counts_not_what_was_asked),
        LOCK_TEST(a_lease_comes_from_the_uri_or_the_options),
        LOCK_TEST(time_counts_from_before_the_request),
        LOCK_TEST(an_answer_slower_than_the_lease_is_asked_again),
        LOCK_TEST(a_try_answered_slower_than_the_lease_holds_nothing),
        LOCK_TEST(loss_is_known_before_anyone_else_is_granted),
        LOCK_TEST(after_a_suspend_a_lock_is_not_held),
        LOCK_TEST(every_counted_release_after_a_loss_says_so),
        LOCK_TEST(a_stale_release_does_not_free_the_next_holder),
        LOCK_TEST(a_fixed_lease_is_never_renewed),
        LOCK_TEST(a_local_waiter_asks_once_the_holder_has_lost),
    };
    return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
