/* Is the directory fit for locks?
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A lock file has a few hundred bytes: one block. */
enum { FEW_FILES = 1000, XFS_MAGIC = 0x58465342 };

/* Those that are not fit were refused at the start. */
static const char *filesystem_name(unsigned long magic) {
    switch (magic) {
    case EXT4_SUPER_MAGIC: return "ext4";
    case XFS_MAGIC: return "xfs";
    case BTRFS_SUPER_MAGIC: return "btrfs";
    case TMPFS_MAGIC: return "tmpfs";
    case F2FS_SUPER_MAGIC: return "f2fs";
    case OVERLAYFS_SUPER_MAGIC: return "overlay";
    default: return "local";
    }
}

static void check_rights(struct dlock_report *report, const struct file_conn *conn, const struct stat *dir) {
    bool open_to_all = (dir->st_mode & S_IWOTH) && !(dir->st_mode & S_ISVTX);
    dlock_find(report,
               open_to_all ? "anybody may delete or replace lock files, and so take locks away: chmod +t, or o-w"
                           : NULL,
               "directory %.400s, mode %04o", conn->path, (unsigned)(dir->st_mode & 07777));
}

static void check_room(struct dlock_report *report, const struct statfs *fs) {
    bool few_blocks = fs->f_blocks > 0 && fs->f_bavail<FEW_FILES, few_files = fs->f_files> 0 && fs->f_ffree < FEW_FILES;
    dlock_find(report, few_blocks || few_files ? "without room new locks fail: make some" : NULL,
               "room for %s%d lock files", few_blocks || few_files ? "less than " : "more than ", FEW_FILES);
}

static void check_wakes(struct dlock_report *report, const struct file_conn *conn) {
    int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), errnum = errno;
    bool works = notify >= 0 && inotify_add_watch(notify, conn->path, IN_CLOSE | IN_ONLYDIR) >= 0;
    if (notify >= 0 && !works) errnum = errno;
    if (notify >= 0) close(notify);
    if (works)
        dlock_find(report, NULL, "inotify wakes waiters");
    else
        dlock_find(report, "waiters poll: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)",
                   "inotify: %s", strerror(errnum));
}

int file_check(void *c, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const struct file_conn *conn = c;
    struct dlock_report report = {each, arg, false};
    struct statfs fs;
    struct stat dir;
    (void)timeout_ms;
    if (fstatfs(conn->dir, &fs) != 0 || fstat(conn->dir, &dir) != 0)
        return file_fail(err, errno, "cannot look at", conn->path, NULL);
    dlock_find(&report, NULL, "flock on a %s file system: excludes the processes of this machine only",
               filesystem_name((unsigned long)fs.f_type & 0xffffffff));
    if (dir.st_nlink == 0)
        dlock_find(&report,
                   "whoever opens it anew gets another directory, and the same locks: end the processes that use it",
                   "directory %.400s was deleted", conn->path);
    else
        check_rights(&report, conn, &dir);
    check_room(&report, &fs);
    check_wakes(&report, conn);
    return 0;
}
