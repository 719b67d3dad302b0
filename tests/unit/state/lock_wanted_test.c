/* on_wanted: a holder is told that another client asks for what it holds. */
#include "fixture.h"

static void count_wanted(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    assert_null(err);
    ++*(int *)arg;
}

static dlock_lock *watching(dlock_client *client, int *wanted) {
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    options.on_wanted = count_wanted;
    options.on_wanted_arg = wanted;
    return lock_new_with(client, "n", &options);
}

static dlock_client *manual_client(void) {
    dlock_client *client;
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = DLOCK_CLIENT_MANUAL;
    assert_int_equal(dlock_open("fakefull:", &options, &client, NULL), 0);
    return client;
}

TEST(a_holder_is_told_once_that_another_client_asks) {
    int wanted = 0;
    dlock_client *client = manual_client();
    dlock_lock *lock = watching(client, &wanted);
    struct actor *actor = actor_new();
    for (int round = 1; round <= 2; round++) {
        begin_acquire(actor, lock, 1000);
        wait_for(actor, 1000);
        assert_int_equal(result(actor), 0);
        assert_int_equal(dlock_client_dispatch(client), 0);
        for (int i = 0; i < 2; i++) {
            fake_other_acquire("n", 100);
            fake_settle();
            assert_int_equal(dlock_client_dispatch(client), i == 0);
            assert_int_equal(wanted, round);
        }
        assert_int_equal(dlock_release(lock, NULL), 0);
        fake_settle();
        fake_advance_ms(300);
    }
    dlock_close(client);
}

TEST(who_has_released_it_is_not_told) {
    int wanted = 0;
    dlock_client *client = manual_client();
    dlock_lock *lock = watching(client, &wanted);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_other_acquire("n", 100);
    fake_settle();
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_client_dispatch(client);
    assert_int_equal(wanted, 0);
    struct actor *actor = actor_new();
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0); /* a new grant, for which nobody has asked */
    dlock_client_dispatch(client);
    assert_int_equal(wanted, 0);
    fake_other_acquire("n", 100);
    fake_settle();
    lock_end(lock);
    assert_int_equal(dlock_client_dispatch(client), 0);
    dlock_close(client);
}

TEST(a_loss_after_it_is_reported_as_well) {
    int wanted = 0;
    dlock_client *client = manual_client();
    dlock_lock *lock = watching(client, &wanted);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_other_acquire("n", 100);
    fake_settle();
    fake_server_down(true);
    fake_advance_ms(2 * LEASE_MS);
    dlock_client_dispatch(client);
    assert_int_equal(wanted, 0); /* it is not held any more */
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    fake_server_down(false);
    dlock_close(client);
}

/* The connection that would tell has broken: somebody may have asked. */
TEST(it_also_comes_when_it_may_have_been_missed) {
    int wanted = 0;
    dlock_client *client = manual_client();
    dlock_lock *lock = watching(client, &wanted);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    fake_server_cut_listeners();
    fake_settle();
    dlock_client_dispatch(client);
    assert_int_equal(wanted, 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_close(client);
}

TEST(it_is_for_exclusive_locks_where_the_server_tells) {
    struct dlock_error err;
    dlock_lock *lock;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_wanted = count_wanted;
    assert_int_equal(dlock_new(client_new("fake:"), "n", &options, &lock, &err), DLOCK_ENOTSUP);
    assert_string_equal(err.message, "backend fake does not tell holders that somebody waits");
    options.mode = DLOCK_SHARED;
    assert_int_equal(dlock_new(client_new("fakefull:"), "n", &options, &lock, &err), DLOCK_EINVAL);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
