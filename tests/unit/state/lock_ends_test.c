/* How a wait ends: its last milliseconds, and which error says that they are over. */
#include "fixture.h"

static const char *const everybody[] = {"fake:?timeout=1s", "fakepoll:?timeout=1s", "fakesession:?timeout=1s",
                                        "fakeforever:?timeout=1s"};
enum { EVERYBODY = sizeof everybody / sizeof *everybody };

/* One thread that waits for `timeout_ms` for what another client holds. */
struct wait {
    dlock_lock *lock;
    struct actor *actor;
    struct fake_grant other;
    int64_t began_us;
};

static void wait_begin(struct wait *wait, const char *uri, const char *name, int64_t timeout_ms) {
    wait->lock = lock_new(client_new(uri), name);
    wait->actor = actor_new();
    wait->other = taken(name);
    wait->began_us = dlock__now_us();
    begin_acquire(wait->actor, wait->lock, timeout_ms);
    assert_false(over(wait->actor));
}

static void assert_ended(struct wait *wait, int code, int64_t timeout_ms) {
    wait_for(wait->actor, timeout_ms + 100);
    assert_int_equal(result(wait->actor), code);
    assert_int_equal(error_of(wait->actor)->code, code);
    assert_in_range(dlock__now_us() - wait->began_us, timeout_ms * 1000, (timeout_ms + 100) * 1000);
}

/* ---- busy is not away -------------------------------------------------------------------------------------------- */

TEST(an_open_question_at_the_deadline_is_no_outage) {
    static const char *const names[EVERYBODY] = {"a", "b", "c", "d"};
    for (int i = 0; i < EVERYBODY; i++) {
        struct wait wait;
        wait_begin(&wait, everybody[i], names[i], 500);
        fake_advance_ms(400);
        fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
        fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK}); /* clients that do not poll ask now */
        assert_ended(&wait, DLOCK_ETIMEDOUT, 500);
        assert_non_null(strstr(error_of(wait.actor)->message, "held by somebody else"));
        fake_faults_clear();
        fake_advance_ms(2000);
    }
}

TEST(nor_is_one_that_the_server_works_on) {
    struct wait wait;
    wait_begin(&wait, "fakepoll:", "n", 500);
    fake_advance_ms(430);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_other_release(&wait.other, "n");
    assert_ended(&wait, DLOCK_ETIMEDOUT, 500);
    fake_advance_ms(30000);
    assert_string_equal(fake_holder("n").token, ""); /* the grant that it missed has been released */
}

TEST(a_connection_that_broke_is_one) {
    struct wait wait;
    wait_begin(&wait, "fakepoll:", "n", 500);
    fake_advance_ms(200);
    fake_server_down(true);
    assert_ended(&wait, DLOCK_EUNAVAILABLE, 500);
    fake_server_down(false);
}

TEST(so_is_a_silence_of_a_whole_timeout) {
    struct wait wait;
    wait_begin(&wait, "fakepoll:?timeout=200ms", "n", 900);
    fake_advance_ms(200);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    assert_ended(&wait, DLOCK_EUNAVAILABLE, 900);
}

TEST(an_outage_that_is_over_counts_no_more) {
    struct wait wait;
    wait_begin(&wait, "fakepoll:", "n", 3000);
    fake_advance_ms(200);
    fake_server_cut();
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 2);
    fake_advance_ms(2750);
    assert_int_equal(fake_faults_left(), 0);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    assert_ended(&wait, DLOCK_ETIMEDOUT, 3000);
}

TEST(who_was_never_answered_met_an_outage) {
    struct wait wait;
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    wait_begin(&wait, "fakepoll:", "n", 500);
    assert_ended(&wait, DLOCK_EUNAVAILABLE, 500);
}

/* However long it lasted. */
TEST(a_server_that_is_back_is_asked_within_half_a_second) {
    enum { OUTAGE_MS = 10000, SOON_MS = 550, OUTAGES = 12 };
    dlock_lock *lock = lock_new(client_new("fake:?timeout=1s"), "n");
    struct actor *actor = actor_new();
    for (int i = 0; i < OUTAGES; i++) {
        fake_server_down(true);
        fake_log_clear();
        begin_acquire(actor, lock, DLOCK_FOREVER);
        fake_advance_ms(OUTAGE_MS + 37 * i);
        assert_false(over(actor));
        assert_in_range(fake_calls(FAKE_CONNECT), 8, 200);
        fake_server_down(false);
        wait_for(actor, SOON_MS);
        assert_int_equal(result(actor), 0);
        begin_release(actor, lock);
        wait_for(actor, 100);
        assert_int_equal(result(actor), 0);
    }
}

