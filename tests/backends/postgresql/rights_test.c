/* Rights: the objects are created on first use, or by a DBA; a role that has only the printed grants is enough. */
#include "site.h"

#include <pthread.h>
#include <unistd.h>

#define CLIENTS 6

static char app[64];

static void drop_all(void) {
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    sql("DO $$ BEGIN IF to_regrole('%s') IS NOT NULL THEN DROP OWNED BY %s; DROP ROLE %s; END IF; END $$", app, app,
        app);
}

static int role_begin(void **state) {
    (void)state;
    snprintf(app, sizeof app, "dlock_app_%d", (int)getpid());
    drop_all();
    sql("CREATE ROLE %s LOGIN", app);
    return 0;
}

static int role_end(void **state) {
    (void)state;
    drop_all();
    return 0;
}

static int try_as_app(struct link *link, char letter, struct dlock_error *err) {
    const struct params params = {.user = app};
    return link_with(link, &params, letter, TIMEOUT_MS, err);
}

/* A line of schema.sql for each of its grants, with our schema and role, as a DBA would run them. */
static void grant_as_printed(void) {
    char line[256];
    int grants = 0;
    FILE *file = fopen(DLOCK_SCHEMA_SQL, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        static const char start[] = "--     GRANT ";
        char *schema = strstr(line, "\"dlock\""), *role = strstr(line, " TO app;");
        if (strncmp(line, start, sizeof start - 1) != 0) continue;
        assert_true(schema && role);
        sql("%.*s{}%.*s TO %s", (int)(schema - (line + 3)), line + 3, (int)(role - (schema + 7)), schema + 7, app);
        grants++;
    }
    fclose(file);
    assert_int_equal(grants, 4);
}

static void make_as_dba(void) {
    LINK(link, 'f');
    HELD(held, &link, "dba");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
}

static bool is_there(void) {
    return sql_number("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'") == 1;
}

/* The role may connect, and not lock: the message says `what` to do. */
static void assert_no_right_to_lock(struct link *link, const char *what) {
    struct dlock_error err;
    int fd;
    if (try_as_app(link, 'a', &err) != 0) fail_msg("%s", err.message);
    HELD(held, link, "app");
    assert_int_equal(held_run(backend->acquire, link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, what));
    assert_int_equal(backend->listen(link->conn, &fd, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, what));
    link_end(link);
}

/* A whole life of two locks as the role. */
static void live_as_app(void) {
    SCOPED_LINK link, ear;
    struct dlock_wake wake;
    struct dlock_error err;
    if (try_as_app(&link, 'a', &err) != 0) fail_msg("%s", err.message);
    if (try_as_app(&ear, 'a', &err) != 0) fail_msg("%s", err.message);
    link_listen(&ear);
    HELD(held, &link, "app");
    HELD(waiter, &link, "app");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(queue_up(&link, &waiter), DLOCK_EBUSY);
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    wake_get(&ear, &wake);
    assert_string_equal(wake.token, waiter.token);
    assert_int_equal(backend->break_lock(link.conn, "app", TIMEOUT_MS, &err), 0);
}

TEST(created_on_first_use) {
    sql("GRANT CREATE ON DATABASE postgres TO %s", app);
    live_as_app();
    assert_true(is_there());
    sql("REVOKE CREATE ON DATABASE postgres FROM %s", app);
    live_as_app();
}

/* An empty schema that belongs to the role is also accepted. */
TEST(created_in_a_given_schema) {
    sql("CREATE SCHEMA {} AUTHORIZATION %s", app);
    live_as_app();
}

TEST(no_right_to_create) {
    struct link link;
    assert_no_right_to_lock(&link, "its DBA has to run what `dlock schema postgresql` prints");
    assert_false(is_there());
}

TEST(no_right_to_use) {
    struct dlock_error err;
    SCOPED_LINK link;
    make_as_dba();
    assert_no_right_to_lock(&link, "GRANTs at the end of what `dlock schema postgresql` prints");
    sql("GRANT USAGE ON SCHEMA {} TO %s", app);
    assert_no_right_to_lock(&link, "GRANTs at the end of what `dlock schema postgresql` prints");
    /* The two views need separate grants. */
    sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {} TO %s", app);
    assert_int_equal(try_as_app(&link, 'a', &err), 0);
    HELD(held, &link, "app");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "GRANTs at the end of what `dlock schema postgresql` prints"));
}

