/* A holder that lingers and was handed the lock, or has become a reader. */
#include "crew.h"

static struct held holder, asks;

static int setup(void **state) {
    crew_setup(state);
    crew_claim(&holder, 0, "door", DLOCK_EXCLUSIVE, 0);
    crew_claim(&asks, 1, "door", DLOCK_EXCLUSIVE, 0);
    return 0;
}

static int linger(int i, struct held *held, uint32_t flags) {
    struct dlock_error err = {0};
    flags |= DLOCK_CLAIM_LINGER;
    if (held_run(backend->acquire, &asker[i], held, flags, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    return held->claim.result;
}

static void assert_wanted(int i) {
    struct dlock_wake wake;
    assert_true(wake_within(&listener[i], &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_WANTED);
    assert_string_equal(wake.name, "door");
    assert_null(wake.token);
}

TEST(a_handed_over_grant_lingers_too) {
    struct held third;
    crew_claim(&third, 2, "door", DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&asker[0], &holder), 0);
    assert_int_equal(linger(1, &asks, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_quiet(0);
    assert_int_equal(release(&asker[0], &holder), 0);
    assert_granted(1, &asks, holder.claim.fence);
    assert_quiet(1);
    assert_int_equal(queue_up(&asker[2], &third), DLOCK_EBUSY);
    assert_wanted(1);
    /* There is a waiter already: the holder is told with the grant. */
    assert_int_equal(linger(0, &holder, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(1);
    assert_int_equal(queue_up(&asker[1], &asks), 0);
    ask_number(&server, "DEL door");
    assert_int_equal(release(&asker[2], &third), DLOCK_ELOST);
    assert_granted(0, &holder, asks.claim.fence);
    assert_quiet(0);
    assert_int_equal(linger(1, &asks, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(0);
    assert_int_equal(queue_up(&asker[2], &third), DLOCK_EBUSY);
    assert_wanted(0);
    assert_int_equal(release(&asker[0], &holder), 0);
    assert_granted(1, &asks, holder.claim.fence);
    assert_wanted(1);
}

TEST(a_shared_grant_does_not_linger) {
    assert_int_equal(linger(0, &holder, 0), 0);
    holder.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&asker[0], &holder), 0);
    assert_int_equal(acquire(&asker[1], &asks), DLOCK_EBUSY);
    assert_quiet(0);
}

TESTS(setup, crew_teardown, group_begin, group_end)
