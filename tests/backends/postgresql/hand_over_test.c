/* Hand-overs that their waiter confirms, or does not confirm in time. */
#include "parties.h"
#include "queue_scene.h"

/* A waiter listens, and is stopped: its hand-over ends unconfirmed, and all that its client waits with goes. */
TEST(a_hand_over_lapses) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "lapse");
    HELD(again, &s.first, "lapse");
    assert_int_equal(queue_up(&s.first, &again), DLOCK_EBUSY);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_int_equal(waiting("lapse"), 2);
    assert_true(sql_number("SELECT (expires_us - {}.clock_us()) / 1000 FROM {}.locks WHERE name = 'lapse'") <= 3000);
    assert_int_equal(queue_up(&s.second, &s.two), DLOCK_EBUSY);
    assert_true(s.two.claim.retry_ms <= 3001); /* it is the head now */
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = 'lapse'");
    assert_int_equal(queue_up(&s.second, &s.two), 0);
    assert_int_equal(waiting("lapse"), 0);
    assert_int_equal(renew(&s.first, &s.one), DLOCK_ELOST);
}

/* Clients that listen and never ask, as if their host was lost, in front of one that lives. */
static struct held dead[3], lives;
static const int live = 4; /* the party that lives */

static void crowd_waits(const char *name, int64_t lease_ms) {
    struct held held;
    assert_int_equal(take(&held, 0, name, DLOCK_EXCLUSIVE), 0);
    for (int i = 0; i < 3; i++) {
        want(&dead[i], i + 1, name, DLOCK_EXCLUSIVE, 0);
        dead[i].claim.lease_ms = lease_ms;
        assert_int_equal(queue_up(&party[i + 1].link, &dead[i]), DLOCK_EBUSY);
    }
    assert_int_equal(wait_for(&lives, live, name, DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&held, 0), 0);
}

static int live_asks(void) {
    return queue_up(&party[live].link, &lives);
}

/* Ends the hand-over that is under way, as if its time had passed since it began. */
static void let_lapse(const char *name) {
    sql("UPDATE {}.queue q SET ticket = q.ticket - (l.expires_us - {}.clock_us()) - 1 FROM {}.locks l WHERE l.name = "
        "'%s' AND l.handed AND q.name = l.name",
        name);
    sql("UPDATE {}.locks SET fence = fence - (expires_us - {}.clock_us()) - 1, expires_us = {}.clock_us() - 1 WHERE "
        "name = '%s' AND handed",
        name);
}

/* However many dead waiters there are, the live one waits for one hand-over, and no client waits for theirs any
 * more. */
TEST_WITH(parties_begin, parties_end, several_dead_cost_one_hand_over) {
    crowd_waits("three dead", LEASE_MS);
    assert_int_equal(live_asks(), DLOCK_EBUSY);
    assert_in_range(lives.claim.retry_ms, 1, 2250);
    let_lapse("three dead");
    assert_int_equal(live_asks(), 0);
    assert_int_equal(waiting("three dead"), 0);
}

/* A hand-over for a shorter lease is no proof that a waiter which has not asked since is dead: it keeps its place, and
 * one that asks goes first this time. */
TEST_WITH(parties_begin, parties_end, short_hand_overs_are_passed_over) {
    crowd_waits("short lives", 500);
    let_lapse("short lives");
    assert_int_equal(live_asks(), 0);
    assert_int_equal(waiting("short lives"), 2);
}

/* A waiter that finds out that a hand-over has lapsed does not pass the living ones before it. */
TEST_WITH(parties_begin, parties_end, who_asked_meanwhile_keeps_its_place) {
    crowd_waits("in order", LEASE_MS);
    assert_int_equal(queue_up(&party[2].link, &dead[1]), DLOCK_EBUSY);
    assert_int_equal(live_asks(), DLOCK_EBUSY);
    let_lapse("in order");
    assert_int_equal(live_asks(), DLOCK_EBUSY);
    assert_woken(2, &dead[1]);
    assert_int_equal(waiting("in order"), 1);
}

TESTS(NULL, NULL, site_begin, site_end)
