/* Locks in files: what the parts of this backend share.
 *
 * One lock is one regular file in one directory, locked with flock(2), so that `flock DIR/NAME command` by hand
 * excludes us and we it; readers and holders of permits lock it shared. The file outlives its locks, because the fence
 * lives in it (record.c). A lock belongs to a descriptor, opened at the first try of a claim and kept until its
 * release, or longer (cache.c). A lock on a file that is no longer the one under its name (it was unlinked, or broken,
 * which is a rename over it) is none.
 *
 * Waiters and permits, which flock(2) does not know, are locks on single bytes far behind the end of the file
 * (byte_locks.c). They belong to the same descriptors, so that the kernel ends them together with the process.
 *
 * The connection serves every thread (THREADSAFE). Nothing in it changes after connect, except what is atomic, what
 * belongs to the descriptor that a thread has taken, and what only the one thread that calls `wake` uses; so there is
 * no mutex, and a forked child finds everything in order.
 *
 * The files; each calls those below it only:
 *   file
 *   acquire  claims
 *   directory  grant  break  inspect  check
 *   cache  seats  identity  inotify  rights
 *   descriptors  holder
 *   byte_locks  record  names  errors
 */
#ifndef DLOCK_FILE_H
#define DLOCK_FILE_H

#include <dlock/backend.h>

#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

enum {
    FILE_NAME_SIZE = 256, /* of a file name and of a lock name, with the NUL */
    FILE_FD_PAGES = 2048, /* times 512: the kernel's own default limit of descriptors */
    FILE_FDS_PER_PAGE = 512,
    FILE_CACHE_SETS = 16,
    FILE_CACHE_WAYS = 4
};

/* A descriptor's locks besides its flock(2) lock: see byte_locks.c. */
enum file_fd_flags {
    FILE_WAITING = 1,
    FILE_GATED = 2,
    FILE_LINGERING = 4,
    FILE_SEATED = 8,
    FILE_ASKED = 16, /* locks nothing: the claim has asked before */
    FILE_BREAKING = 32
};

/* One descriptor. All but `owner` and `seat` belong to whoever has taken it. */
struct file_fd {
    atomic_uint_least64_t owner; /* 0: not ours; 1: taken; or the handle it is lent under */
    atomic_uint seat;            /* 1 + its place in the file's list of readers or permits; 0: none */
    unsigned flags;              /* enum file_fd_flags */
    int64_t version;             /* of the directory in which its file had its name for certain; 0: not known */
};

/* Every descriptor of a connection, in a table that other threads and forked children can read at any time. */
struct file_descriptors {
    _Atomic(struct file_fd *) pages[FILE_FD_PAGES];
    atomic_uint_least64_t lent;
};

/* Descriptors of lock files that are not in use. */
struct file_cached {
    atomic_flag busy;
    int fd; /* when `file` is not "" */
    uint64_t identity;
    char file[FILE_NAME_SIZE];
};

enum file_listening {
    FILE_DEAF,    /* nobody listens: waiters poll */
    FILE_INOTIFY, /* inotify tells when to ask again */
    FILE_POLLS    /* somebody listens, but there is no inotify to be had */
};

struct file_conn {
    const struct dlock_peer *peer;
    int dir;               /* O_PATH */
    char *path;            /* of the directory, absolute */
    size_t file_name_size; /* what the file system takes, with the NUL; at most FILE_NAME_SIZE */
    bool dir_dated;        /* whatever happens to a name in the directory leaves it with another time stamp */
    bool locks_listed;     /* /proc/locks shows every lock in this directory, under the numbers that stat(2) gives */
    mode_t mode;           /* of the lock files that we make */
    gid_t group;           /* theirs, or FILE_ANY_GROUP */
    uid_t uid;             /* this process's when it connected */
    atomic_llong safe_s;   /* 1 + the second in which the directory was last found safe; 0: never */
    struct file_descriptors fds;
    struct file_cached cache[FILE_CACHE_SETS][FILE_CACHE_WAYS];
    atomic_uint lingering; /* how many grants have FILE_LINGERING */
    /* inotify.c */
    int wake_fd;
    atomic_int listening;         /* enum file_listening */
    atomic_uint_least64_t events; /* 1 + how often something was read from wake_fd; 0: it was not there yet */
    size_t unread, end;           /* in `buffer` */
    _Alignas(struct inotify_event) char buffer[4096];
    char woken[FILE_NAME_SIZE]; /* the name of the last wake */
};

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* Sets `err` to "<what> <path>[/<file>]: <the errno's text>" and returns the code for somebody who asked for a lock.
 * `file` may be NULL. */
int file_fail(struct dlock_error *err, int errnum, const char *what, const char *path, const char *file);

/* For deadlines. */
static inline int64_t file_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* ---- directory.c ------------------------------------------------------------------------------------------------- */

int file_connect(void *c, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                 struct dlock_error *err);

/* ---- rights.c ---------------------------------------------------------------------------------------------------- */

#define FILE_ANY_GROUP ((gid_t)-1)
enum { FILE_FRESH_SIZE = 24 };

