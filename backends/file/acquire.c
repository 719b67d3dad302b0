/* Acquire.
 *
 * An exclusive lock takes an exclusive flock(2) and writes the record. A shared lock and a permit take a shared
 * flock(2) and a seat (seats.c). Seats are taken one claim at a time (FILE_TURN), so that each gets a different fence,
 * and so that readers and holders of permits, or of permits with different limits, never hold the name at the same
 * time.
 *
 * A claim that finds the file locked joins the line of waiters (line.c), if inotify can wake it, and tries once more. A
 * holder checks the line after unlocking the file, so one of the two sees the other. A writer that retries because of
 * readers locks the gate, which keeps new readers out, and so does not starve; a single try blocks no readers.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    REPLACED = 1,          /* result beside the negative codes: the file is not, or no longer, the one under the name */
    IN_USE = 2,            /* result: the name is in use in a mode, or with a limit, for which waiting is senseless */
    REPLACED_AT_MOST = 16, /* how often in a row the file may be replaced before the lock is reported as busy */
    TURN_MS = 20           /* longest wait for FILE_TURN, which a process that is not stopped holds for an instant */
};

static const uint64_t last_fence = (UINT64_C(1) << 55) - 1;

struct attempt {
    struct file_conn *conn;
    struct dlock_claim *claim;
    struct dlock_error *err;
    int fd;         /* the descriptor of the lock file, taken; -1: none */
    int64_t in_use; /* with IN_USE: the limit of the held permits, 0 if unknown; -1: the name is in use as a lock */
    bool soon;      /* with EBUSY: only for a moment */
    char file[FILE_NAME_SIZE];
};

static struct file_fd *entry_of(struct attempt *a) {
    return file_fd_at(&a->conn->fds, a->fd);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Opens the lock file, or creates it. Does not use O_CREAT on a file that may exist: in a sticky directory that fails
 * for files of other users (fs.protected_regular). Returns the descriptor, taken, or -1 and errno. */
static int open_or_create(struct attempt *a) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct file_conn *conn = a->conn;
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < REPLACED_AT_MOST; tries++) {
        fd = file_fd_keep(&conn->fds, openat(conn->dir, a->file, flags));
        if (fd < 0 && errno == ENOENT) fd = file_create(conn, a->file);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && !file_cache_drop(conn)) break;
        if (fd < 0 && errno != EEXIST && errno != EINTR && errno != EMFILE && errno != ENFILE) break;
    }
    return fd;
}

/* check_directory() and check_file() return 0 if no stranger can put another file in place of the lock file while we
 * hold its lock. The directory is checked before a file is made there, but only once a second: there may be thousands
 * of names. */
static int check_directory(struct attempt *a) {
    struct file_conn *conn = a->conn;
    long long second = file_second();
    struct stat st;
    if (atomic_load(&conn->safe_s) == second) return 0;
    if (fstat(conn->dir, &st) != 0)
        return file_fail(a->err, errno, "cannot look at the lock directory", conn->path, NULL);
    const char *why;
    int safe = file_is_safe(conn, conn->dir, &st, &why);
    if (safe < 0) return file_fail(a->err, errno, "cannot look up the owner of", conn->path, NULL);
    if (!safe) return dlock_fail(a->err, DLOCK_EAUTH, "no locks in %.200s: %s", conn->path, why);
    if (!file_may_create(conn)) return file_fail(a->err, errno, "cannot create lock files in", conn->path, NULL);
    atomic_store(&conn->safe_s, second);
    return 0;
}

static int check_file(struct attempt *a, const struct file_stat *st) {
    struct file_conn *conn = a->conn;
    int trusted = conn->mode & S_IWOTH ? 1 : file_trusts(conn, st->uid, st->gid);
    if (trusted < 0) return file_fail(a->err, errno, "cannot look up the owner of", conn->path, a->file);
    if (trusted) return 0;
    return dlock_fail(
        a->err, DLOCK_EAUTH,
        "%s/%s belongs to user %u, who may replace it: delete or chown it, or give all users of this lock "
        "the same mode= and group= in their URIs",
        conn->path, a->file, (unsigned)st->uid);
}

/* Explains why the lock file could not be opened. ENOENT can only come from its creation. Unless the directory is gone,
 * the file system then creates no files, as procfs, and would not at a later try either. */
