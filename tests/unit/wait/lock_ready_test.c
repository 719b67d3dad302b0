/* A server that was started lately and grants nothing yet: DLOCK_ENOTREADY. */
#include "fixture.h"

#include <stdio.h>

enum { MINUTES_MS = 572000 };

static const char whole[] =
    "lock \"n\": the server grants nothing for another 9m32s: quarantine after a restart, because it "
    "may have lost grants; the URI's quarantine= (default: the lease) sets its length";

TEST(a_try_says_so_in_one_request) {
    dlock_lock *lock = lock_new(client_new("fakevolatile:?lease=10m"), "n");
    struct dlock_error err;
    fake_server_ready_in_ms(MINUTES_MS);
    fake_log_clear();
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_ENOTREADY);
    assert_int_equal(err.code, DLOCK_ENOTREADY);
    assert_string_equal(err.message, whole);
    assert_int_equal(fake_log_size(), 1);
    assert_int_equal(fake_log_at(0).result, DLOCK_ENOTREADY);
    fake_advance_ms(MINUTES_MS);
    assert_int_equal(dlock_acquire(lock, 0, &err), 0);
}

/* "In the way" is what is known: a holder is said to be one. */
TEST(a_lock_that_is_held_is_busy_all_the_same) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    fake_server_ready_in_ms(MINUTES_MS);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY);
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(dlock_ready(lock, NULL), 0);
}

