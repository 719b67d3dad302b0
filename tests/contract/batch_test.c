/* Many claims in one call: each is answered as it would be alone. */
#include "contract/contract.h"

enum { MOST = 256 };

static struct grant grants[MOST];
static struct grant *all[MOST];
static char names[MOST][DLOCK_NAME_MAX + 1];

/* Claims of client 0 for n names in order. */
static void claims_of(int n, enum dlock_mode mode, uint32_t limit) {
    for (int i = 0; i < n; i++) {
        char tag[8];
        snprintf(tag, sizeof tag, "%03d", i);
        tagged_name(names[i], tag);
        grant_as(&grants[i], 0, names[i], mode, limit);
        all[i] = &grants[i];
    }
}

static void expect_all(int n, int result) {
    for (int i = 0; i < n; i++)
        if (grants[i].claim.result != result) FAIL("claim %d of %d: %d", i, n, grants[i].claim.result);
}

static void as_many_as_there_may_be(void) {
    claims_of(MOST, DLOCK_EXCLUSIVE, 0);
    batch(0, DLOCK_ACQUIRE, all, MOST, NULL);
    expect_all(MOST, 0);
    batch(0, DLOCK_RENEW, all, MOST, NULL);
    expect_all(MOST, 0);
    batch(0, DLOCK_RELEASE, all, MOST, NULL);
    expect_all(MOST, 0);
    batch(0, DLOCK_RELEASE, all, MOST, NULL);
    expect_all(MOST, DLOCK_ELOST);
    batch(0, DLOCK_RENEW, all, MOST, NULL);
    expect_all(MOST, DLOCK_ELOST);
}

static void again_is_the_same_grants(void) {
    enum { N = 12 };
    uint64_t fences[N];
    struct grant alone;
    claims_of(N, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < N; i += 2) GRANTED(acquire(&grants[i])); /* alone at first, then among the others */
    for (int i = 0; i < N; i += 2) fences[i] = grants[i].claim.fence;
    batch(0, DLOCK_ACQUIRE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i += 2) EXPECT(grants[i].claim.fence == fences[i]);
    for (int i = 1; i < N; i += 2) { /* and the reverse */
        uint64_t fence = grants[i].claim.fence;
        GRANTED(acquire(&grants[i]));
        EXPECT(grants[i].claim.fence == fence);
    }
    batch(0, DLOCK_RELEASE, all, N, NULL);
    expect_all(N, 0);
    grant_new(&alone, 1, names[5]);
    GRANTED(acquire(&alone));
    EXPECT(alone.claim.fence > grants[5].claim.fence);
    GRANTED(release(&alone));
}

/* Free, taken, one's own, refused: in one call. */
static void each_has_its_own_result(void) {
    enum { N = 12 };
    struct grant theirs[N];
    struct dlock_error err = {0};
    claims_of(N, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < N; i += 3) {
        grant_new(&theirs[i], 1, names[i]);
        GRANTED(acquire(&theirs[i]));
    }
    for (int i = 1; i < N; i += 3) GRANTED(acquire(&grants[i]));
    if (can(DLOCK_CAP_PERMIT)) grant_as(&theirs[5], 1, names[5], DLOCK_PERMIT, 2);
    if (can(DLOCK_CAP_PERMIT)) GRANTED(acquire(&theirs[5]));
    if (!can(DLOCK_CAP_PERMIT)) grants[5].claim.mode = DLOCK_PERMIT;
    batch(0, DLOCK_ACQUIRE, all, N, &err);
    int refused = can(DLOCK_CAP_PERMIT) ? DLOCK_EINVAL : DLOCK_ENOTSUP;
    for (int i = 0; i < N; i++) {
        int wanted = i == 5 ? refused : i % 3 == 0 ? DLOCK_EBUSY : 0;
        if (grants[i].claim.result != wanted) FAIL("claim %d: %d instead of %d", i, grants[i].claim.result, wanted);
    }
    EXPECT(err.code == refused && err.message[0]);
    grants[5].claim.mode = DLOCK_EXCLUSIVE;
    for (int step = 0; step < 2; step++) {
        batch(0, step ? DLOCK_RELEASE : DLOCK_RENEW, all, N, NULL);
        for (int i = 0; i < N; i++) EXPECT_CODE(i == 5 || i % 3 == 0 ? DLOCK_ELOST : 0, grants[i].claim.result);
    }
    for (int i = 0; i < N; i += 3) GRANTED(renew(&theirs[i]));
    for (int i = 0; i < N; i += 3) GRANTED(release(&theirs[i]));
    if (can(DLOCK_CAP_PERMIT)) GRANTED(release(&theirs[5]));
}