int file_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* Reads the URI's `mode` and `group`. */
int file_rights_read(struct file_conn *conn, const struct dlock_uri *uri, struct dlock_error *err);

/* Whether a directory or a lock file of this owner and group is safe from being replaced by a stranger. */
bool file_trusts(const struct file_conn *conn, uid_t uid, gid_t gid);

/* Why locks in the directory would exclude nobody for certain, and what to do; NULL: they do. */
const char *file_unsafe(const struct file_conn *conn, const struct stat *dir);

/* Makes the lock file, which must not be there yet: its descriptor, taken, or -1 and errno. */
int file_create(struct file_conn *conn, const char *file);

/* The same for the directory, and without a descriptor: 0, or -1 and errno. */
int file_make_directory(const struct file_conn *conn, const char *path);

/* Makes a file of ours alone, under a name that nobody can guess and that no lock has: its descriptor, taken, or -1 and
 * errno. */
int file_make_fresh(struct file_conn *conn, char name[FILE_FRESH_SIZE]);

/* ---- descriptors.c ----------------------------------------------------------------------------------------------- */

/* Enters an open descriptor, as taken, and returns it; -1 (errno is set, the descriptor closed) when there is no room.
 * Hands a negative one back as it is. */
int file_fd_keep(struct file_descriptors *fds, int fd);

/* The entry of a taken descriptor. */
struct file_fd *file_fd_at(struct file_descriptors *fds, int fd);

/* Leaves a taken descriptor to whoever has the handle that this returns, never 0. */
uint64_t file_fd_lend(struct file_descriptors *fds, int fd);

/* The descriptor of a handle, now the caller's alone; -1 when it was taken or closed since. */
int file_fd_take(struct file_descriptors *fds, uint64_t handle);

/* The same for a moment, after which the handle is good again; whoever wants to take it waits meanwhile. */
int file_fd_borrow(struct file_descriptors *fds, uint64_t handle);
void file_fd_return(struct file_descriptors *fds, int fd, uint64_t handle);

/* Whether the handle is good and its descriptor has a seat. */
bool file_fd_seated(struct file_descriptors *fds, uint64_t handle);

/* Ends what a taken descriptor has locked. */
void file_fd_unlock(struct file_descriptors *fds, int fd);

/* Closes a taken descriptor. The locks on it end even where a forked child has a copy. */
void file_fd_close(struct file_descriptors *fds, int fd);

/* Stores the descriptors that are lent, at most `max`, and returns how many there are. */
size_t file_fds_lent(struct file_descriptors *fds, int *out, size_t max);

/* Closes all, and ends their locks where `unlock` is set. Async-signal-safe. */
void file_fds_close(struct file_descriptors *fds, bool unlock);

void file_fds_free(struct file_descriptors *fds);

/* ---- cache.c ----------------------------------------------------------------------------------------------------- */

/* A taken descriptor of the lock file that was put there under this name, and its identity; -1: none. */
int file_cache_take(struct file_conn *conn, const char *file, uint64_t *identity);

/* Keeps a taken descriptor that has nothing locked, or closes it. */
void file_cache_put(struct file_conn *conn, int fd, const char *file, uint64_t identity);

/* Closes all; false when there were none. */
bool file_cache_drop(struct file_conn *conn);

/* ---- byte_locks.c: locks on single bytes ------------------------------------------------------------------------- */

#define FILE_BYTES (INT64_C(1) << 60)
#define FILE_TURN FILE_BYTES                     /* exclusive: held while a reader or a permit is written in */
#define FILE_GATE (FILE_BYTES + 1)               /* exclusive: a writer waits for readers to leave, others stay out */
#define FILE_WAITS (FILE_BYTES + 2)              /* shared: waits to be woken */
#define FILE_LINGERS (FILE_BYTES + 3)            /* exclusive: the holder wants to know who waits */
#define FILE_BREAKS (FILE_BYTES + 4)             /* exclusive: the lock is being broken */
#define FILE_SEATS (INT64_C(1) << 32)            /* how many there are of each of these */
#define FILE_READERS (FILE_BYTES + FILE_SEATS)   /* exclusive, one byte for each reader's seat */
#define FILE_PERMITS (FILE_READERS + FILE_SEATS) /* the same for permits */

/* Locks a byte, shared or exclusively; false (errno is set) when somebody else has it. */
bool file_byte_lock(int fd, bool exclusive, int64_t at);
void file_byte_unlock(int fd, int64_t at, int64_t n);

/* A byte of the range that another descriptor has locked, in whatever way; -1: none. */
int64_t file_byte_locked(int fd, int64_t at, int64_t n);

/* The first such byte. */
int64_t file_byte_locked_first(int fd, int64_t at, int64_t n);

/* ---- seats.c ----------------------------------------------------------------------------------------------------- */

/* Takes one of the first `limit` seats in the range for the descriptor, and notes it: false when there is none, or none
 * was found in a reasonable time among thousands. While the caller has the turn, or the file to itself. */
bool file_seat(struct file_descriptors *fds, int fd, int64_t range, uint32_t limit);

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
/* The same for its fence alone. */
enum file_content file_fence_read(int fd, uint64_t *fence);

