/* dlock: one lock API for any coordination server.
 *
 * SPDX-License-Identifier: MIT
 *
 * A program opens a client with a connection string, makes a lock object for a name and acquires it:
 *
 *     dlock_client *client; dlock_lock *lock; struct dlock_error err;
 *     if (dlock_open("redis://localhost", NULL, &client, &err) != 0) die(err.message);
 *     if (dlock_new(client, "nightly-report", NULL, &lock, &err) != 0) die(err.message);
 *     if (dlock_acquire(lock, 5000, &err) == 0) { work(); dlock_release(lock, NULL); }
 *     dlock_free(lock); dlock_close(client);
 *
 * Conventions, true of every declaration below unless it says otherwise:
 *   - Functions return 0 or a negative DLOCK_E… code. On failure outputs are untouched and `err`, where it is not NULL,
 *     says what is wrong and what to do. On success `err` is untouched.
 *   - Pointer-to-pointer outputs belong to the caller, who ends them with the function that the comment names.
 *     Everything else stays the library's. Inputs are copied where they are needed later.
 *   - Every function may be called from any thread at any time. None is async-signal-safe.
 *   - `_ms` is milliseconds. A timeout is relative: 0 tries once, DLOCK_FOREVER (or any negative number) waits for
 *     ever. A call with a timeout ends at most 100 ms after it. A call without one is bounded by the URI's `timeout`
 *     key.
 *   - After fork() every handle answers DLOCK_EFORKED in the child; exec() there is always safe.
 *   - The library never prints, installs no signal handler and keeps no last-error state.
 */
#ifndef DLOCK_DLOCK_H
#define DLOCK_DLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, by numbers and as text. The library's is dlock_version(). */
#define DLOCK_VERSION_MAJOR 0
#define DLOCK_VERSION_MINOR 1
#define DLOCK_VERSION_PATCH 0
#define DLOCK_VERSION "0.1.0"

#if defined(__GNUC__)
/* What a library shows to others, and what the compiler checks as a format of printf. */
#define DLOCK_EXPORT __attribute__((visibility("default")))
#define DLOCK_PRINTF(fmt_at, args_at) __attribute__((__format__(__printf__, fmt_at, args_at)))
#else
#define DLOCK_EXPORT
#define DLOCK_PRINTF(fmt_at, args_at)
#endif

/* As a timeout: wait for ever. As a duration the library reports: it does not end by itself. */
#define DLOCK_FOREVER INT64_MAX

/* Longest lock name, in bytes; a name has at least 1 and neither NUL nor control characters (below 0x20, and 0x7f). */
#define DLOCK_NAME_MAX 200
/* Most permits of a name: dlock_options.limit. The same for every backend. */
#define DLOCK_LIMIT_MAX 2147483647
/* Shortest and longest lease, in milliseconds. */
#define DLOCK_LEASE_MIN_MS 100
#define DLOCK_LEASE_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)
/* Longest token, in bytes, without the terminating NUL. Tokens consist of [A-Za-z0-9._:@-]. */
#define DLOCK_TOKEN_MAX 127
/* Longest ticket of dlock_export(), in bytes, without the terminating NUL. */
#define DLOCK_TICKET_MAX 1279

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Every error code: X(name, number, text, what the caller should do). The enum, dlock_strerror() and the documentation
 * all come from this list. Numbers never change. */
#define DLOCK_ERRORS(X)                                                                                          \
    X(OK, 0, "success", "nothing")                                                                               \
    X(EBUSY, -1, "somebody else holds the lock", "try later, or acquire with a timeout")                         \
    X(ETIMEDOUT, -2, "the lock was not free in time", "try later, or wait longer")                               \
    X(ECANCELED, -3, "the wait was cancelled, or the client was closed", "stop")                                 \
    X(ELOST, -4, "the lock was lost before it was released", "treat the protected work as possibly overlapped")  \
    X(EOWNER, -5, "the caller does not hold the lock", "fix the caller: acquire and release must pair up")       \
    X(EDEADLK, -6, "the wait could never end",                                                                   \
      "fix the caller: do not upgrade, nor acquire a non-reentrant lock twice")                                  \
    X(EUNAVAILABLE, -7, "the server cannot be reached or did not answer in time", "try later; check the server") \
    X(EAUTH, -8, "the server refused the credentials or the rights", "fix the URI or the server's access rules") \
    X(EINVAL, -9, "an argument is invalid", "fix the caller; the message names the argument")                    \
    X(ENOMEM, -10, "out of memory, threads, descriptors or disk",                                                \
      "free some, or raise the limit that the message names")                                                    \
    X(ENOTSUP, -11, "this backend cannot do that", "use another backend, or do without")                         \
    X(EPROTO, -12, "the server sent an answer that makes no sense",                                              \
      "check that the URI names the right kind of server")                                                       \
    X(ENOBACKEND, -13, "no backend for this URI scheme", "install the backend, or set DLOCK_PLUGIN_PATH")        \
    X(EABI, -14, "the backend module does not fit this library", "rebuild or replace the module")                \
    X(EFORKED, -15, "the handle was made before fork()", "open a client in the child")                           \
    X(ENOTREADY, -16, "the server was started lately and grants nothing yet", "wait; the message says for how long")

