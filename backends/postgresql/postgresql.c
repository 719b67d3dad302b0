/* The tables of operations for PostgreSQL, connect and disconnect. */
#include "postgresql.h"

#include <dlock/backend_sessions.h>

#include "schema.sql.h"
#include "session.sql.h"

#include <stdlib.h>
#include <unistd.h>

static int pg_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                      struct dlock_error *err) {
    struct pg *pg = conn;
    pg->peer = peer;
    pg_begin_openssl();
    int rc = pg_address(pg, uri, err);
    pg->script = pg->sessions ? session_sql_text : schema_sql_text;
    return rc == 0 ? pg_connect_link(pg, uri, dlock_deadline_us(timeout_ms), err) : rc;
}

static void pg_disconnect(void *conn) {
    struct pg *pg = conn;
    PQclear(pg->session.answer);
    pg->session.answer = NULL;
    pg_hang_up(pg);
    free(pg->arguments.bytes);
    pg->arguments.bytes = NULL;
}

static void pg_abandon(void *conn) {
    const struct pg *pg = conn;
    int fd = pg->link ? PQsocket(pg->link) : -1;
    if (fd >= 0) close(fd);
}

static int pg_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    struct pg pg;
    return pg_address(&pg, uri, err);
}

/* ---- mode=session ------------------------------------------------------------------------------------------------ */

const struct dlock_backend pg_session = {
    .name = "postgresql",
    .conn_size = sizeof(struct pg),
    .connect = pg_connect,
    .disconnect = pg_disconnect,
    .acquire = pg_session_acquire,
    .renew = pg_session_renew,
    .release = pg_session_release,
    .abandon = pg_abandon,
    .listen = pg_session_listen,
    .wake = pg_session_wake,
    .break_lock = pg_session_break,
    .check = pg_check,
};

static int sessions_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                            struct dlock_error *err) {
    return dlock_sessions_connect(conn, &pg_session, uri, peer, timeout_ms, err);
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const char *const schemes[] = {"postgresql", "postgres", NULL};
static const char *const keys[] = {"*", NULL};

static const struct dlock_backend by_sessions = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "postgresql",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_BREAK |
            DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE,
    DLOCK_SESSIONS_OPERATIONS,
    .connect = sessions_connect,
    .break_lock = dlock_sessions_break,
    .check = dlock_sessions_check,
    .schema = session_sql_text,
    .accepts = pg_accepts,
};

static const struct dlock_backend *pg_variant(const struct dlock_uri *uri) {
    return pg_says_session(uri) ? &by_sessions : NULL;
}

DLOCK_BACKEND(postgresql) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "postgresql",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
            DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE | DLOCK_CAP_WANTED | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST |
            DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct pg),
    .connect = pg_connect,
    .disconnect = pg_disconnect,
    .acquire = pg_acquire,
    .renew = pg_renew,
    .release = pg_release,
    .abandon = pg_abandon,
    .listen = pg_listen,
    .wake = pg_wake,
    .inspect = pg_inspect,
    .waiters = pg_waiters,
    .list = pg_list,
    .break_lock = pg_break,
    .check = pg_check,
    .schema = schema_sql_text,
    .accepts = pg_accepts,
    .variant = pg_variant,
    .probe = pg_probe,
};
