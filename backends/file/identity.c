/* Checks whether a descriptor's file is still the one under its name.
 *
 * Looking the name up is the most expensive part of an uncontended cycle. If the directory still has the time stamp
 * that it had at the last look-up, no name in it has changed: file systems change the stamp before a change becomes
 * visible. Two changes within one tick of the clock can have the same stamp, so a recent stamp proves nothing.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#ifndef STATX_TYPE /* an older musl */
#include <linux/stat.h>
static int statx(int dir, const char *file, int flags, unsigned wanted, struct statx *out) {
    return (int)syscall(SYS_statx, dir, file, flags, wanted, out);
}
#endif

static const int64_t old_enough_ns = 50000000; /* more than a tick, which is 10 ms at most */

/* Does not ask for time stamps: on some kernels that makes the next write to the file slower. */
int file_stat(int dir, const char *file, struct file_stat *st) {
    struct statx all;
    const unsigned wanted = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_NLINK | STATX_UID | STATX_GID;
    int flags = *file ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (statx(dir, file, flags, wanted, &all) != 0) return -1;
    /* Inode and device in one word. An inode number is not reused while we have the file open, and nearly always all
     * files are on one device. */
    uint64_t dev = makedev(all.stx_dev_major, all.stx_dev_minor);
    *st = (struct file_stat){
        .identity = all.stx_ino ^ dev << 40 ^ dev >> 24,
        .size = all.stx_size,
        .links = all.stx_nlink,
        .uid = all.stx_uid,
        .gid = all.stx_gid,
        .regular = S_ISREG(all.stx_mode),
    };
    return 0;
}

int file_still_named(const struct file_conn *conn, const struct dlock_claim *claim, const char *file) {
    struct file_stat st;
    if (file_stat(conn->dir, file, &st) != 0) return errno == ENOENT ? 0 : -1;
    return st.identity == claim->state[FILE_STATE_FILE];
}

/* As fstat(2), which in glibc 2.33 to 2.38 uses another system call that takes a sixth longer. */
static int stat_fd(int fd, struct stat *st) {
#if defined(__x86_64__) && !defined(__ILP32__)
    return (int)syscall(SYS_fstat, fd, st);
#else
    return fstat(fd, st);
#endif
}

/* Returns the directory's time of change in ns; 0: not known. A stamp without a fraction may come from a file system
 * that stores none, such as ext2, where changes within a whole second have the same. */
static int64_t version_of(const struct file_conn *conn) {
    struct stat all;
    if (!conn->dir_dated || stat_fd(conn->dir, &all) != 0 || all.st_ctim.tv_nsec == 0) return 0;
    return all.st_ctim.tv_sec * INT64_C(1000000000) + all.st_ctim.tv_nsec;
}

static bool old_enough(int64_t version) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return version != 0 && now.tv_sec * INT64_C(1000000000) + now.tv_nsec - version > old_enough_ns;
}

int file_check_named(struct file_conn *conn, const struct dlock_claim *claim, int fd, const char *file) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    int64_t version = version_of(conn);
    if (version != 0 && version == entry->version) return 1;
    int named = file_still_named(conn, claim, file);
    entry->version = named == 1 && old_enough(version) ? version : 0;
    return named;
}
