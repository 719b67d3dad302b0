/* One token: its grant, the same request again, and requests that come late. */
#include "contract/contract.h"

static void granted_renewed_released(void) {
    struct grant mine;
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    GRANTED(renew(&mine));
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
    LOST(release(&mine));
    LOST(renew(&mine));
    LOST(release(&mine));
}

static void excludes(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(acquire(&theirs));
    LOST(renew(&theirs));
    LOST(release(&theirs));
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
    GRANTED(acquire(&theirs));
    EXPECT(theirs.claim.fence > mine.claim.fence);
    /* Late: the new holder notices nothing. */
    LOST(renew(&mine));
    LOST(release(&mine));
    BUSY(acquire(&mine));
    GRANTED(renew(&theirs));
    GRANTED(release(&theirs));
}

static void excludes_within_a_client(void) {
    struct grant one, two;
    grant_new(&one, 0, suite.name);
    grant_new(&two, 0, suite.name);
    GRANTED(acquire(&one));
    BUSY(acquire(&two));
    LOST(renew(&two));
    LOST(release(&two));
    GRANTED(release(&one));
    GRANTED(acquire(&two));
    LOST(release(&one));
    GRANTED(release(&two));
}

static void again_is_the_same_grant(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    uint64_t fence = mine.claim.fence;
    for (int i = 0; i < 2; i++) {
        GRANTED(acquire(&mine));
        EXPECT(mine.claim.fence == fence);
        fence = mine.claim.fence;
        GRANTED(renew(&mine));
        EXPECT(mine.claim.fence == fence);
    }
    BUSY(acquire(&theirs));
    GRANTED(release(&mine)); /* once, however often it was requested */
    GRANTED(acquire(&theirs));
    EXPECT(theirs.claim.fence > fence);
    GRANTED(release(&theirs));
}

/* The first answer was lost, and with it what it would have stored in the claim. */
static void again_without_the_answer(void) {
    struct grant mine, lost;
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    GRANTED(renew(&mine));
    grant_copy(&lost, &mine, true);
    GRANTED(acquire(&lost));
    EXPECT(lost.claim.fence == mine.claim.fence);
    GRANTED(renew(&lost));
    GRANTED(release(&lost));
    LOST(release(&mine));
    LOST(renew(&mine));
}

/* The acquire had no answer: its possible grant is released by name and token alone. */
static void release_without_the_answer(void) {
    struct grant mine, lost, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    grant_copy(&lost, &mine, true);
    LOST(release(&lost));
    GRANTED(acquire(&mine));
    GRANTED(release(&lost));
    LOST(renew(&mine));
    GRANTED(acquire(&theirs));
    LOST(release(&mine));
    GRANTED(release(&theirs));
}

/* A renewal whose answer was lost: the claim is as it was before. */
static void renewal_without_the_answer(void) {
    struct grant mine, before;
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    grant_copy(&before, &mine, false);
    GRANTED(renew(&mine));
    GRANTED(renew(&mine));
    GRANTED(renew(&before));
    GRANTED(renew(&mine));
    GRANTED(release(&before));
    LOST(release(&mine));
}

/* A token may be granted once more after its release, as another grant; a release of the first grant that comes late does
 * not end the second. */
static void released_and_granted_once_more(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    uint64_t fence = mine.claim.fence;
    GRANTED(release(&mine));
    memset(mine.claim.state, 0, sizeof mine.claim.state);
    GRANTED(acquire(&mine));
    EXPECT(mine.claim.fence > fence);
    BUSY(acquire(&theirs));
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
}

/* Another connection of the client repeats the request, renews and releases. */
static void by_another_connection(void) {
    struct grant mine;
    if (can(DLOCK_CAP_SESSION)) return; /* there it is not the same grant */
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    uint64_t fence = mine.claim.fence;
    struct line *second = second_line_of(0);
    GRANTED(request_on(second, DLOCK_ACQUIRE, &mine, 0));
    EXPECT(mine.claim.fence == fence);
    GRANTED(request_on(second, DLOCK_RENEW, &mine, 0));
    GRANTED(renew(&mine));
    GRANTED(request_on(second, DLOCK_RELEASE, &mine, 0));
    LOST(renew(&mine));
    LOST(release(&mine));
}

