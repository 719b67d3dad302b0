/* Owners of a lock, threads or handles: what costs no request, and what the conformance suite cannot see. */
#include "fixture.h"

TEST(taking_again_costs_no_request) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    fake_settle();
    fake_log_clear();
    for (int i = 0; i < 100; i++) assert_int_equal(dlock_acquire(lock, i % 2 ? 0 : 1000, NULL), 0);
    assert_int_equal(dlock_fence(lock), fence);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dlock_release(lock, NULL), 0);
        assert_true(dlock_held(lock));
    }
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(fake_log_size(), 1);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_fence(lock), 0);
    assert_int_equal(dlock_remaining_ms(lock), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
}

static void *thread_that_ends(void *arg) {
    dlock_acquire(arg, 0, NULL);
    return NULL;
}

/* Thread numbers are used again by the system: a new thread owns nothing of a dead one. */
TEST(a_new_thread_inherits_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    pthread_t thread;
    assert_int_equal(fake_thread_start(&thread, thread_that_ends, lock), 0);
    fake_thread_join(thread);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_log_clear();
    for (int i = 0; i < 8; i++) {
        struct actor *actor = actor_new();
        assert_int_equal(release_by(actor, lock), DLOCK_EOWNER);
        assert_int_equal(error_of(actor)->code, DLOCK_EOWNER);
        assert_false(held_by(actor, lock));
        assert_int_equal(remaining_by(actor, lock), 0);
        assert_int_equal(fence_by(actor, lock), 0);
        assert_int_equal(acquire_by(actor, lock, 0), DLOCK_EBUSY);
    }
    assert_int_equal(fake_log_size(), 0); /* all that is known here */
    lock_end(lock);                       /* releases it for any owner */
    assert_string_equal(fake_holder("n").token, "");
}

TEST(a_handle_that_waits_cannot_wait_twice) {
    dlock_lock *lock = lock_new_with(client_new("fake:"), "n", &by_handle);
    struct actor *first = actor_new(), *second = actor_new();
    fake_other_acquire("n", 600000);
    begin_acquire(first, lock, 5000);
    assert_int_equal(acquire_by(second, lock, 5000), DLOCK_EDEADLK);
    assert_false(over(first));
    dlock_cancel(lock);
    fake_settle();
    assert_int_equal(result(first), DLOCK_ECANCELED);
}

TEST(handles_exclude_each_other_in_one_thread) {
    dlock_client *client = client_new("fake:");
    dlock_lock *first = lock_new_with(client, "n", &by_handle);
    dlock_lock *second = lock_new_with(client, "n", &by_handle), *thread = lock_new(client, "n");
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    assert_int_equal(dlock_acquire(second, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(dlock_acquire(thread, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(dlock_release(second, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_release(thread, NULL), DLOCK_EOWNER);
    assert_false(dlock_held(second) || dlock_held(thread));
    assert_int_equal(dlock_release(first, NULL), 0);
    assert_int_equal(dlock_acquire(thread, 0, NULL), 0);
    assert_int_equal(dlock_acquire(first, 0, NULL), DLOCK_EBUSY);
    assert_false(dlock_held(first));
    assert_int_equal(dlock_release(thread, NULL), 0);
}

TEST(the_token_is_what_the_server_knows) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    char token[DLOCK_TOKEN_MAX + 1], again[DLOCK_TOKEN_MAX + 1];
    struct dlock_error err;
    assert_int_equal(dlock_token(lock, token, sizeof token, &err), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_token(lock, token, sizeof token - 1, &err), DLOCK_EINVAL);
    assert_int_equal(dlock_token(lock, token, sizeof token, &err), 0);
    assert_string_equal(token, fake_holder("n").token);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_token(lock, again, sizeof again, &err), 0);
    assert_string_not_equal(token, again); /* each acquisition has its own */
}

TEST(fences_grow_with_every_grant) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    uint64_t last = 0;
    for (int i = 0; i < 20; i++) {
        if (i == 7) fake_server_restart();
        if (i == 11) fake_server_step_ms(-3600000);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        assert_true(dlock_fence(lock) > last);
        last = dlock_fence(lock);
        assert_int_equal(last >> 8, fake_holder("n").fence);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