static void a_wait_goes_on_through_it(const char *uri, unsigned requests) {
    dlock_lock *lock = lock_new(client_new(uri), "n");
    struct actor *actor = actor_new();
    struct dlock_error err;
    fake_server_ready_in_ms(60000);
    fake_log_clear();
    assert_int_equal(dlock_ready(lock, &err), 0); /* no request was sent */
    begin_acquire(actor, lock, -1);
    assert_false(over(actor));
    assert_int_equal(dlock_ready(lock, &err), DLOCK_ENOTREADY);
    assert_non_null(strstr(err.message, "lock \"n\": the server grants nothing for another 1m: "));
    fake_advance_ms(59500);
    assert_int_equal(dlock_ready(lock, &err), DLOCK_ENOTREADY);
    assert_non_null(strstr(err.message, "lock \"n\": the server grants nothing for another 500ms: "));
    assert_true(fake_claims(FAKE_ACQUIRE, "n") <= requests); /* it is not polled */
    assert_true(wait_for(actor, 10000) <= 6700000);          /* a tenth later at most without a queue */
    assert_int_equal(result(actor), 0);
    assert_int_equal(dlock_ready(lock, &err), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(a_wait_that_polls_goes_on_through_it) {
    a_wait_goes_on_through_it("fakevolatile:?lease=1m", 1);
}

TEST(a_wait_in_a_queue_goes_on_through_it) {
    a_wait_goes_on_through_it("fake:", 2); /* the second one once it listens */
}

TEST(a_deadline_within_it_says_so) {
    static const char *const uris[] = {"fakevolatile:?lease=10m", "fake:", "fakesession:", "fakefull:"};
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        dlock_lock *lock = lock_new(client_new(uris[i]), "n");
        struct actor *actor = actor_new();
        fake_server_ready_in_ms(MINUTES_MS + 2000);
        begin_acquire(actor, lock, 2000);
        assert_in_range(wait_for(actor, 2200), 2000000, 2100000);
        assert_int_equal(result(actor), DLOCK_ENOTREADY);
        assert_int_equal(error_of(actor)->code, DLOCK_ENOTREADY);
        assert_non_null(strstr(error_of(actor)->message, "lock \"n\": the server grants nothing for another 9m32s: "));
        assert_int_equal(fake_waiters("n"), 0);
        lock_end(lock);
    }
}

/* Waiters behind others learn the same, in the server's queue and in the process. */
TEST(so_do_those_behind_the_first) {
    enum { N = 6 };
    struct actor *actors[N];
    dlock_lock *locks[N];
    dlock_client *clients[] = {client_new("fake:"), client_new("fake:")};
    fake_server_ready_in_ms(60000);
    for (int i = 0; i < N; i++) {
        locks[i] = lock_new(clients[i % 2], "n");
        actors[i] = actor_new();
        begin_acquire(actors[i], locks[i], i < 2 ? 50000 : 5000);
        fake_advance_ms(10);
    }
    assert_int_equal(fake_waiters("n"), 2);
    assert_int_equal(acquire_by(actor_new(), lock_new(clients[0], "n"), 0), DLOCK_ENOTREADY);
    for (int i = 2; i < N; i++) {
        wait_for(actors[i], 5100);
        assert_int_equal(result(actors[i]), DLOCK_ENOTREADY);
    }
    assert_false(over(actors[1]));
    wait_for(actors[1], 50000);
    assert_int_equal(result(actors[1]), DLOCK_ENOTREADY);
}

/* The server was ready, and others had their turn. */
TEST(a_deadline_after_it_does_not) {
    enum { N = 4 };
    struct actor *actors[N];
    dlock_lock *locks[N];
    fake_server_ready_in_ms(10000);
    for (int i = 0; i < N; i++) {
        locks[i] = lock_new(client_new("fake:"), "n");
        actors[i] = actor_new();
        begin_acquire(actors[i], locks[i], i == N - 1 ? 12000 : 60000);
        fake_advance_ms(10);
    }
    wait_for(actors[0], 11000);
    assert_int_equal(result(actors[0]), 0);
    wait_for(actors[N - 1], 5000);
    assert_int_equal(result(actors[N - 1]), DLOCK_ETIMEDOUT);
    for (int i = 0; i < N - 1; i++) {
        fake_settle();
        assert_int_equal(result(actors[i]), 0);
        assert_int_equal(release_by(actors[i], locks[i]), 0);
    }
}

/* An existing grant continues, and the process that has it is told nothing of the server's state. */
TEST(a_grant_from_before_goes_on) {
    dlock_client *client = client_new("fake:?lease=10s");
    dlock_lock *lock = lock_new(client, "n"), *same = lock_new(client, "n");
    struct actor *other = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_ready_in_ms(60000);
    fake_advance_ms(30000);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_acquire(same, 0, NULL), 0);
    assert_int_equal(acquire_by(other, lock_new(client, "n"), 0), DLOCK_EBUSY);
    begin_acquire(other, lock_new(client, "n"), 1000);
    wait_for(other, 1100);
    assert_int_equal(result(other), DLOCK_ETIMEDOUT);
    assert_int_equal(dlock_release(same, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ENOTREADY);
}

TEST(an_outage_is_an_outage) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_server_ready_in_ms(60000);
    begin_acquire(actor, lock, 20000);
    fake_advance_ms(1000);
    fake_server_down(true);
    wait_for(actor, 20000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_server_down(false);
}

TEST(a_wait_in_an_outage_knows_why) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct dlock_error err;
    taken("n");
    begin_acquire(actor, lock, -1);
    fake_advance_ms(1000);
    assert_int_equal(dlock_ready(lock, &err), 0);
    fake_server_down(true);
    fake_advance_ms(5000);
    assert_int_equal(dlock_ready(lock, &err), DLOCK_EUNAVAILABLE);
    assert_true(err.message[0]);
    fake_server_down(false);
    fake_advance_ms(2000);
    assert_int_equal(dlock_ready(lock, &err), 0);
    fake_server_forget();
    fake_server_down(true);
    fake_advance_ms(5000);
    assert_int_equal(dlock_ready(lock, &err), DLOCK_EUNAVAILABLE);
    fake_server_down(false);
    wait_for(actor, 5000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(dlock_ready(lock, &err), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* ---- a refusal after an answer: a mistake in the setup that is corrected ----------------------------------------- */

static void refuse(bool at_connecting) {
    fake_fault(at_connecting ? FAKE_CONNECT : FAKE_ACQUIRE, FAKE_AUTH, 100000);
    if (!at_connecting) return;
    fake_server_down(true);
    fake_server_down(false);
}

TEST(a_wait_outlasts_a_refusal) {
    for (int i = 0; i < 4; i++) {
        dlock_lock *lock = lock_new(client_new(i % 2 ? "fakevolatile:" : "fake:"), "n");
        struct actor *actor = actor_new();
        struct dlock_error err;
        taken("n");
        begin_acquire(actor, lock, -1);
        fake_advance_ms(1000);
        assert_int_equal(dlock_ready(lock, &err), 0);
        refuse(i < 2);
        fake_server_forget();
        fake_advance_ms(60000);
        assert_false(over(actor));
        assert_int_equal(dlock_ready(lock, &err), DLOCK_EAUTH);
        assert_non_null(strstr(err.message, "wrong password"));
        assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY); /* there is a line */
        fake_faults_clear();
        wait_for(actor, 2000);
        assert_int_equal(result(actor), 0);
        assert_int_equal(dlock_ready(lock, &err), 0);
        assert_int_equal(release_by(actor, lock), 0);
        lock_end(lock);
    }
}

TEST(a_refusal_until_the_deadline_is_told) {
    dlock_lock *lock = lock_new(client_new("fakevolatile:"), "n");
    struct all all = {{lock}, 1, 5000, {0}};
    struct actor *actor = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0); /* accepted */
    assert_int_equal(dlock_release(lock, NULL), 0);
    refuse(false);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EAUTH); /* a try does not wait */
    begin_acquire(actor, lock, 5000);
    assert_in_range(wait_for(actor, 6000), 5000000, 5100000);
    assert_int_equal(result(actor), DLOCK_EAUTH);
    assert_non_null(strstr(error_of(actor)->message, "wrong password"));
    begin_call(actor, acquire_all, &all);
    assert_in_range(wait_for(actor, 6000), 5000000, 5100000);
    assert_int_equal(result(actor), DLOCK_EAUTH);
    assert_non_null(strstr(all.err.message, "wrong password"));
}

