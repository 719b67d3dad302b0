/* A grant that arrives by wake-up has no local request from which to measure its lease. */
#include "fake_server.h"
#include "fixture.h"

#include <stdatomic.h>

enum { HANDOVER_MS = 3000 };

static void handed_over(struct scene *s) {
    fake_other_release(&s->other, "n");
    assert_string_not_equal(fake_holder("n").token, "");
    assert_false(fake_holder("n").other);
    fake_settle();
}

/* The validity that the arithmetic in docs/internals.md allows for a hand-over that happened delta_us after the last
 * request. */
static int64_t woken_valid_us(int64_t delta_us) {
    return valid_us(HANDOVER_MS) - delta_us / 100;
}

TEST(a_wake_counts_from_the_servers_clock) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(2000);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(remaining_by(s.actor, s.lock), woken_valid_us(2000000) / 1000);
}

TEST(a_wake_that_lay_in_the_socket_is_older_than_its_arrival) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    fake_wakes_hold(true);
    handed_over(&s);
    fake_advance_ms(500);
    assert_false(over(s.actor));
    fake_wakes_hold(false);
    fake_settle();
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(remaining_by(s.actor, s.lock), (woken_valid_us(1000000) - 500000) / 1000);
    assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
}

TEST(a_hand_over_is_renewed_to_a_whole_lease_in_time) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    fake_advance_ms(1100);
    assert_true(fake_calls(FAKE_RENEW) >= 1);
    assert_true(remaining_by(s.actor, s.lock) > HANDOVER_MS);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(s.lost.calls, 0);
}

TEST(a_hand_over_that_is_not_renewed_is_lost_in_time) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    handed_over(&s);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    int64_t granted_us = dlock__now_us();
    fake_advance_ms(HANDOVER_MS);
    assert_int_equal(s.lost.calls, 1);
    assert_int_equal(s.lost.at_us, granted_us + woken_valid_us(1000000));
    assert_int_equal(release_by(s.actor, s.lock), DLOCK_ELOST);
}

/* Held only after the server has been asked, and then for what the answer says. */
static void assert_confirmed(struct scene *s) {
    struct fake_command question;
    wait_for(s->actor, 1000);
    assert_int_equal(result(s->actor), 0);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &question));
    assert_int_equal(question.result, 0);
    assert_int_equal(remaining_by(s->actor, s->lock), (question.at_us + valid_us(LEASE_MS) - dlock__now_us()) / 1000);
    assert_int_equal(fence_by(s->actor, s->lock) >> 8, fake_holder("n").fence);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(held_by(s->actor, s->lock));
    assert_int_equal(release_by(s->actor, s->lock), 0);
}

TEST(a_server_clock_that_was_set_is_not_believed) {
    static const int64_t steps_ms[] = {-5000, 100};
    for (size_t i = 0; i < sizeof steps_ms / sizeof *steps_ms; i++) {
        struct scene s;
        fake_backend_reset();
        scene_begin(&s, 0, 100000);
        fake_advance_ms(1000);
        fake_server_step_ms(steps_ms[i]);
        handed_over(&s);
        assert_confirmed(&s);
        client_end(s.client);
    }
}

TEST(a_server_clock_that_drifts_by_less_than_1_percent_is) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(2000);
    fake_server_step_ms(20);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    /* From the arrival: the server cannot have granted it later than that. */
    assert_int_equal(remaining_by(s.actor, s.lock), woken_valid_us(2020000) / 1000);
}

/* A clock that goes back by less than the time passed looks as if the grant were older: the holder errs to its loss. */
TEST(a_small_step_back_only_shortens_the_lease) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(2000);
    fake_server_step_ms(-500);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(remaining_by(s.actor, s.lock), (woken_valid_us(1500000) - 500000) / 1000);
    assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
}

TEST(confirming_goes_on_until_it_is_answered) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_server_handover_ms(8000);
    fake_advance_ms(1000);
    fake_server_step_ms(-5000);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    handed_over(&s);
    assert_false(over(s.actor));
    assert_true(wait_for(s.actor, 6000) > 0);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(fake_faults_left(), 0);
    assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
}

