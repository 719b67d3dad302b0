/* Foreign code: objects that another role has made in a schema on the search_path never run in a client's session, nor
 * with the rights of the owner of our functions; and who may read everything learns no secret. */
#include "site.h"

#include <unistd.h>

static struct dlock_error err;
static char database[80];
static const struct dlock_backend *by_rows, *by_sessions;

static PGconn *database_open(void) {
    char port[12];
    snprintf(port, sizeof port, "%d", site.port);
    const char *const keys[] = {"host", "port", "user", "dbname", NULL};
    const char *const values[] = {site.host, port, "dlock", database, NULL};
    PGconn *plain = PQconnectdbParams(keys, values, 0);
    if (PQstatus(plain) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(plain));
    return plain;
}

/* A database where every name that our SQL might use unqualified belongs to another role. */
static int database_begin(void **state) {
    char command[1024];
    (void)state;
    by_rows = backend;
    by_sessions = &pg_session;
    snprintf(database, sizeof database, "foreign_%s", site.schema);
    sql("DROP DATABASE IF EXISTS foreign_{} WITH (FORCE)");
    sql("CREATE DATABASE foreign_{} TEMPLATE template0");
    snprintf(command, sizeof command, "'%s/psql' -X -q -v ON_ERROR_STOP=1 -h %s -p %d -U dlock -f '%s' %s",
             site.programs, site.host, site.port, DLOCK_FOREIGN_SQL, database);
    assert_int_equal(system(command), 0);
    sql("ALTER DATABASE foreign_{} SET search_path = public, pg_catalog");
    return 0;
}

static int database_end(void **state) {
    (void)state;
    backend = by_rows;
    sql("DROP DATABASE IF EXISTS foreign_{} WITH (FORCE)");
    return 0;
}