/* DLOCK_OK, DLOCK_EBUSY and so on. */
enum dlock_code {
#define DLOCK_X(name, number, text, action) DLOCK_##name = number,
    DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
};

/* Tells what went wrong. `code` is the function's return value; `message` is one line for a person, without a newline,
 * and never contains a password. The struct never grows, so it may stand on any stack. */
struct dlock_error {
    int code;          /* DLOCK_E… */
    char message[508]; /* what is wrong and what to do */
};

/* A short, static, English text for `code` ("unknown error" for others). Never NULL. Never blocks. */
DLOCK_EXPORT const char *dlock_strerror(int code);

/* The library's version, as DLOCK_VERSION was when it was built. Static. Never blocks. */
DLOCK_EXPORT const char *dlock_version(void);

/* ---- vocabulary -------------------------------------------------------------------------------------------------- */

/* How many hold a name at the same time. */
enum dlock_mode {
    DLOCK_EXCLUSIVE = 0, /* one holder */
    DLOCK_SHARED = 1, /* many readers, or one exclusive holder. An owner that holds it exclusively re-enters, and is a
                       * reader when it has released all that it acquired exclusively; one that holds it shared cannot
                       * have it exclusively (EDEADLK) */
    DLOCK_PERMIT = 2  /* up to dlock_options.limit holders; everybody gives the same limit (EINVAL). Not re-entrant: a
                       * thread that acquires again has two, and gives the younger one back first */
};

/* Whose a grant is: who may acquire it again, and release it. */
enum dlock_owner {
    DLOCK_OWNER_THREAD = 0, /* the calling thread owns, across handles of one name in one client; re-entry counts */
    DLOCK_OWNER_HANDLE = 1  /* the handle owns: any thread may release, one acquisition at a time (event loops) */
};

/* dlock_options.flags */
enum dlock_flag {
    DLOCK_FIXED_LEASE = 1, /* never renew: the grant ends with its lease, unless dlock_extend() sets that anew */
    DLOCK_NO_REENTRY = 2   /* acquiring again by the same owner is DLOCK_EDEADLK */
};

/* dlock_client_options.flags */
enum dlock_client_flag {
    DLOCK_CLIENT_LAZY = 1,       /* dlock_open does not connect; the first operation does */
    DLOCK_CLIENT_MANUAL = 2,     /* callbacks run only inside dlock_client_dispatch */
    DLOCK_CLIENT_GUARDIAN = 4,   /* as `guardian=on` in the URI; `guardian=off` there wins */
    DLOCK_CLIENT_SPARE_GROUP = 8 /* the guardian kills the group of dlock_client_guard() only when this process is gone,
                                  * not when a grant ends: the group is told in another way, or may go on */
};

/* How bad it is what dlock_client_options.log is told. */
enum dlock_log_level { DLOCK_LOG_ERROR = 0, DLOCK_LOG_WARN = 1, DLOCK_LOG_INFO = 2, DLOCK_LOG_DEBUG = 3 };

