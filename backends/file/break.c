/* Taking a lock away: a fresh file is renamed over the lock's file.
 *
 * The holder keeps its lock on the old file, and learns at its next renewal that it is no longer the lock's. Waiters
 * are woken by the rename and turn to the new file. The fence goes over in two steps: once before the rename, in case
 * we die in between; and once after, when nobody can be granted the old file any more (see try_once() in claims.c),
 * while we hold the lock of the new one.
 *
 * The fresh file's name is the same for all breaks, and its lock makes them take turns: otherwise a second break could
 * take the file of the first one, and with it a grant and a fence that nobody meant to break.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char fresh_name[] = ".break";

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Opens and locks the fresh file: its descriptor, or -1 with errno; ETIMEDOUT when others kept it. */
static int take_fresh(struct file_conn *conn, int timeout_ms) {
    const struct timespec pause = {0, 2000000};
    int64_t deadline = now_ms() + timeout_ms;
    do {
        struct stat ours, named;
        int fd = openat(conn->dir, fresh_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        fd = file_fd_keep(&conn->fds, fd);
        if (fd < 0) return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 &&
            fstatat(conn->dir, fresh_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            file_identity(&ours) == file_identity(&named))
            return fd;
        file_fd_close(&conn->fds, fd);
        nanosleep(&pause, NULL);
    } while (now_ms() < deadline);
    errno = ETIMEDOUT;
    return -1;
}

/* The lock's file, if somebody holds it: its descriptor in *old. */
static int open_held(struct file_conn *conn, const char *file, int *old, struct file_record *record,
                     struct dlock_error *err) {
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
        enum file_content content = file_record_read(fd, record);
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

static int replace(struct file_conn *conn, const char *file, int old, int fresh, const char *name,
                   struct file_record *record, struct dlock_error *err) {
    uint64_t fence = record->fence;
    if (ftruncate(fresh, 0) != 0 || copy_rights(old, fresh) != 0 || file_record_write(fresh, fence, "", name) != 0)
        return file_fail(err, errno, "cannot write", conn->path, fresh_name);
    if (renameat(conn->dir, fresh_name, conn->dir, file) != 0)
        return file_fail(err, errno, "cannot replace the lock file", conn->path, file);
    if (file_record_read(old, record) == FILE_RECORD && record->fence > fence)
        (void)!file_record_write(fresh, record->fence, "", name); /* same bytes, same length: it has its room */
    return 0;
}

int file_break(void *c, const char *name, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    struct file_record record;
    char file[FILE_NAME_SIZE];
    int old = -1;
    file_name_encode(conn, name, file);
    int fresh = take_fresh(conn, timeout_ms);
    if (fresh < 0 && errno == ETIMEDOUT)
        return dlock_fail(err, DLOCK_EBUSY, "another break keeps %s/%s locked", conn->path, fresh_name);
    if (fresh < 0) return file_fail(err, errno, "cannot prepare the new lock file", conn->path, fresh_name);
    int rc = open_held(conn, file, &old, &record, err);
    if (rc == 0) rc = replace(conn, file, old, fresh, name, &record, err);
    if (rc != 0) unlinkat(conn->dir, fresh_name, 0);
    if (old >= 0) file_fd_close(&conn->fds, old);
    file_fd_close(&conn->fds, fresh);
    return rc;
}
