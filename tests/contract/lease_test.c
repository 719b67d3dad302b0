/* Leases end independently, and no earlier than was said; renewals and repeated requests restart them. Some
 * servers count in seconds. */
#include "contract/contract.h"

enum { SHORT_MS = 1000, RESTARTED_MS = 3500 };

/* Acquires for a lease of this length in the mode, as the given client. */
static void take(struct grant *grant, int client, enum dlock_mode mode, int64_t lease_ms) {
    grant_as(grant, client, suite.name, mode, mode == DLOCK_PERMIT ? 2 : 0);
    grant->claim.lease_ms = lease_ms;
    GRANTED(acquire(grant));
}

static void ends_in_time(void) {
    struct grant dead, next;
    grant_new(&next, 1, suite.name);
    int64_t begun = now_ms();
    take(&dead, 0, DLOCK_EXCLUSIVE, SHORT_MS);
    BUSY(acquire(&next));
    while (acquire(&next) == DLOCK_EBUSY) {
        EXPECT(now_ms() - begun < PATIENCE_MS / 4);
        sleep_ms(10);
    }
    EXPECT_CODE(0, next.claim.result);
    EXPECT(now_ms() - begun >= dead.claim.kept_ms);
    LOST(renew(&dead));
    LOST(release(&dead));
    GRANTED(renew(&next));
    GRANTED(release(&next));
}

/* It is lost even if no other client has taken the name since. */
static void is_lost_when_it_has_ended(void) {
    struct grant dead;
    take(&dead, 0, DLOCK_EXCLUSIVE, 300);
    for (int64_t until = now_ms() + PATIENCE_MS / 4; now_ms() < until; sleep_ms(300)) {
        struct grant probe;
        grant_new(&probe, 1, suite.name);
        if (acquire(&probe) == DLOCK_EBUSY) continue;
        GRANTED(release(&probe));
        break;
    }
    LOST(renew(&dead));
    LOST(release(&dead));
    take(&dead, 0, DLOCK_EXCLUSIVE, 300);
    sleep_ms(3500); /* also of a server that counts in seconds */
    LOST(renew(&dead));
    LOST(release(&dead));
}

/* In each mode, by a renewal and by the same acquire again. */
static void restarted_by_renew_and_by_acquire(void) {
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED, DLOCK_PERMIT};
    static const uint32_t needs[] = {0, DLOCK_CAP_SHARED, DLOCK_CAP_PERMIT};
    struct grant mine[6], theirs;
    char names[6][DLOCK_NAME_MAX + 1];
    for (int i = 0; i < 6; i++) {
        if (!can(needs[i / 2])) continue;
        tagged_name(names[i], (const char[]){(char)('a' + i), 0});
        grant_as(&mine[i], 0, names[i], modes[i / 2], i / 2 == 2);
        mine[i].claim.lease_ms = SHORT_MS;
        GRANTED(acquire(&mine[i]));
        uint64_t fence = mine[i].claim.fence;
        mine[i].claim.lease_ms = HELD_MS;
        GRANTED(i % 2 ? acquire(&mine[i]) : renew(&mine[i]));
        EXPECT(mine[i].claim.fence == fence);
        EXPECT(mine[i].claim.kept_ms > HELD_MS / 2);
    }
    sleep_ms(RESTARTED_MS);
    for (int i = 0; i < 6; i++) {
        if (!can(needs[i / 2])) continue;
        grant_as(&theirs, 1, names[i], i / 2 == 2 ? DLOCK_PERMIT : DLOCK_EXCLUSIVE, i / 2 == 2);
        BUSY(acquire(&theirs));
        GRANTED(renew(&mine[i]));
        GRANTED(release(&mine[i]));
    }
}

/* The lease counts from the renewal, even if it is shorter. */
static void shortened_by_a_renewal(void) {
    struct grant mine, theirs;
    grant_new(&theirs, 1, suite.name);
    take(&mine, 0, DLOCK_EXCLUSIVE, 60000);
    mine.claim.lease_ms = SHORT_MS;
    GRANTED(renew(&mine));
    EXPECT(mine.claim.kept_ms <= SHORT_MS);
    BUSY(acquire(&theirs));
    GRANTED(await(&theirs, 15000));
    LOST(release(&mine));
    GRANTED(release(&theirs));
}

