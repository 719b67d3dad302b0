/* Calls of the schema's functions, which are created where they are missing. */
#include "postgresql.h"

/* Most repetitions of a call in a row. Each means that another session made progress. */
#define MOST_RETRIES 100
#define SQL_MAX 1200
/* For this long after a commit failed because of its notifications, they are sent in a separate transaction. */
#define APART_US 1000000
/* By how much a release must exceed a round trip, averaged over AVERAGED releases, before notifications are sent in a
 * separate transaction: that costs a round trip, and a single release may be late for any reason. */
#define SLOW_COMMIT_US 2000
#define AVERAGED 8

/* Whoever may CREATE in a schema on the search_path can define a function or an operator that fits better than one of
 * pg_catalog, and it would run with the rights of this client. So everything here names its schema. */
#define OP(symbol) " OPERATOR(pg_catalog." symbol ") "

/* An acquire whose client has given up must grant nothing, since the release of its token may have been executed
 * already. The functions apply a time limit that starts when the server has read the request, which may be long after
 * it was sent: the server may be stopped, or the network slow. So the limit is reduced to the remaining time by the
 * server's clock, in whole ms, rounded up, as a limit of 0 grants nothing. `until` is NULL if that clock is unknown;
 * `wait` is never 0. */
#define SINCE_EPOCH_US(time) "(pg_catalog.date_part('epoch', " time ")" OP("*") "1000000)::bigint"
#define LEFT_MS(until) \
    "(" until OP("-") SINCE_EPOCH_US("pg_catalog.statement_timestamp()") OP("+") "999)" OP("/") "1000"
#define WAIT_MS(wait, until)                                                                                 \
    "(" wait "::integer" OP("/") "pg_catalog.abs(" wait ")" OP("*") "greatest(0, least(pg_catalog.abs(" wait \
                                                                    "), " LEFT_MS(until) ")))::integer"

/* Statements of mode=session. The CASE guarantees that the fence is drawn only after the lock is there. $2 is true for
 * the first fence of a connection, which is drawn by a function of the schema: session.sql says why. */
#define TAKE(got)                                                                                                     \
    "SELECT CASE WHEN " got " THEN CASE WHEN $2 THEN {}.first_fence() ELSE pg_catalog.nextval('{}.fences') END END, " \
    "pg_catalog.clock_timestamp()"
#define TRY(shared) TAKE("pg_catalog.pg_try_advisory_lock" shared "($1)")
#define WAIT(shared) TAKE("pg_catalog.pg_advisory_lock" shared "($1) IS NOT NULL")
#define LEASE(name, value) ", pg_catalog.set_config(" name ", " value ", false)"

enum {
    PATIENT = 1, /* the last argument is the time in ms that the call may wait for other sessions */
    CREATES = 2, /* creates missing objects; the other calls have nothing to do without them */
    BOUNDED = 4  /* PATIENT, and after that argument comes the server's time at which the client gives up */
};

