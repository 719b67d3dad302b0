/* Rows: the number of requests, obstacles, rights, and a server that ends the connection. */
#include "site.h"

#include <maria.h>
#include <pthread.h>
#include <unistd.h>

TEST(a_cycle_is_two_requests) {
    check_cycles(NULL, "cycle");
}

TEST(many_claims_are_one_request) {
    enum { N = 100 };
    static struct held held[N];
    static char names[N][16];
    struct dlock_claim *claims[N];
    struct dlock_error err;
    LINK(link, NULL, 'a');
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "many-%03d", i);
        held_new(&held[i], &link, names[i]);
        claims[i] = &held[i].claim;
    }
    int before = requests;
    assert_int_equal(backend->acquire(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, 0);
    sql("UPDATE dlock_locks SET token = 'another' WHERE name = 'many-050'");
    assert_int_equal(backend->renew(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, i == 50 ? DLOCK_ELOST : 0);
    assert_int_equal(backend->release(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, i == 50 ? DLOCK_ELOST : 0);
    assert_int_equal(requests - before, 3);
}

static int64_t rows_read(void) {
    return sql_number("SELECT ROWS_READ FROM information_schema.TABLE_STATISTICS "
                      "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'dlock_locks'");
}

/* A table of all names that were ever used is not searched for one. */
TEST(a_request_reads_its_own_rows) {
    struct link link;
    struct held held[2];
    struct dlock_claim *claims[] = {&held[0].claim, &held[1].claim};
    struct dlock_error err;
    link_new(&link, NULL, 'a');
    held_new(&held[0], &link, "reads-a");
    held_new(&held[1], &link, "reads-b");
    sql("INSERT INTO dlock_locks SELECT CONCAT('old', seq), '', 1, 0 FROM seq_1_to_1000");
    sql("SET GLOBAL userstat = 1");
    link_end(&link); /* what it does counts from its beginning on, for connections that begin now */
    link_new(&link, NULL, 'a');
    int64_t before = rows_read();
    assert_int_equal(backend->acquire(link.conn, claims, 2, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->renew(link.conn, claims, 2, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->release(link.conn, claims, 2, TIMEOUT_MS, &err), 0);
    assert_int_equal(acquire(&link, &held[0]), 0);
    assert_int_equal(renew(&link, &held[0]), 0);
    assert_int_equal(release(&link, &held[0]), 0);
    assert_int_equal(backend->break_lock(link.conn, "reads-a", TIMEOUT_MS, &err), DLOCK_ELOST);
    link_end(&link); /* the server counts when a statement ends */
    printf("         %lld rows read\n", (long long)(rows_read() - before));
    assert_in_range(rows_read() - before, 1, 30);
    sql("DELETE FROM dlock_locks WHERE name LIKE 'old%%'");
}

static int note(const struct dlock_info *info, void *arg) {
    int *n = arg;
    ++*n;
    assert_string_equal(info->name, "listed");
    return 0;
}

/* Nor is it for a list of held names. */
TEST(a_list_reads_what_is_held) {
    struct link link;
    struct dlock_error err;
    char cursor[256] = "";
    int n = 0;
    sql("UPDATE dlock_locks SET until_us = 0 WHERE name <> ''");
    sql("INSERT INTO dlock_locks SELECT CONCAT('old', seq), '', 1, seq FROM seq_1_to_10000");
    sql("ANALYZE TABLE dlock_locks"); /* the server does so on its own, some time later */
    sql("SET GLOBAL userstat = 1");
    link_new(&link, NULL, 'a');
    HELD(held, &link, "listed");
    assert_int_equal(acquire(&link, &held), 0);
    link_end(&link);
    link_new(&link, NULL, 'a');
    int64_t before = rows_read();
    assert_int_equal(backend->list(link.conn, "", cursor, note, &n, TIMEOUT_MS, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link); /* the server counts when a statement ends */
    assert_in_range(rows_read() - before, 1, 30);
    sql("DELETE FROM dlock_locks WHERE name LIKE 'old%%'");
}

/* Executes a statement in the schema's comments. */
static void run_documented(const char *first_words) {
    const char *at = strstr(backend->schema, first_words), *end = at ? strstr(at, ";\n") : NULL;
    if (!end) fail_msg("the schema does not say \"%s\"", first_words);
    sql("%.*s", (int)(end - at), at);
}

/* Old rows are deleted while locks are held, renewed and taken: no client waits for the end of that, and no lock
 * ends. */
TEST(old_rows_are_deleted_beside_locks) {
    static const char *const names[] = {"idle1", "a-new-name", "z-new-name"};
    enum { STEP = 1000, STEPS = 3 };
    struct held fresh;
    sql("DELETE FROM dlock_locks WHERE name <> ''");
    sql("INSERT INTO dlock_locks SELECT CONCAT('old', seq), '', 1, seq FROM seq_1_to_%d", STEP * STEPS);
    sql("INSERT INTO dlock_locks SELECT CONCAT('idle', seq), '', 1, CAST(UNIX_TIMESTAMP() * 1000000 AS SIGNED) - 4 * "
        "seq "
        "FROM seq_1_to_10");
    LINK(link, NULL, 'a');
    HELD(held, &link, "held");
    assert_int_equal(acquire(&link, &held), 0);
    run_documented("SET SESSION TRANSACTION");
    for (int i = 0; i < STEPS; i++) {
        sql("BEGIN"); /* else it would be over at once */
        run_documented("DELETE FROM dlock_locks");
        assert_int_equal(sql_number("SELECT COUNT(*) FROM dlock_locks WHERE name LIKE 'old%%'"),
                         STEP * (STEPS - 1 - i));
        int before = requests;
        held_new(&fresh, &link, names[i]);
        assert_int_equal(renew(&link, &held), 0);
        assert_int_equal(acquire(&link, &fresh), 0);
        assert_int_equal(release(&link, &fresh), 0);
        assert_int_equal(requests - before, 3); /* none was repeated, as after a wait for a row */
        sql("COMMIT");
    }
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    assert_int_equal(sql_number("SELECT COUNT(*) FROM dlock_locks WHERE name = ''"), 1);
    sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
}

/* A row keeps its fence when the clock goes back, and when the lock is broken. */
TEST(fences_outlive_the_clock) {
    LINK(link, NULL, 'a');
    HELD(held, &link, "clock");
    assert_int_equal(acquire(&link, &held), 0);
    sql("UPDATE dlock_locks SET fence = fence + 3600000000 WHERE name = 'clock'");
    uint64_t fence = held.claim.fence + UINT64_C(3600000000);
    assert_int_equal(backend->break_lock(link.conn, "clock", TIMEOUT_MS, NULL), 0);
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    held_new(&held, &link, "clock");
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence == fence + 1);
}

static int64_t held_for_us(const char *name) {
    return sql_number("SELECT GREATEST(until_us - CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), 0) "
                      "FROM dlock_locks WHERE name = '%s' AND token <> ''",
                      name);
}

/* Requests in the socket of a server that hung: when it continues, no client waits for them any more. By its clock an
 * hour has passed. The grant of another request with the token stays unchanged. */
TEST(a_late_request_gets_nothing) {
    struct held held;
    struct dlock_error err;
    LINK(link, NULL, 'a');
    LINK(other, NULL, 'b');
    for (int i = 0; i < 3; i++) { /* a new name, a free one, one that is held */
        held_new(&held, &link, "late");
        if (i == 2) assert_int_equal(acquire(&other, &held), 0);
        const bool is_held = held_for_us("late") > 0;
        ((struct maria *)link.conn)->ahead_us -= INT64_C(3600000000);
        assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, "late"));
        assert_int_equal(held_for_us("late") > 0, is_held);
        link_end(&link);
        link_new(&link, NULL, 'a');
        assert_int_equal(acquire(&link, &held), 0); /* by its clock as it is now */
        assert_int_equal(release(&link, &held), 0);
    }
}

static void *acquire_both(void *arg) {
    struct dlock_claim **claims = ((void **)arg)[0];
    struct link *link = ((void **)arg)[1];
    static struct dlock_error err;
    static int rc;
    rc = backend->acquire(link->conn, claims, 2, TIMEOUT_MS, &err);
    return &rc;
}

/* Another client's transaction that has written more than ours: the server ends ours. */
TEST(a_deadlock_is_tried_again) {
    struct held a;
    pthread_t thread;
    void *rc;
    LINK(link, NULL, 'a');
    held_new(&a, &link, "deadlock-a");
    HELD(b, &link, "deadlock-b");
    struct dlock_claim *claims[] = {&a.claim, &b.claim};
    void *args[] = {claims, &link};
    sql("CREATE TABLE weight (n INT) ENGINE = InnoDB");
    sql("INSERT INTO dlock_locks VALUES ('deadlock-a', '', 1, 0), ('deadlock-b', '', 1, 0)");
    int64_t deadlocks = sql_number("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS "
                                   "WHERE VARIABLE_NAME = 'Innodb_deadlocks'");
    int before = requests;
    for (int tries = 0; tries < 20; tries++) { /* a request gives up after a second, and could do so between */
        sql("BEGIN");
        sql("INSERT INTO weight SELECT seq FROM seq_1_to_1000");
        sql("UPDATE dlock_locks SET until_us = until_us + 1 WHERE name = 'deadlock-b'");
        assert_int_equal(pthread_create(&thread, NULL, acquire_both, args), 0);
        while (!sql_number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %lld AND TIME_MS >= 50 "
                           "AND INFO LIKE 'INSERT%%'",
                           (long long)link_id(&link)))
            usleep(1000);
        sql("UPDATE dlock_locks SET until_us = until_us + 1 WHERE name = 'deadlock-a'");
        sql("ROLLBACK");
        assert_int_equal(pthread_join(thread, &rc), 0);
        assert_int_equal(*(int *)rc, 0);
        assert_int_equal(a.claim.result, 0);
        assert_int_equal(b.claim.result, 0);
        assert_int_equal(release(&link, &a), 0);
        assert_int_equal(release(&link, &b), 0);
        if (sql_number("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS "
                       "WHERE VARIABLE_NAME = 'Innodb_deadlocks'") > deadlocks)
            break;
    }
    assert_true(sql_number("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS "
                           "WHERE VARIABLE_NAME = 'Innodb_deadlocks'") > deadlocks);
    assert_true(requests - before > 3);
}

/* It is not opened again unnoticed: the core has to know. */
TEST(an_ended_connection_stays_so) {
    struct dlock_error err;
    LINK(link, NULL, 'a');
    HELD(held, &link, "killed");
    assert_int_equal(acquire(&link, &held), 0);
    sql("KILL CONNECTION %lld", (long long)link_id(&link));
    for (int i = 0; i < 2; i++)
        assert_int_equal(held_run(backend->renew, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    LINK(next, NULL, 'a');
    assert_int_equal(renew(&next, &held), 0);
    assert_int_equal(release(&next, &held), 0);
}

TEST(rights) {
    SCOPED_LINK link;
    struct dlock_error err;
    sql("DROP TABLE IF EXISTS dlock_locks, dlock_claims");
    sql("CREATE OR REPLACE USER app_%d IDENTIFIED BY 'secret'", (int)getpid());
    sql("GRANT SELECT, INSERT, UPDATE ON * TO app_%d", (int)getpid());
    char user[32];
    snprintf(user, sizeof user, "app_%d", (int)getpid());
    assert_int_equal(link_as(&link, user, NULL, 'a', &err), 0);
    HELD(held, &link, "rights");
    assert_int_equal(renew(&link, &held), DLOCK_ELOST); /* no table, no lock */
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "its DBA has to run what `dlock schema mysql` prints"));
    link_end(&link);
    run_documented("CREATE TABLE IF NOT EXISTS dlock_locks");
    run_documented("CREATE TABLE IF NOT EXISTS dlock_claims");
    assert_int_equal(link_as(&link, user, NULL, 'a', &err), 0);
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    sql("GRANT DELETE ON dlock_claims TO app_%d", (int)getpid()); /* what waiters need in addition */
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    link_end(&link);
    sql("DROP USER app_%d", (int)getpid());
    assert_int_equal(link_as(&link, "nobody", NULL, 'a', &err), DLOCK_EAUTH);
    assert_null(strstr(err.message, "secret"));
}

TESTS(NULL, NULL, site_begin, site_end)
