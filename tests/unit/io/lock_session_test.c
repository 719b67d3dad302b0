/* Backends whose grants live and die with their connection, and that have one connection for everything. */
#include "fixture.h"

#include <stdio.h>

enum { N = 8 };

TEST(one_connection_serves_everything) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *lock = lock_new(client, "n"), *contended = lock_new(client, "m");
    struct actor *actor = actor_new();
    fake_other_acquire("m", 600000);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    begin_acquire(actor, contended, 5000);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_true(dlock_held(lock));
    assert_true(fake_calls(FAKE_RENEW) >= 2);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    assert_int_equal(fake_connections(), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TEST(threads_do_not_wait_for_each_other) {
    dlock_client *client = client_new("fakesession:");
    struct actor *actors[N];
    dlock_lock *locks[N];
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, N);
    for (int i = 0; i < N; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        locks[i] = lock_new(client, name);
        begin_acquire(actors[i] = actor_new(), locks[i], 2000);
    }
    assert_int_equal(fake_slow_waiting(), N);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(actors[i]), 0);
    assert_int_equal(fake_connections(), 1);
}

TEST(an_unknown_outcome_keeps_the_connection) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new(client, "other");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2);
    begin_acquire(actor, lock, 20000);
    wait_for(actor, 5000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
    assert_true(dlock_held(other));
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 1);
    fake_fault(FAKE_RELEASE, FAKE_LOST_AFTER, 1);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(held_by(actor, lock));
    begin_release(actor, lock);
    wait_for(actor, 3200);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
    assert_true(dlock_held(other));
}

TEST(an_unknown_outcome_given_up_is_released) {
    dlock_lock *lock = lock_new(client_new("fakesession:"), "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 1);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
}

/* Its request was prepared, the connection broke twice, and it was granted on a third one: that grant counts. */
TEST(a_request_from_before_the_connection_broke_is_granted_on_the_next) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new(client, "m");
    struct actor *actor = actor_new(), *another = actor_new();
    fake_server_cut();
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1);
    begin_acquire(another, other, 5000);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_acquire(actor, lock, 0); /* it waits for that connection */
    assert_false(over(actor));
    actor_park(actor);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(another), 0);
    fake_server_cut();
    begin_release(another, other);
    assert_true(over(another));
    actor_unpark();
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_true(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), 0);
    assert_string_equal(fake_holder("n").token, "");
}

static void wants_a_listener(struct dlock_claim *claim) {
    claim->hints = DLOCK_HINT_LISTEN;
}

TEST(a_holder_listens_if_its_grant_says_so) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *plain = lock_new(client, "plain"), *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(plain, 1000, NULL), 0);
    fake_settle();
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    fake_edit(FAKE_ACQUIRE, wants_a_listener, 1);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_settle();
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    assert_int_equal(fake_connections(), 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOST});
    fake_settle();
    assert_false(dlock_held(lock));
    assert_false(dlock_held(plain));
    fake_server_cut(); /* nothing is left to listen for */
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
}

/* The answer is a grant, and the loss that was told before it was read may be this grant's. */
TEST(a_loss_that_overtakes_its_grant_is_not_forgotten) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *first = lock_new(client, "first"), *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    fake_edit(FAKE_ACQUIRE, wants_a_listener, 1);
    assert_int_equal(dlock_acquire(first, 1000, NULL), 0);
    fake_settle();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOST});
    fake_settle();
    fake_slow_go();
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The answer is busy; in between came a grant, and its loss. */
TEST(a_grant_that_was_lost_before_its_answer_is_no_grant) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *first = lock_new(client, "first"), *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct fake_command asked;
    fake_edit(FAKE_ACQUIRE, wants_a_listener, 1);
    assert_int_equal(dlock_acquire(first, 1000, NULL), 0);
    fake_settle();
    fake_other_acquire("n", 600000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &asked));
    struct dlock_wake wake = {DLOCK_WAKE_GRANTED, asked.name, asked.token, 1000, INT64_MAX, DLOCK_FOREVER};
    fake_wake_push(&wake);
    wake.kind = DLOCK_WAKE_LOST;
    fake_wake_push(&wake);
    fake_settle();
    fake_slow_go();
    fake_settle();
    assert_false(over(actor));
    wait_for(actor, 5000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
}

TEST(a_hint_to_listen_where_nobody_can_is_ignored) {
    dlock_lock *lock = lock_new(client_new("fakeshared:"), "n");
    fake_edit(FAKE_ACQUIRE, wants_a_listener, 1);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_advance_ms(LEASE_MS);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), 0);
}

static void proves_nothing(struct dlock_claim *claim) {
    claim->result = DLOCK_EUNAVAILABLE;
}

/* A grant that nothing proves any more, after a standstill longer than the session, say: the backend does not know. */
TEST(a_grant_without_proof_is_asked_for_again) {
    struct actor *actor = actor_new();
    dlock_lock *lock = lock_new(client_new("fakesession:"), "n");
    fake_edit(FAKE_ACQUIRE, proves_nothing, 1);
    begin_acquire(actor, lock, 5000);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    assert_true(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), 0);
}

