/* Readers, writers and permits: their places in line, and which of them is woken. */
#include "trio.h"

#include <stdio.h>

static void expect_quiet(struct link *link) {
    struct dlock_wake wake;
    assert_false(told_within(link, &wake, 200));
}

/* ---- readers and writers ----------------------------------------------------------------------------------------- */

TEST(readers_watch_the_writer_before_them) {
    struct held first, writer, second, third;
    claim_as(&first, "readers", 'a', 1, DLOCK_SHARED, 0);
    claim_as(&writer, "readers", 'b', 1, DLOCK_EXCLUSIVE, 0);
    claim_as(&second, "readers", 'c', 1, DLOCK_SHARED, 0);
    claim_as(&third, "readers", 'a', 2, DLOCK_SHARED, 0);
    assert_int_equal(acquire(&one, &first), 0);
    assert_int_equal(queue_up(&two, &writer), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &second), DLOCK_EBUSY); /* a queued writer is not overtaken */
    assert_int_equal(acquire(&one, &third), DLOCK_EBUSY);
    assert_int_equal(queue_up(&one, &third), DLOCK_EBUSY);
    assert_int_equal(release(&one, &first), 0);
    expect_look(&two, "readers");
    expect_quiet(&three);
    assert_int_equal(queue_up(&two, &writer), 0);
    assert_true(writer.claim.fence > first.claim.fence);
    assert_int_equal(release(&two, &writer), 0);
    expect_look(&three, "readers");
    expect_look(&one, "readers");
    assert_int_equal(queue_up(&three, &second), 0);
    assert_int_equal(queue_up(&one, &third), 0);
    assert_true(second.claim.fence > writer.claim.fence);
    assert_true(third.claim.fence > writer.claim.fence);
    struct dlock_claim *both[] = {&third.claim};
    assert_int_equal(backend->renew(one.conn, both, 1, TIMEOUT_MS, NULL), 0);
    assert_int_equal(third.claim.result, 0);
    assert_int_equal(release(&three, &second), 0);
    assert_int_equal(release(&one, &third), 0);
}

/* A writer that gives up lets the readers behind it in. */
TEST(leaving_writer_wakes_readers) {
    struct held holder, writer, reader;
    claim_as(&holder, "gives up", 'a', 1, DLOCK_SHARED, 0);
    claim_as(&writer, "gives up", 'b', 1, DLOCK_EXCLUSIVE, 0);
    claim_as(&reader, "gives up", 'c', 1, DLOCK_SHARED, 0);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &writer), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &reader), DLOCK_EBUSY);
    assert_int_equal(release(&two, &writer), DLOCK_ELOST);
    expect_look(&three, "gives up");
    assert_int_equal(queue_up(&three, &reader), 0);
    assert_int_equal(release(&three, &reader), 0);
    assert_int_equal(release(&one, &holder), 0);
}

/* ---- downgrades -------------------------------------------------------------------------------------------------- */

static int downgrade(struct link *link, struct held *held) {
    held->claim.mode = DLOCK_SHARED;
    return renew(link, held);
}

