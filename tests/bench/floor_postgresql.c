/* A lease row: one statement takes it, one gives it back, each a transaction of its own that is flushed to disk. */
#include "floor.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "dlock_bench_floor"

static PGconn *server;

static void check(PGresult *result, const char *rows, const char *what) {
    ExecStatusType status = PQresultStatus(result);
    floor_check(status == PGRES_COMMAND_OK && (!rows || strcmp(PQcmdTuples(result), rows) == 0), what);
    PQclear(result);
}

static void prepare(const char *name, const char *statement) {
    check(PQprepare(server, name, statement, 0, NULL), NULL, statement);
}

static void change(const char *name) {
    check(PQexecPrepared(server, name, 0, NULL, NULL, NULL, 0), "1", name);
}

static void drop(void) {
    PQclear(PQexec(server, "drop table if exists " TABLE));
    PQfinish(server);
}

static void connect_to(const char *uri) {
    floor_need(!strchr(uri, '?')); /* libpq refuses the keys that are dlock's */
    server = PQconnectdb(uri);
    floor_check(server && PQstatus(server) == CONNECTION_OK, "connecting");
    atexit(drop);
    PQclear(PQexec(server, "set client_min_messages = warning; drop table if exists " TABLE));
    check(PQexec(server, "create table " TABLE " (name text primary key, token text not null, until timestamptz not "
                         "null) with (fillfactor = 50)"),
          NULL, "create table");
    check(PQexec(server, "insert into " TABLE " values ('floor', 'token', '-infinity')"), "1", "insert");
    prepare("take", "update " TABLE " set token = 'token', until = clock_timestamp() + interval '10 s' "
                    "where name = 'floor' and until < clock_timestamp()");
    prepare("give back", "update " TABLE " set until = '-infinity' where name = 'floor' and token = 'token'");
}

static void cycle(void) {
    change("take");
    change("give back");
}

/* The least that wakes somebody up for good: one row, committed. */
static void commit(void) {
    change("give back");
}

int main(int argc, char **argv) {
    return floor_main(argc, argv, &(struct floor){connect_to, cycle, commit});
}
