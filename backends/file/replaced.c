/* Checks whether the lock directory is still the one under its path.
 *
 * A connection keeps the directory that it has opened. If the path later leads to another one, because a symbolic link
 * in it was changed or the directory was renamed, new clients take the same locks there. So holders have to lose
 * theirs, and waiters have to follow. A missing directory is treated like another one: the next client makes it. A path
 * that this process may not look at proves nothing, nor does one under another root (chroot(2)), where it means another
 * file: in these cases the locks stay as they are.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>

static void note(const char *path, struct file_place *place) {
    struct stat st = {0};
    (void)!stat(path, &st); /* zeros fit no directory */
    *place = (struct file_place){st.st_dev, st.st_ino};
}

static bool is_at(const char *path, const struct file_place *place) {
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == place->dev && st.st_ino == place->ino;
}

void file_path_note(struct file_conn *conn, bool relative) {
    conn->relative = relative;
    note("/", &conn->root);
    note(".", &conn->here);
}

const char *file_replaced(const struct file_conn *conn) {
    struct stat ours, named;
    bool found = stat(conn->path, &named) == 0;
    int errnum = errno;
    if (fstat(conn->dir, &ours) != 0) return NULL;
    if (ours.st_nlink == 0) return "was deleted";
    if (found && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino) return NULL;
    if (!found && errnum != ENOENT && errnum != ENOTDIR) return NULL;
    if (!is_at("/", &conn->root)) return NULL;
    return found ? "was replaced: its path leads to another one" : "was replaced: it is no longer under its path";
}

const char *file_replaced_lately(struct file_conn *conn) {
    long long second = file_second();
    if (atomic_load(&conn->leads_s) == second) return NULL;
    const char *what = file_replaced(conn);
    if (!what) atomic_store(&conn->leads_s, second);
    return what;
}

bool file_path_stays(const struct file_conn *conn) {
    return !conn->relative || is_at(".", &conn->here);
}
