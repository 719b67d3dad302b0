/* The `check` operation: how this server's settings strengthen or weaken locks. */
#include "postgresql.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <stdlib.h>
#include <time.h>

/* From these ages on an open transaction, or the oldest one that a replication slot holds back, is reported. */
#define OLD_S 600
#define OLD_XIDS 1000000

#define SOON_DAYS 14

/* The columns of the query, all of them text. The catalogue says whether the objects exist, since a name in a schema
 * that the role may not use would be an error. */
enum {
    VERSION,
    STANDBY,
    FSYNC,
    PAGE_WRITES,
    COMMIT,
    SYNC_NAMES,
    STANDBYS,
    SLOTS,
    ISOLATION,
    STATEMENT_MS,
    IDLE_MS,
    USED,
    MOST,
    LONGEST_S,
    SLOT_AGE,
    BACKEND,
    MAY_CREATE,
    MAY_USE,
    MAY_CALL,
    OBJECTS,
    OWNER,
    CREATORS,
    UNLOGGED,
    PUBLISHED,
    SYNCED,
    N_FACTS
};

static const char question[] = PG_SAFE_PATH
    "SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'), "
    "current_setting('full_page_writes'), "
    "(SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), " /* its value before set_session() */
    "current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), "
    "(SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical'), "
    "current_setting('transaction_isolation'), "
    "(SELECT setting FROM pg_settings WHERE name = 'statement_timeout'), "
    "(SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'), "
    "(SELECT sum(numbackends) FROM pg_stat_database), "
    "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, "
    "(SELECT floor(max(x.seconds)) FROM (SELECT extract(epoch FROM clock_timestamp() - a.xact_start) FROM "
    "pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND (a.datname = "
    "current_database() OR a.backend_type = 'walsender') UNION ALL SELECT extract(epoch FROM clock_timestamp() - "
    "p.prepared) FROM pg_prepared_xacts p WHERE p.database = current_database()) x(seconds)), "
    "(SELECT max(age(r.xmin)) FROM pg_replication_slots r), "
    "pg_backend_pid(), "
    "coalesce(has_schema_privilege(n.oid, 'CREATE'), has_database_privilege(current_database(), 'CREATE')), "
    "has_schema_privilege(n.oid, 'USAGE'), "
    "(SELECT bool_and(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_proc p WHERE p.pronamespace = n.oid AND "
    "p.proname IN ('acquire', 'renew', 'release', 'break', 'listen', 'tell', 'send', 'holders', 'waiters', "
    "'quarantine_left', 'end_sessions', 'first_fence')) AND coalesce((SELECT "
    "has_sequence_privilege(c.oid, 'USAGE') FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'fences'), "
    "true) AND coalesce((SELECT bool_and(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, "
    "'UPDATE')) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname IN ('take', 'give')), true), "
    "(SELECT substring(p.prosrc FROM '[0-9]+') FROM pg_proc p WHERE p.pronamespace = n.oid AND "
    "p.proname = '%s'), "
    /* what others could do with it */
    "(SELECT r.rolname FROM pg_roles r WHERE r.oid = s.owner AND NOT r.rolsuper AND r.oid <> s.user_of), "
    "(SELECT string_agg(coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ') FROM aclexplode(n.nspacl) a LEFT JOIN "
    "pg_roles r ON r.oid = a.grantee WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (n.nspowner, s.user_of) "
    "AND "
    "r.rolsuper IS NOT TRUE), "
    "(SELECT string_agg(c.relname, ', ') FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname IN ('locks', "
    "'shares', 'fences') AND c.relpersistence <> 'p'), "
    "(SELECT string_agg(DISTINCT p.pubname, ', ') FROM pg_publication_tables p WHERE p.schemaname = n.nspname AND "
    "p.tablename IN ('locks', 'shares')), "
    "(SELECT CASE WHEN bool_or(r.sync_state IS NULL) THEN -1 ELSE count(*) FILTER (WHERE r.sync_state IN ('sync', "
    "'quorum')) END FROM pg_stat_replication r) "
    "FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = '%.*s', LATERAL (SELECT CASE WHEN n.nspowner = "
    "to_regrole('pg_database_owner') THEN (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()) "
    "ELSE n.nspowner END, coalesce((SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname IN "
    "('schema_version', 'session_version') LIMIT 1), (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user))) "
    "s(owner, user_of)";

