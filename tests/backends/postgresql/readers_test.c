/* Readers and writers: holding together, waiting, the order of grants; and downgrades. */
#include "parties.h"
#include "queue_scene.h"

/* ---- readers and writers ----------------------------------------------------------------------------------------- */

TEST(readers_hold_together) {
    struct held one, two, writer, late;
    assert_int_equal(take(&one, 0, "together", DLOCK_SHARED), 0);
    assert_int_equal(take(&two, 1, "together", DLOCK_SHARED), 0);
    assert_true(two.claim.fence > one.claim.fence);
    assert_int_equal(two.claim.kept_ms, LEASE_MS);
    /* Each has its own lease and its own fence. */
    uint64_t fence = one.claim.fence;
    assert_int_equal(acquire(&party[0].link, &one), 0);
    assert_true(one.claim.fence == fence);
    assert_int_equal(renew(&party[0].link, &one), 0);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(waiting("together"), 0);
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(give(&one, 0), DLOCK_ELOST);
    assert_int_equal(renew(&party[0].link, &one), DLOCK_ELOST);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&two, 1), 0);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), 0);
    assert_true(writer.claim.fence > two.claim.fence);
    assert_int_equal(take(&late, 0, "together", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 2), 0);
    assert_int_equal(take(&late, 0, "together", DLOCK_SHARED), 0);
    assert_true(late.claim.fence > writer.claim.fence);
    assert_int_equal(give(&late, 0), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares"), 0);
}