/* Each reader has its own lease; the name is held until the longest ends. */
static void of_readers_end_one_by_one(void) {
    struct grant brief[2], lasting[2], writer[2];
    char names[2][DLOCK_NAME_MAX + 1];
    for (int i = 0; i < 2; i++) {
        tagged_name(names[i], i ? "longer-first" : "longer-last");
        grant_as(&brief[i], 0, names[i], DLOCK_SHARED, 0);
        grant_as(&lasting[i], 1, names[i], DLOCK_SHARED, 0);
        grant_new(&writer[i], 2, names[i]);
        brief[i].claim.lease_ms = SHORT_MS;
        GRANTED(acquire(i ? &lasting[i] : &brief[i]));
        GRANTED(acquire(i ? &brief[i] : &lasting[i]));
    }
    for (int i = 0; i < 2; i++) BUSY(await(&writer[i], RESTARTED_MS)); /* a server may notice the end by that alone */
    for (int i = 0; i < 2; i++) {
        LOST(release(&writer[i]));
        LOST(renew(&brief[i]));
        LOST(release(&brief[i]));
        BUSY(acquire(&writer[i]));
        GRANTED(renew(&lasting[i]));
        GRANTED(release(&lasting[i]));
        GRANTED(await(&writer[i], REQUEST_MS));
        GRANTED(release(&writer[i]));
    }
}

/* All readers have died: a writer gets in, with a greater fence, and so do readers. */
static void of_all_readers_end(void) {
    struct grant dead[2], writer;
    take(&dead[0], 0, DLOCK_SHARED, SHORT_MS);
    take(&dead[1], 1, DLOCK_SHARED, SHORT_MS / 2);
    grant_new(&writer, 2, suite.name);
    BUSY(acquire(&writer));
    GRANTED(await(&writer, PATIENCE_MS / 4));
    for (int i = 0; i < 2; i++) EXPECT(writer.claim.fence > dead[i].claim.fence);
    for (int i = 0; i < 2; i++) LOST(renew(&dead[i]));
    for (int i = 0; i < 2; i++) LOST(release(&dead[i]));
    GRANTED(renew(&writer));
    GRANTED(release(&writer));
}

/* One crash loses one permit, for one lease. */
static void of_permits_end_one_by_one(void) {
    struct grant brief, lasting, next, more;
    take(&brief, 0, DLOCK_PERMIT, SHORT_MS);
    take(&lasting, 1, DLOCK_PERMIT, HELD_MS);
    grant_as(&next, 2, suite.name, DLOCK_PERMIT, 2);
    grant_as(&more, 3, suite.name, DLOCK_PERMIT, 2);
    BUSY(acquire(&next));
    GRANTED(await(&next, PATIENCE_MS / 4));
    EXPECT(next.claim.fence > lasting.claim.fence);
    LOST(renew(&brief));
    LOST(release(&brief));
    BUSY(acquire(&more));
    GRANTED(renew(&lasting));
    GRANTED(release(&lasting));
    GRANTED(release(&next));
}

/* The longest lease that a client can ask for. */
static void may_be_as_long_as_a_year(void) {
    struct grant mine;
    take(&mine, 0, DLOCK_EXCLUSIVE, DLOCK_LEASE_MAX_MS);
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
}

/* The shortest lease that a claim may have. Of a new grant it would end before a quorum has it. */
static void may_be_as_short_as_a_millisecond(void) {
    struct grant dead, next;
    grant_new(&next, 1, suite.name);
    take(&dead, 0, DLOCK_EXCLUSIVE, HELD_MS);
    dead.claim.lease_ms = 1;
    GRANTED(renew(&dead));
    acquire(&next); /* granted already, or to be waited for */
    if (next.claim.result != 0) GRANTED(await(&next, PATIENCE_MS / 4));
    EXPECT(next.claim.fence > dead.claim.fence);
    LOST(renew(&dead));
    LOST(release(&dead));
    GRANTED(release(&next));
}

const struct contract_case contract_lease[] = {
    PROMISE(ends_in_time, NEEDS_LEASES),
    PROMISE(is_lost_when_it_has_ended, NEEDS_LEASES),
    PROMISE(restarted_by_renew_and_by_acquire, NEEDS_LEASES),
    PROMISE(shortened_by_a_renewal, NEEDS_LEASES),
    PROMISE(of_readers_end_one_by_one, NEEDS_LEASES | DLOCK_CAP_SHARED),
    PROMISE(of_all_readers_end, NEEDS_LEASES | DLOCK_CAP_SHARED),
    PROMISE(of_permits_end_one_by_one, NEEDS_LEASES | DLOCK_CAP_PERMIT),
    PROMISE(may_be_as_long_as_a_year, 0),
    PROMISE(may_be_as_short_as_a_millisecond, NEEDS_LEASES),
    {0},
};