static int cannot_open(struct attempt *a, int errnum) {
    const struct file_conn *conn = a->conn;
    if (errnum != ENOENT || file_replaced(conn))
        return file_fail(a->err, errnum, "cannot open the lock file", conn->path, a->file);
    return dlock_fail(a->err, DLOCK_EINVAL,
                      "cannot create lock files in %s: its file system creates no files there; name another directory",
                      conn->path);
}

static int open_lock_file(struct attempt *a) {
    struct file_conn *conn = a->conn;
    struct file_stat st;
    a->fd = file_cache_take(conn, a->file, &a->claim->state[FILE_STATE_FILE]);
    if (a->fd >= 0) return 0;
    int rc = check_directory(a);
    if (rc != 0) return rc;
    a->fd = open_or_create(a);
    if (a->fd < 0) return cannot_open(a, errno);
    if (file_stat(a->fd, "", &st) != 0 || !st.regular)
        return dlock_fail(a->err, DLOCK_EINVAL, "%s/%s is not a regular file, so it cannot be a lock", conn->path,
                          a->file);
    a->claim->state[FILE_STATE_FILE] = st.identity;
    return check_file(a, &st);
}

static int lock_file(struct attempt *a, int how) {
    int rc;
    do rc = flock(a->fd, how | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return 0;
    if (errno == EWOULDBLOCK) return DLOCK_EBUSY;
    return file_fail(a->err, errno, "cannot lock", a->conn->path, a->file);
}

/* ---- the grant --------------------------------------------------------------------------------------------------- */

/* True if an empty file may be used as a lock file. One with several names may be another user's empty file, to which a
 * stranger has made a hard link here. */
static bool only_name(const struct attempt *a) {
    struct file_stat st;
    return file_stat(a->fd, "", &st) != 0 || st.links <= 1;
}

/* Writes the next fence, and `token` ("" where there may be several holders). Only one process writes at a time: it has
 * the exclusive lock or FILE_TURN. */
static int write_grant(struct attempt *a, const char *token) {
    uint64_t last, fence;
    enum file_content content = file_fence_read(a->fd, &last);
    if (content == FILE_UNREADABLE)
        return file_fail(a->err, errno, "cannot read the lock file", a->conn->path, a->file);
    if (content == FILE_BLANK && !only_name(a))
        return dlock_fail(a->err, DLOCK_EINVAL, "%s/%s has other names (hard links), and is left as it is: delete it",
                          a->conn->path, a->file);
    if (content == FILE_FOREIGN)
        return dlock_fail(a->err, DLOCK_EINVAL,
                          "%s/%s has contents that dlock did not write, and is left as it is: use another name or "
                          "directory",
                          a->conn->path, a->file);
    if (last >= last_fence)
        return dlock_fail(a->err, DLOCK_EINVAL,
                          "%s/%s holds the greatest possible fence: delete it while nobody uses the lock",
                          a->conn->path, a->file);
    fence = (uint64_t)file_clock_us();
    if (fence <= last || fence > last_fence) fence = last + 1;
    if (file_record_write(a->conn, a->fd, fence, token, a->claim->name) != 0)
        return file_fail(a->err, errno, "cannot write the lock file", a->conn->path, a->file);
    a->claim->state[FILE_STATE_FENCE] = fence;
    return 0;
}

static int try_exclusive(struct attempt *a) {
    int rc = lock_file(a, LOCK_EX);
    if (rc != 0) return rc;
    return write_grant(a, a->claim->token);
}

/* ---- readers and permits ----------------------------------------------------------------------------------------- */

static bool take_turn(struct attempt *a, int timeout_ms) {
    const struct timespec instant = {0, 50000};
    if (file_byte_lock(a->fd, true, FILE_TURN)) return true;
    int64_t end = file_now_ms() + (timeout_ms < TURN_MS ? timeout_ms : TURN_MS);
    while (file_now_ms() < end) {
        nanosleep(&instant, NULL);
        if (file_byte_lock(a->fd, true, FILE_TURN)) return true;
    }
    return false;
}

/* True if permits are held; sets a->in_use to their limit. */
static bool permits_held(struct attempt *a) {
    struct file_seat holder;
    int64_t at = file_byte_locked(a->fd, FILE_PERMITS, FILE_SEATS);
    if (at < 0) return false;
    file_seat_read(a->fd, a->claim->name, (uint32_t)(at - FILE_PERMITS), &holder);
    a->in_use = holder.limit;
    return true;
}

/* Takes a seat for the claim and writes its grant. The caller has FILE_TURN and the shared flock(2). */
static int sit_down(struct attempt *a) {
    const struct dlock_claim *claim = a->claim;
    bool reads = claim->mode == DLOCK_SHARED;
    if (permits_held(a) && (reads || (a->in_use != 0 && a->in_use != claim->limit))) return IN_USE;
    if (!reads && file_byte_locked(a->fd, FILE_READERS, FILE_SEATS) >= 0) return a->in_use = -1, IN_USE;
    if (!file_seat(&a->conn->fds, a->fd, reads ? FILE_READERS : FILE_PERMITS, reads ? UINT32_MAX : claim->limit))
        return DLOCK_EBUSY;
    int rc = write_grant(a, "");
    if (rc != 0) return rc;
    struct file_seat seat = {claim->limit, claim->state[FILE_STATE_FENCE], ""};
    snprintf(seat.token, sizeof seat.token, "%s", claim->token);
    if (file_seat_write(a->conn, a->fd, claim->name, atomic_load(&entry_of(a)->seat) - 1, &seat) != 0)
        return file_fail(a->err, errno, "cannot write the lock file", a->conn->path, a->file);
    return 0;
}

static int try_shared(struct attempt *a, int timeout_ms) {
    if (a->claim->mode == DLOCK_SHARED && file_byte_locked(a->fd, FILE_GATE, 1) >= 0) return DLOCK_EBUSY;
    int rc = lock_file(a, LOCK_SH);
    if (rc != 0) return rc;
    if (take_turn(a, timeout_ms)) {
        rc = sit_down(a);
        file_byte_unlock(a->fd, FILE_TURN, 1);
    } else {
        rc = DLOCK_EBUSY;
        a->soon = true;
    }
    if (rc == DLOCK_EBUSY) flock(a->fd, LOCK_UN);
    return rc;
}

/* ---- busy -------------------------------------------------------------------------------------------------------- */

static int in_use(struct attempt *a) {
    const struct dlock_claim *claim = a->claim;
    char limit[24] = "", asked[40] = "";
    if (a->in_use < 0)
        return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%s\" is in use as a lock, not as permits", claim->name);
    if (a->in_use > 0) snprintf(limit, sizeof limit, "%u ", (unsigned)a->in_use);
    if (claim->mode == DLOCK_PERMIT) snprintf(asked, sizeof asked, ", and was asked for as %u", (unsigned)claim->limit);
    return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%s\" is in use as %spermits%s", claim->name, limit, asked);
}

