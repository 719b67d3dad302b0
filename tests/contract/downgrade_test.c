/* A renewal as SHARED of an exclusive grant: no other client gets in between. */
#include "contract/contract.h"

static struct grant owner, reader, writer;

static void begin(void) {
    grant_new(&owner, 0, suite.name);
    grant_as(&reader, 1, suite.name, DLOCK_SHARED, 0);
    grant_new(&writer, 2, suite.name);
}

static int downgrade(struct grant *grant) {
    grant->claim.mode = DLOCK_SHARED;
    return renew(grant);
}

static void keeps_the_fence_and_lets_readers_in(void) {
    begin();
    GRANTED(acquire(&owner));
    uint64_t fence = owner.claim.fence;
    BUSY(acquire(&reader));
    for (int i = 0; i < 2; i++) { /* the first answer was lost: the same again changes nothing */
        GRANTED(downgrade(&owner));
        EXPECT(owner.claim.fence == fence);
    }
    GRANTED(acquire(&owner));
    EXPECT(owner.claim.fence == fence);
    GRANTED(await_free(&reader));
    EXPECT(reader.claim.fence > fence);
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(release(&owner));
    LOST(release(&owner));
    GRANTED(renew(&reader));
    GRANTED(release(&reader));
    GRANTED(await_free(&writer));
    EXPECT(writer.claim.fence > reader.claim.fence);
    GRANTED(release(&writer));
}

/* What it was before it can no longer renew as. */
static void is_not_undone_by_a_renewal(void) {
    begin();
    GRANTED(acquire(&owner));
    GRANTED(downgrade(&owner));
    GRANTED(await_free(&reader));
    owner.claim.mode = DLOCK_EXCLUSIVE;
    renew(&owner);
    GRANTED(renew(&reader));
    BUSY(acquire(&writer));
    owner.claim.mode = DLOCK_SHARED;
    release(&owner);
    GRANTED(release(&reader));
}

static void creates_nothing(void) {
    begin();
    LOST(downgrade(&owner));
    owner.claim.mode = DLOCK_EXCLUSIVE;
    GRANTED(acquire(&owner));
    GRANTED(release(&owner));
    LOST(downgrade(&owner));
    GRANTED(acquire(&writer));
    LOST(downgrade(&owner));
    GRANTED(renew(&writer));
    GRANTED(release(&writer));
}

/* It never arrived, and is given up: the release says SHARED, the grant is still exclusive. */
static void release_ends_what_it_did_not_reach(void) {
    begin();
    GRANTED(acquire(&owner));
    owner.claim.mode = DLOCK_SHARED;
    GRANTED(release(&owner));
    LOST(release(&owner));
    GRANTED(acquire(&writer));
    GRANTED(release(&writer));
}

/* Its answer was lost: a claim without what the backend has stored in it by then. */
static void answer_was_lost(void) {
    struct grant before;
    begin();
    GRANTED(acquire(&owner));
    grant_copy(&before, &owner, false);
    GRANTED(downgrade(&owner));
    GRANTED(downgrade(&before));
    GRANTED(await_free(&reader));
    GRANTED(release(&before));
    LOST(renew(&owner));
    LOST(release(&owner));
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(release(&reader));
}

/* The lease is the new one. */
static void restarts_the_lease(void) {
    begin();
    owner.claim.lease_ms = 1000;
    GRANTED(acquire(&owner));
    owner.claim.lease_ms = HELD_MS;
    GRANTED(downgrade(&owner));
    EXPECT(owner.claim.kept_ms > HELD_MS / 2);
    sleep_ms(3500);
    BUSY(acquire(&writer));
    LOST(release(&writer));
    GRANTED(renew(&owner));
    GRANTED(release(&owner));
}

/* Readers that are first in the queue join; a writer stays where it is, and keeps later readers out. */
static void admits_waiting_readers(void) {
    struct grant late;
    begin();
    grant_as(&late, 3, suite.name, DLOCK_SHARED, 0);
    GRANTED(acquire(&owner));
    line_up(&reader, 1, suite.name, DLOCK_SHARED, 0);
    line_up(&writer, 2, suite.name, DLOCK_EXCLUSIVE, 0);
    GRANTED(downgrade(&owner));
    expect_woken(&reader);
    EXPECT(reader.claim.fence > owner.claim.fence);
    expect_not_granted(&writer);
    BUSY(acquire(&late));
    LOST(release(&late));
    GRANTED(release(&owner));
    expect_not_granted(&writer);
    GRANTED(release(&reader));
    expect_woken(&writer);
    GRANTED(release(&writer));
}

static void passes_no_writer_that_is_first(void) {
    begin();
    GRANTED(acquire(&owner));
    line_up(&writer, 2, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&reader, 1, suite.name, DLOCK_SHARED, 0);
    GRANTED(downgrade(&owner));
    expect_not_granted(&reader);
    expect_not_granted(&writer);
    GRANTED(release(&owner));
    expect_woken(&writer);
    expect_not_granted(&reader);
    GRANTED(release(&writer));
    expect_woken(&reader);
    GRANTED(release(&reader));
}

#define NEEDS_LINE (DLOCK_CAP_SHARED | DLOCK_CAP_QUEUE)

const struct contract_case contract_downgrade[] = {
    PROMISE(keeps_the_fence_and_lets_readers_in, DLOCK_CAP_SHARED),
    PROMISE(is_not_undone_by_a_renewal, DLOCK_CAP_SHARED),
    PROMISE(creates_nothing, DLOCK_CAP_SHARED),
    PROMISE(release_ends_what_it_did_not_reach, DLOCK_CAP_SHARED),
    PROMISE(answer_was_lost, DLOCK_CAP_SHARED | NEEDS_LEASES),
    PROMISE(restarts_the_lease, DLOCK_CAP_SHARED | NEEDS_LEASES),
    PROMISE(admits_waiting_readers, NEEDS_LINE),
    PROMISE(passes_no_writer_that_is_first, NEEDS_LINE),
    {0},
};
