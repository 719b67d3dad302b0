/* Permits and readers: who is let in by one call; and their rows: the list of holders, and which stay. */
#include "parties.h"
#include "queue_scene.h"

/* ---- permits ----------------------------------------------------------------------------------------------------- */

TEST(several_are_let_in_at_once) {
    struct held permit[5];
    for (int i = 0; i < 5; i++) {
        want(&permit[i], i, "several", DLOCK_PERMIT, 2);
        assert_int_equal(queue_up(&party[i].link, &permit[i]), i < 2 ? 0 : DLOCK_EBUSY);
    }
    end_lease(&permit[0]);
    assert_int_equal(give(&permit[1], 1), 0);
    assert_woken(2, &permit[2]);
    assert_woken(3, &permit[3]);
    assert_not_woken(4);
    assert_int_equal(give(&permit[2], 2), 0);
    assert_woken(4, &permit[4]);
    assert_int_equal(give(&permit[3], 3), 0);
    assert_int_equal(give(&permit[4], 4), 0);
}

static void assert_in_use(int who, const char *name, enum dlock_mode mode, uint32_t limit, const char *as) {
    struct dlock_error err;
    struct held held;
    char message[128];
    for (uint32_t flags = 0; flags <= DLOCK_CLAIM_QUEUE; flags++) {
        want(&held, who, name, mode, limit);
        assert_int_equal(held_run(backend->acquire, &party[who].link, &held, flags, TIMEOUT_MS, &err), 0);
        assert_int_equal(held.claim.result, DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        snprintf(message, sizeof message, "\"%s\" is in use as %s", name, as);
        assert_string_equal(err.message, message);
    }
}

TEST(another_use_is_named) {
    struct held held;
    want(&held, 0, "use", DLOCK_PERMIT, 3);
    assert_int_equal(acquire(&party[0].link, &held), 0);
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "3 permits");
    assert_int_equal(give(&held, 0), 0);
    want(&held, 0, "use", DLOCK_PERMIT, 1);
    assert_int_equal(acquire(&party[0].link, &held), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 4, "1 permit");
    assert_int_equal(give(&held, 0), 0);
    assert_int_equal(take(&held, 0, "use", DLOCK_SHARED), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 1, "a lock");
    assert_int_equal(waiting("use"), 0);
    assert_int_equal(give(&held, 0), 0);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

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

/* ---- all modes --------------------------------------------------------------------------------------------------- */

static int count_readers(const struct dlock_info *info, void *arg) {
    int *seen = arg;
    seen[0]++;
    seen[1] += info->mode == DLOCK_SHARED;
    return 0;
}

/* Also if they are more than a page has names. */
TEST(every_reader_is_listed) {
    struct held one, two;
    struct dlock_error err;
    int seen[2] = {0}, rc;
    char cursor[256] = "";
    assert_int_equal(take(&one, 0, "seen", DLOCK_SHARED), 0);
    assert_int_equal(take(&two, 1, "seen", DLOCK_SHARED), 0);
    sql("INSERT INTO {}.shares SELECT 'seen', 'reader-' || n, n, {}.clock_us() + 60000000, false "
        "FROM generate_series(1, 700) n");
    sql("INSERT INTO {}.locks SELECT ('seen-' || n)::bytea, 'writer', n, {}.clock_us() + 60000000 "
        "FROM generate_series(1, 600) n");
    do rc = backend->list(party[0].link.conn, "seen", cursor, count_readers, seen, TIMEOUT_MS, &err);
    while (rc == 1);
    assert_int_equal(rc, 0);
    assert_int_equal(seen[0], 702 + 600);
    assert_int_equal(seen[1], 702);
    end_lease(&one);
    seen[0] = 0;
    assert_int_equal(backend->inspect(party[0].link.conn, "seen", count_readers, seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen[0], 701);
    sql("DELETE FROM {}.locks WHERE token = 'writer'");
    assert_int_equal(backend->break_lock(party[0].link.conn, "seen", TIMEOUT_MS, &err), 0);
    assert_int_equal(renew(&party[1].link, &two), DLOCK_ELOST);
}

/* The row of a held name stays, however long ago its last grant was. */
TEST(held_names_are_not_swept) {
    struct held reader;
    assert_int_equal(take(&reader, 0, "old", DLOCK_SHARED), 0);
    sql("UPDATE {}.locks SET expires_us = expires_us - 90000000000, fence = fence - 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    assert_int_equal(give(&reader, 0), 0);
    /* Nor is one with a fence of today's. */
    sql("UPDATE {}.locks SET fence = fence + 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    sql("UPDATE {}.locks SET fence = fence - 90000000000");
    /* Each takes a page at random. */
    for (int i = 0; i < 5000 && sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'") > 0; i++)
        sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 0);
}

TESTS(parties_begin, parties_end, site_begin, site_end)
