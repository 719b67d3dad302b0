/* Servers and sessions that do not cooperate: rows locked by others, deadlocks, connections that end, processes that
 * fork. */
#include "site.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The server gives up a tenth of PATIENCE_MS earlier than we do, and its answer has to arrive in that time. A call that
 * does not end would take longer than LATE_MS; the exact time of a call depends on the machine. */
enum { PATIENCE_MS = 3000, LATE_MS = 10000 };

/* psql sits on the row. */
TEST(a_row_locked_by_others) {
    struct dlock_error err;
    SCOPED_PLAIN *plain = plain_open();
    LINK(link, 'a');
    HELD(held, &link, "sat-on");
    held.claim.lease_ms = 60000; /* longer than all of this */
    assert_int_equal(acquire(&link, &held), 0);
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'sat-on' FOR UPDATE");
    dlock_batch *const operations[] = {backend->renew, backend->release, backend->acquire};
    for (size_t i = 0; i < 3; i++) {
        int64_t before = now_ms();
        assert_int_equal(held_run(operations[i], &link, &held, 0, PATIENCE_MS, &err), DLOCK_EUNAVAILABLE);
        assert_true(now_ms() - before < PATIENCE_MS + LATE_MS);
        if (!strstr(err.message, "locked the row")) fail_msg("%s", err.message);
    }
    int64_t before = now_ms();
    assert_int_equal(backend->break_lock(link.conn, "sat-on", PATIENCE_MS, &err), DLOCK_EUNAVAILABLE);
    assert_true(now_ms() - before < PATIENCE_MS + LATE_MS);
    /* A free one cannot be taken either. */
    LINK(after, 'b');
    HELD(other, &after, "sat-on, free");
    assert_int_equal(acquire(&after, &other), 0);
    assert_int_equal(release(&after, &other), 0);
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'sat-on, free' FOR UPDATE");
    assert_int_equal(held_run(backend->acquire, &after, &other, 0, PATIENCE_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "locked the row"));
    /* A mere question is answered all the same. */
    held_new(&other, &after, "sat-on");
    assert_int_equal(acquire(&after, &other), DLOCK_EBUSY);
    plain_run(plain, "COMMIT");
    /* The connection still works, and nothing happened late. */
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
}

struct renewal {
    struct link *link;
    struct held *held;
    int n, timeout_ms, rc;
    struct dlock_error err;
};

static void *renew_in_thread(void *arg) {
    struct renewal *me = arg;
    struct dlock_claim *claims[2];
    for (int i = 0; i < me->n; i++) {
        claims[i] = &me->held[i].claim;
    }
    me->rc = backend->renew(me->link->conn, claims, (size_t)me->n, me->timeout_ms, &me->err);
    return NULL;
}

static void await_renewal(void) {
    sql_wait("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%{}%%renew%%'");
}

