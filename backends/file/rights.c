/* Rights to the locks of a directory: the URI's `mode` and `group`, the files and directories that are made with them,
 * and which owners are trusted.
 *
 * The owner of a directory, and the owner of a lock file in a sticky one, can replace the file while its lock is held.
 * So both must belong to root or to this user, or have been made by a member of the URI's group.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE /* an older musl */
#include <linux/fs.h>
#include <sys/syscall.h>
static int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}
#endif

enum { PRIVATE = 0600, BY_GROUP = 0660 };

/* ---- the URI's keys ---------------------------------------------------------------------------------------------- */

/* True if the mode grants nothing, read, or read and write; write permission alone is useless. */
static bool sensible(mode_t mode, int shift) {
    mode_t bits = mode >> shift & 7;
    return bits == 0 || bits == 4 || bits == 6;
}

static bool parse_mode(const char *text, mode_t *mode) {
    size_t length = strlen(text);
    if (strspn(text, "01234567") != length || length < 3 || length > 4) return false;
    *mode = (mode_t)strtoul(text, NULL, 8);
    return (*mode & ~(mode_t)0077) == PRIVATE && sensible(*mode, 3) && sensible(*mode, 0);
}

static int read_mode(const struct dlock_uri *uri, mode_t *mode, struct dlock_error *err) {
    const char *text = dlock_uri_get(uri, "mode"), *group = dlock_uri_get(uri, "group");
    *mode = group ? BY_GROUP : PRIVATE;
    if (text && !parse_mode(text, mode))
        return dlock_fail(err, DLOCK_EINVAL,
                          "URI: \"mode\" is octal, with 6 for the owner and 0, 4 or 6 for the group and for others, as "
                          "in mode=0660");
    if (group && !(*mode & 0070))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"group\" needs a \"mode\" with rights for the group, as mode=0660");
    return 0;
}

int file_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    mode_t mode;
    return read_mode(uri, &mode, err);
}

/* Returns 1 and the group, 0 if there is none, or -1 and errno. */
static int find_group(const char *name, gid_t *gid) {
    size_t length = strlen(name);
    if (length == 0 || length >= 10 || strspn(name, "0123456789") != length) return file_group_id(name, gid);
    *gid = (gid_t)strtoul(name, NULL, 10);
    return 1;
}

int file_rights_read(struct file_conn *conn, const struct dlock_uri *uri, struct dlock_error *err) {
    const char *group = dlock_uri_get(uri, "group");
    conn->group = FILE_ANY_GROUP;
    conn->uid = geteuid();
    int rc = read_mode(uri, &conn->mode, err);
    int found = rc == 0 && group ? find_group(group, &conn->group) : 1;
    if (found < 0) return file_fail(err, errno, "cannot look up", "the URI's \"group\"", NULL);
    return found ? rc : dlock_fail(err, DLOCK_EINVAL, "URI: \"group\" is not a group of this machine");
}

/* ---- trust ------------------------------------------------------------------------------------------------------- */

/* True for users who may replace lock files, whatever group is in the URI. */
static bool trusted_user(const struct file_conn *conn, uid_t uid) {
    return uid == 0 || uid == conn->uid || uid == geteuid();
}

static bool of_the_group(const struct file_conn *conn, gid_t gid) {
    return conn->group != FILE_ANY_GROUP && gid == conn->group;
}

/* Returns what file_is_member() says of the URI's group. Remembers members, so that it asks about each only once. */
static int is_member(struct file_conn *conn, uid_t uid) {
    const uint64_t number = (uint64_t)uid + 1;
    for (int i = 0; i < FILE_MEMBERS; i++)
        if (atomic_load(&conn->members[i]) == number) return 1;
    int rc = file_is_member(uid, conn->group);
    for (int i = 0; i < FILE_MEMBERS && rc == 1; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&conn->members[i], &none, number) || none == number) break;
    }
    return rc;
}

/* True if only members of the URI's group, or root, can make files of that group in a directory whose chain of parents
 * is `dir`/`up`, `dir`/`up`/.., and so on. Strangers can do so in a world-writable set-group-ID directory, where every
 * file and directory inherits the group, and in their own directories below it. */
static bool members_only(const struct file_conn *conn, int dir, const char *up) {
    struct stat below = {0}, st;
    char path[PATH_MAX];
    size_t length = strlen(up);
    memcpy(path, up, length + 1);
    for (;;) {
        if (fstatat(dir, path, &st, 0) != 0 || st.st_mode & S_IWOTH) return false;
        if (trusted_user(conn, st.st_uid)) return true;
        bool top = st.st_dev == below.st_dev && st.st_ino == below.st_ino;
        if (top || !of_the_group(conn, st.st_gid) || length + 4 > sizeof path) return false;
        memcpy(path + length, "/..", 4);
        length += 3;
        below = st;
    }
}

/* Returns what file_trusts() returns. `dir` and `up` lead to the directory that has the file or directory in
 * question. */
