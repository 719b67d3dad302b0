/* Inspect and list.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int show(const char *name, const struct file_holder *holder, dlock_each each, void *arg) {
    struct dlock_info info = {
        .size = sizeof info,
        .name = name,
        .token = holder->token,
        .mode = DLOCK_EXCLUSIVE,
        .limit = 1,
        .fence = holder->fence,
        .remaining_ms = DLOCK_FOREVER,
    };
    return each(&info, arg);
}

int file_inspect(void *c, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    struct file_locks locks;
    struct file_holder holder;
    char file[FILE_NAME_SIZE];
    (void)timeout_ms;
    int rc = file_locks_read(&locks, err);
    if (rc != 0) return rc;
    file_name_encode(conn, name, file);
    if (file_held(conn, file, &locks, &holder)) show(name, &holder, each, arg);
    free(locks.list);
    return 0;
}

static int list_one(struct file_conn *conn, const struct dirent *entry, const struct file_locks *locks,
                    const char *prefix, dlock_each each, void *arg) {
    char name[FILE_NAME_SIZE], file[FILE_NAME_SIZE];
    struct file_holder holder;
    bool cut;
    if (entry->d_name[0] == '.' || (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN)) return 0;
    bool decoded = file_name_decode(conn, entry->d_name, name, &cut);
    if (!decoded && !cut) return 0;
    if (decoded && strncmp(name, prefix, strlen(prefix)) != 0) return 0;
    if (!file_held(conn, entry->d_name, locks, &holder)) return 0;
    if (cut) { /* the whole name stands in the file; the file's name tells whether to believe it */
        file_name_encode(conn, holder.record.name, file);
        const char *whole = strcmp(file, entry->d_name) == 0 ? holder.record.name : entry->d_name;
        if (strncmp(whole, prefix, strlen(prefix)) != 0) return 0;
        return show(whole, &holder, each, arg);
    }
    return show(name, &holder, each, arg);
}

/* A page ends when half the time is over; the cursor is the position in the directory. */
int file_list(void *c, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err) {
    struct file_conn *conn = c;
    struct file_locks locks;
    struct dirent *entry = NULL;
    int64_t end = file_now_ms() + timeout_ms / 2;
    int fd = openat(conn->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), more = 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int rc = file_fail(err, errno, "cannot list the lock directory", conn->path, NULL);
        if (fd >= 0) close(fd);
        return rc;
    }
    int rc = file_locks_read(&locks, err);
    if (rc == 0 && cursor[0]) seekdir(dir, strtol(cursor, NULL, 10));
    while (rc == 0 && !more && (entry = readdir(dir)) != NULL) {
        if (list_one(conn, entry, &locks, prefix, each, arg) != 0) break;
        more = file_now_ms() >= end;
        if (more) snprintf(cursor, 256, "%ld", telldir(dir));
    }
    if (rc == 0) free(locks.list);
    closedir(dir);
    return rc == 0 ? more : rc;
}
