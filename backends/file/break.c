/* Takes a lock away: renames a fresh file over the lock's file.
 *
 * The holder keeps its flock(2) on the old file, and learns at its next renewal that this is no longer the lock's file.
 * Waiters are woken by the rename and use the new file. The fence is copied twice: before the rename, in case this
 * process dies in between; and after it, when the old file can no longer be granted (see try_once() in acquire.c),
 * while we hold the lock of the new one.
 *
 * Breaks of one lock are serialised by a byte lock on its file (byte_locks.c), from beginning to end. Otherwise a
 * second break could replace the fresh file of the first one before the fence is copied, or break a new grant by
 * accident. So only a user who may write the lock's file can keep others from breaking it.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static bool take_turn(struct file_conn *conn, int fd) {
    if (!file_byte_lock(fd, true, FILE_BREAKS)) return false;
    file_fd_at(&conn->fds, fd)->flags |= FILE_BREAKING;
    return true;
}

/* Opens the lock's file and locks FILE_BREAKS on it; waits for other breaks. Returns 0 with the descriptor in *out;
 * ELOST if there is no file; or an error. */
static int open_in_turn(struct file_conn *conn, const char *file, int timeout_ms, int *out, struct dlock_error *err) {
    const struct timespec pause = {0, 2000000};
    int64_t deadline = file_now_ms() + timeout_ms;
    do {
        struct file_stat ours, named;
        int fd = openat(conn->dir, file, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 && errno == ENOENT) return DLOCK_ELOST;
        fd = file_fd_keep(&conn->fds, fd);
        if (fd < 0) return file_fail(err, errno, "cannot open the lock file", conn->path, file);
        if (file_stat(fd, "", &ours) == 0 && !ours.regular) {
            file_fd_close(&conn->fds, fd);
            return dlock_fail(err, DLOCK_EINVAL, "%s/%s is not a regular file, so it cannot be a lock", conn->path,
                              file);
        }
        if (take_turn(conn, fd) && file_stat(conn->dir, file, &named) == 0 && ours.identity == named.identity) {
            *out = fd;
            return 0;
        }
        file_fd_close(&conn->fds, fd);
        nanosleep(&pause, NULL);
    } while (file_now_ms() < deadline);
    return dlock_fail(err, DLOCK_EBUSY, "another break of %s/%s is not finished: try again", conn->path, file);
}

/* Returns 0 and the file's fence if its lock is held; ELOST if it is free; or an error. */
static int read_held(struct file_conn *conn, const char *file, int old, uint64_t *fence, struct dlock_error *err) {
    if (flock(old, LOCK_EX | LOCK_NB) == 0) return DLOCK_ELOST;
    if (errno != EWOULDBLOCK) return file_fail(err, errno, "cannot look at the lock of", conn->path, file);
    enum file_content content = file_fence_read(old, fence);
    if (content == FILE_UNREADABLE) return file_fail(err, errno, "cannot read the lock file", conn->path, file);
    if (content == FILE_FOREIGN)
        return dlock_fail(err, DLOCK_EINVAL, "%s/%s has contents that dlock did not write, and is left as it is",
                          conn->path, file);
    return 0;
}

/* Gives the new file the owner, group and mode of the old one. The owner cannot always be kept. If the group cannot be
 * kept, the group of this process gets no more rights than others. */
static int copy_rights(int old, int fresh) {
    struct stat st;
    if (fstat(old, &st) != 0) return -1;
    mode_t mode = st.st_mode & 0777;
    if (fchown(fresh, st.st_uid, st.st_gid) != 0 && fchown(fresh, (uid_t)-1, st.st_gid) != 0)
        mode = (mode & ~(mode_t)0070) | (mode & 0007) << 3;
    return fchmod(fresh, mode);
}

/* Returns the fence of a file that a claim may be writing to, which will not be granted it: reads until two reads
 * agree. */
static uint64_t settled_fence(int fd) {
    uint64_t one, two = 0;
    for (int tries = 0; tries < 8; tries++)
        if (file_fence_read(fd, &one) == file_fence_read(fd, &two) && one == two) break;
    return two;
}

static int replace(struct file_conn *conn, const char *file, int old, int fresh, const char *fresh_name,
                   const char *name, uint64_t fence, struct dlock_error *err) {
    if (!take_turn(conn, fresh) || flock(fresh, LOCK_EX | LOCK_NB) != 0 || copy_rights(old, fresh) != 0 ||
        file_record_write(conn, fresh, fence, "", name) != 0)
        return file_fail(err, errno, "cannot prepare", conn->path, fresh_name);
    if (renameat(conn->dir, fresh_name, conn->dir, file) != 0)
        return file_fail(err, errno, "cannot replace the lock file", conn->path, file);
    uint64_t last = settled_fence(old);
    if (last > fence) (void)!file_record_write(conn, fresh, last, "", name); /* same length: needs no more disk space */
    flock(fresh, LOCK_UN); /* before FILE_BREAKS is unlocked: the next break must not take the lock for held */
    return 0;
}

static int break_in_turn(struct file_conn *conn, const char *file, const char *name, int old, struct dlock_error *err) {
    char fresh_name[FILE_FRESH_SIZE];
    uint64_t fence = 0;
    int rc = read_held(conn, file, old, &fence, err);
    if (rc != 0) return rc;
    int fresh = file_make_fresh(conn, fresh_name);
    if (fresh < 0) return file_fail(err, errno, "cannot create a new lock file in", conn->path, NULL);
    rc = replace(conn, file, old, fresh, fresh_name, name, fence, err);
    if (rc != 0) unlinkat(conn->dir, fresh_name, 0);
    file_fd_close(&conn->fds, fresh);
    return rc;
}

int file_break(void *c, const char *name, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    char file[FILE_NAME_SIZE];
    int old = -1;
    file_name_encode(conn, name, file);
    int rc = open_in_turn(conn, file, timeout_ms, &old, err);
    if (rc != 0) return rc;
    rc = break_in_turn(conn, file, name, old, err);
    file_fd_close(&conn->fds, old);
    return rc;
}
