/* The keeper looks after several locks: the needs of one must not harm another. */
#include "fixture.h"

#include "state/client.h"

#include <stdio.h>

/* An application that takes a fixed lease every few milliseconds and never releases it: one is always about to end. */
TEST(fixed_leases_that_end_all_the_time_starve_no_renewal) {
    enum { FIXED = 16, STEP_MS = 8, OWN_MS = 1000 };
    struct lost_count lost = {0};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = watched_lock_with(client, "n", 0, OWN_MS, &lost), *fixed[FIXED];
    options.owner = DLOCK_OWNER_HANDLE;
    options.flags = DLOCK_FIXED_LEASE;
    options.lease_ms = 100;
    for (int i = 0; i < FIXED; i++) {
        char name[16];
        snprintf(name, sizeof name, "fixed%d", i);
        fixed[i] = lock_new_with(client, name, &options);
    }
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    for (int at = 0; at < 2 * OWN_MS; at += STEP_MS) {
        dlock_lock *next = fixed[at / STEP_MS % FIXED];
        dlock_release(next, NULL);
        assert_int_equal(dlock_acquire(next, 0, NULL), 0);
        fake_advance_ms(STEP_MS);
    }
    assert_int_equal(lost.calls, 0);
    assert_true(dlock_held(lock));
    assert_in_range(fake_claims(FAKE_RENEW, "n"), 5, 14);
}

/* One stalled connection, the keeper's: a lock that is granted during the stall is renewed in time. */
TEST(a_lock_granted_while_a_renewal_hangs_is_renewed_in_time) {
    struct lost_count lost_long = {0}, lost_short = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *longer = watched_lock_with(client, "long", 0, LEASE_MS, &lost_long);
    dlock_lock *shorter = watched_lock_with(client, "short", 0, 600, &lost_short);
    assert_int_equal(dlock_acquire(longer, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(dlock_acquire(shorter, 0, NULL), 0);
    fake_advance_ms(3000);
    assert_true(dlock_held(shorter));
    assert_true(dlock_held(longer));
    assert_int_equal(lost_short.calls, 0);
    assert_int_equal(lost_long.calls, 0);
}

/* Where renewal is hopeless the word comes at the end of each lease, not at the end of the request that hangs. */
TEST(losses_are_told_in_time_while_a_renewal_hangs) {
    struct lost_count lost_long = {0}, lost_short = {0};
    dlock_client *client = client_new("fake:?timeout=60s");
    dlock_lock *longer = watched_lock_with(client, "long", 0, LEASE_MS, &lost_long);
    int64_t long_us = dlock__now_us();
    assert_int_equal(dlock_acquire(longer, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1000);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    dlock_lock *shorter = watched_lock_with(client, "short", 0, 600, &lost_short);
    int64_t short_us = dlock__now_us();
    assert_int_equal(dlock_acquire(shorter, 0, NULL), 0);
    fake_advance_ms(600);
    assert_int_equal(lost_short.calls, 1);
    assert_int_equal(lost_short.at_us, short_us + valid_us(600));
    assert_int_equal(dlock_release(shorter, NULL), DLOCK_ELOST);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost_long.calls, 1);
    assert_int_equal(lost_long.at_us, long_us + valid_us(LEASE_MS));
    assert_int_equal(dlock_release(longer, NULL), DLOCK_ELOST);
}

/* The machine sleeps for a part of that. */
TEST(losses_are_told_in_time_after_a_suspend_while_a_renewal_hangs) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:?timeout=60s");
    dlock_lock *lock = watched_lock_with(client, "n", 0, LEASE_MS, &lost);
    int64_t begun_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1000);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_suspend_ms(LEASE_MS / 2 + 500); /* the keeper comes back after the end of the lease, then */
    fake_settle();
    fake_advance_us(begun_us + valid_us(LEASE_MS) - dlock__now_us());
    assert_int_equal(lost.calls, 1);
    assert_int_equal(lost.at_us, begun_us + valid_us(LEASE_MS));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* A short lease that is never renewed does not shorten the time that renewals get: not even a slow server's. */
TEST(a_fixed_lease_cuts_no_renewal_short) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct fake_command command = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    options.flags = DLOCK_FIXED_LEASE;
    options.lease_ms = 100;
    lock_new_with(client, "rate", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(THIRD_MS);
    fake_last(FAKE_RENEW, "n", &command);
    assert_in_range(command.timeout_ms, 1000, 3000);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* The handle is gone, and no lock of its lease will ever have to be renewed. */
TEST(a_freed_handle_cuts_no_renewal_short) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct fake_command command = {0};
    dlock_client *client = client_new("fake:");
    options.lease_ms = DLOCK_LEASE_MIN_MS;
    lock_end(lock_new_with(client, "short", &options));
    assert_int_equal(dlock_acquire(lock_new(client, "n"), 0, NULL), 0);
    fake_advance_ms(THIRD_MS);
    fake_last(FAKE_RENEW, "n", &command);
    assert_in_range(command.timeout_ms, 1000, 3000);
}

enum { TRIP_MS = 50, HEALTHY_MS = 3000 };

/* Time passes with a server to which the keeper's connects and renewals take TRIP_MS each. `shorter` is acquired again
 * whenever it was lost. */
static void live_far_away(int64_t ms, dlock_lock *shorter) {
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 10000);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 10000);
    for (int64_t waited = 0; ms > 0; ms--) {
        fake_advance_ms(1);
        waited = fake_slow_waiting() > 0 ? waited + 1 : 0;
        if (waited == TRIP_MS) {
            fake_slow_go();
            fake_settle();
            waited = 0;
        }
        if (!shorter || dlock_held(shorter)) continue;
        dlock_release(shorter, NULL);
        fake_settle();                   /* else another thread may have the connection, and a new one takes time */
        dlock_acquire(shorter, 0, NULL); /* busy, while the server still has the one that was lost */
    }
    fake_faults_clear();
}