/* A server that does not know for how long. */
static void not_ready_for_an_unknown_time(struct dlock_claim *claim) {
    claim->ready_ms = claim->retry_ms = -1;
}

TEST(a_time_that_nobody_knows_is_polled) {
    dlock_lock *lock = lock_new(client_new("fakevolatile:"), "n");
    struct actor *actor = actor_new();
    struct dlock_error err;
    fake_server_ready_in_ms(1000);
    fake_edit(FAKE_ACQUIRE, not_ready_for_an_unknown_time, 1);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_ENOTREADY);
    assert_non_null(strstr(err.message, "lock \"n\": the server grants nothing yet: "));
    fake_edit(FAKE_ACQUIRE, not_ready_for_an_unknown_time, 1000);
    begin_acquire(actor, lock, -1);
    fake_advance_ms(500);
    assert_true(fake_claims(FAKE_ACQUIRE, "n") > 500 / 51);
    fake_faults_clear();
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* ---- several locks, and without a thread ------------------------------------------------------------------------- */

TEST(several_at_once_wait_and_say_so) {
    dlock_client *client = client_new("fakevolatile:?lease=10m"), *other = client_new("fake:");
    struct all all = {{lock_new(other, "a"), lock_new(client, "n"), lock_new(client, "o")}, 3, 0, {0}};
    struct actor *actor = actor_new();
    fake_server_ready_in_ms(MINUTES_MS);
    assert_int_equal(acquire_all(&all), DLOCK_ENOTREADY);
    assert_int_equal(all.err.code, DLOCK_ENOTREADY);
    assert_non_null(strstr(all.err.message, "\"a\": the server grants nothing for another 9m32s: "));
    all.timeout_ms = 2000;
    begin_call(actor, acquire_all, &all);
    wait_for(actor, 2200);
    assert_int_equal(result(actor), DLOCK_ENOTREADY);
    assert_non_null(strstr(all.err.message, "\"a\": the server grants nothing for another 9m30s: "));
    all.timeout_ms = -1;
    begin_call(actor, acquire_all, &all);
    wait_for(actor, 2 * MINUTES_MS);
    assert_int_equal(result(actor), 0);
    assert_int_equal(dlock_release_all(all.locks, 3, NULL), DLOCK_EOWNER); /* the actor's thread has them */
    for (int i = 0; i < 3; i++) assert_int_equal(release_by(actor, all.locks[i]), 0);
}

struct told {
    _Atomic int calls, code;
    char message[508];
};

static void note(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct told *done = arg;
    (void)lock;
    if (err) memcpy(done->message, err->message, sizeof done->message);
    done->code = err ? err->code : 0;
    done->calls++;
}

TEST(without_a_thread_it_is_the_same) {
    dlock_lock *lock = lock_new_with(client_new("fakevolatile:?lease=10m"), "n", &by_handle);
    struct told tried = {0}, waited = {0}, got = {0};
    fake_server_ready_in_ms(MINUTES_MS);
    assert_int_equal(dlock_acquire_async(lock, 0, note, &tried), 0);
    fake_settle();
    assert_int_equal(tried.calls, 1);
    assert_int_equal(tried.code, DLOCK_ENOTREADY);
    assert_string_equal(tried.message, whole);
    assert_int_equal(dlock_acquire_async(lock, 2000, note, &waited), 0);
    fake_settle();
    fake_advance_ms(2100);
    assert_int_equal(waited.calls, 1);
    assert_int_equal(waited.code, DLOCK_ENOTREADY);
    assert_int_equal(dlock_acquire_async(lock, -1, note, &got), 0);
    fake_settle();
    fake_advance_ms(MINUTES_MS * 6 / 5);
    assert_int_equal(got.calls, 1);
    assert_int_equal(got.code, 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