TEST(downgrade_keeps_the_place) {
    struct dlock_wake wake;
    struct held holder, reader, writer;
    claim_as(&holder, "downgraded", 'a', 1, DLOCK_EXCLUSIVE, 0);
    claim_as(&reader, "downgraded", 'b', 1, DLOCK_SHARED, 0);
    claim_as(&writer, "downgraded", 'c', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(renew(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &reader), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &writer), DLOCK_EBUSY);
    assert_int_equal(downgrade(&one, &holder), 0);
    assert_in_range(holder.claim.kept_ms, 1, 10000);
    expect_look(&two, "downgraded");
    expect_quiet(&three);
    assert_int_equal(queue_up(&two, &reader), 0);
    assert_int_equal(queue_up(&three, &writer), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) assert_int_equal(renew(&one, &holder), 0);
    assert_false(told_within(&one, &wake, 200)); /* it has lost nothing */
    assert_int_equal(release(&two, &reader), 0);
    assert_int_equal(queue_up(&three, &writer), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    expect_look(&three, "downgraded");
    assert_int_equal(queue_up(&three, &writer), 0);
    assert_int_equal(release(&three, &writer), 0);
}

/* The writer at the head of a queue of writers, without a reader: no other client gets in. */
TEST(no_writer_slips_in) {
    struct held holder, writer;
    claim_as(&holder, "slip", 'a', 1, DLOCK_EXCLUSIVE, 0);
    claim_as(&writer, "slip", 'b', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &writer), DLOCK_EBUSY);
    assert_int_equal(downgrade(&one, &holder), 0);
    expect_look(&two, "slip");
    assert_int_equal(queue_up(&two, &writer), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    expect_look(&two, "slip");
    assert_int_equal(queue_up(&two, &writer), 0);
    assert_int_equal(release(&two, &writer), 0);
}

TEST(lost_answer_to_a_downgrade) {
    struct proxy *proxy = proxy_new(shared_port());
    struct link far;
    struct held held;
    link_new(&far, proxy_port(proxy), "10s", 'd');
    for (int i = 0; i < 3; i++) {
        claim_as(&held, "unheard", 'd', i, DLOCK_EXCLUSIVE, 0);
        assert_int_equal(acquire(&far, &held), 0);
        sleep_ms(600); /* a write is also due */
        proxy_lose_answer(proxy, OP_MULTI);
        assert_int_equal(downgrade(&far, &held), DLOCK_EUNAVAILABLE);
        if (i == 0)
            while (downgrade(&far, &held) == DLOCK_EUNAVAILABLE) sleep_ms(20);
        if (i == 0) assert_int_equal(held.claim.result, 0);
        if (i == 2) proxy_lose_answer(proxy, OP_DELETE); /* that the writer's node is not there */
        assert_int_equal(release(&far, &held), 0);       /* whatever its node */
        assert_int_equal(plain_count(BASE "/unheard"), 0);
    }
    link_end(&far);
    proxy_end(proxy);
}

TEST(broken_grant_is_not_downgraded) {
    struct held held;
    claim_as(&held, "broken down", 'a', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(backend->break_lock(two.conn, "broken down", TIMEOUT_MS, NULL), 0);
    assert_int_equal(downgrade(&one, &held), DLOCK_ELOST);
    assert_int_equal(plain_count(BASE "/broken down"), 0);
    assert_int_equal(release(&one, &held), DLOCK_ELOST);
}

/* ---- permits ----------------------------------------------------------------------------------------------------- */

TEST(permits_are_taken_in_turn) {
    struct dlock_wake wake;
    struct held a, b, c, d, e;
    claim_as(&a, "permits", 'a', 1, DLOCK_PERMIT, 2);
    claim_as(&b, "permits", 'b', 1, DLOCK_PERMIT, 2);
    claim_as(&c, "permits", 'c', 1, DLOCK_PERMIT, 2);
    claim_as(&d, "permits", 'a', 2, DLOCK_PERMIT, 2);
    claim_as(&e, "permits", 'b', 2, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &a), 0);
    assert_int_equal(acquire(&two, &b), 0);
    assert_true(b.claim.fence > a.claim.fence);
    assert_int_equal(acquire(&three, &c), DLOCK_EBUSY);
    assert_int_equal(plain_count(BASE "/permits/leases"), 2);
    assert_int_equal(plain_count(BASE "/permits/locks"), 0);
    assert_int_equal(queue_up(&three, &c), DLOCK_EBUSY);
    assert_true(c.claim.retry_ms >= 10000);
    assert_int_equal(queue_up(&one, &d), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &c), DLOCK_EBUSY); /* asking again changes nothing */
    assert_int_equal(plain_count(BASE "/permits/locks"), 2);
    assert_int_equal(release(&two, &b), 0);
    expect_look(&three, "permits");
    assert_false(told_within(&one, &wake, 200));      /* only the first is woken */
    assert_int_equal(acquire(&two, &e), DLOCK_EBUSY); /* and it is not overtaken */
    assert_int_equal(queue_up(&one, &d), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &c), 0);
    assert_true(c.claim.fence > b.claim.fence);
    assert_int_equal(queue_up(&three, &c), 0); /* the same grant */
    expect_look(&one, "permits");
    assert_int_equal(queue_up(&one, &d), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) assert_int_equal(renew(&three, &c), 0);
    assert_int_equal(release(&one, &a), 0);
    expect_look(&one, "permits");
    assert_int_equal(queue_up(&one, &d), 0);
    assert_true(d.claim.fence > c.claim.fence);
    assert_int_equal(release(&one, &d), 0);
    assert_int_equal(release(&three, &c), 0);
    assert_int_equal(release(&three, &c), DLOCK_ELOST);
    assert_int_equal(plain_count(BASE "/permits/leases"), 0);
    assert_int_equal(plain_count(BASE "/permits/locks"), 0);
}