/* The capabilities of a backend: X(name, bit, word, what it means). */
#define DLOCK_CAPS(X)                                                                            \
    X(FENCE, 0, "fence", "fences keep growing across a restart of the server")                   \
    X(QUEUE, 1, "queue", "waiters are served in order of arrival")                               \
    X(WAKE, 2, "wake", "the server tells waiters of their turn; others are polled")              \
    X(SHARED, 3, "shared", "DLOCK_SHARED and dlock_downgrade")                                   \
    X(PERMIT, 4, "permit", "DLOCK_PERMIT")                                                       \
    X(INSPECT, 5, "inspect", "dlock_inspect")                                                    \
    X(LIST, 6, "list", "dlock_list")                                                             \
    X(BREAK, 7, "break", "dlock_break")                                                          \
    X(EXPORT, 8, "export", "dlock_export and dlock_import")                                      \
    X(SESSION, 9, "session", "a grant lives and dies with the connection that made it")          \
    X(THREADSAFE, 10, "threadsafe", "one connection serves every thread")                        \
    X(PENDING, 11, "pending", "a waiting acquire is one blocking request on its own connection") \
    X(VOLATILE, 12, "volatile", "a restart of the server may forget grants; quarantine applies") \
    X(LOCAL, 13, "local", "there is no server: grants exclude processes of this machine only")   \
    X(WANTED, 14, "wanted", "a lingering grant is told at once that another client asks")        \
    X(PRIVATE, 15, "private", "there is no server: grants exclude threads of one process only")  \
    X(FLOOR, 16, "floor", "fences can be raised, as a member of a quorum has to")

/* DLOCK_CAP_FENCE, DLOCK_CAP_QUEUE and so on: bits of dlock_backend_info.caps. */
enum dlock_cap {
#define DLOCK_X(name, bit, word, meaning) DLOCK_CAP_##name = 1 << bit,
    DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
};

/* A client of one server, and a handle for one name: what they are is the library's. */
typedef struct dlock_client dlock_client;
typedef struct dlock_lock dlock_lock;

/* One holder of a name, as the server reports it. Valid, with its strings, only inside the callback that gets it. */
struct dlock_info {
    size_t size;          /* sizeof(struct dlock_info) in the library that fills it */
    const char *name;     /* without the client's `prefix` */
    const char *token;    /* whatever names the holder there; "" when the server does not say */
    enum dlock_mode mode; /* how it is held */
    uint32_t waiters;     /* how many are queued; 0 where the server keeps no queue */
    uint32_t limit;       /* permits: how many there are; 1 otherwise */
    uint64_t fence;       /* 0 when unknown */
    int64_t remaining_ms; /* of the lease; -1 unknown, DLOCK_FOREVER when it ends with its holder */
};

/* A backend as this process sees it. Everything is static for the life of the process. */
struct dlock_backend_info {
    const char *name;           /* "redis" */
    const char *const *schemes; /* NULL-terminated; NULL where the module could not be loaded */
    uint32_t caps;              /* DLOCK_CAP_… bits */
    const char *path;           /* the module's file; NULL when built in or registered */
    const char *error;          /* why the module could not be loaded; NULL when it was */
    const char *schema;         /* what an administrator has to run on the server first; NULL: nothing */
};

/* What dlock_check() thinks of a setting. */
enum dlock_health {
    DLOCK_FINE = 0, /* as it should be */
    DLOCK_WEAK = 1  /* the lock works, and promises less than it could */
};

/* One thing that dlock_check() looked at. Valid, with its strings, only inside the callback that gets it. */
struct dlock_finding {
    size_t size;              /* sizeof(struct dlock_finding) in the library that fills it */
    enum dlock_health health; /* what it does to the lock */
    const char *what;         /* one line: the setting and its value */
    const char *advice;       /* one line: what it weakens and what to set instead; NULL when fine */
};

/* Tells the application that something ended: `err` is NULL on success. Runs on the client's worker thread. It may call
 * the library, but must not block for long, and must not close the client. `err` is valid only inside the call. */
typedef void (*dlock_callback)(dlock_lock *lock, const struct dlock_error *err, void *arg);

/* Gets one holder of a walk; returns 0 to go on and anything else to end the walk (which then succeeds). It runs in the
 * calling thread and must not call the library with the same client. */
typedef int (*dlock_each)(const struct dlock_info *info, void *arg);

/* Gets one finding of dlock_check(); returns 0 to go on and anything else to end the walk (which then succeeds). It
 * must not call the library with the same client. */
typedef int (*dlock_each_finding)(const struct dlock_finding *finding, void *arg);

/* Gets one backend of dlock_backends(); returns 0 to go on and anything else to end the walk. */
typedef int (*dlock_each_backend)(const struct dlock_backend_info *info, void *arg);

