/* Taking a lock away: a fresh file is renamed over the lock's file.
 *
 * The holder keeps its lock on the old file, and learns at its next renewal that it is no longer the lock's. Waiters
 * are woken by the rename and turn to the new file. The fence goes over in two steps: once before the rename, in case
 * we die in between; and once after, when nobody can be granted the old file any more (see try_once() in acquire.c),
 * while we hold the lock of the new one.
 *
 * Breaks take turns, by the lock of a file of their own, from beginning to end: a second break could otherwise take the
 * fresh file of the first one away before the fence has come over, or with it a grant that nobody meant to break.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* Locks never have files with a dot at the beginning. */
static const char turn_name[] = ".break", fresh_name[] = ".break.new";

/* Waits for its turn: a descriptor to end it with, or -1 with errno; ETIMEDOUT when others kept it. */
static int take_turn(struct file_conn *conn, int timeout_ms) {
    const struct timespec pause = {0, 2000000};
    int64_t deadline = file_now_ms() + timeout_ms;
    do {
        struct file_stat ours, named;
        int fd = openat(conn->dir, turn_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        fd = file_fd_keep(&conn->fds, fd);
        if (fd < 0) return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && file_stat(fd, "", &ours) == 0 &&
            file_stat(conn->dir, turn_name, &named) == 0 && ours.identity == named.identity)
            return fd;
        file_fd_close(&conn->fds, fd);
        nanosleep(&pause, NULL);
    } while (file_now_ms() < deadline);
    errno = ETIMEDOUT;
    return -1;
}

static void end_turn(struct file_conn *conn, int fd) {
    unlinkat(conn->dir, turn_name, 0);
    file_fd_close(&conn->fds, fd);
}

/* The lock's file, if somebody holds it: its descriptor in *old, its fence in *fence. */
static int open_held(struct file_conn *conn, const char *file, int *old, uint64_t *fence, struct dlock_error *err) {
    int fd = openat(conn->dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return DLOCK_ELOST;
    fd = file_fd_keep(&conn->fds, fd);
    if (fd < 0) return file_fail(err, errno, "cannot open the lock file", conn->path, file);
    int rc = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        rc = DLOCK_ELOST;
    } else if (errno != EWOULDBLOCK) {
        rc = file_fail(err, errno, "cannot look at the lock of", conn->path, file);
    } else {
        enum file_content content = file_fence_read(fd, fence);
        if (content == FILE_UNREADABLE) rc = file_fail(err, errno, "cannot read the lock file", conn->path, file);
        if (content == FILE_FOREIGN)
            rc = dlock_fail(err, DLOCK_EINVAL, "%s/%s has contents that dlock did not write, and is left as it is",
                            conn->path, file);
    }
    if (rc != 0)
        file_fd_close(&conn->fds, fd);
    else
        *old = fd;
    return rc;
}

/* Whoever could use the old file can use the new one. The owner cannot always be kept: then the mode still is. */
static int copy_rights(int old, int fresh) {
    struct stat st;
    if (fstat(old, &st) != 0) return -1;
    (void)!fchown(fresh, st.st_uid, st.st_gid);
    return fchmod(fresh, st.st_mode & 0777);
}

/* The fence in a file that somebody may be writing to, who then is not granted it: what can be read twice. */
static uint64_t settled_fence(int fd) {
    uint64_t one, two = 0;
    for (int tries = 0; tries < 8; tries++)
        if (file_fence_read(fd, &one) == file_fence_read(fd, &two) && one == two) break;
    return two;
}

static int replace(struct file_conn *conn, const char *file, int old, int fresh, const char *name, uint64_t fence,
                   struct dlock_error *err) {
    if (flock(fresh, LOCK_EX | LOCK_NB) != 0 || copy_rights(old, fresh) != 0 ||
        file_record_write(fresh, fence, "", name) != 0)
        return file_fail(err, errno, "cannot prepare", conn->path, fresh_name);
    if (renameat(conn->dir, fresh_name, conn->dir, file) != 0)
        return file_fail(err, errno, "cannot replace the lock file", conn->path, file);
    uint64_t last = settled_fence(old);
    if (last > fence) (void)!file_record_write(fresh, last, "", name); /* same length: it has its room */
    return 0;
}

static int break_in_turn(struct file_conn *conn, const char *file, const char *name, struct dlock_error *err) {
    uint64_t fence = 0;
    int old = -1, rc = open_held(conn, file, &old, &fence, err);
    if (rc != 0) return rc;
    unlinkat(conn->dir, fresh_name, 0); /* left by a break that was killed */
    int fresh = openat(conn->dir, fresh_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    fresh = file_fd_keep(&conn->fds, fresh);
    if (fresh < 0) {
        rc = file_fail(err, errno, "cannot create the new lock file", conn->path, fresh_name);
    } else {
        rc = replace(conn, file, old, fresh, name, fence, err);
        if (rc != 0) unlinkat(conn->dir, fresh_name, 0);
        file_fd_close(&conn->fds, fresh);
    }
    file_fd_close(&conn->fds, old);
    return rc;
}

int file_break(void *c, const char *name, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    char file[FILE_NAME_SIZE];
    file_name_encode(conn, name, file);
    int turn = take_turn(conn, timeout_ms);
    if (turn < 0 && errno == ETIMEDOUT)
        return dlock_fail(err, DLOCK_EBUSY, "another break keeps %s/%s locked", conn->path, turn_name);
    if (turn < 0) return file_fail(err, errno, "cannot open", conn->path, turn_name);
    int rc = break_in_turn(conn, file, name, err);
    end_turn(conn, turn);
    return rc;
}
