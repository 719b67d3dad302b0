/* Marks grants whose holder wants to be told of waiters, and ends grants.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

/* A waiter that came before FILE_LINGERS was locked could not see it and sent no notification: this function does so
 * instead. */
void file_linger(struct file_conn *conn, int fd) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    if (entry->flags & FILE_LINGERING || !file_has_inotify(conn) || !file_byte_lock(fd, true, FILE_LINGERS)) return;
    entry->flags |= FILE_LINGERING;
    atomic_fetch_add(&conn->lingering, 1);
    if (file_line_waits(fd)) file_tell_wanted(fd);
}

void file_linger_end(struct file_conn *conn, int fd) {
    if (file_fd_at(&conn->fds, fd)->flags & FILE_LINGERING) atomic_fetch_sub(&conn->lingering, 1);
}

void file_forget(struct file_conn *conn, struct dlock_claim *claim, int fd) {
    file_linger_end(conn, fd);
    file_fd_close(&conn->fds, fd);
    claim->state[FILE_STATE_FD] = claim->state[FILE_STATE_FENCE] = claim->state[FILE_STATE_FILE] = 0;
}

void file_forget_all(struct file_conn *conn, struct dlock_claim *const *claims, size_t n, int result) {
    for (size_t i = 0; i < n; i++) {
        int fd = file_fd_take(&conn->fds, claims[i]->state[FILE_STATE_FD]);
        if (fd >= 0) file_forget(conn, claims[i], fd);
        claims[i]->result = result;
    }
}
