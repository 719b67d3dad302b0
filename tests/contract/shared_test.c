/* Readers: together, apart from writers, each with its own grant. */
#include "contract/contract.h"

static void reader(struct grant *grant, int client) {
    grant_as(grant, client, suite.name, DLOCK_SHARED, 0);
}

static void hold_together_and_writers_alone(void) {
    struct grant one, two, mine, writer, late;
    reader(&one, 0);
    reader(&two, 1);
    reader(&mine, 0);
    reader(&late, 3);
    grant_new(&writer, 2, suite.name);
    GRANTED(acquire(&one));
    GRANTED(acquire(&two));
    GRANTED(acquire(&mine)); /* two of one client */
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(release(&one));
    LOST(release(&one));
    LOST(renew(&one));
    GRANTED(renew(&two));
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(release(&two));
    GRANTED(release(&mine));
    GRANTED(await_free(&writer));
    EXPECT(writer.claim.fence > mine.claim.fence);
    BUSY(acquire(&late));
    LOST(renew(&late));
    LOST(release(&late));
    GRANTED(release(&writer));
    GRANTED(acquire(&late));
    EXPECT(late.claim.fence > writer.claim.fence);
    GRANTED(release(&late));
}

static void again_is_the_same_grant(void) {
    struct grant one, two, lost, writer;
    reader(&one, 0);
    reader(&two, 1);
    GRANTED(acquire(&one));
    GRANTED(acquire(&two));
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
    GRANTED(release(&one));
    LOST(release(&one));
    GRANTED(renew(&two));
    GRANTED(release(&two));
    grant_new(&writer, 2, suite.name);
    GRANTED(acquire(&writer)); /* none is left */
    GRANTED(release(&writer));
}

/* The writer that comes after readers does not get what they had, nor they what it has. */
static void late_requests_change_nothing(void) {
    struct grant old, writer, next;
    reader(&old, 0);
    reader(&next, 1);
    grant_new(&writer, 2, suite.name);
    GRANTED(acquire(&old));
    GRANTED(release(&old));
    GRANTED(acquire(&writer));
    LOST(renew(&old));
    LOST(release(&old));
    GRANTED(renew(&writer));
    GRANTED(release(&writer));
    GRANTED(acquire(&next));
    LOST(renew(&old));
    LOST(release(&old));
    LOST(renew(&writer));
    LOST(release(&writer));
    GRANTED(renew(&next));
    GRANTED(release(&next));
}

static void many_enter_and_leave_in_any_order(void) {
    enum { READERS = 20 };
    struct grant readers[READERS], writer;
    grant_new(&writer, 2, suite.name);
    for (int i = 0; i < READERS; i++) {
        reader(&readers[i], i % 2);
        GRANTED(acquire(&readers[i]));
        if (i > 0) EXPECT(readers[i].claim.fence > readers[i - 1].claim.fence);
    }
    for (int i = 0; i < READERS; i++) {
        struct grant *leaving = &readers[i * 7 % READERS];
        GRANTED(renew(leaving));
        BUSY(acquire(&writer));
        LOST(release(&writer));
        GRANTED(release(leaving));
    }
    GRANTED(await_free(&writer));
    GRANTED(release(&writer));
}

/* Tries of a writer, which never waits, keep no reader out for long. */
static void a_try_keeps_nobody_out(void) {
    struct grant one, two, writer;
    reader(&one, 0);
    reader(&two, 1);
    grant_new(&writer, 2, suite.name);
    GRANTED(acquire(&one));
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(await_free(&two));
    GRANTED(release(&one));
    GRANTED(release(&two));
}

const struct contract_case contract_shared[] = {
    PROMISE(hold_together_and_writers_alone, DLOCK_CAP_SHARED),
    PROMISE(again_is_the_same_grant, DLOCK_CAP_SHARED),
    PROMISE(late_requests_change_nothing, DLOCK_CAP_SHARED),
    PROMISE(many_enter_and_leave_in_any_order, DLOCK_CAP_SHARED),
    PROMISE(a_try_keeps_nobody_out, DLOCK_CAP_SHARED),
    {0},
};
