/* mode=session: locks as session-level advisory locks. */
#include "site.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static struct dlock_error err;

static int session_with(struct link *link, char letter, const char *key, const char *value) {
    const struct params params = {.more = {{"mode", "session"}, {key, value}}};
    return link_with(link, &params, letter, TIMEOUT_MS, &err);
}

static void session_new(struct link *link, char letter) {
    if (session_with(link, letter, NULL, NULL) != 0) fail_msg("%s", err.message);
}

static int pid_of(const struct link *link) {
    return PQbackendPID(pg_of(link)->link);
}

static int64_t sessions_in_line(const struct link *link, bool granted) {
    return sql_number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = %s AND pid = %d",
                      granted ? "true" : "false", pid_of(link));
}

/* Leaves a request that waits. */
static void wait_in_line(struct link *link, struct held *held) {
    assert_int_equal(queue_up(link, held), DLOCK_EBUSY);
    assert_true(held->claim.retry_ms == DLOCK_FOREVER);
    link->fd = PQsocket(pg_of(link)->link);
    sql_wait("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = %d", pid_of(link));
}

static void expect_turn(struct link *link, uint64_t *fence) {
    struct dlock_wake wake;
    wake_get(link, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_true(wake.fence > *fence);
    assert_int_equal(wake.kept_ms, LEASE_MS);
    *fence = wake.fence;
}

/* As many as wait; the server keeps the order. */
TEST(first_come_first_served) {
    enum { N = 6 };
    struct link links[N];
    struct held held[N];
    for (int i = 0; i < N; i++) {
        session_new(&links[i], 'a');
        held_new(&held[i], &links[i], "line");
    }
    assert_int_equal(acquire(&links[0], &held[0]), 0);
    uint64_t fence = held[0].claim.fence;
    for (int i = 1; i < N; i++) wait_in_line(&links[i], &held[i]);
    for (int i = 0; i < N; i++) {
        if (i) expect_turn(&links[i], &fence);
        if (i + 1 < N) assert_int_equal(sessions_in_line(&links[i + 1], true), 0);
        assert_int_equal(release(&links[i], &held[i]), 0);
    }
    for (int i = 0; i < N; i++) link_end(&links[i]);
}

/* A second signal of one cancellation, which a busy server sends late. The backend's calls arrive here as well. */
static _Atomic int late_ms;

__attribute__((visibility("default"))) int PQcancel(PGcancel *request, char *why, int size) {
    int (*cancel)(PGcancel *, char *, int);
    void *symbol = dlsym(RTLD_NEXT, "PQcancel");
    memcpy(&cancel, &symbol, sizeof cancel);
    int rc = cancel(request, why, size);
    if (late_ms == 0) return rc;
    sleep_ms(late_ms);
    return cancel(request, why, size);
}

/* Nothing of the cancellation is left when the release returns. */
TEST(a_late_signal_hits_no_other_request) {
    struct link holder, waiter;
    struct held held, waits;
    late_ms = 100;
    session_new(&holder, 'a');
    session_new(&waiter, 'b');
    held_new(&held, &holder, "twice");
    assert_int_equal(acquire(&holder, &held), 0);
    held_new(&waits, &waiter, "twice");
    wait_in_line(&waiter, &waits);
    int rc = held_run(backend->release, &waiter, &waits, 0, TIMEOUT_MS, &err);
    assert_true(rc == DLOCK_EUNAVAILABLE || (rc == 0 && waits.claim.result == DLOCK_ELOST));
    if (rc == 0) {
        PGresult *rows = PQexec(pg_of(&waiter)->link, "SELECT pg_sleep(0.3)");
        assert_int_equal(PQresultStatus(rows), PGRES_TUPLES_OK);
        PQclear(rows);
    }
    late_ms = 0;
    assert_int_equal(release(&holder, &held), 0);
    link_end(&holder);
    link_end(&waiter);
}

/* The server's limits on a statement, and from PostgreSQL 17 on on a transaction, are no limits on waits. */
TEST(a_wait_outlasts_the_servers_timeouts) {
    enum { WAIT_MS = 1500 };
    struct link holder, waiter;
    struct held held, waits;
    session_new(&holder, 'a');
    bool newer = PQserverVersion(pg_of(&holder)->link) >= 170000;
    if (session_with(&waiter, 'b', "options",
                     newer ? "-c statement_timeout=1s -c transaction_timeout=1s" : "-c statement_timeout=1s") != 0)
        fail_msg("%s", err.message);
    held_new(&held, &holder, "patience");
    assert_int_equal(acquire(&holder, &held), 0);
    held_new(&waits, &waiter, "patience");
    wait_in_line(&waiter, &waits);
    assert_false(dlock_wait_fd(waiter.fd, POLLIN, dlock_deadline_us(WAIT_MS)));
    assert_int_equal(release(&holder, &held), 0);
    uint64_t fence = held.claim.fence;
    expect_turn(&waiter, &fence);
    assert_int_equal(release(&waiter, &waits), 0);
    link_end(&holder);
    link_end(&waiter);
}

/* It came before the cancellation, unread: it does not stay. The connection has to go, and says so. */
TEST(a_grant_nobody_waits_for_is_given_back) {
    struct link holder, waiter;
    struct held held, waits;
    session_new(&holder, 'a');
    session_new(&waiter, 'b');
    held_new(&held, &holder, "late");
    assert_int_equal(acquire(&holder, &held), 0);
    held_new(&waits, &waiter, "late");
    wait_in_line(&waiter, &waits);
    assert_int_equal(release(&holder, &held), 0);
    assert_true(dlock_wait_fd(waiter.fd, POLLIN, dlock_deadline_us(TIMEOUT_MS))); /* pg_locks has it earlier */
    assert_int_equal(held_run(backend->release, &waiter, &waits, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    link_end(&waiter);
    assert_int_equal(acquire(&holder, &held), 0);
    assert_int_equal(release(&holder, &held), 0);
    link_end(&holder);
}

/* Not even the last pause between two cancellations outlasts the time that the caller has. */
TEST(a_silent_server_costs_no_more_than_the_time_given) {
    enum { ROUNDS = 5, GIVEN_MS = 80, LAST_PAUSE_ENDS_MS = 120 };
    int64_t fewest_ms = INT64_MAX;
    struct link holder, waiter;
    struct held held, waits;
    session_new(&holder, 'a');
    held_new(&held, &holder, "silent");
    assert_int_equal(acquire(&holder, &held), 0);
    for (int i = 0; i < ROUNDS; i++) {
        session_new(&waiter, 'b');
        held_new(&waits, &waiter, "silent");
        wait_in_line(&waiter, &waits);
        int pid = pid_of(&waiter);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        int64_t start_ms = now_ms();
        assert_int_equal(held_run(backend->release, &waiter, &waits, 0, GIVEN_MS, &err), DLOCK_EUNAVAILABLE);
        if (now_ms() - start_ms < fewest_ms) fewest_ms = now_ms() - start_ms;
        assert_true(now_ms() - start_ms >= GIVEN_MS - 1);
        link_end(&waiter);
        assert_int_equal(kill(pid, SIGCONT), 0);
        session_gone(pid);
    }
    assert_true(fewest_ms < LAST_PAUSE_ENDS_MS);
    assert_int_equal(release(&holder, &held), 0);
    link_end(&holder);
}

/* However it ended, the holder learns of it at once, or in its release, which checks first, or from the release's
 * answer. */
TEST(a_session_that_is_ended_has_lost_its_lock) {
    enum { HEARD, LOOKED, ANSWERED, WAYS };
    struct link link, other;
    struct held held;
    struct dlock_wake wake;
    for (int way = 0; way < WAYS; way++) {
        session_new(&link, 'a');
        session_new(&other, 'b');
        held_new(&held, &link, "ended");
        assert_int_equal(acquire(&link, &held), 0);
        int pid = pid_of(&link), fd = PQsocket(pg_of(&link)->link), rc = 0;
        assert_int_equal(backend->break_lock(other.conn, "ended", TIMEOUT_MS, &err), 0);
        session_gone(pid);
        if (way == HEARD) {
            while (rc == 0 && dlock_wait_fd(fd, POLLIN, dlock_deadline_us(TIMEOUT_MS)))
                rc = backend->wake(link.conn, &wake, &err);
            assert_int_equal(rc, DLOCK_EUNAVAILABLE);
        }
        pg_of(&link)->session.granted_us = way == ANSWERED ? dlock_now_us() : 0;
        assert_int_equal(release(&link, &held), DLOCK_ELOST);
        assert_int_equal(backend->break_lock(other.conn, "ended", TIMEOUT_MS, &err), DLOCK_ELOST);
        link_end(&link);
        link_end(&other);
    }
}

/* The server ends a holder that does not renew, but not before its lease is over; one that renews is not ended. */
TEST(the_lease_ends_at_the_server) {
    enum { SHORT_MS = 2000 };
    struct link link, other;
    struct held held, next;
    session_new(&link, 'a');
    session_new(&other, 'b');
    held_new(&held, &link, "leased");
    held_new(&next, &other, "leased");
    held.claim.lease_ms = SHORT_MS;
    assert_int_equal(acquire(&link, &held), 0);
    int64_t renewed_us = 0; /* not earlier: the server may have begun to count long before its answer was here */
    for (int i = 0; i < 3; i++) {
        sleep_ms(SHORT_MS / 3);
        renewed_us = dlock_now_us();
        assert_int_equal(renew(&link, &held), 0);
    }
    wait_in_line(&other, &next);
    uint64_t fence = held.claim.fence;
    expect_turn(&other, &fence);
    assert_in_range(dlock_now_us() - renewed_us, SHORT_MS * 990, 30000000);
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    assert_int_equal(release(&other, &next), 0);
    link_end(&link);
    link_end(&other);
}

/* How often a text without arguments was sent. The backend's calls arrive here as well. */
static _Atomic int texts_sent;

__attribute__((visibility("default"))) int PQsendQuery(PGconn *link, const char *sql) {
    int (*send)(PGconn *, const char *);
    void *symbol = dlsym(RTLD_NEXT, "PQsendQuery");
    memcpy(&send, &symbol, sizeof send);
    texts_sent++;
    return send(link, sql);
}

static void expect_patience(const struct link *link, const char *const shown[4]) {
    static const char *const settings[] = {"SHOW tcp_keepalives_idle", "SHOW tcp_user_timeout",
                                           "SHOW idle_session_timeout", "SHOW client_connection_check_interval"};
    for (int i = 0; i < 4; i++) {
        PGresult *result = PQexec(pg_of(link)->link, settings[i]);
        assert_string_equal(PQgetvalue(result, 0, 0), shown[i]);
        PQclear(result);
    }
}

/* The settings for the server's patience with silent clients: no less than the lease, which an extension makes longer.
 * A renewal with an unchanged lease does not send them. */
TEST(the_server_is_patient) {
    static const char *const at_first[] = {"20", "23000", "20s", "1s"};
    static const char *const extended[] = {"61", "64000", "61s", "1s"};
    struct link link;
    struct held held;
    session_new(&link, 'a');
    held_new(&held, &link, "patient");
    held.claim.lease_ms = 20000;
    assert_int_equal(acquire(&link, &held), 0);
    expect_patience(&link, at_first);
    held.claim.lease_ms = 61000;
    for (int i = 0; i < 2; i++) {
        texts_sent = 0;
        assert_int_equal(renew(&link, &held), 0);
        assert_int_equal(texts_sent, i == 0);
        expect_patience(&link, extended);
    }
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

/* The lock that a client in another language would take. */
TEST(keys_can_be_worked_out_anywhere) {
    static const char sql[] = "SELECT ('x' || encode(substr(sha256('\"a schema\" %s'), 1, 8), 'hex'))::bit(64)::bigint";
    char name[PG_NAME_MAX + 1];
    int64_t key;
    for (int length = 1; length <= PG_NAME_MAX; length++) {
        memset(name, 'a' + length % 26, sizeof name);
        name[length] = '\0';
        assert_true(pg_key("\"a schema\"", name, &key) && sql_number(sql, name) == key);
    }
    /* Those of dlock 0.1.0. */
    assert_true(pg_key("\"dlock\"", "job", &key) && key == INT64_C(-7173075926619846098));
    assert_true(pg_key("\"dlock\"", "nightly report", &key) && key == INT64_C(5138408668363459387));
}

/* It is set where it is another one than the connection has. */
TEST(leases_may_differ) {
    static const int leases_ms[] = {20000, 20000, 30000};
    static const char *const expected[] = {"20s", "20s", "30s"};
    struct link link;
    struct held held;
    session_new(&link, 'a');
    for (int i = 0; i < 6; i++) {
        held_new(&held, &link, "lease");
        held.claim.lease_ms = leases_ms[i / 2];
        held.claim.mode = i % 2 ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
        assert_int_equal(acquire(&link, &held), 0);
        PGresult *result = PQexec(pg_of(&link)->link, "SHOW idle_session_timeout");
        assert_string_equal(PQgetvalue(result, 0, 0), expected[i / 2]);
        PQclear(result);
        assert_int_equal(release(&link, &held), 0);
    }
    link_end(&link);
}

/* A server that is slow costs no lock: the answer to a renewal may come during the next one, also if it makes the lease
 * longer, which takes two requests. */
TEST(a_late_answer_keeps_the_session) {
    struct link link;
    struct held held;
    session_new(&link, 'a');
    held_new(&held, &link, "slow");
    assert_int_equal(acquire(&link, &held), 0);
    int pid = pid_of(&link);
    for (int times = 1; times <= 2; times++) {
        held.claim.lease_ms = times * LEASE_MS;
        assert_int_equal(kill(pid, SIGSTOP), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(held_run(backend->renew, &link, &held, 0, 100, &err), 0);
            assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
        }
        assert_int_equal(kill(pid, SIGCONT), 0);
        assert_int_equal(renew(&link, &held), 0);
    }
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(held_run(backend->renew, &link, &held, 0, 100, &err), 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

/* The lease in it may be another one than the next lock's. */
TEST(a_late_answer_leaves_no_lease_to_the_next) {
    struct link link;
    struct held held;
    session_new(&link, 'a');
    held_new(&held, &link, "slow");
    assert_int_equal(acquire(&link, &held), 0);
    int pid = pid_of(&link);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    held.claim.lease_ms = LEASE_MS / 2;
    assert_int_equal(held_run(backend->renew, &link, &held, 0, 100, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(release(&link, &held), 0);
    held_new(&held, &link, "next");
    assert_int_equal(acquire(&link, &held), 0);
    PGresult *result =
        PQexec(pg_of(&link)->link, "SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'");
    assert_int_equal(atoi(PQgetvalue(result, 0, 0)), LEASE_MS);
    PQclear(result);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

/* Objects that are created again give no old fences. */
TEST(fences_outlive_their_schema) {
    struct link link;
    struct held held;
    session_new(&link, 'a');
    held_new(&held, &link, "fence");
    assert_int_equal(acquire(&link, &held), 0);
    uint64_t fence = held.claim.fence;
    assert_int_equal(release(&link, &held), 0);
    sql("DROP SCHEMA {} CASCADE");
    held_new(&held, &link, "fence");
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence > fence);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

/* They would not exclude each other. */
TEST(modes_refuse_each_other) {
    const struct dlock_backend *sessions = backend, *rows;
    struct link link, other;
    struct held held;
    assert_int_equal(backend_load(state), 0);
    rows = backend;
    for (int first = 0; first < 2; first++) {
        sql("DROP SCHEMA IF EXISTS {} CASCADE");
        for (int i = 0; i < 2; i++) {
            backend = i == first ? sessions : rows;
            struct link *one = i == 0 ? &link : &other;
            if (backend == sessions)
                session_new(one, 'a');
            else
                link_new(one, 'a');
            held_new(&held, one, "mode");
            if (i == 0) {
                assert_int_equal(acquire(one, &held), 0);
                assert_int_equal(release(one, &held), 0);
            } else {
                assert_int_equal(held_run(backend->acquire, one, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
                assert_non_null(strstr(err.message, "not rows") ? strstr(err.message, "not rows")
                                                                : strstr(err.message, "not sessions"));
                assert_non_null(strstr(err.message, "`mode`"));
            }
            link_end(one);
        }
    }
    sql("DROP SCHEMA {} CASCADE");
    backend = sessions;
}

TEST(what_a_uri_may_say) {
    struct link link;
    assert_int_equal(session_with(&link, 'a', "listen", "off"), DLOCK_ENOTSUP);
    link_end(&link);
    const struct params unknown = {.more = {{"mode", "table"}}};
    assert_int_equal(link_with(&link, &unknown, 'a', TIMEOUT_MS, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "mode"));
    link_end(&link);
}

TESTS(NULL, NULL, site_begin_sessions, site_end)
