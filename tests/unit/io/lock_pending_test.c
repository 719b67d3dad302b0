/* Backends whose connections carry one claim each, and whose waits are blocking requests. */
#include "fixture.h"

#include <stdio.h>

enum { N = 12 };

TEST(a_cycle_is_two_requests_on_one_connection) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 3);
    assert_int_equal(fake_calls(FAKE_RELEASE), 3);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
}

/* A while after its last release, not between two claims. */
TEST(who_is_idle_is_told_to_rest) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    for (int i = 1; i <= 2; i++) {
        for (int j = 0; j < 3; j++) {
            assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
            fake_advance_ms(LEASE_MS);
            assert_int_equal(dlock_release(lock, NULL), 0);
            fake_advance_ms(LEASE_MS / 4);
        }
        assert_int_equal(fake_calls(FAKE_REST), i - 1);
        fake_advance_ms(LEASE_MS / 8);
        assert_int_equal(fake_calls(FAKE_REST), i);
        fake_advance_ms(10 * LEASE_MS);
        assert_int_equal(fake_calls(FAKE_REST), i);
    }
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_fault(FAKE_REST, FAKE_LOST_BEFORE, 1);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_connections(), 0);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 2);
}

/* However many `connections` there may be; a second after their last use no more than these stay. */
TEST(every_claim_has_a_connection) {
    dlock_client *client = client_new("fakepending:?connections=2");
    dlock_lock *locks[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(dlock_acquire(locks[i] = lock_new(client, name), 0, NULL), 0);
    }
    assert_int_equal(fake_connections(), N);
    fake_advance_ms(3 * LEASE_MS);
    for (int i = 0; i < N; i++) assert_true(dlock_held(locks[i]));
    for (int i = 0; i < N; i++) assert_int_equal(dlock_release(locks[i], NULL), 0);
    for (int turn = 0; turn < 5; turn++) {
        fake_advance_ms(900);
        assert_int_equal(dlock_acquire_all(locks, N, 1000, NULL), 0);
        assert_int_equal(dlock_release_all(locks, N, NULL), 0);
    }
    assert_int_equal(fake_calls(FAKE_CONNECT), N);
    fake_advance_ms(900);
    assert_int_equal(fake_connections(), N);
    fake_advance_ms(200);
    assert_int_equal(fake_connections(), 2);
    assert_int_equal(dlock_acquire(locks[0], 0, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), N);
}

TEST(a_try_leaves_its_connection_free) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct fake_grant other = taken("n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(fake_waiters("n"), 0);
    fake_other_release(&other, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
}

/* One request, whatever the time it takes; the answer comes by the connection's descriptor. */
TEST(a_wait_is_one_request) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 3600000);
    fake_advance_ms(600000);
    assert_false(over(actor));
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_true(held_by(actor, lock));
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
    assert_int_equal(release_by(actor, lock), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(fake_grants("n"), 2);
}

TEST(clients_are_served_in_order) {
    dlock_lock *locks[N];
    struct actor *actors[N];
    struct fake_grant other = taken("n");
    for (int i = 0; i < N; i++) {
        locks[i] = lock_new(client_new("fakepending:"), "n");
        begin_acquire(actors[i] = actor_new(), locks[i], 60000);
    }
    fake_other_release(&other, "n");
    for (int i = 0; i < N; i++) {
        fake_settle();
        assert_int_equal(result(actors[i]), 0);
        if (i + 1 < N) assert_false(over(actors[i + 1]));
        assert_int_equal(release_by(actors[i], locks[i]), 0);
    }
}