/* The session is gone, and every grant with it. */
static void a_dead_connection_loses_what_it_held(const char *uri) {
    struct lost_count lost[2] = {{0}, {0}};
    dlock_client *client = client_new(uri);
    dlock_lock *n = watched_lock(client, "n", &lost[0]), *m = watched_lock(client, "m", &lost[1]);
    assert_int_equal(dlock_acquire(n, 0, NULL), 0);
    assert_int_equal(dlock_acquire(m, 0, NULL), 0);
    uint64_t fence = dlock_fence(n);
    fake_server_cut();
    assert_string_equal(fake_holder("n").token, "");
    fake_advance_ms(THIRD_MS);
    for (int i = 0; i < 2; i++) assert_int_equal(lost[i].calls, 1);
    assert_false(dlock_held(n) || dlock_held(m));
    assert_int_equal(dlock_release(n, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(n, 1000, NULL), 0);
    assert_true(dlock_fence(n) > fence);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(n));
    for (int i = 0; i < 2; i++) assert_int_equal(lost[i].calls, 1);
    assert_int_equal(dlock_release(m, NULL), DLOCK_ELOST);
}

TEST(a_dead_session_is_a_loss) {
    a_dead_connection_loses_what_it_held("fakesession:");
}

TEST(a_dead_connection_of_locks_without_lease_is_a_loss) {
    a_dead_connection_loses_what_it_held("fakeforever:");
}

/* Another thread's request finds the connection dead: all holders are told at once. */
TEST(any_request_that_finds_it_dead_tells_all) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fakesession:");
    dlock_lock *held = watched_lock(client, "n", &lost), *other = lock_new(client, "m");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    fake_server_cut();
    begin_acquire(actor, other, 5000);
    wait_for(actor, 2000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(lost.calls, 1);
    assert_false(dlock_held(held));
    assert_int_equal(dlock_release(held, NULL), DLOCK_ELOST);
    assert_true(held_by(actor, other));
}

/* The session has ended unnoticed: a try finds out, and retries in a new one. */
TEST(a_try_survives_a_dead_session) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new(client, "m");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_server_cut();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 2);
    assert_int_equal(fake_grants("n"), 2);
    fake_other_acquire("m", 600000);
    fake_server_cut();
    assert_int_equal(dlock_acquire(other, 0, NULL), DLOCK_EBUSY);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* The listening descriptor shows the end of the connection: it takes no request to learn of it. */
TEST(a_listener_that_dies_tells_all_at_once) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fakesession:");
    dlock_lock *held = watched_lock(client, "n", &lost), *other = lock_new(client, "m");
    struct actor *actor = actor_new();
    fake_other_acquire("m", 600000);
    begin_acquire(actor, other, 1000);
    fake_advance_ms(1100);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_listeners(), 1);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    fake_server_cut();
    fake_settle();
    assert_int_equal(lost.calls, 1);
    assert_false(dlock_held(held));
    assert_int_equal(fake_connections(), 0);
    assert_int_equal(dlock_release(held, NULL), DLOCK_ELOST);
}

