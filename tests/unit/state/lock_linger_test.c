/* Released locks that stay with their process for a while. */
#include "fixture.h"

static void cycle(dlock_lock *lock) {
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TEST(taking_it_again_is_for_nothing_and_fences_grow) {
    dlock_client *client = client_new("fakefull:?linger=5s");
    dlock_lock *lock = lock_new(client, "n"), *same = lock_new(client, "n");
    cycle(lock);
    fake_settle();
    fake_log_clear();
    uint64_t last = 0;
    for (int i = 0; i < 100; i++) {
        dlock_lock *now = i % 2 ? lock : same;
        assert_int_equal(dlock_acquire(now, i % 3 ? 1000 : 0, NULL), 0);
        assert_true(dlock_held(now));
        assert_true(dlock_fence(now) > last);
        last = dlock_fence(now);
        assert_int_equal(dlock_release(now, NULL), 0);
        assert_false(dlock_held(now));
        assert_int_equal(dlock_release(now, NULL), DLOCK_EOWNER);
    }
    assert_int_equal(fake_log_size(), 0);
}

/* Over every turn of the fence's low byte, also when a reader makes the last of it. */
TEST(fences_grow_however_often_it_is_taken) {
    dlock_lock *lock = lock_new(client_new("fakefull:?linger=5s"), "n");
    uint64_t last = 0;
    for (uint64_t reader_at = 250; reader_at < 256; reader_at++) {
        for (int i = 0; i < 260; i++) {
            assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
            assert_true(dlock_fence(lock) > last);
            last = dlock_fence(lock);
            if ((last & 255) == reader_at) {
                assert_int_equal(dlock_downgrade(lock, NULL), 0);
                assert_true(dlock_fence(lock) > last);
                assert_int_equal(dlock_fence(lock) >> 8, last >> 8);
                last = dlock_fence(lock);
            }
            assert_int_equal(dlock_release(lock, NULL), 0);
            if ((last & 255) == reader_at) break;
        }
    }
}

/* No connection is left to tell us of other clients' requests. */
TEST(it_ends_with_the_connection_that_would_tell) {
    dlock_lock *lock = lock_new(client_new("fakefull:?linger=60s"), "n");
    cycle(lock);
    fake_server_cut();
    fake_settle();
    fake_advance_ms(100);
    assert_int_equal(fake_holders("n"), 0);
}

/* The connection breaks while the answer is in flight: messages sent over it are lost. */
TEST(a_grant_from_before_the_connection_broke_does_not_linger) {
    struct actor *actor = actor_new();
    dlock_lock *lock = lock_new(client_new("fakefull:?linger=60s"), "n");
    cycle(lock);
    fake_other_acquire("n", 100);
    fake_settle();
    fake_advance_ms(200);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_server_cut_listeners();
    fake_settle();
    fake_slow_go();
    fake_settle();
    wait_for(actor, 6000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, lock), 0);
    fake_settle();
    assert_int_equal(fake_holders("n"), 0);
}

TEST(a_try_says_that_its_release_was_not_answered) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    struct dlock_options longer = {.size = sizeof longer, .lease_ms = 2 * LEASE_MS};
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new_with(client, "n", &longer);
    struct actor *actor = actor_new();
    cycle(lock);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 10);
    begin_acquire(actor, other, 0);
    wait_for(actor, LEASE_MS);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_string_equal(error_of(actor)->message, "lock \"n\": no answer from fakefull until the deadline");
    fake_faults_clear();
    fake_advance_ms(2 * LEASE_MS);
}

static void note_code(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    *(_Atomic int *)arg = err ? err->code : 0;
}

TEST(asynchronous_wishes_do_not_find_it_in_the_way) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    struct dlock_options reader = {.size = sizeof reader, .mode = DLOCK_SHARED, .owner = DLOCK_OWNER_HANDLE};
    dlock_lock *lock = lock_new(client, "n"), *shared = lock_new_with(client, "n", &reader);
    for (int timeout_ms = 0; timeout_ms <= 1000; timeout_ms += 1000) {
        _Atomic int code = 1;
        cycle(lock);
        assert_int_equal(dlock_acquire_async(shared, timeout_ms, note_code, (void *)&code), 0);
        fake_settle();
        assert_int_equal(code, 0);
        assert_true(dlock_held(shared));
        assert_int_equal(dlock_release(shared, NULL), 0);
    }
}

/* The first one waits on other terms, so the lingering grant is released for it. If it leaves before that was possible,
 * the next one gets the lingering grant, which is on its terms. */
TEST(the_next_in_line_gets_it_when_the_first_leaves) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    struct dlock_options longer = {.size = sizeof longer, .lease_ms = 3 * LEASE_MS, .owner = DLOCK_OWNER_HANDLE};
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new_with(client, "n", &longer);
    struct actor *next = actor_new();
    _Atomic int busy = 1, code = 1;
    cycle(lock);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    assert_int_equal(dlock_acquire_async(lock_new_with(client, "m", &longer), 0, note_code, (void *)&busy), 0);
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1); /* the engine's thread */
    assert_int_equal(dlock_acquire_async(other, 100, note_code, (void *)&code), 0);
    fake_settle();
    begin_acquire(next, lock, 5000);
    assert_false(over(next));
    fake_advance_ms(200);
    assert_true(code < 0);
    assert_true(over(next));
    assert_int_equal(result(next), 0);
    assert_int_equal(fake_grants("n"), 1);
    fake_slow_go();
    assert_int_equal(release_by(next, lock), 0);
}

TEST(it_is_renewed_and_can_be_lost) {
    dlock_lock *lock = lock_new(client_new("fakefull:?linger=60s"), "n");
    cycle(lock);
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(fake_holders("n"), 1);
    fake_server_break("n");
    fake_advance_ms(LEASE_MS);
    cycle(lock);
    assert_int_equal(fake_grants("n"), 2);
}

TEST(it_outlives_its_handle_but_not_its_client) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    dlock_lock *lock = lock_new(client, "n");
    cycle(lock);
    lock_end(lock);
    assert_int_equal(fake_holders("n"), 1);
    lock = lock_new(client, "n");
    cycle(lock);
    assert_int_equal(fake_grants("n"), 1);
    client_end(client);
    assert_int_equal(fake_holders("n"), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
