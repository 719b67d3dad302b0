/* The quarantine: the rows of another server, of an earlier start, or without a server, in both modes. */
#include "site.h"

#include <maria.h>

enum { HOUR_MS = 3600000, MOMENT_MS = 1 };

static const struct dlock_backend *rows;
static const char *mode; /* NULL: rows */

static int begin(void **state) {
    int rc = site_begin(state);
    rows = backend;
    return rc;
}

static int by_rows(void **state) {
    (void)state;
    backend = rows;
    mode = NULL;
    sql("DROP TABLE IF EXISTS dlock_locks");
    return 0;
}

static int by_sessions(void **state) {
    by_rows(state);
    backend = &maria_session;
    mode = "session";
    return 0;
}

/* A test in both modes. */
#define BOTH(name)                                     \
    static void name(void);                            \
    TEST_WITH(by_rows, NULL, name##_by_rows) {         \
        name();                                        \
    }                                                  \
    TEST_WITH(by_sessions, NULL, name##_by_sessions) { \
        name();                                        \
    }                                                  \
    static void name(void)

/* The result of a new client with this quarantine that acquires a free name. */
static int ask(int64_t its_quarantine_ms) {
    static int serial;
    struct link link;
    char name[32];
    snprintf(name, sizeof name, "free-%d", ++serial);
    quarantine_ms = its_quarantine_ms;
    link_new(&link, mode, 'a');
    HELD(held, &link, name);
    int rc = acquire(&link, &held);
    if (rc == DLOCK_ENOTREADY) assert_in_range(held.claim.ready_ms, 1, its_quarantine_ms + 1);
    if (rc == 0) assert_int_equal(release(&link, &held), 0);
    link_end(&link);
    return rc;
}

static void let_an_hour_pass(void) {
    sql("UPDATE dlock_locks SET fence = fence - 3600000000 WHERE name = ''");
}

/* Another server's record begins a quarantine, which all clients count from the same moment. */
BOTH(rows_of_another_server) {
    assert_int_equal(ask(MOMENT_MS), 0);
    sql("UPDATE dlock_locks SET token = '0123456789abcdef 1', fence = 1 WHERE name = ''");
    assert_int_equal(ask(HOUR_MS), DLOCK_ENOTREADY);
    assert_int_equal(ask(0), 0); /* a client that turned it off */
    int64_t since = sql_number("SELECT fence FROM dlock_locks WHERE name = ''");
    assert_int_equal(ask(HOUR_MS), DLOCK_ENOTREADY);
    assert_int_equal(sql_number("SELECT fence FROM dlock_locks WHERE name = ''"), since);
    let_an_hour_pass();
    assert_int_equal(ask(HOUR_MS), 0);
}

/* After a restart the time counts from the start of the server, whenever clients connect. */
BOTH(rows_of_an_earlier_start) {
    assert_int_equal(ask(MOMENT_MS), 0);
    int64_t up_us = sql_number("SELECT VARIABLE_VALUE * 1000000 FROM information_schema.GLOBAL_STATUS "
                               "WHERE VARIABLE_NAME = 'Uptime'");
    sql("UPDATE dlock_locks SET token = CONCAT(LEFT(token, 17), '1'), fence = 1 WHERE name = ''");
    assert_int_equal(ask(up_us / 1000 + HOUR_MS), DLOCK_ENOTREADY);
    int64_t age_us = sql_number("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) - fence FROM dlock_locks "
                                "WHERE name = ''");
    assert_true(age_us >= up_us);
    assert_int_equal(ask(MOMENT_MS), 0);
}

/* Rows were deleted, or replaced. */
BOTH(rows_without_a_record) {
    assert_int_equal(ask(MOMENT_MS), 0);
    sql("DELETE FROM dlock_locks");
    assert_int_equal(ask(HOUR_MS), DLOCK_ENOTREADY);
    let_an_hour_pass();
    assert_int_equal(ask(HOUR_MS), 0);
}

