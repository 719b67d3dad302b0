/* Threads of one process settle contention among themselves, without a message to the server, but only for a limited
 * time. */
#include "fixture.h"

#include <limits.h>

/* Two threads that take turns: whenever one has the lock, the other waits for it. */
struct turns {
    dlock_client *client;
    dlock_lock *locks[2];
    struct actor *actors[2];
    int holder;
};

static void turns_begin(struct turns *t, const char *uri) {
    t->client = client_new(uri);
    for (int i = 0; i < 2; i++) {
        t->locks[i] = lock_new(t->client, "n");
        t->actors[i] = actor_new();
    }
    t->holder = 0;
    assert_int_equal(acquire_by(t->actors[0], t->locks[0], 0), 0);
}

/* The other one waits, the holder releases; the other one holds then. */
static void turn(struct turns *t) {
    int next = !t->holder;
    begin_acquire(t->actors[next], t->locks[next], -1);
    assert_false(over(t->actors[next]));
    assert_int_equal(release_by(t->actors[t->holder], t->locks[t->holder]), 0);
    wait_for(t->actors[next], 1000);
    assert_int_equal(result(t->actors[next]), 0);
    t->holder = next;
}

static uint64_t turns_fence(struct turns *t) {
    return fence_by(t->actors[t->holder], t->locks[t->holder]);
}

TEST(a_local_hand_over_needs_no_request) {
    struct turns t;
    turns_begin(&t, "fake:");
    uint64_t fence = turns_fence(&t);
    fake_log_clear();
    turn(&t);
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(turns_fence(&t), fence + 1);
    assert_int_equal(turns_fence(&t) >> 8, fake_holder("n").fence);
    assert_false(held_by(t.actors[0], t.locks[0]));
    assert_int_equal(release_by(t.actors[0], t.locks[0]), DLOCK_EOWNER);
    assert_int_equal(fake_grants("n"), 1);
}

TEST(after_32_hand_overs_the_server_has_its_say) {
    struct turns t;
    turns_begin(&t, "fake:");
    uint64_t fence = turns_fence(&t);
    fake_log_clear();
    for (int i = 0; i < 32; i++) {
        turn(&t);
        assert_true(turns_fence(&t) > fence);
        fence = turns_fence(&t);
    }
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_int_equal(fake_grants("n"), 1);
    turn(&t);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_grants("n"), 2);
    assert_true(turns_fence(&t) > fence);
    assert_int_equal(turns_fence(&t) & 255, 0);
}

/* A waiting client of another process gets its turn, whatever this process does. */
TEST(other_processes_get_their_turn) {
    struct turns t;
    turns_begin(&t, "fake:");
    fake_other_acquire("n", 600000);
    for (int i = 0; i < 32; i++) turn(&t);
    int next = !t.holder;
    begin_acquire(t.actors[next], t.locks[next], -1);
    assert_int_equal(release_by(t.actors[t.holder], t.locks[t.holder]), 0);
    assert_true(fake_holder("n").other);
    assert_false(over(t.actors[next]));
    struct fake_grant other = fake_holder("n");
    fake_other_release(&other, "n");
    wait_for(t.actors[next], 1000);
    assert_int_equal(result(t.actors[next]), 0);
}

TEST(after_one_lease_too) {
    struct turns t;
    turns_begin(&t, "fake:");
    for (int i = 0; i < 4; i++) {
        fake_advance_ms(2400);
        turn(&t);
    }
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    fake_advance_ms(500);
    turn(&t);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_grants("n"), 2);
}

TEST(a_grant_handed_over_is_renewed) {
    struct turns t;
    turns_begin(&t, "fake:");
    turn(&t);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(t.actors[1], t.locks[1]));
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(release_by(t.actors[1], t.locks[1]), 0);
    assert_string_equal(fake_holder("n").token, "");
}

