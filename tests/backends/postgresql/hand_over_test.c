/* Hand-overs that their waiter confirms, or does not confirm in time. */
#include "queue_scene.h"

/* A waiter listens, and is stopped: its hand-over ends unconfirmed, and all that its client waits with goes. */
TEST(a_hand_over_lapses) {
    struct scene s;
    struct held again;
    struct dlock_wake wake;
    scene_begin(&s, "lapse");
    held_new(&again, &s.first, "lapse");
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
    scene_end(&s);
}

/* Clients that listen and never ask, as if their host was lost, in front of one that lives. */
struct crowd {
    struct link holder, dead[3], dead_ear[3], live, live_ear;
    struct held held, waits[3], lives;
};

static void crowd_begin(struct crowd *c, const char *name, int64_t lease_ms) {
    link_new(&c->holder, 'a');
    held_new(&c->held, &c->holder, name);
    assert_int_equal(acquire(&c->holder, &c->held), 0);
    for (int i = 0; i < 3; i++) {
        link_new(&c->dead[i], (char)('b' + i));
        link_new(&c->dead_ear[i], (char)('b' + i));
        link_listen(&c->dead_ear[i]);
        held_new(&c->waits[i], &c->dead[i], name);
        c->waits[i].claim.lease_ms = lease_ms;
        assert_int_equal(queue_up(&c->dead[i], &c->waits[i]), DLOCK_EBUSY);
    }
    link_new(&c->live, 'e');
    link_new(&c->live_ear, 'e');
    link_listen(&c->live_ear);
    held_new(&c->lives, &c->live, name);
    assert_int_equal(queue_up(&c->live, &c->lives), DLOCK_EBUSY);
    assert_int_equal(release(&c->holder, &c->held), 0);
}

static void crowd_end(struct crowd *c) {
    link_end(&c->holder);
    for (int i = 0; i < 3; i++) {
        link_end(&c->dead[i]);
        link_end(&c->dead_ear[i]);
    }
    link_end(&c->live);
    link_end(&c->live_ear);
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
TEST(several_dead_cost_one_hand_over) {
    struct crowd c;
    crowd_begin(&c, "three dead", LEASE_MS);
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    assert_in_range(c.lives.claim.retry_ms, 1, 2250);
    let_lapse("three dead");
    assert_int_equal(queue_up(&c.live, &c.lives), 0);
    assert_int_equal(waiting("three dead"), 0);
    crowd_end(&c);
}

/* A hand-over for a shorter lease is no proof that a waiter which has not asked since is dead: it keeps its place, and
 * one that asks goes first this time. */
TEST(short_hand_overs_are_passed_over) {
    struct crowd c;
    crowd_begin(&c, "short lives", 500);
    let_lapse("short lives");
    assert_int_equal(queue_up(&c.live, &c.lives), 0);
    assert_int_equal(waiting("short lives"), 2);
    crowd_end(&c);
}

/* A waiter that finds out that a hand-over has lapsed does not pass the living ones before it. */
TEST(who_asked_meanwhile_keeps_its_place) {
    struct crowd c;
    struct dlock_wake wake;
    crowd_begin(&c, "in order", LEASE_MS);
    assert_int_equal(queue_up(&c.dead[1], &c.waits[1]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    let_lapse("in order");
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    wake_get(&c.dead_ear[1], &wake);
    assert_granted(&wake, &c.waits[1], 0);
    assert_int_equal(waiting("in order"), 1);
    crowd_end(&c);
}

TESTS(NULL, NULL, site_begin, site_end)