/* The lease ends while its renewal waits for the row: the grant is lost. */
TEST(a_lease_ends_while_it_is_renewed) {
    SCOPED_LINK link;
    struct held held;
    struct renewal renewal = {.link = &link, .held = &held, .n = 1, .timeout_ms = TIMEOUT_MS};
    pthread_t thread;
    SCOPED_PLAIN *plain = plain_open();
    link_new(&link, 'a');
    held_new(&held, &link, "overtaken");
    assert_int_equal(acquire(&link, &held), 0);
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() + 1000000 WHERE name = 'overtaken'");
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'overtaken' FOR UPDATE");
    assert_int_equal(pthread_create(&thread, NULL, renew_in_thread, &renewal), 0);
    await_renewal();
    sql_wait("SELECT (expires_us < {}.clock_us())::integer FROM {}.locks WHERE name = 'overtaken'");
    plain_run(plain, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(renewal.rc, 0);
    assert_int_equal(held.claim.result, DLOCK_ELOST);
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
}

/* Two rows are waited for in sequence: in total for as long as the caller waits. */
TEST(patience_is_for_all_waits) {
    SCOPED_LINK link;
    struct held held[2];
    /* A second more than the server has for its word; with as much for each wait it would have none. */
    struct renewal renewal = {.link = &link, .held = held, .n = 2, .timeout_ms = 10000};
    pthread_t thread;
    SCOPED_PLAIN *first = plain_open(), *second = plain_open();
    link_new(&link, 'a');
    for (int i = 0; i < 2; i++) {
        held_new(&held[i], &link, i ? "patience-2" : "patience-1");
        held[i].claim.lease_ms = 60000; /* longer than all of this */
        assert_int_equal(acquire(&link, &held[i]), 0);
    }
    plain_run(first, "BEGIN");
    plain_run(first, "SELECT FROM {}.locks WHERE name = 'patience-1' FOR UPDATE");
    plain_run(second, "BEGIN");
    plain_run(second, "SELECT FROM {}.locks WHERE name = 'patience-2' FOR UPDATE");
    assert_int_equal(pthread_create(&thread, NULL, renew_in_thread, &renewal), 0);
    await_renewal();
    sleep_ms(5000);
    plain_run(first, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(renewal.rc, DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(renewal.err.message, "locked the row")); /* the server gave up, before we did */
    plain_run(second, "COMMIT");
}

/* The server is slow, and we have given up before it grants or queues anything: then it does neither. */
TEST(nothing_comes_late) {
    static const bool ways[] = {false, true}; /* the short one, the long one */
    for (size_t i = 0; i < 2; i++) {
        struct link link, slow;
        struct dlock_error err;
        link_new(&link, 'a');
        HELD(held, &link, "late");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
        link_end(&link);
        sql("UPDATE {}.locks SET awaited = %s WHERE name = 'late'", ways[i] ? "true" : "false");
        sql("ALTER FUNCTION {}.in_order(bytea[], text[]) RENAME TO quick_order");
        sql("CREATE FUNCTION {}.in_order(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_sleep(0.6); RETURN {}.quick_order(names, tokens); END $$");
        link_new(&slow, 'b');
        held_new(&held, &slow, "late");
        strcpy(pg_of(&slow)->wanted, "late"); /* not by take, which calls no function */
        int pid = PQbackendPID(pg_of(&slow)->link);
        assert_int_equal(held_run(backend->acquire, &slow, &held, 0, 300, &err), DLOCK_EUNAVAILABLE);
        link_end(&slow);
        session_gone(pid);
        sql("DROP FUNCTION {}.in_order");
        sql("ALTER FUNCTION {}.quick_order RENAME TO in_order");
        assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE token = '%s'", held.token), 0);
    }
}

/* take waits for a row, and we have given up before it has it. The time until the row is free is longer than ours,
 * since the server's count begins when it has read the request, but shorter than the session's lock_timeout. */
TEST(nothing_is_taken_late) {
    struct link slow;
    struct dlock_error err;
    SCOPED_PLAIN *plain = plain_open();
    LINK(link, 'a');
    link_new(&slow, 'b');
    HELD(held, &link, "taken late");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'taken late' FOR UPDATE");
    held_new(&held, &slow, "taken late");
    int pid = PQbackendPID(pg_of(&slow)->link);
    assert_int_equal(held_run(backend->acquire, &slow, &held, 0, 100, &err), DLOCK_EUNAVAILABLE);
    sleep_ms(250);
    assert_int_equal(
        sql_number("SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND query LIKE '%%.take %%'", pid), 1);
    plain_run(plain, "COMMIT");
    link_end(&slow);
    session_gone(pid);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE token = '%s'", held.token), 0);
}

/* A call that is repeated has less time left. */
TEST(patience_is_for_all_tries) {
    struct dlock_error err;
    LINK(link, 'a');
    HELD(held, &link, "tries");
    assert_int_equal(acquire(&link, &held), 0);
    sql("ALTER FUNCTION {}.renew RENAME TO true_renew");
    sql("CREATE FUNCTION {}.renew(names bytea[], tokens text[], leases_ms bigint[], modes integer[], wait_ms "
        "integer) RETURNS TABLE (claim integer, server_us bigint, notices text) LANGUAGE plpgsql AS $$ BEGIN "
        "IF wait_ms > 2000 THEN PERFORM pg_sleep(1); RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF; "
        "RETURN QUERY SELECT * FROM {}.true_renew(names, tokens, leases_ms, modes, wait_ms); END $$");
    assert_int_equal(held_run(backend->renew, &link, &held, 0, 3000, &err), 0);
    assert_int_equal(held.claim.result, 0);
    sql("DROP FUNCTION {}.renew");
    sql("ALTER FUNCTION {}.true_renew RENAME TO renew");
    assert_int_equal(release(&link, &held), 0);
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

enum { TAKERS = 5 };

struct taker {
    struct link link;
    struct held held;
    pthread_t thread;
};

static void *take(void *arg) {
    struct taker *me = arg;
    me->held.claim.result = acquire(&me->link, &me->held);
    return NULL;
}

/* All have seen that it is free, and wait for its row: it is one's. */
TEST(several_take_a_free_lock) {
    struct taker takers[TAKERS];
    int granted = 0;
    SCOPED_PLAIN *plain = plain_open();
    sql("INSERT INTO {}.locks (name) VALUES ('taken')");
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'taken' FOR UPDATE");
    for (int i = 0; i < TAKERS; i++) {
        link_new(&takers[i].link, (char)('1' + i));
        held_new(&takers[i].held, &takers[i].link, "taken");
        assert_int_equal(pthread_create(&takers[i].thread, NULL, take, &takers[i]), 0);
    }
    sql_wait("SELECT 1 FROM (SELECT count(*) n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
             "'%%{}%%') x WHERE n = %d",
             TAKERS);
    plain_run(plain, "COMMIT");
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(takers[i].thread, NULL);
        granted += takers[i].held.claim.result == 0;
    }
    assert_int_equal(granted, 1);
    for (int i = 0; i < TAKERS; i++) link_end(&takers[i].link);
}

/* ---- deadlocks --------------------------------------------------------------------------------------------------- */

enum { NAMES = 200, ROUNDS = 25 };
static char names[NAMES][16];

struct opponent {
    struct link link;
    bool backwards;
    const char *failure;
};

static void *fight(void *arg) {
    struct opponent *me = arg;
    static _Thread_local struct held held[NAMES];
    struct dlock_claim *claims[NAMES];
    static _Thread_local struct dlock_error err;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < NAMES; i++) {
            held_new(&held[i], &me->link, names[me->backwards ? NAMES - 1 - i : i]);
            claims[i] = &held[i].claim;
        }
        if (backend->acquire(me->link.conn, claims, NAMES, 20000, &err) != 0 ||
            backend->renew(me->link.conn, claims, NAMES, 20000, &err) != 0 ||
            backend->release(me->link.conn, claims, NAMES, 20000, &err) != 0) {
            me->failure = err.message;
            return NULL;
        }
    }
    return NULL;
}