static int trusted(struct file_conn *conn, uid_t uid, gid_t gid, int dir, const char *up) {
    if (trusted_user(conn, uid)) return 1;
    if (!of_the_group(conn, gid)) return 0;
    return members_only(conn, dir, up) ? 1 : is_member(conn, uid);
}

int file_trusts(struct file_conn *conn, uid_t uid, gid_t gid) {
    return trusted(conn, uid, gid, conn->dir, ".");
}

int file_trusts_link(struct file_conn *conn, uid_t uid) {
    if (trusted_user(conn, uid)) return 1;
    return conn->group == FILE_ANY_GROUP ? 0 : is_member(conn, uid);
}

int file_is_safe(struct file_conn *conn, int fd, const struct stat *dir, const char **why) {
    *why = "anybody may delete or replace lock files, and so take locks away: chmod +t, or o-w";
    if ((dir->st_mode & S_IWOTH) && !(dir->st_mode & S_ISVTX)) return 0;
    if (of_the_group(conn, dir->st_gid))
        *why = "its owner, neither root nor this user, may delete or replace lock files, and is not known to be of its "
               "group, which directories inherit where anybody may make them: chown it to root";
    else
        *why = "its owner, neither root nor this user, may delete or replace lock files: use a directory of root's or "
               "of your own, or add mode=0660&group= with the directory's group to the URI";
    return trusted(conn, dir->st_uid, dir->st_gid, fd, "..");
}

bool file_may_create(const struct file_conn *conn) {
    return faccessat(conn->dir, ".", W_OK | X_OK, AT_EACCESS) == 0;
}

/* ---- making files and directories -------------------------------------------------------------------------------- */

static void fresh_name(char name[FILE_FRESH_SIZE]) {
    uint64_t chance = (uint64_t)file_now_ms();
    (void)!getrandom(&chance, sizeof chance, GRND_NONBLOCK); /* a name that is taken is no harm: another one is tried */
    snprintf(name, FILE_FRESH_SIZE, ".new.%016" PRIx64, chance);
}

int file_make_fresh(struct file_conn *conn, char name[FILE_FRESH_SIZE]) {
    int fd;
    do {
        fresh_name(name);
        fd = openat(conn->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, PRIVATE);
    } while (fd < 0 && errno == EEXIST);
    return file_fd_keep(&conn->fds, fd);
}

/* Sets group and mode as the URI says, independent of the umask. */
static int give_rights(const struct file_conn *conn, int fd, mode_t mode) {
    if (conn->group != FILE_ANY_GROUP && fchown(fd, (uid_t)-1, conn->group) != 0) return -1;
    return fchmod(fd, mode);
}

/* Renames unless `to` exists. Some file systems can do this only in two steps. */
static int rename_unless_taken(const struct file_conn *conn, const char *from, const char *to) {
    if (renameat2(conn->dir, from, conn->dir, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL || linkat(conn->dir, from, conn->dir, to, 0) != 0) return -1;
    return unlinkat(conn->dir, from, 0);
}

/* A file for other users is made under another name, and renamed after it has its group and mode: other users must not
 * find it without them, neither for a moment nor permanently if this process dies in between. */
int file_create(struct file_conn *conn, const char *file) {
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY;
    char fresh[FILE_FRESH_SIZE];
    if (conn->mode == PRIVATE) return file_fd_keep(&conn->fds, openat(conn->dir, file, flags, PRIVATE));
    int fd = file_make_fresh(conn, fresh);
    if (fd < 0) return -1;
    if (give_rights(conn, fd, conn->mode) == 0 && rename_unless_taken(conn, fresh, file) == 0) return fd;
    int errnum = errno == ENOENT ? EAGAIN : errno; /* the new file has been deleted: a later try may succeed */
    unlinkat(conn->dir, fresh, 0);
    file_fd_close(&conn->fds, fd);
    errno = errnum;
    return -1;
}

/* Returns the mode of a directory in which all users of the locks may make lock files, and none may delete those of
 * others (sticky). With the set-group-ID bit also flock(1) makes files of the group. */
static mode_t directory_mode(const struct file_conn *conn) {
    mode_t others = conn->mode & 0066;
    mode_t search = (others & 0044) >> 2;
    return 0700 | others | search | S_ISVTX | (conn->group != FILE_ANY_GROUP ? S_ISGID : 0);
}

int file_make_directory(const struct file_conn *conn, const char *path) {
    char fresh[FILE_FRESH_SIZE], *name = NULL;
    int rc = -1, fd = -1, errnum;
    if (conn->mode == PRIVATE) return mkdir(path, 0700);
    fresh_name(fresh);
    if (asprintf(&name, "%s%s", path, fresh) < 0) return errno = ENOMEM, -1;
    if (mkdir(name, 0700) == 0) {
        fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && give_rights(conn, fd, directory_mode(conn)) == 0)
            rc = renameat2(AT_FDCWD, name, AT_FDCWD, path, RENAME_NOREPLACE);
        errnum = errno;
        if (rc != 0) rmdir(name);
        if (fd >= 0) close(fd);
        errno = errnum;
    }
    errnum = errno;
    free(name);
    errno = errnum;
    return rc;
}