TEST(waiters_for_permits_leave) {
    struct held holder, first, second;
    claim_as(&holder, "leaving", 'a', 1, DLOCK_PERMIT, 1);
    claim_as(&first, "leaving", 'b', 1, DLOCK_PERMIT, 1);
    claim_as(&second, "leaving", 'c', 1, DLOCK_PERMIT, 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&three, &second), DLOCK_EBUSY);
    assert_int_equal(release(&two, &first), DLOCK_ELOST);
    expect_look(&three, "leaving");
    assert_int_equal(queue_up(&three, &second), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    expect_look(&three, "leaving");
    assert_int_equal(queue_up(&three, &second), 0);
    assert_int_equal(release(&three, &second), 0);
    assert_int_equal(plain_count(BASE "/leaving/leases"), 0);
    assert_int_equal(plain_count(BASE "/leaving/locks"), 0);
}

/* The process with a permit dies: any client frees it by its token. */
TEST(dead_claims_are_freed_by_token) {
    struct held held[3], again;
    claim_as(&held[0], "dead lock", 'a', 1, DLOCK_EXCLUSIVE, 0);
    claim_as(&held[1], "dead reader", 'a', 2, DLOCK_SHARED, 0);
    claim_as(&held[2], "dead permit", 'a', 3, DLOCK_PERMIT, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(acquire(&one, &held[i]), 0);
        again = held[i];
        again.claim.token = again.token;
        if (i == 1) memset(again.claim.state, 0, sizeof again.claim.state); /* died before it knew */
        assert_int_equal(held_run(backend->release, &two, &again, DLOCK_CLAIM_DEAD, TIMEOUT_MS, NULL), 0);
        assert_int_equal(again.claim.result, 0);
        claim_as(&again, held[i].claim.name, 'b', i, held[i].claim.mode, held[i].claim.limit);
        assert_int_equal(acquire(&two, &again), 0);
        assert_int_equal(release(&two, &again), 0);
    }
}

/* ---- lingering --------------------------------------------------------------------------------------------------- */

static int acquire_to_linger(struct link *link, struct held *held) {
    int rc = held_run(backend->acquire, link, held, DLOCK_CLAIM_QUEUE | DLOCK_CLAIM_LINGER, TIMEOUT_MS, NULL);
    assert_int_equal(rc, 0);
    return held->claim.result;
}

