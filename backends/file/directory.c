/* Connects: finds the directory that the URI names, creates it, and checks that locks work there.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { SHORTEST_FILE_NAME = 67 }; /* dlock_encode_name() needs 64, and "%2E" may precede its output */

/* File systems on which flock(2) does not exclude other machines, or does not work at all; the name is for the
 * error. */
static const struct {
    unsigned long magic;
    const char *name;
} unsuitable[] = {
    {NFS_SUPER_MAGIC, "NFS"},     {SMB_SUPER_MAGIC, "SMB"},   {SMB2_SUPER_MAGIC, "SMB"}, {CIFS_SUPER_MAGIC, "SMB"},
    {FUSE_SUPER_MAGIC, "FUSE"},   {V9FS_MAGIC, "9P"},         {AFS_SUPER_MAGIC, "AFS"},  {AFS_FS_MAGIC, "AFS"},
    {CODA_SUPER_MAGIC, "Coda"},   {CEPH_SUPER_MAGIC, "Ceph"}, {0x0bd00bd0, "Lustre"},    {0x47504653, "GPFS"},
    {OCFS2_SUPER_MAGIC, "OCFS2"}, {0x01161970, "GFS2"},       {0x19830326, "BeeGFS"},    {0xaad7aaea, "PanFS"},
    {0x786f4256, "vboxsf"},       {0xbacbacbc, "vmhgfs"},     {0x7c7c6673, "prl_fs"},
};

/* True for file systems on which /proc/locks and stat(2) show the same device and inode numbers (Btrfs and overlays do
 * not). */
static bool numbers_agree(unsigned long magic) {
    return magic == EXT4_SUPER_MAGIC || magic == XFS_SUPER_MAGIC || magic == TMPFS_MAGIC || magic == F2FS_SUPER_MAGIC;
}

/* True if this process is in the initial PID namespace. In another one it does not see the locks of processes
 * outside. */
static bool sees_all_processes(void) {
    char ns[32];
    ssize_t length = readlink("/proc/self/ns/pid", ns, sizeof ns);
    return length == 16 && memcmp(ns, "pid:[4026531836]", 16) == 0; /* the kernel's PROC_PID_INIT_INO */
}

static int check_filesystem(struct file_conn *conn, struct dlock_error *err) {
    struct statfs fs;
    if (fstatfs(conn->dir, &fs) != 0)
        return file_fail(err, errno, "cannot look at the file system of", conn->path, NULL);
    unsigned long magic = (unsigned long)fs.f_type & 0xffffffff;
    for (size_t i = 0; i < sizeof unsuitable / sizeof *unsuitable; i++)
        if (unsuitable[i].magic == magic)
            return dlock_fail(
                err, DLOCK_ENOTSUP,
                "%s is on %s, where file locks cannot be relied upon; name a directory on a local disk, or "
                "use a lock server",
                conn->path, unsuitable[i].name);
    conn->file_name_size = fs.f_namelen < FILE_NAME_SIZE ? (size_t)fs.f_namelen + 1 : FILE_NAME_SIZE;
    if (conn->file_name_size < SHORTEST_FILE_NAME)
        return dlock_fail(err, DLOCK_ENOTSUP, "%s is on a file system with too short file names", conn->path);
    conn->dir_dated = numbers_agree(magic) || magic == BTRFS_SUPER_MAGIC;
    conn->locks_listed = numbers_agree(magic) && sees_all_processes();
    return 0;
}

/* Returns the concatenation of `one` and `two`, allocated; NULL: out of memory. */
static char *join(const char *one, const char *two) {
    size_t length = strlen(one);
    char *both = malloc(length + strlen(two) + 1);
    if (!both) return NULL;
    memcpy(both, one, length);
    strcpy(both + length, two);
    return both;
}

/* Sets *path to ${XDG_STATE_HOME:-~/.local/state}/dlock. The XDG runtime directory would not do: cron jobs have none,
 * and it is deleted at logout. */