TEST(threads_are_served_in_order) {
    enum { N = 6 };
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *holder = actor_new(), *actors[N];
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_log_clear();
    for (int i = 0; i < N; i++) begin_acquire(actors[i] = actor_new(), lock, -1);
    assert_int_equal(release_by(holder, lock), 0);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) assert_int_equal(over(actors[j]), j <= i);
        assert_int_equal(result(actors[i]), 0);
        assert_int_equal(release_by(actors[i], lock), 0);
    }
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
}

/* A grant has one lease and one set of flags: a caller that wants others gets a new grant. */
static void not_handed_over(const struct dlock_options *wanted) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new_with(client, "n", wanted);
    struct actor *holder = actor_new(), *waiter = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    uint64_t fence = fence_by(holder, lock);
    begin_acquire(waiter, other, -1);
    assert_int_equal(release_by(holder, lock), 0);
    wait_for(waiter, 1000);
    assert_int_equal(result(waiter), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_grants("n"), 2);
    assert_true(fence_by(waiter, other) > fence);
}

TEST(not_for_another_lease) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = 20000;
    not_handed_over(&options);
    struct fake_command command;
    assert_true(fake_last(FAKE_ACQUIRE, "n", &command));
    assert_int_equal(command.lease_ms, 20000);
}

TEST(not_for_a_fixed_lease) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    not_handed_over(&options);
}

TEST(not_for_other_flags) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_NO_REENTRY;
    not_handed_over(&options);
}

TEST(a_local_wait_has_its_deadline) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *holder = actor_new(), *first = actor_new(), *second = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_log_clear();
    begin_acquire(first, lock, 1000);
    begin_acquire(second, lock, 2000);
    assert_in_range(wait_for(first, 1200), 1000000, 1100000);
    assert_int_equal(result(first), DLOCK_ETIMEDOUT);
    assert_int_equal(error_of(first)->code, DLOCK_ETIMEDOUT);
    assert_int_equal(fake_calls(FAKE_ACQUIRE) + fake_calls(FAKE_RELEASE), 0);
    assert_int_equal(release_by(holder, lock), 0);
    assert_int_equal(result(second), 0);
    assert_int_equal(release_by(second, lock), 0);
}

TEST(a_local_wait_can_be_cancelled) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n"), *other = lock_new(client, "n");
    struct actor *holder = actor_new(), *first = actor_new(), *second = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    begin_acquire(first, other, -1);
    begin_acquire(second, lock, -1);
    fake_log_clear();
    dlock_cancel(other);
    fake_settle();
    assert_int_equal(result(first), DLOCK_ECANCELED);
    assert_false(over(second));
    assert_int_equal(fake_log_size(), 0);
    assert_int_equal(release_by(holder, lock), 0);
    assert_int_equal(result(second), 0);
}

/* While one of our threads asks the server, those behind it wait in the process. */
TEST(only_the_first_waiter_talks_to_the_server) {
    enum { N = 5 };
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actors[N];
    struct fake_grant other = taken("n");
    for (int i = 0; i < N; i++) begin_acquire(actors[i] = actor_new(), lock, -1);
    fake_advance_ms(5000);
    assert_int_equal(fake_waiters("n"), 1);
    struct actor *hasty = actor_new();
    fake_log_clear();
    assert_int_equal(acquire_by(hasty, lock, 0), DLOCK_EBUSY);
    assert_int_equal(fake_log_size(), 0);
    fake_other_release(&other, "n");
    fake_settle();
    for (int i = 0; i < N; i++) {
        assert_int_equal(result(actors[i]), 0);
        assert_int_equal(release_by(actors[i], lock), 0);
    }
    assert_int_equal(fake_grants("n"), 2);
}

/* The first waiter gives up: the next one takes over at the server. */
TEST(the_next_waiter_takes_over) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n"), *other_handle = lock_new(client, "n");
    struct actor *first = actor_new(), *second = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(first, other_handle, -1);
    begin_acquire(second, lock, -1);
    dlock_cancel(other_handle);
    fake_settle();
    assert_int_equal(result(first), DLOCK_ECANCELED);
    assert_int_equal(fake_waiters("n"), 1);
    assert_false(over(second));
    fake_other_release(&other, "n");
    wait_for(second, 1000);
    assert_int_equal(result(second), 0);
}

