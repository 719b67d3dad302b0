/* A module whose release or disconnect does not return: only the thread that called it is held up. */
#include "fixture.h"

/* What a call may take that is bounded by `timeout`, which is two seconds here. */
enum { TIMEOUT_MS = 2200 };

static const char *const kinds[] = {"fake:?timeout=2s", "fakeshared:?timeout=2s", "fakesession:?timeout=2s"};

/* Another client does everything, and waits for nothing. */
static void another_client_is_free(void) {
    int64_t now = dlock__now_us();
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "another");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
    lock_end(lock);
    client_end(client);
    assert_int_equal(dlock__now_us(), now);
}

static void closes_in_time(dlock_client *client) {
    struct actor *closer = actor_new();
    begin_close(closer, client);
    another_client_is_free();
    wait_for(closer, TIMEOUT_MS);
    another_client_is_free();
}

/* The call comes back after all, long after the close. The teardown finds what is left then. */
static void comes_back(void) {
    assert_true(fake_slow_waiting() > 0);
    fake_faults_clear();
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_connections(), 0);
}

TEST(closing_waits_for_no_release_that_hangs) {
    struct actor *actor = actor_new();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        dlock_client *client = client_new(kinds[i]);
        dlock_lock *lock = lock_new(client, "n");
        assert_int_equal(acquire_by(actor, lock, 0), 0);
        fake_fault(FAKE_RELEASE, FAKE_HANG, 1);
        begin_release(actor, lock);
        closes_in_time(client);
        assert_false(over(actor));
        comes_back();
        assert_int_equal(result(actor), 0);
        lock_end(lock);
    }
}

/* What the close itself does. */
TEST(closing_waits_for_no_call_of_its_own_that_hangs) {
    static const enum fake_op ops[] = {FAKE_RELEASE, FAKE_DISCONNECT};
    struct actor *actor = actor_new();
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        dlock_client *client = client_new(kinds[i / 2]);
        assert_int_equal(acquire_by(actor, lock_new(client, "n"), 0), 0);
        fake_fault(ops[i % 2], FAKE_HANG, 1);
        closes_in_time(client);
        if (ops[i % 2] == FAKE_DISCONNECT) assert_string_equal(fake_holder("n").token, "");
        comes_back();
    }
}

/* Without a lock there is no thread yet. */
TEST(closing_an_unused_client_waits_for_no_disconnect) {
    dlock_client *client = client_new("fake:?timeout=2s");
    fake_fault(FAKE_DISCONNECT, FAKE_HANG, 1);
    closes_in_time(client);
    comes_back();
}

/* The keeper drops its connection after a renewal without an answer. The close releases the lock on another one. */
TEST(closing_waits_for_no_keeper_that_hangs) {
    dlock_client *client = client_new("fake:?timeout=2s");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock_new(client, "n"), 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    fake_fault(FAKE_DISCONNECT, FAKE_HANG, 1);
    fake_advance_ms(THIRD_MS + 100);
    assert_int_equal(fake_slow_waiting(), 1);
    closes_in_time(client);
    assert_string_equal(fake_holder("n").token, "");
    comes_back();
}

/* Its release has no answer, so the engine repeats it. */
TEST(closing_waits_for_no_orphan_whose_release_hangs) {
    dlock_client *client = client_new("fake:?timeout=2s");
    struct actor *actor = actor_new();
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 1);
    fake_fault(FAKE_RELEASE, FAKE_HANG, 1);
    begin_release(actor, lock);
    while (fake_calls(FAKE_RELEASE) < 3) assert_true(fake_advance_next());
    closes_in_time(client);
    comes_back();
}

/* ---- asynchronous calls ---- */

TEST(an_asynchronous_release_that_hangs_ends_in_time) {
    struct done taken = {0}, given = {0};
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    begin_async(lock, 0, &taken);
    assert_done(&taken, 0);
    fake_fault(FAKE_RELEASE, FAKE_HANG, 1);
    assert_int_equal(dlock_release_async(lock, note_done, &given), 0);
    fake_advance_ms(TIMEOUT_MS);
    assert_done(&given, DLOCK_EUNAVAILABLE);
    closes_in_time(client);
    comes_back();
}

TEST(closing_ends_asynchronous_calls_that_hang) {
    static const enum fake_op ops[] = {FAKE_ACQUIRE, FAKE_RELEASE};
    for (size_t i = 0; i < 2; i++) {
        struct done taken = {0}, done = {0};
        dlock_client *client = client_new("fake:?timeout=2s");
        dlock_lock *lock = lock_new_with(client, "n", &by_handle);
        if (ops[i] == FAKE_RELEASE) begin_async(lock, 0, &taken);
        fake_settle();
        fake_fault(ops[i], FAKE_HANG, 1);
        if (ops[i] == FAKE_ACQUIRE)
            begin_async(lock, -1, &done);
        else
            assert_int_equal(dlock_release_async(lock, note_done, &done), 0);
        fake_settle();
        assert_int_equal(fake_slow_waiting(), 1);
        closes_in_time(client);
        assert_done(&done, ops[i] == FAKE_ACQUIRE ? DLOCK_ECANCELED : DLOCK_EUNAVAILABLE);
        comes_back();
        fake_server_forget(); /* what was acquired after the close ends with its lease */
        lock_end(lock);
    }
}

/* The wait that is behind it has not been asked for yet. */
TEST(closing_ends_asynchronous_waits_beside_one_that_hangs) {
    struct done done[2] = {{0}};
    dlock_client *client = client_new("fake:?timeout=2s");
    fake_fault(FAKE_ACQUIRE, FAKE_HANG, 1);
    for (int i = 0; i < 2; i++) {
        begin_async(lock_new_with(client, i ? "n" : "m", &by_handle), -1, &done[i]);
        fake_settle();
    }
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    closes_in_time(client);
    for (int i = 0; i < 2; i++) assert_done(&done[i], DLOCK_ECANCELED);
    comes_back();
    fake_server_forget();
}

TEST(freeing_ends_an_asynchronous_wait_that_hangs) {
    struct done done = {0};
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    fake_fault(FAKE_ACQUIRE, FAKE_HANG, 1);
    begin_async(lock, -1, &done);
    begin_free(actor, lock);
    wait_for(actor, TIMEOUT_MS);
    assert_done(&done, DLOCK_ECANCELED);
    closes_in_time(client);
    comes_back();
    fake_server_forget();
}

/* ---- handles ---- */

/* The handle is left to the call. */
TEST(freeing_waits_for_no_call_that_hangs) {
    struct actor *actor = actor_new(), *freer = actor_new();
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RELEASE, FAKE_HANG, 1);
    begin_release(actor, lock);
    begin_free(freer, lock);
    wait_for(freer, TIMEOUT_MS);
    assert_false(over(actor));
    closes_in_time(client);
    comes_back();
    assert_int_equal(result(actor), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
