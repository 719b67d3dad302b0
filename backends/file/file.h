/* Locks in files: declarations for all parts of this backend.
 *
 * One lock is one regular file in one directory, locked with flock(2), so that dlock and `flock DIR/NAME command`
 * exclude each other; readers and holders of permits lock it shared. The file outlives its locks, because it contains
 * the fence (record.c). A lock belongs to a descriptor, opened at the first try of a claim and kept until its release,
 * or longer (cache.c). A lock on a file that is no longer the one under its name does not count: the file was unlinked,
 * or the lock was broken, which renames another file over it.
 *
 * Waiters and permits, which flock(2) does not have, are locks on single bytes far behind the end of the file
 * (byte_locks.c). They belong to the same descriptors, so that the kernel ends them together with the process.
 *
 * The connection serves every thread (THREADSAFE). Nothing in it changes after connect, except atomic members, the
 * entry of a descriptor, which belongs to the thread that has taken it, and the members that only the one thread that
 * calls `wake` uses. So there is no mutex, and a forked child finds everything consistent.
 *
 * The files; each calls those below it only:
 *   file
 *   acquire  claims
 *   directory  grant  break  inspect  check
 *   line
 *   cache  seats  identity  replaced  inotify  rights
 *   descriptors  holder  accounts
 *   byte_locks  record  names  errors
 */
#ifndef DLOCK_FILE_H
#define DLOCK_FILE_H

#include <dlock/backend.h>

#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

enum {
    FILE_NAME_SIZE = 256, /* bytes of a file name and of a lock name, with the NUL */
    FILE_FD_PAGES = 2048, /* times 512 is the kernel's default limit of descriptors, fs.nr_open */
    FILE_FDS_PER_PAGE = 512,
    FILE_CACHE_SETS = 16,
    FILE_CACHE_WAYS = 4,
    FILE_MEMBERS = 64 /* users of whom a connection remembers that they are members of its group */
};

/* The byte locks of a descriptor, see byte_locks.c. */
enum file_fd_flags {
    FILE_WAITING = 1,
    FILE_GATED = 2,
    FILE_LINGERING = 4,
    FILE_SEATED = 8,
    FILE_ASKED = 16, /* no byte lock: the claim has asked before */
    FILE_BREAKING = 32,
    FILE_YIELDED = 64 /* no byte lock: the claim has left a turn to others */
};

/* One descriptor. All members but `owner` and `seat` belong to the thread that has taken it. */
struct file_fd {
    atomic_uint_least64_t owner; /* 0: not ours; 1: taken by a thread; else the handle under which it is lent */
    atomic_uint seat;            /* 1 + its place in the file's list of readers or permits; 0: none */
    unsigned flags;              /* enum file_fd_flags */
    int64_t version;             /* time stamp of the directory when the file was found under its name; 0: unknown */
    /* line.c; all but `ticket` and `fence` are kept while the descriptor is open */
    int64_t ticket;    /* FILE_WAITING: the byte that it has locked */
    int64_t line_at;   /* waiters before this byte did not take their turns: nothing is left to them … */
    int64_t passes_ms; /* … until then; 0: to all */
    int64_t passed;    /* FILE_WAITING: becomes line_at with the grant; 0: none */
    uint64_t fence;    /* FILE_YIELDED: the file's at that time */
    int64_t yields_ms; /* FILE_YIELDED: until when */
    unsigned yields;   /* … and how often that was put off, in this turn */
    unsigned turns;    /* grants in a row without a wait, while others waited */
};

/* Every descriptor of a connection, in a table that other threads and forked children can read at any time. */
struct file_descriptors {
    _Atomic(struct file_fd *) pages[FILE_FD_PAGES];
    atomic_uint_least64_t lent; /* serial number of the last handle */
};

/* A place of the cache: the descriptor of a lock file that is not in use. */
struct file_cached {
    atomic_flag busy;          /* set while a thread uses the place; protects the others */
    int fd;                    /* valid if `file` is not "" */
    uint64_t identity;         /* of the file */
    char file[FILE_NAME_SIZE]; /* its name; "": the place is empty */
};

/* A directory, to be recognized by. */
struct file_place {
    dev_t dev;
    ino_t ino;
};

enum file_listening {
    FILE_DEAF,    /* there is no listener: waiters poll */
    FILE_INOTIFY, /* inotify tells when to retry */
    FILE_POLLS    /* there is a listener, but no inotify: waiters poll */
};

