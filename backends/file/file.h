/* Locks in files: what the parts of this backend share.
 *
 * One lock is one regular file in one directory, locked with flock(2), so that `flock DIR/NAME command` by hand
 * excludes us and we it. The file outlives its locks, because the fence lives in it (record.c). A lock belongs to a
 * descriptor, opened at the first try of a claim and kept until its release. Whoever locked a file that is no longer
 * the one under its name (it was unlinked, or broken, which is a rename over it) holds nothing.
 *
 * The connection serves every thread (THREADSAFE). Nothing in it changes after connect, except what is atomic and what
 * only the one thread that calls `wake` uses; so there is no mutex, and a forked child finds everything in order.
 */
#ifndef DLOCK_FILE_H
#define DLOCK_FILE_H

#include <dlock/backend.h>

#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    FILE_NAME_SIZE = 256, /* of a file name and of a lock name, with the NUL */
    FILE_FD_PAGES = 2048, /* times 512: the kernel's own default limit of descriptors */
    FILE_FDS_PER_PAGE = 512
};

/* Every descriptor of a connection, in a table that other threads and forked children can read at any time. */
struct file_descriptors {
    _Atomic(_Atomic uint64_t *) pages[FILE_FD_PAGES]; /* per descriptor: 0, 1 (taken), or the handle it is lent under */
    atomic_uint_least64_t lent;
};

enum file_listening {
    FILE_DEAF,    /* nobody listens: waiters poll */
    FILE_WATCHES, /* inotify tells when to ask again */
    FILE_POLLS    /* somebody listens, but there is no inotify to be had */
};

struct file_conn {
    const struct dlock_peer *peer;
    int dir;               /* O_PATH */
    char *path;            /* of the directory, absolute */
    size_t file_name_size; /* what the file system takes, with the NUL; at most FILE_NAME_SIZE */
    bool locks_listed;     /* /proc/locks shows every lock in this directory, under the numbers that stat(2) gives */
    struct file_descriptors fds;
    /* watch.c */
    int wake_fd;
    atomic_int listening;         /* enum file_listening */
    atomic_uint_least64_t events; /* how often something was read from wake_fd */
    size_t unread, end;           /* in `buffer` */
    _Alignas(struct inotify_event) char buffer[4096];
    char woken[FILE_NAME_SIZE]; /* the name of the last wake */
};

/* ---- file.c -------------------------------------------------------------------------------------------------------
 */

/* The code for an errno, from the view of somebody who asked for a lock. */
int file_code(int errnum);

/* Sets `err` to "<what> <path>[/<file>]: <the errno's text>" and returns file_code(errnum). `file` may be NULL. */
int file_fail(struct dlock_error *err, int errnum, const char *what, const char *path, const char *file);

/* For deadlines. */
int64_t file_now_ms(void);

/* ---- directory.c ------------------------------------------------------------------------------------------------- */

int file_connect(void *c, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                 struct dlock_error *err);

/* ---- descriptors.c ----------------------------------------------------------------------------------------------- */

/* Enters an open descriptor, as taken, and returns it; -1 (errno is set, the descriptor closed) when there is no room.
 * Hands a negative one back as it is. */
int file_fd_keep(struct file_descriptors *fds, int fd);

/* Leaves a taken descriptor to whoever has the handle that this returns, never 0. */
uint64_t file_fd_lend(struct file_descriptors *fds, int fd);

/* The descriptor of a handle, now the caller's alone; -1 when it was taken or closed since. */
int file_fd_take(struct file_descriptors *fds, uint64_t handle);

/* Closes a taken descriptor. The lock on it ends even where a forked child has a copy. */
void file_fd_close(struct file_descriptors *fds, int fd);

/* Closes all, and ends their locks where `unlock` is set. Async-signal-safe. */
void file_fds_close(struct file_descriptors *fds, bool unlock);

void file_fds_free(struct file_descriptors *fds);

/* ---- names.c: lock names and file names -------------------------------------------------------------------------- */

/* The name of a lock's file: the lock's own name wherever possible, see names.c. */
void file_name_encode(const struct file_conn *conn, const char *name, char file[FILE_NAME_SIZE]);

/* The way back. False where there is none: the name was cut, or it is not the name of a lock file at all (then *cut,
 * which may be NULL, is false). */
bool file_name_decode(const struct file_conn *conn, const char *file, char name[FILE_NAME_SIZE], bool *cut);

/* ---- record.c: what stands in a lock file ------------------------------------------------------------------------ */

struct file_record {
    uint64_t fence;                  /* of the last grant; 0: not known */
    char token[DLOCK_TOKEN_MAX + 1]; /* of the grant in force; "" after its release */
    char name[FILE_NAME_SIZE];       /* "" when not known */
};

enum file_content {
    FILE_UNREADABLE = -1, /* errno is set */
    FILE_BLANK,           /* nothing that anybody could miss */
    FILE_RECORD,          /* ours, though perhaps damaged: what makes no sense is 0 or "" */
    FILE_FOREIGN          /* somebody else's: hands off */
};

enum file_content file_record_read(int fd, struct file_record *record);

/* Overwrites the record in one go: 0, or -1 and errno. The length depends on the name alone. */
int file_record_write(int fd, uint64_t fence, const char *token, const char *name);
size_t file_record_length(const char *name);

/* ---- claims.c ---------------------------------------------------------------------------------------------------- */

dlock_batch file_acquire, file_renew, file_release;

/* Tells a file from every other that exists at the same time. */
uint64_t file_identity(const struct stat *st);

/* ---- watch.c ----------------------------------------------------------------------------------------------------- */

int file_listen(void *c, int *fd, int timeout_ms, struct dlock_error *err);
int file_wake(void *c, struct dlock_wake *out, struct dlock_error *err);

/* When a claim that found its file locked should ask again. `seen` is a word of the claim's state. */
int64_t file_retry_ms(struct file_conn *conn, uint64_t *seen);

/* ---- holder.c: who holds a file's lock --------------------------------------------------------------------------- */

/* The flock(2) locks of this machine, as far as /proc/locks shows them to us. */
struct file_locks {
    struct file_lock {
        dev_t dev;
        ino_t ino;
        pid_t pid;
    } * list; /* sorted by ino */
    size_t n;
};

/* Empty when they cannot be read. Free the list with free(). ENOMEM, or 0. */
int file_locks_read(struct file_locks *locks, struct dlock_error *err);

struct file_holder {
    struct file_record record;
    char token[DLOCK_TOKEN_MAX + 1]; /* the record's, or flock:PID for a holder that is not ours */
    uint64_t fence;                  /* 0 for a holder that is not ours */
};

/* Whether the file is locked; if so, fills `holder`. */
bool file_held(const struct file_conn *conn, const char *file, const struct file_locks *locks,
               struct file_holder *holder);

/* ---- look.c, break.c --------------------------------------------------------------------------------------------- */

int file_inspect(void *c, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int file_list(void *c, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err);
int file_check(void *c, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int file_break(void *c, const char *name, int timeout_ms, struct dlock_error *err);

#endif