/* Of names that were broken, only those are lost. */
static void losses_are_told_apart(void) {
    enum { N = 40 };
    claims_of(N, DLOCK_EXCLUSIVE, 0);
    batch(0, DLOCK_ACQUIRE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i += 13) EXPECT_CODE(0, backend->break_lock(line_of(1)->conn, names[i], REQUEST_MS, NULL));
    batch(0, DLOCK_RENEW, all, N, NULL);
    for (int i = 0; i < N; i++) EXPECT_CODE(i % 13 ? 0 : DLOCK_ELOST, grants[i].claim.result);
    batch(0, DLOCK_RELEASE, all, N, NULL);
    for (int i = 0; i < N; i++) EXPECT_CODE(i % 13 ? 0 : DLOCK_ELOST, grants[i].claim.result);
}

/* Renew and release may name one lock for several grants of a client. */
static void of_one_name(enum dlock_mode mode, uint32_t limit) {
    enum { N = 6 };
    claims_of(N, mode, limit);
    for (int i = 0; i < N; i++) grants[i].claim.name = suite.name;
    for (int i = 0; i < N; i++)
        if (i != 2) GRANTED(acquire(&grants[i]));
    batch(0, DLOCK_RENEW, all, N, NULL);
    for (int i = 0; i < N; i++) EXPECT_CODE(i == 2 ? DLOCK_ELOST : 0, grants[i].claim.result);
    GRANTED(release(&grants[4]));
    batch(0, DLOCK_RENEW, all, N, NULL);
    for (int i = 0; i < N; i++) EXPECT_CODE(i == 2 || i == 4 ? DLOCK_ELOST : 0, grants[i].claim.result);
    batch(0, DLOCK_RELEASE, all, N, NULL);
    for (int i = 0; i < N; i++) EXPECT_CODE(i == 2 || i == 4 ? DLOCK_ELOST : 0, grants[i].claim.result);
    struct grant next;
    grant_new(&next, 1, suite.name);
    GRANTED(await_free(&next));
    GRANTED(release(&next));
}

static void readers_of_one_name(void) {
    of_one_name(DLOCK_SHARED, 0);
}

static void permits_of_one_name(void) {
    of_one_name(DLOCK_PERMIT, 20);
}

static void modes_side_by_side(void) {
    enum { N = 9 };
    struct grant theirs[N];
    claims_of(N, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < N; i++) {
        all[i]->claim.mode = (enum dlock_mode)(i % 3 == 0 ? DLOCK_EXCLUSIVE : i % 3 == 1 ? DLOCK_SHARED : DLOCK_PERMIT);
        all[i]->claim.limit = i % 3 == 2;
    }
    batch(0, DLOCK_ACQUIRE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i++) {
        grant_as(&theirs[i], 1, names[i], grants[i].claim.mode, grants[i].claim.limit);
        EXPECT_CODE(i % 3 == 1 ? 0 : DLOCK_EBUSY, acquire(&theirs[i]));
    }
    grants[0].claim.mode = DLOCK_SHARED; /* a downgrade among renewals */
    batch(0, DLOCK_RENEW, all, N, NULL);
    expect_all(N, 0);
    theirs[0].claim.mode = DLOCK_SHARED;
    GRANTED(await_free(&theirs[0]));
    batch(0, DLOCK_RELEASE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i++) release(&theirs[i]);
}

/* A release of many hands each to its waiter; so does a downgrade, to readers. */
static void waiters_are_served(void) {
    enum { N = CAREFUL - 1 };
    struct grant waiting[N];
    claims_of(N, DLOCK_EXCLUSIVE, 0);
    batch(0, DLOCK_ACQUIRE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i++) {
        grant_new(&waiting[i], 1 + i, names[i]); /* each hears for itself */
        BUSY(queue_up(&waiting[i]));
    }
    batch(0, DLOCK_RELEASE, all, N, NULL);
    expect_all(N, 0);
    for (int i = 0; i < N; i++) {
        GRANTED(await(&waiting[i], REQUEST_MS));
        EXPECT(waiting[i].claim.fence > grants[i].claim.fence);
    }
    for (int i = 0; i < N; i++) GRANTED(release(&waiting[i]));
}

const struct contract_case contract_batch[] = {
    PROMISE(as_many_as_there_may_be, NEEDS_MANY),
    PROMISE(again_is_the_same_grants, NEEDS_MANY),
    PROMISE(each_has_its_own_result, NEEDS_MANY),
    PROMISE(losses_are_told_apart, NEEDS_MANY | DLOCK_CAP_BREAK),
    PROMISE(readers_of_one_name, NEEDS_MANY | DLOCK_CAP_SHARED),
    PROMISE(permits_of_one_name, NEEDS_MANY | DLOCK_CAP_PERMIT),
    PROMISE(modes_side_by_side, NEEDS_MANY | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT),
    PROMISE(waiters_are_served, NEEDS_MANY),
    {0},
};
