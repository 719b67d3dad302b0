/* Asynchronous waits and releases: no thread for each. */
#include "fixture.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { CROWD = 10000 };

TEST(handles_of_threads_have_none) {
    struct done done = {0};
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire_async(lock, 0, note_done, &done), DLOCK_ENOTSUP);
    assert_int_equal(dlock_release_async(lock, note_done, &done), DLOCK_ENOTSUP);
    fake_settle();
    assert_int_equal(done.calls, 0);
}

TEST(many_waits_are_one_request) {
    enum { N = 200 };
    static struct done done[N];
    memset(done, 0, sizeof done);
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[N], *first = lock_new_with(client, "first", &by_handle);
    struct done slow = {0};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(first, 5000, &slow);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        locks[i] = lock_new_with(client, name, &by_handle);
        assert_int_equal(dlock_acquire_async(locks[i], 5000, note_done, &done[i]), 0);
    }
    fake_slow_go();
    fake_settle();
    assert_done(&slow, 0);
    for (int i = 0; i < N; i++) assert_done(&done[i], 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1); /* the others gather meanwhile */
    for (int i = 0; i < N; i++) assert_int_equal(dlock_release_async(locks[i], note_done, &done[i]), 0);
    fake_settle();
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_calls(FAKE_RELEASE), 2);
    assert_int_equal(fake_entries(), 1); /* the first */
}

/* The number of a client's threads does not change, and a wait in line is a record of a few hundred bytes. */
TEST(ten_thousand_waits_need_no_thread_and_little_memory) {
    static dlock_lock *locks[CROWD];
    static struct done done[CROWD];
    memset(done, 0, sizeof done);
    dlock_client *client = client_new("fake:");
    struct fake_grant other = taken("n");
    dlock_lock *before = lock_new_with(client, "n", &by_handle);
    struct done first = {0};
    begin_async(before, -1, &first);
    unsigned threads = fake_threads_started();
    for (int i = 0; i < CROWD; i++) assert_int_equal(dlock_new(client, "n", &by_handle, &locks[i], NULL), 0);
    size_t used = mallinfo2().uordblks;
    for (int i = 0; i < CROWD; i++) assert_int_equal(dlock_acquire_async(locks[i], -1, note_done, &done[i]), 0);
    fake_settle();
    size_t each = (mallinfo2().uordblks - used) / CROWD;
    assert_int_equal(fake_threads_started(), threads);
    assert_true(each < 512); /* under a sanitizer: 0 */
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&other, "n");
    fake_settle();
    assert_done(&first, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dlock_release_async(i ? locks[i - 1] : before, note_done, &first), 0);
        fake_settle();
        assert_done(&done[i], 0);
    }
    client_end(client);
    for (int i = 100; i < CROWD; i++) assert_done(&done[i], DLOCK_ECANCELED);
    for (int i = 0; i < CROWD; i++) dlock_free(locks[i]);
}

/* ---- a server on which every name is always busy ---- */

static int busy_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                        struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void busy_disconnect(void *conn) {
    (void)conn;
}

static int busy_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = DLOCK_EBUSY;
        claims[i]->retry_ms = DLOCK_FOREVER;
    }
    return 0;
}

static int busy_lost(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_ELOST;
    return 0;
}

static const struct dlock_backend busy_backend = {
    .abi = DLOCK_ABI,
    .size = sizeof busy_backend,
    .name = "busy",
    .schemes = (const char *const[]){"busy", NULL},
    .conn_size = 1,
    .connect = busy_connect,
    .disconnect = busy_disconnect,
    .acquire = busy_acquire,
    .renew = busy_lost,
    .release = busy_lost,
};

/* Each is the first in its own line, and so has its own claim at the server. */
TEST(nor_do_ten_thousand_waits_for_as_many_names) {
    static dlock_lock *locks[CROWD];
    static struct done done[CROWD];
    memset(done, 0, sizeof done);
    assert_int_equal(dlock_register(&busy_backend, NULL), 0);
    dlock_client *client = client_new("busy:");
    for (int i = 0; i < CROWD; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(dlock_new(client, name, &by_handle, &locks[i], NULL), 0);
    }
    struct done first = {0};
    begin_async(lock_new_with(client, "first", &by_handle), -1, &first); /* the threads, and what they need once */
    unsigned threads = fake_threads_started();
    size_t used = mallinfo2().uordblks;
    for (int i = 0; i < CROWD; i++) assert_int_equal(dlock_acquire_async(locks[i], -1, note_done, &done[i]), 0);
    fake_settle();
    size_t each = (mallinfo2().uordblks - used) / CROWD;
    print_message("a wait for a name of its own: %zu bytes\n", each);
    assert_true(each < 512); /* under a sanitizer: 0 */
    assert_int_equal(fake_threads_started(), threads);
    client_end(client);
    assert_done(&first, DLOCK_ECANCELED);
    for (int i = 0; i < CROWD; i++) assert_done(&done[i], DLOCK_ECANCELED);
    for (int i = 0; i < CROWD; i++) dlock_free(locks[i]);
}

