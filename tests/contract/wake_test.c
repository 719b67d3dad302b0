/* Wake-ups for waiters, and for lingering holders that others wait for. */
#include "contract/contract.h"

static void a_release_wakes(void) {
    struct grant mine, waiting;
    grant_new(&mine, 0, suite.name);
    grant_new(&waiting, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(queue_up(&waiting));
    expect_not_granted(&waiting);
    GRANTED(release(&mine));
    expect_woken(&waiting);
    EXPECT(waiting.claim.fence > mine.claim.fence);
    /* The release once more, and a renewal, change nothing for the new holder. */
    LOST(release(&mine));
    LOST(renew(&mine));
    GRANTED(renew(&waiting));
    BUSY(acquire(&mine));
    LOST(release(&mine));
    GRANTED(release(&waiting));
}

static void a_release_of_the_last_reader_wakes(void) {
    struct grant readers[2], writer;
    for (int i = 0; i < 2; i++) {
        grant_as(&readers[i], i, suite.name, DLOCK_SHARED, 0);
        GRANTED(acquire(&readers[i]));
    }
    grant_new(&writer, 2, suite.name);
    BUSY(queue_up(&writer));
    GRANTED(release(&readers[0]));
    expect_not_granted(&writer);
    GRANTED(release(&readers[1]));
    expect_woken(&writer);
    EXPECT(writer.claim.fence > readers[1].claim.fence);
    GRANTED(release(&writer));
}

static void a_release_of_a_writer_wakes_all_readers(void) {
    struct grant writer, readers[3];
    grant_new(&writer, 0, suite.name);
    GRANTED(acquire(&writer));
    for (int i = 0; i < 3; i++) {
        grant_as(&readers[i], i + 1, suite.name, DLOCK_SHARED, 0);
        BUSY(queue_up(&readers[i]));
    }
    GRANTED(release(&writer));
    for (int i = 0; i < 3; i++) {
        expect_woken(&readers[i]);
        EXPECT(readers[i].claim.fence > writer.claim.fence);
    }
    for (int i = 0; i < 3; i++) GRANTED(renew(&readers[i]));
    for (int i = 0; i < 3; i++) GRANTED(release(&readers[i]));
}

static void a_downgrade_wakes_readers(void) {
    struct grant owner, reader;
    grant_new(&owner, 0, suite.name);
    grant_as(&reader, 1, suite.name, DLOCK_SHARED, 0);
    GRANTED(acquire(&owner));
    BUSY(queue_up(&reader));
    owner.claim.mode = DLOCK_SHARED;
    GRANTED(renew(&owner));
    expect_woken(&reader);
    EXPECT(reader.claim.fence > owner.claim.fence);
    GRANTED(renew(&owner));
    GRANTED(release(&owner));
    GRANTED(release(&reader));
}

static void a_permit_given_back_wakes(void) {
    struct grant held[2], waiting;
    for (int i = 0; i < 2; i++) {
        grant_as(&held[i], i, suite.name, DLOCK_PERMIT, 2);
        GRANTED(acquire(&held[i]));
    }
    grant_as(&waiting, 2, suite.name, DLOCK_PERMIT, 2);
    BUSY(queue_up(&waiting));
    GRANTED(release(&held[0]));
    expect_woken(&waiting);
    EXPECT(waiting.claim.fence > held[1].claim.fence);
    GRANTED(renew(&held[1]));
    GRANTED(release(&held[1]));
    GRANTED(release(&waiting));
}

static void a_break_wakes(void) {
    struct grant mine, waiting;
    grant_new(&mine, 0, suite.name);
    grant_new(&waiting, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(queue_up(&waiting));
    EXPECT_CODE(0, backend->break_lock(line_of(2)->conn, suite.name, REQUEST_MS, NULL));
    expect_woken(&waiting);
    LOST(renew(&mine));
    LOST(release(&mine));
    GRANTED(release(&waiting));
}

/* It gave up: it is not granted any more, and the next one is. */
static void who_leaves_is_not_granted(void) {
    struct grant mine, leaves, stays;
    grant_new(&mine, 0, suite.name);
    grant_new(&leaves, 1, suite.name);
    grant_new(&stays, 2, suite.name);
    GRANTED(acquire(&mine));
    BUSY(queue_up(&leaves));
    BUSY(queue_up(&stays));
    LOST(release(&leaves));
    LOST(release(&leaves));
    GRANTED(release(&mine));
    GRANTED(await(&stays, REQUEST_MS));
    LOST(renew(&leaves));
    LOST(release(&leaves));
    GRANTED(renew(&stays));
    GRANTED(release(&stays));
}

/* Several names, several waiters, one listener: each wake-up is for its own. */
static void each_name_has_its_own(void) {
    struct grant mine[3], waiting[3];
    char names[3][DLOCK_NAME_MAX + 1];
    for (int i = 0; i < 3; i++) {
        tagged_name(names[i], (const char[]){(char)('a' + i), 0});
        grant_new(&mine[i], 0, names[i]);
        grant_new(&waiting[i], 1, names[i]);
        GRANTED(acquire(&mine[i]));
        BUSY(queue_up(&waiting[i]));
    }
    GRANTED(release(&mine[1]));
    expect_woken(&waiting[1]);
    BUSY(queue_up(&waiting[0]));
    BUSY(queue_up(&waiting[2]));
    GRANTED(release(&mine[0]));
    expect_woken(&waiting[0]);
    GRANTED(release(&mine[2]));
    expect_woken(&waiting[2]);
    for (int i = 0; i < 3; i++) GRANTED(release(&waiting[i]));
}

/* A client that listens, and waits for nothing, gets no wake-up about another client's lock. It may get one about a name
 * that is no longer used: a client of `file` then closes files that it has kept open. */
static void nothing_comes_unasked(void) {
    struct grant mine;
    struct dlock_wake wake;
    listens(0);
    listens(1);
    while (wake_of(1, &wake, 50)) continue;
    grant_new(&mine, 0, suite.name);
    for (int i = 0; i < 3; i++) {
        GRANTED(acquire(&mine));
        GRANTED(renew(&mine));
        GRANTED(release(&mine));
    }
    while (wake_of(1, &wake, 200))
        EXPECT(wake.kind == DLOCK_WAKE_LOOK && wake.name && strcmp(wake.name, suite.name) != 0);
}

/* ---- WANTED ------------------------------------------------------------------------------------------------------ */

static void expect_wanted(int client, bool wanted) {
    struct dlock_wake wake;
    bool came;
    do came = wake_of(client, &wake, wanted ? REQUEST_MS : 200);
    while (came && wake.kind == DLOCK_WAKE_LOOK);
    EXPECT(came == wanted);
    if (came) EXPECT(wake.kind == DLOCK_WAKE_WANTED && strcmp(wake.name, suite.name) == 0);
}

/* The first acquire may have been answered without the flag; then the second counts. */
static void who_lingers_is_told(void) {
    struct grant mine, theirs;
    struct dlock_wake wake;
    listens(0);
    for (int late = 0; late < 2; late++) {
        while (wake_of(0, &wake, 50)) continue;
        grant_new(&mine, 0, suite.name);
        grant_new(&theirs, 1, suite.name);
        GRANTED(request_on(line_of(0), DLOCK_ACQUIRE, &mine, late ? 0 : DLOCK_CLAIM_LINGER));
        if (late) {
            BUSY(acquire(&theirs));
            expect_wanted(0, false);
            GRANTED(request_on(line_of(0), DLOCK_ACQUIRE, &mine, DLOCK_CLAIM_LINGER));
        }
        GRANTED(renew(&mine));
        BUSY(acquire(&theirs));
        expect_wanted(0, true);
        LOST(release(&theirs));
        GRANTED(release(&mine));
        GRANTED(acquire(&theirs)); /* no wake-up for it any more */
        GRANTED(release(&theirs));
        expect_wanted(0, false);
    }
}

const struct contract_case contract_wake[] = {
    PROMISE(a_release_wakes, DLOCK_CAP_WAKE),
    PROMISE(a_release_of_the_last_reader_wakes, DLOCK_CAP_WAKE | DLOCK_CAP_SHARED),
    PROMISE(a_release_of_a_writer_wakes_all_readers, DLOCK_CAP_WAKE | DLOCK_CAP_SHARED),
    PROMISE(a_downgrade_wakes_readers, DLOCK_CAP_WAKE | DLOCK_CAP_SHARED),
    PROMISE(a_permit_given_back_wakes, DLOCK_CAP_WAKE | DLOCK_CAP_PERMIT),
    PROMISE(a_break_wakes, DLOCK_CAP_WAKE | DLOCK_CAP_BREAK),
    PROMISE(who_leaves_is_not_granted, 0),
    PROMISE(each_name_has_its_own, DLOCK_CAP_WAKE),
    PROMISE(nothing_comes_unasked, DLOCK_CAP_WAKE),
    PROMISE(who_lingers_is_told, DLOCK_CAP_WANTED),
    {0},
};
