/* dlock_client_dispatch: callbacks of a MANUAL client. */
#include "fixture.h"

static dlock_client *manual_client_of(const char *uri) {
    dlock_client *client;
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = DLOCK_CLIENT_MANUAL;
    assert_int_equal(dlock_open(uri, &options, &client, NULL), 0);
    return client;
}

static dlock_client *manual_client(void) {
    return manual_client_of("fake:");
}

static int dispatch(void *arg) {
    return dlock_client_dispatch(arg);
}

struct nested {
    dlock_client *client;
    struct actor *second;
    int inner;
};

static void dispatch_again(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)err;
    struct nested *nested = arg;
    nested->inner = dlock_client_dispatch(nested->client);
    dlock_free(lock);
}

/* A callback that dispatches is still the one that runs: its handle is destroyed after it. */
TEST(a_callback_may_dispatch) {
    dlock_client *client = manual_client();
    dlock_lock *lock, *other = lock_new_with(client, "o", &by_handle);
    struct nested nested = {client, NULL, -1};
    struct done done = {0};
    assert_int_equal(dlock_new(client, "n", &by_handle, &lock, NULL), 0);
    assert_int_equal(dlock_acquire_async(lock, 0, dispatch_again, &nested), 0);
    fake_settle();
    assert_int_equal(dlock_acquire_async(other, 0, note_done, &done), 0);
    fake_settle();
    struct actor *actor = actor_new();
    begin_call(actor, dispatch, client);
    assert_true(result(actor) >= 1);
    assert_true(nested.inner >= 0);
    begin_call(actor, dispatch, client);
    assert_done(&done, 0);
    assert_string_equal(fake_holder("n").token, "");
    lock_end(other);
    dlock_close(client);
}

struct restless {
    dlock_lock *other; /* freed by the first call */
    int calls;
};

static void try_again(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct restless *restless = arg;
    (void)err;
    if (restless->calls++ == 0) dlock_free(restless->other);
    if (restless->calls < 100) assert_int_equal(dlock_acquire_async(lock, 0, try_again, arg), 0);
}

/* Also if the first of them takes away the one behind which the new ones begin. */
TEST(a_dispatch_ends_though_its_callbacks_begin_new_calls) {
    dlock_client *client = manual_client();
    dlock_lock *held = lock_new(client, "n"), *lock = lock_new_with(client, "n", &by_handle);
    struct restless restless = {NULL, 0};
    struct done done = {0};
    struct actor *actor = actor_new();
    assert_int_equal(dlock_new(client, "n", &by_handle, &restless.other, NULL), 0);
    assert_int_equal(acquire_by(actor, held, 0), 0);
    assert_int_equal(dlock_acquire_async(lock, 0, try_again, &restless), 0); /* busy at once */
    assert_int_equal(dlock_acquire_async(restless.other, 0, note_done, &done), 0);
    assert_in_range(dlock_client_dispatch(client), 1, 2);
    assert_in_range(restless.calls, 1, 2);
    assert_done(&done, DLOCK_EBUSY);
    restless.calls = 100; /* no more of them */
    assert_int_equal(release_by(actor, held), 0);
    lock_end(lock);
    lock_end(held);
    dlock_close(client);
}

static void stay(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err;
    barrier_wait(arg);
}

/* Closes the client while a callback stays for longer than `timeout`, and then lets it leave. The callback's time does
 * not count: the close still has its `timeout` to release the lock `held`. */
static void close_during_a_long_callback(dlock_client *client, const char *held, struct barrier *leave) {
    struct actor *closer = actor_new();
    begin_close(closer, client);
    fake_advance_ms(2500);
    assert_false(over(closer));
    assert_string_not_equal(fake_holder(held).token, "");
    barrier_lift(leave);
    wait_for(closer, 100);
    assert_string_equal(fake_holder(held).token, "");
}

TEST(closing_releases_after_a_long_dispatch) {
    struct barrier leave = BARRIER;
    dlock_client *client = manual_client_of("fake:?timeout=2s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    struct actor *dispatcher = actor_new();
    assert_int_equal(dlock_acquire_async(lock, 0, stay, &leave), 0);
    fake_settle();
    begin_call(dispatcher, dispatch, client);
    close_during_a_long_callback(client, "n", &leave);
    assert_int_equal(result(dispatcher), 1);
}

/* The same of a callback that dlock_free makes: here no other thread does. */
TEST(closing_releases_after_a_long_callback_of_a_free) {
    struct barrier leave = BARRIER;
    dlock_client *client = manual_client_of("fake:?timeout=2s");
    dlock_lock *held = lock_new(client, "held"), *lock = lock_new_with(client, "n", &by_handle);
    struct actor *freer = actor_new();
    fake_other_acquire("n", 600000);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(dlock_acquire_async(lock, -1, stay, &leave), 0);
    fake_settle();
    begin_free(freer, lock);
    assert_false(over(freer));
    close_during_a_long_callback(client, "held", &leave);
    assert_true(over(freer));
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
