/* Locks with a lease row: one statement acquires it, one releases it, each its own transaction that is flushed to
 * disk. With mode=session: pg_advisory_lock and pg_advisory_unlock. */
#include "floor.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "dlock_bench_floor"
enum { ADDRESS = 4096, KEY = 0x646c6f63 };

static char conninfo[ADDRESS];
static PGconn *owner; /* the connection that creates and drops the table */

static void check(PGresult *result, const char *rows, const char *what) {
    ExecStatusType status = PQresultStatus(result);
    floor_check((status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) &&
                    (!rows || strcmp(PQcmdTuples(result), rows) == 0),
                what);
    PQclear(result);
}

/* ---- the URI ----------------------------------------------------------------------------------------------------- */

static bool is_known(const PQconninfoOption *options, const char *key, size_t length) {
    for (; options->keyword; options++)
        if (strlen(options->keyword) == length && strncmp(options->keyword, key, length) == 0) return true;
    return false;
}

/* Copies the URI to `conninfo` without dlock's own keys, which libpq refuses. */
static void translate(const char *uri) {
    PQconninfoOption *options = PQconndefaults();
    size_t length = strcspn(uri, "?");
    char joint = '?';
    floor_check(options != NULL, "PQconndefaults");
    floor_need(strlen(uri) < sizeof conninfo);
    memcpy(conninfo, uri, length);
    for (const char *key = uri + length; *key;) {
        size_t end = strcspn(++key, "&");
        if (is_known(options, key, strcspn(key, "=&"))) {
            conninfo[length++] = joint;
            memcpy(conninfo + length, key, end);
            length += end;
            joint = '&';
        }
        key += end;
    }
    conninfo[length] = '\0';
    PQconninfoFree(options);
}

static PGconn *dial(void) {
    PGconn *server = PQconnectdb(conninfo);
    floor_check(server && PQstatus(server) == CONNECTION_OK, "connecting");
    PQclear(PQexec(server, "set client_min_messages = warning"));
    return server;
}

static void run(void *server, const char *statement, int number, const char *rows) {
    char text[16];
    const char *value = text;
    snprintf(text, sizeof text, "%d", number);
    check(PQexecPrepared(server, statement, 1, &value, NULL, NULL, 0), rows, statement);
}

static void prepare_statement(PGconn *server, const char *name, const char *statement) {
    check(PQprepare(server, name, statement, 1, (const Oid[]){23 /* int4 */}), NULL, name);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void drop(void) {
    PQclear(PQexec(owner, "drop table if exists " TABLE));
    PQfinish(owner);
}

static void make_table(void) {
    if (owner) return;
    owner = dial();
    atexit(drop);
    PQclear(PQexec(owner, "drop table if exists " TABLE));
    check(PQexec(owner, "create table " TABLE " (name int primary key, token text not null, until timestamptz not "
                        "null) with (fillfactor = 50)"),
          NULL, "create table");
    check(PQexec(owner, "insert into " TABLE " select n, 'token', '-infinity' from generate_series(0, 63) n"), "64",
          "insert");
}

static void *connect_to_rows(void) {
    make_table();
    PGconn *server = dial();
    prepare_statement(server, "take",
                      "update " TABLE " set token = 'token', until = clock_timestamp() + interval '10 s' "
                      "where name = $1 and until < clock_timestamp()");
    prepare_statement(server, "give back",
                      "update " TABLE " set until = '-infinity' where name = $1 and token = 'token'");
    return server;
}

static void take(void *server, int number) {
    run(server, "take", number, "1");
}

static void give_back(void *server, int number) {
    run(server, "give back", number, "1");
}

/* Commits one row: the least that a durable hand-over needs. */
static void commit(void *server) {
    give_back(server, 0);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static void *connect_to_session(void) {
    PGconn *server = dial();
    char statement[128];
    snprintf(statement, sizeof statement, "select pg_advisory_lock(%d, $1)", KEY);
    prepare_statement(server, "lock", statement);
    snprintf(statement, sizeof statement, "select pg_advisory_unlock(%d, $1)", KEY);
    prepare_statement(server, "unlock", statement);
    return server;
}

static void lock(void *server, int number) {
    run(server, "lock", number, "1");
}

static void unlock(void *server, int number) {
    run(server, "unlock", number, "1");
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Returns the number of statements from pg_stat_statements, which counts at once; the statistics of databases may be
 * seconds late. */
static int64_t statements(void) {
    static const char counted[] = "select coalesce(sum(calls), 0) from pg_stat_statements s join pg_database d on "
                                  "d.oid = s.dbid where datname = current_database() and query not like '%pg_stat%'";
    static PGconn *server;
    if (!server) server = dial();
    PGresult *result = PQexec(server, counted);
    floor_need(PQresultStatus(result) == PGRES_TUPLES_OK); /* the extension may not be installed */
    int64_t sum = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    return sum;
}

static void prepare(struct floor *floor, const char *uri) {
    char mode[FLOOR_TEXT];
    translate(uri);
    if (!floor_key(uri, "mode", mode) || strcmp(mode, "session") != 0) return;
    floor->connect = connect_to_session;
    floor->acquire = lock;
    floor->release = unlock;
    floor->waits = floor->bound = true;
}

struct floor floor_program = {.prepare = prepare,
                              .connect = connect_to_rows,
                              .acquire = take,
                              .release = give_back,
                              .round_trip = commit,
                              .commands = statements};
