/* Giving back: many grants as few requests, and one deadline for all of them, taken when the call begins. */
#include "fixture.h"

#include <stdatomic.h>

enum { PERMITS = ALL_MOST, CROWD = 1500, BATCH = 256, SPIN_US = 100 };

static const struct dlock_options permits = {.size = sizeof permits, .mode = DLOCK_PERMIT, .limit = CROWD};

static int try_it(void *arg) {
    return dlock_acquire(arg, 0, NULL);
}

/* By the calling thread, or the actor's. */
static dlock_lock *held_often(dlock_client *client, int n, struct actor *actor) {
    dlock_lock *lock = lock_new_with(client, "n", &permits);
    for (int i = 0; i < n; i++) assert_int_equal(actor ? acquire_by(actor, lock, 0) : try_it(lock), 0);
    assert_int_equal(fake_holders("n"), n);
    fake_log_clear();
    return lock;
}

/* ---- many grants of one name ---- */

TEST(grants_of_one_name_are_released_by_one_request) {
    dlock_lock *lock = held_often(client_new("fakefull:"), PERMITS, NULL);
    struct all all = {.n = PERMITS};
    for (size_t i = 0; i < all.n; i++) all.locks[i] = lock;
    assert_int_equal(release_all(&all), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_entries(), 0);
}

TEST(a_freed_handle_s_grants_are_released_by_one_request) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = held_often(client, PERMITS, NULL), *other = lock_new_with(client, "n", &permits);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    lock_end(lock);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_holders("n"), 1);
    assert_true(dlock_held(other));
}

TEST(a_close_releases_a_crowd_by_few_requests) {
    dlock_client *client = client_new("fakefull:?timeout=500ms");
    held_often(client, CROWD, NULL);
    client_end(client);
    assert_int_equal(fake_entries(), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), (CROWD + BATCH - 1) / BATCH);
}

/* ---- a silent server ---- */

TEST(a_silent_server_costs_a_release_of_many_one_timeout) {
    static const char *const uris[] = {"fakefull:?timeout=1s", "fakefull:?timeout=1s&connections=1"};
    for (size_t k = 0; k < 2; k++) {
        struct actor *actor = actor_new();
        dlock_lock *lock = held_often(client_new(uris[k]), PERMITS, actor);
        struct all all = {.n = PERMITS};
        for (size_t i = 0; i < all.n; i++) all.locks[i] = lock;
        fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
        begin_call(actor, release_all, &all);
        assert_true(wait_for(actor, 100000) <= 1100000);
        assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
        fake_faults_clear();
        fake_advance_ms(LEASE_MS); /* the engine's part */
        assert_int_equal(fake_entries(), 0);
    }
}

TEST(a_silent_server_costs_the_end_of_a_handle_one_timeout) {
    dlock_lock *lock = held_often(client_new("fakefull:?timeout=1s"), PERMITS, NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_free(actor, lock);
    assert_true(wait_for(actor, 100000) <= 1100000);
    fake_faults_clear();
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_entries(), 0);
}

TEST(locks_of_one_session_share_the_deadline) {
    dlock_client *client = client_new("fakesession:?timeout=1s");
    struct actor *actor = actor_new();
    struct all all = {.n = 5};
    for (size_t i = 0; i < all.n; i++) {
        all.locks[i] = lock_new(client, (const char *[]){"a", "b", "c", "d", "e"}[i]);
        assert_int_equal(acquire_by(actor, all.locks[i], 0), 0);
    }
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_call(actor, release_all, &all);
    assert_true(wait_for(actor, 100000) <= 1100000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_entries(), 0);
}

/* ---- what lingers here under other terms ---- */

static dlock_lock *unlike_what_lingers(dlock_client *client, const char *name) {
    static const struct dlock_options longer = {.size = sizeof longer, .lease_ms = 2 * LEASE_MS};
    dlock_lock *lock = lock_new(client, name);
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(fake_holders(name), 1);
    return lock_new_with(client, name, &longer);
}

TEST(what_lingers_does_not_prolong_an_acquire) {
    struct actor *actor = actor_new();
    dlock_lock *lock = unlike_what_lingers(client_new("fakefull:?linger=60s"), "n");
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_acquire(actor, lock, 1000);
    assert_true(wait_for(actor, 10000) <= 1100000);
    assert_true(result(actor) != 0);
}

TEST(what_lingers_does_not_prolong_an_acquire_of_all) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fakefull:?linger=60s");
    struct all all = {.locks = {unlike_what_lingers(client, "a"), unlike_what_lingers(client, "b")},
                      .n = 2,
                      .timeout_ms = 200};
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_call(actor, acquire_all, &all);
    assert_true(wait_for(actor, 10000) <= 300000);
    assert_true(result(actor) != 0);
}

/* ---- a release that lingers for a moment, and is ended by another call ---- */

struct call {
    dlock_lock *lock;
    int64_t timeout_ms;
    bool acquires;
    _Atomic bool over;
    int rc;
};

static void *do_call(void *arg) {
    struct call *call = arg;
    call->rc = call->acquires ? dlock_acquire(call->lock, call->timeout_ms, NULL) : dlock_release(call->lock, NULL);
    call->over = true;
    return NULL;
}

static pthread_t begin_thread(struct call *call) {
    pthread_t thread;
    assert_int_equal(fake_thread_start(&thread, do_call, call), 0);
    return thread;
}

/* Of a release: it waits a moment for who would take the lock. */
static pthread_t begin_spinning(struct call *call) {
    fake_spin_us(SPIN_US);
    pthread_t thread = begin_thread(call);
    fake_settle();
    assert_int_equal(fake_spinning(), 1);
    return thread;
}