static const struct {
    const char *name; /* name of the prepared statement; NULL: a rare call, which is not prepared */
    const char *sql;  /* {} stands for the schema */
    int columns;
    unsigned how; /* bits */
} calls[PG_CALLS] = {
    [PG_TAKE] = {"dlock_take",
                 "UPDATE {}.take SET name = $1, token = $2, lease_ms = $3, flags = $4, wait_ms = " WAIT_MS(
                     "$5", "$6") " RETURNING 1, granted, server_us",
                 3, PATIENT | CREATES | BOUNDED},
    [PG_ACQUIRE] = {"dlock_acquire", "SELECT * FROM {}.acquire($1, $2, $3, $4, $5, $6, $7, " WAIT_MS("$8", "$9") ")", 7,
                    PATIENT | CREATES | BOUNDED},
    [PG_RENEW] = {"dlock_renew", "SELECT * FROM {}.renew($1, $2, $3, $4, $5)", 3, PATIENT},
    [PG_GIVE] = {"dlock_give", "UPDATE {}.give SET name = $1, token = $2 RETURNING 1, ended", 2, 0},
    [PG_RELEASE] = {"dlock_release", "SELECT * FROM {}.release($1, $2, $3)", 3, PATIENT},
    [PG_BREAK] = {"dlock_break", "SELECT * FROM {}.break($1, $2)", 2, PATIENT},
    [PG_HOLDERS] = {"dlock_holders",
                    "SELECT *, " SINCE_EPOCH_US("pg_catalog.clock_timestamp()") " FROM {}.holders($1, $2, $3)", 8, 0},
    [PG_WAITERS] = {NULL, "SELECT *, " SINCE_EPOCH_US("pg_catalog.clock_timestamp()") " FROM {}.waiters($1)", 5, 0},
    [PG_QUARANTINE] = {NULL, "SELECT {}.quarantine_left($1)", 1, 0},
    [PG_TRY] = {"dlock_try", TRY(""), 2, CREATES},
    [PG_TRY_SHARED] = {"dlock_try_shared", TRY("_shared"), 2, CREATES},
    [PG_WAIT] = {"dlock_wait", WAIT(""), 2, CREATES},
    [PG_WAIT_SHARED] = {"dlock_wait_shared", WAIT("_shared"), 2, CREATES},
    [PG_TRY_LEASE] = {"dlock_try_lease", TRY("") LEASE("$3", "$4"), 3, CREATES},
    [PG_TRY_SHARED_LEASE] = {"dlock_try_shared_lease", TRY("_shared") LEASE("$3", "$4"), 3, CREATES},
    [PG_WAIT_LEASE] = {"dlock_wait_lease", WAIT("") LEASE("$3", "$4"), 3, CREATES},
    [PG_WAIT_SHARED_LEASE] = {"dlock_wait_shared_lease", WAIT("_shared") LEASE("$3", "$4"), 3, CREATES},
    [PG_DRAW] = {NULL, "SELECT {}.first_fence(), pg_catalog.clock_timestamp()" LEASE("$1", "$2"), 3, 0},
    [PG_PROVE] = {NULL, "SELECT pg_catalog.clock_timestamp()" LEASE("$1", "$2"), 2, 0},
    [PG_DOWNGRADE] = {NULL,
                      "SELECT pg_catalog.clock_timestamp()" LEASE(
                          "$1", "$2") " FROM (SELECT pg_catalog.pg_advisory_unlock($3) AS ended FROM (SELECT "
                                      "pg_catalog.pg_advisory_lock_shared($3) IS NOT "
                                      "NULL AS got OFFSET 0) s WHERE got OFFSET 0) e WHERE ended IS NOT NULL",
                      2, 0},
    [PG_GIVE_BACK] = {"dlock_give_back", "SELECT pg_catalog.pg_advisory_unlock_all()", 1, 0},
    [PG_END_SESSIONS] = {"dlock_end_sessions", "SELECT {}.end_sessions($1, $2)", 1, PATIENT},
    [PG_LISTEN] = {"dlock_listen", "SELECT {}.listen($1, $2, $3)", 1, CREATES},
    [PG_TELL] = {"dlock_tell", "SELECT {}.tell($1)", 1, 0},
};

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

struct values {
    const char *values[PG_ARGUMENTS];
    int lengths[PG_ARGUMENTS], formats[PG_ARGUMENTS];
};

static void point(const struct pg_arguments *arguments, struct values *out) {
    for (int i = 0; i < arguments->n; i++) {
        size_t end = i + 1 < arguments->n ? arguments->at[i + 1] : arguments->used;
        out->values[i] = arguments->null[i] ? NULL : arguments->bytes + arguments->at[i];
        out->lengths[i] = (int)(end - arguments->at[i]);
        out->formats[i] = 1;
    }
}

static void write_sql(const struct pg *pg, enum pg_call call, char sql[SQL_MAX]) {
    size_t used = 0;
    for (const char *from = calls[call].sql; *from; from++) {
        bool schema = from[0] == '{' && from[1] == '}';
        used += (size_t)snprintf(sql + used, SQL_MAX - used, "%.*s", schema ? PG_IDENTIFIER_MAX : 1,
                                 schema ? pg->schema : from);
        from += schema;
    }
}

/* Sends the call, after preparing it if need be; *refused gets the error if the server refuses to prepare it. With
 * listen=off nothing may outlive a statement, so nothing is prepared. Nor is the first request for a lock in
 * mode=session, since it may be the connection's only one. */
