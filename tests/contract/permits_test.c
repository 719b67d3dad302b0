/* Permits: as many holders as permits; and one use of a name at a time. */
#include "contract/contract.h"

enum { LIMIT = 3 };

static void permit(struct grant *grant, int client, uint32_t limit) {
    grant_as(grant, client, suite.name, DLOCK_PERMIT, limit);
}

static void as_many_hold_as_there_are(void) {
    struct grant held[LIMIT], more, yet_more;
    for (int i = 0; i < LIMIT; i++) {
        permit(&held[i], i % 2, LIMIT);
        GRANTED(acquire(&held[i]));
    }
    permit(&more, 2, LIMIT);
    permit(&yet_more, 3, LIMIT);
    BUSY(acquire(&more));
    LOST(renew(&more));
    LOST(release(&more));
    for (int i = 0; i < LIMIT; i++) { /* each can be given back, and is taken once */
        GRANTED(renew(&held[i]));
        GRANTED(release(&held[i]));
        LOST(release(&held[i]));
        LOST(renew(&held[i]));
        GRANTED(await_free(&more));
        EXPECT(more.claim.fence > held[LIMIT - 1].claim.fence);
        BUSY(acquire(&yet_more));
        GRANTED(release(&more));
        GRANTED(await_free(&held[i]));
    }
    for (int i = 0; i < LIMIT; i++) GRANTED(release(&held[i]));
}

static void again_is_the_same_permit(void) {
    struct grant one, two, three, lost;
    permit(&one, 0, 2);
    permit(&two, 1, 2);
    permit(&three, 2, 2);
    GRANTED(acquire(&one));
    uint64_t fence = one.claim.fence;
    for (int i = 0; i < 3; i++) {
        GRANTED(acquire(&one));
        EXPECT(one.claim.fence == fence);
    }
    if (answers_can_be_lost()) {
        grant_copy(&lost, &one, true);
        GRANTED(acquire(&lost));
        EXPECT(lost.claim.fence == fence);
    }
    GRANTED(acquire(&two)); /* none of them took another one */
    BUSY(acquire(&three));
    LOST(release(&three));
    GRANTED(release(&one));
    LOST(release(&one));
    GRANTED(renew(&two));
    GRANTED(release(&two));
}

static void one_permit_is_a_lock(void) {
    struct grant one, two;
    permit(&one, 0, 1);
    permit(&two, 1, 1);
    GRANTED(acquire(&one));
    BUSY(acquire(&two));
    GRANTED(release(&one));
    GRANTED(await_free(&two));
    EXPECT(two.claim.fence > one.claim.fence);
    GRANTED(release(&two));
}

static void as_many_as_a_limit_can_say(void) {
    struct grant one, two, other;
    permit(&one, 0, DLOCK_LIMIT_MAX);
    permit(&two, 1, DLOCK_LIMIT_MAX);
    permit(&other, 2, DLOCK_LIMIT_MAX - 1);
    GRANTED(acquire(&one));
    GRANTED(acquire(&two));
    EXPECT_CODE(DLOCK_EINVAL, acquire(&other));
    GRANTED(renew(&one));
    GRANTED(release(&one));
    GRANTED(release(&two));
}

/* ---- in use as something else ------------------------------------------------------------------------------------ */

/* It is refused for good, with an explanation, and leaves nothing. */
static void expect_refused(enum dlock_mode mode, uint32_t limit) {
    struct grant wrong;
    if (mode == DLOCK_SHARED && !can(DLOCK_CAP_SHARED)) return;
    grant_as(&wrong, 2, suite.name, mode, limit);
    EXPECT_CODE(DLOCK_EINVAL, acquire(&wrong));
    LOST(renew(&wrong));
    LOST(release(&wrong));
    EXPECT_CODE(DLOCK_EINVAL, queue_up(&wrong));
    LOST(release(&wrong));
}

static void no_lock_of_the_same_name(void) {
    struct grant held;
    permit(&held, 0, LIMIT);
    GRANTED(acquire(&held));
    expect_refused(DLOCK_EXCLUSIVE, 0);
    expect_refused(DLOCK_SHARED, 0);
    expect_refused(DLOCK_PERMIT, LIMIT + 1);
    expect_refused(DLOCK_PERMIT, LIMIT - 1);
    GRANTED(renew(&held));
    GRANTED(release(&held));
    permit(&held, 0, LIMIT + 4); /* free: anything goes */
    GRANTED(acquire(&held));
    GRANTED(release(&held));
}

static void no_permits_of_a_locks_name(void) {
    struct grant held;
    grant_new(&held, 0, suite.name);
    GRANTED(acquire(&held));
    expect_refused(DLOCK_PERMIT, LIMIT);
    GRANTED(renew(&held));
    GRANTED(release(&held));
    if (!can(DLOCK_CAP_SHARED)) return;
    grant_as(&held, 0, suite.name, DLOCK_SHARED, 0);
    GRANTED(acquire(&held));
    expect_refused(DLOCK_PERMIT, LIMIT);
    GRANTED(renew(&held));
    GRANTED(release(&held));
    permit(&held, 0, LIMIT);
    GRANTED(acquire(&held));
    GRANTED(release(&held));
}

/* A reader that was a writer is still a lock. */
static void no_permits_of_a_downgraded_locks_name(void) {
    struct grant held;
    grant_new(&held, 0, suite.name);
    GRANTED(acquire(&held));
    held.claim.mode = DLOCK_SHARED;
    GRANTED(renew(&held));
    expect_refused(DLOCK_PERMIT, LIMIT);
    GRANTED(release(&held));
}

const struct contract_case contract_permits[] = {
    PROMISE(as_many_hold_as_there_are, DLOCK_CAP_PERMIT),
    PROMISE(again_is_the_same_permit, DLOCK_CAP_PERMIT),
    PROMISE(one_permit_is_a_lock, DLOCK_CAP_PERMIT),
    PROMISE(as_many_as_a_limit_can_say, DLOCK_CAP_PERMIT),
    PROMISE(no_lock_of_the_same_name, DLOCK_CAP_PERMIT),
    PROMISE(no_permits_of_a_locks_name, DLOCK_CAP_PERMIT),
    PROMISE(no_permits_of_a_downgraded_locks_name, DLOCK_CAP_PERMIT | DLOCK_CAP_SHARED),
    {0},
};
