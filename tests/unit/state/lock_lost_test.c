/* on_lost: what it may call, which grant it shows, and that it does not come after the release of that grant. */
#include "fixture.h"

struct again {
    bool frees;
    dlock_lock *other;
    _Atomic int released, acquired;
    _Atomic int64_t waited_us;
};

static void acquire_anew(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct again *again = arg;
    assert_int_equal(err->code, DLOCK_ELOST);
    again->released = dlock_release(lock, NULL);
    if (again->frees) dlock_free(lock);
    int64_t began_us = dlock__now_us();
    again->acquired = dlock_acquire(again->other, 5000, NULL);
    again->waited_us = dlock__now_us() - began_us;
    if (again->acquired == 0) dlock_release(again->other, NULL);
}

/* The grant is lost here, but the server keeps it: the renewals' answers get lost. */
static void lose(struct again *again, enum dlock_owner owner) {
    struct dlock_options options = {.size = sizeof options, .owner = owner};
    dlock_client *client = client_new("fake:");
    again->released = again->acquired = 1;
    again->other = lock_new_with(client, "n", &by_handle);
    options.on_lost = acquire_anew;
    options.on_lost_arg = again;
    dlock_lock *lock = lock_new_with(client, "n", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    if (again->frees) lock_forget(lock);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
    fake_faults_clear();
    fake_advance_ms(6000);
    assert_int_equal(again->acquired, 0);
    assert_true(again->waited_us < 1000000);
}

TEST(an_on_lost_may_release_and_acquire_anew) {
    struct again again = {.frees = false};
    lose(&again, DLOCK_OWNER_HANDLE);
    assert_int_equal(again.released, DLOCK_ELOST);
}

/* Another thread is the owner, so that a release is none. */
TEST(an_on_lost_may_free_a_thread_s_handle_and_acquire_anew) {
    struct again again = {.frees = true};
    lose(&again, DLOCK_OWNER_THREAD);
    assert_int_equal(again.released, DLOCK_EOWNER);
}

/* The program's loop hangs: no thread dispatches, so on_lost does not run. This server has no leases. */
TEST(a_callback_that_never_comes_keeps_the_lock_for_one_lease_at_most) {
    const char *uri = "fakeforever:";
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    dlock_client *client;
    assert_int_equal(dlock_open(uri, &manual, &client, NULL), 0);
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock_with(client, "n", DLOCK_FIXED_LEASE, 1000, &lost);
    dlock_lock *other = lock_new_with(client_new(uri), "n", &by_handle);
    struct done done = {0};
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    begin_async(other, 60000, &done);
    fake_advance_us(valid_us(1000) + 999000);
    assert_false(dlock_held(lock));
    assert_int_equal(done.calls, 0);
    fake_advance_ms(100);
    assert_done(&done, 0);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(dlock_client_dispatch(client), 1);
    assert_int_equal(lost.code, DLOCK_ELOST);
    assert_true(dlock_held(other));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(other, NULL), 0);
    lock_end(lock);
    dlock_close(client);
}

/* ---- which grant, and until when --------------------------------------------------------------------------------- */

struct shown {
    struct barrier stay;
    _Atomic int calls;
    uint64_t fence;
    char token[DLOCK_TOKEN_MAX + 1];
};

static void note_shown(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct shown *shown = arg;
    (void)err;
    barrier_wait(&shown->stay);
    shown->fence = dlock_fence(lock);
    assert_int_equal(dlock_token(lock, shown->token, sizeof shown->token, NULL), 0);
    shown->calls++;
}

static dlock_lock *lock_that_shows(dlock_client *client, const char *name, enum dlock_owner owner,
                                   struct shown *shown) {
    struct dlock_options options = {.size = sizeof options, .owner = owner};
    options.on_lost = note_shown;
    options.on_lost_arg = shown;
    return lock_new_with(client, name, &options);
}

/* The callback of another lock still runs when the loss is noticed. The server keeps the grant, whose release waits for
 * the on_lost that is not called. */
TEST(a_release_takes_its_on_lost_back) {
    struct shown first = {.stay = BARRIER}, second = {.stay = BARRIER};
    dlock_client *client = client_new("fake:");
    dlock_lock *a = lock_that_shows(client, "a", DLOCK_OWNER_HANDLE, &first);
    dlock_lock *b = lock_that_shows(client, "b", DLOCK_OWNER_HANDLE, &second);
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    fake_advance_ms(1);
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
    fake_faults_clear();
    assert_false(dlock_held(b));
    assert_int_equal(dlock_release(b, NULL), DLOCK_ELOST);
    fake_settle();
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    barrier_lift(&second.stay);
    barrier_lift(&first.stay);
    assert_int_equal(first.calls, 1);
    assert_int_equal(second.calls, 0);
    assert_true(dlock_held(b));
}

static void lose_by_the_server(dlock_lock *lock) {
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    assert_false(dlock_held(lock));
}

