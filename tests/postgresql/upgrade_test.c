/* From version 3 of the objects to this one, in place: what is held stays held, what waits goes on waiting, and clients
 * of both share the schema. Those of version 3 are SQL here. */
#include "site.h"

#include <pthread.h>
#include <stdatomic.h>

#define HOLDER "333333333333333333333333.1@old:1"
#define WAITER "333333333333333333333333.2@old:1"

/* Runs a script, as psql would, with the program's schema. */
static void run_script(const char *path) {
    char command[1024];
    snprintf(command, sizeof command,
             "sed 's/\"dlock\"/\"%s\"/g' '%s' | '%s/psql' -X -q -v ON_ERROR_STOP=1 -h %s -p %d -U dlock postgres 2>&1 "
             "| grep -v NOTICE",
             site.schema, path, site.programs, site.host, site.port);
    assert_int_not_equal(system(command), 0); /* grep finds nothing */
}

static int old_begin(void **state) {
    (void)state;
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    run_script(DLOCK_SCHEMA_3_SQL);
    assert_int_equal(sql_number("SELECT {}.schema_version()"), 3);
    return 0;
}

/* Asks as a client of version 3; the fence, 0 for busy. */
static int64_t old_acquire(const char *name, const char *token, int mode, int flags) {
    return sql_number("SELECT granted FROM {}.acquire(ARRAY['%s'::bytea], ARRAY['%s'], ARRAY[10000], ARRAY[%d], "
                      "ARRAY[0], ARRAY[%d], 5000)",
                      name, token, mode, flags);
}

static bool old_renew(const char *name, const char *token) {
    return sql_number("SELECT count(server_us) FROM {}.renew(ARRAY['%s'::bytea], ARRAY['%s'], ARRAY[10000], ARRAY[0], "
                      "5000)",
                      name, token) == 1;
}

static bool old_release(const char *name, const char *token) {
    return sql_number("SELECT ended::integer FROM {}.release(ARRAY['%s'::bytea], ARRAY['%s'], 5000)", name, token) == 1;
}

static PGconn *old_listen(void) {
    PGconn *ear = plain_open();
    plain_run(ear, "SELECT {}.listen('333333333333333333333333', 'old_ear')");
    return ear;
}

/* The notification that a client of version 3 waits for. */
static void old_hears(PGconn *ear, const char *start, const char *end) {
    PGnotify *notice = NULL;
    for (int64_t until = now_ms() + 5000; !notice && now_ms() < until; sleep_ms(10)) {
        PQconsumeInput(ear);
        notice = PQnotifies(ear);
    }
    assert_non_null(notice);
    assert_int_equal(strncmp(notice->extra, start, strlen(start)), 0);
    size_t length = strlen(notice->extra);
    assert_string_equal(notice->extra + length - strlen(end), end);
    PQfreemem(notice);
}

static void what_is_held_and_waited_for_stays(void **state) {
    struct link link;
    struct held mine;
    (void)state;
    PGconn *ear = old_listen();
    int64_t fence = old_acquire("stays", HOLDER, 0, 0);
    assert_true(fence > 0);
    assert_int_equal(old_acquire("stays", WAITER, 0, 1), 0);
    /* The first client of this version brings the schema up to it. */
    link_new(&link, 'a');
    held_new(&mine, &link, "stays");
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_int_equal(sql_number("SELECT {}.schema_version()"), PG_SCHEMA_VERSION);
    assert_true(old_renew("stays", HOLDER));
    assert_int_equal(old_acquire("stays", HOLDER, 0, 0), fence);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.queue"), 1);
    assert_true(old_release("stays", HOLDER));
    old_hears(ear, "granted " WAITER " ", " 7374617973");
    assert_true(old_release("stays", WAITER));
    assert_int_equal(acquire(&link, &mine), 0);
    PQfinish(ear);
    link_end(&link);
}