/* A clock that was set back does not extend it without end. */
BOTH(a_record_from_the_future) {
    assert_int_equal(ask(MOMENT_MS), 0);
    sql("UPDATE dlock_locks SET fence = fence + 36000000000 WHERE name = ''");
    assert_int_equal(ask(HOUR_MS), DLOCK_ENOTREADY);
    let_an_hour_pass();
    assert_int_equal(ask(HOUR_MS), 0);
}

/* A replica's client writes nothing into it, and grants nothing, however long the record has been there. */
BOTH(a_replica_is_no_primary) {
    struct dlock_error err;
    assert_int_equal(ask(MOMENT_MS), 0);
    sql("UPDATE dlock_locks SET token = '0123456789abcdef 1', fence = 1 WHERE name = ''");
    quarantine_ms = HOUR_MS;
    LINK(link, mode, 'a');
    ((struct maria *)link.conn)->incarnation.replicates = true;
    HELD(held, &link, "replica");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "look for the primary"));
    assert_int_equal(sql_number("SELECT fence FROM dlock_locks WHERE name = ''"), 1);
}

/* A client's knowledge ends when another server's changes arrive: it grants and keeps nothing more. */
BOTH(a_primary_that_becomes_a_replica) {
    struct link link;
    struct held held, more;
    struct dlock_error err;
    for (int i = 0; i < 2; i++) {
        while (ask(MOMENT_MS) != 0) {
        }
        link_new(&link, mode, 'a');
        held_new(&held, &link, "kept");
        held_new(&more, &link, "more");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(renew(&link, &held), 0);
        if (i && mode) assert_int_equal(release(&link, &held), 0); /* its session carries one lock */
        sql("UPDATE dlock_locks SET token = '0123456789abcdef 1' WHERE name = ''");
        assert_int_equal(held_run(i ? backend->acquire : backend->renew, &link, i ? &more : &held, 0, TIMEOUT_MS, &err),
                         DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, "from another server"));
        link_end(&link);
    }
}

/* Locks that the promoted server knows stay held, are renewed and released, and others see their owners. */
TEST_WITH(by_rows, NULL, known_grants_outlive_a_promotion) {
    quarantine_ms = MOMENT_MS;
    assert_int_equal(ask(MOMENT_MS), 0);
    LINK(mine, mode, 'a');
    HELD(held, &mine, "known");
    assert_int_equal(acquire(&mine, &held), 0);
    link_end(&mine);
    sql("UPDATE dlock_locks SET token = '0123456789abcdef 1' WHERE name = ''");
    quarantine_ms = HOUR_MS;
    link_new(&mine, mode, 'a');
    LINK(others, mode, 'b');
    assert_int_equal(renew(&mine, &held), 0);
    HELD(rival, &others, "known");
    assert_int_equal(acquire(&others, &rival), DLOCK_EBUSY);
    assert_true(rival.claim.fence == held.claim.fence);
    assert_int_equal(renew(&mine, &held), 0);
    assert_int_equal(release(&mine, &held), 0);
    assert_int_equal(acquire(&others, &rival), DLOCK_ENOTREADY);
}

/* The quarantine costs a connection one question, and its cycles none. */
BOTH(cycles_ask_no_more) {
    assert_int_equal(ask(MOMENT_MS), 0);
    quarantine_ms = MOMENT_MS;
    check_cycles(mode, "cycle");
}

/* The record is not a lock, and does not look like an old one. */
static int none(const struct dlock_info *info, void *arg) {
    (void)arg;
    fail_msg("listed: \"%s\"", info->name);
    return 1;
}

TEST_WITH(by_rows, NULL, the_record_is_no_lock) {
    struct dlock_error err;
    char cursor[256] = "";
    assert_int_equal(ask(MOMENT_MS), 0);
    LINK(link, mode, 'a');
    assert_int_equal(backend->list(link.conn, "", cursor, none, NULL, TIMEOUT_MS, &err), 0);
}

TESTS(NULL, NULL, begin, site_end)
