/* One thread holds a lock through several handles: the grants of each, its callbacks, and the effect of ending one. */
#include "fixture.h"

#include "state/client.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* The linker sends the core's allocations through here (--wrap). */
static _Atomic bool out_of_memory;
static _Atomic int in_use;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size) {
    void *memory = out_of_memory ? NULL : __real_malloc(size);
    if (memory) atomic_fetch_add(&in_use, 1);
    return memory;
}

void *__wrap_calloc(size_t n, size_t size) {
    void *memory = out_of_memory ? NULL : __real_calloc(n, size);
    if (memory) atomic_fetch_add(&in_use, 1);
    return memory;
}

void __wrap_free(void *memory) {
    if (memory) atomic_fetch_sub(&in_use, 1);
    __real_free(memory);
}

/* Two handles of one name in one client; each counts its losses. */
struct pair {
    dlock_client *client;
    dlock_lock *a, *b;
    struct lost_count lost_a, lost_b;
};

static void pair_new(struct pair *p) {
    memset(p, 0, sizeof *p);
    p->client = client_new("fake:");
    p->a = watched_lock(p->client, "n", &p->lost_a);
    p->b = watched_lock(p->client, "n", &p->lost_b);
}

static void lose(void) {
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
}

TEST(a_grant_released_through_another_handle_leaves_no_count) {
    struct pair p;
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    assert_int_equal(dlock_release(p.b, NULL), 0);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), 0);
    struct fake_grant before = fake_holder("n");
    lock_end(p.a);
    assert_true(dlock_held(p.b));
    assert_string_equal(fake_holder("n").token, before.token);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(dlock_held(p.b));
    assert_string_equal(fake_holder("n").token, before.token);
    assert_int_equal(dlock_release(p.b, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
}

/* Under the address sanitizer this also shows that nothing is read of the handle that is gone. */
TEST(a_handle_freed_with_nothing_held_is_forgotten) {
    struct pair p;
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), 0);
    assert_int_equal(dlock_release(p.a, NULL), 0);
    lock_end(p.a);
    lose();
    assert_int_equal(p.lost_a.calls, 0);
    assert_int_equal(p.lost_b.calls, 1);
    assert_ptr_equal(p.lost_b.lock, p.b);
    assert_int_equal(dlock_release(p.b, NULL), DLOCK_ELOST);
}

/* Over a grant that is held for long. */
TEST(handles_that_come_and_go_need_no_more_memory) {
    struct pair p;
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    for (int i = 0, used = 0; i < 20; i++) {
        dlock_lock *more = lock_new(p.client, "n");
        assert_int_equal(dlock_acquire(more, 0, NULL), 0);
        lock_end(more);
        if (i == 0) used = in_use;
        assert_int_equal(in_use, used);
    }
}

TEST(a_loss_is_told_through_every_handle_that_holds) {
    struct pair p;
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), 0);
    lose();
    assert_int_equal(p.lost_a.calls, 1);
    assert_ptr_equal(p.lost_a.lock, p.a);
    assert_int_equal(p.lost_b.calls, 1);
    assert_ptr_equal(p.lost_b.lock, p.b);
    assert_int_equal(dlock_release(p.a, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(p.b, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(p.b, NULL), DLOCK_EOWNER);
}

TEST(freeing_a_handle_after_the_loss_leaves_it_a_loss) {
    struct pair p;
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), 0);
    lose();
    lock_end(p.a);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(p.b, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(p.b, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(p.b, 0, NULL), 0);
}

