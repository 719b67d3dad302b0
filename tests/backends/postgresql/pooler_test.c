/* Through pgbouncer, which pooler.sh has started. */
#include "site.h"

static struct dlock_error err;

static int pooler_port(void) {
    const char *port = getenv("DLOCK_TEST_POOLER");
    assert_non_null(port);
    return atoi(port);
}

static int link_through(struct link *link, const char *database, const char *listen, char letter) {
    struct params params = {.path = database, .port = pooler_port()};
    if (listen) params.more[0] = (struct dlock_param){"listen", listen};
    return link_with(link, &params, letter, TIMEOUT_MS, &err);
}

/* Unless listening is turned off, a pooler is an error: no client waits for wake-ups that cannot come. */
TEST(a_pooler_is_noticed) {
    static const char *const databases[] = {"/transactions", "/sessions"};
    struct link link;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(link_through(&link, databases[i], NULL, 'a'), DLOCK_ENOTSUP);
        assert_non_null(strstr(err.message, "listen=off"));
        link_end(&link);
    }
}

/* The promise does not hold: a client finds the statements that another one has prepared. */
TEST(listening_against_better_knowledge) {
    struct link one, two;
    assert_int_equal(link_through(&one, "/transactions", "on", 'a'), 0);
    assert_int_equal(link_through(&two, "/transactions", "on", 'b'), 0);
    HELD(held, &one, "mixed");
    HELD(other, &two, "mixed");
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(held_run(backend->acquire, &two, &other, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "listen=off"));
    link_end(&one);
    link_end(&two);
    /* Such sessions are not what the next test is about. */
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid() "
        "AND client_port IS NOT NULL AND query LIKE '%%{}%%'");
    sleep_ms(200);
}

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

/* Our state that would outlive a statement, on each of the pooler's three server connections. */
static void assert_nothing_left(void) {
    static const char *const nothing[] = {
        "SELECT count(*) FROM pg_prepared_statements", "SELECT count(*) FROM pg_listening_channels()",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name ~ 'isolation|timeout|commit|path|alive'"};
    PGconn *plain[3];
    char port[12];
    snprintf(port, sizeof port, "%d", pooler_port());
    const char *const keys[] = {"host", "port", "user", "dbname", NULL};
    const char *const values[] = {"127.0.0.1", port, "dlock", "transactions", NULL};
    for (int i = 0; i < 3; i++) {
        plain[i] = PQconnectdbParams(keys, values, 0);
        plain_run(plain[i], "BEGIN");
        for (size_t j = 0; j < sizeof nothing / sizeof *nothing; j++) {
            PGresult *result = PQexec(plain[i], nothing[j]);
            assert_int_equal(PQntuples(result), 1);
            if (strcmp(PQgetvalue(result, 0, 0), "0") != 0) fail_msg("%s: %s", nothing[j], PQgetvalue(result, 0, 0));
            PQclear(result);
        }
    }
    for (int i = 0; i < 3; i++) PQfinish(plain[i]);
}

TEST(without_listening) {
    enum { LINKS = 8, ROUNDS = 20 };
    struct link links[LINKS];
    struct held held[LINKS];
    char cursor[256] = "";
    int fd, n = 0;
    uint64_t fence = 0;
    sql("DROP SCHEMA IF EXISTS {} CASCADE"); /* also created through it */
    for (int i = 0; i < LINKS; i++)
        if (link_through(&links[i], "/transactions", "off", (char)('0' + i)) != 0) fail_msg("%s", err.message);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LINKS; i++) {
            held_new(&held[i], &links[i], "pooled");
            assert_int_equal(acquire(&links[i], &held[i]), i == 0 ? 0 : DLOCK_EBUSY);
            assert_int_equal(renew(&links[i], &held[i]), i == 0 ? 0 : DLOCK_ELOST);
        }
        assert_true(held[0].claim.fence == 0 || held[0].claim.fence > fence);
        assert_int_equal(release(&links[0], &held[0]), 0);
        assert_int_equal(acquire(&links[1], &held[1]), 0);
        assert_true(held[1].claim.fence > fence);
        fence = held[1].claim.fence;
        assert_int_equal(release(&links[2], &held[1]), 0); /* by its token, through whatever connection */
    }
    assert_int_equal(acquire(&links[3], &held[3]), 0);
    assert_int_equal(backend->inspect(links[4].conn, "pooled", ignore, &n, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->list(links[5].conn, "poo", cursor, ignore, &n, TIMEOUT_MS, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(backend->break_lock(links[6].conn, "pooled", TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->listen(links[7].conn, &fd, TIMEOUT_MS, &err), DLOCK_ENOTSUP);
    assert_non_null(strstr(err.message, "listen=off"));
    /* Without wakes, no client queues. */
    assert_int_equal(acquire(&links[0], &held[0]), 0);
    assert_int_equal(queue_up(&links[1], &held[1]), DLOCK_EBUSY);
    assert_int_equal(held[1].claim.retry_ms, -1);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.queue"), 0);
    assert_int_equal(release(&links[0], &held[0]), 0);
    for (int i = 0; i < LINKS; i++) link_end(&links[i]);
    assert_nothing_left();
}

/* A pooler of whole sessions does no harm, once the URI says that it is one. */
TEST(whole_sessions) {
    SCOPED_LINK link, ear;
    struct dlock_wake wake;
    assert_int_equal(link_through(&link, "/sessions", "on", 'a'), 0);
    assert_int_equal(link_through(&ear, "/sessions", "on", 'a'), 0);
    link_listen(&ear);
    HELD(held, &link, "session");
    HELD(waiter, &link, "session");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(queue_up(&link, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&link, &held), 0);
    wake_get(&ear, &wake);
    assert_string_equal(wake.token, waiter.token);
    assert_int_equal(renew(&link, &waiter), 0);
    assert_int_equal(release(&link, &waiter), 0);
}

TESTS(NULL, NULL, site_begin, site_end)