TEST(a_loss_is_told_to_whoever_holds_it_now) {
    struct lost_count lost[2] = {{0}, {0}};
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[2];
    struct actor *actors[2];
    for (int i = 0; i < 2; i++) {
        locks[i] = watched_lock(client, "n", &lost[i]);
        actors[i] = actor_new();
    }
    assert_int_equal(acquire_by(actors[0], locks[0], 0), 0);
    begin_acquire(actors[1], locks[1], -1);
    assert_int_equal(release_by(actors[0], locks[0]), 0);
    assert_int_equal(result(actors[1]), 0);
    fake_server_forget();
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost[0].calls, 0);
    assert_int_equal(lost[1].calls, 1);
    assert_int_equal(release_by(actors[1], locks[1]), DLOCK_ELOST);
}

/* On a server without a queue the process that asks first would always win: it pauses after its turns. */
/* The other one soon gets in, whenever it asks, although nothing tells it when to. */
TEST(without_a_queue_other_processes_get_their_turn) {
    struct turns t;
    turns_begin(&t, "fakepoll:");
    dlock_lock *far = lock_new(client_new("fakepoll:"), "n");
    struct actor *stranger = actor_new();
    for (int times = 0; times < 3; times++) {
        begin_acquire(stranger, far, -1);
        for (int turns = 0; !over(stranger); turns++) {
            assert_true(turns < 2000);
            fake_advance_ms(1);
            int next = !t.holder;
            begin_acquire(t.actors[next], t.locks[next], -1);
            begin_release(t.actors[t.holder], t.locks[t.holder]);
            while (!over(t.actors[next]) && !over(stranger)) fake_advance_us(500);
            t.holder = next;
        }
        assert_int_equal(result(stranger), 0);
        assert_false(over(t.actors[t.holder]));
        assert_int_equal(release_by(stranger, far), 0);
        wait_for(t.actors[t.holder], 200);
        assert_int_equal(result(t.actors[t.holder]), 0);
    }
}

/* How long its own waiters stand back, after 33 turns of half a millisecond. */
static int64_t pause_after_turns(const char *uri) {
    struct turns t;
    turns_begin(&t, uri);
    for (int i = 0; i < 32; i++) {
        fake_advance_us(500);
        turn(&t);
    }
    fake_advance_us(500);
    int next = !t.holder;
    begin_acquire(t.actors[next], t.locks[next], -1);
    begin_release(t.actors[t.holder], t.locks[t.holder]);
    int64_t pause_us = wait_for(t.actors[next], 1000);
    assert_int_equal(release_by(t.actors[next], t.locks[next]), 0);
    return pause_us;
}

TEST(without_a_queue_the_pause_is_no_longer_than_the_grant) {
    assert_in_range(pause_after_turns("fakepoll:"), 33 * 500 / 2, 33 * 500);
}

static void nobody_to_wake(struct dlock_claim *claim) {
    claim->retry_ms = 0;
}

/* A woken thread needs time; where none was woken, others may poll. */
TEST(without_a_queue_the_pause_is_for_who_was_woken) {
    assert_in_range(pause_after_turns("fakeforever:"), 2500, 5000);
    fake_edit(FAKE_RELEASE, nobody_to_wake, UINT_MAX);
    assert_in_range(pause_after_turns("fakeforever:"), 33 * 500 / 2, 33 * 500);
}

TEST(without_a_queue_fences_grow_all_the_same) {
    struct turns t;
    turns_begin(&t, "fakepoll:");
    uint64_t fence = turns_fence(&t);
    for (int i = 0; i < 40; i++) {
        turn(&t);
        assert_true(turns_fence(&t) > fence);
        fence = turns_fence(&t);
    }
    assert_true(fake_grants("n") >= 2);
}

/* ---- a release with an empty line, while threads take turns ---- */

struct call {
    int (*call)(dlock_lock *lock);
    dlock_lock *lock;
    int rc;
};