/* The same names in opposite orders. */
TEST(opposite_orders) {
    static struct opponent one, two;
    pthread_t first, second;
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "fight-%03d", i);
    link_new(&one.link, 'a');
    link_new(&two.link, 'b');
    two.backwards = true;
    int64_t before = sql_number("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    assert_int_equal(pthread_create(&first, NULL, fight, &one), 0);
    assert_int_equal(pthread_create(&second, NULL, fight, &two), 0);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    if (one.failure || two.failure) fail_msg("%s", one.failure ? one.failure : two.failure);
    link_end(&one.link);
    link_end(&two.link);
    assert_int_equal(sql_number("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), before);
}

static void *acquire_two(void *arg) {
    struct link *link = arg;
    static struct held held[2];
    struct dlock_claim *claims[2] = {&held[0].claim, &held[1].claim};
    static struct dlock_error err;
    held_new(&held[0], link, "dead-1");
    held_new(&held[1], link, "dead-2");
    int rc = backend->acquire(link->conn, claims, 2, 20000, &err);
    if (rc == 0 && held[0].claim.result == 0 && held[1].claim.result == 0) return NULL;
    if (rc == 0) dlock_fail(&err, DLOCK_EBUSY, "not granted");
    return err.message;
}

/* Another client's transaction locks the rows in another order: if the server ends ours, we try again. */
TEST(a_deadlock_with_others) {
    pthread_t thread;
    void *failure;
    SCOPED_PLAIN *plain = plain_open();
    LINK(link, 'a');
    sql("INSERT INTO {}.locks (name) VALUES ('dead-1'), ('dead-2')");
    plain_run(plain, "SET deadlock_timeout = '30s'"); /* so that it is us who notice */
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'dead-2' FOR UPDATE");
    assert_int_equal(pthread_create(&thread, NULL, acquire_two, &link), 0);
    sql_wait("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %d", PQbackendPID(pg_of(&link)->link));
    plain_run(plain, "SELECT FROM {}.locks WHERE name = 'dead-1' FOR UPDATE");
    plain_run(plain, "COMMIT");
    pthread_join(thread, &failure);
    if (failure) fail_msg("%s", (char *)failure);
}

/* ---- connections that end ---------------------------------------------------------------------------------------- */

TEST(a_terminated_session) {
    struct dlock_error err;
    LINK(link, 'a');
    HELD(held, &link, "terminated");
    assert_int_equal(acquire(&link, &held), 0);
    sql("SELECT pg_terminate_backend(%d)", PQbackendPID(pg_of(&link)->link));
    session_gone(PQbackendPID(pg_of(&link)->link));
    /* Without a SIGPIPE, which would end this program. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(held_run(backend->renew, &link, &held, 0, 1000, &err), DLOCK_EUNAVAILABLE);
}

/* An old snapshot keeps dead rows from going away: it must not stop the locks. */
TEST(an_old_snapshot) {
    struct held held;
    SCOPED_PLAIN *plain = plain_open();
    LINK(link, 'a');
    plain_run(plain, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    plain_run(plain, "SELECT count(*) FROM {}.locks");
    int64_t before = now_ms();
    for (int i = 0; i < 1000; i++) {
        held_new(&held, &link, "bloated");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
    }
    assert_true(now_ms() - before < 60000);
    plain_run(plain, "COMMIT");
}

TESTS(NULL, NULL, site_begin, site_end)
