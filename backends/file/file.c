/* The operation table, and the end of a connection.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <stdlib.h>

static void file_disconnect(void *c) {
    struct file_conn *conn = c;
    file_fds_close(&conn->fds, true);
    file_fds_free(&conn->fds);
    free(conn->path);
}

/* Closes a forked child's copies of the parent's descriptors without unlocking: unlocking would end the parent's locks,
 * and open copies would keep the locks alive after the parent's end. */
static void file_abandon(void *c) {
    struct file_conn *conn = c;
    file_fds_close(&conn->fds, false);
}

static size_t file_descriptors(void *c, int *fds, size_t max) {
    struct file_conn *conn = c;
    return file_fds_lent(&conn->fds, fds, max);
}

static const char *const schemes[] = {"file", NULL}, *const keys[] = {"mode", "group", NULL};

DLOCK_BACKEND(file) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "file",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LOCAL | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_WAKE |
            DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_WANTED | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST |
            DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct file_conn),
    .connect = file_connect,
    .disconnect = file_disconnect,
    .acquire = file_acquire,
    .renew = file_renew,
    .release = file_release,
    .abandon = file_abandon,
    .listen = file_listen,
    .wake = file_wake,
    .inspect = file_inspect,
    .list = file_list,
    .break_lock = file_break,
    .check = file_check,
    .descriptors = file_descriptors,
    .accepts = file_accepts,
};