/* The process was stopped across its own grant, and longer than the grant lasted. */
TEST(a_grant_that_is_over_is_never_reported) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    fake_wakes_hold(true);
    handed_over(&s);
    fake_jump_ms(8000);
    fake_other_acquire("n", 600000); /* takes what has lapsed */
    assert_true(fake_holder("n").other);
    fake_wakes_hold(false);
    fake_settle();
    assert_false(over(s.actor));
    assert_false(dlock_held(s.lock));
    fake_advance_ms(100);
    assert_int_equal(fake_waiters("n"), 1); /* back in the queue at once */
    fake_advance_ms(5000);
    assert_false(over(s.actor));
    assert_int_equal(s.lost.calls, 0);
    /* It kept waiting, and is served. */
    struct fake_grant other = fake_holder("n");
    assert_true(other.other);
    fake_other_release(&other, "n");
    wait_for(s.actor, 1000);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(fence_by(s.actor, s.lock) >> 8, fake_holder("n").fence);
}

/* The process was stopped for longer than its grant lasted; it queued again and was granted the lock once more before
 * it read the first wake-up. The server now keeps the lock for the second grant, not for the one in this wake-up. */
TEST(a_grant_that_is_over_is_not_taken_for_the_next_one) {
    const uint32_t flags[] = {0, DLOCK_FIXED_LEASE};
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        scene_begin(&s, flags[i], 100000);
        fake_advance_ms(1000);
        fake_wakes_hold(true);
        handed_over(&s);
        uint64_t lapsed = fake_holder("n").fence;
        fake_jump_ms(8000);
        fake_other_acquire("n", 600000);
        struct fake_grant other = fake_holder("n");
        assert_true(other.other);
        fake_advance_ms(100);
        assert_int_equal(fake_waiters("n"), 1); /* back in the queue */
        fake_other_release(&other, "n");
        assert_true(fake_holder("n").fence > lapsed);
        assert_false(fake_holder("n").other);
        fake_wakes_hold(false);
        wait_for(s.actor, 1000);
        assert_int_equal(result(s.actor), 0);
        assert_int_equal(fence_by(s.actor, s.lock) >> 8, fake_holder("n").fence);
        assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
        assert_int_equal(release_by(s.actor, s.lock), 0);
        client_end(s.client);
        fake_backend_reset();
    }
}

/* The wake was read and the lock delivered; the waiting thread alone was stopped, or not scheduled, until it was over.
 */
TEST(a_grant_that_ended_before_the_waiter_woke_is_not_reported) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    actor_park(s.actor);
    fake_server_handover_ms(LEASE_MS);
    handed_over(&s);
    uint64_t fence = fake_holder("n").fence;
    fake_jump_ms(60000);
    actor_unpark();
    wait_for(s.actor, 2000);
    assert_int_equal(result(s.actor), 0);
    assert_true(fence_by(s.actor, s.lock) >> 8 > fence);
    assert_true(remaining_by(s.actor, s.lock) > 0);
    assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(s.lost.calls, 0); /* it was never reported as held */
    assert_int_equal(release_by(s.actor, s.lock), 0);
}

/* As above with time for the others to run: the lock is renewed for a waiter that is only slow. */
TEST(a_waiter_that_wakes_late_finds_its_lock_renewed) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_advance_ms(1000);
    actor_park(s.actor);
    handed_over(&s);
    fake_advance_ms(2 * LEASE_MS);
    actor_unpark();
    assert_int_equal(result(s.actor), 0);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(fake_grants("n"), 2);
    assert_int_equal(fence_by(s.actor, s.lock) >> 8, fake_holder("n").fence);
}

/* The server restarts, with a clock that is an hour off: knowledge of the old clock does not apply to the new one. */
TEST(what_is_known_of_the_clock_dies_with_the_connection) {
    const int64_t steps_ms[] = {3600000, -3600000, -400};
    for (size_t i = 0; i < 3; i++) {
        fake_backend_reset();
        struct scene s;
        scene_begin(&s, 0, 100000);
        fake_advance_ms(500);
        fake_server_step_ms(steps_ms[i]);
        fake_server_cut();
        fake_advance_ms(500); /* sends a new request, with the new clock */
        struct fake_command ask, renew;
        assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
        fake_advance_ms(1000);
        struct fake_grant other = fake_holder("n");
        if (!other.other) { /* the step ended the other's lease */
            wait_for(s.actor, 1000);
            assert_int_equal(result(s.actor), 0);
            assert_int_equal(release_by(s.actor, s.lock), 0);
            client_end(s.client);
            continue;
        }
        fake_other_release(&other, "n");
        fake_settle();
        assert_int_equal(result(s.actor), 0);
        assert_false(fake_last(FAKE_RENEW, "n", &renew));
        assert_int_equal(remaining_by(s.actor, s.lock), woken_valid_us(dlock__now_us() - ask.at_us) / 1000);
        assert_int_equal(release_by(s.actor, s.lock), 0);
        client_end(s.client);
    }
}

