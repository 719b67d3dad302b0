/* Locks in MySQL and MariaDB: the tables of operations.
 *
 * SPDX-License-Identifier: MIT
 */
#include "maria.h"

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

/* In mode=session a grant lives as long as this descriptor's connection. */
static size_t maria_descriptors(void *conn, int *fds, size_t max) {
    const struct maria *maria = conn;
    int fd = maria->fd - 1;
    if (fd >= 0 && max > 0) fds[0] = fd;
    return fd >= 0;
}

static const char *const schemes[] = {"mysql", "mysql+tls", "mariadb", "mariadb+tls", NULL};
static const char *const keys[] = {"mode", DLOCK_TLS_KEYS, NULL};

static const struct dlock_backend by_sessions = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "mysql",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_BREAK | DLOCK_CAP_SESSION | DLOCK_CAP_PENDING | DLOCK_CAP_VOLATILE,
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
    .descriptors = maria_descriptors,
    .accepts = maria_accepts,
    .rest = maria_session_rest,
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
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_EXPORT | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK |
            DLOCK_CAP_VOLATILE,
    .conn_size = sizeof(struct maria),
    .connect = maria_connect,
    .disconnect = maria_disconnect,
    .acquire = maria_acquire,
    .renew = maria_renew,
    .release = maria_release,
    .abandon = maria_abandon,
    .inspect = maria_inspect,
    .list = maria_list,
    .break_lock = maria_break,
    .check = maria_check,
    .schema = schema_sql_text,
    .accepts = maria_accepts,
    .variant = maria_variant,
};