/* Writers do not starve: a reader that comes after a waiting writer waits behind it. */
TEST(no_reader_passes_a_writer) {
    struct held reader, writer, second, third;
    assert_int_equal(take(&reader, 0, "order", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "order", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(take(&third, 3, "order", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&second, 2, "order", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(waiting("order"), 2);
    assert_int_equal(queue_up(&party[2].link, &second), DLOCK_EBUSY);
    assert_int_equal(waiting("order"), 2);
    assert_int_equal(acquire(&party[0].link, &reader), 0); /* a holder stays one */
    assert_int_equal(give(&reader, 0), 0);
    assert_woken(1, &writer);
    assert_not_woken(2);
    assert_int_equal(queue_up(&party[1].link, &writer), 0);
    assert_int_equal(give(&writer, 1), 0);
    assert_woken(2, &second);
    assert_int_equal(renew(&party[2].link, &second), 0);
    assert_int_equal(give(&second, 2), 0);
}

/* A writer, and behind it two readers, a writer and a reader: each party has the grant of its number. */
struct line {
    struct held held[5];
};

static void line_begin(struct line *line, const char *name) {
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED, DLOCK_SHARED, DLOCK_EXCLUSIVE, DLOCK_SHARED};
    assert_int_equal(take(&line->held[0], 0, name, modes[0]), 0);
    for (int i = 1; i < 5; i++) assert_int_equal(wait_for(&line->held[i], i, name, modes[i]), DLOCK_EBUSY);
}

/* The first writer has let in the two readers, and no other waiter. */
static void line_expect_readers(struct line *line) {
    struct held *held = line->held;
    assert_woken(1, &held[1]);
    assert_woken(2, &held[2]);
    assert_not_woken(3);
    assert_not_woken(4);
    assert_int_equal(queue_up(&party[1].link, &held[1]), 0);
    assert_int_equal(renew(&party[2].link, &held[2]), 0);
    assert_true(held[1].claim.fence > held[0].claim.fence);
}

/* They leave, and so do the others, in order. */
static void line_end(struct line *line) {
    struct held *held = line->held;
    assert_int_equal(give(&held[1], 1), 0);
    assert_not_woken(3);
    assert_int_equal(give(&held[2], 2), 0);
    assert_woken(3, &held[3]);
    assert_int_equal(give(&held[3], 3), 0);
    assert_woken(4, &held[4]);
    assert_int_equal(give(&held[4], 4), 0);
}

TEST(leading_readers_enter_together) {
    struct line line;
    line_begin(&line, "leading");
    assert_int_equal(give(&line.held[0], 0), 0);
    line_expect_readers(&line);
    line_end(&line);
}

/* A waiter that leaves the queue may have been all that others waited for. */
TEST(a_writer_gives_up) {
    struct held reader, writer, one, two;
    assert_int_equal(take(&reader, 0, "given-up", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "given-up", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&one, 2, "given-up", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&two, 3, "given-up", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 1), DLOCK_ELOST);
    assert_woken(2, &one);
    assert_woken(3, &two);
    assert_int_equal(give(&reader, 0), 0);
    assert_int_equal(give(&one, 2), 0);
    assert_int_equal(give(&two, 3), 0);
}

/* Its process is gone: the next who asks is let in, and with it those behind. */
TEST(a_dead_writer_keeps_nobody_out) {
    struct held reader, writer, one, two;
    assert_int_equal(take(&reader, 0, "dead", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "dead", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&one, 2, "dead", DLOCK_SHARED), DLOCK_EBUSY);
    assert_true(one.claim.retry_ms <= 4001);
    assert_int_equal(wait_for(&two, 3, "dead", DLOCK_SHARED), DLOCK_EBUSY);
    link_end(&party[1].ear);
    sql_wait("SELECT count(*) FROM (SELECT {}.lives('%s')) x(lives) WHERE NOT lives", writer.token);
    assert_int_equal(queue_up(&party[2].link, &one), 0);
    assert_woken(3, &two);
    assert_int_equal(waiting("dead"), 0);
    assert_int_equal(give(&reader, 0), 0);
    assert_int_equal(give(&one, 2), 0);
    assert_int_equal(give(&two, 3), 0);
}

/* A crashed reader ends with its own lease, whatever others do, and waiters know when to retry. */
TEST(a_readers_lease_ends) {
    struct held crashed, reader, writer;
    want(&crashed, 0, "crashed", DLOCK_SHARED, 0);
    crashed.claim.lease_ms = 2200; /* less than a waiter is silent for otherwise */
    assert_int_equal(acquire(&party[0].link, &crashed), 0);
    assert_int_equal(take(&reader, 1, "crashed", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 2, "crashed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_true(writer.claim.retry_ms > 0 && writer.claim.retry_ms <= 2201);
    assert_int_equal(give(&reader, 1), 0);
    end_lease(&crashed);
    assert_int_equal(renew(&party[0].link, &crashed), DLOCK_ELOST);
    assert_int_equal(queue_up(&party[2].link, &writer), 0);
    assert_int_equal(give(&crashed, 0), DLOCK_ELOST);
    assert_int_equal(renew(&party[2].link, &writer), 0);
    assert_int_equal(give(&writer, 2), 0);
}

/* A reader was let in and does not answer: it ends, and what its client waits for goes. */
TEST(a_readers_hand_over_lapses) {
    struct held writer, gone, also_gone, reader, next;
    assert_int_equal(take(&writer, 0, "lapse", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&gone, 1, "lapse", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&reader, 2, "lapse", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&also_gone, 1, "lapse", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&next, 3, "lapse", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &gone);
    assert_woken(2, &reader);
    assert_int_equal(renew(&party[2].link, &reader), 0);
    end_lease(&gone);
    assert_int_equal(give(&reader, 2), 0);
    assert_woken(3, &next);
    assert_int_equal(waiting("lapse"), 0);
    assert_int_equal(renew(&party[1].link, &gone), DLOCK_ELOST);
    assert_int_equal(give(&next, 3), 0);
}

/* A waiter whose own grant has ended by the server's clock, but is still in its row: it gets another one. */
TEST(an_ended_grant_is_in_nobodys_way) {
    struct held writer, reader;
    assert_int_equal(take(&writer, 0, "ended", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&reader, 1, "ended", DLOCK_SHARED), DLOCK_EBUSY);
    sql("INSERT INTO {}.shares VALUES ('ended', '%s', 1, 1, false)", reader.token);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &reader);
    assert_int_equal(renew(&party[1].link, &reader), 0);
    assert_int_equal(give(&reader, 1), 0);
}

/* A reader that answered, and ended later, does not end others. */
TEST(a_confirmed_reader_ends_alone) {
    struct held writer, renewed, asked, next, last;
    assert_int_equal(take(&writer, 0, "confirmed", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&renewed, 1, "confirmed", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&asked, 2, "confirmed", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&next, 1, "confirmed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&last, 2, "confirmed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &renewed);
    assert_woken(2, &asked);
    assert_int_equal(renew(&party[1].link, &renewed), 0);
    assert_int_equal(queue_up(&party[2].link, &asked), 0);
    end_lease(&renewed);
    end_lease(&asked);
    assert_int_equal(queue_up(&party[1].link, &next), 0);
    assert_int_equal(waiting("confirmed"), 1);
    assert_int_equal(give(&next, 1), 0);
    assert_woken(2, &last);
    assert_int_equal(give(&last, 2), 0);
}

/* ---- downgrade --------------------------------------------------------------------------------------------------- */

TEST(downgrades) {
    struct line line;
    struct held *writer = &line.held[0];
    line_begin(&line, "down");
    uint64_t fence = writer->claim.fence;
    writer->claim.mode = DLOCK_SHARED;
    for (int i = 0; i < 2; i++) { /* a second time it is a renewal */
        assert_int_equal(renew(&party[0].link, writer), 0);
        assert_int_equal(writer->claim.kept_ms, LEASE_MS);
        assert_true(writer->claim.server_us > 0);
    }
    assert_int_equal(acquire(&party[0].link, writer), 0);
    assert_true(writer->claim.fence == fence);
    line_expect_readers(&line);
    assert_int_equal(give(writer, 0), 0);
    line_end(&line);
}

/* No writer slips in, not even one that waits first. */
TEST(downgrades_before_a_writer) {
    struct held writer, next, reader;
    assert_int_equal(take(&writer, 0, "down-next", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&next, 1, "down-next", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&reader, 2, "down-next", DLOCK_SHARED), DLOCK_EBUSY);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&party[0].link, &writer), 0);
    assert_not_woken(1);
    assert_not_woken(2);
    assert_int_equal(queue_up(&party[1].link, &next), DLOCK_EBUSY);
    assert_int_equal(renew(&party[0].link, &writer), 0);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &next);
    assert_int_equal(give(&next, 1), 0);
    assert_woken(2, &reader);
    assert_int_equal(give(&reader, 2), 0);
}

/* A lost grant is not restored, and a client cannot downgrade another's. */
TEST(downgrades_of_nothing) {
    struct held writer, other, reader;
    assert_int_equal(take(&writer, 0, "down-none", DLOCK_EXCLUSIVE), 0);
    want(&other, 1, "down-none", DLOCK_SHARED, 0);
    assert_int_equal(renew(&party[1].link, &other), DLOCK_ELOST);
    end_lease(&writer);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&party[0].link, &writer), DLOCK_ELOST);
    assert_int_equal(give(&writer, 0), DLOCK_ELOST);
    /* The other way round there is none. */
    assert_int_equal(take(&reader, 2, "down-none", DLOCK_SHARED), 0);
    reader.claim.mode = DLOCK_EXCLUSIVE;
    assert_int_equal(renew(&party[2].link, &reader), DLOCK_ELOST);
    assert_int_equal(give(&reader, 2), 0);
}

/* The answer to a downgrade was lost: whatever became of it, the grant can be released. */
TEST(releases_what_was_not_downgraded) {
    struct held writer;
    assert_int_equal(take(&writer, 0, "down-lost", DLOCK_EXCLUSIVE), 0);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(give(&writer, 0), 0);
    assert_int_equal(give(&writer, 0), DLOCK_ELOST);
}

TESTS(parties_begin, parties_end, site_begin, site_end)
