/* Renew, downgrade, release.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- renew ------------------------------------------------------------------------------------------------------- */

/* From writer to reader, as the only one: nobody reads who has not seen our lock end, and that ends by becoming a
 * shared one. The kernel does this in one step (since Linux 4.0; flock(2) does not promise it for other systems), so
 * that neither a writer of ours nor flock(1) slips in. */
static int downgrade(struct file_conn *conn, struct dlock_claim *claim, int fd, const char *file) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    struct file_seat seat = {0, claim->state[FILE_STATE_FENCE], ""};
    int rc;
    if (atomic_load(&entry->seat) != 0) return 0;
    snprintf(seat.token, sizeof seat.token, "%s", claim->token);
    if (!file_seat(&conn->fds, fd, FILE_READERS, UINT32_MAX)) return DLOCK_EUNAVAILABLE;
    /* A seat without a name is still a seat. */
    (void)!file_seat_write(fd, claim->name, atomic_load(&entry->seat) - 1, &seat);
    do rc = flock(fd, LOCK_SH | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (entry->flags & FILE_LINGERING) {
        file_linger_end(conn, fd);
        file_byte_unlock(fd, FILE_LINGERS, 1);
        entry->flags &= ~(unsigned)FILE_LINGERING;
    }
    if (file_byte_locked(fd, FILE_WAITS, 1) >= 0) (void)!file_wake_others(conn, file);
    return rc == 0 ? 0 : DLOCK_EUNAVAILABLE;
}

static int renew(struct file_conn *conn, struct dlock_claim *claim) {
    uint64_t handle = claim->state[FILE_STATE_FD];
    char file[FILE_NAME_SIZE];
    if (claim->state[FILE_STATE_FENCE] == 0) return DLOCK_ELOST;
    file_name_encode(conn, claim->name, file);
    /* When it cannot be told, the kernel's lock still stands, and a later renewal finds out. */
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

int file_renew(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = renew(conn, claims[i]);
        if (claims[i]->result == 0) claims[i]->kept_ms = DLOCK_FOREVER;
    }
    return 0;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

/* The record keeps the fence and could lose the token, so that nobody takes us for the holder when flock(1) is. Where
 * /proc/locks tells the two apart that is not worth the write; elsewhere it is a courtesy, left out when somebody wrote
 * into the file, or the disk is full. */
static void erase_token(const struct file_conn *conn, const struct dlock_claim *claim, int fd) {
    struct file_stat st;
    if (conn->locks_listed || file_stat(fd, "", &st) != 0 || !file_record_fits(claim->name, st.size)) return;
    (void)!file_record_write(fd, claim->state[FILE_STATE_FENCE], "", claim->name);
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
    wake = wake && file_byte_locked(fd, FILE_WAITS, 1) >= 0;
    if (!wake) claim->retry_ms = 0;
    if (wake && !file_wake_others(conn, file))
        file_fd_close(&conn->fds, fd); /* which may wake them as well */
    else
        file_cache_put(conn, fd, file, claim->state[FILE_STATE_FILE]);
    claim->state[FILE_STATE_FD] = claim->state[FILE_STATE_FENCE] = claim->state[FILE_STATE_FILE] = 0;
    return held ? 0 : DLOCK_ELOST;
}

int file_release(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = release(conn, claims[i]);
    return 0;
}
