/* Who holds the lock of a file, asked without getting into anybody's way where that is possible.
 *
 * /proc/locks answers that, but not in every PID namespace and not on every file system, and a list that is read in
 * pieces can miss one. What is left then is to take a shared lock for an instant, which a concurrent try would see as
 * busy.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int by_ino(const void *a, const void *b) {
    const struct file_lock *one = a, *two = b;
    return (one->ino > two->ino) - (one->ino < two->ino);
}

/* "1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF"; an arrow before FLOCK marks one that waits. */
static bool parse_lock(const char *line, struct file_lock *lock) {
    unsigned major_number, minor_number;
    uint64_t ino;
    int pid;
    if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &major_number, &minor_number, &ino) != 4)
        return false;
    *lock = (struct file_lock){makedev(major_number, minor_number), (ino_t)ino, pid};
    return true;
}

int file_locks_read(struct file_locks *locks, struct dlock_error *err) {
    size_t room = 0, size = 0;
    char *line = NULL;
    bool enough = true;
    *locks = (struct file_locks){NULL, 0};
    FILE *file = fopen("/proc/locks", "re");
    while (file && enough && getline(&line, &size, file) > 0) {
        struct file_lock lock;
        if (!parse_lock(line, &lock)) continue;
        if (locks->n == room) {
            room = room ? 2 * room : 64;
            struct file_lock *list = reallocarray(locks->list, room, sizeof *list);
            enough = list != NULL;
            if (!enough) break;
            locks->list = list;
        }
        locks->list[locks->n++] = lock;
    }
    free(line);
    if (file) fclose(file);
    if (!enough) {
        free(locks->list);
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    if (locks->n > 0) qsort(locks->list, locks->n, sizeof *locks->list, by_ino);
    return 0;
}

static const struct file_lock *first_with(const struct file_locks *locks, ino_t ino) {
    const struct file_lock key = {0, ino, 0}, *found = NULL;
    if (locks->n > 0) found = bsearch(&key, locks->list, locks->n, sizeof key, by_ino);
    while (found && found > locks->list && found[-1].ino == ino) found--;
    return found;
}

/* The process that locked the file; 0 when it is not listed. */
static pid_t listed_holder(const struct file_locks *locks, const struct stat *st) {
    const struct file_lock *lock = first_with(locks, st->st_ino);
    for (; lock && lock < locks->list + locks->n && lock->ino == st->st_ino; lock++)
        if (lock->dev == st->st_dev) return lock->pid;
    return 0;
}

static bool probe(int fd) {
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
    flock(fd, LOCK_UN);
    return false;
}

/* Our tokens end in the pid of their process. One that died without releasing left its token to a later flock(1). */
static bool token_fits(const char *token, pid_t pid) {
    const char *colon = strrchr(token, ':');
    char *end = NULL;
    if (!*token || pid <= 0 || !colon || !strchr(token, '@')) return *token != '\0';
    long named = strtol(colon + 1, &end, 10);
    return *end != '\0' || named == (long)pid;
}

static void describe(struct file_holder *holder, pid_t pid) {
    if (token_fits(holder->record.token, pid)) {
        memcpy(holder->token, holder->record.token, sizeof holder->token);
        holder->fence = holder->record.fence;
        return;
    }
    holder->token[0] = '\0';
    holder->fence = 0;
    if (pid > 0) snprintf(holder->token, sizeof holder->token, "flock:%ld", (long)pid);
}

bool file_held(const struct file_conn *conn, const char *file, const struct file_locks *locks,
               struct file_holder *holder) {
    struct stat st;
    memset(holder, 0, sizeof *holder);
    if (fstatat(conn->dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) return false;
    pid_t pid = listed_holder(locks, &st);
    int fd = openat(conn->dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return pid != 0; /* not readable to us: that somebody has it is all we can say */
    if (file_record_read(fd, &holder->record) != FILE_RECORD) memset(&holder->record, 0, sizeof holder->record);
    bool held = pid != 0;
    if (!held && !(conn->locks_listed && holder->record.token[0] == '\0')) held = probe(fd);
    close(fd);
    if (held) describe(holder, pid);
    return held;
}
