/* Servers that are slow, pause, or cannot wake any client are no reason to fail; and clients with many locks close in
 * few requests. */
#include "fixture.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- slow servers ------------------------------------------------------------------------------------------------ */

/* The thread's own request is in the batch of another one, and its timeout ends a moment before that batch's. */
TEST(a_wait_for_ever_rides_out_a_pause_in_somebody_elses_batch) {
    enum { THREADS = 3 };
    const int64_t begin_us[THREADS] = {0, 500300, 500400};
    const char *const names[THREADS] = {"a", "b", "c"};
    struct actor *actors[THREADS];
    dlock_lock *locks[THREADS];
    dlock_client *client = client_new("fake:?connections=1&timeout=1s");
    int64_t now_us = 0;
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 60);
    for (int i = 0; i < THREADS; i++) {
        actors[i] = actor_new();
        locks[i] = lock_new(client, names[i]);
        fake_advance_us(begin_us[i] - now_us);
        now_us = begin_us[i];
        begin_acquire(actors[i], locks[i], -1);
    }
    for (int at = 0; at < 5000; at += 50) {
        fake_advance_ms(50);
        for (int i = 0; i < THREADS; i++) assert_false(over(actors[i]));
    }
    fake_faults_clear();
    fake_slow_go();
    for (int i = 0; i < THREADS; i++) {
        wait_for(actors[i], 3000);
        assert_int_equal(result(actors[i]), 0);
        assert_int_equal(release_by(actors[i], locks[i]), 0);
    }
}

/* The server takes 8 ms for an answer; the wait is shorter, or hardly longer. */
TEST(a_short_wait_is_no_outage) {
    const int64_t timeouts_ms[] = {5, 10, 20};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    taken("n");
    begin_acquire(actor, lock, 1000); /* the listener is up from here on */
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    fake_log_clear();
    for (size_t i = 0; i < sizeof timeouts_ms / sizeof *timeouts_ms; i++) {
        int64_t began_us = dlock__now_us();
        fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
        begin_acquire(actor, lock, timeouts_ms[i]);
        assert_int_equal(fake_slow_waiting(), 1);
        fake_advance_ms(8);
        fake_slow_go();
        wait_for(actor, 100);
        assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
        assert_true(dlock__now_us() - began_us <= 100000);
    }
    assert_int_equal(fake_calls(FAKE_CONNECT), 0);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
    assert_int_equal(fake_waiters("n"), 0);
}

/* ---- listeners that cannot be ------------------------------------------------------------------------------------ */

static void nobody_listens_where_that_is_not_supported(const char *uri) {
    dlock_client *client = client_new(uri);
    dlock_lock *lock = lock_new(client, "n"), *bystander = lock_new(client, "held");
    struct actor *actor = actor_new();
    taken("n");
    assert_int_equal(dlock_acquire(bystander, 0, NULL), 0);
    fake_fault(FAKE_LISTEN, FAKE_NOTSUP, 1);
    begin_acquire(actor, lock, -1);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    fake_advance_ms(100);
    fake_log_clear();
    fake_advance_ms(30000);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
    assert_in_range(fake_calls(FAKE_CONNECT), 0, 1); /* the keeper's */
    struct fake_command before, next;
    for (unsigned i = 1; fake_nth(FAKE_ACQUIRE, "n", i, &next); i++) {
        assert_true(fake_nth(FAKE_ACQUIRE, "n", i - 1, &before));
        assert_in_range(next.at_us - before.at_us, 1000, 51000);
        assert_int_equal(next.flags & DLOCK_CLAIM_QUEUE, 0);
    }
    assert_true(fake_claims(FAKE_ACQUIRE, "n") >= 30000 / 51);
    assert_true(dlock_held(bystander));
    fake_server_break("n");
    assert_true(wait_for(actor, 1000) <= 51000);
    assert_int_equal(result(actor), 0);
}

TEST(a_listener_that_is_not_supported_is_not_tried_again) {
    nobody_listens_where_that_is_not_supported("fake:");
}

TEST(nor_is_the_connection_dropped_that_serves_everything) {
    nobody_listens_where_that_is_not_supported("fakesession:");
}

/* ---- many locks -------------------------------------------------------------------------------------------------- */

TEST(closing_releases_many_locks_in_few_requests) {
    enum { LOCKS = 400, BATCH = 256, ANSWER_MS = 300 };
    dlock_client *client = client_new("fake:?timeout=1s&lease=60s");
    struct actor *closer = actor_new();
    for (int i = 0; i < LOCKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(dlock_acquire(lock_new(client, name), 0, NULL), 0);
    }
    assert_int_equal(fake_entries(), LOCKS);
    fake_log_clear();
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    int64_t began_us = dlock__now_us();
    begin_close(closer, client);
    while (!over(closer) && dlock__now_us() - began_us < 2000000) {
        fake_advance_ms(ANSWER_MS);
        fake_slow_go();
        fake_settle();
    }
    assert_true(over(closer));
    assert_true(dlock__now_us() - began_us <= 1000000);
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), (LOCKS + BATCH - 1) / BATCH);
    assert_int_equal(fake_claims(FAKE_RELEASE, NULL), LOCKS);
}

/* A name that is held while an earlier claim of it has still to be released: both are for one request. */
TEST(what_closing_releases_in_one_request_may_be_of_one_name) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 2);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE); /* released again and again for one lease */
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    fake_log_clear();
    client_end(client);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_claims(FAKE_RELEASE, "n"), 2);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(fake_violations(), 0);
}

/* At the deadline the last question hangs in another thread's request: the server's previous answer counts. */
TEST(a_deadline_in_a_request_of_others_is_no_outage) {
    dlock_client *client = client_new("fakepoll:?connections=1&timeout=60s");
    struct actor *waiter = actor_new(), *first = actor_new(), *leader = actor_new();
    taken("n");
    begin_acquire(waiter, lock_new(client, "n"), 5000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 2);
    begin_acquire(first, lock_new(client, "a"), 60000);
    begin_acquire(leader, lock_new(client, "b"), 60000);
    fake_advance_ms(100); /* the waiter's request is queued after that */
    unsigned asked = fake_claims(FAKE_ACQUIRE, "n");
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(first), 0);
    assert_int_equal(fake_slow_waiting(), 1);
    wait_for(waiter, 6000);
    assert_int_equal(result(waiter), DLOCK_ETIMEDOUT);
    assert_int_equal(error_of(waiter)->code, DLOCK_ETIMEDOUT);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(leader), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), asked + 1);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
