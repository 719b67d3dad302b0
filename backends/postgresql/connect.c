/* Connecting: one address after the other, each with an equal share of the time left, since libpq applies no timeout
 * per host when it is polled. */
#include "postgresql.h"

#include <fcntl.h>
#include <locale.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>

/* The first server version with hashtextextended(). */
#define OLDEST 110000

/* pg_rejected() recognizes libpq's messages by their wording, so they have to be in English. */
static locale_t speak_english(locale_t *before) {
    locale_t english = newlocale(LC_MESSAGES_MASK, "C", (locale_t)0);
    if (english) *before = uselocale(english);
    return english;
}

static void speak_as_before(locale_t english, locale_t before) {
    if (!english) return;
    uselocale(before);
    freelocale(english);
}

/* Keeps notices from stderr, where libpq prints them. An error that answers no request also arrives as a notice. */
static void hear_notice(void *arg, const PGresult *result) {
    pg_hear(arg, result);
}

static int no_answer(struct pg *pg, struct dlock_error *err) {
    int rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to PostgreSQL at %s: no answer in time", pg->where);
    if (PQstatus(pg->link) != CONNECTION_STARTED) dlock_doubt(err, "PostgreSQL"); /* the TCP connection was accepted */
    return rc;
}

static int shake_hands(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    if (PQstatus(pg->link) == CONNECTION_BAD) return pg_rejected(pg, err);
    for (bool late = false; next != PGRES_POLLING_OK; late = dlock_now_us() >= deadline_us) {
        if (next == PGRES_POLLING_FAILED) return pg_rejected(pg, err);
        if (late || !dlock_wait_fd(PQsocket(pg->link), next == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline_us))
            return no_answer(pg, err);
        next = PQconnectPoll(pg->link);
    }
    return 0;
}

static void name_server(struct pg *pg, const struct dlock_host *host) {
    const char *address = *host->address ? host->address : host->host;
    if (*host->host == '/' || *host->host == '@' || !*address)
        snprintf(pg->where, sizeof pg->where, "%.150s", *host->host ? host->host : "its default socket");
    else
        snprintf(pg->where, sizeof pg->where, strchr(address, ':') ? "[%.90s]:%d" : "%.90s:%d", address,
                 host->port ? host->port : 5432);
}