static const char *fact(const PGresult *facts, int which) {
    return PQgetvalue(facts, 0, which);
}

static bool is(const PGresult *facts, int which, const char *expected) {
    return strcmp(fact(facts, which), expected) == 0;
}

static long long number(const PGresult *facts, int which) {
    return strtoll(fact(facts, which), NULL, 10);
}

/* ---- each subject ------------------------------------------------------------------------------------------------ */

static void check_disk(struct dlock_report *report, const PGresult *facts) {
    bool off = is(facts, COMMIT, "off");
    dlock_find(report,
               is(facts, FSYNC, "on") ? NULL : "a crash of the host may undo grants or ruin the database: set fsync on",
               "fsync %s", fact(facts, FSYNC));
    dlock_find(report,
               is(facts, PAGE_WRITES, "on") ? NULL
                                            : "a crash of the host may ruin the database: set full_page_writes on",
               "full_page_writes %s", fact(facts, PAGE_WRITES));
    dlock_find(report, NULL, "synchronous_commit %s%s", fact(facts, COMMIT),
               off ? ", but on for grants and renewals" : "");
}

/* Ends a finding about grants that a failover forgets. Returns whether the quarantine makes up for that. */
static bool is_covered(const struct pg *pg, char text[96]) {
    char time[32];
    const bool covered = !pg->sessions && pg->peer->quarantine_ms > 0;
    text[0] = 0;
    if (covered)
        snprintf(text, 96, "; a quarantine of %s covers what is lost",
                 dlock_duration_text(time, pg->peer->quarantine_ms));
    return covered;
}

static void check_standbys(struct dlock_report *report, const struct pg *pg, const PGresult *facts) {
    char covers[96];
    const bool covered = is_covered(pg, covers);
    /* Standbys that read archives, and disconnected ones without a slot, are invisible here. */
    long long standbys = number(facts, STANDBYS) > 0 ? number(facts, STANDBYS) : number(facts, SLOTS);
    if (is(facts, STANDBY, "t"))
        dlock_find(report, "it grants nothing: name the primary, and leave target_session_attrs out of the URI",
                   "this server is a standby");
    else if (standbys == 0)
        dlock_find(report, NULL, "no standby is connected");
    else if (!*fact(facts, SYNC_NAMES) || is(facts, COMMIT, "local"))
        dlock_find(report,
                   covered ? NULL
                           : "a failover may forget the latest grants: set synchronous_standby_names, and "
                             "synchronous_commit on",
                   "%lld standby%s, replication asynchronous%s", standbys, standbys == 1 ? "" : "s", covers);
    else if (is(facts, COMMIT, "remote_write"))
        dlock_find(report,
                   covered ? NULL
                           : "a standby whose host crashes may forget the latest grants: set synchronous_commit on",
                   "%lld standby%s, synchronous_commit remote_write%s", standbys, standbys == 1 ? "" : "s", covers);
    else if (is(facts, SYNCED, "0"))
        dlock_find(report,
                   "every grant waits until one of them connects: see pg_stat_replication on the server, and "
                   "synchronous_standby_names",
                   "%lld standby%s, none of them synchronous, as synchronous_standby_names wants", standbys,
                   standbys == 1 ? "" : "s");
    else
        dlock_find(report, NULL, "%lld standby%s, replication synchronous", standbys, standbys == 1 ? "" : "s");
}

/* What is replicated by a publication may be changed at the other end, and comes there late and in part. */
static void check_tables(struct dlock_report *report, const struct pg *pg, const PGresult *facts) {
    if (*fact(facts, UNLOGGED))
        dlock_find(report, "a crash of the server forgets all locks: ALTER TABLE ... SET LOGGED",
                   "unlogged in schema %s: %s", pg->schema, fact(facts, UNLOGGED));
    if (*fact(facts, PUBLISHED))
        dlock_find(
            report,
            "never lock at a subscriber too, which has its own clock and is behind: leave these tables out of it",
            "the tables of schema %s are in the publication %s", pg->schema, fact(facts, PUBLISHED));
}

