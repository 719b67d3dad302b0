/* Acquire, renew, release.
 *
 * What a claim's state holds: its descriptor, from the first try to the release (opening anew for each try would wake
 * the other waiters at each close); the fence, once granted; what makes out the file; and a word of watch.c's.
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
    STATE_FD,    /* plus one; 0: none */
    STATE_FENCE, /* 0: still waiting */
    STATE_FILE,  /* its identity */
    STATE_SEEN   /* see file_retry_ms() */
};

enum { REPLACED_AT_MOST = 16 }; /* how often in a row a file may vanish under us before we call it busy */

static const uint64_t last_fence = (UINT64_C(1) << 55) - 1;

uint64_t file_identity(const struct stat *st) {
    /* Both numbers in one word: a file keeps its own while we have it open, and nearly always all have one device. */
    return (uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 40 ^ (uint64_t)st->st_dev >> 24;
}

static int fd_of(const struct dlock_claim *claim) {
    return (int)claim->state[STATE_FD] - 1;
}

static void forget(struct file_conn *conn, struct dlock_claim *claim) {
    file_fd_close(&conn->fds, fd_of(claim));
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

/* Without O_CREAT first: in a sticky directory (fs.protected_regular) it fails for files of other users. */
static int open_lock_file(struct file_conn *conn, struct dlock_claim *claim, const char *file,
                          struct dlock_error *err) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat st;
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < REPLACED_AT_MOST; tries++) {
        fd = openat(conn->dir, file, flags);
        if (fd < 0 && errno == ENOENT) fd = openat(conn->dir, file, flags | O_CREAT | O_EXCL, 0666);
        if (fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
    fd = file_fd_keep(&conn->fds, fd);
    if (fd < 0) return file_fail(err, errno, "cannot open the lock file", conn->path, file);
    claim->state[STATE_FD] = (uint64_t)fd + 1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        claim->state[STATE_FILE] = file_identity(&st);
        return 0;
    }
    forget(conn, claim);
    return dlock_fail(err, DLOCK_EINVAL, "%s/%s is not a regular file, so it cannot be a lock", conn->path, file);
}

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* We have the kernel's lock: writes us in as the holder. */
static int write_grant(struct file_conn *conn, struct dlock_claim *claim, const char *file, struct dlock_error *err) {
    struct file_record record;
    switch (file_record_read(fd_of(claim), &record)) {
    case FILE_UNREADABLE: return file_fail(err, errno, "cannot read the lock file", conn->path, file);
    case FILE_FOREIGN:
        return dlock_fail(err, DLOCK_EINVAL,
                          "%s/%s has contents that dlock did not write, and is left as it is: use another name or "
                          "directory",
                          conn->path, file);
    default: break;
    }
    if (record.fence >= last_fence)
        return dlock_fail(err, DLOCK_EINVAL, "%s/%s holds the last fence there is: delete it while nobody uses it",
                          conn->path, file);
    uint64_t fence = record.fence + 1, now = clock_us();
    if (now > fence && now <= last_fence) fence = now;
    if (file_record_write(fd_of(claim), fence, claim->token, claim->name) != 0)
        return file_fail(err, errno, "cannot write the lock file", conn->path, file);
    claim->state[STATE_FENCE] = fence;
    return 0;
}

/* The name has no file and none can be made: that is the end of every lock here. */
static bool directory_deleted(const struct file_conn *conn) {
    struct stat st;
    return fstat(conn->dir, &st) == 0 && st.st_nlink == 0;
}

/* One try on the descriptor that the claim has or gets: 0, EBUSY, an error; or 1, when the file turned out not to be
 * the one under the name (any more). That is asked last, after the fence is written, so that a break, which is a rename
 * and then a look at the old file's fence, sees the fence of everyone who was granted that file. */
static int try_once(struct file_conn *conn, struct dlock_claim *claim, const char *file, struct dlock_error *err) {
    int rc = fd_of(claim) >= 0 ? 0 : open_lock_file(conn, claim, file, err);
    if (rc != 0) return rc;
    while (rc = flock(fd_of(claim), LOCK_EX | LOCK_NB), rc != 0 && errno == EINTR)
        ;
    bool busy = rc != 0 && errno == EWOULDBLOCK;
    if (busy)
        rc = DLOCK_EBUSY;
    else if (rc != 0)
        rc = file_fail(err, errno, "cannot lock", conn->path, file);
    else
        rc = write_grant(conn, claim, file, err);
    int named = rc == 0 || busy ? still_named(conn, claim, file, NULL) : 1;
    if (named < 0) rc = file_fail(err, errno, "cannot look at the lock file", conn->path, file);
    if (named <= 0 || (rc != 0 && !busy)) forget(conn, claim);
    return named == 0 ? 1 : rc;
}

static void acquire(struct file_conn *conn, struct dlock_claim *claim, struct dlock_error *err) {
    char file[FILE_NAME_SIZE];
    if (claim->mode != DLOCK_EXCLUSIVE) {
        claim->result = dlock_fail(err, DLOCK_ENOTSUP, "file: has exclusive locks only");
        return;
    }
    file_name_encode(conn, claim->name, file);
    claim->result = 1;
    if (claim->state[STATE_FENCE] != 0) {
        if (still_named(conn, claim, file, NULL) != 0)
            claim->result = 0; /* granted before */
        else
            forget(conn, claim);
    }
    for (int tries = 0; claim->result == 1 && tries < REPLACED_AT_MOST; tries++)
        claim->result = try_once(conn, claim, file, err);
    if (claim->result == 1) claim->result = DLOCK_EBUSY;
    if (claim->result == 0) {
        claim->fence = claim->state[STATE_FENCE];
        claim->kept_ms = DLOCK_FOREVER;
    } else if (claim->result == DLOCK_EBUSY) {
        claim->retry_ms = file_retry_ms(conn, &claim->state[STATE_SEEN]);
    }
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
            forget(conn, claim);
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
    if (fd_of(claim) < 0) return DLOCK_ELOST;
    int result = 0;
    if (claim->state[STATE_FENCE] != 0) {
        file_name_encode(conn, claim->name, file);
        if (still_named(conn, claim, file, &size) == 0) result = DLOCK_ELOST;
        if (size == (off_t)file_record_length(claim->name))
            (void)!file_record_write(fd_of(claim), claim->state[STATE_FENCE], "", claim->name);
    }
    forget(conn, claim);
    return result;
}

int file_release(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)timeout_ms;
    (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = release(conn, claims[i]);
    return 0;
}
