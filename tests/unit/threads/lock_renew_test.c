/* Renewal: on time, in one request, through failures, and never of something that is not ours. */
#include "fixture.h"

#include <stdatomic.h>
#include <stdio.h>

TEST(a_lock_is_renewed_at_a_third_of_its_lease) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    struct fake_command command;
    int64_t began = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_true(fake_last(FAKE_RENEW, "n", &command));
    assert_in_range(command.at_us - began, 3000000, 3334000);
    assert_int_equal(command.lease_ms, LEASE_MS);
    assert_string_equal(command.token, fake_holder("n").token);
    assert_int_equal(dlock_remaining_ms(lock), (command.at_us + valid_us(LEASE_MS) - dlock__now_us()) / 1000);

    uint64_t fence = dlock_fence(lock);
    fake_advance_ms(20 * LEASE_MS);
    assert_in_range(fake_calls(FAKE_RENEW), 59, 70);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TEST(all_locks_of_a_client_are_renewed_in_one_request) {
    enum { N = 50 };
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i * 7 % N);
        locks[i] = lock_new(client, name);
        assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
        fake_advance_ms(10);
    }
    fake_advance_ms(30000 - 10 * N);
    assert_in_range(fake_calls(FAKE_RENEW), 8, 11);
    assert_int_equal(fake_claims(FAKE_RENEW, NULL), N * fake_calls(FAKE_RENEW));
    for (int i = 0; i < N; i++) assert_true(dlock_held(locks[i]));
}

/* More than fit into one request. */
enum { MANY = 600 };

static void hold_many(dlock_lock **locks) {
    dlock_client *client = client_new("fake:");
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        locks[i] = lock_new(client, name);
        assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
    }
}

TEST(more_locks_than_a_batch_takes_are_renewed_all_the_same) {
    dlock_lock *locks[MANY];
    hold_many(locks);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 3);
    assert_int_equal(fake_claims(FAKE_RENEW, NULL), MANY);
    fake_advance_ms(2 * LEASE_MS);
    for (int i = 0; i < MANY; i++) assert_true(dlock_held(locks[i]));
}

TEST(short_leases_are_kept_alive_too) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=100ms"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    for (int i = 0; i < 100; i++) {
        fake_advance_ms(20);
        assert_true(dlock_held(lock));
    }
    assert_int_equal(fake_grants("n"), 1);
}

TEST(an_outage_until_the_end_of_the_lease_loses_the_lock) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_down(true);
    fake_log_clear();
    fake_advance_us(valid_us(LEASE_MS) - 1);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 0);
    /* Tried all the time, with back-off. */
    assert_in_range(fake_calls(FAKE_CONNECT), 5, 60);
    fake_advance_us(1);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(lost.at_us, sent_us + valid_us(LEASE_MS));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    fake_server_down(false);
    fake_log_clear();
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 1);
}

TEST(a_renewal_that_succeeds_late_is_good) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    fake_advance_ms(3000);
    fake_server_down(true);
    fake_advance_ms(5700);
    fake_server_down(false);
    fake_advance_ms(1150); /* the longest pause between two tries is 1 s */
    assert_true(dlock_remaining_ms(lock) > 8000);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(fake_grants("n"), 1);
}

TEST(renewal_survives_one_failure) {
    static const enum fake_fault faults[] = {FAKE_LOST_BEFORE, FAKE_LOST_AFTER, FAKE_SLOW, FAKE_PROTO, FAKE_AUTH};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct lost_count lost = {0};
        dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_fault(FAKE_RENEW, faults[i], 1);
        fake_advance_ms(3 * LEASE_MS);
        assert_int_equal(fake_faults_left(), 0);
        assert_true(dlock_held(lock));
        assert_int_equal(lost.calls, 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
}

TEST(a_lock_that_the_server_forgot_is_lost_at_the_next_renewal) {
    struct lost_count lost = {0}, other = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = watched_lock(client, "n", &lost), *bystander = watched_lock(client, "other", &other);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(bystander, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    fake_server_break("n");
    fake_advance_ms(THIRD_MS);
    assert_int_equal(lost.calls, 1);
    assert_false(dlock_held(lock));
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 1);
    assert_true(dlock_held(bystander));
    assert_int_equal(other.calls, 0);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_fence(lock) > fence);
}

