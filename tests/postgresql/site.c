#include "site.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

struct site site;

/* ---- time -------------------------------------------------------------------------------------------------------- */

int64_t now_ms(void) {
    return dlock_now_us() / 1000;
}

void pause_ms(int ms) {
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

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
    int64_t until = now_ms() + 5000;
    for (;;) {
        va_list args;
        va_start(args, format);
        PGresult *result = run_format(format, args);
        va_end(args);
        bool there = PQntuples(result) >= 1 && strtoll(PQgetvalue(result, 0, 0), NULL, 10) != 0;
        PQclear(result);
        if (there) return;
        if (now_ms() > until) fail_msg("in vain: %s", format);
        pause_ms(10);
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
    (void)state;
    if (!where ||
        sscanf(where, "%63[^:]:%d:%255[^:]:%255[^:]", site.host, &site.port, site.folder, site.programs) != 4) {
        fprintf(stderr, "no server: run the tests with tests/run.sh\n");
        return 1;
    }
    snprintf(site.schema, sizeof site.schema, "test_%d", (int)getpid());
    site.plain = plain_open();
    sql("DROP SCHEMA IF EXISTS {} CASCADE");
    sql("SET search_path = {}, public");
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

static void ignore_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    (void)level;
    (void)message;
}

int link_try(struct link *link, const struct params *params, char letter, int timeout_ms, struct dlock_error *err) {
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
    memset(link, 0, sizeof *link);
    memset(link->client, letter, 24);
    link->peer.abi = DLOCK_ABI;
    link->peer.client = link->client;
    link->peer.log = ignore_log;
    link->pg = calloc(1, BACKEND->conn_size);
    assert_non_null(link->pg);
    return BACKEND->connect(link->pg, &uri, &link->peer, timeout_ms, err);
}

void link_new(struct link *link, char letter) {
    const struct params params = {0};
    struct dlock_error err;
    if (link_try(link, &params, letter, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

void link_listen(struct link *link) {
    struct dlock_error err;
    if (BACKEND->listen(link->pg, &link->fd, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

void link_end(struct link *link) {
    if (!link->pg) return;
    BACKEND->disconnect(link->pg);
    free(link->pg);
    link->pg = NULL;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

void held_new(struct held *held, struct link *link, const char *name) {
    memset(held, 0, sizeof *held);
    snprintf(held->token, sizeof held->token, "%s.%d@host:%d", link->client, ++link->tokens, (int)getpid());
    held->claim.name = name;
    held->claim.lease_ms = LEASE_MS;
}

static int operate(dlock_batch *operation, struct link *link, struct held *held, uint32_t flags) {
    struct dlock_claim *claim = &held->claim;
    struct dlock_error err;
    claim->token = held->token;
    claim->flags = flags;
    claim->result = DLOCK_EPROTO;
    claim->fence = 0;
    claim->server_us = 0;
    claim->kept_ms = claim->lease_ms;
    claim->retry_ms = -1;
    int rc = operation(link->pg, &claim, 1, TIMEOUT_MS, &err);
    if (rc != 0) fail_msg("%d: %s", rc, err.message);
    return claim->result;
}

int acquire(struct link *link, struct held *held) {
    return operate(BACKEND->acquire, link, held, 0);
}

int enqueue(struct link *link, struct held *held) {
    return operate(BACKEND->acquire, link, held, DLOCK_CLAIM_QUEUE);
}

int renew(struct link *link, struct held *held) {
    return operate(BACKEND->renew, link, held, 0);
}

int release(struct link *link, struct held *held) {
    return operate(BACKEND->release, link, held, 0);
}

void wake_get(struct link *link, struct dlock_wake *wake) {
    struct pollfd fd = {link->fd, POLLIN, 0};
    struct dlock_error err;
    int64_t until = now_ms() + 5000;
    for (;;) {
        int rc = BACKEND->wake(link->pg, wake, &err);
        if (rc == 1) return;
        if (rc != 0) fail_msg("%s", err.message);
        int64_t left = until - now_ms();
        if (left <= 0) fail_msg("no wake-up");
        poll(&fd, 1, (int)left);
    }
}

bool wake_none(struct link *link) {
    struct pollfd fd = {link->fd, POLLIN, 0};
    struct dlock_wake wake;
    struct dlock_error err;
    poll(&fd, 1, 200);
    return BACKEND->wake(link->pg, &wake, &err) == 0;
}
