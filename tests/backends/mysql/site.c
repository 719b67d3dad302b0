#include "site.h"

#include <maria.h>

#include <stdlib.h>

static MYSQL *plain;
static char database[64], host[64];
static int port;
int requests;
int64_t quarantine_ms;
void (*before_request)(const char *text, size_t length);

int __real_mysql_real_query_start(int *ret, MYSQL *mysql, const char *text, unsigned long length);
int __wrap_mysql_real_query_start(int *ret, MYSQL *mysql, const char *text, unsigned long length);
int __wrap_mysql_real_query_start(int *ret, MYSQL *mysql, const char *text, unsigned long length) {
    requests++;
    if (before_request) before_request(text, length);
    return __real_mysql_real_query_start(ret, mysql, text, length);
}

static void sql_run(const char *statement) {
    if (mysql_query(plain, statement) != 0) fail_msg("%s: %s", statement, mysql_error(plain));
}

__attribute__((__format__(__printf__, 1, 0))) static void run(const char *format, va_list args) {
    char text[4096];
    assert_true(vsnprintf(text, sizeof text, format, args) < (int)sizeof text);
    sql_run(text);
}

void sql(const char *format, ...) {
    va_list args;
    va_start(args, format);
    run(format, args);
    va_end(args);
    mysql_free_result(mysql_store_result(plain));
}

/* The first value that the last statement has answered. */
static void read_value(char *out, size_t size) {
    MYSQL_RES *rows = mysql_store_result(plain);
    assert_non_null(rows);
    MYSQL_ROW row = mysql_fetch_row(rows);
    snprintf(out, size, "%s", row && row[0] ? row[0] : "");
    mysql_free_result(rows);
}

int64_t sql_number(const char *format, ...) {
    char value[32];
    va_list args;
    va_start(args, format);
    run(format, args);
    va_end(args);
    read_value(value, sizeof value);
    return strtoll(value, NULL, 10);
}

void sql_text(char *out, size_t size, const char *statement) {
    sql_run(statement);
    read_value(out, size);
}

int site_begin(void **state) {
    const char *where = getenv("DLOCK_TEST_MYSQL");
    backend_load(state);
    if (!where || sscanf(where, "%63[^:]:%d", host, &port) != 2) {
        fprintf(stderr, "no server: run the tests with tests/run.sh\n");
        return 1;
    }
    plain = mysql_init(NULL);
    if (!mysql_real_connect(plain, host, "admin", "secret", NULL, (unsigned)port, NULL, 0)) return 1;
    snprintf(database, sizeof database, "test_%d", (int)getpid());
    sql("CREATE OR REPLACE DATABASE %s", database);
    sql("USE %s", database);
    return 0;
}

int site_end(void **state) {
    (void)state;
    if (!plain) return 0;
    sql("DROP DATABASE IF EXISTS %s", database);
    mysql_close(plain);
    return 0;
}

int link_as(struct link *link, const char *user, const char *mode, char letter, struct dlock_error *err) {
    struct uri uri;
    char path[72];
    uri_init(&uri, port);
    snprintf(path, sizeof path, "/%s", database);
    uri.parts.path = path;
    uri.parts.user = user;
    uri.parts.password = "secret";
    uri.param[0] = (struct dlock_param){"mode", mode};
    uri.parts.n_params = mode ? 1 : 0;
    return link_try(link, &uri.parts, letter, quarantine_ms, TIMEOUT_MS, err);
}

void link_new(struct link *link, const char *mode, char letter) {
    struct dlock_error err;
    if (link_as(link, "admin", mode, letter, &err) != 0) fail_msg("%s", err.message);
}

void check_cycles(const char *mode, const char *other) {
    LINK(link, mode, 'a');
    HELD(held, &link, "cycle");
    assert_int_equal(acquire(&link, &held), 0); /* which makes the table, or the sequence */
    assert_int_equal(release(&link, &held), 0);
    uint64_t fence = held.claim.fence;
    int before = requests;
    for (int i = 0; i < 10; i++) {
        held_new(&held, &link, i % 2 ? "cycle" : other);
        assert_int_equal(acquire(&link, &held), 0);
        assert_true(held.claim.fence > fence);
        fence = held.claim.fence;
        assert_int_equal(release(&link, &held), 0);
    }
    assert_int_equal(requests - before, 20);
}

int64_t link_id(const struct link *link) {
    const struct maria *maria = link->conn;
    return (int64_t)mysql_thread_id(maria->link);
}
