/* Downgrades whose answers are lost, claims of the dead, and lingering behind a queue. */
#include "trio.h"

static void expect_quiet(struct link *link) {
    struct dlock_wake wake;
    assert_false(told_within(link, &wake, 200));
}

static int downgrade(struct link *link, struct held *held) {
    held->claim.mode = DLOCK_SHARED;
    return renew(link, held);
}

TEST(lost_answer_to_a_downgrade) {
    SCOPED_PROXY *proxy = proxy_new(shared_port());
    struct held held;
    LINK(far, proxy_port(proxy), "10s", 'd');
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
}

/* ---- permits ----------------------------------------------------------------------------------------------------- */

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

/* Told of a waiter that was there before the grant, and of nothing that we do ourselves. */
TEST(whoever_lingers_is_told_of_earlier_waiters) {
    CLAIM_AS(holder, "lingered on", 'c', 1, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&three, &holder), 0);
    CLAIM_AS(other, "lingered on", 'b', 9, DLOCK_EXCLUSIVE, 0);
    CLAIM_AS(ours, "lingered on", 'a', 9, DLOCK_EXCLUSIVE, 0);
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

TESTS(trio_begin, trio_end, backend_load, NULL)
