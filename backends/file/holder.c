/* Finds the holders of a file's lock, if possible without disturbing others.
 *
 * Readers and holders of permits have locked the bytes of their seats. Other holders are in /proc/locks; but not in
 * every PID namespace and on every file system, and that list, which is read in pieces, may miss a lock. The last
 * resort is to take a shared lock for an instant, during which a concurrent try finds the file busy.
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

enum { LOOKS = 4 }; /* how often /proc/locks is read, since one reading may miss a lock */

/* Compares what identifies a lock: its file first, then its holder. */
static int compare(const void *a, const void *b) {
    const struct file_lock *one = a, *two = b;
    if (one->ino != two->ino) return one->ino > two->ino ? 1 : -1;
    if (one->dev != two->dev) return one->dev > two->dev ? 1 : -1;
    if (one->pid != two->pid) return one->pid > two->pid ? 1 : -1;
    return 2 * (one->bytes - two->bytes) + one->shared - two->shared;
}

/* Sorts the list and keeps one lock of each holder: the list, which is read in pieces, may show a lock several times. */
static void tidy(struct file_locks *locks) {
    size_t n = 0;
    if (locks->n == 0) return;
    qsort(locks->list, locks->n, sizeof *locks->list, compare);
    for (size_t i = 1; i < locks->n; i++)
        if (compare(&locks->list[n], &locks->list[i]) != 0) locks->list[++n] = locks->list[i];
    locks->n = n + 1;
}

/* Parses "1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF". False for lines with an arrow before FLOCK, which are
 * processes that wait. */
static bool parse_lock(const char *line, struct file_lock *lock) {
    unsigned major_number, minor_number;
    char kind[8], mode[8];
    uint64_t ino;
    int pid;
    if (sscanf(line, "%*d: %7s %*s %7s %d %x:%x:%" SCNu64, kind, mode, &pid, &major_number, &minor_number, &ino) != 6)
        return false;
    *lock = (struct file_lock){
        .dev = makedev(major_number, minor_number),
        .ino = (ino_t)ino,
        .pid = pid,
        .shared = strcmp(mode, "READ") == 0,
        .bytes = strcmp(kind, "FLOCK") != 0,
    };
    return true;
}

/* Parses the whole list. Returns 0 or an errno. */
static int parse_locks(FILE *file, struct file_locks *locks) {
    size_t room = 0, size = 0;
    char *line = NULL;
    int error = 0;
    while (getline(&line, &size, file) > 0) {
        struct file_lock lock;
        if (!parse_lock(line, &lock)) continue;
        if (locks->n == room) {
            room = room ? 2 * room : 64;
            struct file_lock *list = reallocarray(locks->list, room, sizeof *list);
            if (!list) {
                error = ENOMEM;
                break;
            }
            locks->list = list;
        }
        locks->list[locks->n++] = lock;
    }
    if (error == 0 && !feof(file)) error = errno;
    free(line);
    return error;
}

int file_locks_read(struct file_locks *locks, struct dlock_error *err) {
    *locks = (struct file_locks){NULL, 0};
    FILE *file = fopen("/proc/locks", "re");
    int error = file ? parse_locks(file, locks) : errno;
    if (file) fclose(file);
    /* A machine without the list, or that hides it, is no reason to fail; one that cannot show it now is. */
    if (file ? error != 0 : error == EMFILE || error == ENFILE || error == ENOMEM) {
        free(locks->list);
        return file_fail(err, error, "cannot read", "/proc/locks", NULL);
    }
    tidy(locks);
    return 0;
}

static int compare_ino(const void *key, const void *lock) {
    ino_t one = *(const ino_t *)key, two = ((const struct file_lock *)lock)->ino;
    return (one > two) - (one < two);
}

static const struct file_lock *first_with(const struct file_locks *locks, ino_t ino) {
    const struct file_lock *found = NULL;
    if (locks->n > 0) found = bsearch(&ino, locks->list, locks->n, sizeof *locks->list, compare_ino);
    while (found && found > locks->list && found[-1].ino == ino) found--;
    return found;
}

bool file_locks_have(const struct file_locks *locks, ino_t ino) {
    return first_with(locks, ino) != NULL;
}

