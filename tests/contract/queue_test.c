/* The server's queue: the order of waiters, how places are kept and left, and waiters that are dead. */
#include "contract/contract.h"

static void hold(struct grant *grant, enum dlock_mode mode, uint32_t limit) {
    grant_as(grant, 0, suite.name, mode, limit);
    GRANTED(acquire(grant));
}

static void first_come_first_served(void) {
    struct grant mine, waiting[3];
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < 3; i++) line_up(&waiting[i], i + 1, suite.name, DLOCK_EXCLUSIVE, 0);
    GRANTED(release(&mine));
    uint64_t last = mine.claim.fence;
    for (int i = 0; i < 3; i++) {
        expect_woken(&waiting[i]);
        EXPECT(waiting[i].claim.fence > last);
        last = waiting[i].claim.fence;
        if (i < 2) expect_not_granted(&waiting[i + 1]);
        GRANTED(release(&waiting[i]));
    }
}

/* Two places of one client are two. */
static void of_one_client_too(void) {
    struct grant mine, first, second, other;
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    line_up(&first, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&other, 2, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&second, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    GRANTED(release(&mine));
    expect_woken(&first);
    GRANTED(release(&first));
    expect_woken(&other);
    GRANTED(release(&other));
    expect_woken(&second);
    GRANTED(release(&second));
}

static void asking_again_keeps_the_place(void) {
    struct grant mine, first, second;
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    line_up(&first, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&second, 2, suite.name, DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < 2; i++) {
        BUSY(queue_up(&second));
        BUSY(queue_up(&first));
    }
    BUSY(acquire(&first)); /* as while its client does not listen */
    GRANTED(release(&mine));
    expect_woken(&first);
    GRANTED(release(&first));
    expect_woken(&second);
    GRANTED(release(&second));
    LOST(release(&first));
}

/* One that asks after them is behind them, though it leaves no token. */
static void nobody_barges(void) {
    struct grant mine, waiting, late;
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    line_up(&waiting, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    GRANTED(release(&mine));
    grant_new(&late, 2, suite.name);
    BUSY(acquire(&late));
    expect_woken(&waiting);
    BUSY(acquire(&late));
    GRANTED(release(&waiting));
    GRANTED(await_free(&late));
    GRANTED(release(&late));
}

/* The end of a lease is not reported: the next request of anybody hands over, to the first in line. */
static void nobody_barges_after_a_lease(void) {
    struct grant dead, waiting, late;
    grant_new(&dead, 0, suite.name);
    grant_new(&late, 2, suite.name);
    dead.claim.lease_ms = 1500;
    GRANTED(acquire(&dead));
    line_up(&waiting, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    sleep_ms(1600);
    BUSY(acquire(&late));
    expect_woken(&waiting);
    EXPECT(waiting.claim.fence > dead.claim.fence);
    LOST(renew(&dead));
    LOST(release(&dead));
    GRANTED(renew(&waiting));
    GRANTED(release(&waiting));
}

/* Readers do not pass a queued writer; readers at the head of the queue enter together. */
static void readers_and_writers_in_turn(void) {
    struct grant reader, writer, behind[2], late;
    hold(&reader, DLOCK_SHARED, 0);
    line_up(&writer, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&behind[0], 2, suite.name, DLOCK_SHARED, 0);
    line_up(&behind[1], 3, suite.name, DLOCK_SHARED, 0);
    grant_as(&late, 0, suite.name, DLOCK_SHARED, 0);
    BUSY(acquire(&late));
    LOST(release(&late));
    GRANTED(acquire(&reader)); /* who holds it has it */
    GRANTED(renew(&reader));
    GRANTED(release(&reader));
    expect_woken(&writer);
    expect_not_granted(&behind[0]);
    GRANTED(release(&writer));
    for (int i = 0; i < 2; i++) expect_woken(&behind[i]);
    for (int i = 0; i < 2; i++) EXPECT(behind[i].claim.fence > writer.claim.fence);
    EXPECT(behind[0].claim.fence != behind[1].claim.fence);
    for (int i = 0; i < 2; i++) GRANTED(renew(&behind[i]));
    for (int i = 0; i < 2; i++) GRANTED(release(&behind[i]));
}

/* A writer that gives up may have been all that readers waited for. */
static void a_writer_gives_up(void) {
    struct grant reader, writer, behind[2];
    hold(&reader, DLOCK_SHARED, 0);
    line_up(&writer, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&behind[0], 2, suite.name, DLOCK_SHARED, 0);
    line_up(&behind[1], 3, suite.name, DLOCK_SHARED, 0);
    LOST(release(&writer));
    for (int i = 0; i < 2; i++) expect_woken(&behind[i]);
    GRANTED(renew(&reader));
    GRANTED(release(&reader));
    for (int i = 0; i < 2; i++) GRANTED(release(&behind[i]));
}

static void permits_in_turn(void) {
    enum { LIMIT = 2, WAITERS = 3 };
    struct grant held[LIMIT], waiting[WAITERS], late;
    for (int i = 0; i < LIMIT; i++) hold(&held[i], DLOCK_PERMIT, LIMIT);
    for (int i = 0; i < WAITERS; i++) line_up(&waiting[i], i + 1, suite.name, DLOCK_PERMIT, LIMIT);
    grant_as(&late, 0, suite.name, DLOCK_PERMIT, LIMIT);
    GRANTED(release(&held[1]));
    expect_woken(&waiting[0]);
    expect_not_granted(&waiting[1]);
    BUSY(acquire(&late));
    GRANTED(release(&held[0]));
    expect_woken(&waiting[1]);
    LOST(release(&waiting[2])); /* gives up */
    GRANTED(release(&waiting[0]));
    GRANTED(await_free(&late));
    GRANTED(release(&late));
    GRANTED(release(&waiting[1]));
}

/* Two permits are free at the same time, or were until now: they are those of the waiters. */
static void permits_are_not_taken_from_under_waiters(void) {
    enum { LIMIT = 2 };
    struct grant held[LIMIT], waiting[LIMIT], late;
    for (int i = 0; i < LIMIT; i++) hold(&held[i], DLOCK_PERMIT, LIMIT);
    for (int i = 0; i < LIMIT; i++) line_up(&waiting[i], i + 1, suite.name, DLOCK_PERMIT, LIMIT);
    grant_as(&late, 3, suite.name, DLOCK_PERMIT, LIMIT);
    for (int i = 0; i < LIMIT; i++) GRANTED(release(&held[i]));
    BUSY(acquire(&late));
    for (int i = 0; i < LIMIT; i++) expect_woken(&waiting[i]);
    for (int i = 0; i < LIMIT; i++) GRANTED(release(&waiting[i]));
    GRANTED(await_free(&late));
    GRANTED(release(&late));
}

/* Waiters say what a name is used for: one that asks for something else is refused. */
static void waiters_are_users(void) {
    struct grant held, waiting, wrong;
    hold(&held, DLOCK_PERMIT, 1);
    line_up(&waiting, 1, suite.name, DLOCK_PERMIT, 1);
    GRANTED(release(&held));
    grant_new(&wrong, 2, suite.name);
    EXPECT_CODE(DLOCK_EINVAL, queue_up(&wrong));
    LOST(release(&wrong));
    expect_woken(&waiting);
    GRANTED(release(&waiting));
}

/* ---- the dead ---------------------------------------------------------------------------------------------------- */

/* Its connections have ended: it delays later waiters by at most one hand-over. */
static void the_dead_are_passed(void) {
    struct grant mine, dead, waiting;
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    line_up(&dead, 3, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&waiting, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    client_dies(3);
    GRANTED(release(&mine));
    /* A session that ends late may keep its place. */
    GRANTED(await(&waiting, can(DLOCK_CAP_SESSION) ? PATIENCE_MS : 2 * DLOCK_HAND_OVER_MS + 2 * SLACK_MS));
    EXPECT(waiting.claim.fence > mine.claim.fence);
    GRANTED(release(&waiting));
}

/* It is stopped after a hand-over to it: it loses the lock after that time, and later waiters get it then, in
 * turn. Its own late renewal does not take it back. It is the second hand-over: the first of a name may be another
 * path. */
static void the_silent_lose_their_turn(void) {
    struct grant mine, first, silent, waiting, last;
    hold(&mine, DLOCK_EXCLUSIVE, 0);
    line_up(&first, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&silent, 3, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&waiting, 1, suite.name, DLOCK_EXCLUSIVE, 0);
    line_up(&last, 2, suite.name, DLOCK_EXCLUSIVE, 0);
    GRANTED(release(&mine));
    expect_woken(&first);
    int64_t begun = now_ms();
    GRANTED(release(&first));
    GRANTED(await(&waiting, DLOCK_HAND_OVER_MS + 3 * SLACK_MS));
    EXPECT(now_ms() - begun >= DLOCK_HAND_OVER_MS - 100);
    LOST(renew(&silent));
    LOST(release(&silent));
    GRANTED(renew(&waiting));
    GRANTED(release(&waiting));
    GRANTED(await(&last, REQUEST_MS));
    EXPECT(last.claim.fence > waiting.claim.fence);
    GRANTED(release(&last));
}

/* A renewal, or the same acquire again, shows that it is alive: then it has the whole lease. */
static void a_confirmed_hand_over_lasts(void) {
    struct grant mine[2], waiting[2], late;
    char names[2][DLOCK_NAME_MAX + 1];
    for (int i = 0; i < 2; i++) {
        tagged_name(names[i], i ? "renewed" : "acquired");
        grant_new(&mine[i], 0, names[i]);
        grant_new(&waiting[i], 1, names[i]);
        GRANTED(acquire(&mine[i]));
        BUSY(queue_up(&waiting[i]));
        GRANTED(release(&mine[i]));
        if (i) expect_woken(&waiting[i]);
        if (!i) GRANTED(queue_up(&waiting[i]));
    }
    sleep_ms(DLOCK_HAND_OVER_MS + 500);
    for (int i = 0; i < 2; i++) {
        grant_new(&late, 2, names[i]);
        BUSY(acquire(&late));
        GRANTED(renew(&waiting[i]));
        GRANTED(release(&waiting[i]));
    }
}

#define NEEDS_LINE (DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE)

const struct contract_case contract_queue[] = {
    PROMISE(first_come_first_served, DLOCK_CAP_QUEUE),
    PROMISE(of_one_client_too, DLOCK_CAP_QUEUE),
    PROMISE(asking_again_keeps_the_place, NEEDS_LINE),
    PROMISE(nobody_barges, DLOCK_CAP_QUEUE),
    PROMISE(nobody_barges_after_a_lease, NEEDS_LINE | NEEDS_LEASES),
    PROMISE(readers_and_writers_in_turn, DLOCK_CAP_QUEUE | DLOCK_CAP_SHARED),
    PROMISE(a_writer_gives_up, DLOCK_CAP_QUEUE | DLOCK_CAP_SHARED),
    PROMISE(permits_in_turn, DLOCK_CAP_QUEUE | DLOCK_CAP_PERMIT),
    PROMISE(permits_are_not_taken_from_under_waiters, DLOCK_CAP_QUEUE | DLOCK_CAP_PERMIT),
    PROMISE(waiters_are_users, DLOCK_CAP_QUEUE | DLOCK_CAP_PERMIT),
    PROMISE(the_dead_are_passed, DLOCK_CAP_QUEUE),
    PROMISE(the_silent_lose_their_turn, NEEDS_LINE | NEEDS_LEASES),
    PROMISE(a_confirmed_hand_over_lasts, NEEDS_LINE | NEEDS_LEASES),
    {0},
};