/* Locks change hands between the two, both ways, and each is told as it understands it. */
static void both_share_the_schema(void **state) {
    struct link link, other;
    struct held mine;
    struct dlock_wake wake;
    (void)state;
    run_script(DLOCK_SCHEMA_SQL);
    PGconn *ear = old_listen();
    link_new(&link, 'a');
    link_new(&other, 'a');
    link_listen(&other);
    held_new(&mine, &link, "shared");
    assert_true(old_acquire("shared", HOLDER, 0, 0) > 0);
    assert_int_equal(queue_up(&link, &mine), DLOCK_EBUSY);
    assert_true(old_release("shared", HOLDER));
    wake_get(&other, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, mine.token);
    assert_int_equal(renew(&link, &mine), 0);
    assert_int_equal(old_acquire("shared", WAITER, 0, 3), 0);
    assert_int_equal(release(&link, &mine), 0);
    old_hears(ear, "granted " WAITER " ", " 736861726564");
    /* It lingers: and hears who asks. */
    held_new(&mine, &link, "shared");
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    old_hears(ear, "wanted 736861726564", " 736861726564");
    assert_true(sql_number("SELECT {}.break('shared', 5000)::integer") == 1);
    assert_true(sql_number("SELECT {}.break('shared', 5000)::integer") == 0);
    PQfinish(ear);
    link_end(&link);
    link_end(&other);
}

/* A waiter of version 3 asks too rarely to be taken for dead for that. */
static void the_old_need_not_ask_often(void **state) {
    struct link link, ear, live;
    struct held first, lives;
    (void)state;
    run_script(DLOCK_SCHEMA_SQL);
    PGconn *old = old_listen();
    link_new(&link, 'a');
    link_new(&ear, 'a');
    link_new(&live, 'b');
    link_listen(&ear);
    held_new(&first, &link, "rarely");
    held_new(&lives, &live, "rarely");
    assert_true(old_acquire("rarely", HOLDER, 0, 0) > 0);
    assert_int_equal(queue_up(&link, &first), DLOCK_EBUSY);
    assert_int_equal(old_acquire("rarely", WAITER, 0, 1), 0);
    assert_true(old_release("rarely", HOLDER));
    sql("UPDATE {}.locks SET fence = fence - (expires_us - {}.clock_us()) - 1, expires_us = {}.clock_us() - 1 WHERE "
        "handed");
    assert_int_equal(acquire(&live, &lives), DLOCK_EBUSY);
    old_hears(old, "granted " WAITER " ", " 726172656c79");
    PQfinish(old);
    link_end(&link);
    link_end(&ear);
    link_end(&live);
}

/* Version 4 is this one without the views. */
static void make_version_4(void) {
    run_script(DLOCK_SCHEMA_SQL);
    sql("DROP VIEW {}.take_v5, {}.give_v5");
    sql("CREATE OR REPLACE FUNCTION {}.schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 4'");
}

static void version_4_is_upgraded(void **state) {
    struct link link;
    struct held held, mine;
    (void)state;
    make_version_4();
    assert_int_equal(sql_number("SELECT granted FROM {}.acquire_v4(ARRAY['four'::bytea], ARRAY['" HOLDER "'], "
                                "ARRAY[60000], ARRAY[0], ARRAY[0], ARRAY[0], 5000)") > 0,
                     true);
    link_new(&link, 'a');
    held_new(&held, &link, "four");
    /* One that has never acquired releases at a server of version 4, too. */
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    assert_int_equal(sql_number("SELECT {}.schema_version()"), 4);
    held_new(&mine, &link, "five");
    assert_int_equal(acquire(&link, &mine), 0);
    assert_int_equal(sql_number("SELECT {}.schema_version()"), PG_SCHEMA_VERSION);
    assert_int_equal(acquire(&link, &held), DLOCK_EBUSY);
    assert_int_equal(
        sql_number("SELECT ended::integer FROM {}.release_v4(ARRAY['four'::bytea], ARRAY['" HOLDER "'], 5000)"), 1);
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &mine), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

