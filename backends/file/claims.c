/* Acquire, renew, release.
 *
 * What a claim's state holds: the handle of its descriptor, from the first try to the release (opening anew for each
 * try would wake the other waiters at each close); the fence, once granted; what makes out the file; and a word of
 * watch.c's.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum claim_state {
    STATE_FD,    /* a handle; 0: none */
    STATE_FENCE, /* 0: still waiting */
    STATE_FILE,  /* its identity */
    STATE_SEEN   /* see file_retry_ms() */
};

enum {
    REPLACED = 1,         /* next to the result codes, which are negative */
    REPLACED_AT_MOST = 16 /* how often in a row a file may vanish under us before we call it busy */
};

static const uint64_t last_fence = (UINT64_C(1) << 55) - 1;

uint64_t file_identity(const struct stat *st) {
    /* Both numbers in one word: a file keeps its own while we have it open, and nearly always all have one device. */
    return (uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 40 ^ (uint64_t)st->st_dev >> 24;
}

static void forget(struct file_conn *conn, struct dlock_claim *claim, int fd) {
    file_fd_close(&conn->fds, fd);
    claim->state[STATE_FD] = claim->state[STATE_FENCE] = claim->state[STATE_FILE] = 0;
}

/* Whether the claim's descriptor is the file under the name: 1 or 0, or -1 (errno is set) when that cannot be told.
 * *size, which may be NULL, is the file's. */
static int still_named(const struct file_conn *conn, const struct dlock_claim *claim, const char *file, off_t *size) {
    struct stat st;
    if (fstatat(conn->dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -1;
    if (size) *size = st.st_size;
    return file_identity(&st) == claim->state[STATE_FILE];
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

struct attempt {
    struct file_conn *conn;
    struct dlock_claim *claim;
    struct dlock_error *err;
    int fd; /* -1: none */
    char file[FILE_NAME_SIZE];
};

/* Without O_CREAT first: in a sticky directory (fs.protected_regular) it fails for files of other users. */
static int open_lock_file(struct attempt *a) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct file_conn *conn = a->conn;
    struct stat st;
    for (int tries = 0; a->fd < 0 && tries < REPLACED_AT_MOST; tries++) {
        a->fd = openat(conn->dir, a->file, flags);
        if (a->fd < 0 && errno == ENOENT) a->fd = openat(conn->dir, a->file, flags | O_CREAT | O_EXCL, 0666);
        if (a->fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
    a->fd = file_fd_keep(&conn->fds, a->fd);
    if (a->fd < 0) return file_fail(a->err, errno, "cannot open the lock file", conn->path, a->file);
    if (fstat(a->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return dlock_fail(a->err, DLOCK_EINVAL, "%s/%s is not a regular file, so it cannot be a lock", conn->path,
                          a->file);
    a->claim->state[STATE_FILE] = file_identity(&st);
    return 0;
}

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* We have the kernel's lock: writes us in as the holder. */
static int write_grant(struct attempt *a) {
    struct file_record record;
    enum file_content content = file_record_read(a->fd, &record);
    if (content == FILE_UNREADABLE)
        return file_fail(a->err, errno, "cannot read the lock file", a->conn->path, a->file);
    if (content == FILE_FOREIGN)
        return dlock_fail(a->err, DLOCK_EINVAL,
                          "%s/%s has contents that dlock did not write, and is left as it is: use another name or "
                          "directory",
                          a->conn->path, a->file);
    if (record.fence >= last_fence)
        return dlock_fail(a->err, DLOCK_EINVAL, "%s/%s holds the last fence there is: delete it while nobody uses it",
                          a->conn->path, a->file);
    uint64_t fence = record.fence + 1, now = clock_us();
    if (now > fence && now <= last_fence) fence = now;
    if (file_record_write(a->fd, fence, a->claim->token, a->claim->name) != 0)
        return file_fail(a->err, errno, "cannot write the lock file", a->conn->path, a->file);
    a->claim->state[STATE_FENCE] = fence;
    return 0;
}

/* One try: 0, EBUSY, an error; or REPLACED, when the file turned out not to be the one under the name (any more). That
 * is asked last, after the fence is written, so that a break, which is a rename and then a look at the old file's
 * fence, sees the fence of everyone who was granted that file. */
static int try_once(struct attempt *a) {
    int rc = a->fd >= 0 ? 0 : open_lock_file(a);
    if (rc != 0) return rc;
    do rc = flock(a->fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        rc = write_grant(a);
    else
        rc = errno == EWOULDBLOCK ? DLOCK_EBUSY : file_fail(a->err, errno, "cannot lock", a->conn->path, a->file);
    if (rc != 0 && rc != DLOCK_EBUSY) return rc;
    int named = still_named(a->conn, a->claim, a->file, NULL);
    if (named < 0) return file_fail(a->err, errno, "cannot look at the lock file", a->conn->path, a->file);
    return named ? rc : REPLACED;
}

static int attempt(struct attempt *a) {
    struct dlock_claim *claim = a->claim;
    int rc = REPLACED;
    if (a->fd >= 0 && claim->state[STATE_FENCE] != 0 && still_named(a->conn, claim, a->file, NULL) != 0)
        return 0; /* granted before */
    for (int tries = 0; rc == REPLACED && tries < REPLACED_AT_MOST; tries++) {
        claim->state[STATE_FENCE] = 0;
        rc = try_once(a);
        if (a->fd >= 0 && rc != 0 && rc != DLOCK_EBUSY) {
            forget(a->conn, claim, a->fd);
            a->fd = -1;
        }
    }
    return rc == REPLACED ? DLOCK_EBUSY : rc;
}

static void acquire(struct file_conn *conn, struct dlock_claim *claim, struct dlock_error *err) {
    struct attempt a;
    if (claim->mode != DLOCK_EXCLUSIVE) {
        claim->result = dlock_fail(err, DLOCK_ENOTSUP, "file: has exclusive locks only");
        return;
    }
    a.conn = conn;
    a.claim = claim;
    a.err = err;
    a.fd = file_fd_take(&conn->fds, claim->state[STATE_FD]);
    file_name_encode(conn, claim->name, a.file);
    claim->result = attempt(&a);
    claim->state[STATE_FD] = a.fd >= 0 ? file_fd_lend(&conn->fds, a.fd) : 0;
    if (claim->result == 0) {
        claim->fence = claim->state[STATE_FENCE];
        claim->kept_ms = DLOCK_FOREVER;
    } else if (claim->result == DLOCK_EBUSY) {
        claim->retry_ms = file_retry_ms(conn, &claim->state[STATE_SEEN]);
    }
}

/* The name has no file and none can be made: that is the end of every lock here. */
static bool directory_deleted(const struct file_conn *conn) {
    struct stat st;
    return fstat(conn->dir, &st) == 0 && st.st_nlink == 0;
}

int file_acquire(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    struct dlock_error *first = err;
    bool gone = false;
    (void)timeout_ms;
    for (size_t i = 0; i < n; i++) {
        acquire(conn, claims[i], first);
        int result = claims[i]->result;
        if (result != 0 && result != DLOCK_EBUSY) first = NULL; /* `err` describes the first that failed */
        gone = gone || (result == DLOCK_EUNAVAILABLE && directory_deleted(conn));
    }
    if (gone) return dlock_fail(err, DLOCK_EUNAVAILABLE, "the lock directory %s was deleted", conn->path);
    return 0;
}

/* ---- renew and release ------------------------------------------------------------------------------------------- */

int file_renew(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    char file[FILE_NAME_SIZE];
    (void)timeout_ms;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        struct dlock_claim *claim = claims[i];
        claim->result = DLOCK_ELOST;
        if (claim->state[STATE_FENCE] == 0) continue;
        file_name_encode(conn, claim->name, file);
        /* When it cannot be told, the kernel's lock still stands, and a later renewal finds out. */
        if (still_named(conn, claim, file, NULL) == 0) {
            int fd = file_fd_take(&conn->fds, claim->state[STATE_FD]);
            if (fd >= 0) forget(conn, claim, fd);
            continue;
        }
        claim->result = 0;
        claim->kept_ms = DLOCK_FOREVER;
    }
    return 0;
}

/* The record keeps the fence and loses the token, so that nobody takes us for the holder when flock(1) is. That is a
 * courtesy: where somebody wrote into the file, or the disk is full, it is left out. All is written before the lock
 * ends. */
static int release(struct file_conn *conn, struct dlock_claim *claim) {
    char file[FILE_NAME_SIZE];
    off_t size = 0;
    int result = 0, fd = file_fd_take(&conn->fds, claim->state[STATE_FD]);
    if (fd < 0) return DLOCK_ELOST;
    if (claim->state[STATE_FENCE] != 0) {
        file_name_encode(conn, claim->name, file);
        if (still_named(conn, claim, file, &size) == 0)
            result = DLOCK_ELOST;
        else if (size == (off_t)file_record_length(claim->name))
            (void)!file_record_write(fd, claim->state[STATE_FENCE], "", claim->name);
    }
    forget(conn, claim, fd);
    return result;
}

int file_release(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = release(conn, claims[i]);
    return 0;
}