/* Our functions search their schema, with the rights of their owner. */
static void check_strangers(struct dlock_report *report, const struct pg *pg, const PGresult *facts) {
    if (*fact(facts, OWNER))
        dlock_find(report,
                   "that role can run any code with the rights of the functions' owner: make it the superuser's",
                   "schema %s belongs to %s, neither the owner of its functions nor a superuser", pg->schema,
                   fact(facts, OWNER));
    if (*fact(facts, CREATORS))
        dlock_find(
            report,
            "they can run any code with the rights of the functions' owner: REVOKE CREATE ON SCHEMA ... FROM ...",
            "others may create objects in schema %s: %s", pg->schema, fact(facts, CREATORS));
}

/* With listen=off the settings of the session are the pooler's; otherwise pg_connect_link() has set them. */
static void check_session(struct dlock_report *report, const struct pg *pg, const PGresult *facts, int timeout_ms) {
    long long statement_ms = number(facts, STATEMENT_MS);
    bool pooled = number(facts, BACKEND) != PQbackendPID(pg->link);
    if (pg->listen == PG_LISTEN_OFF)
        dlock_find(report, "waiters poll, and are not served in order: connect past the pooler, and remove listen=off",
                   "listen=off%s", pooled ? ", behind a connection pooler" : "");
    else if (pooled)
        dlock_find(report, "correct only if the pooler pools whole sessions: connect past it, or write listen=off",
                   "listen=on behind a connection pooler");
    else
        dlock_find(report, NULL, "waiters are woken by %s, no connection pooler in between",
                   pg->sessions ? "the lock itself" : "NOTIFY");
    if (pg->sessions)
        dlock_find(report,
                   PQserverVersion(pg->link) < 140000 ? "a stopped holder keeps its lock, and a waiter that gives up "
                                                        "may stay queued: PostgreSQL 14 or newer ends such sessions"
                                                      : NULL,
                   "mode=session: leases are the server's idle_session_timeout");
    dlock_find(report,
               is(facts, ISOLATION, "read committed")
                   ? NULL
                   : "every call is refused: ALTER ROLE ... SET default_transaction_isolation = 'read committed'",
               "isolation level %s", fact(facts, ISOLATION));
    dlock_find(report,
               statement_ms > 0 && statement_ms < timeout_ms
                   ? "ends requests before the URI's timeout does: ALTER ROLE ... SET statement_timeout = 0"
                   : NULL,
               "statement_timeout %lld ms, idle_session_timeout %lld s", statement_ms, number(facts, IDLE_MS) / 1000);
}

/* Each acquire and release leaves two dead rows, which vacuum removes once no transaction could still see them.
 * Sessions of roles whose details this role may not see are missing here. */
static void check_old(struct dlock_report *report, const PGresult *facts) {
    long long seconds = number(facts, LONGEST_S), age = number(facts, SLOT_AGE);
    dlock_find(report,
               seconds < OLD_S ? NULL
                               : "dead rows stay until it ends, and locks get slower: end it, and set "
                                 "idle_in_transaction_session_timeout",
               "the longest transaction has been open for %lld s", seconds);
    if (age >= OLD_XIDS)
        dlock_find(report, "dead rows stay, and locks get slower: is its standby gone? Then drop the slot",
                   "a replication slot holds back the cleanup of %lld transactions", age);
}

static void check_certificate(struct dlock_report *report, struct pg *pg) {
    SSL *ssl = PQsslStruct(pg->link, "OpenSSL");
    X509 *certificate = ssl ? SSL_get1_peer_certificate(ssl) : NULL;
    char date[32] = "an unknown date";
    struct tm parts;
    int days = 0, seconds;
    if (!certificate) return;
    const ASN1_TIME *end = X509_get0_notAfter(certificate);
    if (ASN1_TIME_to_tm(end, &parts)) strftime(date, sizeof date, "%Y-%m-%d", &parts);
    ASN1_TIME_diff(&days, &seconds, NULL, end);
    dlock_find(report,
               days < SOON_DAYS ? "replace it: once it has expired no connection with sslmode=verify-full can be made"
                                : NULL,
               "%s, and the server's certificate expires on %s", SSL_get_version(ssl), date);
    X509_free(certificate);
}