TEST(a_fixed_lease_is_whole_although_it_came_by_hand_over) {
    struct scene s;
    scene_begin(&s, DLOCK_FIXED_LEASE, 100000);
    fake_advance_ms(1000);
    handed_over(&s);
    wait_for(s.actor, 1000);
    assert_int_equal(result(s.actor), 0);
    assert_true(remaining_by(s.actor, s.lock) > 9000);
    unsigned renewals = fake_calls(FAKE_RENEW);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), renewals);
    assert_int_equal(s.lost.calls, 1);
    assert_int_equal(release_by(s.actor, s.lock), DLOCK_ELOST);
}

/* The grant happens while a request for the same token is in flight: in either order of the answers there is one
   grant. */
static void a_wake_during_a_request_is_one_grant(enum fake_fault fault, int64_t later_ms) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_fault(FAKE_ACQUIRE, FAKE_PASS, 1);
    fake_fault(FAKE_ACQUIRE, fault, 1);
    fake_server_cut(); /* it repeats its request at once, listens, and queues again */
    while (!fake_slow_waiting()) assert_true(fake_advance_next()); /* to the microsecond of the answer */
    if (later_ms < 0)
        fake_server_step_ms(later_ms);
    else
        fake_advance_ms(later_ms);
    handed_over(&s);
    fake_advance_ms(100);
    const unsigned asked = fake_claims(FAKE_ACQUIRE, "n");
    fake_slow_go();
    wait_for(s.actor, 300); /* long before it would ask without a wake */
    assert_int_equal(result(s.actor), 0);
    if (fault == FAKE_SLOW_AFTER) /* a wake that is not later than the answer may be of a grant that is over */
        assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), asked + (later_ms <= 0));
    assert_int_equal(fence_by(s.actor, s.lock) >> 8, fake_holder("n").fence);
    assert_true(remaining_by(s.actor, s.lock) <= fake_holder("n").left_ms);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(s.lost.calls, 0);
    assert_int_equal(release_by(s.actor, s.lock), 0);
    assert_string_equal(fake_holder("n").token, "");
}

TEST(a_wake_before_the_answer_that_says_busy) {
    a_wake_during_a_request_is_one_grant(FAKE_SLOW_AFTER, 5);
}

TEST(a_wake_of_the_microsecond_of_the_answer) {
    a_wake_during_a_request_is_one_grant(FAKE_SLOW_AFTER, 0);
}

/* The server noted the time of the grant, and no client saw the grant until it was on disk. */
TEST(a_wake_of_a_moment_before_the_answer) {
    a_wake_during_a_request_is_one_grant(FAKE_SLOW_AFTER, -5);
}

TEST(a_wake_before_the_answer_that_says_granted) {
    a_wake_during_a_request_is_one_grant(FAKE_SLOW, 5);
}

/* Any client that may read a server's messages and send some could forge it: no honest fence would ever be greater. */
TEST(a_fence_far_ahead_of_the_clock_is_asked_for) {
    struct scene s;
    struct fake_command asked;
    scene_begin(&s, 0, 100000);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "n"});
    fake_settle();
    assert_true(fake_last(FAKE_ACQUIRE, "n", &asked));
    struct dlock_wake wake = {.kind = DLOCK_WAKE_GRANTED, .name = "n", .token = asked.token, .kept_ms = LEASE_MS};
    wake.server_us = server_now_us();
    wake.fence = (uint64_t)wake.server_us + UINT64_C(86401) * 1000000; /* more than a day */
    fake_wake_push(&wake);
    fake_settle();
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_false(over(s.actor));
    wake.fence -= 2000000;
    fake_wake_push(&wake);
    fake_settle();
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(fence_by(s.actor, s.lock), wake.fence << 8);
}

/* LOOK says no more than that it is worth asking. */
TEST(a_look_makes_the_waiter_ask) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "n"});
    fake_settle();
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK});
    fake_settle();
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_false(over(s.actor));
    assert_int_equal(fake_waiters("n"), 1);
}

