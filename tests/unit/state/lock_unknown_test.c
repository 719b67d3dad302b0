/* Requests whose answers never came: the server may have executed them or not. */
#include "fixture.h"

#include <stdio.h>

static void assert_all_of_one_token(enum fake_op op, const char *name) {
    struct fake_command first, command;
    assert_true(fake_nth(op, name, 0, &first));
    for (unsigned i = 1; fake_nth(op, name, i, &command); i++) assert_string_equal(command.token, first.token);
}

static void acquire_lost(enum fake_fault fault, unsigned times) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, fault, times);
    begin_acquire(actor, lock, 20000);
    int64_t passed_us = wait_for(actor, 20000);
    assert_int_equal(result(actor), 0);
    assert_true(passed_us <= 3000000);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), times + 1);
    assert_all_of_one_token(FAKE_ACQUIRE, "n");
    assert_int_equal(fake_grants("n"), 1);
    struct fake_command last;
    assert_true(fake_last(FAKE_ACQUIRE, "n", &last));
    assert_int_equal(fence_by(actor, lock) >> 8, last.fence);
    assert_int_equal(remaining_by(actor, lock), (last.at_us + valid_us(LEASE_MS) - dlock__now_us()) / 1000);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(however_often_it_is_lost) {
    acquire_lost(FAKE_LOST_AFTER, 5);
}

TEST(a_lost_request_is_sent_again) {
    acquire_lost(FAKE_LOST_BEFORE, 5);
}

TEST(the_connection_of_an_unknown_outcome_is_dropped) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct fake_command first, second, dropped;
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 1);
    struct actor *actor = actor_new();
    begin_acquire(actor, lock, 5000);
    wait_for(actor, 5000);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &first));
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 1, &second));
    assert_true(fake_nth(FAKE_DISCONNECT, NULL, 0, &dropped));
    assert_int_not_equal(first.conn, second.conn);
    assert_int_equal(dropped.conn, first.conn);
    assert_true(dropped.call < second.call);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The answer never came and the deadline has passed: a grant that the server may have made is released. */
TEST(an_acquire_given_up_is_released_behind_the_scenes) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 1000);
    int64_t passed_us = wait_for(actor, 1200);
    assert_in_range(passed_us, 1000000, 1100000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_false(held_by(actor, lock));
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
}

/* As above, and the server is away for a while. */
TEST(an_acquire_given_up_is_released_when_the_server_is_back) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=60s"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2);
    fake_fault(FAKE_CONNECT, FAKE_PASS, 1);
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 1000);
    begin_acquire(actor, lock, 1000);
    assert_in_range(wait_for(actor, 1200), 1000000, 1100000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_advance_ms(20000);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_faults_clear();
    fake_advance_ms(1500);
    assert_string_equal(fake_holder("n").token, "");
}

/* An unanswered request may still reach the server, later. */
TEST(a_late_duplicate_leaves_no_orphan) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    struct fake_command lost;
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &lost));
    fake_advance_ms(LEASE_MS / 2);
    fake_replay(&lost);
    assert_string_equal(fake_holder("n").token, lost.token);
    fake_advance_ms(LEASE_MS / 2 + 500);
    assert_string_equal(fake_holder("n").token, "");
    assert_all_of_one_token(FAKE_RELEASE, "n");
}

/* The actor gets the lock although its first sends did not arrive; *lost is the first of them, to be replayed. */
static void acquire_after_losses(struct actor *actor, dlock_lock *lock, unsigned times, struct fake_command *lost) {
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, times);
    begin_acquire(actor, lock, 5000);
    wait_for(actor, 5000);
    assert_int_equal(result(actor), 0);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, lost));
}

/* Nor does one of an acquire whose second try was granted, and released long before. */
TEST(a_duplicate_that_comes_after_the_release_leaves_no_orphan) {
    for (unsigned lost_times = 1; lost_times <= 2; lost_times++) { /* on the connection, and as a request */
        dlock_lock *lock = lock_new(client_new("fake:"), "n");
        struct actor *actor = actor_new();
        struct fake_command lost;
        fake_log_clear();
        acquire_after_losses(actor, lock, lost_times, &lost);
        assert_int_equal(release_by(actor, lock), 0);
        fake_replay(&lost);
        assert_string_equal(fake_holder("n").token, lost.token);
        fake_advance_ms(LEASE_MS / 2);
        assert_string_equal(fake_holder("n").token, "");
        fake_advance_ms(2 * LEASE_MS);
        unsigned releases = fake_calls(FAKE_RELEASE);
        fake_advance_ms(2 * LEASE_MS);
        assert_int_equal(fake_calls(FAKE_RELEASE), releases);
    }
}

