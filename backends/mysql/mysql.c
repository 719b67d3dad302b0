/* Locks in MySQL and MariaDB: the tables of operations.
 *
 * SPDX-License-Identifier: MIT
 */
#include "maria.h"

#include <dlock/backend_sessions.h>

#include "schema.sql.h"

#include <stdlib.h>

static int maria_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                         struct dlock_error *err) {
    struct maria *maria = conn;
    maria->peer = peer;
    maria->sessions = maria_says_session(uri);
    maria->tls = maria_says_tls(uri);
    maria->certified = dlock_uri_get(uri, "cert") != NULL;
    maria->insecure = dlock_tls_insecure(uri) == 1;
    maria->script = schema_sql_text;
    int rc = maria_accepts(uri, err);
    return rc == 0 ? maria_connect_link(maria, uri, dlock_deadline_us(timeout_ms), err) : rc;
}

static void maria_disconnect(void *conn) {
    struct maria *maria = conn;
    maria_hang_up(maria);
    free(maria->text);
    free(maria->kept.bytes);
    maria->text = maria->kept.bytes = NULL;
}

static void maria_abandon(void *conn) {
    const struct maria *maria = conn;
    if (maria->fd > 0) close(maria->fd - 1);
}

/* ---- mode=session ------------------------------------------------------------------------------------------------ */

const struct dlock_backend maria_session = {
    .name = "mysql",
    .conn_size = sizeof(struct maria),
    .connect = maria_connect,
    .disconnect = maria_disconnect,
    .acquire = maria_session_acquire,
    .renew = maria_session_renew,
    .release = maria_session_release,
    .abandon = maria_abandon,
    .listen = maria_session_listen,
    .wake = maria_session_wake,
    .break_lock = maria_session_break,
    .check = maria_check,
};

static int sessions_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                            struct dlock_error *err) {
    return dlock_sessions_connect(conn, &maria_session, uri, peer, timeout_ms, err);
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const char *const schemes[] = {"mysql", "mysql+tls", "mariadb", "mariadb+tls", NULL};
static const char *const keys[] = {"mode", DLOCK_TLS_KEYS, NULL};

static const struct dlock_backend by_sessions = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "mysql",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_BREAK | DLOCK_CAP_SESSION |
            DLOCK_CAP_THREADSAFE | DLOCK_CAP_VOLATILE,
    DLOCK_SESSIONS_OPERATIONS,
    .connect = sessions_connect,
    .break_lock = dlock_sessions_break,
    .check = dlock_sessions_check,
    .accepts = maria_accepts,
};

static const struct dlock_backend *maria_variant(const struct dlock_uri *uri) {
    return maria_says_session(uri) ? &by_sessions : NULL;
}

DLOCK_BACKEND(mysql) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "mysql",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_EXPORT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_VOLATILE,
    .conn_size = sizeof(struct maria),
    .connect = maria_connect,
    .disconnect = maria_disconnect,
    .acquire = maria_acquire,
    .renew = maria_renew,
    .release = maria_release,
    .abandon = maria_abandon,
    .listen = maria_listen,
    .wake = maria_wake,
    .probe = maria_probe,
    .inspect = maria_inspect,
    .waiters = maria_waiters,
    .list = maria_list,
    .break_lock = maria_break,
    .check = maria_check,
    .schema = schema_sql_text,
    .accepts = maria_accepts,
    .variant = maria_variant,
};
