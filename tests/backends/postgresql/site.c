#include "site.h"

#include <unistd.h>

struct site site;

/* ---- SQL --------------------------------------------------------------------------------------------------------- */

/* `text` with the schema for each {}; free() it. */
static char *expand(const char *text) {
    size_t used = 0;
    char *out = malloc(strlen(text) * (sizeof site.schema + 2) + 1);
    assert_non_null(out);
    for (; *text; text++) {
        if (strncmp(text, "{}", 2) == 0) {
            used += (size_t)sprintf(out + used, "%s", site.schema);
            text++;
        } else {
            out[used++] = *text;
        }
    }
    out[used] = '\0';
    return out;
}

static PGresult *run(PGconn *plain, const char *text) {
    char *expanded = expand(text);
    PGresult *result = PQexec(plain, expanded);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        fail_msg("%s: %s", expanded, PQresultErrorMessage(result));
    free(expanded);
    return result;
}

__attribute__((__format__(__printf__, 1, 0))) static PGresult *run_format(const char *format, va_list args) {
    char text[4096];
    assert_true(vsnprintf(text, sizeof text, format, args) < (int)sizeof text);
    return run(site.plain, text);
}

void plain_run(PGconn *plain, const char *text) {
    PQclear(run(plain, text));
}

void sql(const char *format, ...) {
    va_list args;
    va_start(args, format);
    PQclear(run_format(format, args));
    va_end(args);
}

const char *sql_text(const char *format, ...) {
    static char out[4096];
    va_list args;
    va_start(args, format);
    PGresult *result = run_format(format, args);
    va_end(args);
    assert_true(PQntuples(result) >= 1);
    snprintf(out, sizeof out, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return out;
}

int64_t sql_number(const char *format, ...) {
    va_list args;
    va_start(args, format);
    PGresult *result = run_format(format, args);
    va_end(args);
    assert_true(PQntuples(result) >= 1);
    int64_t number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

void sql_wait(const char *format, ...) {
    int64_t until = now_ms() + 30000;
    for (;;) {
        va_list args;
        va_start(args, format);
        PGresult *result = run_format(format, args);
        va_end(args);
        bool there = PQntuples(result) >= 1 && strtoll(PQgetvalue(result, 0, 0), NULL, 10) != 0;
        PQclear(result);
        if (there) return;
        if (now_ms() > until) fail_msg("in vain: %s", format);
        sleep_ms(10);
    }
}

void session_gone(int pid) {
    sql_wait("SELECT 1 FROM (SELECT count(*) n FROM pg_stat_activity WHERE pid = %d) x WHERE n = 0", pid);
}

static void ignore_notice(void *arg, const char *message) {
    (void)arg;
    (void)message;
}

PGconn *plain_open(void) {
    char port[12];
    snprintf(port, sizeof port, "%d", site.port);
    const char *const keys[] = {"host", "port", "user", "dbname", NULL};
    const char *const values[] = {site.host, port, "dlock", "postgres", NULL};
    PGconn *plain = PQconnectdbParams(keys, values, 0);
    if (PQstatus(plain) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(plain));
    PQsetNoticeProcessor(plain, ignore_notice, NULL);
    return plain;
}

/* ---- the site ---------------------------------------------------------------------------------------------------- */

int site_begin(void **state) {
    const char *where = getenv("DLOCK_TEST_POSTGRESQL");
    backend_load(state);
    if (!where ||
        sscanf(where, "%63[^:]:%d:%255[^:]:%255[^:]", site.host, &site.port, site.folder, site.programs) != 4) {
        fprintf(stderr, "no server: run the tests with tests/run.sh\n");
        return 1;
    }
    /* Of one width, so that the name of one program's schema is never part of another's. */
    snprintf(site.schema, sizeof site.schema, "test_%07d", (int)getpid());
    site.plain = plain_open();
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    sql("SET search_path = {}, public");
    return 0;
}

int site_begin_sessions(void **state) {
    if (site_begin(state) != 0) return 1;
    backend = &pg_session;
    return 0;
}

int site_end(void **state) {
    (void)state;
    if (!site.plain) return 0;
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    PQfinish(site.plain);
    return 0;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

int link_with(struct link *link, const struct params *params, char letter, int timeout_ms, struct dlock_error *err) {
    struct dlock_param all[8];
    const char *host = params->host ? params->host : site.host;
    struct dlock_host one = {host, host, params->port ? params->port : site.port};
    struct dlock_uri uri = {.scheme = "postgresql",
                            .user = !params->user   ? "dlock"
                                    : *params->user ? params->user
                                                    : NULL,
                            .password = params->password,
                            .path = !params->path   ? "/postgres"
                                    : *params->path ? params->path
                                                    : NULL,
                            .hosts = params->hosts[0].host ? params->hosts : &one,
                            .n_hosts = params->no_host ? 0 : 1,
                            .params = all};
    if (params->hosts[0].host)
        for (uri.n_hosts = 0; uri.n_hosts < 3 && params->hosts[uri.n_hosts].host;) uri.n_hosts++;
    for (size_t i = 0; i < 6 && params->more[i].key; i++) all[uri.n_params++] = params->more[i];
    if (!dlock_uri_get(&uri, "schema")) all[uri.n_params++] = (struct dlock_param){"schema", site.schema};
    return link_try(link, &uri, letter, params->quarantine_ms, timeout_ms, err);
}

void link_new(struct link *link, char letter) {
    const struct params params = {0};
    struct dlock_error err;
    if (link_with(link, &params, letter, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

void wake_get(struct link *link, struct dlock_wake *wake) {
    if (!wake_within(link, wake, 5000)) fail_msg("no wake-up");
}

bool wake_none(struct link *link) {
    struct dlock_wake wake;
    return !wake_within(link, &wake, 200);
}

PGconn *stranger_open(void) {
    PGconn *plain = plain_open();
    sql("DO $$ BEGIN IF to_regrole('stranger_{}') IS NULL THEN CREATE ROLE stranger_{}; END IF; END $$");
    plain_run(plain, "SET ROLE stranger_{}");
    return plain;
}

void stranger_end(PGconn *plain) {
    PQfinish(plain);
    sql("DROP ROLE stranger_{}");
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

int ignore_holder(const struct dlock_info *info, void *arg) {
    (void)info;
    (void)arg;
    return 0;
}

int ignore_finding(const struct dlock_finding *finding, void *arg) {
    (void)finding;
    (void)arg;
    return 0;
}