/* Handles a locked file, or a name without a free permit: tells a lingering holder that the lock is wanted, locks the
 * gate against new readers, finds out whether waiting is senseless. Returns EBUSY or IN_USE. */
static int busy(struct attempt *a) {
    struct file_fd *entry = entry_of(a);
    enum dlock_mode mode = a->claim->mode;
    bool asked = entry->flags & FILE_ASKED;
    entry->flags |= FILE_ASKED;
    /* One look tells that there are none of these byte locks, as in most cases. */
    bool any = file_byte_locked(a->fd, FILE_LINGERS, FILE_PERMITS + FILE_SEATS - FILE_LINGERS) >= 0;
    if (any && file_byte_locked(a->fd, FILE_LINGERS, 1) >= 0) {
        file_tell_wanted(a->fd);
    } else if (any && mode == DLOCK_EXCLUSIVE) {
        if (permits_held(a)) return IN_USE;
        if (entry->flags & FILE_GATED || file_byte_locked(a->fd, FILE_READERS, FILE_SEATS) < 0) return DLOCK_EBUSY;
        if (asked && file_byte_lock(a->fd, true, FILE_GATE)) entry->flags |= FILE_GATED;
    } else if (mode == DLOCK_PERMIT && !(any && file_byte_locked(a->fd, FILE_PERMITS, FILE_SEATS) >= 0)) {
        a->in_use = -1;
        if (file_holder(a->conn, a->fd) == FILE_OURS) return IN_USE;
    }
    return DLOCK_EBUSY;
}

/* ---- a try ------------------------------------------------------------------------------------------------------- */

static int try_to_lock(struct attempt *a, int timeout_ms) {
    return a->claim->mode == DLOCK_EXCLUSIVE ? try_exclusive(a) : try_shared(a, timeout_ms);
}

/* Tries once. Returns 0, EBUSY, an error, or REPLACED. Checks last, after the fence is written, that the file is still
 * the one under the name: a break renames first and reads the old file's fence then, so it sees the fence of every
 * grant of that file. */
