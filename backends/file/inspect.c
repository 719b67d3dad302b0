/* Inspect and list. Where /proc/locks shows every lock, list does not open the files of free names: there may be many,
 * and whoever opens one disturbs the wake-ups.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int file_inspect(void *c, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    struct file_locks locks;
    const struct file_viewer viewer = {&locks, each, arg, file_now_ms() + timeout_ms};
    struct stat st;
    char file[FILE_NAME_SIZE];
    file_name_encode(conn, name, file);
    int rc = file_find(conn, file, &st, err);
    if (rc <= 0) return rc;
    rc = file_locks_read_of(&st, &locks, err);
    if (rc != 0) return rc;
    rc = file_show(conn, file, name, "", &viewer, err);
    free(locks.list);
    return rc < 0 ? rc : 0;
}

static int list_one(struct file_conn *conn, const struct dirent *entry, const char *prefix,
                    const struct file_viewer *viewer, struct dlock_error *err) {
    char name[FILE_NAME_SIZE];
    bool cut;
    if (entry->d_name[0] == '.' || (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN)) return 0;
    if (conn->locks_listed && !file_locks_have(viewer->locks, entry->d_ino)) return 0; /* nobody holds it */
    bool decoded = file_name_decode(conn, entry->d_name, name, &cut);
    if (!decoded && !cut) return 0;
    if (decoded && strncmp(name, prefix, strlen(prefix)) != 0) return 0;
    return file_show(conn, entry->d_name, decoded ? name : NULL, prefix, viewer, err);
}

/* Ends a page when half of timeout_ms is over. The cursor is a position in the directory (telldir(3)). */
int file_list(void *c, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err) {
    struct file_conn *conn = c;
    struct file_locks locks;
    struct dirent *entry = NULL;
    int64_t now = file_now_ms(), end = now + timeout_ms / 2;
    const struct file_viewer viewer = {&locks, each, arg, now + timeout_ms};
    int fd = openat(conn->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), more = 0, shown = 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int rc = file_fail(err, errno, "cannot list the lock directory", conn->path, NULL);
        if (fd >= 0) close(fd);
        return rc;
    }
    int rc = file_locks_read_all(&locks, err);
    if (rc == 0 && cursor[0]) seekdir(dir, strtol(cursor, NULL, 10));
    while (rc == 0 && !more && (entry = readdir(dir)) != NULL) {
        shown = list_one(conn, entry, prefix, &viewer, err);
        if (shown != 0) break;
        more = file_now_ms() >= end;
        if (more) snprintf(cursor, 256, "%ld", telldir(dir));
    }
    if (rc == 0) free(locks.list);
    closedir(dir);
    return rc != 0 ? rc : shown < 0 ? shown : more;
}