static int put(struct pg *pg, enum pg_call call, int64_t deadline_us, PGresult **refused, struct dlock_error *err) {
    const struct pg_arguments *arguments = &pg->arguments;
    bool once = pg->listen == PG_LISTEN_OFF || !calls[call].name || (pg->sessions && !pg->session.tried);
    struct values v;
    char sql[SQL_MAX];
    *refused = NULL;
    if (!pg->link || pg->unanswered) return pg_dead(pg, "the connection is broken", err);
    point(arguments, &v);
    pg->unanswered = true;
    if (once || !pg->prepared[call]) write_sql(pg, call, sql);
    if (once)
        return PQsendQueryParams(pg->link, sql, arguments->n, NULL, v.values, v.lengths, v.formats, 1)
                   ? 0
                   : pg_send_failed(pg, err);
    if (!pg->prepared[call]) {
        PGresult *result;
        if (!PQsendPrepare(pg->link, calls[call].name, sql, 0, NULL)) return pg_send_failed(pg, err);
        int rc = pg_read_answer(pg, deadline_us, &result, err);
        if (rc != 0) return rc;
        if (pg_is_error(result)) {
            *refused = result;
            return 0;
        }
        PQclear(result);
        pg->prepared[call] = pg->unanswered = true;
    }
    return PQsendQueryPrepared(pg->link, calls[call].name, arguments->n, v.values, v.lengths, v.formats, 1)
               ? 0
               : pg_send_failed(pg, err);
}

/* ---- until it is over -------------------------------------------------------------------------------------------- */

/* True for a serialization failure and a deadlock: another session won, and the call can be repeated. Not in
 * mode=session: there the lock that the call had taken before stays with the session. It would keep the other one
 * waiting, and be taken twice, so that a downgrade would not end it. */
static bool worth_repeating(const struct pg *pg, const char *state) {
    return !pg->sessions && (pg_state_is(state, "40001") || pg_state_is(state, "40P01"));
}

static bool schema_missing(const char *state) {
    return pg_state_is(state, "3F000");
}

/* True if the schema, or a table or function in it, does not exist. */
static bool objects_missing(const char *state) {
    return schema_missing(state) || pg_state_is(state, "42P01") || pg_state_is(state, "42883");
}

/* True if the call has nothing to do, since there is no schema, or has to be left to the long way: PG_TAKE and PG_GIVE
 * waited for a row until the session's lock_timeout, or the view of PG_GIVE is missing. */
static bool without_rows(enum pg_call call, const char *state) {
    if (call == PG_TAKE || call == PG_GIVE)
        return pg_state_is(state, "55P03") || (call == PG_GIVE && objects_missing(state));
    return schema_missing(state) && !(calls[call].how & CREATES);
}

/* Returns how long the server may wait for other sessions: a little less than the time left, so that it grants nothing
 * after this client has given up. A negative value makes the server return its notifications for pg_tell(). */
static int32_t patience_ms(bool apart, int64_t now_us, int64_t deadline_us) {
    int64_t left_ms = (deadline_us - now_us) * 9 / 10000;
    int32_t ms = left_ms < 1 ? 1 : left_ms > INT32_MAX ? INT32_MAX : (int32_t)left_ms;
    return apart ? -ms : ms;
}

/* Adds what a patient call takes last. The server's clock has passed that time at our deadline, unless it is set. */
static void add_patience(struct pg *pg, enum pg_call call, bool apart, int64_t now_us, int64_t deadline_us) {
    if (!(calls[call].how & PATIENT)) return;
    pg_add_int4(&pg->arguments, patience_ms(apart, now_us, deadline_us));
    if (!(calls[call].how & BOUNDED)) return;
    if (pg->clock.server_us)
        pg_add_int8(&pg->arguments, pg->clock.server_us + (deadline_us - pg->clock.received_us));
    else
        pg_add_bytes(&pg->arguments, NULL, 0);
}

static void drop_patience(struct pg *pg, enum pg_call call) {
    if (calls[call].how & PATIENT) pg_drop_last(&pg->arguments);
    if (calls[call].how & BOUNDED) pg_drop_last(&pg->arguments);
}

/* True if the server refused the call as late although it was not late by our clock: then the server's has been set.
 * Forgets what is known of that clock. */