static int try_once(struct attempt *a, int timeout_ms) {
    int rc = a->fd >= 0 ? 0 : open_lock_file(a);
    if (rc != 0) return rc;
    a->soon = a->claim->mode == DLOCK_EXCLUSIVE && file_line_yields(a->conn, a->fd, a->claim->state[FILE_STATE_SEEN]);
    rc = a->soon ? DLOCK_EBUSY : try_to_lock(a, timeout_ms);
    if (rc == DLOCK_EBUSY && !a->soon && file_line_join(a->conn, a->fd)) rc = try_to_lock(a, timeout_ms);
    if (rc != 0 && rc != DLOCK_EBUSY && rc != IN_USE) return rc;
    int named = file_check_named(a->conn, a->claim, a->fd, a->file);
    if (named < 0) return file_fail(a->err, errno, "cannot look at the lock file", a->conn->path, a->file);
    if (!named) return REPLACED;
    if (rc == DLOCK_EBUSY) rc = busy(a);
    return rc == IN_USE ? in_use(a) : rc;
}

/* Ends the byte locks and flags that were for the wait only. */
static void end_wait(struct attempt *a) {
    struct file_fd *entry = entry_of(a);
    if (entry->flags & FILE_GATED) file_byte_unlock(a->fd, FILE_GATE, 1);
    file_line_leave(a->conn, a->fd);
    entry->flags &= ~(unsigned)(FILE_GATED | FILE_ASKED | FILE_YIELDED);
}

static int attempt(struct attempt *a, int timeout_ms) {
    struct dlock_claim *claim = a->claim;
    int rc = REPLACED;
    if (a->fd >= 0 && claim->state[FILE_STATE_FENCE] != 0 && file_still_named(a->conn, claim, a->file) != 0)
        return 0; /* granted before */
    for (int tries = 0; rc == REPLACED && tries < REPLACED_AT_MOST; tries++) {
        claim->state[FILE_STATE_FENCE] = 0;
        rc = try_once(a, timeout_ms);
        if (a->fd >= 0 && rc != 0 && rc != DLOCK_EBUSY) {
            file_forget(a->conn, claim, a->fd);
            a->fd = -1;
        }
    }
    if (rc == 0) end_wait(a);
    return rc == REPLACED ? DLOCK_EBUSY : rc;
}

static void acquire(struct file_conn *conn, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    struct attempt a;
    a.conn = conn;
    a.claim = claim;
    a.err = err;
    a.in_use = 0;
    a.soon = false;
    a.fd = file_fd_take(&conn->fds, claim->state[FILE_STATE_FD]);
    file_name_encode(conn, claim->name, a.file);
    claim->result = attempt(&a, timeout_ms);
    if (claim->result == 0) {
        claim->fence = claim->state[FILE_STATE_FENCE];
        claim->kept_ms = DLOCK_FOREVER;
        if (claim->flags & DLOCK_CLAIM_LINGER && claim->mode == DLOCK_EXCLUSIVE) file_linger(conn, a.fd);
    } else if (claim->result == DLOCK_EBUSY) {
        claim->retry_ms = file_retry_ms(conn, a.fd, &claim->state[FILE_STATE_SEEN]);
        if (a.soon && claim->retry_ms > FILE_SOON_MS) claim->retry_ms = FILE_SOON_MS;
    }
    claim->state[FILE_STATE_FD] = a.fd >= 0 ? file_fd_lend(&conn->fds, a.fd) : 0;
}

/* The path leads to another directory, where others take these locks. A new connection follows it. */
static int leave(struct file_conn *conn, struct dlock_claim *const *claims, size_t n, const char *what,
                 struct dlock_error *err) {
    if (file_path_stays(conn)) return dlock_fail(err, DLOCK_EUNAVAILABLE, "the lock directory %s %s", conn->path, what);
    file_forget_all(conn, claims, n, DLOCK_EINVAL);
    (void)dlock_fail(err, DLOCK_EINVAL,
                     "the lock directory %s %s, and this process has left the directory that the URI's path is "
                     "relative to: use an absolute path",
                     conn->path, what);
    return 0;
}

int file_acquire(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    struct dlock_error *first = err;
    const char *replaced = file_replaced_lately(conn);
    for (size_t i = 0; i < n && !replaced; i++) {
        acquire(conn, claims[i], timeout_ms, first);
        int result = claims[i]->result;
        if (result != 0 && result != DLOCK_EBUSY) first = NULL; /* `err` describes the first that failed */
        if (result == DLOCK_EUNAVAILABLE) replaced = file_replaced(conn);
    }
    return replaced ? leave(conn, claims, n, replaced, err) : 0;
}