/* Where there is no schema there is no lock, and only who takes one makes it. */
TEST(looking_creates_nothing) {
    struct dlock_error err;
    char cursor[256] = "";
    LINK(link, 'a');
    HELD(held, &link, "nothing");
    assert_int_equal(backend->check(link.conn, ignore_finding, NULL, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->inspect(link.conn, "nothing", ignore_holder, NULL, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->list(link.conn, "", cursor, ignore_holder, NULL, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->break_lock(link.conn, "nothing", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    assert_false(is_there());
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(is_there());
    assert_int_equal(sql_number("SELECT {}.schema_version()"), 1);
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
}

TEST(the_printed_grants_are_enough) {
    make_as_dba();
    grant_as_printed();
    live_as_app();
}

/* … and no more than that: only through the functions and the two views, which its own objects do not deceive. */
TEST(the_printed_grants_are_no_more) {
    char text[512];
    make_as_dba();
    grant_as_printed();
    snprintf(text, sizeof text, "SET ROLE %s", app);
    SCOPED_PLAIN *plain = plain_open();
    plain_run(plain, text);
    PGresult *result;
    static const char *const refused[] = {"SELECT FROM %s.locks",     "DELETE FROM %s.queue",
                                          "SELECT FROM %s.listeners", "CREATE TABLE %s.mine ()",
                                          "SELECT %s.sweep()",        "SELECT %s.lock_row('x', 1)"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *at = strstr(refused[i], "%s");
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - refused[i]), refused[i], site.schema, at + 2);
        result = PQexec(plain, text);
        assert_int_equal(PQresultStatus(result), PGRES_FATAL_ERROR);
        PQclear(result);
    }
    plain_run(plain, "CREATE TEMP TABLE locks (LIKE pg_class)");
    plain_run(plain, "CREATE TEMP TABLE queue (LIKE pg_class)");
    plain_run(
        plain,
        "SELECT {}.acquire(ARRAY['temp'::bytea], ARRAY['t'], ARRAY[60000], ARRAY[0], ARRAY[0], ARRAY[0], 0, 1000)");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'temp' AND token = 't'"), 1);
    plain_run(plain, "SELECT {}.release(ARRAY['temp'::bytea], ARRAY['t'], 1000)");
    sql("CREATE SCHEMA of_app_{} AUTHORIZATION %s", app);
    plain_run(plain, "CREATE FUNCTION of_app_{}.date_part(text, timestamptz) RETURNS float8 LANGUAGE sql AS 'SELECT "
                     "1e9::float8'");
    plain_run(plain, "SET search_path = of_app_{}, pg_catalog");
    plain_run(plain, "UPDATE {}.take SET name = 'temp', token = 'u', lease_ms = 60000, flags = 0, wait_ms = 1000");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'temp' AND token = 'u' AND fence <= "
                                "{}.clock_us() AND expires_us BETWEEN {}.clock_us() AND {}.clock_us() + 60000000"),
                     1);
    sql("DROP SCHEMA of_app_{} CASCADE");
}

/* Settings of a role that would break something. */
TEST(settings_of_the_role) {
    SCOPED_LINK link;
    struct dlock_error err;
    make_as_dba();
    grant_as_printed();
    sql("ALTER ROLE %s SET default_transaction_isolation = 'serializable'", app);
    sql("ALTER ROLE %s SET search_path = 'nowhere'", app);
    sql("ALTER ROLE %s SET lock_timeout = 1", app);
    sql("ALTER ROLE %s SET idle_session_timeout = 1000", app);
    sql("ALTER ROLE %s SET bytea_output = 'escape'", app);
    live_as_app();
    assert_int_equal(try_as_app(&link, 'a', &err), 0);
    sleep_ms(1500);
    HELD(held, &link, "app");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
    /* Without a session of our own the level cannot be set, and must not go unnoticed. */
    const struct params off = {.user = app, .more = {{"listen", "off"}}};
    assert_int_equal(link_with(&link, &off, 'a', TIMEOUT_MS, &err), 0);
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "default_transaction_isolation"));
}

static void *connect_in_thread(void *arg) {
    struct link *link = arg;
    const struct params params = {.more = {{link->tokens % 2 ? "listen" : NULL, "off"}}};
    struct dlock_error err;
    char letter = (char)('0' + link->tokens);
    int rc = link_with(link, &params, letter, 20000, &err);
    struct held held;
    if (rc == 0) {
        held_new(&held, link, "first");
        rc = held_run(backend->acquire, link, &held, 0, 20000, &err);
    }
    return rc == 0 ? NULL : strdup(err.message);
}

/* Several clients find nothing there, at the same moment. */
TEST(created_by_several_at_once) {
    for (int round = 0; round < 3; round++) {
        struct link links[CLIENTS];
        pthread_t threads[CLIENTS];
        sql("DROP SCHEMA IF EXISTS {} CASCADE");
        memset(links, 0, sizeof links);
        for (int i = 0; i < CLIENTS; i++) {
            links[i].tokens = i;
            assert_int_equal(pthread_create(&threads[i], NULL, connect_in_thread, &links[i]), 0);
        }
        for (int i = 0; i < CLIENTS; i++) {
            void *failure;
            pthread_join(threads[i], &failure);
            if (failure) fail_msg("%s", (char *)failure);
            link_end(&links[i]);
        }
    }
}