/* A renewal is in flight when the lock is released and acquired again: its answer is about the earlier acquisition. */
TEST(a_renewal_in_flight_means_nothing_after_the_release) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    char first[DLOCK_TOKEN_MAX + 1], second[DLOCK_TOKEN_MAX + 1];
    assert_int_equal(dlock_token(lock, first, sizeof first, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_token(lock, second, sizeof second, NULL), 0);
    assert_string_not_equal(first, second);
    fake_slow_go();
    fake_settle();
    struct fake_command command;
    assert_true(fake_last(FAKE_RENEW, "n", &command));
    assert_string_equal(command.token, first);
    assert_int_equal(command.result, DLOCK_ELOST);
    assert_int_equal(lost.calls, 0);
    assert_true(dlock_held(lock));
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_string_equal(fake_holder("n").token, second);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* The other way round: the server renews before it releases, and the answer comes last. */
TEST(a_renewal_answered_after_the_release_holds_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_slow_go();
    fake_settle();
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_remaining_ms(lock), 0);
    fake_log_clear();
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
}

TEST(renewal_needs_no_connection_of_the_pool) {
    dlock_client *client = client_new("fake:?connections=1&timeout=60s");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new(client, "other");
    struct actor *actor = actor_new();
    struct fake_command acquired, renewed;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(actor, other, 50000);
    fake_advance_ms(3 * LEASE_MS);
    assert_false(over(actor));
    assert_true(dlock_held(lock));
    assert_true(fake_last(FAKE_ACQUIRE, "n", &acquired));
    assert_true(fake_last(FAKE_RENEW, "n", &renewed));
    assert_int_not_equal(acquired.conn, renewed.conn);
    fake_slow_go();
    wait_for(actor, 2000); /* its grant has ended by now: it sends a new request */
    assert_int_equal(result(actor), 0);
}

static void keep_2_s(struct dlock_claim *claim) {
    claim->kept_ms = 2000;
}

TEST(a_renewal_granted_for_less_is_repeated_sooner) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_edit(FAKE_RENEW, keep_2_s, 1000);
    fake_advance_ms(LEASE_MS);
    assert_true(dlock_held(lock));
    assert_true(dlock_remaining_ms(lock) <= valid_us(2000) / 1000);
    fake_advance_ms(LEASE_MS);
    assert_true(dlock_held(lock));
    fake_server_down(true);
    fake_advance_ms(1979);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(many_renewals_granted_for_less_leave_nobody_out) {
    dlock_lock *locks[MANY];
    hold_many(locks);
    fake_edit(FAKE_RENEW, keep_2_s, 1000000);
    fake_advance_ms(2 * LEASE_MS);
    for (int i = 0; i < MANY; i++) assert_true(dlock_held(locks[i]));
    assert_in_range(fake_calls(FAKE_RENEW), 3, 3 * 2 * LEASE_MS * 3 / 2000 + 6);
}

static char last_line[512];

static void keep_line(int level, const char *line, void *arg) {
    (void)arg;
    assert_true(level >= DLOCK_LOG_ERROR && level <= DLOCK_LOG_DEBUG);
    assert_null(strchr(line, '\n'));
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void refuse(struct dlock_claim *claim) {
    claim->result = DLOCK_EAUTH;
}

/* … of the call and of each claim: the errors that a THREADSAFE backend reports for its claims are not the call's
 * result. */
TEST(the_cause_of_a_failed_renewal_is_logged) {
    static const struct {
        const char *uri;
        enum fake_fault fault;
        void (*edit)(struct dlock_claim *claim);
        const char *line;
    } cases[] = {
        {"fake:", FAKE_LOST_BEFORE, NULL, "renewal of 1 lock(s) failed, such as \"n\": fake server: no answer"},
        {"fakesession:", FAKE_LOST_BEFORE, NULL, "renewal of 1 lock(s) failed, such as \"n\": fake server: no answer"},
        {"fakesession:", FAKE_EDIT, refuse,
         "renewal of 1 lock(s) failed, such as \"n\": the server refused the credentials or the rights"},
        {"fake:", FAKE_PASS, NULL,
         "renewal of 1 lock(s) failed, such as \"n\": the server no longer has the grant: it was broken, forgotten, or "
         "has ended"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
        options.log = keep_line;
        dlock_client *client;
        assert_int_equal(dlock_open(cases[i].uri, &options, &client, NULL), 0);
        dlock_lock *lock = lock_new_with(client, "n", &by_handle);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        last_line[0] = '\0';
        if (cases[i].fault == FAKE_PASS)
            fake_server_forget();
        else if (cases[i].edit)
            fake_edit(FAKE_RENEW, cases[i].edit, 1);
        else
            fake_fault(FAKE_RENEW, cases[i].fault, 1);
        fake_advance_ms(THIRD_MS);
        assert_string_equal(last_line, cases[i].line);
        dlock_release(lock, NULL);
        lock_end(lock);
        dlock_close(client);
    }
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