TEST(a_wait_given_up_leaves_the_queue) {
    dlock_client *client = client_new("fakepending:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 1000);
    assert_int_equal(fake_waiters("n"), 1);
    assert_in_range(wait_for(actor, 2000), 900000, 1100000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_waiters("n"), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 1); /* then its connection is closed */
    begin_acquire(actor, lock, 60000);
    assert_int_equal(dlock_cancel(lock), 0);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
    assert_int_equal(fake_connections(), 0);
    fake_other_release(&other, "n");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The answer lies in the socket when the wait ends. */
TEST(a_grant_in_a_cancelled_wait_is_given_back) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    assert_int_equal(fake_holders("n"), 1);
    assert_int_equal(dlock_cancel(lock), 0);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(fake_holders("n"), 0);
    fake_wakes_hold(false);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(close_ends_waits_and_grants) {
    dlock_client *client = client_new("fakepending:");
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

/* The descriptor shows the end of a connection: only its holder is told, and at once. */
TEST(a_connection_that_breaks_takes_its_grant_along) {
    struct lost_count lost[2] = {{0}, {0}};
    dlock_lock *first = watched_lock(client_new("fakepending:"), "n", &lost[0]);
    dlock_lock *other = watched_lock(client_new("fakepending:"), "m", &lost[1]);
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    uint64_t fence = dlock_fence(first);
    fake_server_cut_holder("n");
    fake_settle();
    assert_int_equal(lost[0].calls, 1);
    assert_int_equal(lost[1].calls, 0);
    assert_false(dlock_held(first));
    assert_true(dlock_held(other));
    assert_int_equal(dlock_release(first, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    assert_true(dlock_fence(first) > fence);
    assert_int_equal(dlock_release(first, NULL), 0);
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
    closing = lock_new_with(client_new("fakepending:"), "n", &options);
    held_when_closed = 0;
    assert_int_equal(dlock_acquire(closing, 0, NULL), 0);
    fake_on_disconnect(ask_whether_held);
    fake_server_cut_holder("n");
    fake_settle();
    fake_on_disconnect(NULL);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 1);
    assert_int_equal(held_when_closed, 0);
    assert_int_equal(dlock_release(closing, NULL), DLOCK_ELOST);
}

/* Of a lock that is taken again and again only a grant that lasts is watched, long before it would be renewed. */
TEST(a_grant_that_lasts_is_watched) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fakepending:"), "n", &lost);
    for (int i = 0; i < 3; i++) {
        if (i) assert_int_equal(dlock_release(lock, NULL), 0);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    }
    fake_server_cut_holder("n");
    fake_advance_ms(20);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* It retries after a moment: the server may end each wait at once. */
TEST(a_waiter_survives_its_connection) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    fake_server_cut();
    fake_advance_ms(49);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 1);
    fake_advance_ms(450);
    assert_false(over(actor));
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(a_request_that_ends_without_grant_is_sent_again) {
    const struct dlock_wake look = {.kind = DLOCK_WAKE_LOOK};
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    begin_acquire(actor, lock, 60000);
    fake_server_forget(); /* the request, and the other one's grant */
    fake_wake_push(&look);
    fake_advance_ms(100);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The message ends the request, whatever it says. */
TEST(a_grant_that_makes_no_sense_is_asked_for_again) {
    const struct dlock_wake nonsense[] = {{.kind = DLOCK_WAKE_GRANTED, .kept_ms = LEASE_MS},
                                          {.kind = DLOCK_WAKE_GRANTED, .fence = 7}};
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    for (unsigned i = 0; i < 2; i++) {
        struct fake_grant other = taken("n");
        begin_acquire(actor, lock, DLOCK_FOREVER);
        fake_wakes_hold(true);
        fake_wake_push(&nonsense[i]);
        fake_other_release(&other, "n");
        fake_wakes_hold(false);
        wait_for(actor, 2000);
        assert_int_equal(result(actor), 0);
        assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
        assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2 * i + 2);
        assert_int_equal(release_by(actor, lock), 0);
    }
}

/* The connection is closed, and with it whatever the server made of the request. */
TEST(an_acquire_without_answer_leaves_nothing) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2); /* the first one on a connection that may have been dead already */
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    assert_int_equal(fake_holders("n"), 0);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 1);
    struct actor *actor = actor_new();
    begin_acquire(actor, lock, 5000);
    wait_for(actor, 2000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(a_release_without_answer_has_released) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    for (int i = 0; i < 2; i++) {
        struct actor *actor = actor_new();
        assert_int_equal(acquire_by(actor, lock, 0), 0);
        fake_fault(FAKE_RELEASE, i ? FAKE_LOST_BEFORE : FAKE_LOST_AFTER, 1);
        begin_release(actor, lock);
        wait_for(actor, 3200);
        assert_int_equal(result(actor), 0);
        assert_int_equal(fake_holders("n"), 0);
    }
    assert_int_equal(fake_calls(FAKE_RELEASE), 2);
}

/* Renewals prove that the server is there. One that is not answered costs the lock only at its end, unless the
 * connection breaks. */
static void busy_renewal(struct dlock_claim *claim) {
    claim->result = DLOCK_EUNAVAILABLE;
}

TEST(renewals_without_answer_keep_the_lock_for_its_lease) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fakepending:"), "n", &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_edit(FAKE_RENEW, busy_renewal, 3);
    fake_advance_ms(LEASE_MS);
    assert_true(dlock_held(lock));
    fake_faults_clear();
    fake_edit(FAKE_RENEW, busy_renewal, 1000);
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_true(lost.at_us > sent_us + valid_us(LEASE_MS));
    fake_settle();
    assert_int_equal(fake_holders("n"), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(a_renewal_whose_connection_breaks_is_a_loss) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fakepending:");
    dlock_lock *lock = watched_lock(client, "n", &lost), *other = lock_new(client, "m");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(fake_holders("n"), 0);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(dlock_held(other));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* Only the session that hangs costs its lock, whatever the order of the names. */
TEST(a_session_that_hangs_costs_no_other_lock) {
    static const char *const names[] = {"a", "b", "c"};
    for (size_t hanging = 0; hanging < 3; hanging++) {
        struct lost_count lost[3] = {{0}, {0}, {0}};
        dlock_client *client = client_new("fakepending:");
        dlock_lock *locks[3];
        for (size_t i = 0; i < 3; i++) {
            locks[i] = watched_lock(client, names[i], &lost[i]);
            assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
        }
        fake_renewals_hang(names[hanging]);
        fake_advance_ms(3 * LEASE_MS);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(lost[i].calls, i == hanging);
            assert_int_equal(dlock_release(locks[i], NULL), i == hanging ? DLOCK_ELOST : 0);
        }
        fake_renewals_hang(NULL);
    }
}

/* However many hang, and come earlier by name. */
TEST(sessions_that_hang_cost_no_other_lock) {
    enum { HANGING = 14 };
    struct lost_count lost[HANGING + 1] = {{0}};
    dlock_client *client = client_new("fakepending:");
    for (int i = 0; i <= HANGING; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", i < HANGING ? "hangs" : "sound", i);
        assert_int_equal(dlock_acquire(watched_lock(client, name, &lost[i]), 0, NULL), 0);
    }
    fake_renewals_hang("hangs");
    fake_advance_ms(3 * LEASE_MS);
    for (int i = 0; i <= HANGING; i++) assert_int_equal(lost[i].calls, i < HANGING);
    fake_renewals_hang(NULL);
}

/* Nor one that is acquired while it hangs, though its lease is much shorter. */
TEST(a_session_that_hangs_costs_no_later_lock) {
    struct lost_count hung_lost = {0}, lost = {0};
    dlock_client *client = client_new("fakepending:?timeout=30s");
    dlock_lock *hung = watched_lock_with(client, "hung", 0, 120000, &hung_lost);
    dlock_lock *lock = watched_lock_with(client, "n", 0, 1000, &lost);
    assert_int_equal(dlock_acquire(hung, 0, NULL), 0);
    fake_renewals_hang("hung");
    fake_advance_ms(60000);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_advance_ms(1200);
        assert_int_equal(lost.calls, 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    fake_renewals_hang(NULL);
}

/* A release that comes while its lock is being renewed waits for the connection. */
TEST(a_release_waits_for_the_renewal) {
    dlock_lock *lock = lock_new(client_new("fakepending:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_release(actor, lock);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_holders("n"), 0);
}

/* Two connections of which a release finds that they have ended, and closes them. Of the next, one gets the number of
 * a descriptor that the other still remembers. */
TEST(the_next_file_of_that_number_stays_watched) {
    dlock_client *client = client_new("fakepending:?connections=2");
    dlock_lock *a = lock_new(client, "a"), *b = lock_new(client, "b"), *n = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    for (int i = 0; i < 2; i++) {
        if (i) assert_int_equal(dlock_release_all((dlock_lock *[]){a, b}, 2, NULL), 0);
        assert_int_equal(dlock_acquire(a, 0, NULL), 0);
        assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    }
    fake_server_cut(); /* not watched yet, so soon after their last use */
    assert_int_equal(dlock_release(a, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(b, NULL), DLOCK_ELOST);
    begin_acquire(actor, n, 60000);
    assert_int_equal(dlock_acquire(a, 1000, NULL), 0);
    fake_other_release(&other, "n");
    fake_settle();
    assert_true(over(actor));
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, n), 0);
    assert_int_equal(dlock_release(a, NULL), 0);
}

TEST(readers_share_and_writers_become_readers) {
    struct dlock_options shared = DLOCK_OPTIONS_INIT;
    shared.mode = DLOCK_SHARED;
    dlock_lock *writer = lock_new(client_new("fakepending:"), "n");
    dlock_lock *reader = lock_new_with(client_new("fakepending:"), "n", &shared);
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(writer, 0, NULL), 0);
    begin_acquire(actor, reader, 60000);
    assert_int_equal(fake_waiters("n"), 1);
    assert_int_equal(dlock_downgrade(writer, NULL), 0);
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_holders("n"), 2);
    assert_int_equal(release_by(actor, reader), 0);
    assert_int_equal(dlock_release(writer, NULL), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