/* While the thread that sends requests is busy. */
TEST(a_wait_that_begins_during_a_hanging_request_ends_by_its_deadline) {
    dlock_client *client = client_new("fake:");
    dlock_lock *hangs = lock_new_with(client, "hangs", &by_handle), *lock = lock_new_with(client, "n", &by_handle);
    struct done late = {0}, done = {0};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(hangs, 4000, &late);
    assert_int_equal(fake_slow_waiting(), 1);
    int64_t began_us = dlock__now_us();
    begin_async(lock, 300, &done);
    fake_advance_ms(400);
    assert_done(&done, DLOCK_EUNAVAILABLE);
    assert_true(done.at_us - began_us <= 400000);
    assert_int_equal(late.calls, 0);
    fake_slow_go();
    fake_settle();
    assert_done(&late, 0);
    begin_async(lock, 300, &done);
    assert_int_equal(done.calls, 2);
    assert_int_equal(done.code, 0);
}

/* The callback thread sleeps for longer than it wanted to after a suspend, while the next wait wants it earlier. */
static struct barrier overdue = BARRIER;

static void overrun(struct dlock_claim *claim) {
    (void)claim;
    barrier_wait(&overdue);
}

/* Also if the backend takes longer than it may. */
TEST(so_does_a_release) {
    dlock_client *client = client_new("fake:?timeout=1s");
    dlock_lock *hangs = lock_new_with(client, "hangs", &by_handle), *lock = lock_new_with(client, "n", &by_handle);
    struct done slow = {0}, done = {0}, gave = {0};
    begin_async(lock, 1000, &done);
    assert_done(&done, 0);
    fake_edit(FAKE_ACQUIRE, overrun, 1);
    begin_async(hangs, 4000, &slow);
    int64_t begun_us = dlock__now_us();
    assert_int_equal(dlock_release_async(lock, note_done, &gave), 0);
    fake_advance_ms(1500);
    assert_done(&gave, DLOCK_EUNAVAILABLE);
    assert_true(gave.at_us - begun_us <= 1100000);
    barrier_lift(&overdue);
    fake_advance_ms(1000);
    assert_done(&slow, 0);
    assert_string_equal(fake_holder("n").token, "");
}

TEST(so_does_one_that_begins_after_a_suspend) {
    dlock_client *client = client_new("fake:");
    dlock_lock *hangs = lock_new_with(client, "hangs", &by_handle), *lock = lock_new_with(client, "n", &by_handle);
    struct done late = {0}, done = {0};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(hangs, 700, &late);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_suspend_ms(750);
    int64_t began_us = dlock__now_us();
    begin_async(lock, 300, &done);
    fake_advance_ms(400);
    assert_done(&done, DLOCK_EUNAVAILABLE);
    assert_true(done.at_us - began_us <= 400000);
    assert_done(&late, DLOCK_EUNAVAILABLE);
    fake_slow_go();
    fake_settle();
}

/* The answer is a grant, and its waiter was cancelled while it was on the way; the thread that would give it back is
 * kept busy by another request until the server takes everything away. */
TEST(a_grant_for_a_cancelled_wait_can_be_lost) {
    dlock_client *client = client_new("fake:?timeout=20s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle), *other = lock_new_with(client, "o", &by_handle);
    struct done done = {0}, gave = {0};
    begin_async(other, 0, &gave);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_fault(FAKE_RELEASE, FAKE_SLOW_AFTER, 1);
    begin_async(lock, 5000, &done);
    assert_int_equal(dlock_release_async(other, note_done, &gave), 0);
    assert_int_equal(dlock_cancel(lock), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    fake_server_break("n");
    fake_advance_ms(4000); /* the renewal of a held lock would report it */
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 0);
    fake_slow_go();
    fake_advance_ms(LEASE_MS);
    assert_done(&done, DLOCK_ECANCELED);
    assert_int_equal(fake_entries(), 0);
    begin_async(lock, 1000, &done);
    assert_int_equal(done.calls, 2);
    assert_int_equal(done.code, 0);
}

TEST(freeing_ends_waits_at_every_step) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:");
    struct done done = {0};
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    assert_int_equal(dlock_acquire_async(lock, -1, note_done, &done), 0);
    begin_free(actor, lock); /* before, within or after its request */
    assert_int_equal(result(actor), 0);
    assert_int_equal(done.calls, 1);
    assert_int_equal(fake_entries(), 0);

    struct done asking = {0};
    lock = lock_new_with(client, "n", &by_handle);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_async(lock, -1, &asking);
    begin_free(actor, lock);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_done(&asking, DLOCK_ECANCELED);
    assert_int_equal(fake_entries(), 0);

    struct done queued = {0};
    struct fake_grant other = taken("n");
    lock = lock_new_with(client, "n", &by_handle);
    begin_async(lock, -1, &queued);
    begin_free(actor, lock);
    assert_int_equal(result(actor), 0);
    assert_done(&queued, DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
    fake_other_release(&other, "n");
}

/* A lingering lock is taken at once, and its callback runs as for any other. */
TEST(a_lingering_lock_is_taken) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:?linger=5s"), "n", &by_handle);
    struct done done = {0}, gave = {0};
    begin_async(lock, 1000, &done);
    assert_done(&done, 0);
    assert_int_equal(dlock_release_async(lock, note_done, &gave), 0);
    fake_settle();
    assert_done(&gave, 0);
    fake_log_clear();
    begin_async(lock, 1000, &done);
    assert_int_equal(done.calls, 2);
    assert_int_equal(done.code, 0);
    assert_true(dlock_held(lock));
    assert_int_equal(fake_log_size(), 0);
}

