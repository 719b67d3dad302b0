/* Waiters of one process in line, one of which loses its grant before its thread ran. Only one asks at a time, and no
 * grant goes to another one. */
#include "fixture.h"

#include <stdatomic.h>

struct line {
    dlock_lock *lock;
    struct actor *first, *second;
    struct lost_count lost;
};

/* Two threads wait; the first is stopped, granted the lock without running, and loses it: the second one asks now. */
static void line_begin(struct line *l, struct dlock_options options, struct fake_grant *other) {
    memset(l, 0, sizeof *l);
    options.on_lost = count_lost;
    options.on_lost_arg = &l->lost;
    l->lock = lock_new_with(client_new("fake:"), "n", &options);
    l->first = actor_new();
    l->second = actor_new();
    *other = taken("n");
    begin_acquire(l->first, l->lock, -1);
    begin_acquire(l->second, l->lock, -1);
    assert_int_equal(fake_waiters("n"), 1);
    actor_park(l->first);
    fake_other_release(other, "n");
    fake_settle();
    assert_false(fake_holder("n").other);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_server_break("n");
    *other = taken("n");
    fake_advance_ms(LEASE_MS);
    assert_int_equal(fake_waiters("n"), 1);
}

/* Each gets it once, in order, with its own fence. */
static void both_get_it(struct line *l, struct actor *now, struct actor *then) {
    assert_int_equal(result(now), 0);
    assert_true(held_by(now, l->lock));
    assert_false(over(then));
    uint64_t fence = fence_by(now, l->lock);
    assert_int_equal(release_by(now, l->lock), 0);
    assert_true(wait_for(then, 1000) <= 100000);
    assert_int_equal(result(then), 0);
    assert_true(held_by(then, l->lock));
    assert_false(held_by(now, l->lock));
    assert_true(fence_by(then, l->lock) > fence);
    assert_int_equal(release_by(then, l->lock), 0);
    assert_int_equal(l->lost.calls, 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(fake_waiters("n"), 0);
}

TEST(who_lost_its_grant_asleep_does_not_ask_beside_another) {
    struct line l;
    struct fake_grant other;
    line_begin(&l, (struct dlock_options)DLOCK_OPTIONS_INIT, &other);
    actor_unpark();
    assert_false(over(l.first));
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&other, "n");
    fake_settle();
    both_get_it(&l, l.second, l.first);
}

/* The same while the second one asks whether its grant, whose age is unknown, still exists. */
TEST(nor_does_it_take_the_grant_that_another_waits_for) {
    struct line l;
    struct fake_grant other;
    line_begin(&l, (struct dlock_options)DLOCK_OPTIONS_INIT, &other);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    fake_server_step_ms(-5000);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    actor_unpark();
    assert_false(over(l.first));
    fake_slow_go();
    fake_settle();
    assert_false(over(l.first));
    both_get_it(&l, l.second, l.first);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