/* Returns the next listed flock(2) lock of the file after `lock` (NULL: the first), or NULL. */
static const struct file_lock *next_lock(const struct file_locks *locks, const struct stat *st,
                                         const struct file_lock *lock) {
    lock = lock ? lock + 1 : first_with(locks, st->st_ino);
    for (; lock && lock < locks->list + locks->n && lock->ino == st->st_ino; lock++)
        if (lock->dev == st->st_dev && !lock->bytes) return lock;
    return NULL;
}

int file_locks_read_of(const struct stat *st, struct file_locks *best, struct dlock_error *err) {
    size_t most = 0;
    *best = (struct file_locks){NULL, 0};
    for (int i = 0; i < LOOKS; i++) {
        struct file_locks locks;
        const struct file_lock *lock = NULL;
        size_t n = 0;
        int rc = file_locks_read(&locks, err);
        if (rc != 0) {
            free(best->list);
            return rc;
        }
        while ((lock = next_lock(&locks, st, lock)) != NULL) n++;
        free(n >= most ? best->list : locks.list);
        if (n >= most) *best = locks, most = n;
    }
    return 0;
}

/* Adds the locks of `more`, whose list is freed. Returns 0 or an errno. */
static int join(struct file_locks *all, struct file_locks *more) {
    struct file_lock *list = reallocarray(all->list, all->n + more->n + 1, sizeof *list);
    if (list) {
        if (more->n > 0) memcpy(list + all->n, more->list, more->n * sizeof *list);
        *all = (struct file_locks){list, all->n + more->n};
        tidy(all);
    }
    free(more->list);
    return list ? 0 : ENOMEM;
}

int file_locks_read_all(struct file_locks *all, struct dlock_error *err) {
    int rc = 0;
    *all = (struct file_locks){NULL, 0};
    for (int i = 0; i < LOOKS && rc == 0; i++) {
        struct file_locks locks;
        rc = file_locks_read(&locks, err);
        if (rc == 0 && join(all, &locks) != 0) rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    if (rc != 0) free(all->list);
    return rc;
}

static bool probe(int fd) {
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
    flock(fd, LOCK_UN);
    return false;
}

/* Returns the pid in a token of dlock; 0: there is none. */
static long pid_of(const char *token) {
    struct dlock_face face;
    dlock_token_face(token, &face);
    return (long)face.pid;
}

/* Returns the pid that a process has in its own PID namespace; `pid` if that cannot be read. */
static long own_pid(pid_t pid) {
    char path[32], *line = NULL;
    size_t size = 0;
    long own = pid;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &size, file) > 0) {
        if (strncmp(line, "NSpid:", 6) != 0) continue;
        const char *last = strrchr(line, '\t'); /* "NSpid:\t4242\t1" */
        if (last) own = strtol(last, NULL, 10);
        break;
    }
    free(line);
    if (file) fclose(file);
    return own;
}

/* True if the lock of process `pid` can be that of `token`, which has the pid that its process has in its container. The
 * token in the file may be that of a process that died without a release, while the lock is held by a later flock(1). */
static bool token_fits(const char *token, pid_t pid) {
    if (!*token || pid <= 0 || pid_of(token) == 0) return *token != '\0';
    return pid_of(token) == (long)pid || pid_of(token) == own_pid(pid);
}

int file_find(const struct file_conn *conn, const char *file, struct stat *st, struct dlock_error *err) {
    if (fstatat(conn->dir, file, st, AT_SYMLINK_NOFOLLOW) == 0) return 1;
    if (errno == ENOENT || errno == ENOTDIR) return 0;
    return file_fail(err, errno, "cannot look at", conn->path, file);
}

/* The file that is inspected. */
struct view {
    const char *name;
    int fd; /* -1: this user may not read the file, or it is gone by now, so only its locks are known */
    struct stat st;
    struct file_record record;
    const struct file_viewer *viewer;
};

