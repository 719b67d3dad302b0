/* Invalid answers: functions with our names that another role has written. */
#include "site.h"

static struct dlock_error err;

/* Replaces a function by one that answers with these rows. */
static void answer(const char *function, const char *arguments, const char *columns, const char *rows) {
    sql("DROP FUNCTION IF EXISTS {}.%s", function);
    sql("CREATE FUNCTION {}.%s(%s) RETURNS TABLE (%s) LANGUAGE sql AS $$ %s $$", function, arguments, columns, rows);
}

/* The same, without any notices. */
static void answer_call(const char *function, const char *arguments, const char *columns, const char *rows) {
    char all_columns[300], all_rows[1000];
    snprintf(all_columns, sizeof all_columns, "%s, notices text", columns);
    snprintf(all_rows, sizeof all_rows, "SELECT x.*, NULL::text FROM (%s) x", rows);
    answer(function, arguments, all_columns, all_rows);
}

static int batch_of(dlock_batch *operation, size_t n) {
    struct link link;
    struct held held[2];
    struct dlock_claim *claims[2] = {&held[0].claim, &held[1].claim};
    link_new(&link, 'a');
    for (int i = 0; i < 2; i++) {
        held_new(&held[i], &link, i ? "two" : "one");
        held[i].claim.result = DLOCK_EPROTO;
    }
    int rc = operation(link.conn, claims, n, TIMEOUT_MS, &err);
    link_end(&link);
    return rc;
}

TEST(acquires) {
    static const char *const columns =
        "claim integer, granted bigint, server_us bigint, in_use integer, place integer, left_ms bigint";
    static const char *const arguments = "bytea[], text[], bigint[], integer[], integer[], integer[], bigint, integer";
    static const char two_rows[] =
        "SELECT 1, 1::bigint, 1::bigint, NULL::integer, 1, 1::bigint UNION ALL SELECT 1, 1::bigint, 1::bigint, "
        "NULL::integer, 1, 1::bigint";
    static const char *const rows[] = {
        "SELECT 1, 1::bigint, 1::bigint, NULL::integer, 1, 1::bigint WHERE false",
        "SELECT 2, 1::bigint, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 0, 1::bigint, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT NULL::integer, 1::bigint, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, -1::bigint, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, 36028797018963968, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, NULL::bigint, 1::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, 1::bigint, 0::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, 1::bigint, NULL::bigint, NULL::integer, 1, 1::bigint",
        "SELECT 1, 0::bigint, 1::bigint, NULL::integer, -1, 1::bigint",
        "SELECT 1, 0::bigint, 1::bigint, NULL::integer, 1, NULL::bigint",
        "SELECT 1, 0::bigint, 1::bigint, -1, 1, 1::bigint",
        two_rows,
    };
    assert_int_equal(batch_of(backend->acquire, 1), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        answer_call("acquire", arguments, columns, rows[i]);
        assert_int_equal(batch_of(backend->acquire, 1), DLOCK_EPROTO);
    }
    answer_call("acquire", arguments, columns, two_rows);
    assert_int_equal(batch_of(backend->acquire, 2), DLOCK_EPROTO); /* one claim twice, the other never */
    answer_call("acquire", arguments,
                "claim integer, granted integer, server_us bigint, in_use integer, place integer, left_ms bigint",
                "SELECT 1, 1, 1::bigint, NULL::integer, 1, 1::bigint");
    assert_int_equal(batch_of(backend->acquire, 1), DLOCK_EPROTO);
    answer_call("acquire", arguments, "claim integer, granted bigint", "SELECT 1, 1::bigint");
    assert_int_equal(batch_of(backend->acquire, 1), DLOCK_EPROTO);
    /* Far away, but possible. */
    answer_call("acquire", arguments, columns,
                "SELECT 1, 0::bigint, 1::bigint, NULL::integer, 2147483647, 9223372036854775807");
    assert_int_equal(batch_of(backend->acquire, 1), 0);
}

/* Replaces a view by a table of the same columns with these rows. */
static void answer_short(const char *view, const char *columns, const char *rows) {
    sql("DO $$ BEGIN IF EXISTS (SELECT FROM pg_views WHERE schemaname = '{}' AND viewname = '%s') THEN DROP VIEW "
        "{}.%s; "
        "ELSE DROP TABLE {}.%s; END IF; END $$",
        view, view, view);
    sql("CREATE TABLE {}.%s (%s)", view, columns);
    sql("INSERT INTO {}.%s VALUES %s", view, rows);
}