/* Nor one that comes while the answer to the release is on its way, be that until nothing can come any more. */
TEST(nor_does_one_that_comes_after_a_release_was_sent) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=1s"), "n");
    struct actor *actor = actor_new();
    struct fake_command lost;
    acquire_after_losses(actor, lock, 1, &lost);
    fake_fault(FAKE_RELEASE, FAKE_SLOW_AFTER, 1);
    begin_release(actor, lock);
    fake_advance_ms(900);
    fake_replay(&lost);
    fake_advance_ms(200);
    assert_string_equal(fake_holder("n").token, lost.token);
    fake_slow_go();
    wait_for(actor, 100);
    assert_int_equal(result(actor), 0);
    fake_settle();
    assert_string_equal(fake_holder("n").token, "");
}

/* Nor one that renewed a grant which this process, stopped until then, finds to be over. */
TEST(nor_does_one_that_makes_a_lost_grant_longer) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command lost;
    acquire_after_losses(actor, lock, 1, &lost);
    fake_suspend_ms(LEASE_MS * 9 / 10);
    fake_replay(&lost);
    fake_suspend_ms(LEASE_MS / 2);
    fake_settle();
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    fake_advance_ms(100);
    assert_string_equal(fake_holder("n").token, "");
}

/* Nor one that comes while no release gets through. */
TEST(nor_does_one_that_comes_during_an_outage) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct fake_command lost;
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &lost));
    fake_server_down(true);
    fake_advance_ms(LEASE_MS * 9 / 10);
    fake_replay(&lost);
    fake_advance_ms(LEASE_MS / 2);
    assert_string_equal(fake_holder("n").token, lost.token);
    fake_server_down(false);
    fake_advance_ms(600);
    assert_string_equal(fake_holder("n").token, "");
}

/* Nor one that enters the queue again after a release was answered, however long the others get lost. */
TEST(nor_does_one_that_comes_into_the_queue_again) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command lost;
    fake_other_acquire("n", 10 * LEASE_MS);
    fake_fault(FAKE_ACQUIRE, FAKE_PASS, 1); /* and it listens */
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_waiters("n"), 0);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 1, &lost));
    fake_server_down(true);
    fake_replay(&lost);
    assert_int_equal(fake_waiters("n"), 1);
    fake_advance_ms(3 * LEASE_MS);
    fake_server_down(false);
    fake_advance_ms(600);
    assert_int_equal(fake_waiters("n"), 0);
}

/* One lease after the lost request nothing of it can come any more. */
TEST(a_release_long_after_a_lost_answer_is_one_release) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    begin_acquire(actor, lock, 5000);
    wait_for(actor, 5000);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(release_by(actor, lock), 0);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
}

/* Nor is there anything to release when the grant is lost after that. */
TEST(a_loss_long_after_a_lost_answer_is_no_release) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command lost;
    acquire_after_losses(actor, lock, 1, &lost);
    fake_advance_ms(3 * LEASE_MS);
    fake_server_forget();
    fake_advance_ms(LEASE_MS / 2);
    assert_false(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
}

TEST(the_releases_of_a_lost_token_end_after_one_lease) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    int64_t began = dlock__now_us();
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    fake_advance_ms(3 * LEASE_MS);
    struct fake_command last;
    assert_true(fake_last(FAKE_RELEASE, "n", &last));
    assert_in_range(last.at_us - began, LEASE_MS * 1000, LEASE_MS * 1500);
    assert_in_range(fake_claims(FAKE_RELEASE, "n"), 3, 20);
}

TEST(nor_do_they_go_on_for_ever_when_the_server_is_gone) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    fake_server_down(true);
    fake_log_clear();
    fake_advance_ms(2 * LEASE_MS + 2000); /* it may be executed one lease late, and is kept for one then */
    assert_in_range(fake_calls(FAKE_CONNECT), 16, 200);
    fake_log_clear();
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_CONNECT), 0);
}

/* The same thread may take the lock again at once; the releases of the old token do it no harm. */
TEST(releases_of_an_old_token_spare_the_new_one) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

static dlock_lock *handle_lock(dlock_client *client, const char *name) {
    return lock_new_with(client, name, &by_handle);
}

TEST(a_release_lost_several_times_succeeds_in_the_end) {
    dlock_lock *lock = handle_lock(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RELEASE, FAKE_LOST_AFTER, 4);
    begin_release(actor, lock);
    assert_true(wait_for(actor, 3000) < 2000000);
    assert_int_equal(result(actor), 0);
    struct fake_command last;
    assert_true(fake_last(FAKE_RELEASE, "n", &last));
    assert_int_equal(last.result, DLOCK_ELOST); /* the first one has released it */
    assert_int_equal(fake_claims(FAKE_RELEASE, "n"), 5);
    assert_all_of_one_token(FAKE_RELEASE, "n");
}