TEST(without_memory_for_a_second_hold_nothing_more_is_held) {
    struct pair p;
    struct dlock_error err = {0, ""};
    pair_new(&p);
    assert_int_equal(dlock_acquire(p.a, 0, NULL), 0);
    fake_settle();
    out_of_memory = true;
    int rc = dlock_acquire(p.b, 0, &err);
    out_of_memory = false;
    assert_int_equal(rc, DLOCK_ENOMEM);
    assert_int_equal(err.code, DLOCK_ENOMEM);
    assert_true(dlock_held(p.a));
    lock_end(p.b);
    assert_true(dlock_held(p.a));
    assert_int_equal(dlock_release(p.a, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_release(p.a, NULL), DLOCK_EOWNER);
}

TEST(all_are_released_without_memory) {
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[] = {lock_new(client, "a"), lock_new(client, "b"), lock_new(client, "c")};
    struct dlock_error err = {0, ""};
    assert_int_equal(dlock_acquire_all(locks, 3, 0, NULL), 0);
    fake_settle();
    out_of_memory = true;
    int rc = dlock_release_all(locks, 3, &err);
    out_of_memory = false;
    if (rc != 0) fail_msg("%s", err.message);
    assert_int_equal(fake_entries(), 0);
}

TEST(all_others_are_released_beside_a_null) {
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[] = {lock_new(client, "a"), NULL, lock_new(client, "c")};
    struct dlock_error err = {0, ""};
    assert_int_equal(dlock_acquire(locks[0], 0, NULL), 0);
    assert_int_equal(dlock_acquire(locks[2], 0, NULL), 0);
    assert_int_equal(dlock_release_all(locks, 3, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "NULL"));
    assert_int_equal(fake_entries(), 0);
}

/* A claim that merely waits has given away what it needs for its next request, or to be held: another one holds with
 * that, and there is no more. */
static struct actor *wait_without_memory(struct pair *p, dlock_lock **other) {
    pair_new(p);
    struct actor *waiter = actor_new();
    begin_acquire(waiter, p->a, -1);
    *other = lock_new(p->client, "o");
    fake_fault(FAKE_RELEASE, FAKE_AUTH, 1); /* the engine, which releases the rest, runs */
    assert_int_equal(dlock_acquire(*other, 0, NULL), 0);
    assert_int_equal(dlock_release(*other, NULL), DLOCK_EAUTH);
    fake_settle();
    assert_int_equal(dlock_acquire(*other, 0, NULL), 0);
    fake_settle();
    out_of_memory = true;
    return waiter;
}

static void assert_nothing_stays(struct actor *waiter, dlock_lock *other) {
    out_of_memory = false;
    assert_int_equal(result(waiter), DLOCK_ENOMEM);
    assert_int_equal(error_of(waiter)->code, DLOCK_ENOMEM);
    fake_advance_ms(2000);
    assert_int_equal(fake_waiters("n"), 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(dlock_release(other, NULL), 0);
}

TEST(without_memory_for_its_next_question_a_wait_ends) {
    struct pair p;
    dlock_lock *other;
    struct fake_grant holder = taken("n");
    struct actor *waiter = wait_without_memory(&p, &other);
    fake_server_cut_listeners(); /* all repeat their requests */
    fake_settle();
    fake_other_release(&holder, "n");
    assert_nothing_stays(waiter, other);
}

TEST(without_memory_for_a_grant_by_wake_it_is_given_back) {
    struct pair p;
    dlock_lock *other;
    struct fake_grant holder = taken("n");
    struct actor *waiter = wait_without_memory(&p, &other);
    fake_other_release(&holder, "n");
    fake_settle();
    assert_string_not_equal(fake_holder("n").token, "");
    assert_nothing_stays(waiter, other);
}

/* ---- a loss while the client is closing -------------------------------------------------------------------------- */

static void stay(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    (void)err;
    barrier_wait(arg);
}

/* One lock is lost and its callback runs; the client closes; another lock is found lost then, if `late`. Returns how
 * many allocations of the client are still there afterwards. */
static int left_after_a_close(bool late) {
    struct barrier barrier = BARRIER;
    struct lost_count lost = {0};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    int before = in_use;
    struct actor *closer = actor_new();
    dlock_client *client = client_new("fake:");
    dlock_lock *second = watched_lock(client, "n", &lost);
    options.on_lost = stay;
    options.on_lost_arg = &barrier;
    dlock_lock *first = lock_new_with(client, "first", &options);
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    fake_advance_ms(LEASE_MS / 5); /* not in one batch with the other one */
    assert_int_equal(dlock_acquire(second, 0, NULL), 0);
    fake_server_break("first");
    fake_advance_ms(THIRD_MS - LEASE_MS / 5);
    if (late) fake_server_break("n");
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(LEASE_MS / 5);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_close(closer, client);
    fake_slow_go();
    fake_settle();
    assert_false(over(closer));
    dlock__enter(client); /* a thread that removes it from the callbacks' queue is leaving */
    bool queued = client->callback.first != NULL;
    dlock__leave(client);
    barrier_lift(&barrier);
    wait_for(closer, 100);
    assert_false(queued);
    assert_int_equal(lost.calls, 0);
    lock_end(first);
    lock_end(second);
    return in_use - before;
}

TEST(a_loss_found_while_closing_is_told_to_nobody_and_leaves_nothing) {
    int usual = left_after_a_close(false);
    assert_int_equal(left_after_a_close(true), usual);
}

/* Whatever the client's other threads do with its mutex: here this one has it, and would wait for itself. */
TEST(asking_whether_it_is_held_needs_no_mutex) {
    dlock_client *client = client_new("fake:");
    dlock_lock *mine = lock_new(client, "m"), *again = lock_new(client, "m");
    dlock_lock *handles = lock_new_with(client, "h", &by_handle);
    struct actor *other = actor_new();
    assert_int_equal(dlock_acquire(mine, 0, NULL), 0);
    assert_int_equal(dlock_acquire(again, 0, NULL), 0);
    assert_int_equal(acquire_by(other, handles, 0), 0);
    fake_advance_ms(30000); /* renewed since */
    alarm(10);              /* instead of a deadlock */
    dlock__enter(client);
    bool held = dlock_held(mine) && dlock_held(again) && dlock_held(handles);
    dlock__leave(client);
    alarm(0);
    assert_true(held);
    assert_int_equal(dlock_release(mine, NULL), 0);
    assert_true(dlock_held(mine) && dlock_held(again));
    assert_int_equal(dlock_release(mine, NULL), 0);
    assert_false(dlock_held(mine) || dlock_held(again));
    assert_int_equal(dlock_release(handles, NULL), 0);
    assert_false(dlock_held(handles));
}

/* ---- handles with other terms ---- */

static dlock_lock *fixed_lock(dlock_client *client, int64_t lease_ms) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    options.lease_ms = lease_ms;
    return lock_new_with(client, "n", &options);
}

static void assert_renewed_for(dlock_lock *lock, int64_t lease_ms) {
    struct fake_command renewal;
    fake_advance_ms(2 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_true(fake_last(FAKE_RENEW, "n", &renewal));
    assert_int_equal(renewal.lease_ms, lease_ms);
}

TEST(a_fixed_grant_is_renewed_once_a_handle_re_enters_that_wants_that) {
    dlock_client *client = client_new("fake:");
    dlock_lock *fixed = fixed_lock(client, 500), *renewed = lock_new(client, "n");
    assert_int_equal(dlock_acquire(fixed, 0, NULL), 0);
    fake_advance_ms(100);
    assert_int_equal(dlock_acquire(renewed, 0, NULL), 0);
    fake_settle();
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 1); /* at once: 400 ms are left */
    assert_in_range(dlock_remaining_ms(renewed), LEASE_MS * 9 / 10, LEASE_MS);
    assert_renewed_for(renewed, LEASE_MS);
    assert_int_equal(dlock_release(renewed, NULL), 0);
    assert_renewed_for(fixed, LEASE_MS); /* until the last release */
    assert_int_equal(dlock_release(fixed, NULL), 0);
    assert_int_equal(dlock_acquire(fixed, 0, NULL), 0); /* a separate grant */
    fake_advance_ms(500);
    assert_false(dlock_held(fixed));
    assert_int_equal(dlock_release(fixed, NULL), DLOCK_ELOST);
}

TEST(a_re_entry_with_a_longer_lease_makes_the_grant_s_longer) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client = client_new("fake:");
    options.lease_ms = 2 * LEASE_MS;
    dlock_lock *usual = lock_new(client, "n"), *longer = lock_new_with(client, "n", &options);
    dlock_lock *fixed = fixed_lock(client, 3 * LEASE_MS), *shorter = fixed_lock(client, 500);
    assert_int_equal(dlock_acquire(usual, 0, NULL), 0);
    assert_int_equal(dlock_acquire(longer, 0, NULL), 0);
    assert_renewed_for(usual, 2 * LEASE_MS);
    assert_int_equal(dlock_acquire(fixed, 0, NULL), 0);
    assert_int_equal(dlock_acquire(shorter, 0, NULL), 0);
    assert_renewed_for(usual, 3 * LEASE_MS);
    for (int i = 0; i < 4; i++) assert_int_equal(dlock_release(usual, NULL), 0);
}

TEST(a_fixed_lease_is_made_longer_by_no_re_entry_but_by_an_extension) {
    struct dlock_error err;
    dlock_client *client = client_new("fake:");
    dlock_lock *fixed = fixed_lock(client, 500), *longer = fixed_lock(client, 1000);
    assert_int_equal(dlock_acquire(fixed, 0, NULL), 0);
    assert_int_equal(dlock_acquire(longer, 0, &err), DLOCK_EDEADLK);
    assert_non_null(strstr(err.message, "dlock_extend"));
    struct actor *actor = actor_new();
    assert_int_equal(dlock_release(fixed, NULL), 0);
    assert_int_equal(acquire_by(actor, longer, 0), 0);
    assert_int_equal(extend_by(actor, longer, 500), 0);
    assert_int_equal(acquire_by(actor, longer, 0), 0); /* the handle that has it may always */
    assert_int_equal(acquire_by(actor, fixed, 0), 0);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 1);
    for (int i = 0; i < 3; i++) assert_int_equal(release_by(actor, longer), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