/* Dropped under a client that has prepared its statements. */
TEST(created_again) {
    LINK(link, 'a');
    HELD(held, &link, "again");
    assert_int_equal(acquire(&link, &held), 0);
    sql("DROP SCHEMA {} CASCADE");
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
}

/* Objects of a newer dlock are left alone. */
TEST(a_newer_version_stays) {
    struct dlock_error err;
    make_as_dba();
    sql("CREATE OR REPLACE FUNCTION {}.schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2'");
    LINK(link, 'a');
    HELD(held, &link, "newer");
    assert_int_equal(acquire(&link, &held), 0);
    /* One that does not have what we call any more. */
    sql("DROP FUNCTION {}.renew");
    assert_int_equal(held_run(backend->renew, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
    assert_int_equal(sql_number("SELECT {}.schema_version()"), 2);
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */

/* A superuser who is not the stranger finds this schema: the error, which says whose it is. */
static void assert_refused_as_a_strangers(void) {
    struct link link;
    struct dlock_error err;
    link_new(&link, 'a');
    HELD(held, &link, "strange");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "belongs to"));
    assert_non_null(strstr(err.message, app));
    link_end(&link);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_roles WHERE rolname = '%s' AND rolsuper", app), 0);
}

static PGconn *open_as_app(void) {
    char text[128];
    PGconn *plain = plain_open();
    snprintf(text, sizeof text, "SET SESSION AUTHORIZATION %s", app);
    plain_run(plain, text);
    return plain;
}

#define MAKES_SUPERUSERS                                                                                         \
    "LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE ' || session_user || ' SUPERUSER'; EXECUTE format('ALTER " \
    "ROLE %I SUPERUSER', (SELECT rolname FROM pg_roles WHERE rolname LIKE 'dlock\\_app\\_%')); RETURN 3; END $$"

/* A role that may create schemas creates ours first, with its own version of a function that the script, or a client,
 * would call. */
TEST(a_strangers_schema_is_refused) {
    sql("GRANT CREATE ON DATABASE postgres TO %s", app);
    PGconn *stranger = open_as_app();
    plain_run(stranger, "CREATE SCHEMA {}");
    assert_refused_as_a_strangers();
    plain_run(stranger, "CREATE FUNCTION {}.schema_version() RETURNS integer " MAKES_SUPERUSERS);
    assert_refused_as_a_strangers();
    plain_run(stranger, "CREATE TABLE {}.locks (name bytea)");
    assert_refused_as_a_strangers();
    PQfinish(stranger);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_class WHERE relnamespace = '{}'::regnamespace"), 1);
}

/* In a schema that is the DBA's, but open to others: whatever they have made there. */
TEST(a_strangers_objects_are_refused) {
    static const char *const objects[] = {
        "CREATE FUNCTION {}.schema_version() RETURNS integer " MAKES_SUPERUSERS,
        "CREATE FUNCTION {}.begin_call(integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "CREATE FUNCTION {}.format(text, integer) RETURNS text LANGUAGE sql AS 'SELECT $1'",
        "CREATE TABLE {}.queue (name bytea)",
        "CREATE VIEW {}.listeners AS SELECT 1",
        "CREATE TYPE {}.shares AS (name bytea)",
        "CREATE OPERATOR {}.|| (LEFTARG = text, RIGHTARG = integer, FUNCTION = pg_catalog.\"repeat\")",
    };
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        sql("DROP SCHEMA IF EXISTS {} CASCADE");
        sql("CREATE SCHEMA {}");
        sql("GRANT ALL ON SCHEMA {} TO %s", app);
        PGconn *stranger = open_as_app();
        plain_run(stranger, objects[i]);
        PQfinish(stranger);
        assert_refused_as_a_strangers();
    }
}

/* The file is also for DBAs: psql accepts it, twice. */
TEST(psql_takes_the_file) {
    char command[1024];
    snprintf(command, sizeof command,
             "sed 's/\"dlock\"/\"%s\"/g' '%s' | '%s/psql' -X -q -v ON_ERROR_STOP=1 -h %s -p %d -U dlock postgres 2>&1 "
             "| grep -v NOTICE",
             site.schema, DLOCK_SCHEMA_SQL, site.programs, site.host, site.port);
    for (int i = 0; i < 2; i++) assert_int_not_equal(system(command), 0); /* grep finds nothing */
    grant_as_printed();
    live_as_app();
}

TESTS(role_begin, role_end, site_begin, site_end)