/* However often its acquire was sent. */
TEST(a_first_release_that_finds_nothing_is_a_loss) {
    for (unsigned lost = 0; lost < 2; lost++) {
        dlock_lock *lock = lock_new(client_new("fake:"), "n");
        struct dlock_error err;
        fake_log_clear();
        fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, lost);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        assert_int_equal(fake_calls(FAKE_ACQUIRE), lost + 1);
        fake_server_forget();
        assert_int_equal(dlock_release(lock, &err), DLOCK_ELOST);
        assert_int_equal(err.code, DLOCK_ELOST);
        assert_non_null(strstr(err.message, "\"n\""));
        assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    }
}

TEST(a_release_without_answer_is_unavailable_and_goes_on) {
    dlock_lock *lock = handle_lock(client_new("fake:?lease=60s"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_down(true);
    begin_release(actor, lock);
    assert_true(wait_for(actor, 3200) <= 3100000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_int_equal(error_of(actor)->code, DLOCK_EUNAVAILABLE);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    fake_advance_ms(10000);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_server_down(false);
    fake_advance_ms(1500);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
}

TEST(a_release_that_hangs_is_unavailable_in_time) {
    dlock_lock *lock = handle_lock(client_new("fake:?timeout=500ms"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_release(actor, lock);
    assert_in_range(wait_for(actor, 700), 400000, 600000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    fake_advance_ms(2000);
    assert_string_equal(fake_holder("n").token, "");
}

/* One that may have died without a word does not use up the time of a release. */
TEST(a_release_over_a_silent_connection_takes_a_fresh_one) {
    static const char *const uris[] = {"fake:", "fakepoll:"};
    for (size_t i = 0; i < 2; i++) {
        dlock_lock *lock = handle_lock(client_new(uris[i]), "n");
        struct actor *actor = actor_new();
        struct fake_command first, second;
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_log_clear();
        fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
        begin_release(actor, lock);
        assert_in_range(wait_for(actor, 1500), 0, 1500000);
        assert_int_equal(result(actor), 0);
        assert_string_equal(fake_holder("n").token, "");
        assert_int_equal(fake_calls(FAKE_CONNECT), 1);
        assert_true(fake_nth(FAKE_RELEASE, "n", 0, &first) && fake_nth(FAKE_RELEASE, "n", 1, &second));
        assert_string_equal(first.token, second.token);
        assert_int_not_equal(first.conn, second.conn);
    }
}

TEST(releases_without_answer_end_with_the_lease) {
    dlock_lock *lock = handle_lock(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_down(true);
    begin_release(actor, lock);
    wait_for(actor, 3200);
    fake_advance_ms(2 * LEASE_MS);
    fake_log_clear();
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_CONNECT), 0);
}

/* The server renewed it every time, and no answer came: lost here, it must not stay locked there. */
TEST(a_lock_lost_for_want_of_answers_is_released) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=60s"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_ms(59398 + 100);
    assert_false(dlock_held(lock));
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(refusals_are_final) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_AUTH, 1);
    assert_int_equal(acquire_by(actor, lock, 5000), DLOCK_EAUTH);
    assert_int_equal(error_of(actor)->code, DLOCK_EAUTH);
    fake_fault(FAKE_ACQUIRE, FAKE_PROTO, 1);
    assert_int_equal(acquire_by(actor, lock, 5000), DLOCK_EPROTO);
    assert_int_equal(error_of(actor)->code, DLOCK_EPROTO);
    assert_false(held_by(actor, lock));
    assert_int_equal(acquire_by(actor, lock, 5000), 0);
}

/* A queued claim keeps its one place through lost answers, and leaves the queue in the end. */
TEST(a_lost_answer_costs_no_place_in_the_queue) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 60000);
    fake_fault(FAKE_ACQUIRE, FAKE_PASS, 1);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 3);
    begin_acquire(actor, lock, 20000);
    fake_advance_ms(5000);
    assert_int_equal(fake_faults_left(), 0);
    assert_int_equal(fake_waiters("n"), 1);
    assert_all_of_one_token(FAKE_ACQUIRE, "n");
    wait_for(actor, 20000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    fake_advance_ms(1000);
    assert_int_equal(fake_waiters("n"), 0);
}

/* A queued token is released until the server has said yes, however long that takes. */
TEST(leaving_the_queue_outlasts_an_outage) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 200000);
    begin_acquire(actor, lock, 2000);
    fake_advance_ms(1000);
    assert_int_equal(fake_waiters("n"), 1);
    fake_server_down(true);
    assert_true(wait_for(actor, 1200) <= 1100000);
    assert_true(result(actor) == DLOCK_ETIMEDOUT || result(actor) == DLOCK_EUNAVAILABLE);
    fake_advance_ms(5 * LEASE_MS);
    assert_int_equal(fake_waiters("n"), 1);
    fake_server_down(false);
    fake_advance_ms(1500);
    assert_int_equal(fake_waiters("n"), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