static void expect_wanted(struct link *link, const char *name) {
    struct dlock_wake wake;
    assert_true(told_within(link, &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_WANTED);
    assert_string_equal(wake.name, name);
}

/* Told of a try and of a waiter, before and after the grant, and of nothing that we do ourselves. */
TEST(whoever_lingers_is_told) {
    struct held holder, other;
    for (int i = 0; i < 3; i++) {
        claim_as(&holder, "lingered on", 'a', i, DLOCK_EXCLUSIVE, 0);
        claim_as(&other, "lingered on", 'b', i, i == 1 ? DLOCK_SHARED : DLOCK_EXCLUSIVE, 0);
        assert_int_equal(acquire_to_linger(&one, &holder), 0);
        expect_quiet(&one);
        assert_int_equal(i == 0 ? acquire(&two, &other) : queue_up(&two, &other), DLOCK_EBUSY);
        expect_wanted(&one, "lingered on");
        assert_int_equal(release(&one, &holder), 0);
        expect_quiet(&one);
        if (i > 0) expect_look(&two, "lingered on");
        if (i > 0) assert_int_equal(release(&two, &other), DLOCK_ELOST);
    }
    claim_as(&holder, "lingered on", 'c', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&three, &holder), 0);
    claim_as(&other, "lingered on", 'b', 9, DLOCK_EXCLUSIVE, 0);
    struct held ours;
    claim_as(&ours, "lingered on", 'a', 9, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire_to_linger(&one, &ours), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &other), DLOCK_EBUSY); /* waits already when we are granted it */
    assert_int_equal(release(&three, &holder), 0);
    expect_look(&one, "lingered on");
    assert_int_equal(acquire_to_linger(&one, &ours), 0);
    expect_wanted(&one, "lingered on");
    assert_int_equal(release(&one, &ours), 0);
    assert_int_equal(release(&two, &other), DLOCK_ELOST);
    expect_quiet(&one);
}

/* ---- inspect and break ------------------------------------------------------------------------------------------- */

struct shown {
    int calls;
    struct dlock_info info;
    uint64_t fences;
};

static int note(const struct dlock_info *info, void *arg) {
    struct shown *shown = arg;
    shown->calls++;
    shown->info = *info;
    shown->fences += info->fence;
    return 0;
}

static struct shown inspect(const char *name) {
    struct shown shown = {0};
    assert_int_equal(backend->inspect(three.conn, name, note, &shown, TIMEOUT_MS, NULL), 0);
    return shown;
}

TEST(all_holders_are_shown_and_broken) {
    struct held holders[3], waiter;
    struct shown shown;
    const struct {
        enum dlock_mode mode;
        uint32_t limit, shown;
    } uses[] = {{DLOCK_SHARED, 0, 1}, {DLOCK_PERMIT, 3, 3}};
    for (int use = 0; use < 2; use++) {
        uint64_t fences = 0;
        for (int i = 0; i < 3; i++) {
            claim_as(&holders[i], "several", 'a', 10 * use + i, uses[use].mode, uses[use].limit);
            assert_int_equal(acquire(&one, &holders[i]), 0);
            fences += holders[i].claim.fence;
        }
        claim_as(&waiter, "several", 'b', 10 * use, use ? DLOCK_PERMIT : DLOCK_EXCLUSIVE, uses[use].limit);
        assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
        shown = inspect("several");
        assert_int_equal(shown.calls, 3);
        assert_int_equal(shown.info.mode, uses[use].mode);
        assert_int_equal(shown.info.limit, uses[use].shown);
        assert_int_equal(shown.info.waiters, 1);
        assert_true(shown.fences == fences);
        assert_int_equal(backend->break_lock(three.conn, "several", TIMEOUT_MS, NULL), 0);
        expect_look(&two, "several");
        int rc = queue_up(&two, &waiter);
        assert_int_equal(rc, 0);
        for (int i = 0; i < 3; i++) assert_int_equal(renew(&one, &holders[i]), DLOCK_ELOST);
        assert_int_equal(inspect("several").calls, 1);
        assert_int_equal(release(&two, &waiter), 0);
        assert_int_equal(inspect("several").calls, 0);
        struct dlock_wake wake;
        while (wake_within(&two, &wake, 100)) { /* from the other holders' nodes */
        }
    }
}

TEST(downgraded_holder_is_shown_with_its_fence) {
    struct held held;
    claim_as(&held, "shown", 'a', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&one, &held), 0);
    uint64_t fence = held.claim.fence;
    assert_int_equal(inspect("shown").info.mode, DLOCK_EXCLUSIVE);
    assert_int_equal(downgrade(&one, &held), 0);
    struct shown shown = inspect("shown");
    assert_int_equal(shown.calls, 1);
    assert_int_equal(shown.info.mode, DLOCK_SHARED);
    assert_true(shown.info.fence == fence);
    assert_int_equal(release(&one, &held), 0);
}

TESTS(trio_begin, trio_end, backend_load, NULL)