TEST(short_answers) {
    static const char *const taken[] = {"(NULL, 1)", "(1, NULL)",      "(-1, 1)",       "(36028797018963968, 1)",
                                        "(0, 1)",    "(1, 0), (1, 0)", "(1, 1), (1, 1)"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        answer_short(
            "take",
            "granted bigint, server_us bigint, name bytea, token text, lease_ms bigint, flags integer, wait_ms "
            "integer",
            taken[i]);
        assert_int_equal(batch_of(backend->acquire, 1), DLOCK_EPROTO);
    }
    answer_short("give", "ended boolean, name bytea, token text", "(NULL)");
    assert_int_equal(batch_of(backend->release, 1), DLOCK_EPROTO);
    answer_short("give", "ended integer, name bytea, token text", "(1)");
    assert_int_equal(batch_of(backend->release, 1), DLOCK_EPROTO);
    sql("TRUNCATE {}.give");
}

TEST(renewals_and_releases) {
    answer_call("renew", "bytea[], text[], bigint[], integer[], integer", "claim integer, server_us bigint",
                "SELECT 1, -1::bigint");
    assert_int_equal(batch_of(backend->renew, 1), DLOCK_EPROTO);
    answer_call("renew", "bytea[], text[], bigint[], integer[], integer", "claim integer, server_us text",
                "SELECT 1, 'soon'");
    assert_int_equal(batch_of(backend->renew, 1), DLOCK_EPROTO);
    answer_call("release", "bytea[], text[], integer", "claim integer, ended boolean", "SELECT 1, NULL::boolean");
    assert_int_equal(batch_of(backend->release, 1), DLOCK_EPROTO);
    answer_call("release", "bytea[], text[], integer", "claim integer, ended integer", "SELECT 1, 1");
    assert_int_equal(batch_of(backend->release, 1), DLOCK_EPROTO);
}

TEST(holders) {
    static const char *const columns =
        "name bytea, token text, fence bigint, left_ms bigint, waiters bigint, mode integer, permits integer";
    static const char *const rows[] = {
        "SELECT 'x'::bytea, NULL::text, 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT NULL::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT ''::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT 'other'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT '\\x7800'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT ('x' || repeat('y', 300))::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT 'x'::bytea, repeat('t', 200), 1::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT 'x'::bytea, 't', 0::bigint, 1::bigint, 1::bigint, 0, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, -1::bigint, 1::bigint, 0, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, 1::bigint, 5000000000, 0, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 3, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, -1, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 2, 0",
        "SELECT 'x'::bytea, 't', 1::bigint, 1::bigint, 1::bigint, 1, 3",
    };
    struct link link;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char cursor[256] = "";
        answer("holders", "bytea, bytea, integer", columns, rows[i]);
        link_new(&link, 'a');
        assert_int_equal(backend->inspect(link.conn, "x", ignore_holder, NULL, TIMEOUT_MS, &err), DLOCK_EPROTO);
        link_end(&link);
        link_new(&link, 'a');
        assert_int_equal(backend->list(link.conn, "x", cursor, ignore_holder, NULL, TIMEOUT_MS, &err), DLOCK_EPROTO);
        link_end(&link);
    }
}

TEST(errors) {
    /* A name is no SQL, and no format: the server's words are quoted as they are, on one line. */
    answer_call("release", "bytea[], text[], integer", "claim integer, ended boolean", "SELECT 1, true");
    sql("CREATE OR REPLACE FUNCTION {}.release(bytea[], text[], integer) RETURNS TABLE (claim integer, ended "
        "boolean, notices text) "
        "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = E'%%s %%n\\nline two\\t\\x01 ' || repeat('x', "
        "5000); END $$");
    assert_int_equal(batch_of(backend->release, 1), DLOCK_EPROTO);
    assert_null(strchr(err.message, '\n'));
    assert_null(strchr(err.message, '\x01'));
    /* A COPY would block the next call that asks for a result. */
    PGresult *result;
    LINK(link, 'a');
    assert_int_equal(pg_query(link.conn, "COPY (SELECT 1) TO STDOUT", dlock_deadline_us(TIMEOUT_MS), &result, &err),
                     DLOCK_EPROTO);
}

TESTS(NULL, NULL, site_begin, site_end)