static int connect_one(struct pg *pg, const struct dlock_uri *uri, const struct dlock_host *host, int64_t deadline_us,
                       struct dlock_error *err) {
    struct pg_parameters parameters;
    locale_t before = (locale_t)0, english;
    name_server(pg, host);
    int rc = pg_parameters(uri, host, &parameters, err);
    if (rc == 0) {
        english = speak_english(&before);
        pg->link = PQconnectStartParams(parameters.keys, parameters.values, 0);
        if (!pg->link) {
            rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory");
        } else {
            PQsetNoticeReceiver(pg->link, hear_notice, pg);
            PQsetErrorVerbosity(pg->link, PQERRORS_VERBOSE); /* the message then has the SQLSTATE, which libpq offers in
                                                              * no other way here */
            rc = shake_hands(pg, deadline_us, err);
            PQsetErrorVerbosity(pg->link, PQERRORS_DEFAULT);
        }
        speak_as_before(english, before);
    }
    pg_parameters_free(&parameters);
    if (rc != 0) pg_hang_up(pg);
    return rc;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

/* Applies the settings of a dlock session, in one query that also reads the server's clock, and detects a connection
 * pooler, which reports an invented process number to its clients. Behind a pooler nothing may be set. The query's
 * first statement, whose effect ends with the query, restricts the second one to pg_catalog. */
static int set_session(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    /* A wait for a session's lock has no separate timeout, but ends when its client is gone. */
    static const char waits[] = "('lock_timeout', '0'), ('client_connection_check_interval', '1000')";
    /* The short way needs these: see short.sql. Where only a sequential scan is possible, its cost is then so high that
     * PostgreSQL would compile the plan, for longer than it takes to run it. */
    static const char rows[] = "('lock_timeout', '500'), ('enable_seqscan', 'off'), ('jit', 'off')";
    char sql[1200];
    PGresult *result;
    snprintf(sql, sizeof sql,
             PG_SAFE_PATH
             "SELECT direct, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (SELECT count(set_config(name, "
             "value, false)) "
             "FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('default_transaction_isolation', 'read "
             "committed'), ('statement_timeout', '0'), "
             "('transaction_timeout', '0'), ('idle_session_timeout', '0'), ('client_min_messages', 'error'), "
             /* a grant, and a fence, must survive a crash */
             "('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
             "ELSE current_setting('synchronous_commit') END), %s) s(name, value) "
             "WHERE current_setting(name, true) IS NOT NULL AND direct) "
             "FROM (SELECT pg_backend_pid() = %d OR %s OFFSET 0) p(direct)",
             pg->sessions ? waits : rows, PQbackendPID(pg->link), pg->listen == PG_LISTEN_ON ? "true" : "false");
    int rc = pg_query(pg, sql, deadline_us, &result, err);
    if (rc != 0) return rc;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        rc = pg_refused(pg, result, err);
    else if (PQntuples(result) != 1 || PQnfields(result) != 3)
        rc = pg_nonsense(pg, "no row about the session", err);
    else if (*PQgetvalue(result, 0, 0) != 't')
        rc =
            dlock_fail(err, DLOCK_ENOTSUP,
                       "a connection pooler stands before PostgreSQL at %s, and %s: connect past it%s, or, if it pools "
                       "whole sessions, write listen=on",
                       pg->where,
                       pg->sessions ? "mode=session needs sessions of its own" : "LISTEN needs a session of its own",
                       pg->sessions ? "" : ", or write listen=off (waiters poll)");
    else
        pg_note_clock(pg, strtoll(PQgetvalue(result, 0, 1), NULL, 10));
    PQclear(result);
    return rc;
}

/* Lets the socket block, for pg_wait(). Not with TLS or GSSAPI: decrypted data may be waiting in libpq's buffer while
 * the socket has none, and a blocking read there would have no deadline. */
static void let_block(struct pg *pg) {
    const struct timeval most = {.tv_usec = PG_BLOCK_US};
    int fd = PQsocket(pg->link), flags = fcntl(fd, F_GETFL);
    if (PQsslInUse(pg->link) || PQgssEncInUse(pg->link) || flags < 0) return;
    pg->blocks = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0 &&
                 setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 &&
                 fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

/* Connects to the hosts in front of the URI, at the addresses that the core has looked up. A "port" key overrides
 * theirs. */
static int connect_front(struct pg *pg, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < uri->n_hosts && rc == DLOCK_EUNAVAILABLE; i++) {
        struct dlock_host host = uri->hosts[i];
        int64_t now = dlock_now_us(), share = (deadline_us - now) / (int64_t)(uri->n_hosts - i);
        if (dlock_uri_get(uri, "port")) host.port = 0;
        rc = connect_one(pg, uri, &host, now + share, err);
    }
    return rc;
}

static int connect_elsewhere(struct pg *pg, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    struct pg_hosts hosts;
    int rc = pg_hosts(uri, &hosts, deadline_us, err);
    if (rc != 0) return rc;
    rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < hosts.n && rc == DLOCK_EUNAVAILABLE; i++) {
        const struct dlock_host host = {hosts.list[i].host, hosts.list[i].address, hosts.list[i].port};
        int64_t now = dlock_now_us(), share = (deadline_us - now) / (int64_t)(hosts.n - i);
        rc = connect_one(pg, uri, &host, now + share, err);
    }
    return rc;
}

int pg_connect_link(struct pg *pg, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    bool elsewhere = uri->n_hosts == 0 || pg_hosts_in_keys(uri);
    int rc = elsewhere ? connect_elsewhere(pg, uri, deadline_us, err) : connect_front(pg, uri, deadline_us, err);
    if (rc != 0) return rc;
    if (PQparameterStatus(pg->link, "crdb_version"))
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "the server at %s is CockroachDB, whose advisory locks exclude nobody: use PostgreSQL",
                          pg->where);
    if (PQserverVersion(pg->link) < OLDEST)
        return dlock_fail(err, DLOCK_ENOTSUP, "PostgreSQL at %s is older than version %d", pg->where, OLDEST / 10000);
    if (PQsetnonblocking(pg->link, 1) != 0) return pg_dead(pg, PQerrorMessage(pg->link), err);
    if (pg->sessions) let_block(pg);
    return pg->listen == PG_LISTEN_OFF ? 0 : set_session(pg, deadline_us, err);
}

void pg_hang_up(struct pg *pg) {
    PGconn *link = pg->link;
    if (!link) return;
    if (pg->unanswered && PQsocket(link) >= 0) dlock_hang_up(PQsocket(link), true);
    pg->link = NULL; /* cleared first, since a child forked during cleanup would close this descriptor */
    atomic_signal_fence(memory_order_seq_cst);
    PQfinish(link);
}