/* What dlock_open() takes beside the URI. */
struct dlock_client_options {
    size_t size;    /* sizeof(struct dlock_client_options) */
    uint32_t flags; /* DLOCK_CLIENT_… */
    void (*log)(int level, const char *message,
                void *arg); /* any thread, one line, must not call the library; NULL: none */
    void *log_arg;          /* what `log` gets as its last argument */
};
/* Its members as they are when nothing else is said. */
#define DLOCK_CLIENT_OPTIONS_INIT \
    { sizeof(struct dlock_client_options), 0, NULL, NULL }

/* How a name is to be held. */
struct dlock_options {
    size_t size;          /* sizeof(struct dlock_options); non-zero bytes past the size the library knows are EINVAL */
    enum dlock_mode mode; /* default DLOCK_EXCLUSIVE */
    enum dlock_owner owner; /* default DLOCK_OWNER_THREAD */
    uint32_t limit;         /* permits: how many may hold at once, 1 to DLOCK_LIMIT_MAX; 0 otherwise */
    uint32_t flags;         /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    int64_t lease_ms;       /* 0: the URI's `lease` (default 10 s); else DLOCK_LEASE_MIN_MS to _MAX_MS, and not
                             * longer than a quarantine */
    dlock_callback on_lost; /* once per lost grant, before anyone else can be granted it, except where the server took
                             * it away (dlock_break) or forgot it: then at the next renewal. The library lets go
                             * of a lost grant once it has returned, or has itself released the handle: do that first
                             * to take the lock anew in there. Not called for a loss that a release is the first to
                             * find, which then answers ELOST. err->code is DLOCK_ELOST */
    void *on_lost_arg;      /* what `on_lost` gets as its last argument */
};
/* Its members as they are when nothing else is said. */
#define DLOCK_OPTIONS_INIT \
    { sizeof(struct dlock_options), DLOCK_EXCLUSIVE, DLOCK_OWNER_THREAD, 0, 0, 0, NULL, NULL }

/* The buckets of dlock_stats.wait_counts. */
#define DLOCK_WAIT_BUCKETS 24
/* The longest wait that falls into bucket i, which is none of the last (that has all longer ones): 0.1 ms doubled i
 * times, up to 7 minutes. In seconds, 0.0001, 0.0002, 0.0004 …, the numbers have few digits: they can be the bounds of a
 * Prometheus histogram, whose buckets are the sums of all up to here. */
#define DLOCK_WAIT_BOUND_US(i) (INT64_C(100) << (i))

