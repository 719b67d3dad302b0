/* Renew, downgrade, release.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- renew ------------------------------------------------------------------------------------------------------- */

/* Turns the exclusive lock into a shared one. No other reader has a seat yet, since readers need the shared flock(2),
 * for which ours has to become shared first. The kernel converts the lock in one step (since Linux 4.0; flock(2) does
 * not promise it for other systems), so that no other writer, of dlock or flock(1), can get it in between. */
static int downgrade(struct file_conn *conn, struct dlock_claim *claim, int fd, const char *file) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    struct file_seat seat = {0, claim->state[FILE_STATE_FENCE], ""};
    int rc;
    if (atomic_load(&entry->seat) != 0) return 0;
    snprintf(seat.token, sizeof seat.token, "%s", claim->token);
    if (!file_seat(&conn->fds, fd, FILE_READERS, UINT32_MAX)) return DLOCK_EUNAVAILABLE;
    /* If the write fails, only the token and the fence are missing in the list: the seat's byte is locked. */
    (void)!file_seat_write(conn, fd, claim->name, atomic_load(&entry->seat) - 1, &seat);
    do rc = flock(fd, LOCK_SH | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (entry->flags & FILE_LINGERING) {
        file_linger_end(conn, fd);
        file_byte_unlock(fd, FILE_LINGERS, 1);
        entry->flags &= ~(unsigned)FILE_LINGERING;
    }
    if (file_line_waits(fd)) (void)!file_wake_others(conn, file);
    return rc == 0 ? 0 : DLOCK_EUNAVAILABLE;
}

static int renew(struct file_conn *conn, struct dlock_claim *claim) {
    uint64_t handle = claim->state[FILE_STATE_FD];
    char file[FILE_NAME_SIZE];
    if (claim->state[FILE_STATE_FENCE] == 0) return DLOCK_ELOST;
    file_name_encode(conn, claim->name, file);
    /* If that cannot be told (-1), the kernel's lock is still there, and a later renewal checks again. */
    if (file_still_named(conn, claim, file) == 0) {
        int fd = file_fd_take(&conn->fds, handle);
        if (fd >= 0) file_forget(conn, claim, fd);
        return DLOCK_ELOST;
    }
    if (claim->mode != DLOCK_SHARED || file_fd_seated(&conn->fds, handle)) return 0;
    int fd = file_fd_borrow(&conn->fds, handle);
    if (fd < 0) return DLOCK_ELOST;
    int rc = downgrade(conn, claim, fd, file);
    file_fd_return(&conn->fds, fd, handle);
    return rc;
}

/* Ends the claims of a directory that is not the one under its path any more. */
static void lose_all(struct file_conn *conn, struct dlock_claim *const *claims, size_t n, const char *what) {
    char message[512];
    snprintf(message, sizeof message, "file: the lock directory %.400s %s", conn->path, what);
    conn->peer->log(conn->peer, DLOCK_LOG_WARN, message);
    file_forget_all(conn, claims, n, DLOCK_ELOST);
}

int file_renew(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    const char *replaced = file_replaced(conn);
    if (replaced) return lose_all(conn, claims, n, replaced), 0;
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = renew(conn, claims[i]);
        if (claims[i]->result == 0) claims[i]->kept_ms = DLOCK_FOREVER;
    }
    return 0;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

/* Erases the token from the record and keeps the fence, so that this claim is not mistaken for the holder when flock(1)
 * holds the lock later. The write is unnecessary where /proc/locks distinguishes the two. It is also skipped if another
 * program has written to the file, and it may fail, for example on a full disk. */
static void erase_token(const struct file_conn *conn, const struct dlock_claim *claim, int fd) {
    struct file_stat st;
    if (conn->locks_listed || file_stat(fd, "", &st) != 0 || !file_record_fits(claim->name, st.size)) return;
    (void)!file_record_write(conn, fd, claim->state[FILE_STATE_FENCE], "", claim->name);
}

static int release(struct file_conn *conn, struct dlock_claim *claim) {
    char file[FILE_NAME_SIZE];
    if (claim->flags & DLOCK_CLAIM_DEAD) return 0; /* the kernel has freed it */
    int fd = file_fd_take(&conn->fds, claim->state[FILE_STATE_FD]);
    if (fd < 0) return DLOCK_ELOST;
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    bool held = claim->state[FILE_STATE_FENCE] != 0, wake = held || entry->flags & FILE_GATED;
    file_name_encode(conn, claim->name, file);
    if (held && file_check_named(conn, claim, fd, file) == 0) {
        file_forget(conn, claim, fd);
        return DLOCK_ELOST;
    }
    if (held && atomic_load(&entry->seat) == 0) erase_token(conn, claim, fd);
    file_linger_end(conn, fd);
    file_fd_unlock(&conn->fds, fd);
    wake = wake && file_line_waits(fd);
    file_line_released(entry, held && wake);
    if (!wake) claim->retry_ms = 0;
    if (wake && !file_wake_others(conn, file))
        file_fd_close(&conn->fds, fd); /* this close may wake the waiters instead */
    else
        file_cache_put(conn, fd, file, claim->state[FILE_STATE_FILE]);
    claim->state[FILE_STATE_FD] = claim->state[FILE_STATE_FENCE] = claim->state[FILE_STATE_FILE] = 0;
    return held ? 0 : DLOCK_ELOST;
}

int file_release(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    bool replaced = file_replaced_lately(conn) != NULL;
    for (size_t i = 0; i < n; i++) {
        int result = release(conn, claims[i]); /* waiters in the old directory must be woken all the same */
        bool lost = replaced && result == 0 && !(claims[i]->flags & DLOCK_CLAIM_DEAD);
        claims[i]->result = lost ? DLOCK_ELOST : result;
    }
    return 0;
}
