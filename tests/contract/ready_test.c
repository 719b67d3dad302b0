/* The quarantine: a client that has one longer than the server has been up gets nothing new. Grants of clients without
 * one continue. */
#include "contract/contract.h"

static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED, DLOCK_PERMIT};
static const uint32_t needs[] = {0, DLOCK_CAP_SHARED, DLOCK_CAP_PERMIT};

/* Claims in one of the modes, for its own name. */
static void claim_in(struct grant *grant, int client, int mode) {
    static char names[3][DLOCK_NAME_MAX + 1];
    tagged_name(names[mode], (const char[]){(char)('0' + mode), 0});
    grant_as(grant, client, names[mode], modes[mode], mode == 2 ? 3 : 0);
}

/* A server that can tell that it has forgotten nothing need not wait. */
static bool knows_all(void) {
    struct grant probe;
    grant_new(&probe, CAREFUL, suite.name);
    if (acquire(&probe) != 0) return false;
    GRANTED(release(&probe));
    return true;
}

static void nothing_is_granted(void) {
    struct grant mine;
    for (int i = 0; i < 3; i++) {
        if (!can(needs[i])) continue;
        claim_in(&mine, CAREFUL, i);
        if (knows_all()) return;
        EXPECT_CODE(DLOCK_ENOTREADY, acquire(&mine));
        if (mine.claim.ready_ms != -1) EXPECT_BETWEEN(1, QUARANTINE_MS, mine.claim.ready_ms);
        LOST(renew(&mine));
        LOST(release(&mine));
    }
}

/* Not to readers and permits either, beside those that were granted before. */
static void nothing_is_granted_beside_others(void) {
    struct grant known, mine;
    for (int i = 0; i < 3; i++) {
        if (!can(needs[i])) continue;
        if (knows_all()) return;
        claim_in(&known, 0, i);
        claim_in(&mine, CAREFUL, i);
        GRANTED(acquire(&known));
        int rc = acquire(&mine);
        EXPECT(rc == DLOCK_ENOTREADY || rc == DLOCK_EBUSY);
        LOST(release(&mine));
        GRANTED(release(&known));
        EXPECT_CODE(DLOCK_ENOTREADY, acquire(&mine));
    }
}

/* What a client has, as the server knows, it may renew and release. */
static void what_was_granted_goes_on(void) {
    struct grant known;
    if (can(DLOCK_CAP_SESSION)) return; /* its connection is that of its client */
    for (int i = 0; i < 3; i++) {
        if (!can(needs[i])) continue;
        claim_in(&known, 0, i);
        GRANTED(acquire(&known));
        uint64_t fence = known.claim.fence;
        GRANTED(request_on(line_of(CAREFUL), DLOCK_RENEW, &known, 0));
        int rc = request_on(line_of(CAREFUL), DLOCK_ACQUIRE, &known, 0); /* which may not look for it */
        EXPECT(rc == DLOCK_ENOTREADY || rc == DLOCK_EBUSY || (rc == 0 && known.claim.fence == fence));
        GRANTED(request_on(line_of(CAREFUL), DLOCK_RELEASE, &known, 0));
        LOST(renew(&known));
    }
}

/* A server may refuse to renew a lease that ends soon: its client might not hold it any more, and another server
 * might grant it the moment it ends. Then the same acquire gets no new lease either. */
static void an_acquire_lengthens_no_more_than_a_renewal(void) {
    struct grant known[6];
    char names[6][DLOCK_NAME_MAX + 1];
    if (can(DLOCK_CAP_SESSION) || knows_all()) return;
    for (int i = 0; i < 6; i++) {
        if (!can(needs[i / 2])) continue;
        tagged_name(names[i], (const char[]){(char)('a' + i), 0});
        grant_as(&known[i], 0, names[i], modes[i / 2], i / 2 == 2 ? 3 : 0);
        known[i].claim.lease_ms = 1500;
        GRANTED(acquire(&known[i]));
    }
    sleep_ms(1200);
    for (int i = 0; i < 6; i += 2) {
        if (!can(needs[i / 2])) continue;
        int renewed = request_on(line_of(CAREFUL), DLOCK_RENEW, &known[i], 0);
        int again = request_on(line_of(CAREFUL), DLOCK_ACQUIRE, &known[i + 1], 0);
        if (renewed != 0) EXPECT(again != 0);
        release(&known[i]);
        release(&known[i + 1]);
    }
}

const struct contract_case contract_ready[] = {
    PROMISE(nothing_is_granted, DLOCK_CAP_VOLATILE),
    PROMISE(nothing_is_granted_beside_others, DLOCK_CAP_VOLATILE),
    PROMISE(what_was_granted_goes_on, DLOCK_CAP_VOLATILE),
    PROMISE(an_acquire_lengthens_no_more_than_a_renewal, DLOCK_CAP_VOLATILE | NEEDS_LEASES),
    {0},
};
