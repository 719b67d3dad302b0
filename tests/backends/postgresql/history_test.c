/* The quarantine: rows of another server, of an earlier timeline, of an earlier start, or without their record. */
#include "site.h"

enum { HOUR_MS = 3600000 };

static struct dlock_error err;

static int nothing_there(void **state) {
    (void)state;
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    return 0;
}

static void link_quarantined(struct link *link, char letter, const char *listen) {
    const struct params params = {.quarantine_ms = HOUR_MS, .more = {{listen ? "listen" : NULL, listen}}};
    if (link_with(link, &params, letter, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* The result of a client that acquires a free name, and then releases it. */
static int cycle(struct link *link) {
    HELD(held, link, "free");
    int rc = acquire(link, &held);
    if (rc == DLOCK_ENOTREADY) assert_in_range(held.claim.ready_ms, 1, HOUR_MS);
    if (rc == 0) assert_int_equal(release(link, &held), 0);
    return rc;
}

/* The same for a new client, with a quarantine of an hour or without one. */
static int ask(bool quarantined) {
    struct link link;
    if (quarantined)
        link_quarantined(&link, 'a', NULL);
    else
        link_new(&link, 'a');
    int rc = cycle(&link);
    link_end(&link);
    return rc;
}

static int64_t since_us(void) {
    return sql_number("SELECT fence FROM {}.locks WHERE name = ''");
}

static void let_an_hour_pass(void) {
    sql("UPDATE {}.locks SET fence = fence - 3600000000 WHERE name = ''");
}

static void expect_a_quarantine(void) {
    assert_int_equal(ask(true), DLOCK_ENOTREADY);
    int64_t since = since_us();
    assert_int_equal(ask(false), 0); /* a client that has turned it off */
    assert_int_equal(ask(true), DLOCK_ENOTREADY);
    assert_true(since_us() == since); /* all count from the same moment */
    let_an_hour_pass();
    assert_int_equal(ask(true), 0);
}

TEST(new_rows_have_lost_nothing) {
    for (int i = 0; i < 2; i++) assert_int_equal(ask(true), 0);
}

TEST(rows_of_another_server) {
    static const char *const others[] = {
        "regexp_replace(token, '^[0-9]+', '1')",                /* another system */
        "regexp_replace(token, ' [0-9A-F]{8} ', ' 00000000 ')", /* another timeline: a promotion */
        "regexp_replace(token, '[0-9]+$', '1')",                /* another table: a dump was restored */
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(ask(true), 0);
        sql("UPDATE {}.locks SET token = %s, fence = 1 WHERE name = ''", others[i]);
        expect_a_quarantine();
    }
}

/* A crash has emptied an unlogged table, or the rows were deleted. */
TEST(rows_without_a_record) {
    assert_int_equal(ask(true), 0);
    sql("TRUNCATE {}.locks");
    expect_a_quarantine();
}

/* The quarantine of a server that may have lost grants in a crash counts from its start. */
TEST(rows_of_an_earlier_start) {
    assert_int_equal(ask(true), 0);
    int64_t started_us = sql_number("SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint");
    sql("UPDATE {}.locks SET token = token || ' 1', fence = 1 WHERE name = ''");
    assert_int_equal(ask(true),
                     sql_number("SELECT {}.clock_us()") - started_us < HOUR_MS * INT64_C(1000) ? DLOCK_ENOTREADY : 0);
    assert_true(since_us() == started_us);
}

/* Whatever the server says, it is no longer than the client's own quarantine. */
TEST(no_longer_than_a_quarantine) {
    static const char says[] = "CREATE OR REPLACE FUNCTION {}.quarantine_left(quarantine_ms bigint) RETURNS bigint "
                               "LANGUAGE sql AS 'SELECT %s'";
    SCOPED_LINK link;
    assert_int_equal(ask(true), 0);
    sql(says, "36028797018963967");
    assert_int_equal(ask(true), DLOCK_ENOTREADY);
    sql(says, "36028797018963968");
    link_quarantined(&link, 'a', NULL);
    HELD(held, &link, "free");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
}

/* A clock that was set back does not extend it without end. */
TEST(a_record_from_the_future) {
    assert_int_equal(ask(true), 0);
    sql("UPDATE {}.locks SET fence = {}.clock_us() + 36000000000 WHERE name = ''");
    expect_a_quarantine();
}

/* Grants that the rows show stay held, and are renewed and released. */
TEST(known_grants_stay) {
    SCOPED_LINK mine, others;
    struct held held, rivals[2];
    struct dlock_claim *claims[2] = {&rivals[0].claim, &rivals[1].claim};
    link_quarantined(&mine, 'a', NULL);
    held_new(&held, &mine, "known");
    assert_int_equal(acquire(&mine, &held), 0);
    link_end(&mine);
    sql("UPDATE {}.locks SET token = 'another' WHERE name = ''");
    link_quarantined(&mine, 'a', NULL);
    link_quarantined(&others, 'b', NULL);
    held_new(&rivals[0], &others, "known");
    held_new(&rivals[1], &others, "free");
    assert_int_equal(backend->acquire(others.conn, claims, 2, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(claims[i]->result, DLOCK_ENOTREADY);
    assert_int_equal(renew(&mine, &held), 0);
    assert_int_equal(release(&mine, &held), 0);
    assert_int_equal(acquire(&others, &rivals[0]), DLOCK_ENOTREADY);
    /* When it is over, the same connection gets grants. */
    let_an_hour_pass();
    assert_int_equal(acquire(&others, &rivals[0]), 0);
    assert_int_equal(release(&others, &rivals[0]), 0);
}

/* A connection asks once. Behind a pooler each request may reach another server. */
TEST(once_or_each_time) {
    SCOPED_LINK link, pooled;
    link_quarantined(&link, 'a', NULL);
    link_quarantined(&pooled, 'b', "off");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cycle(&link), 0);
        assert_int_equal(cycle(&pooled), 0);
    }
    assert_true(pg_of(&link)->prepared[PG_TAKE]); /* the short way, which does not ask */
    sql("UPDATE {}.locks SET token = 'another' WHERE name = ''");
    assert_int_equal(cycle(&link), 0);
    assert_int_equal(cycle(&pooled), DLOCK_ENOTREADY);
}

static int none(const struct dlock_info *info, void *arg) {
    (void)arg;
    fail_msg("listed: \"%s\"", info->name);
    return 1;
}

TEST(the_record_is_no_lock) {
    char cursor[256] = "";
    assert_int_equal(ask(true), 0);
    LINK(link, 'a');
    assert_int_equal(backend->list(link.conn, "", cursor, none, NULL, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 20; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = ''"), 1);
}

TESTS(nothing_there, NULL, site_begin, site_end)