static int default_path(char **path, struct dlock_error *err) {
    const char *state = secure_getenv("XDG_STATE_HOME"), *home = secure_getenv("HOME");
    char *own = NULL;
    if (state && state[0] == '/') { /* the XDG specification says that a relative path is ignored */
        *path = join(state, "/dlock");
        return *path ? 0 : dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    int found = home && home[0] == '/' ? 1 : file_home_of(geteuid(), &own);
    if (found < 0) return file_fail(err, errno, "cannot look up", "this user's home directory", NULL);
    if (!found)
        return dlock_fail(
            err, DLOCK_EINVAL,
            "no home directory for the default lock directory: set HOME, or name one as in file:/var/lib/app/locks");
    *path = join(own ? own : home, "/.local/state/dlock");
    free(own);
    return *path ? 0 : dlock_fail(err, DLOCK_ENOMEM, "out of memory");
}

/* Sets *path to the absolute path of `named`, because the process may change its working directory later. */
static int named_path(const char *named, char **path, struct dlock_error *err) {
    if (named[0] == '/') {
        *path = strdup(named);
    } else {
        char *here = getcwd(NULL, 0), *slash = here ? join(here, "/") : NULL;
        if (!here)
            return dlock_fail(err, DLOCK_EINVAL, "%s: the current directory is not known (%s); use an absolute path",
                              named, strerror(errno));
        *path = slash ? join(slash, named) : NULL;
        free(here);
        free(slash);
    }
    return *path ? 0 : dlock_fail(err, DLOCK_ENOMEM, "out of memory");
}

static int find_path(const struct dlock_uri *uri, char **path, struct dlock_error *err) {
    for (size_t i = 0; i < uri->n_hosts; i++)
        if (uri->hosts[i].host[0] != '\0' && strcmp(uri->hosts[i].host, "localhost") != 0)
            return dlock_fail(err, DLOCK_EINVAL,
                              "file: has no hosts, and '%s' stands in place of one: write file:DIRECTORY or "
                              "file:///DIRECTORY",
                              uri->hosts[i].host);
    if (uri->user || uri->password)
        return dlock_fail(err, DLOCK_EINVAL,
                          "file: takes no user and no password: the permissions of the directory decide who may lock");
    int rc = uri->path && uri->path[0] ? named_path(uri->path, path, err) : default_path(path, err);
    if (rc != 0) return rc;
    for (size_t length = strlen(*path); length > 1 && (*path)[length - 1] == '/'; length--) (*path)[length - 1] = '\0';
    return 0;
}

/* Creates the directory and its parents, in none of which strangers may write. Parts that exist stay as they are. */
static int make_directory(const struct file_conn *conn, char *path, mode_t above, struct dlock_error *err) {
    for (char *end = path; *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char old = *end;
        *end = '\0';
        bool made = (old ? mkdir(path, above) : file_make_directory(conn, path)) == 0 || errno == EEXIST;
        int rc = made ? 0 : file_fail(err, errno, "cannot create the directory", path, NULL);
        *end = old;
        if (!made) return rc;
    }
    return 0;
}

/* Refuses a symbolic link that belongs to a stranger: its owner could point it elsewhere at any time. */
static int check_link(struct file_conn *conn, struct dlock_error *err) {
    struct stat st;
    if (lstat(conn->path, &st) != 0 || !S_ISLNK(st.st_mode)) return 0;
    int trusted = file_trusts_link(conn, st.st_uid);
    if (trusted < 0) return file_fail(err, errno, "cannot look up the owner of", conn->path, NULL);
    if (trusted) return 0;
    return dlock_fail(err, DLOCK_EAUTH,
                      "%s is a symbolic link of user %u, who may point it elsewhere: name the directory itself",
                      conn->path, (unsigned)st.st_uid);
}

/* Opens the directory, and creates it before if necessary. `above` is the mode of directories that are created above
 * it. */
static int open_directory(struct file_conn *conn, mode_t above, struct dlock_error *err) {
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    conn->dir = file_fd_keep(&conn->fds, open(conn->path, flags));
    if (conn->dir < 0 && errno == ENOENT) {
        int rc = make_directory(conn, conn->path, above, err);
        if (rc != 0) return rc;
        conn->dir = file_fd_keep(&conn->fds, open(conn->path, flags));
    }
    if (conn->dir < 0) return file_fail(err, errno, "cannot open the lock directory", conn->path, NULL);
    int rc = check_link(conn, err);
    return rc == 0 ? check_filesystem(conn, err) : rc;
}

/* Asks whether the directory's owner is a member of the URI's group, so that no acquire has to, which may have less
 * time. Whatever is wrong with the directory is said by the acquires: the other operations work there. */
static void look_ahead(struct file_conn *conn) {
    const char *why;
    struct stat st;
    if (fstat(conn->dir, &st) == 0) (void)file_is_safe(conn, conn->dir, &st, &why);
}

/* Opens the default directory. On failure the error also explains how to name another directory. */
static int open_default(struct file_conn *conn, struct dlock_error *err) {
    struct dlock_error why = {0, ""};
    /* The XDG specification requires the directories above the default one to be private as well. */
    int rc = open_directory(conn, 0700, &why);
    const char *advice = rc == DLOCK_ENOMEM ? "" : "; name another directory, as in file:/var/lib/app/locks";
    return rc == 0 ? 0 : dlock_fail(err, rc, "%s%s", why.message, advice);
}

int file_connect(void *c, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                 struct dlock_error *err) {
    struct file_conn *conn = c;
    bool named = uri->path && uri->path[0];
    struct rlimit limit;
    (void)timeout_ms;
    conn->peer = peer;
    conn->size_limit = getrlimit(RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    int rc = file_rights_read(conn, uri, err);
    if (rc == 0) rc = find_path(uri, &conn->path, err);
    if (rc != 0) return rc;
    file_path_note(conn, named && uri->path[0] != '/');
    rc = named ? open_directory(conn, 0755, err) : open_default(conn, err);
    if (rc == 0) look_ahead(conn);
    return rc;
}