/* Overwrites the record in one go: 0, or -1 and errno. The length depends on the name alone. */
int file_record_write(int fd, uint64_t fence, const char *token, const char *name);

/* Whether a file of this size can be one that ends in our record, or in the list of seats behind it. */
bool file_record_fits(const char *name, uint64_t size);

/* The holder of a seat. */
struct file_seat {
    uint32_t limit; /* of the permits; 0: a reader */
    uint64_t fence;
    char token[DLOCK_TOKEN_MAX + 1];
};

/* As file_record_write. */
int file_seat_write(int fd, const char *name, uint32_t seat, const struct file_seat *content);
/* Members that make no sense are 0 or "". */
void file_seat_read(int fd, const char *name, uint32_t seat, struct file_seat *content);

/* ---- identity.c: is the file still the one under its name? ------------------------------------------------------- */

/* A file as it looks without being opened. */
struct file_stat {
    uint64_t identity; /* tells it from every other that exists at the same time */
    uint64_t size;
    uint32_t links;
    uid_t uid;
    gid_t gid;
    bool regular;
};

/* Of the file under a name in the directory `dir`, or of the descriptor `dir` itself when `file` is "": 0, or -1 and
 * errno. */
int file_stat(int dir, const char *file, struct file_stat *st);

/* Whether the claim's descriptor is the file under the name: 1 or 0, or -1 (errno is set) when that cannot be told. */
int file_still_named(const struct file_conn *conn, const struct dlock_claim *claim, const char *file);

/* The same, cheaper, for the descriptor, which the caller has taken. */
int file_check_named(struct file_conn *conn, const struct dlock_claim *claim, int fd, const char *file);

/* ---- acquire.c, claims.c, grant.c -------------------------------------------------------------------------------- */

/* The words of a claim's state. Everything else that belongs to it stands in its descriptor's entry. */
enum file_state {
    FILE_STATE_FD,    /* a handle; 0: none */
    FILE_STATE_FENCE, /* 0: still waiting */
    FILE_STATE_FILE,  /* the identity of the file */
    FILE_STATE_SEEN   /* see file_retry_ms() */
};

dlock_batch file_acquire, file_renew, file_release;

/* Marks that the holder wants to know who waits, if waiters can tell it. */
void file_linger(struct file_conn *conn, int fd);

/* Notes that such a grant has ended, before its descriptor is unlocked. */
void file_linger_end(struct file_conn *conn, int fd);

/* Closes the claim's descriptor, which the caller has taken: it holds nothing and waits for nothing any more. */
void file_forget(struct file_conn *conn, struct dlock_claim *claim, int fd);

/* ---- inotify.c --------------------------------------------------------------------------------------------------- */

enum { FILE_SOON_MS = 10 }; /* for one more look at what may change without an event */

int file_listen(void *c, int *fd, int timeout_ms, struct dlock_error *err);
int file_wake(void *c, struct dlock_wake *out, struct dlock_error *err);

/* Whether inotify wakes this connection, so that its waiters should mark that they wait. */
bool file_has_inotify(const struct file_conn *conn);

/* When a claim that found its file locked should ask again. `seen` is a word of the claim's state, at first 0; `fd` is
 * its descriptor, -1: none. */
int64_t file_retry_ms(struct file_conn *conn, int fd, uint64_t *seen);

/* Wakes the waiters of a file: every connection that watches the directory. False (errno is set) when it could not. */
bool file_wake_others(const struct file_conn *conn, const char *file);

/* Tells the holder who wants to know that somebody waits for the file. */
void file_tell_wanted(int fd);

/* ---- holder.c: who holds a file's lock --------------------------------------------------------------------------- */

/* The flock(2) locks of this machine, as far as /proc/locks shows them to us. */
struct file_locks {
    struct file_lock {
        dev_t dev;
        ino_t ino;
        pid_t pid;
        bool shared;
    } * list; /* sorted by ino */
    size_t n;
};

/* Empty when they cannot be read. Free the list with free(). ENOMEM, or 0. */
int file_locks_read(struct file_locks *locks, struct dlock_error *err);

/* Shows the holders of a lock file, if its lock's name begins with `prefix`. `name` is the lock's; NULL: it was cut.
 * Returns what `each` returned last. */
int file_show(const struct file_conn *conn, const char *file, const char *name, const char *prefix,
              const struct file_locks *locks, dlock_each each, void *arg);

/* The holder of a file's lock, which is not the caller. Where /proc/locks does not list everything,
 * flock(1) may be taken for one of ours. */
enum file_holder {
    FILE_UNKNOWN,
    FILE_OURS,    /* one of ours, exclusively */
    FILE_SHARERS, /* readers or permits of ours, and perhaps `flock -s` */
    FILE_FLOCK    /* flock(1), or another program */
};
enum file_holder file_holder(const struct file_conn *conn, int fd);

/* ---- inspect.c, break.c ------------------------------------------------------------------------------------------ */

int file_inspect(void *c, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int file_list(void *c, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err);
int file_check(void *c, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int file_break(void *c, const char *name, int timeout_ms, struct dlock_error *err);

#endif