static void check_room(struct dlock_report *report, const struct pg *pg, const PGresult *facts) {
    long long used = number(facts, USED), most = number(facts, MOST);
    dlock_find(report,
               used <= most / 10 * 9 ? NULL
               : pg->sessions        ? "every lock that is held or waited for needs one: raise max_connections"
                                     : "without a connection no lock is renewed: raise max_connections",
               "connections: %lld of %lld", used, most);
}

static void check_rights(struct dlock_report *report, const struct pg *pg, const PGresult *facts) {
    if (is(facts, MAY_USE, "t") && is(facts, MAY_CALL, "t"))
        dlock_find(report, NULL, "schema %s is there, and may be used", pg->schema);
    else if (*fact(facts, OBJECTS))
        dlock_find(
            report,
            pg->sessions
                ? "this role has no privileges on it: run the GRANTs at the end of dlock's postgresql-session.sql"
                : "this role has no privileges on it: run the GRANTs at the end of `dlock schema postgresql`",
            "schema %s is there, and may not be used", pg->schema);
    else if (is(facts, MAY_CREATE, "t"))
        dlock_find(report, NULL, "schema %s is not there yet: it is made at the first use", pg->schema);
    else
        dlock_find(report,
                   pg->sessions ? "its DBA has to run dlock's postgresql-session.sql"
                                : "its DBA has to run what `dlock schema postgresql` prints",
                   "schema %s is not there, and may not be made", pg->schema);
}

static int check_quarantine(struct dlock_report *report, struct pg *pg, const PGresult *facts, int64_t deadline_us,
                            struct dlock_error *err) {
    PGresult *rows;
    int64_t left_ms;
    if (pg->sessions || pg->peer->quarantine_ms <= 0 || is(facts, STANDBY, "t") || !is(facts, MAY_CALL, "t")) return 0;
    pg_begin(&pg->arguments);
    pg_add_int8(&pg->arguments, pg->peer->quarantine_ms);
    int rc = pg_call(pg, PG_QUARANTINE, deadline_us, &rows, err);
    if (rc == 0 && rows && PQntuples(rows) == 1 && pg_read_int8(rows, 0, 0, &left_ms) && left_ms > 0)
        dlock_find_not_ready(report, left_ms);
    if (rc == 0) PQclear(rows);
    return rc;
}

int pg_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    struct dlock_report report = {each, arg, false};
    char sql[sizeof question + PG_SCHEMA_MAX + 20];
    const char *schema = pg->schema + 1; /* skips the opening quote; the name has no quotes inside */
    int length = (int)strlen(schema) - 1;
    PGresult *facts;
    snprintf(sql, sizeof sql, question, pg->sessions ? "session_version" : "schema_version", length, schema);
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = pg_query(pg, sql, deadline_us, &facts, err);
    if (rc != 0) return rc;
    if (PQresultStatus(facts) != PGRES_TUPLES_OK) {
        rc = pg_refused(pg, facts, err);
    } else if (PQntuples(facts) != 1 || PQnfields(facts) != N_FACTS) {
        rc = pg_nonsense(pg, "no row about its settings", err);
    } else {
        dlock_find(&report, NULL, "PostgreSQL %.100s", fact(facts, VERSION));
        check_rights(&report, pg, facts);
        check_strangers(&report, pg, facts);
        check_disk(&report, facts);
        check_tables(&report, pg, facts);
        check_standbys(&report, pg, facts);
        check_session(&report, pg, facts, timeout_ms);
        check_room(&report, pg, facts);
        check_certificate(&report, pg);
        if (!pg->sessions) check_old(&report, facts);
        rc = check_quarantine(&report, pg, facts, deadline_us, err);
    }
    PQclear(facts);
    return rc;
}