/* Roles keep the rights that they had, and have those to what is new. */
static void rights_stay(void **state) {
    char text[128];
    (void)state;
    sql("DROP ROLE IF EXISTS old_app_{}");
    sql("CREATE ROLE old_app_{}");
    sql("GRANT USAGE ON SCHEMA {} TO old_app_{}");
    sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {} TO old_app_{}");
    run_script(DLOCK_SCHEMA_SQL);
    PGconn *plain = plain_open();
    snprintf(text, sizeof text, "SET ROLE old_app_{}");
    plain_run(plain, text);
    plain_run(plain, "SELECT {}.acquire_v4(ARRAY['r'::bytea], ARRAY['t'], ARRAY[1000], ARRAY[0], ARRAY[0], ARRAY[0], "
                     "1000)");
    PQfinish(plain);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_proc p WHERE p.pronamespace = '{}'::regnamespace AND "
                                "has_function_privilege('old_app_{}', p.oid, 'EXECUTE') IS NOT TRUE"),
                     0);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = "
                                "'{}'::regnamespace AND a.grantee = 0"),
                     0);
    sql("DROP OWNED BY old_app_{}");
    sql("DROP ROLE old_app_{}");
}

/* The same objects as where there was nothing before. */
static void it_leads_to_the_same_objects(void **state) {
    static const char all[] =
        "SELECT md5(string_agg(x, ';' ORDER BY x COLLATE \"C\")) FROM (SELECT pg_get_functiondef(p.oid) FROM pg_proc p "
        "WHERE p.pronamespace = '{}'::regnamespace UNION ALL SELECT format('%%s %%s %%s %%s', c.relname, "
        "c.relpersistence, "
        "a.attname, a.atttypid::regtype) FROM pg_class c, pg_attribute a WHERE c.relnamespace = '{}'::regnamespace AND "
        "a.attrelid = c.oid AND a.attnum > 0) y(x)";
    char upgraded[64];
    (void)state;
    run_script(DLOCK_SCHEMA_SQL);
    snprintf(upgraded, sizeof upgraded, "%s", sql_text(all));
    sql("DROP SCHEMA {} CASCADE");
    run_script(DLOCK_SCHEMA_SQL);
    assert_string_equal(sql_text(all), upgraded);
}

static atomic_bool over;

/* A client of version 3 that takes and gives back, all the time; what went wrong. */
static void *live_as_old(void *arg) {
    PGconn *plain = plain_open();
    const char *token = arg;
    char text[1024], *failed = NULL;
    for (int i = 0; !atomic_load(&over) && !failed; i++) {
        snprintf(text, sizeof text,
                 "SELECT * FROM \"%s\".acquire(ARRAY['busy'::bytea], ARRAY['%s'], ARRAY[10000], ARRAY[%d], ARRAY[0], "
                 "ARRAY[1], 5000); SELECT * FROM \"%s\".release(ARRAY['busy'::bytea], ARRAY['%s'], 5000)",
                 site.schema, token, i % 2, site.schema, token);
        PGresult *result = PQexec(plain, text);
        if (PQresultStatus(result) != PGRES_TUPLES_OK) failed = strdup(PQresultErrorMessage(result));
        PQclear(result);
    }
    PQfinish(plain);
    return failed;
}

/* While others are at work, none of which notices. */
static void nobody_is_disturbed(void **state) {
    static char tokens[4][40];
    pthread_t threads[4];
    void *failed;
    (void)state;
    atomic_store(&over, false);
    for (int i = 0; i < 4; i++) {
        snprintf(tokens[i], sizeof tokens[i], "33333333333333333333333%d.1@old:1", i);
        assert_int_equal(pthread_create(&threads[i], NULL, live_as_old, tokens[i]), 0);
    }
    sleep_ms(200);
    for (int i = 0; i < 3; i++) run_script(DLOCK_SCHEMA_SQL);
    sleep_ms(200);
    atomic_store(&over, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        if (failed) fail_msg("%s", (char *)failed);
    }
}

#define OLD_TEST(f) cmocka_unit_test_setup(f, old_begin)

SITE_MAIN(OLD_TEST(what_is_held_and_waited_for_stays), OLD_TEST(both_share_the_schema),
          OLD_TEST(the_old_need_not_ask_often), OLD_TEST(version_4_is_upgraded), OLD_TEST(rights_stay),
          OLD_TEST(it_leads_to_the_same_objects), OLD_TEST(nobody_is_disturbed))
