/* Fences: each grant of a name has another one, greater than all before it, in whatever way it came about. */
#include "contract/contract.h"

static uint64_t take_and_give(int client, const char *name, enum dlock_mode mode, uint32_t limit) {
    struct grant grant;
    grant_as(&grant, client, name, mode, limit);
    GRANTED(acquire(&grant));
    GRANTED(release(&grant));
    return grant.claim.fence;
}

static void grow_with_each_grant(void) {
    uint64_t last = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t fence = take_and_give(i % 2, suite.name, DLOCK_EXCLUSIVE, 0);
        EXPECT(fence > last);
        last = fence;
    }
}

/* One order for all modes of a name. */
static void grow_across_modes(void) {
    uint64_t last = 0;
    for (int i = 0; i < 9; i++) {
        enum dlock_mode mode = i % 3 == 1 ? DLOCK_SHARED : i % 3 == 2 ? DLOCK_PERMIT : DLOCK_EXCLUSIVE;
        if (mode == DLOCK_SHARED && !can(DLOCK_CAP_SHARED)) continue;
        if (mode == DLOCK_PERMIT && !can(DLOCK_CAP_PERMIT)) continue;
        uint64_t fence = take_and_give(i % 2, suite.name, mode, mode == DLOCK_PERMIT ? 3 : 0);
        EXPECT(fence > last);
        last = fence;
    }
}

/* Those that hold together have different ones. */
static void differ_among_joint_holders(void) {
    const enum dlock_mode modes[] = {DLOCK_SHARED, DLOCK_PERMIT};
    char name[DLOCK_NAME_MAX + 1];
    for (int way = 0; way < 2; way++) {
        struct grant grants[4];
        uint64_t last = 0;
        if (!can(way ? DLOCK_CAP_PERMIT : DLOCK_CAP_SHARED)) continue;
        tagged_name(name, way ? "permits" : "shared");
        for (int i = 0; i < 4; i++) {
            grant_as(&grants[i], i % 2, name, modes[way], way ? 4 : 0);
            GRANTED(acquire(&grants[i]));
            EXPECT(grants[i].claim.fence > last);
            last = grants[i].claim.fence;
        }
        for (int i = 0; i < 4; i++) GRANTED(release(&grants[i]));
    }
}

/* Lost grants count: a lease that ended, or a grant that was broken. */
static void grow_after_a_lease_has_ended(void) {
    struct grant dead, next;
    grant_new(&dead, 0, suite.name);
    grant_new(&next, 1, suite.name);
    dead.claim.lease_ms = 300;
    GRANTED(acquire(&dead));
    BUSY(acquire(&next));
    GRANTED(await(&next, PATIENCE_MS));
    EXPECT(next.claim.fence > dead.claim.fence);
    GRANTED(release(&next));
}

static void grow_after_a_break(void) {
    struct grant broken, next;
    grant_new(&broken, 0, suite.name);
    grant_new(&next, 1, suite.name);
    GRANTED(acquire(&broken));
    EXPECT_CODE(0, backend->break_lock(line_of(1)->conn, suite.name, REQUEST_MS, NULL));
    GRANTED(acquire(&next));
    EXPECT(next.claim.fence > broken.claim.fence);
    GRANTED(release(&next));
    expect_broken(&broken);
}

/* The core tells apart grants of the same name that it has at the same time, and learns from EBUSY. */
static void busy_names_the_holders_fence_or_changes(void) {
    struct grant mine, theirs;
    uint64_t told[2];
    for (int i = 0; i < 2; i++) {
        grant_new(&mine, 0, suite.name);
        grant_new(&theirs, 1, suite.name);
        GRANTED(acquire(&mine));
        BUSY(acquire(&theirs));
        told[i] = theirs.claim.fence;
        GRANTED(release(&mine));
    }
    if (told[0] != 0) EXPECT(told[0] != told[1]);
}

/* A member of a quorum. */
static void floor_raises_the_next_fence(void) {
    struct grant mine, other;
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    const uint64_t floor = mine.claim.fence + 1000000000;
    /* Whoever does not hold it raises nothing. */
    grant_new(&other, 1, suite.name);
    other.claim.floor = 3 * floor;
    LOST(renew(&other));
    mine.claim.floor = floor;
    GRANTED(renew(&mine));
    mine.claim.floor = floor - 10; /* less than the last: nothing changes */
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
    uint64_t next = take_and_give(1, suite.name, DLOCK_EXCLUSIVE, 0);
    EXPECT(next > floor && next < 2 * floor);
    for (int i = 0; i < 4; i++) EXPECT(mine.claim.state[i] == 0);
}

static int see_fence(const struct dlock_info *info, void *arg) {
    *(uint64_t *)arg = info->fence;
    return 1;
}

/* It counts for all, and is the reader's own, also if the server gave it a greater one. */
static void floor_raises_a_readers_fence(void) {
    struct grant mine, downgraded;
    grant_as(&mine, 0, suite.name, DLOCK_SHARED, 0);
    GRANTED(acquire(&mine));
    for (int way = 0; way < 2; way++) {
        uint64_t shown = 0;
        mine.claim.floor = way ? mine.claim.floor - 10 : mine.claim.fence + 1000000000;
        GRANTED(renew(&mine));
        EXPECT_CODE(0, backend->inspect(line_of(1)->conn, suite.name, see_fence, &shown, REQUEST_MS, NULL));
        EXPECT(shown == mine.claim.floor);
    }
    uint64_t next = take_and_give(1, suite.name, DLOCK_SHARED, 0);
    EXPECT(next > mine.claim.floor + 10);
    GRANTED(release(&mine));
    grant_new(&downgraded, 0, suite.name);
    GRANTED(acquire(&downgraded));
    EXPECT(downgraded.claim.fence > next);
    downgraded.claim.mode = DLOCK_SHARED;
    downgraded.claim.floor = downgraded.claim.fence + 1000000000;
    GRANTED(renew(&downgraded));
    EXPECT(take_and_give(1, suite.name, DLOCK_SHARED, 0) > downgraded.claim.floor);
    GRANTED(release(&downgraded));
}

/* So that a quorum can make different fences of one. */
static void floor_leaves_room_among_readers(void) {
    uint64_t last = take_and_give(0, suite.name, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < 20; i++) {
        uint64_t fence = take_and_give(i % 2, suite.name, DLOCK_SHARED, 0);
        EXPECT(fence % DLOCK_JOINT_STEP == 0);
        EXPECT(fence >= last + DLOCK_JOINT_STEP);
        last = i % 5 ? fence : take_and_give(0, suite.name, DLOCK_EXCLUSIVE, 0);
    }
}

const struct contract_case contract_fences[] = {
    PROMISE(grow_with_each_grant, 0),
    PROMISE(grow_across_modes, 0),
    PROMISE(differ_among_joint_holders, 0),
    PROMISE(grow_after_a_lease_has_ended, NEEDS_LEASES),
    PROMISE(grow_after_a_break, DLOCK_CAP_BREAK),
    PROMISE(busy_names_the_holders_fence_or_changes, 0),
    PROMISE(floor_raises_the_next_fence, DLOCK_CAP_FLOOR),
    PROMISE(floor_raises_a_readers_fence, DLOCK_CAP_FLOOR | DLOCK_CAP_SHARED | DLOCK_CAP_INSPECT),
    PROMISE(floor_leaves_room_among_readers, DLOCK_CAP_FLOOR | DLOCK_CAP_SHARED),
    {0},
};
