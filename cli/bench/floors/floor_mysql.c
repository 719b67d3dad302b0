/* Locks with a lease row: one statement acquires it, one releases it, each flushed to disk. With mode=session: GET_LOCK
 * and RELEASE_LOCK. */
#include "floor.h"

#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "dlock_bench_floor"

static struct floor_address address;
static MYSQL *owner; /* the connection that creates and drops the table */

static MYSQL *dial(void) {
    MYSQL *server = mysql_init(NULL);
    floor_check(server && mysql_real_connect(server, address.host, address.user, address.password, address.path,
                                             (unsigned)address.port, NULL, CLIENT_FOUND_ROWS),
                "connecting");
    return server;
}

static void run(MYSQL *server, const char *statement) {
    floor_check(mysql_real_query(server, statement, strlen(statement)) == 0, statement);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void drop(void) {
    run(owner, "drop table if exists " TABLE);
    mysql_close(owner);
}

static void make_table(void) {
    char statement[128];
    if (owner) return;
    owner = dial();
    atexit(drop);
    run(owner, "drop table if exists " TABLE);
    run(owner,
        "create table " TABLE " (name int primary key, token varchar(32) not null, until datetime(6)) engine=innodb");
    for (int i = 0; i < FLOOR_WORKERS; i++) {
        snprintf(statement, sizeof statement, "insert into " TABLE " values (%d, 'token', '2000-01-01')", i);
        run(owner, statement);
    }
}

static void *connect_to_rows(void) {
    make_table();
    return dial();
}

static void change(void *server, const char *format, int number) {
    char statement[256];
    snprintf(statement, sizeof statement, "%s%d", format, number);
    run(server, statement);
    floor_check(mysql_affected_rows(server) == 1, format);
}

static void take(void *server, int number) {
    change(server,
           "update " TABLE " set token = 'token', until = now(6) + interval 10 second where until < now(6) and name = ",
           number);
}

static void give_back(void *server, int number) {
    change(server, "update " TABLE " set until = '2000-01-01' where token = 'token' and name = ", number);
}

/* Commits one row: the least that a durable hand-over needs. */
static void commit(void *server) {
    change(server, "update " TABLE " set until = now(6) - interval 1 day where name = ", 0);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static void *connect_to_session(void) {
    return dial();
}

static void ask(void *server, const char *function, int number, const char *more) {
    char statement[256];
    snprintf(statement, sizeof statement, "select %s('dlock-bench-floor-%d'%s)", function, number, more);
    run(server, statement);
    MYSQL_RES *rows = mysql_store_result(server);
    floor_check(rows != NULL, statement);
    MYSQL_ROW row = mysql_fetch_row(rows);
    floor_check(row && row[0] && strcmp(row[0], "1") == 0, statement);
    mysql_free_result(rows);
}

static void lock(void *server, int number) {
    ask(server, "get_lock", number, ", 60");
}

static void unlock(void *server, int number) {
    ask(server, "release_lock", number, "");
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Returns the number of statements that clients have sent, without those of this function. */
static int64_t statements(void) {
    static MYSQL *server;
    static int64_t own;
    if (!server) server = dial();
    run(server, "show global status like 'Questions'");
    own++;
    MYSQL_RES *rows = mysql_store_result(server);
    floor_check(rows != NULL, "reading the counter");
    MYSQL_ROW row = mysql_fetch_row(rows);
    floor_check(row && row[1], "reading the counter");
    int64_t counted = strtoll(row[1], NULL, 10) - own;
    mysql_free_result(rows);
    return counted;
}

static void prepare(struct floor *floor, const char *uri) {
    char mode[FLOOR_TEXT];
    floor_address(uri, 3306, &address);
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