/* What a client has done since dlock_open(). All numbers but `waiting` only grow. */
struct dlock_stats {
    size_t size;               /* sizeof(struct dlock_stats), set by the caller */
    uint64_t grants;           /* acquisitions that an owner was told of: by any function that acquires, each lock of
                                * dlock_acquire_all, dlock_import. Re-entries are none */
    uint64_t local_grants;     /* … of these, those for which the server was asked for no new grant: another thread or
                                * handle of this client handed it over, it lingered here, or it was imported */
    uint64_t reentries;        /* acquisitions by an owner that held the name already */
    uint64_t losses;           /* grants that ended before their release, each once, whether on_lost or the release told
                                * of it. One that nobody had been told of, or that only lingered, is none; nor is what a
                                * closed client gives back */
    uint64_t renewals;         /* grants that the server has confirmed anew, each one of a request about many: in the
                                * background, by dlock_extend and dlock_downgrade, and before some hand-overs */
    uint64_t renewal_failures; /* … whose renewal was refused, or not answered in time. It is tried again */
    uint64_t reconnects;       /* connections opened in place of one that broke, or was closed since it kept silent */
    uint64_t waiting;          /* waits in progress, now */
    uint64_t waits;            /* waits that have ended, by a grant or without. An acquire with a timeout is one if its
                                * first question did not settle it: somebody else held the name or stood in line, here or
                                * at the server, that granted nothing yet, or was away. A try (timeout 0) is none, nor is
                                * a lock that comes with the first request of a dlock_acquire_all */
    uint64_t wait_us;          /* how long these took together, each from the call that acquires to its end */
    uint64_t wait_counts[DLOCK_WAIT_BUCKETS]; /* how many took so long: see DLOCK_WAIT_BOUND_US. Their sum is `waits` */
};
/* What dlock_client_stats() fills. */
#define DLOCK_STATS_INIT                                            \
    {                                                               \
        sizeof(struct dlock_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { \
            0                                                       \
        }                                                           \
    }

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* Opens a client of the server that `uri` names and stores it in *client; end it with dlock_close().
 * `options` may be NULL. Connects once, so that a wrong address or password shows here, unless DLOCK_CLIENT_LAZY is
 * set; later outages are ridden out until each call's own deadline. Blocks up to the URI's `timeout`. Errors: EINVAL
 * (the URI, a key of it or a flag that nobody knows; the message names the part), ENOBACKEND, EABI, EAUTH,
 * EUNAVAILABLE, EPROTO, ENOTSUP (what the URI asks for, or the server as it is set up, is not supported), ENOMEM. */
DLOCK_EXPORT int dlock_open(const char *uri, const struct dlock_client_options *options, dlock_client **client,
                            struct dlock_error *err);

/* Closes the client: waits in progress end with ECANCELED, held locks are released, callbacks stop, and every later
 * call on its locks answers ECANCELED. Blocks up to the URI's `timeout`, plus the time a running callback takes. Lock
 * handles stay valid and are freed by their owner, before or after. Call it once, not from a callback. NULL is allowed.
 * In a forked child it returns at once and leaves the parent's memory alone. */
DLOCK_EXPORT void dlock_close(dlock_client *client);

/* MANUAL clients: a descriptor that polls readable when dlock_client_dispatch() has something to do. It belongs to the
 * client. Never blocks. Errors: ENOTSUP (not a MANUAL client), EFORKED. */
DLOCK_EXPORT int dlock_client_fd(dlock_client *client);

/* MANUAL clients: runs the callbacks that are due, in the calling thread, and returns how many ran. Does not block
 * beyond what they do. Errors: ENOTSUP (not a MANUAL client), EFORKED. */
DLOCK_EXPORT int dlock_client_dispatch(dlock_client *client);

/* For a client with a guardian (the URI's `guardian=on`): the work that its grants protect is done by the process group
 * `group`; 0: no longer. The guardian then kills that group (SIGKILL) when this process is gone, and releases only once
 * nothing of it runs; and, unless the client has DLOCK_CLIENT_SPARE_GROUP, it kills it before the first grant ends when
 * nobody here renews it, because this process is stopped or hangs. Processes that have left the group go their own way.
 * Where the kernel keeps the locks (file:), this is about the grants that are held at the time of the call. Set it
 * before the group begins to work, take it back before its number may be another's: before its first process is waited
 * for. Blocks while a guardian is started. Errors: ELOST (taken back, and the guardian has killed it before, since this
 * process lives but did not renew in time), ENOTSUP (no guardian; a backend whose grants it cannot keep), EINVAL (a
 * group that includes this process), ENOMEM, EUNAVAILABLE (the guardian cannot be started), ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_client_guard(dlock_client *client, int group, struct dlock_error *err);

/* The backend that serves this client. Static; never NULL; never blocks. */
DLOCK_EXPORT const struct dlock_backend_info *dlock_client_backend(dlock_client *client);

/* For how long the client's server grants nothing after its start (ENOTREADY), which is also the longest lease that it
 * is asked for: the URI's `quarantine` where a restart may forget grants; 0: there is none. Never blocks. */
DLOCK_EXPORT int64_t dlock_client_quarantine_ms(dlock_client *client);

/* Writes what the client has done so far into *stats, whose `size` the caller has set: a program that was built with an
 * older header gets the members it knows, and members that the library does not know are 0. Cheap: counting goes on all
 * the time, this copies. Never blocks. Errors: EINVAL (NULL, or no `size`), ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_client_stats(dlock_client *client, struct dlock_stats *stats, struct dlock_error *err);

/* ---- backends ---------------------------------------------------------------------------------------------------- */

struct dlock_backend;

/* Adds a backend that is linked into the application (see <dlock/backend.h>); its schemes then win over modules of the
 * same name. The struct is copied, its strings are not. Never blocks. Errors: EABI (what does not fit is named), EINVAL
 * (a mandatory operation or a name is missing, or a scheme is taken), ENOMEM. */
DLOCK_EXPORT int dlock_register(const struct dlock_backend *backend, struct dlock_error *err);

/* Walks every backend that is built in, registered, or found as a module in DLOCK_PLUGIN_PATH and beside the library;
 * loads them. A module that cannot be loaded is shown with its `error`. Blocks only on the disk. Errors: ENOMEM. */
DLOCK_EXPORT int dlock_backends(dlock_each_backend each, void *arg, struct dlock_error *err);

/* Reads a duration as URIs and the command take it ("500ms", "10s", "2m", "1h"; a bare number is seconds, fractions are
 * allowed) into *ms. Never blocks. Errors: EINVAL (empty, negative, unknown unit, or too large). */
DLOCK_EXPORT int dlock_parse_duration(const char *text, int64_t *ms, struct dlock_error *err);

/* Writes `uri` into `out`, of `size` bytes, as others may see it: without the password, and without the keys whose
 * values may be secret: "auth", and those with "password", "secret" or "token" in their names. A `password_file` stays.
 * Room for `uri` is enough. Never blocks. Errors: EINVAL (`uri` is none, or `size` is not greater than its length),
 * ENOMEM. */
DLOCK_EXPORT int dlock_uri_without_secrets(const char *uri, char *out, size_t size, struct dlock_error *err);

/* ---- locks ------------------------------------------------------------------------------------------------------- */

/* Makes a handle for the lock `name` and stores it in *lock; end it with dlock_free(). `options` may be NULL. Talks to
 * no server and never blocks. Errors: EINVAL (name or options; the message says which), ENOTSUP (a mode this backend
 * lacks), ECANCELED (client closed), EFORKED, ENOMEM. */
DLOCK_EXPORT int dlock_new(dlock_client *client, const char *name, const struct dlock_options *options,
                           dlock_lock **lock, struct dlock_error *err);

/* Ends a handle: cancels the waits on it, releases what was acquired through it (whoever owns it), and waits for a
 * running callback of it, unless called from that callback. Blocks up to the URI's `timeout` when something is held.
 * Afterwards no callback of it runs. NULL is allowed. No other thread may use the handle any more. */
DLOCK_EXPORT void dlock_free(dlock_lock *lock);

/* Acquires the lock, waiting up to timeout_ms for it (0: a try, one request, bounded by the URI's `timeout`).
 * A grant is renewed in the background until it is released, unless the handle has DLOCK_FIXED_LEASE. The owner
 * (thread, or handle) may acquire again; each acquisition needs its release. Blocks. Errors: EBUSY (try only),
 * ETIMEDOUT, ENOTREADY (nobody is known to hold it, but the server, started lately, still granted nothing when the try
 * was answered, or at the deadline of a wait, which goes on until then; the message says for how long it will not),
 * ECANCELED (dlock_cancel, dlock_free or dlock_close), EDEADLK (upgrade from shared; a second acquisition
 * without re-entry), ELOST (this owner's earlier acquisition was lost and is not yet released as often as it was
 * acquired), EUNAVAILABLE (no answer until the deadline), EAUTH, EPROTO, EINVAL, ENOMEM, EFORKED. Whatever the error,
 * nothing is left held: if an answer was lost, the library goes on releasing in the background. */
DLOCK_EXPORT int dlock_acquire(dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err);

/* Gives one acquisition back; the last one frees the lock for others, and is over at the server when this returns 0,
 * unless another thread of this client waits for it: that one gets the grant, once the server has confirmed it where
 * its last word about it is not quite new. The last exclusive one of an owner that also holds the name shared turns the
 * grant into a shared one, as dlock_downgrade does, with its errors ELOST and EUNAVAILABLE; dlock_release_all and
 * dlock_free do not wait for that. (A grant whose fence cannot grow any more stays exclusive.) Blocks up to the URI's
 * `timeout`; a connection that has kept silent for half of that is taken for dead, and the release sent again over a
 * fresh one, or answered with EUNAVAILABLE where the grant lives in the connection.
 * Errors: EOWNER (the caller holds nothing; nothing was released), ELOST (the grant had ended before; treat the work
 * done as possibly overlapped; on_lost has been called or is about to be if the library knew already, and is not called
 * if it learns of it here), EUNAVAILABLE (no answer: the caller no longer holds it, the library goes on trying and
 * the lease ends at the latest when it would have), ECANCELED (client closed), EFORKED. */
DLOCK_EXPORT int dlock_release(dlock_lock *lock, struct dlock_error *err);

/* As dlock_acquire, without blocking and without a thread that waits: `done` is called once when it ended, with what
 * dlock_acquire would have said, and never from inside this call. For handles that own (DLOCK_OWNER_HANDLE). Errors at
 * once: EINVAL, ENOTSUP (the handle is owned by threads), EDEADLK (held or being acquired already), ELOST, ECANCELED,
 * EFORKED, ENOMEM; `done` is then not called. dlock_free and dlock_close end the wait, and call `done` before they
 * return; a wait that it begins on the same handle then is refused with ECANCELED. */
DLOCK_EXPORT int dlock_acquire_async(dlock_lock *lock, int64_t timeout_ms, dlock_callback done, void *arg);

/* As dlock_release, without blocking: `done` is called once when it ended, and never from inside this call. The handle
 * no longer holds it when this returns. Errors at once: as dlock_acquire_async and EOWNER. */
DLOCK_EXPORT int dlock_release_async(dlock_lock *lock, dlock_callback done, void *arg);

/* Turns the caller's exclusive grant into a shared one, without a moment in which a waiting writer could slip in. The
 * fence stays the server's and grows in its last byte only. Blocks up to the URI's `timeout`. Errors: ENOTSUP, EOWNER,
 * ELOST, EINVAL (not held exclusively; the grant has changed hands 255 times since the server gave it: release it, and
 * acquire it anew), EUNAVAILABLE (not confirmed: from now on it counts as shared all the same, and
 * is tried until it is), ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_downgrade(dlock_lock *lock, struct dlock_error *err);

/* Sets the lease of the caller's grant anew: it ends lease_ms from now, be that later or earlier than before; 0: for
 * the handle's own lease. Meant for grants with DLOCK_FIXED_LEASE, whose work goes on and is known to. A grant that is
 * renewed keeps its lease: it takes that or 0, and is renewed at once, so that the server has just confirmed it when
 * this returns 0. The fence stays; of several permits of a thread it is the one that dlock_release would give back;
 * every handle and thread that holds the grant sees the new end. The server may keep it for less: dlock_remaining_ms
 * tells. Blocks up to the URI's `timeout`; calls of several threads take turns. Errors: EINVAL (lease_ms is not within
 * the bounds of dlock_options.lease_ms; another lease than its own for a grant that is renewed), EOWNER (not held, or
 * another thread has released it meanwhile), ELOST (it ended first, and is released as always), EUNAVAILABLE (not
 * confirmed: still held until the earlier of both ends, though the server may keep it until the later; call it again),
 * ECANCELED, EFORKED, and what the server answers to a renewal that it refuses: EAUTH, EPROTO, EINVAL. */
DLOCK_EXPORT int dlock_extend(dlock_lock *lock, int64_t lease_ms, struct dlock_error *err);

/* Ends the waits in progress on this handle with ECANCELED. Is not remembered: a wait that begins later is not ended.
 * Never blocks. Errors: EFORKED. */
DLOCK_EXPORT int dlock_cancel(dlock_lock *lock);

/* Whether the server granted anything when it was asked for this lock's name last: 0, also when nobody of this client
 * has asked yet; or ENOTREADY, with the message that dlock_acquire would give now: for programs that say why a wait
 * lasts. Never blocks. Errors: ENOTREADY, ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_ready(dlock_lock *lock, struct dlock_error *err);

/* True while the caller (the calling thread, or for DLOCK_OWNER_HANDLE the handle) holds the lock and its lease, by the
 * local clock, has not ended. Never blocks; while it is true the call waits for no other thread either, and is cheap
 * enough for the condition of a loop. */
DLOCK_EXPORT bool dlock_held(dlock_lock *lock);

/* How long the caller's grant is valid without a further renewal: 0 when not held or lost, DLOCK_FOREVER where it ends
 * only with this process (file:). Never blocks. */
DLOCK_EXPORT int64_t dlock_remaining_ms(dlock_lock *lock);

/* The fence of the caller's grant: greater than that of every earlier grant of the name. Hand it to whatever the lock
 * protects, and let that refuse smaller ones. Still answers after a loss, until the release; 0 when not held. Never
 * blocks. */
DLOCK_EXPORT uint64_t dlock_fence(dlock_lock *lock);

/* Copies the token of the caller's grant, the word that names the holder on the server, into `token` (at least
 * DLOCK_TOKEN_MAX + 1 bytes). Never blocks. Errors: EOWNER (not held), EINVAL (size), EFORKED. */
DLOCK_EXPORT int dlock_token(dlock_lock *lock, char *token, size_t size, struct dlock_error *err);

/* Acquires n locks, of one or several clients, all or none, in whatever order they are given, without deadlock: one
 * request per server when nobody is in the way. Permits of one name may stand several times, each time for one more,
 * with one handle of threads or with several handles: a request for each. While some of them are missing, those that
 * are there are kept for at most 2 s, then given back for as long, so that callers that lack each other's permits all
 * get theirs, one after the other and in no order. timeout_ms is for all of them together. Blocks. Errors: as
 * dlock_acquire; EDEADLK also when one lock of a client stands twice (through two clients of one server it waits for
 * itself until the deadline), or permits more often than their limit, or with DLOCK_NO_REENTRY. Whatever the error,
 * none of them is held by this call. dlock_cancel, dlock_free or dlock_close of any of them ends it with ECANCELED. */
DLOCK_EXPORT int dlock_acquire_all(dlock_lock *const *locks, size_t n, int64_t timeout_ms, struct dlock_error *err);

/* Releases n locks, all of them whatever happens; the error is the first that occurred. Blocks. Errors: as
 * dlock_release. */
DLOCK_EXPORT int dlock_release_all(dlock_lock *const *locks, size_t n, struct dlock_error *err);

/* Turns the caller's grant into a ticket that another process can import, and writes it into `ticket`, at least
 * DLOCK_TICKET_MAX + 1 bytes: printable, without spaces, and as good as the grant itself, so keep it private. This
 * handle then no longer holds it, nobody renews it, and it ends with its lease, set anew here unless it is fixed, if
 * nobody imports it. Blocks up to the URI's `timeout`. Errors: ENOTSUP (grants that die with their connection), EOWNER,
 * ELOST, EINVAL (size; acquired more than once; changed hands 255 times, see dlock_downgrade), EUNAVAILABLE (still
 * held here), ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_export(dlock_lock *lock, char *ticket, size_t size, struct dlock_error *err);

/* Takes over the grant that a ticket names, into a new handle that holds it; end it with dlock_free(). Sets its lease
 * anew, a fixed one too. Mode, limit and lease are the ticket's: leave them zero in `options`, which may be NULL. The
 * fence is greater than the exporter's. A ticket that two processes import is held by both: it is one grant. Blocks up
 * to the URI's `timeout`. Errors: ENOTSUP, EINVAL (ticket, options), ELOST (it has ended), EUNAVAILABLE (not taken
 * over; the ticket is as good as before), ECANCELED, EFORKED, ENOMEM. */
DLOCK_EXPORT int dlock_import(dlock_client *client, const char *ticket, const struct dlock_options *options,
                              dlock_lock **lock, struct dlock_error *err);

/* ---- looking at locks, for operators ----------------------------------------------------------------------------- */

/* Calls `each` for every holder of `name`; not at all when it is free. What it shows may be over by then: never decide
 * by it whether to do the protected work. Blocks up to the URI's `timeout`. Errors: EINVAL (name), ENOTSUP,
 * EUNAVAILABLE, EAUTH, EPROTO, ECANCELED, EFORKED. */
DLOCK_EXPORT int dlock_inspect(dlock_client *client, const char *name, dlock_each each, void *arg,
                               struct dlock_error *err);

/* Calls `each` for every holder of every held name that begins with `prefix` ("" for all), in no particular order.
 * Blocks up to the URI's `timeout` per page of the walk. Errors: as dlock_inspect. */
DLOCK_EXPORT int dlock_list(dlock_client *client, const char *prefix, dlock_each each, void *arg,
                            struct dlock_error *err);

/* Takes the lock `name` away from whoever holds it; the next waiter gets it, as soon as the server grants anything
 * (ENOTREADY). Holders learn of it at their next renewal,
 * and may still be working: their fences are smaller. Blocks up to the URI's `timeout`. Errors: EOWNER (nobody holds
 * it), and as dlock_inspect. */
DLOCK_EXPORT int dlock_break(dlock_client *client, const char *name, struct dlock_error *err);

/* Looks at the server's version and settings and calls `each` for everything that strengthens or weakens locks there.
 * Changes nothing. Blocks up to the URI's `timeout`. Errors: ENOTSUP, EUNAVAILABLE, EAUTH, EPROTO, ECANCELED, EFORKED,
 * EINVAL. */
DLOCK_EXPORT int dlock_check(dlock_client *client, dlock_each_finding each, void *arg, struct dlock_error *err);

#ifdef __cplusplus
}
#endif
#endif
