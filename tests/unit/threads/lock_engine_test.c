/* Requests that no thread waits for: none is delayed by a hanging one of another kind, and a close ends them all. */
#include "fixture.h"
#include "state/acquisition.h"

#include <limits.h>
#include <stdatomic.h>

enum { CROWD = 600, NAMES = 40 };

/* An orphan whose release hangs: its owner got no answer in time. */
static void orphan_that_hangs(dlock_client *client) {
    static const struct dlock_options fixed = {.size = sizeof fixed, .flags = DLOCK_FIXED_LEASE}; /* never lingers */
    struct actor *owner = actor_new();
    dlock_lock *lock = lock_new_with(client, "orphan", &fixed);
    assert_int_equal(acquire_by(owner, lock, 0), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_release(owner, lock);
    wait_for(owner, 5000);
    assert_int_equal(result(owner), DLOCK_EUNAVAILABLE);
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
}

TEST(a_first_wait_does_not_stand_behind_an_orphan) {
    dlock_client *client = client_new("fake:?timeout=1s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    struct done done = {0};
    orphan_that_hangs(client);
    begin_async(lock, 5000, &done);
    assert_done(&done, 0);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_faults_clear();
    fake_slow_go();
}

TEST(nor_does_the_next_question_of_one_that_waits) {
    dlock_client *client = client_new("fake:?timeout=1s");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    struct fake_grant other = taken("n");
    struct done done = {0};
    begin_async(lock, -1, &done);
    orphan_that_hangs(client);
    fake_other_release(&other, "n");
    fake_settle();
    assert_done(&done, 0);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_faults_clear();
    fake_slow_go();
}

TEST(an_orphan_does_not_stand_behind_a_wait) {
    dlock_client *client = client_new("fake:?timeout=20s");
    dlock_lock *hangs = lock_new_with(client, "hangs", &by_handle), *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct done done = {0};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(hangs, 15000, &done);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1200);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(done.calls, 0);
    fake_slow_go();
    fake_settle();
    assert_done(&done, 0);
}

/* As while the limit of processes is reached. The client has nothing else to do, which would wake the keeper. */
TEST(an_orphan_is_released_once_there_is_a_thread_for_it) {
    dlock_lock *lock = lock_new(client_new("fake:?timeout=1s&lease=60s"), "n");
    struct actor *owner = actor_new();
    assert_int_equal(acquire_by(owner, lock, 0), 0);
    fake_refuse_threads(UINT_MAX);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 1000);
    begin_release(owner, lock);
    wait_for(owner, 1100);
    assert_int_equal(result(owner), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    fake_advance_ms(25000); /* beyond the time of the renewal that there would have been */
    assert_string_not_equal(fake_holder("n").token, "");
    fake_refuse_threads(0);
    fake_advance_ms(1500);
    assert_string_equal(fake_holder("n").token, "");
}

/* A wait ends while its request hangs: a grant that arrives after that is released at once. */
TEST(what_comes_too_late_is_released_as_soon_as_it_is_answered) {
    dlock_client *client = client_new("fake:?timeout=20s");
    dlock_lock *hangs = lock_new_with(client, "hangs", &by_handle), *lock = lock_new_with(client, "n", &by_handle);
    struct done slow = {0}, done = {0};
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_async(hangs, 15000, &slow);
    assert_int_equal(dlock_acquire_async(lock, 15000, note_done, &done), 0);
    assert_int_equal(dlock_cancel(hangs), 0);
    fake_settle();
    fake_slow_go();
    fake_settle();
    assert_done(&slow, DLOCK_ECANCELED);
    assert_done(&done, 0);
    assert_string_equal(fake_holder("hangs").token, "");
}

static void hold_crowd(dlock_client *client) {
    static const struct dlock_options permits = {.size = sizeof permits, .mode = DLOCK_PERMIT, .limit = CROWD};
    dlock_lock *held = lock_new_with(client, "held", &permits);
    for (int i = 0; i < CROWD; i++) assert_int_equal(dlock_acquire(held, 0, NULL), 0);
}

/* Held, lingering, orphaned and waiting. */
TEST(a_close_ends_all_of_them) {
    dlock_client *client = client_new("fakefull:?timeout=1s&linger=60s");
    dlock_lock *lingers = lock_new(client, "lingers");
    static struct done done[NAMES];
    memset(done, 0, sizeof done);
    hold_crowd(client);
    assert_int_equal(dlock_acquire(lingers, 0, NULL), 0);
    assert_int_equal(dlock_release(lingers, NULL), 0);
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        taken(name);
        begin_async(lock_new_with(client, name, &by_handle), -1, &done[i]);
    }
    orphan_that_hangs(client);
    fake_faults_clear();
    fake_slow_go();
    fake_log_clear();
    client_end(client);
    assert_int_equal(fake_entries(), 0);
    for (int i = 0; i < NAMES; i++) assert_done(&done[i], DLOCK_ECANCELED);
    assert_in_range(fake_calls(FAKE_RELEASE), (CROWD + NAMES) / DLOCK__BATCH, 8); /* as many as can be in each */
}

TEST(a_close_has_one_deadline_for_everything) {
    dlock_client *client = client_new("fakefull:?timeout=1s");
    struct actor *closer = actor_new();
    hold_crowd(client);
    orphan_that_hangs(client);
    begin_close(closer, client);
    assert_true(wait_for(closer, 5000) <= 1100000);
    fake_faults_clear();
    fake_server_forget();
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