/* Two handles of one name; the second has the lock from the first. */
static dlock_lock *handed_over(dlock_client *client) {
    dlock_lock *first = lock_new_with(client, "n", &by_handle), *second = lock_new_with(client, "n", &by_handle);
    struct call ask = {.lock = first, .timeout_ms = -1, .acquires = true};
    struct call wait = {.lock = second, .timeout_ms = -1, .acquires = true};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1); /* a release is worth while to wait for then */
    pthread_t thread = begin_thread(&ask);
    fake_settle();
    fake_advance_ms(1);
    fake_slow_go();
    fake_thread_join(thread);
    thread = begin_thread(&wait);
    fake_settle();
    assert_int_equal(dlock_release(first, NULL), 0);
    fake_thread_join(thread);
    assert_int_equal(wait.rc, 0);
    return second;
}

TEST(a_release_is_over_at_the_server_when_it_returns) {
    dlock_client *client = client_new("fake:");
    const struct dlock_options other = {.size = sizeof other, .lease_ms = LEASE_MS / 2};
    dlock_lock *unlike = lock_new_with(client, "n", &other);
    struct call release = {.lock = handed_over(client)};
    struct call acquire = {.lock = unlike, .timeout_ms = 1000, .acquires = true};
    pthread_t releaser = begin_spinning(&release);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
    pthread_t acquirer = begin_thread(&acquire); /* sends the release in the other's place */
    fake_advance_us(SPIN_US);
    assert_int_equal(fake_spinning(), 0);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_string_not_equal(fake_holder("n").token, "");
    assert_false(release.over);
    fake_slow_go();
    fake_thread_join(releaser);
    fake_thread_join(acquirer);
    assert_int_equal(release.rc, 0);
    assert_int_equal(acquire.rc, 0);
}

/* The release gets the result of that request, or none in time. */
TEST(a_release_that_another_call_sends_has_its_own_result) {
    static const int codes[] = {DLOCK_ELOST, DLOCK_EUNAVAILABLE};
    struct dlock_options other = by_handle;
    other.lease_ms = LEASE_MS / 2;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        dlock_client *client = client_new("fake:?timeout=1s");
        struct call release = {.lock = handed_over(client)};
        struct call acquire = {.lock = lock_new_with(client, "n", &other), .timeout_ms = 1000, .acquires = true};
        if (codes[i] == DLOCK_ELOST)
            fake_server_break("n");
        else
            fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
        pthread_t releaser = begin_spinning(&release), acquirer = begin_thread(&acquire);
        fake_advance_ms(1100);
        assert_true(release.over && acquire.over);
        fake_thread_join(releaser);
        fake_thread_join(acquirer);
        assert_int_equal(release.rc, codes[i]);
        fake_faults_clear();
        if (acquire.rc == 0) assert_int_equal(dlock_release(acquire.lock, NULL), 0);
        fake_advance_ms(LEASE_MS);
    }
}

TEST(an_asynchronous_wait_of_other_terms_ends_that_moment) {
    dlock_client *client = client_new("fake:");
    struct dlock_options other = by_handle;
    other.lease_ms = LEASE_MS / 2;
    dlock_lock *unlike = lock_new_with(client, "n", &other);
    struct call release = {.lock = handed_over(client)};
    struct done done = {0};
    pthread_t releaser = begin_spinning(&release);
    assert_int_equal(dlock_acquire_async(unlike, 1000, note_done, &done), 0);
    fake_advance_us(SPIN_US);
    fake_thread_join(releaser); /* hangs if the engine kept the mutex */
    fake_settle();
    assert_int_equal(release.rc, 0);
    assert_done(&done, 0);
    assert_true(dlock_held(unlike));
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(dlock_release(unlike, NULL), 0);
}

/* The releasing thread still has a reference to the acquisition. */
TEST(what_was_taken_in_that_moment_can_be_exported_and_imported) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *taker = lock_new_with(client, "n", &by_handle), *imported;
    struct call release = {.lock = handed_over(client)};
    char ticket[DLOCK_TICKET_MAX + 1];
    pthread_t releaser = begin_spinning(&release);
    fake_thread_stop(releaser);
    assert_int_equal(dlock_acquire(taker, 0, NULL), 0);
    uint64_t fence = dlock_fence(taker);
    assert_int_equal(dlock_export(taker, ticket, sizeof ticket, NULL), 0);
    int rc = dlock_import(client, ticket, &by_handle, &imported, NULL);
    fake_thread_continue();
    fake_thread_join(releaser);
    assert_int_equal(rc, 0);
    assert_int_equal(release.rc, 0);
    assert_true(dlock_held(imported));
    assert_true(dlock_fence(imported) > fence);
    assert_int_equal(fake_grants("n"), 1);
    dlock_free(imported);
}

/* ---- a handle that is freed during the close ---- */

/* The close releases what was acquired through it; a sanitizer reports any access to its memory after the free. */
TEST(a_handle_freed_during_the_close_hears_of_no_loss) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:?timeout=30s");
    dlock_lock *lock = watched_lock(client, "n", &lost), *freed = watched_lock(client, "o", &lost);
    dlock_lock *hangs = lock_new(client, "m");
    struct actor *inside = actor_new(), *closer = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(freed, 0, NULL), 0);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_call(inside, try_it, hangs);
    begin_close(closer, client);
    lock_end(freed);
    assert_false(over(closer));
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(lost.calls, 1); /* the other one */
    fake_slow_go();
    wait_for(closer, 60000);
    assert_int_equal(fake_entries(), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