struct file_conn {
    const struct dlock_peer *peer;
    int dir;                /* the directory, opened with O_PATH */
    char *path;             /* of the directory, absolute; owned */
    bool relative;          /* the URI's path is relative */
    struct file_place root; /* of this process when it connected */
    struct file_place here; /* its working directory then */
    size_t file_name_size;  /* longest file name of the file system, with the NUL; at most FILE_NAME_SIZE */
    bool dir_dated;         /* every change of a name in the directory changes the directory's time stamp */
    bool locks_listed;      /* /proc/locks shows every lock in this directory, with the numbers of stat(2) */
    mode_t mode;            /* of the lock files that we make */
    gid_t group;            /* of the lock files that we make, or FILE_ANY_GROUP */
    uid_t uid;              /* effective user of this process when it connected */
    rlim_t size_limit;      /* of a file that this process writes to (RLIMIT_FSIZE), when it connected */
    atomic_uint_least64_t members[FILE_MEMBERS]; /* 1 + a user's number; 0: none, and none after it */
    atomic_llong safe_s;  /* file_second() in which the directory was last found safe; 0: never */
    atomic_llong leads_s; /* file_second() in which the path last led to the directory; 0: never */
    struct file_descriptors fds;
    struct file_cached cache[FILE_CACHE_SETS][FILE_CACHE_WAYS];
    atomic_uint lingering; /* number of grants with FILE_LINGERING */
    /* inotify.c */
    int wake_fd;
    atomic_int listening;         /* enum file_listening */
    atomic_uint_least64_t events; /* 1 + how often events were read from wake_fd; 0: it is not open yet */
    size_t unread, end;           /* the unread events in `buffer` */
    _Alignas(struct inotify_event) char buffer[4096];
    char woken[FILE_NAME_SIZE]; /* the lock's name in the last wake-up */
};

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* Sets `err` to "<what> <path>[/<file>]: <the errno's text>". `file` may be NULL. Returns the error code for
 * `errnum`. */
int file_fail(struct dlock_error *err, int errnum, const char *what, const char *path, const char *file);

