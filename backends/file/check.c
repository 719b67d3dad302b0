/* Checks whether the directory is fit for locks.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A lock file has a few hundred bytes and so takes one block. */
enum { FEW_FILES = 1000, XFS_MAGIC = 0x58465342 };

/* Returns the name of a file system. Unfit ones were refused by file_connect(). */
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

/* True for directories that are emptied at boot, and from which files are deleted that were unused for days. */
static bool is_temporary(const struct stat *dir) {
    static const char *const paths[] = {"/tmp", "/var/tmp"};
    struct stat st;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (stat(paths[i], &st) == 0 && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino) return true;
    return false;
}

static const char *weakness(struct file_conn *conn, const struct stat *dir) {
    const char *why;
    int safe = file_is_safe(conn, conn->dir, dir, &why);
    if (safe < 0) return "whether its owner may be trusted is not known: the system's list of users cannot be read";
    if (!safe) return why;
    if (!file_may_create(conn)) return "this user may not make lock files in it: locks can be looked at, but not taken";
    if (is_temporary(dir)) return "old files are deleted here, locked or not: name a directory for locks alone";
    if ((dir->st_mode & S_IWOTH) && !(conn->mode & S_IWOTH))
        return "anybody can create a lock's file first and so keep you out: name a directory that only users of these "
               "locks can write to";
    if ((dir->st_mode & S_IWGRP) && !(dir->st_mode & S_ISVTX))
        return "its group may delete or replace lock files, and so take locks away: chmod +t, or g-w";
    return NULL;
}

static void check_rights(struct dlock_report *report, struct file_conn *conn, const struct stat *dir) {
    char owner[40] = "this user", group[40] = "";
    if (dir->st_uid != geteuid()) snprintf(owner, sizeof owner, "user %u", (unsigned)dir->st_uid);
    if (conn->group != FILE_ANY_GROUP) snprintf(group, sizeof group, ", of group %u", (unsigned)conn->group);
    dlock_find(report, weakness(conn, dir), "directory %.400s, mode %04o", conn->path,
               (unsigned)(dir->st_mode & 07777));
    dlock_find(report, NULL, "its owner is %s; lock files are made with mode %04o%s", owner, (unsigned)conn->mode,
               group);
}

/* Checks the directories above: a stranger who may rename one of them can put another directory in place of this one,
 * and with it other locks. */
static void check_above(struct dlock_report *report, struct file_conn *conn, const struct stat *dir) {
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    struct stat below = *dir, st;
    bool top = false, safe = true;
    const char *why;
    int at = openat(conn->dir, "..", flags);
    while (at >= 0 && fstat(at, &st) == 0) {
        top = st.st_dev == below.st_dev && st.st_ino == below.st_ino;
        safe = file_is_safe(conn, at, &st, &why) == 1;
        if (top || !safe) break;
        int up = openat(at, "..", flags);
        close(at);
        at = up;
        below = st;
    }
    if (!safe)
        dlock_find(report,
                   "the lock directory can be renamed and replaced by another one with other locks: restrict this "
                   "directory in the same way",
                   "a directory above it belongs to user %u, mode %04o", (unsigned)st.st_uid,
                   (unsigned)(st.st_mode & 07777));
    else
        dlock_find(report, top ? NULL : "a stranger who can rename them can put other locks in place of these",
                   "directories above it: %s", top ? "no stranger may rename them" : strerror(errno));
    if (at >= 0) close(at);
}

static void check_room(struct dlock_report *report, const struct statfs *fs) {
    bool few_blocks = fs->f_blocks > 0 && fs->f_bavail<FEW_FILES, few_files = fs->f_files> 0 && fs->f_ffree < FEW_FILES;
    dlock_find(report, few_blocks || few_files ? "new locks fail without free space: delete other files" : NULL,
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
    struct file_conn *conn = c;
    struct dlock_report report = {each, arg, false};
    struct statfs fs;
    struct stat dir;
    (void)timeout_ms;
    if (fstatfs(conn->dir, &fs) != 0 || fstat(conn->dir, &dir) != 0)
        return file_fail(err, errno, "cannot look at", conn->path, NULL);
    dlock_find(&report, NULL, "flock on file system %s: excludes the processes of this machine only",
               filesystem_name((unsigned long)fs.f_type & 0xffffffff));
    if (dir.st_nlink == 0) {
        dlock_find(&report,
                   "a process that opens it again gets a new directory and can hold the same locks: end the processes "
                   "that use the deleted one",
                   "directory %.400s was deleted", conn->path);
    } else {
        check_rights(&report, conn, &dir);
        check_above(&report, conn, &dir);
    }
    check_room(&report, &fs);
    check_wakes(&report, conn);
    return 0;
}