TEST(a_release_waits_for_its_on_lost) {
    struct shown shown = {.stay = BARRIER};
    struct actor *other = actor_new();
    dlock_lock *lock = lock_that_shows(client_new("fake:"), "n", DLOCK_OWNER_HANDLE, &shown);
    lose_by_the_server(lock);
    begin_release(other, lock);
    assert_false(over(other));
    assert_int_equal(acquire_by(actor_new(), lock, 0), 0);
    uint64_t next = dlock_fence(lock);
    barrier_lift(&shown.stay);
    assert_int_equal(result(other), DLOCK_ELOST);
    assert_true(shown.calls == 1 && shown.fence > 0 && shown.fence < next);
}

TEST(but_for_one_timeout_at_most) {
    struct shown shown = {.stay = BARRIER};
    struct actor *one = actor_new(), *several = actor_new();
    dlock_lock *lock = lock_that_shows(client_new("fake:?timeout=2s"), "n", DLOCK_OWNER_HANDLE, &shown);
    lose_by_the_server(lock);
    begin_release(one, lock);
    fake_advance_ms(1990);
    assert_false(over(one));
    fake_advance_ms(20);
    assert_int_equal(result(one), DLOCK_ELOST);
    barrier_lift(&shown.stay);

    struct shown again = {.stay = BARRIER};
    lock = lock_that_shows(client_new("fake:?timeout=2s"), "n", DLOCK_OWNER_HANDLE, &again);
    lose_by_the_server(lock);
    struct all all = {.locks = {lock}, .n = 1};
    begin_call(several, release_all, &all);
    assert_false(over(several));
    barrier_lift(&again.stay);
    assert_int_equal(result(several), DLOCK_ELOST);
}

/* The thread of the callback is not the owner of the grant. */
TEST(an_on_lost_shows_the_lost_grant) {
    struct shown shown = {.stay = BARRIER};
    dlock_lock *lock = lock_that_shows(client_new("fake:"), "n", DLOCK_OWNER_THREAD, &shown);
    lose_by_the_server(lock);
    uint64_t fence = dlock_fence(lock);
    char token[DLOCK_TOKEN_MAX + 1];
    assert_int_equal(dlock_token(lock, token, sizeof token, NULL), 0);
    barrier_lift(&shown.stay);
    assert_int_equal(shown.calls, 1);
    assert_int_equal(shown.fence, fence);
    assert_string_equal(shown.token, token);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(also_while_its_client_is_closed) {
    struct shown shown = {.stay = BARRIER};
    struct actor *closer = actor_new();
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_that_shows(client, "n", DLOCK_OWNER_THREAD, &shown);
    lose_by_the_server(lock);
    uint64_t fence = dlock_fence(lock);
    begin_close(closer, client);
    assert_false(over(closer));
    barrier_lift(&shown.stay);
    wait_for(closer, 100);
    assert_true(shown.calls == 1 && shown.fence == fence);
    assert_int_equal(dlock_fence(lock), 0);
    assert_int_equal(dlock_lost(lock, NULL), DLOCK_ECANCELED);
}

/* A thread holds the lock through two handles; the release of one of them says nothing about the other. */
TEST(each_handle_s_on_lost_ends_with_its_own_release) {
    struct shown busy = {.stay = BARRIER}, first = {.stay = BARRIER}, second = {.stay = BARRIER};
    dlock_client *client = client_new("fake:");
    dlock_lock *other = lock_that_shows(client, "other", DLOCK_OWNER_THREAD, &busy);
    dlock_lock *a = lock_that_shows(client, "n", DLOCK_OWNER_THREAD, &first);
    dlock_lock *b = lock_that_shows(client, "n", DLOCK_OWNER_THREAD, &second);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    fake_advance_ms(1);
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    barrier_lift(&first.stay);
    barrier_lift(&second.stay);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
    fake_faults_clear();
    assert_int_equal(dlock_release(b, NULL), DLOCK_ELOST);
    barrier_lift(&busy.stay);
    assert_true(first.calls == 1 && second.calls == 0);
    assert_int_equal(dlock_release(a, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(other, NULL), DLOCK_ELOST);
}

/* `done` is called after on_lost, or on_lost is not called. */
TEST(no_on_lost_follows_the_done_of_a_release) {
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    dlock_client *client;
    assert_int_equal(dlock_open("fake:", &manual, &client, NULL), 0);
    struct lost_count lost = {0};
    struct done done = {0};
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    options.on_lost = count_lost;
    options.on_lost_arg = &lost;
    dlock_lock *lock = lock_new_with(client, "n", &options);
    lose_by_the_server(lock);
    assert_int_equal(dlock_release_async(lock, note_done, &done), 0);
    assert_int_equal(dlock_client_dispatch(client), 1);
    assert_done(&done, DLOCK_ELOST);
    assert_int_equal(dlock_client_dispatch(client), 0);
    assert_int_equal(lost.calls, 0);
    lock_end(lock);
    dlock_close(client);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