/* Returns 1, 0 (there is no such file) or a code: a file that cannot be looked at is not free. */
static int open_view(struct view *view, const struct file_conn *conn, const char *file, struct dlock_error *err) {
    memset(view, 0, sizeof *view);
    view->fd = -1;
    int rc = file_find(conn, file, &view->st, err);
    if (rc <= 0 || !S_ISREG(view->st.st_mode)) return rc < 0 ? rc : 0;
    view->fd = openat(conn->dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (view->fd < 0 && errno != EACCES && errno != EPERM && errno != ENOENT && errno != ELOOP)
        return file_fail(err, errno, "cannot look at", conn->path, file);
    if (view->fd < 0 || file_record_read(view->fd, &view->record) != FILE_RECORD)
        memset(&view->record, 0, sizeof view->record);
    return 1;
}

static void close_view(const struct view *view) {
    if (view->fd >= 0) close(view->fd);
}

static int show(const struct view *view, const char *token, uint64_t fence, enum dlock_mode mode, uint32_t limit) {
    struct dlock_info info = {
        .size = sizeof info,
        .name = view->name,
        .token = token,
        .mode = mode,
        .limit = limit,
        .fence = fence,
        .remaining_ms = DLOCK_FOREVER,
        .held_ms = dlock_held_ms(file_clock_us(), (int64_t)fence), /* fences follow this machine's clock */
    };
    return view->viewer->each(&info, view->viewer->arg) != 0;
}

static int show_foreign(const struct view *view, const struct file_lock *lock) {
    char token[32];
    snprintf(token, sizeof token, "flock:%ld", (long)lock->pid);
    return show(view, token, 0, lock->shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE, 1);
}

/* ---- readers and permits ----------------------------------------------------------------------------------------- */

/* The clients of dlock that have a seat, each once. */
struct seated {
    size_t n, room;
    struct sitter {
        long pid;        /* in the client's PID namespace; 0: unknown */
        char client[32]; /* the part of its tokens before the dot */
        bool listed;     /* the list has a lock of its process */
    } * list;
};

/* Each seat without a token, not written yet or after a failure, is treated as a separate client. */
static void remember(struct seated *seated, const char *token) {
    struct sitter fresh = {.pid = pid_of(token)};
    snprintf(fresh.client, sizeof fresh.client, "%.*s", (int)strcspn(token, "."), token);
    for (size_t i = 0; *token && i < seated->n; i++)
        if (seated->list[i].pid == fresh.pid && strcmp(seated->list[i].client, fresh.client) == 0) return;
    if (seated->n == seated->room) {
        size_t room = seated->room ? 2 * seated->room : 16;
        struct sitter *list = reallocarray(seated->list, room, sizeof *list);
        if (!list) return;
        seated->list = list;
        seated->room = room;
    }
    seated->list[seated->n++] = fresh;
}

/* Shows the seats of a range. Every user who may read the file can lock bytes there: all at once, which is one seat
 * here, or so many single ones that only the deadline ends the walk. Returns as file_show(), but not the error. */
static int show_seats(const struct view *view, int64_t range, struct seated *seated) {
    const bool reads = range == FILE_READERS;
    struct file_seat seat;
    int64_t at, end = range;
    int rc = 0;
    while (rc == 0 && (at = file_byte_locked_first(view->fd, end, range + FILE_SEATS - end, &end)) >= 0) {
        if (file_now_ms() >= view->viewer->deadline_ms) return DLOCK_EUNAVAILABLE;
        file_seat_read(view->fd, view->name, (uint32_t)(at - range), &seat);
        remember(seated, seat.token);
        rc = show(view, seat.token, seat.fence, reads ? DLOCK_SHARED : DLOCK_PERMIT, reads ? 1 : seat.limit);
    }
    return rc;
}

/* Notes that the clients with this pid are listed. False if there are none. */
static bool mark(struct seated *seated, long pid) {
    bool any = false;
    for (size_t i = 0; i < seated->n; i++)
        if (seated->list[i].pid == pid) any = seated->list[i].listed = true;
    return any;
}

/* Returns the next listed shared lock, after `lock`, of a process without a seat, or NULL. */
static const struct file_lock *next_foreign(const struct view *view, struct seated *seated,
                                            const struct file_lock *lock) {
    do lock = next_lock(view->viewer->locks, &view->st, lock);
    while (lock && (!lock->shared || mark(seated, lock->pid) || mark(seated, own_pid(lock->pid))));
    return lock;
}

/* Shows users of flock(1) that share the lock with dlock's readers or permits: the listed processes without a seat. As
 * many of them are not shown as there are clients whose process is not found in the list: it may be any of them, since
 * the seat has no token yet, or since this user may not see the pid that a process has in its container. (A user of
 * flock(1) is then missing if that client is not listed at all, being outside of this container. One too many is shown
 * if the token is still that of a client that has another seat.) */
static int show_sharing(const struct view *view, struct seated *seated) {
    const struct file_lock *lock = NULL;
    size_t foreign = 0, unknown = 0;
    int rc = 0;
    while ((lock = next_foreign(view, seated, lock)) != NULL) foreign++;
    for (size_t i = 0; i < seated->n; i++)
        if (!seated->list[i].listed) unknown++;
    for (; rc == 0 && foreign > unknown && (lock = next_foreign(view, seated, lock)) != NULL; foreign--)
        rc = show_foreign(view, lock);
    return rc;
}

/* ---- all holders ------------------------------------------------------------------------------------------------- */

/* Shows the holders of a file without seats: an exclusive holder, users of flock(1) in either mode, or none. */
static int show_locked(const struct view *view, bool locks_listed) {
    const struct file_lock *lock = next_lock(view->viewer->locks, &view->st, NULL);
    const char *token = view->record.token;
    if (lock && !token_fits(lock->shared ? "" : token, lock->pid)) {
        int rc = 0;
        for (; rc == 0 && lock; lock = next_lock(view->viewer->locks, &view->st, lock)) rc = show_foreign(view, lock);
        return rc;
    }
    if (!lock && (view->fd < 0 || (locks_listed && !*token) || !probe(view->fd))) return 0;
    return show(view, token, *token ? view->record.fence : 0, DLOCK_EXCLUSIVE, 1);
}

int file_show(const struct file_conn *conn, const char *file, const char *name, const char *prefix,
              const struct file_viewer *viewer, struct dlock_error *err) {
    struct seated seated = {0, 0, NULL};
    char again[FILE_NAME_SIZE];
    struct view view;
    int rc = open_view(&view, conn, file, err);
    if (rc <= 0) return rc;
    rc = 0;
    view.name = name;
    view.viewer = viewer;
    if (!name) { /* the record has the whole name; it is believed if it leads to this file name */
        file_name_encode(conn, view.record.name, again);
        view.name = strcmp(file, again) == 0 ? view.record.name : file;
    }
    if (strncmp(view.name, prefix, strlen(prefix)) == 0) {
        if (view.fd >= 0) rc = show_seats(&view, FILE_READERS, &seated);
        if (view.fd >= 0 && rc == 0) rc = show_seats(&view, FILE_PERMITS, &seated);
        if (rc == 0) rc = seated.n > 0 ? show_sharing(&view, &seated) : show_locked(&view, conn->locks_listed);
    }
    close_view(&view);
    free(seated.list);
    if (rc >= 0) return rc;
    return dlock_fail(err, rc,
                      "no time to look at all locks on %s/%s: end the program that has locked so many bytes of it "
                      "(`fuser -v` names those that have it open)",
                      conn->path, file);
}

/* True if the exclusive holder is one of dlock, according to the list, or to the token if the list is incomplete. */
static bool held_by_us(const struct file_conn *conn, const struct view *view, const struct file_lock *lock) {
    if (!view->record.token[0]) return false;
    return lock ? !lock->shared && token_fits(view->record.token, lock->pid) : !conn->locks_listed;
}

static bool has_seats(int fd) {
    return file_byte_locked(fd, FILE_READERS, FILE_SEATS) >= 0 || file_byte_locked(fd, FILE_PERMITS, FILE_SEATS) >= 0;
}

/* Does the work of file_holder() with one reading of the list; *listed: the list has a lock of the file. */
static enum file_holder look(const struct file_conn *conn, struct view *view, bool *listed) {
    enum file_holder holder = FILE_UNKNOWN;
    struct file_locks locks;
    *listed = false;
    if (file_locks_read(&locks, NULL) != 0) return FILE_UNKNOWN;
    if (file_record_read(view->fd, &view->record) != FILE_UNREADABLE) {
        const struct file_lock *lock = next_lock(&locks, &view->st, NULL);
        holder = has_seats(view->fd) ? FILE_SHARERS : held_by_us(conn, view, lock) ? FILE_OURS : FILE_FLOCK;
        *listed = lock != NULL;
    }
    free(locks.list);
    return holder;
}

/* Does not open the file, since closing it would wake the waiters. The list is read in pieces and can miss a lock while
 * others come and go, so a lock is considered missing only after several readings. */
enum file_holder file_holder(const struct file_conn *conn, int fd) {
    enum file_holder holder = FILE_UNKNOWN;
    struct view view = {.fd = fd};
    bool listed = false;
    if (fstat(fd, &view.st) != 0) return FILE_UNKNOWN;
    for (int i = 0; i < LOOKS && !listed; i++) {
        holder = look(conn, &view, &listed);
        if (holder != FILE_FLOCK || !conn->locks_listed) break;
    }
    return holder;
}
