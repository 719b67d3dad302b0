/* mode=session: the first fence of a connection is greater than all before it, whatever has happened to the sequence. */
#include "site.h"

#include "support/relay.h"

#include <poll.h>
#include <pthread.h>

static struct dlock_error err;

static void session_new(struct link *link) {
    const struct params params = {.more = {{"mode", "session"}}};
    if (link_with(link, &params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* Asks to wait if `flags` say so. On a busy machine the answer is late, and comes as a wake-up. */
static int64_t grant(struct link *link, struct held *held, enum dlock_mode mode, uint32_t flags) {
    struct dlock_wake wake;
    held_new(held, link, "fence");
    held->claim.mode = mode;
    if (held_run(backend->acquire, link, held, flags, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    if (held->claim.result == 0) return (int64_t)held->claim.fence;
    assert_int_equal(held->claim.result, DLOCK_EBUSY);
    assert_true(flags & DLOCK_CLAIM_QUEUE);
    link->fd = PQsocket(pg_of(link)->link);
    wake_get(link, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    return (int64_t)wake.fence;
}

/* A lock's fence; the lock is released at once. */
static int64_t draw(struct link *link) {
    struct held held;
    int64_t fence = grant(link, &held, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(release(link, &held), 0);
    return fence;
}

static void make(void) {
    struct link link;
    session_new(&link);
    draw(&link);
    link_end(&link);
}

static int nothing_there(void **state) {
    (void)state;
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    return 0;
}

/* ---- after a loss ------------------------------------------------------------------------------------------------ */

/* As a restored backup would set it, whichever request a new connection begins with. It is not moved again after
 * that. */
TEST(a_sequence_set_back_gives_no_old_fences) {
    struct link link;
    struct held held;
    session_new(&link);
    int64_t last = draw(&link);
    link_end(&link);
    for (int way = 0; way < 4; way++) {
        sql("SELECT setval('{}.fences', 1000)");
        session_new(&link);
        int64_t fence = grant(&link, &held, way & 1 ? DLOCK_SHARED : DLOCK_EXCLUSIVE, way & 2 ? DLOCK_CLAIM_QUEUE : 0);
        assert_true(fence > last && fence < PG_FENCE_END);
        assert_int_equal(release(&link, &held), 0);
        for (int i = 1; i <= 3; i++) assert_true(draw(&link) == fence + i);
        last = fence + 3;
        link_end(&link);
    }
}

/* One who is refused has drawn nothing yet. */
TEST(the_first_grant_counts) {
    struct link link, other;
    struct held held, refused;
    session_new(&link);
    session_new(&other);
    int64_t last = grant(&link, &held, DLOCK_EXCLUSIVE, 0);
    held_new(&refused, &other, "fence");
    assert_int_equal(acquire(&other, &refused), DLOCK_EBUSY);
    assert_int_equal(release(&link, &held), 0);
    sql("SELECT setval('{}.fences', 1000)");
    assert_true(draw(&other) > last);
    link_end(&link);
    link_end(&other);
}

/* Fences that are ahead of the clock continue from where they are, and a clock that is far off uses up at most half. */
TEST(it_never_moves_back) {
    struct link link;
    make();
    sql("SELECT setval('{}.fences', (1::bigint << 54) + 5)");
    for (int i = 0; i < 3; i++) {
        session_new(&link);
        assert_true(draw(&link) == (INT64_C(1) << 54) + 6 + i);
        link_end(&link);
    }
}

/* ---- at the same time as others ---------------------------------------------------------------------------------- */

static int64_t answer_of(PGconn *plain) {
    PGresult *result = PQgetResult(plain);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s", PQerrorMessage(plain));
    int64_t value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    assert_null(PQgetResult(plain));
    return value;
}

enum what { NEXT, FIRST };

static const char *text_of(enum what what, char text[128]) {
    if (what == FIRST)
        snprintf(text, 128, "SELECT \"%s\".first_fence()", site.schema);
    else
        snprintf(text, 128, "SELECT nextval('\"%s\".fences')", site.schema);
    return text;
}

static void ask(PGconn *plain, enum what what) {
    char text[128];
    assert_int_equal(PQsendQuery(plain, text_of(what, text)), 1);
}

/* No session draws while another one moves the sequence. The mover waits for sessions that draw, and continues from
 * their last number if that is ahead of the clock. Once the sequence is moved no session waits for the flush, and the
 * catalogue is unchanged. */
TEST(nobody_draws_meanwhile) {
    PGconn *drawer = plain_open(), *first = plain_open();
    make();
    int64_t row = sql_number("SELECT xmin::text::bigint FROM pg_sequence WHERE seqrelid = '{}.fences'::regclass");
    sql("ALTER FUNCTION {}.first_fence() SET lock_timeout = '60s'");
    plain_run(drawer, "SET statement_timeout = '30s'");
    plain_run(drawer, "BEGIN");
    ask(drawer, NEXT);
    int64_t last = answer_of(drawer) + 1000000000;
    plain_run(first, "BEGIN");
    ask(first, FIRST);
    sql_wait("SELECT count(*) FROM pg_locks WHERE relation = '{}.fences'::regclass AND NOT granted AND pid = %d AND "
             "mode = 'ShareRowExclusiveLock'",
             PQbackendPID(first));
    plain_run(drawer, "SELECT setval('{}.fences', last_value + 1000000000) FROM {}.fences");
    plain_run(drawer, "COMMIT");
    assert_true(answer_of(first) == last + 1);
    ask(drawer, NEXT);
    assert_true(answer_of(drawer) == last + 2);
    plain_run(first, "ROLLBACK");
    ask(drawer, NEXT);
    assert_true(answer_of(drawer) == last + 3);
    assert_true(sql_number("SELECT xmin::text::bigint FROM pg_sequence WHERE seqrelid = '{}.fences'::regclass") == row);
    PQfinish(drawer);
    PQfinish(first);
}

/* A transaction that draws and stays open delays no other client for long. */
TEST(an_open_transaction_is_reported) {
    struct link link;
    struct held held;
    PGconn *drawer = plain_open();
    make();
    sql("ALTER FUNCTION {}.first_fence() SET lock_timeout = '50ms'");
    plain_run(drawer, "BEGIN");
    ask(drawer, NEXT);
    answer_of(drawer);
    session_new(&link);
    held_new(&held, &link, "fence");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "another session has locked the sequence of fences"));
    link_end(&link);
    PQfinish(drawer);
}

static void wait_for_lock(struct link *link, struct held *held) {
    held_new(held, link, "fence");
    assert_int_equal(queue_up(link, held), DLOCK_EBUSY);
    sql_wait("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = %d",
             PQbackendPID(pg_of(link)->link));
    link->fd = PQsocket(pg_of(link)->link);
}

/* The first in the queue has the lock already when its fence has to wait for others, as for the commit of one that moves
 * the sequence while a standby is away. It keeps the lock, and does not go to the end of the queue, but can give up. */
TEST(who_waits_for_a_fence_keeps_the_lock) {
    make();
    sql("ALTER FUNCTION {}.first_fence() SET lock_timeout = '50ms'");
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        struct link holder, first, second;
        struct held held, held_first, held_second;
        struct dlock_wake wake;
        PGconn *drawer = plain_open();
        session_new(&holder);
        session_new(&first);
        session_new(&second);
        int64_t fence = grant(&holder, &held, DLOCK_EXCLUSIVE, 0);
        wait_for_lock(&first, &held_first);
        pg_of(&second)->session.drawn = true;
        wait_for_lock(&second, &held_second);
        plain_run(drawer, "SET idle_in_transaction_session_timeout = '30s'"); /* or a failure would hang */
        plain_run(drawer, "BEGIN");
        ask(drawer, NEXT);
        answer_of(drawer);
        assert_int_equal(release(&holder, &held), 0);
        for (int i = 0; i < 2; i++) {
            assert_true(dlock_wait_fd(first.fd, POLLIN, dlock_deadline_us(TIMEOUT_MS)));
            if (backend->wake(first.conn, &wake, &err) != 0) fail_msg("%s", err.message);
        }
        if (gives_up) {
            /* On a busy machine it fails, since the cancellation may be late. Then the core ends the session. */
            if (held_run(backend->release, &first, &held_first, 0, TIMEOUT_MS, &err) != 0) link_end(&first);
            wake_get(&second, &wake);
        } else {
            plain_run(drawer, "COMMIT");
            wake_get(&first, &wake);
            assert_int_equal(release(&first, &held_first), 0);
        }
        assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
        assert_true((int64_t)wake.fence > fence);
        PQfinish(drawer);
        link_end(&holder);
        link_end(&first);
        link_end(&second);
    }
}

/* One that has drawn, and waits for the lock of a client whose first fence waits for it: the client gives way, since the
 * server cannot take its lock away. */
TEST(a_deadlock_frees_the_lock) {
    const struct params params = {.more = {{"mode", "session"}, {"options", "-c deadlock_timeout=100ms"}}};
    char schema[80], text[400];
    int64_t key;
    struct link link;
    struct held held;
    PGconn *drawer = plain_open();
    make();
    snprintf(schema, sizeof schema, "\"%s\"", site.schema);
    assert_true(pg_key(schema, "fence", &key));
    plain_run(drawer, "SET deadlock_timeout = '60s'; SET statement_timeout = '20s'");
    plain_run(drawer, "BEGIN");
    ask(drawer, NEXT);
    answer_of(drawer);
    snprintf(text, sizeof text,
             "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks l WHERE l.relation = '%s.fences'::regclass AND NOT "
             "l.granted) LOOP PERFORM pg_sleep(0.001); END LOOP; PERFORM pg_advisory_lock(%lld); END $$",
             schema, (long long)key);
    assert_int_equal(PQsendQuery(drawer, text), 1);
    if (link_with(&link, &params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    held_new(&held, &link, "fence");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "refused"));
    link_end(&link);
    PGresult *result = PQgetResult(drawer);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    PQfinish(drawer);
}

enum { THREADS = 4, EACH = 300 };

struct drawer {
    PGconn *plain;
    enum what what;
    int64_t fences[EACH];
    char *failure;
};

static void *draw_in_thread(void *arg) {
    struct drawer *drawer = arg;
    char text[128];
    text_of(drawer->what, text);
    for (int i = 0; i < EACH && !drawer->failure; i++) {
        PGresult *result = PQexec(drawer->plain, text);
        if (PQresultStatus(result) != PGRES_TUPLES_OK)
            drawer->failure = strdup(PQresultErrorMessage(result));
        else
            drawer->fences[i] = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
        PQclear(result);
    }
    return NULL;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* First fences and later ones of many connections: each number once, and each connection's grow. */
TEST(no_number_comes_twice) {
    static struct drawer drawers[THREADS];
    static int64_t all[THREADS * EACH];
    pthread_t threads[THREADS];
    make();
    sql("ALTER FUNCTION {}.first_fence() SET lock_timeout = '60s'");
    for (int i = 0; i < THREADS; i++) {
        drawers[i].plain = plain_open();
        drawers[i].what = i % 2 ? FIRST : NEXT;
        assert_int_equal(pthread_create(&threads[i], NULL, draw_in_thread, &drawers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (drawers[i].failure) fail_msg("%s", drawers[i].failure);
        for (int k = 1; k < EACH; k++) assert_true(drawers[i].fences[k] > drawers[i].fences[k - 1]);
        memcpy(all + (size_t)i * EACH, drawers[i].fences, sizeof drawers[i].fences);
        PQfinish(drawers[i].plain);
    }
    qsort(all, THREADS * EACH, sizeof *all, compare);
    for (int i = 1; i < THREADS * EACH; i++) assert_true(all[i] > all[i - 1]);
}

/* Even if a role's settings turn that off. */
TEST(a_move_is_flushed) {
    char end[32];
    PGconn *plain = plain_open();
    make();
    plain_run(plain, "SET synchronous_commit = off");
    plain_run(plain, "BEGIN");
    ask(plain, FIRST);
    answer_of(plain);
    PGresult *result = PQexec(plain, "SELECT pg_current_wal_insert_lsn()");
    snprintf(end, sizeof end, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    plain_run(plain, "COMMIT");
    assert_int_equal(sql_number("SELECT (pg_current_wal_flush_lsn() >= '%s')::integer", end), 1);
    PQfinish(plain);
}

/* ---- rights and versions ------------------------------------------------------------------------------------------ */

/* Not only one that asks without waiting: asking again would not help, and would never end. The server is far away, so
 * that no answer is there at once. */
TEST(one_that_waits_is_told_what_it_may_not) {
    char app[80];
    struct relay *relay = relay_new(site.port);
    const struct params params = {
        .user = app, .host = "127.0.0.1", .port = relay_port(relay), .more = {{"mode", "session"}}};
    struct link link;
    struct held held;
    make();
    snprintf(app, sizeof app, "fences_wait_%s", site.schema);
    sql("CREATE ROLE %s LOGIN", app);
    sql("GRANT USAGE ON SCHEMA {} TO %s", app);
    sql("GRANT USAGE ON SEQUENCE {}.fences TO %s", app);
    relay_delay(relay, 30);
    if (link_with(&link, &params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    held_new(&held, &link, "fence");
    assert_int_equal(held_run(backend->acquire, &link, &held, DLOCK_CLAIM_QUEUE, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "first_fence"));
    assert_non_null(strstr(err.message, "its DBA has to run dlock's postgresql-session.sql"));
    link_end(&link);
    relay_end(relay);
    sql("DROP OWNED BY %s", app);
    sql("DROP ROLE %s", app);
}

/* It stays, also if it does not have what is called here. */
TEST(a_newer_version_stays) {
    struct link link;
    struct held held;
    make();
    sql("DROP FUNCTION {}.first_fence()");
    sql("CREATE OR REPLACE FUNCTION {}.session_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2'");
    session_new(&link);
    held_new(&held, &link, "fence");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
    assert_int_equal(sql_number("SELECT {}.session_version()"), 2);
    link_end(&link);
}

TESTS(nothing_there, NULL, site_begin_sessions, site_end)