TEST(a_waiter_survives_its_session) {
    dlock_lock *lock = lock_new(client_new("fakesession:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    assert_int_equal(fake_waiters("n"), 1);
    fake_server_cut(); /* its place in the queue is gone as well */
    fake_advance_ms(500);
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&other, "n");
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
}

TEST(a_dead_client_gives_its_lock_to_the_next) {
    struct lost_count lost = {0};
    dlock_lock *first = watched_lock(client_new("fakesession:"), "n", &lost);
    dlock_lock *second = lock_new(client_new("fakesession:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    begin_acquire(actor, second, 60000);
    assert_int_equal(fake_waiters("n"), 1);
    fake_server_cut_holder("n");
    fake_settle();
    assert_int_equal(result(actor), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_release(first, NULL), DLOCK_ELOST);
    assert_true(held_by(actor, second));
}

static dlock_lock *closing;
static unsigned held_when_closed;

static void ask_whether_held(void) {
    held_when_closed += dlock_held(closing);
}

/* With the connection the server ends the grant, and has another client hold the lock: it is lost here before that. */
TEST(a_loss_comes_before_the_connection_is_closed) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.owner = DLOCK_OWNER_HANDLE;
    closing = lock_new_with(client_new("fakesession:"), "n", &options);
    held_when_closed = 0;
    assert_int_equal(dlock_acquire(closing, 0, NULL), 0);
    fake_on_disconnect(ask_whether_held);
    fake_server_cut_holder("n");
    fake_advance_ms(THIRD_MS);
    fake_on_disconnect(NULL);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 1);
    assert_int_equal(held_when_closed, 0);
    assert_int_equal(dlock_release(closing, NULL), DLOCK_ELOST);
}

TEST(renewals_without_answer_keep_the_lock_for_its_lease) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fakesession:"), "n", &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_edit(FAKE_RENEW, proves_nothing, 3);
    fake_advance_ms(LEASE_MS);
    assert_true(dlock_held(lock));
    fake_faults_clear();
    fake_edit(FAKE_RENEW, proves_nothing, 1000);
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_true(lost.at_us > sent_us + valid_us(LEASE_MS));
    fake_settle();
    assert_int_equal(fake_holders("n"), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(close_ends_waits_and_grants) {
    dlock_client *client = client_new("fakesession:");
    dlock_lock *held = lock_new(client, "m"), *waited = lock_new(client, "n");
    struct actor *actor = actor_new();
    taken("n");
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    begin_acquire(actor, waited, 60000);
    assert_int_equal(fake_waiters("n"), 1);
    client_end(client);
    fake_settle(); /* the waiter has left the client, and may still be on its way out */
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
    assert_int_equal(fake_holders("m"), 0);
    assert_int_equal(fake_connections(), 0);
}

/* ---- questions of operators ---- */

static int shown(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    return 0;
}

/* Whatever the result of the inspection: the session lives, and its holders and waiters find out when it does not. */
TEST(a_failed_inspection_ends_nothing) {
    static const enum fake_fault faults[] = {FAKE_LOST_BEFORE, FAKE_LOST_AFTER, FAKE_PROTO};
    struct lost_count lost = {0};
    dlock_client *client = client_new("fakesession:");
    dlock_lock *held = watched_lock(client, "n", &lost), *waiting = lock_new(client, "m");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("m");
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    begin_acquire(actor, waiting, 60000);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fake_fault(FAKE_INSPECT, faults[i], 2);
        assert_int_equal(dlock_inspect(client, "n", shown, NULL, NULL),
                         faults[i] == FAKE_PROTO ? DLOCK_EPROTO : DLOCK_EUNAVAILABLE);
        fake_faults_clear();
        assert_int_equal(lost.calls, 0);
        assert_true(dlock_held(held));
        assert_int_equal(fake_waiters("m"), 1);
    }
    fake_advance_ms(2 * LEASE_MS);
    assert_true(dlock_held(held));
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(dlock_inspect(client, "n", shown, NULL, NULL), 0);
    assert_int_equal(dlock_release(held, NULL), 0);
    fake_other_release(&other, "m");
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
}

/* Where nothing would be lost, an inspection judges the connection: nothing else would. */
TEST(an_inspection_survives_a_dead_session) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fakesession:");
    dlock_lock *lock = watched_lock(client, "n", &lost);
    assert_int_equal(dlock_inspect(client, "n", shown, NULL, NULL), 0);
    fake_server_cut();
    assert_int_equal(dlock_inspect(client, "n", shown, NULL, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_cut();
    fake_advance_ms(THIRD_MS); /* a renewal finds out */
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_inspect(client, "n", shown, NULL, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* ---- grants without a lease -------------------------------------------------------------------------------------- */

TEST(a_grant_without_lease_lasts) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fakeforever:"), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_remaining_ms(lock) == DLOCK_FOREVER);
    fake_jump_ms(600000);
    assert_true(dlock_held(lock));
    fake_settle();
    fake_advance_ms(10 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_true(dlock_remaining_ms(lock) == DLOCK_FOREVER);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TEST(a_fixed_lease_ends_although_the_server_knows_none) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock_with(client_new("fakeforever:"), "n", DLOCK_FIXED_LEASE, 0, &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 9898);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(lost.at_us, sent_us + valid_us(LEASE_MS));
    assert_string_equal(fake_holder("n").token, ""); /* others can have it */
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(a_lock_without_lease_that_is_taken_away_is_lost) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fakeforever:"), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_break("n");
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(a_wake_that_says_look_is_enough) {
    dlock_lock *first = lock_new(client_new("fakeforever:"), "n"), *second = lock_new(client_new("fakeforever:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    uint64_t fence = dlock_fence(first);
    begin_acquire(actor, second, 60000);
    fake_advance_ms(5300);
    assert_false(over(actor));
    /* Once a second, as the backend asked, beside the first one or two. */
    assert_in_range(fake_claims(FAKE_ACQUIRE, "n"), 5, 9);
    fake_log_clear();
    assert_int_equal(dlock_release(first, NULL), 0);
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 1);
    assert_true(fence_by(actor, second) > fence);
}

TEST(a_look_that_never_came_is_made_up_for) {
    dlock_lock *first = lock_new(client_new("fakeforever:"), "n"), *second = lock_new(client_new("fakeforever:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    begin_acquire(actor, second, 60000);
    fake_wakes_hold(true);
    assert_int_equal(dlock_release(first, NULL), 0);
    assert_true(wait_for(actor, 2000) <= 1110000);
    assert_int_equal(result(actor), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