TEST(the_same_without_a_thread) {
    struct done busy = {0}, away = {0};
    taken("n");
    dlock_lock *lock = lock_new_with(client_new("fakepoll:"), "n", &by_handle);
    begin_async(lock, 500, &busy);
    fake_advance_ms(430);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    fake_advance_ms(170);
    assert_done(&busy, DLOCK_ETIMEDOUT);
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(1000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    begin_async(lock, 500, &away);
    fake_advance_ms(600);
    assert_done(&away, DLOCK_EUNAVAILABLE);
}

/* ---- up to the deadline ------------------------------------------------------------------------------------------ */

TEST(what_is_free_before_the_deadline_is_got) {
    static const int64_t timeouts[] = {16, 30, 500};
    unsigned serial = 0;
    for (int i = 0; i < EVERYBODY; i++) {
        for (size_t j = 0; j < sizeof timeouts / sizeof *timeouts; j++) {
            for (int64_t left_ms = 2; left_ms < 16; left_ms += 4) {
                struct wait wait;
                char name[16];
                snprintf(name, sizeof name, "n%u", serial++);
                wait_begin(&wait, everybody[i], name, timeouts[j]);
                fake_advance_ms(timeouts[j] - left_ms);
                fake_other_release(&wait.other, name);
                fake_settle();
                fake_advance_ms(left_ms);
                assert_int_equal(result(wait.actor), 0);
                assert_int_equal(release_by(wait.actor, wait.lock), 0);
            }
        }
    }
}

/* A waiter with a place in the server's queue is told, and asks nothing. */
TEST(who_polls_asks_once_more_before_the_deadline) {
    struct wait poll, queued;
    struct fake_command ask;
    wait_begin(&poll, "fakepoll:", "n", 300);
    assert_ended(&poll, DLOCK_ETIMEDOUT, 300);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_int_equal(ask.at_us - poll.began_us, 299000);
    assert_true(ask.timeout_ms >= 40);
    wait_begin(&queued, "fake:", "m", 300);
    assert_ended(&queued, DLOCK_ETIMEDOUT, 300);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "m"), 2);
}

/* It is sent as early as the last answer was slow, so that its own comes in time. */
TEST(the_last_question_of_a_slow_server_is_earlier) {
    struct wait wait;
    struct fake_command ask;
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1000);
    wait.lock = lock_new(client_new("fakepoll:"), "n");
    wait.actor = actor_new();
    taken("n");
    wait.began_us = dlock__now_us();
    begin_acquire(wait.actor, wait.lock, 300);
    while (!over(wait.actor)) {
        if (fake_slow_waiting()) {
            fake_advance_ms(6);
            fake_slow_go();
            fake_settle();
        } else {
            fake_advance_next();
        }
    }
    assert_int_equal(result(wait.actor), DLOCK_ETIMEDOUT);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_in_range(ask.at_us - wait.began_us, 285000, 291000);
}

/* After a turn of this process the head stands back for a moment, which may be longer than it can wait. */
TEST(who_stands_back_asks_before_its_deadline) {
    dlock_client *client = client_new("fakepoll:");
    struct dlock_options fixed = DLOCK_OPTIONS_INIT; /* not handed over in this process without the server */
    fixed.flags = DLOCK_FIXED_LEASE;
    dlock_lock *lock = lock_new_with(client, "n", &fixed);
    struct actor *first = actor_new(), *second = actor_new();
    assert_int_equal(acquire_by(first, lock, 1000), 0);
    fake_advance_ms(200);
    begin_acquire(second, lock, 16);
    assert_int_equal(release_by(first, lock), 0);
    fake_settle();
    assert_false(over(second));
    wait_for(second, 116);
    assert_int_equal(result(second), 0);
    assert_int_equal(release_by(second, lock), 0);
}

/* ---- hand-overs of fixed leases ---------------------------------------------------------------------------------- */

/* A server takes a client whose hand-over ends unconfirmed for dead. */
TEST(a_fixed_lease_that_was_handed_over_is_confirmed) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    options.lease_ms = 1000;
    dlock_lock *lock = lock_new_with(client_new("fake:"), "n", &options);
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(500);
    unsigned asked = fake_claims(FAKE_ACQUIRE, "n");
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), asked + 1);
    assert_int_equal(fake_holder("n").left_ms, 1000);
    assert_int_equal(remaining_by(actor, lock), valid_us(1000) / 1000);
    fake_advance_ms(1000);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 0);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
}

/* A renewal could confirm a later grant of the same token, which an acquire that comes late makes after other clients
 * have had the lock: the next thread would have an old fence. */
TEST(a_token_that_may_be_granted_anew_is_not_handed_over) {
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[] = {lock_new(client, "n"), lock_new(client, "n")};
    struct actor *actors[] = {actor_new(), actor_new()};
    struct fake_grant other = taken("n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(actors[0], locks[0], -1);
    fake_advance_ms(50);
    assert_int_equal(fake_waiters("n"), 1);
    begin_acquire(actors[1], locks[1], -1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actors[0]), 0);
    fake_advance_ms(2900); /* of the 3 s that the server keeps a hand-over */
    uint64_t fence = fence_by(actors[0], locks[0]);
    assert_int_equal(release_by(actors[0], locks[0]), 0);
    fake_settle();
    assert_int_equal(result(actors[1]), 0);
    assert_true(fence_by(actors[1], locks[1]) >> 8 > fence >> 8);
    fake_faults_clear();
    assert_int_equal(release_by(actors[1], locks[1]), 0);
}

/* Nor after renewals that were answered when the acquire could no longer come: they may be about its grant. Without such
 * an acquire it is handed over. */
TEST(a_renewal_does_not_tell_which_grant_it_renewed) {
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[] = {lock_new(client, "n"), lock_new(client, "n")};
    struct actor *actors[] = {actor_new(), actor_new()};
    for (unsigned lost = 0; lost < 2; lost++) {
        struct fake_grant other = taken("n");
        fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, lost);
        for (int i = 0; i < 2; i++) begin_acquire(actors[i], locks[i], -1);
        fake_advance_ms(LEASE_MS / 2);
        fake_other_release(&other, "n");
        fake_advance_ms(LEASE_MS * 9 / 10); /* its local turns end after one lease */
        uint64_t fence = fence_by(actors[0], locks[0]);
        assert_int_equal(release_by(actors[0], locks[0]), 0);
        fake_settle();
        assert_int_equal(result(actors[1]), 0);
        assert_int_equal(fence_by(actors[1], locks[1]) >> 8 > fence >> 8, lost);
        assert_int_equal(release_by(actors[1], locks[1]), 0);
        fake_advance_ms(3 * LEASE_MS);
    }
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