/* Renewal beside a foreign short lease: too short for a server that far away, but healthy locks live there. */
static void a_lock_outlives_renewals_beside_a_short_handle(bool held) {
    struct lost_count lost = {0};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client = client_new("fake:");
    options.lease_ms = DLOCK_LEASE_MIN_MS;
    dlock_lock *lock = watched_lock_with(client, "n", 0, HEALTHY_MS, &lost),
               *shorter = lock_new_with(client, "short", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    if (held) assert_int_equal(dlock_acquire(shorter, 0, NULL), 0);
    live_far_away(2 * HEALTHY_MS, held ? shorter : NULL);
    assert_int_equal(lost.calls, 0);
    assert_true(dlock_held(lock));
    assert_int_equal(fake_grants("n"), 1);
}

TEST(a_short_handle_that_was_never_acquired_costs_no_lock) {
    a_lock_outlives_renewals_beside_a_short_handle(false);
}

TEST(a_short_lock_that_cannot_be_renewed_costs_no_other_lock) {
    a_lock_outlives_renewals_beside_a_short_handle(true);
}

/* ---- connections ---- */

/* The server accepts no more connections, or this process has no descriptors left: existing connections still work. */
TEST(a_lock_lives_on_where_no_connection_can_be_opened) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = watched_lock_with(client, "n", 0, LEASE_MS, &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 1000);
    fake_advance_ms(5 * LEASE_MS);
    assert_int_equal(lost.calls, 0);
    assert_true(dlock_held(lock));
    assert_int_equal(fake_connections(), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* Also when the only one is in a request just then. */
TEST(a_renewal_waits_for_the_only_connection_that_there_is) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:?connections=1&timeout=60s");
    dlock_lock *lock = watched_lock_with(client, "n", 0, LEASE_MS, &lost), *other = lock_new(client, "other");
    struct actor *actor = actor_new(), *next = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 1000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 2);
    fake_advance_ms(THIRD_MS - 100);
    begin_acquire(actor, other, 50000);
    begin_acquire(next, lock_new(client, "next"), 50000);
    fake_advance_ms(200);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 1); /* before what had been waiting for longer */
    assert_int_equal(fake_slow_waiting(), 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(next), 0);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(release_by(actor, other), 0);
}

TEST(short_holds_need_one_connection_and_renewals_another) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        fake_advance_ms(THIRD_MS / 4);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_int_equal(fake_connections(), 1);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_connections(), 2);
}

/* ---- the machine was asleep ---- */

TEST(a_wait_ends_when_the_machine_is_awake_again) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new(), *longer = actor_new();
    fake_other_acquire("n", 600000);
    begin_acquire(longer, lock, 500000);
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(1000);
    fake_suspend_ms(120000);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_false(over(longer));
    fake_suspend_ms(400000);
    fake_settle();
    assert_int_equal(result(longer), DLOCK_ETIMEDOUT);
}

TEST(so_does_one_without_a_thread) {
    struct done done = {0};
    dlock_lock *lock = lock_new_with(client_new("fake:"), "n", &by_handle);
    fake_other_acquire("n", 600000);
    begin_async(lock, 60000, &done);
    fake_advance_ms(1000);
    fake_suspend_ms(120000);
    fake_settle();
    assert_done(&done, DLOCK_ETIMEDOUT);
}

/* ---- what it costs: at how many acquisitions is looked, and not how long that takes ---- */

enum { MANY = 900, LONG_MS = 60000 };

static void hold_many(dlock_client *client) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = LONG_MS;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "many%d", i);
        assert_int_equal(dlock_acquire(lock_new_with(client, name, &options), 0, NULL), 0);
    }
}

static uint64_t looks(dlock_client *client) {
    return settled_count(client, &client->timers.looks);
}

TEST(a_wake_up_looks_at_no_other_lock) {
    enum { WAKES = 50 };
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct dlock_wake wake = {.kind = DLOCK_WAKE_LOOK, .name = "another"};
    hold_many(client);
    fake_other_acquire("n", 600000);
    begin_acquire(actor, lock, 1000);
    uint64_t before = looks(client);
    for (int i = 0; i < WAKES; i++) {
        fake_wake_push(&wake);
        fake_settle();
    }
    assert_int_equal(fake_claims(FAKE_WAKE, NULL), WAKES);
    assert_int_equal(looks(client), before);
    wait_for(actor, 1200);
}

/* Nor does a round that renews others: but for a few, which may be due soon enough to go along. */
TEST(a_renewal_looks_at_few_locks_beside_its_own) {
    enum { BESIDE = 32 };
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *shorter = watched_lock_with(client, "short", 0, 1000, &lost);
    hold_many(client);
    assert_int_equal(dlock_acquire(shorter, 0, NULL), 0);
    uint64_t before = looks(client);
    fake_advance_ms(LONG_MS);
    unsigned renewals = fake_calls(FAKE_RENEW), renewed = fake_claims(FAKE_RENEW, NULL);
    assert_in_range(looks(client) - before, renewed, renewed + renewals * BESIDE);
    assert_in_range(renewals, LONG_MS / 1000 * 3, LONG_MS / 1000 * 3 + 20 + 3 * MANY / DLOCK__BATCH);
    assert_in_range(fake_claims(FAKE_RENEW, "many0"), 2, 6);
    assert_int_equal(lost.calls, 0);
}

/* A wait that is as good as over brings up no listener, and so leaves no back-off to the long waits behind it. */
TEST(a_short_wait_brings_up_no_listener) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 600000);
    begin_acquire(actor, lock, 10);
    wait_for(actor, 100);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1200);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