/* Returns the time of CLOCK_BOOTTIME, for deadlines. */
static inline int64_t file_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Returns this machine's wall clock in microseconds, which fences follow. */
static inline int64_t file_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Returns a number for the current second, never 0, for checks made once a second. */
static inline long long file_second(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec + 1LL;
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

/* Returns 1 if this owner and group of a lock file are trusted not to replace lock files, 0 if not, -1 with errno if
 * that cannot be told. */
int file_trusts(struct file_conn *conn, uid_t uid, gid_t gid);

/* The same for the owner of a symbolic link: an untrusted one could point it elsewhere. */
int file_trusts_link(struct file_conn *conn, uid_t uid);

/* Returns 1 if no stranger can take away locks in the directory `fd`; 0 if one can, with *why, which also says what to
 * do about that; -1 with errno if that cannot be told. */
int file_is_safe(struct file_conn *conn, int fd, const struct stat *dir, const char **why);

/* True if this process may make files in the directory, as every acquire may have to; else false, with errno. */
bool file_may_create(const struct file_conn *conn);

/* Makes the lock file, which must not exist yet. Returns its descriptor, taken, or -1 and errno: ENOENT only if the
 * directory is gone or its file system creates no files. */
int file_create(struct file_conn *conn, const char *file);

/* Makes the directory. Returns 0, or -1 and errno. */
int file_make_directory(const struct file_conn *conn, const char *path);

/* Makes a file that only this user may open, under a random name that no lock can have. Returns its descriptor, taken,
 * or -1 and errno. */
int file_make_fresh(struct file_conn *conn, char name[FILE_FRESH_SIZE]);

/* ---- accounts.c: the system's users and groups ------------------------------------------------------------------- */

/* Each returns 1 for yes, 0 for no, or -1 and errno if the system's lists cannot be read. Each may block for as long as
 * a server that has these lists does not answer. */
int file_group_id(const char *name, gid_t *gid); /* is there such a group? */
int file_home_of(uid_t uid, char **home);        /* has the user a home directory? *home: the caller's */
int file_is_member(uid_t uid, gid_t group);

/* ---- descriptors.c ----------------------------------------------------------------------------------------------- */

/* Enters an open descriptor into the table, as taken by the caller, and returns it. Returns -1 with errno, and closes
 * the descriptor, if there is no room. Returns a negative `fd` unchanged. */
int file_fd_keep(struct file_descriptors *fds, int fd);

/* Returns the entry of a taken descriptor. */
struct file_fd *file_fd_at(struct file_descriptors *fds, int fd);

/* Gives up a taken descriptor. Returns a handle, never 0, with which it can be taken again. */
uint64_t file_fd_lend(struct file_descriptors *fds, int fd);

/* Takes the descriptor of a handle for the caller alone, and returns it; -1 if it was taken or closed since. */
int file_fd_take(struct file_descriptors *fds, uint64_t handle);

/* As file_fd_take, but only until file_fd_return(), which makes the handle valid again; file_fd_take() waits for
 * that. */
int file_fd_borrow(struct file_descriptors *fds, uint64_t handle);
void file_fd_return(struct file_descriptors *fds, int fd, uint64_t handle);

/* True if the handle is valid and its descriptor has a seat. */
bool file_fd_seated(struct file_descriptors *fds, uint64_t handle);

/* Ends all locks of a taken descriptor. */
void file_fd_unlock(struct file_descriptors *fds, int fd);

/* Unlocks and closes a taken descriptor. Its locks end even if a forked child has a copy of it. */
void file_fd_close(struct file_descriptors *fds, int fd);

/* Stores the descriptors that are lent, at most `max`. Returns how many are lent. */
size_t file_fds_lent(struct file_descriptors *fds, int *out, size_t max);

/* Closes all descriptors; ends their locks first if `unlock` is set. Async-signal-safe. */
void file_fds_close(struct file_descriptors *fds, bool unlock);

void file_fds_free(struct file_descriptors *fds);

/* ---- cache.c ----------------------------------------------------------------------------------------------------- */

/* Returns a descriptor, taken, that was put into the cache under this file name, and the file's identity; -1: none. */
int file_cache_take(struct file_conn *conn, const char *file, uint64_t *identity);

/* Puts a taken descriptor without locks into the cache, or closes it. */
void file_cache_put(struct file_conn *conn, int fd, const char *file, uint64_t identity);

/* Closes all descriptors in the cache. False if there were none. */
bool file_cache_drop(struct file_conn *conn);

/* ---- byte_locks.c: locks on single bytes ------------------------------------------------------------------------- */

#define FILE_BYTES (INT64_C(1) << 60)
#define FILE_TURN FILE_BYTES                     /* exclusive: a reader or a holder of a permit takes its seat */
#define FILE_GATE (FILE_BYTES + 1)               /* exclusive: a writer waits for readers; new readers stay out */
#define FILE_LINGERS (FILE_BYTES + 3)            /* exclusive: the holder wants to be notified of waiters */
#define FILE_BREAKS (FILE_BYTES + 4)             /* exclusive: the lock is being broken */
#define FILE_SEATS (INT64_C(1) << 32)            /* number of bytes in each of the two ranges below */
#define FILE_READERS (FILE_BYTES + FILE_SEATS)   /* exclusive, one byte for each reader's seat */
#define FILE_PERMITS (FILE_READERS + FILE_SEATS) /* exclusive, one byte for each permit's seat */
#define FILE_LINE (INT64_C(1) << 61)             /* exclusive, one byte for each claim that waits to be woken */
#define FILE_LINE_SIZE FILE_LINE

/* Locks a byte, shared or exclusively, without waiting. False, with errno, if another descriptor has locked it. */
bool file_byte_lock(int fd, bool exclusive, int64_t at);
void file_byte_unlock(int fd, int64_t at, int64_t n);

/* Returns a byte of the range that another descriptor has locked, shared or exclusively; -1: none. */
int64_t file_byte_locked(int fd, int64_t at, int64_t n);

/* Returns the first such byte, and in *end the first byte behind that lock, which another program may have set on many
 * bytes; -1: none. */
int64_t file_byte_locked_first(int fd, int64_t at, int64_t n, int64_t *end);

/* ---- seats.c ----------------------------------------------------------------------------------------------------- */

/* Takes one of the first `limit` seats in the range for the descriptor, and notes it in the entry. False if none is
 * free, or none was found in a reasonable time among thousands. The caller has FILE_TURN or the exclusive flock(2). */
bool file_seat(struct file_descriptors *fds, int fd, int64_t range, uint32_t limit);

/* ---- line.c ------------------------------------------------------------------------------------------------------ */

/* True if another descriptor of the file waits. */
bool file_line_waits(int fd);

/* Makes the claim of a taken descriptor wait, behind all that wait already. False if it does, or if inotify does not
 * wake this connection. */
bool file_line_join(struct file_conn *conn, int fd);

/* Ends the wait of a claim that was granted. */
void file_line_leave(struct file_conn *conn, int fd);

/* True if an exclusive claim has to leave this turn to another waiter, and retry soon. `seen` is file_retry_ms()'s. */
bool file_line_yields(struct file_conn *conn, int fd, uint64_t seen);

/* Notes a release, and whether others waited for it. */
void file_line_released(struct file_fd *entry, bool waits);

/* ---- names.c: lock names and file names -------------------------------------------------------------------------- */

/* Writes the name of a lock's file: the lock's own name wherever possible, see names.c. */
void file_name_encode(const struct file_conn *conn, const char *name, char file[FILE_NAME_SIZE]);

/* Writes the name of the lock whose file this is. False if the name was cut (*cut is true), or if it is not the name of
 * a lock file (*cut is false). `cut` may be NULL. */
bool file_name_decode(const struct file_conn *conn, const char *file, char name[FILE_NAME_SIZE], bool *cut);

/* ---- record.c: the contents of a lock file ----------------------------------------------------------------------- */

struct file_record {
    uint64_t fence;                  /* of the last grant; 0: not known */
    char token[DLOCK_TOKEN_MAX + 1]; /* of the present grant; "" after its release */
    char name[FILE_NAME_SIZE];       /* of the lock; "": not known */
};

enum file_content {
    FILE_UNREADABLE = -1, /* errno is set */
    FILE_BLANK,           /* empty, or blanks only: may be overwritten */
    FILE_RECORD,          /* a record of dlock, perhaps damaged: invalid members are 0 or "" */
    FILE_FOREIGN          /* written by another program: must not be changed */
};

enum file_content file_record_read(int fd, struct file_record *record);
/* Reads the record's fence only. */
enum file_content file_fence_read(int fd, uint64_t *fence);

/* Overwrites the record with a single write. Its length depends on the name alone. Returns 0, or -1 and errno. */
int file_record_write(const struct file_conn *conn, int fd, uint64_t fence, const char *token, const char *name);

/* True if a file of this size can consist of the name's record and a list of seats. */
bool file_record_fits(const char *name, uint64_t size);

/* The holder of a seat. */
struct file_seat {
    uint32_t limit; /* of the permits; 0: a reader */
    uint64_t fence;
    char token[DLOCK_TOKEN_MAX + 1];
};

/* Writes a seat of the list. Returns 0, or -1 and errno. */
int file_seat_write(const struct file_conn *conn, int fd, const char *name, uint32_t seat,
                    const struct file_seat *content);
/* Reads a seat of the list. Invalid members are 0 or "". */
void file_seat_read(int fd, const char *name, uint32_t seat, struct file_seat *content);

/* ---- identity.c: is the file still the one under its name? ------------------------------------------------------- */

/* The result of file_stat(). */
struct file_stat {
    uint64_t identity; /* distinguishes the file from every other that exists at the same time */
    uint64_t size;
    uint32_t links;
    uid_t uid;
    gid_t gid;
    bool regular;
};

/* Reads the attributes of `file` in the directory `dir`, or of the descriptor `dir` itself if `file` is "". Returns 0,
 * or -1 and errno. */
int file_stat(int dir, const char *file, struct file_stat *st);

/* Returns 1 if the claim's file is the one under the name, 0 if not, -1 with errno if that cannot be told. */
int file_still_named(const struct file_conn *conn, const struct dlock_claim *claim, const char *file);

/* As file_still_named, but cheaper. The caller has taken the claim's descriptor `fd`. */
int file_check_named(struct file_conn *conn, const struct dlock_claim *claim, int fd, const char *file);

/* ---- replaced.c: is the directory still the one under its path? -------------------------------------------------- */

/* Notes what the path depends on. To be called when the directory is opened. */
void file_path_note(struct file_conn *conn, bool relative);

/* Returns what became of the lock directory if its path no longer leads to it; NULL if it does, or if that cannot be
 * told. */
const char *file_replaced(const struct file_conn *conn);

/* As file_replaced, but looks at most once a second. */
const char *file_replaced_lately(struct file_conn *conn);

/* False if reconnecting would not follow the same path, because it is relative to a directory that this process has
 * left. */
bool file_path_stays(const struct file_conn *conn);

/* ---- acquire.c, claims.c, grant.c -------------------------------------------------------------------------------- */

/* The words of a claim's state. All its other data is in the entry of its descriptor. */
enum file_state {
    FILE_STATE_FD,    /* handle of the descriptor; 0: none */
    FILE_STATE_FENCE, /* fence of the grant; 0: not granted */
    FILE_STATE_FILE,  /* identity of the file */
    FILE_STATE_SEEN   /* see file_retry_ms() */
};

dlock_batch file_acquire, file_renew, file_release;

/* Locks FILE_LINGERS for a grant that may linger, so that waiters tell this process; does nothing without inotify. */
void file_linger(struct file_conn *conn, int fd);

/* Notes the end of such a grant; to be called before its descriptor is unlocked. */
void file_linger_end(struct file_conn *conn, int fd);

/* Closes the claim's descriptor, which the caller has taken, and clears the claim's state. */
void file_forget(struct file_conn *conn, struct dlock_claim *claim, int fd);

/* Does so for all claims, wherever their descriptors are, and sets their results. */
void file_forget_all(struct file_conn *conn, struct dlock_claim *const *claims, size_t n, int result);

/* ---- inotify.c --------------------------------------------------------------------------------------------------- */

enum { FILE_SOON_MS = 10 }; /* first pause before polling again for changes that make no event */

int file_listen(void *c, int *fd, int timeout_ms, struct dlock_error *err);
int file_wake(void *c, struct dlock_wake *out, struct dlock_error *err);

/* True if inotify wakes this connection, so that its waiters have to join the line. */
bool file_has_inotify(const struct file_conn *conn);

/* True if there was an event since file_retry_ms() wrote `seen`, even an unread one: a scheduled look may come just
 * after a release. */
bool file_was_woken(const struct file_conn *conn, uint64_t seen);

/* Returns when a claim that found its file locked should retry, in ms; -1: the core polls. `seen` is a word of the
 * claim's state, 0 at first; `fd` is its descriptor, -1: none. */
int64_t file_retry_ms(struct file_conn *conn, int fd, uint64_t *seen);

/* Wakes the waiters of a file: every connection that watches the directory. False, with errno, on failure. */
bool file_wake_others(const struct file_conn *conn, const char *file);

/* Tells a holder with FILE_LINGERS that the lock is wanted. */
void file_tell_wanted(int fd);

/* ---- holder.c: the holder of a file's lock ----------------------------------------------------------------------- */

/* The locks of this machine that /proc/locks shows to this process. */
struct file_locks {
    struct file_lock {
        dev_t dev;
        ino_t ino;
        pid_t pid;
        bool shared;
        bool bytes; /* on bytes of the file, not of flock(2) */
    } * list;       /* sorted by ino; each holder of a file once */
    size_t n;
};

/* Reads /proc/locks; the list is empty if this system does not show it. The caller frees the list with free(). Returns 0
 * or, if it cannot be read now, the code of file_fail(). */
int file_locks_read(struct file_locks *locks, struct dlock_error *err);
/* The same for one file: one reading may miss a lock, so it reads several times, and keeps the latest of the readings
 * with the most locks of the file. */
int file_locks_read_of(const struct stat *st, struct file_locks *best, struct dlock_error *err);
/* The same for all files: the list has each lock that any of several readings has shown. */
int file_locks_read_all(struct file_locks *all, struct dlock_error *err);

/* True if the list has a lock, of any kind, of a file with this number. */
bool file_locks_have(const struct file_locks *locks, ino_t ino);

/* Where holders are looked for, whom they are shown to, and until when. */
struct file_viewer {
    const struct file_locks *locks;
    dlock_each each;
    void *arg;
    int64_t deadline_ms; /* of file_now_ms() */
};

/* Reads a lock file's status. Returns 1, 0 (there is no such file) or the code of file_fail(). */
int file_find(const struct file_conn *conn, const char *file, struct stat *st, struct dlock_error *err);

/* Calls `each` for the holders of a lock file, if the lock's name begins with `prefix`. `name` is that name; NULL: it
 * was cut in the file's name. Returns 0, 1 if `each` wants no more, EUNAVAILABLE if there are too many locks to be
 * looked at before the deadline, or the code of file_fail() if the file cannot be looked at now. */
int file_show(const struct file_conn *conn, const char *file, const char *name, const char *prefix,
              const struct file_viewer *viewer, struct dlock_error *err);

/* The kind of holder of a file's lock, which is not the caller. Where /proc/locks does not list everything, flock(1)
 * may be mistaken for dlock. */
enum file_holder {
    FILE_UNKNOWN,
    FILE_OURS,    /* an exclusive lock of dlock */
    FILE_SHARERS, /* readers or permits of dlock, and perhaps `flock -s` */
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