/* Two requests in one batch: while the first, busy, brings up the listener, the other's deadline passes. It was
 * granted, and must not stay. */
TEST(a_grant_whose_wait_ended_before_its_answer_was_seen_is_given_back) {
    dlock_client *client = client_new("fake:");
    dlock_lock *hold = lock_new_with(client, "hold", &by_handle), *busy = lock_new_with(client, "a", &by_handle);
    dlock_lock *granted = lock_new_with(client, "b", &by_handle);
    struct done held = {0}, late = {0}, done = {0};
    struct fake_grant other = taken("a");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(hold, 5000, &held);
    assert_int_equal(dlock_acquire_async(busy, 5000, note_done, &late), 0);
    assert_int_equal(dlock_acquire_async(granted, 500, note_done, &done), 0);
    fake_fault(FAKE_LISTEN, FAKE_SLOW, 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    fake_advance_ms(600);
    assert_int_equal(done.calls, 1);
    fake_slow_go();
    fake_settle();
    if (done.code != 0) assert_string_equal(fake_holder("b").token, "");
    fake_other_release(&other, "a");
    fake_settle();
    assert_done(&late, 0);
}

struct again {
    struct done done;
    _Atomic int refused;
};

static void wait_again(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct again *again = arg;
    note_done(lock, err, &again->done);
    if (again->done.calls < 10) again->refused = dlock_acquire_async(lock, -1, wait_again, again);
}

TEST(a_free_ends_though_its_callback_wants_to_wait_again) {
    dlock_lock *lock = lock_new_with(client_new("fake:"), "n", &by_handle);
    struct actor *actor = actor_new();
    struct again again = {{0}, 0};
    taken("n");
    assert_int_equal(dlock_acquire_async(lock, -1, wait_again, &again), 0);
    fake_settle();
    begin_free(actor, lock);
    assert_true(over(actor));
    assert_done(&again.done, DLOCK_ECANCELED);
    assert_int_equal(again.refused, DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 0);
}

/* Handed over, but lapsed before its thread, which is in a request, comes to it. */
static void a_wait_whose_grant_lapsed_before_its_turn_is_ended(bool by_free) {
    dlock_client *client = client_new("fake:?timeout=60s");
    dlock_lock *held = lock_new_with(client, "n", &by_handle), *lock = lock_new_with(client, "n", &by_handle);
    dlock_lock *elsewhere = lock_new_with(client, "m", &by_handle);
    static struct done done, slow;
    memset(&done, 0, sizeof done);
    memset(&slow, 0, sizeof slow);
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, held, 0), 0);
    begin_async(lock, -1, &done);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(elsewhere, -1, &slow);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 100000);
    assert_int_equal(release_by(actor, held), 0);
    fake_advance_ms(LEASE_MS);
    fake_other_acquire("n", 600000);
    assert_int_equal(done.calls, 0);
    if (by_free)
        begin_free(actor, lock);
    else
        assert_int_equal(dlock_cancel(lock), 0);
    fake_slow_go();
    fake_settle();
    assert_done(&done, DLOCK_ECANCELED);
    assert_true(over(actor));
    assert_int_equal(fake_waiters("n"), 0);
    fake_faults_clear();
}

TEST(a_cancel_reaches_a_wait_whose_grant_lapsed_before_its_turn) {
    a_wait_whose_grant_lapsed_before_its_turn_is_ended(false);
}

TEST(a_free_ends_a_wait_whose_grant_lapsed_before_its_turn) {
    a_wait_whose_grant_lapsed_before_its_turn_is_ended(true);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