static bool clock_was_set(struct pg *pg, enum pg_call call, const PGresult *result, int64_t begun_us,
                          int64_t deadline_us) {
    if (!(calls[call].how & BOUNDED) || !pg->clock.server_us || !pg_state_is(pg_state(result), "57014")) return false;
    pg->clock.server_us = 0;
    return dlock_now_us() - begun_us < (deadline_us - begun_us) / 2;
}

/* True if a commit failed because of its notifications: NOTIFY's queue is full, or another transaction keeps NOTIFY's
 * lock. Errors raised in functions may have the same code, but carry a context. */
static bool could_not_notify(const PGresult *result) {
    const char *state = pg_state(result);
    return (pg_state_is(state, "54000") || pg_state_is(state, "55P03")) && !PQresultErrorField(result, PG_DIAG_CONTEXT);
}

/* A transaction with a NOTIFY delays all others with one in the cluster until it is flushed. Where flushing is slow,
 * notifications are sent in separate transactions. The quickest call of the connection serves as the estimate of a
 * round trip. */
static int64_t slow_us(const struct pg *pg) {
    return pg->quickest_us > SLOW_COMMIT_US ? pg->quickest_us : SLOW_COMMIT_US;
}

static bool tells_apart(const struct pg *pg, int64_t now_us) {
    return now_us < pg->apart_until_us || pg->commit_us > slow_us(pg);
}

static void note_duration(struct pg *pg, enum pg_call call, int64_t took_us) {
    if (pg->quickest_us == 0 || took_us < pg->quickest_us) pg->quickest_us = took_us;
    if (call != PG_RELEASE) return; /* only a call that hands over is always flushed, and sends notifications */
    int64_t commit_us = took_us - pg->quickest_us, most_us = 4 * slow_us(pg);
    pg->commit_us += ((commit_us < most_us ? commit_us : most_us) - pg->commit_us) / AVERAGED;
}

/* Sends the call, and again after each refusal whose cause it can remove. `rows` NULL: leaves the answer unread. */
static int exchange(struct pg *pg, enum pg_call call, int64_t deadline_us, PGresult **rows, struct dlock_error *err) {
    bool created = false;
    for (int retries = 0;; retries++) {
        PGresult *result;
        int64_t begun_us = dlock_now_us();
        bool apart = tells_apart(pg, begun_us);
        add_patience(pg, call, apart, begun_us, deadline_us);
        if (pg->arguments.failed) return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request");
        int rc = put(pg, call, deadline_us, &result, err);
        if (rc == 0 && !result) {
            if (!rows) return pg_flush(pg, deadline_us, err);
            rc = pg_read_answer(pg, deadline_us, &result, err);
        }
        if (rc != 0) return rc;
        drop_patience(pg, call);
        if (calls[call].how & PATIENT || call == PG_GIVE) note_duration(pg, call, dlock_now_us() - begun_us);
        if (rows && PQresultStatus(result) == PGRES_TUPLES_OK && PQnfields(result) == calls[call].columns) {
            *rows = result;
            return 0;
        }
        if (!pg_is_error(result)) {
            rc = pg_nonsense(pg, "rows of an unknown form", err);
        } else if ((worth_repeating(pg, pg_state(result)) && retries < MOST_RETRIES) ||
                   clock_was_set(pg, call, result, begun_us, deadline_us)) {
            rc = 0;
        } else if (calls[call].how & PATIENT && could_not_notify(result) && !apart) {
            pg->apart_until_us = dlock_now_us() + APART_US;
        } else if (rows && without_rows(call, pg_state(result))) {
            PQclear(result);
            *rows = NULL;
            return 0;
        } else if (objects_missing(pg_state(result)) && calls[call].how & CREATES && !created) {
            created = true;
            rc = pg_create_schema(pg, deadline_us, err);
        } else {
            rc = pg_refused(pg, result, err);
        }
        PQclear(result);
        if (rc != 0) return rc;
    }
}

int pg_call(struct pg *pg, enum pg_call call, int64_t deadline_us, PGresult **rows, struct dlock_error *err) {
    return exchange(pg, call, deadline_us, rows, err);
}

int pg_post(struct pg *pg, enum pg_call call, int64_t deadline_us, struct dlock_error *err) {
    return exchange(pg, call, deadline_us, NULL, err);
}