/* An imported grant, or one that a dead process has left to its guardian. */
static void by_another_client(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(acquire(&theirs));
    GRANTED(request_on(line_of(1), DLOCK_RENEW, &mine, 0));
    GRANTED(request_on(line_of(1), DLOCK_RELEASE, &mine, 0));
    LOST(renew(&mine));
    GRANTED(acquire(&theirs));
    LOST(request_on(line_of(1), DLOCK_RELEASE, &mine, 0));
    GRANTED(release(&theirs));
}

/* A request that is begun is the same request; its answer is there when the descriptor is readable. */
static void begun_requests(void) {
    static const enum dlock_operation operations[] = {DLOCK_ACQUIRE, DLOCK_RENEW, DLOCK_RELEASE};
    struct grant mine;
    struct dlock_error err = {0};
    if (!backend->begin) return;
    for (int round = 0; round < 2; round++) { /* the first may need more than one request, and begins nothing */
        grant_new(&mine, 0, suite.name);
        for (int i = 0; i < 3; i++) {
            int fd = -2;
            EXPECT(backend->begin(line_of(0)->conn, operations[i], &mine.claim, &fd, &err) == 0);
            EXPECT(fd >= -1);
            if (fd >= 0) EXPECT(readable(fd, REQUEST_MS));
            GRANTED(request_on(line_of(0), operations[i], &mine, 0));
        }
    }
    LOST(release(&mine));
}

/* A mode that the backend does not offer is refused and leaves nothing behind. */
static void absent_modes(void) {
    struct grant shared, permit, mine;
    grant_as(&shared, 0, suite.name, DLOCK_SHARED, 0);
    grant_as(&permit, 0, suite.name, DLOCK_PERMIT, 3);
    grant_new(&mine, 1, suite.name);
    if (!can(DLOCK_CAP_SHARED)) EXPECT_CODE(DLOCK_ENOTSUP, acquire(&shared));
    if (!can(DLOCK_CAP_PERMIT)) EXPECT_CODE(DLOCK_ENOTSUP, acquire(&permit));
    GRANTED(acquire(&mine));
    GRANTED(release(&mine));
}

/* Names and tokens as long as there are, which differ only at their end. */
static void names_and_tokens_of_full_length(void) {
    char names[2][DLOCK_FULL_NAME_MAX + 1];
    struct grant mine[2], theirs, twin;
    for (int i = 0; i < 2; i++) {
        full_length_name(names[i], (char)('a' + i));
        grant_new(&mine[i], 0, names[i]);
        full_length_token(&mine[i], 'a');
        GRANTED(acquire(&mine[i]));
    }
    grant_copy(&twin, &mine[0], true);
    full_length_token(&twin, 'b');
    grant_new(&theirs, 1, names[0]);
    BUSY(acquire(&twin));
    BUSY(acquire(&theirs));
    LOST(renew(&twin));
    LOST(release(&twin));
    for (int i = 0; i < 2; i++) {
        GRANTED(renew(&mine[i]));
        GRANTED(release(&mine[i]));
    }
    GRANTED(acquire(&theirs));
    EXPECT(theirs.claim.fence > mine[0].claim.fence);
    GRANTED(release(&theirs));
}

const struct contract_case contract_tokens[] = {
    PROMISE(granted_renewed_released, 0),
    PROMISE(excludes, 0),
    PROMISE(excludes_within_a_client, 0),
    PROMISE(again_is_the_same_grant, 0),
    PROMISE(again_without_the_answer, NEEDS_LEASES),
    PROMISE(release_without_the_answer, NEEDS_LEASES),
    PROMISE(renewal_without_the_answer, NEEDS_LEASES),
    PROMISE(released_and_granted_once_more, 0),
    PROMISE(by_another_connection, NEEDS_LEASES),
    PROMISE(by_another_client, NEEDS_LEASES),
    PROMISE(begun_requests, NEEDS_MANY),
    PROMISE(absent_modes, 0),
    PROMISE(names_and_tokens_of_full_length, 0),
    {0},
};
