/* Owners of a lock: threads across handles, or handles; re-entry; and what each may do. */
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

TEST(a_thread_owns_across_handles) {
    dlock_client *client = client_new("fake:");
    dlock_lock *first = lock_new(client, "n"), *second = lock_new(client, "n");
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    fake_log_clear();
    assert_int_equal(dlock_acquire(second, 0, NULL), 0);
    assert_true(dlock_held(first) && dlock_held(second));
    assert_int_equal(dlock_fence(first), dlock_fence(second));
    assert_int_equal(dlock_release(first, NULL), 0);
    assert_true(dlock_held(first) && dlock_held(second));
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(dlock_release(second, NULL), 0);
    assert_false(dlock_held(first) || dlock_held(second));
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
}

TEST(names_and_clients_are_apart) {
    dlock_client *client = client_new("fake:"), *other = client_new("fake:");
    dlock_lock *n = lock_new(client, "n"), *m = lock_new(client, "m"), *far = lock_new(other, "n");
    assert_int_equal(dlock_acquire(n, 0, NULL), 0);
    assert_int_equal(dlock_acquire(m, 0, NULL), 0);
    assert_int_equal(dlock_acquire(far, 0, NULL), DLOCK_EBUSY);
    assert_false(dlock_held(far));
    assert_int_equal(dlock_release(far, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_release(n, NULL), 0);
    assert_true(dlock_held(m));
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

TEST(bad_options_are_refused) {
    dlock_client *client = client_new("fake:");
    dlock_lock *const untouched = (dlock_lock *)(void *)&client;
    dlock_lock *lock = untouched;
    struct dlock_error err;
    enum { BAD = 11 };
    struct dlock_options bad[BAD];
    for (int i = 0; i < BAD; i++) bad[i] = (struct dlock_options)DLOCK_OPTIONS_INIT;
    bad[0].size = 3;
    bad[1].mode = (enum dlock_mode)9;
    bad[2].owner = (enum dlock_owner)9;
    bad[3].flags = 1u << 31;
    bad[4].lease_ms = 99;
    bad[5].lease_ms = -1;
    bad[6].limit = 3;
    bad[7].size = 0;
    bad[8].size = offsetof(struct dlock_options, lease_ms); /* shorter than any version ever was */
    bad[9].lease_ms = INT64_MAX;
    bad[10].flags = 4;
    for (int i = 0; i < BAD; i++) {
        assert_int_equal(dlock_new(client, "n", &bad[i], &lock, &err), DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        assert_ptr_equal(lock, untouched);
    }
    struct {
        struct dlock_options known;
        char later[8];
    } newer = {DLOCK_OPTIONS_INIT, {0}};
    newer.known.size = sizeof newer;
    newer.later[3] = 1;
    assert_int_equal(dlock_new(client, "n", &newer.known, &lock, &err), DLOCK_EINVAL);
    newer.later[3] = 0;
    assert_int_equal(dlock_new(client, "n", &newer.known, &lock, &err), 0);
    dlock_free(lock);
    char long_name[DLOCK_NAME_MAX + 2];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    const char *const names[] = {NULL, "", "a\nb", "a\tb", "\x01", "a\x1f", "a\x7f", long_name};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(dlock_new(client, names[i], NULL, &lock, &err), DLOCK_EINVAL);
    long_name[DLOCK_NAME_MAX] = '\0';
    lock = lock_new(client, long_name);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_string_not_equal(fake_holder(long_name).token, "");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
