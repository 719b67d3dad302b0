/* Whichever of several locks is free first. */
#include "fixture.h"

enum { N = 3, NONE = 99 };

struct any {
    dlock_lock *locks[N];
    size_t n;
    int64_t timeout_ms;
    size_t which;
    struct dlock_error err;
};

static int acquire_any(void *arg) {
    struct any *any = arg;
    return dlock_acquire_any(any->locks, any->n, any->timeout_ms, &any->which, &any->err);
}

static struct any any_of(dlock_client *client, int64_t timeout_ms) {
    struct any any = {{NULL}, N, timeout_ms, NONE, {0}};
    static const char *const names[N] = {"c", "a", "b"};
    for (size_t i = 0; i < N; i++) any.locks[i] = lock_new(client, names[i]);
    return any;
}

static bool held_by_us(const char *name) {
    struct fake_grant grant = fake_holder(name);
    return grant.token[0] && !grant.other;
}

static void expect_nothing(void) {
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(fake_waiters("a") + fake_waiters("b") + fake_waiters("c"), 0);
}

TEST(of_several_free_ones_the_first_is_kept) {
    struct any any = any_of(client_new("fake:"), 0);
    assert_int_equal(acquire_any(&any), 0);
    assert_int_equal(any.which, 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_true(held_by_us("c") && !held_by_us("a") && !held_by_us("b"));
    assert_true(dlock_held(any.locks[0]) && !dlock_held(any.locks[1]));
    assert_int_equal(dlock_release(any.locks[0], NULL), 0);
    expect_nothing();
}

TEST(a_try_takes_the_one_that_is_free) {
    struct any any = any_of(client_new("fake:"), 0);
    fake_other_acquire("c", 60000);
    fake_other_acquire("a", 60000);
    assert_int_equal(acquire_any(&any), 0);
    assert_int_equal(any.which, 2);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    assert_int_equal(dlock_release(any.locks[2], NULL), 0);
    fake_other_acquire("b", 60000);
    any.which = NONE;
    assert_int_equal(acquire_any(&any), DLOCK_EBUSY);
    assert_int_equal(any.which, NONE);
    expect_nothing();
}

static void wait_ends_with_the_first_release(const char *uri) {
    struct any any = any_of(client_new(uri), DLOCK_FOREVER);
    struct actor *actor = actor_new();
    fake_other_acquire("a", 600000);
    fake_other_acquire("b", 600000);
    fake_other_acquire("c", 600000);
    begin_call(actor, acquire_any, &any);
    fake_advance_ms(3 * LEASE_MS);
    assert_false(over(actor));
    struct fake_grant grant = fake_holder("a");
    fake_other_release(&grant, "a");
    wait_for(actor, 2000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(any.which, 1);
    assert_true(held_by(actor, any.locks[1]));
    assert_int_equal(fake_waiters("b") + fake_waiters("c"), 0);
    grant = fake_holder("b");
    fake_other_release(&grant, "b"); /* nobody waits for it */
    fake_advance_ms(LEASE_MS);
    assert_false(held_by_us("b"));
    assert_int_equal(release_by(actor, any.locks[1]), 0);
    expect_nothing();
}

TEST(a_wait_in_queues_ends_with_the_first_release) {
    wait_ends_with_the_first_release("fake:");
}

TEST(a_polling_wait_ends_with_the_first_release) {
    wait_ends_with_the_first_release("fakepoll:");
}

TEST(a_wait_in_sessions_ends_with_the_first_release) {
    wait_ends_with_the_first_release("fakesession:");
}

TEST(the_deadline_is_kept) {
    struct any any = any_of(client_new("fake:"), 5000);
    struct actor *actor = actor_new();
    fake_other_acquire("a", 600000);
    fake_other_acquire("b", 600000);
    fake_other_acquire("c", 600000);
    begin_call(actor, acquire_any, &any);
    assert_in_range(wait_for(actor, 10000), 4999000, 5100000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(any.err.code, DLOCK_ETIMEDOUT);
    assert_non_null(strstr(any.err.message, "\"c\""));
    expect_nothing();
}

TEST(it_waits_for_threads_of_this_client_too) {
    dlock_client *client = client_new("fake:");
    struct any any = any_of(client, DLOCK_FOREVER);
    struct actor *holder = actor_new(), *waiter = actor_new();
    for (int i = 0; i < N; i++) assert_int_equal(acquire_by(holder, any.locks[i], 0), 0);
    begin_call(waiter, acquire_any, &any);
    fake_advance_ms(LEASE_MS);
    assert_false(over(waiter));
    assert_int_equal(release_by(holder, any.locks[2]), 0);
    wait_for(waiter, 1000);
    assert_int_equal(result(waiter), 0);
    assert_int_equal(any.which, 2);
    assert_int_equal(release_by(holder, any.locks[0]), 0);
    assert_int_equal(release_by(holder, any.locks[1]), 0);
    assert_int_equal(release_by(waiter, any.locks[2]), 0);
    expect_nothing();
}

TEST(one_that_is_held_already_is_entered_again) {
    struct any any = any_of(client_new("fake:"), 0);
    assert_int_equal(dlock_acquire(any.locks[1], 0, NULL), 0);
    fake_log_clear();
    assert_int_equal(acquire_any(&any), 0);
    assert_int_equal(any.which, 1);
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(dlock_release(any.locks[1], NULL), 0);
    assert_true(held_by_us("a"));
    assert_int_equal(dlock_release(any.locks[1], NULL), 0);
    expect_nothing();
}

TEST(a_cancel_of_any_ends_it) {
    struct any any = any_of(client_new("fake:"), DLOCK_FOREVER);
    struct actor *actor = actor_new();
    fake_other_acquire("a", 600000);
    fake_other_acquire("b", 600000);
    fake_other_acquire("c", 600000);
    begin_call(actor, acquire_any, &any);
    assert_int_equal(dlock_cancel(any.locks[1]), 0);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(any.err.code, DLOCK_ECANCELED);
    expect_nothing();
}

/* Waiting for the others would hide that. */
TEST(a_refusal_of_one_ends_it) {
    struct any any = any_of(client_new("fake:"), DLOCK_FOREVER);
    struct actor *actor = actor_new();
    fake_other_acquire("a", 600000);
    fake_other_acquire("b", 600000);
    fake_fault(FAKE_ACQUIRE, FAKE_PROTO, 1);
    begin_call(actor, acquire_any, &any);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), DLOCK_EPROTO);
    assert_int_equal(any.err.code, DLOCK_EPROTO);
    fake_advance_ms(2 * LEASE_MS);
    expect_nothing();
}

TEST(an_outage_is_waited_out) {
    struct any any = any_of(client_new("fake:"), DLOCK_FOREVER);
    struct actor *actor = actor_new();
    fake_server_down(true);
    begin_call(actor, acquire_any, &any);
    fake_advance_ms(LEASE_MS);
    assert_false(over(actor));
    fake_server_down(false);
    wait_for(actor, LEASE_MS);
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, any.locks[any.which]), 0);
    fake_advance_ms(2 * LEASE_MS);
    expect_nothing();
}

TEST(what_it_cannot_do_is_refused) {
    dlock_client *client = client_new("fake:");
    struct any any = any_of(client, 0);
    size_t which = NONE;
    assert_int_equal(dlock_acquire_any(any.locks, 0, 0, &which, NULL), DLOCK_EINVAL);
    assert_int_equal(dlock_acquire_any(NULL, 1, 0, &which, NULL), DLOCK_EINVAL);
    assert_int_equal(dlock_acquire_any(any.locks, N, 0, NULL, NULL), DLOCK_EINVAL);
    any.locks[2] = any.locks[0];
    assert_int_equal(acquire_any(&any), DLOCK_EINVAL);
    any.locks[2] = lock_new(client_new("fake:"), "b");
    assert_int_equal(acquire_any(&any), DLOCK_EINVAL);
    assert_int_equal(any.which, NONE);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0);
    client_end(client);
    any.locks[2] = NULL;
    assert_int_equal(acquire_any(&any), DLOCK_EINVAL);
    any.n = 2;
    assert_int_equal(acquire_any(&any), DLOCK_ECANCELED);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