TEST(a_look_during_a_request_makes_it_ask_once_more) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "n"});
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "n"});
    fake_advance_ms(200); /* by then the keeper reads it, as the waiter's thread is in its request */
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    fake_advance_ms(1000);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
}

/* ---- who reads a wake-up: the thread that waits for it, if it is the only one that waits, or the keeper ---- */

TEST(a_waiter_reads_its_own_wake_up) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    assert_true(read_by(s.actor));
    for (int i = 0; i < 3; i++) { /* also when it waits again at once */
        fake_other_acquire("n", 600000);
        assert_int_equal(release_by(s.actor, s.lock), 0);
        struct fake_grant other = fake_holder("n");
        begin_acquire(s.actor, s.lock, 100000);
        fake_other_release(&other, "n");
        fake_settle();
        assert_int_equal(result(s.actor), 0);
        assert_true(read_by(s.actor));
    }
}

/* Its only message is that it may look now, since no session can be lost: another thread need not read it sooner. */
TEST(so_does_one_on_this_machine) {
    dlock_lock *lock = lock_new(client_new("fakelocal:"), "n");
    struct actor *actor = actor_new();
    for (int i = 0; i < 3; i++) {
        struct fake_grant other = taken("n");
        begin_acquire(actor, lock, 100000);
        fake_other_release(&other, "n");
        fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "n"});
        fake_settle();
        assert_int_equal(result(actor), 0);
        assert_true(read_by(actor));
        assert_int_equal(release_by(actor, lock), 0);
    }
}

TEST(the_keeper_reads_for_a_thread_that_does_not_run) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    actor_park(s.actor);
    handed_over(&s);
    fake_advance_ms(2 * LEASE_MS);
    assert_false(read_by(s.actor));
    actor_unpark();
    assert_int_equal(result(s.actor), 0);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(fake_grants("n"), 2);
}

/* The first one that waits reads for both, until it has its own grant. */
TEST(a_reader_that_leaves_is_followed_at_once) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    struct actor *second = actor_new();
    struct fake_grant other = taken("m"), third;
    begin_acquire(second, lock_new(s.client, "m"), 100000);
    handed_over(&s);
    assert_true(read_by(s.actor));
    fake_other_release(&other, "m");
    fake_settle();
    assert_int_equal(result(second), 0);
    assert_false(read_by(s.actor));
    third = taken("k");
    begin_acquire(second, lock_new(s.client, "k"), 100000);
    fake_other_release(&third, "k");
    fake_settle();
    assert_int_equal(result(second), 0);
    assert_true(read_by(second));
}

static int take_one(void *lock) {
    dlock_lock *one = lock;
    return dlock_acquire_all(&one, 1, 100000, NULL);
}

/* The last reader has just left, and who waits now does not read. */
TEST(after_a_reader_the_keeper_reads_for_others) {
    for (int with_thread = 0; with_thread < 2; with_thread++) {
        struct scene s;
        struct done done = {0};
        scene_begin(&s, 0, 100000);
        handed_over(&s);
        assert_true(read_by(s.actor));
        struct fake_grant other = taken("m");
        struct actor *second = actor_new();
        dlock_lock *lock = lock_new_with(s.client, "m", &by_handle);
        if (with_thread) {
            begin_call(second, take_one, lock);
            fake_other_release(&other, "m");
            fake_settle();
            assert_int_equal(result(second), 0);
        } else {
            begin_async(lock, 100000, &done);
            fake_other_release(&other, "m");
            fake_settle();
            assert_done(&done, 0);
        }
        client_end(s.client);
        fake_backend_reset();
    }
}

TEST(a_reader_that_is_cancelled_wakes) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    assert_int_equal(dlock_cancel(s.lock), 0);
    fake_settle();
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
}

TEST(a_reader_ends_at_its_deadline) {
    struct scene s;
    scene_begin(&s, 0, 70);
    assert_true(wait_for(s.actor, 1000) <= 70000);
    assert_int_equal(result(s.actor), DLOCK_ETIMEDOUT);
}

/* The listener dies while a reader waits: the reader repeats its request, and a new listener delivers the wake-up. */
TEST(a_reader_survives_its_listener) {
    struct scene s;
    scene_begin(&s, 0, 100000);
    fake_server_cut_listeners();
    fake_settle();
    fake_advance_ms(1);
    assert_int_equal(fake_waiters("n"), 1);
    handed_over(&s);
    assert_int_equal(result(s.actor), 0);
    assert_true(read_by(s.actor));
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