static void *do_call(void *arg) {
    struct call *call = arg;
    call->rc = call->call(call->lock);
    return NULL;
}

static int wait_for_lock(dlock_lock *lock) {
    return dlock_acquire(lock, -1, NULL);
}

static int release(dlock_lock *lock) {
    return dlock_release(lock, NULL);
}

enum server { FAST, SLOW, BUSY };

/* Two handles of one name; the second one has the lock now, from the first, which had it from the server: at once, after
 * a millisecond, or after it had been busy. */
static void hand_over(dlock_client *client, dlock_lock *locks[2], enum server server) {
    struct fake_grant other;
    if (server == BUSY) other = taken("n");
    if (server == SLOW) fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    for (int i = 0; i < 2; i++) {
        locks[i] = lock_new_with(client, "n", &by_handle);
        struct call wait = {wait_for_lock, locks[i], -1};
        pthread_t thread;
        assert_int_equal(fake_thread_start(&thread, do_call, &wait), 0);
        fake_settle();
        if (i > 0)
            assert_int_equal(dlock_release(locks[0], NULL), 0);
        else if (server == BUSY)
            fake_other_release(&other, "n");
        else if (server == SLOW)
            fake_advance_ms(1);
        fake_slow_go();
        fake_thread_join(thread);
        assert_int_equal(wait.rc, 0);
    }
    fake_log_clear();
}

TEST(a_release_waits_a_moment_for_who_takes_turns) {
    dlock_lock *locks[2];
    hand_over(client_new("fake:"), locks, SLOW);
    struct call call = {release, locks[1], -1};
    uint64_t fence = dlock_fence(locks[1]);
    pthread_t thread;
    fake_spin_us(100);
    assert_int_equal(fake_thread_start(&thread, do_call, &call), 0);
    fake_settle();
    assert_int_equal(fake_spinning(), 1);
    assert_int_equal(dlock_acquire(locks[0], 0, NULL), 0);
    fake_thread_join(thread);
    assert_int_equal(call.rc, 0);
    assert_true(dlock_fence(locks[0]) > fence);
    assert_int_equal(fake_log_size(), 0);
    struct actor *actor = actor_new(); /* waits without success */
    begin_release(actor, locks[0]);
    fake_advance_us(99);
    assert_int_equal(fake_spinning(), 1);
    assert_int_equal(fake_log_size(), 0);
    fake_advance_us(1);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_string_equal(fake_holder("n").token, "");
}

/* One of this process that would have it otherwise does not wait for the end of that moment. */
TEST(a_release_that_waits_gives_way_to_another_wish) {
    dlock_lock *locks[2];
    dlock_client *client = client_new("fake:");
    hand_over(client, locks, SLOW);
    const struct dlock_options other = {.size = sizeof other, .lease_ms = LEASE_MS / 2};
    struct call call = {release, locks[1], -1};
    pthread_t thread;
    fake_spin_us(100);
    assert_int_equal(fake_thread_start(&thread, do_call, &call), 0);
    fake_settle();
    dlock_lock *unlike = lock_new_with(client, "n", &other);
    assert_int_equal(dlock_acquire(unlike, 0, NULL), 0);
    assert_int_equal(fake_spinning(), 1);
    fake_advance_us(100);
    fake_thread_join(thread);
    assert_int_equal(call.rc, 0);
    assert_true(dlock_held(unlike));
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(dlock_release(unlike, NULL), 0);
}

static void a_release_goes_out_at_once(enum server server) {
    dlock_lock *locks[2];
    struct actor *actor = actor_new();
    hand_over(client_new("fake:"), locks, server);
    fake_spin_us(100);
    assert_int_equal(release_by(actor, locks[1]), 0); /* the clock stands */
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
}

/* The server had said that others are there: they do not wait for that moment. */
TEST(a_release_does_not_wait_where_others_may) {
    a_release_goes_out_at_once(BUSY);
}

/* A release that takes less than that moment is no reason to wait. */
TEST(a_release_does_not_wait_where_requests_take_no_time) {
    a_release_goes_out_at_once(FAST);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