static void database_link(struct link *link, char letter, struct dlock_param key, struct dlock_param other) {
    char path[96];
    snprintf(path, sizeof path, "/%s", database);
    const struct params params = {.path = path, .more = {key, other}};
    if (link_with(link, &params, letter, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static void assert_nothing_ran(void) {
    PGconn *plain = database_open();
    PGresult *ran = PQexec(plain, "SELECT r.is_called FROM public.ran r");
    assert_string_equal(PQgetvalue(ran, 0, 0), "f");
    PQclear(ran);
    PQfinish(plain);
}

static void look_around(struct link *link) {
    char cursor[256] = "";
    if (backend->inspect) {
        assert_int_equal(backend->inspect(link->conn, "foreign", ignore_holder, NULL, TIMEOUT_MS, &err), 0);
        assert_int_equal(backend->list(link->conn, "f", cursor, ignore_holder, NULL, TIMEOUT_MS, &err), 0);
    }
    if (backend->check(link->conn, ignore_finding, NULL, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* Every call of the default mode: alone and in a batch, with wake-ups in the call's transaction and apart, with and
 * without its own session. */
TEST(rows) {
    for (int off = 0; off < 2; off++) {
        struct link link, other, ear;
        struct held held, waiter, reader;
        struct dlock_wake wake;
        const struct dlock_param listen =
            off ? (struct dlock_param){"listen", "off"} : (struct dlock_param){NULL, NULL};
        database_link(&link, 'a', listen, (struct dlock_param){NULL, NULL});
        database_link(&other, 'b', listen, (struct dlock_param){NULL, NULL});
        database_link(&ear, 'b', (struct dlock_param){NULL, NULL}, (struct dlock_param){NULL, NULL});
        held_new(&held, &link, "foreign");
        assert_int_equal(acquire(&link, &held), 0);
        link_listen(&ear); /* the objects are there now */
        for (int apart = 0; apart < 2 && !off; apart++) {
            pg_of(&link)->apart_until_us = apart ? INT64_MAX : 0;
            held_new(&waiter, &other, "foreign");
            assert_int_equal(queue_up(&other, &waiter), DLOCK_EBUSY);
            assert_int_equal(renew(&link, &held), 0);
            assert_int_equal(release(&link, &held), 0);
            wake_get(&ear, &wake);
            assert_int_equal(release(&other, &waiter), 0);
            assert_int_equal(acquire(&link, &held), 0);
        }
        assert_int_equal(acquire(&other, &waiter), off ? DLOCK_EBUSY : DLOCK_EBUSY);
        look_around(&link);
        assert_int_equal(backend->break_lock(link.conn, "foreign", TIMEOUT_MS, &err), 0);
        held_new(&reader, &link, "foreign");
        reader.claim.mode = DLOCK_SHARED;
        assert_int_equal(acquire(&link, &reader), 0);
        assert_int_equal(renew(&link, &reader), 0);
        assert_int_equal(release(&link, &reader), 0);
        link_end(&link);
        link_end(&other);
        link_end(&ear);
    }
    assert_nothing_ran();
}

TEST(sessions) {
    const struct dlock_param mode = {"mode", "session"}, schema = {"schema", "foreign_sessions"};
    struct link link, other;
    struct held held, waiter;
    struct dlock_wake wake;
    backend = by_sessions;
    database_link(&link, 'a', mode, schema);
    database_link(&other, 'b', mode, schema);
    for (int i = 0; i < 3; i++) { /* the first time nothing is prepared, and a first fence is drawn */
        held_new(&held, &link, "foreign");
        held_new(&waiter, &other, "foreign");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(queue_up(&other, &waiter), DLOCK_EBUSY);
        other.fd = PQsocket(pg_of(&other)->link);
        assert_int_equal(renew(&link, &held), 0);
        held.claim.mode = DLOCK_SHARED;
        assert_int_equal(renew(&link, &held), 0); /* a downgrade */
        assert_int_equal(release(&link, &held), 0);
        wake_get(&other, &wake);
        assert_int_equal(release(&other, &waiter), 0);
    }
    look_around(&link);
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(backend->break_lock(other.conn, "foreign", TIMEOUT_MS, &err), 0);
    link_end(&link);
    link_end(&other);
    backend = by_rows;
    assert_nothing_ran();
}

/* ---- who may create or read -------------------------------------------------------------------------------------- */

struct advice {
    const char *part;
    bool found;
};

static int look_for(const struct dlock_finding *finding, void *arg) {
    struct advice *wanted = arg;
    wanted->found = wanted->found || (finding->health == DLOCK_WEAK && strstr(finding->what, wanted->part));
    return 0;
}

static bool doctor_says(struct link *link, const char *part) {
    struct advice wanted = {part, false};
    assert_int_equal(backend->check(link->conn, look_for, &wanted, TIMEOUT_MS, &err), 0);
    return wanted.found;
}

/* Our functions search their schema: where others may create objects, we create none, in either mode. */
TEST(an_open_schema_is_refused) {
    struct link link;
    struct held held;
    for (int mode = 0; mode < 2; mode++) {
        sql("DROP SCHEMA IF EXISTS {} CASCADE");
        sql("CREATE SCHEMA {}");
        sql("GRANT CREATE ON SCHEMA {} TO PUBLIC");
        const struct params params = {.more = {{"mode", mode ? "session" : "rows"}}};
        backend = mode ? by_sessions : by_rows;
        assert_int_equal(link_with(&link, &params, 'a', TIMEOUT_MS, &err), 0);
        held_new(&held, &link, "open");
        assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
        assert_non_null(strstr(err.message, "REVOKE CREATE ON SCHEMA"));
        assert_non_null(strstr(err.message, "FROM PUBLIC"));
        assert_int_equal(sql_number("SELECT count(*) FROM pg_class WHERE relnamespace = '{}'::regnamespace"), 0);
        assert_true(doctor_says(&link, "others may create objects"));
        sql("REVOKE CREATE ON SCHEMA {} FROM PUBLIC");
        assert_int_equal(acquire(&link, &held), 0);
        assert_false(doctor_says(&link, "others may create objects"));
        sql("GRANT CREATE ON SCHEMA {} TO PUBLIC"); /* granted later, by another role */
        assert_true(doctor_says(&link, "others may create objects"));
        link_end(&link);
    }
    backend = by_rows;
    sql("DROP SCHEMA {} CASCADE");
}

TEST(doctor_names_a_schema_of_somebody_else) {
    struct held held;
    LINK(link, 'a');
    held_new(&held, &link, "owner");
    assert_int_equal(acquire(&link, &held), 0);
    assert_false(doctor_says(&link, "neither the owner"));
    sql("CREATE ROLE owner_of_{}");
    sql("ALTER SCHEMA {} OWNER TO owner_of_{}");
    assert_true(doctor_says(&link, "neither the owner"));
    sql("DROP SCHEMA {} CASCADE");
    sql("DROP ROLE owner_of_{}");
}

TEST(doctor_names_tables_that_forget) {
    struct link link;
    struct held held;
    link_new(&link, 'a');
    held_new(&held, &link, "forgets");
    assert_int_equal(acquire(&link, &held), 0);
    assert_false(doctor_says(&link, "unlogged"));
    assert_false(doctor_says(&link, "publication"));
    sql("ALTER TABLE {}.locks SET UNLOGGED");
    assert_true(doctor_says(&link, "unlogged"));
    sql("ALTER TABLE {}.locks SET LOGGED");
    sql("CREATE PUBLICATION publication_{} FOR TABLE {}.locks");
    assert_true(doctor_says(&link, "publication"));
    sql("DROP PUBLICATION publication_{}");
    link_end(&link);
    sql("DROP SCHEMA {} CASCADE");
}

/* A role that may read everything and change nothing: with the secret it could send wake-ups that are believed. */
TEST(a_reader_learns_no_secret) {
    EAR(ear, 'b');
    assert_int_equal(sql_number("SELECT count(secret) FROM {}.listeners"), 1);
    sql("CREATE ROLE reader_{}");
    sql("GRANT pg_read_all_data TO reader_{}");
    sql("SET ROLE reader_{}");
    int64_t rows_seen = sql_number("SELECT count(*) FROM {}.listeners");
    sql("RESET ROLE");
    sql("DROP ROLE reader_{}");
    assert_int_equal(rows_seen, 0);
}

static int begin(void **state) {
    return site_begin(state) || database_begin(state);
}

static int end(void **state) {
    return database_end(state) || site_end(state);
}

TESTS(NULL, NULL, begin, end)
