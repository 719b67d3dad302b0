/* dlock: one lock API for many coordination servers.
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
 *   - Functions return 0 or a negative DLOCK_E… code. On failure outputs are untouched, and `err`, unless it is NULL,
 *     says what is wrong and what to do. On success `err` is untouched.
 *   - Comments list errors without the prefix DLOCK_, one a line. They do not repeat the common ones: EINVAL (an
 *     argument is NULL or invalid), ECANCELED (the client was closed), EFORKED (the handle was made before fork()) and
 *     ENOMEM. A function that talks to the server may also return EAUTH, EPROTO, EINVAL or ENOTSUP, if the
 *     server refuses the request or was replaced by one that dlock_open() would refuse.
 *   - Pointer-to-pointer outputs belong to the caller, which ends them with the function that the comment names.
 *     Everything else belongs to the library. Inputs are copied if they are needed later.
 *   - Every function may be called from any thread at any time. None is async-signal-safe. A thread must not be
 *     cancelled (pthread_cancel) during a call, nor leave it by longjmp() or an exception; dlock_cancel() ends a wait.
 *   - `_ms` is milliseconds. A timeout is relative: 0 tries once, DLOCK_FOREVER (or any negative number) waits without
 *     a limit. A call with a timeout ends within 100 ms after it. A call without one is bounded by the URI's `timeout`
 *     key.
 *   - After fork() every handle answers DLOCK_EFORKED in the child; exec() there is always safe. A fork waits while
 *     another thread loads a module, and up to 50 ms while one connects. A call whose callback forks ends in the child
 *     with DLOCK_EFORKED, having sent nothing; the worker thread ends there when the callback returns.
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

/* The version of this header, in numbers and as text. The library's is dlock_version(). */
#define DLOCK_VERSION_MAJOR 0
#define DLOCK_VERSION_MINOR 1
#define DLOCK_VERSION_PATCH 0
#define DLOCK_VERSION "0.1.0"

#if defined(__GNUC__)
/* How a library marks the functions that it exports, and functions whose arguments the compiler checks as printf's. */
#define DLOCK_EXPORT __attribute__((visibility("default")))
#define DLOCK_PRINTF(fmt_at, args_at) __attribute__((__format__(__printf__, fmt_at, args_at)))
#else
#define DLOCK_EXPORT
#define DLOCK_PRINTF(fmt_at, args_at)
#endif

/* As a timeout: wait without a limit. As a duration that the library reports: without an end. */
#define DLOCK_FOREVER INT64_MAX

/* Longest lock name, in bytes. A name has at least one byte, and neither NUL nor control characters (below 0x20, and
 * 0x7f). */
#define DLOCK_NAME_MAX 200
/* The largest number of permits of a name (dlock_options.limit), with every backend. */
#define DLOCK_LIMIT_MAX 2147483647
/* Shortest and longest lease, in milliseconds. */
#define DLOCK_LEASE_MIN_MS 100
#define DLOCK_LEASE_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)
/* Longest token, in bytes, without the terminating NUL. Tokens consist of [A-Za-z0-9._:@-]. Those of this library end
 * in "@host:pid", or in "@host:pid@label" where the client has a label; in the label other bytes than [A-Za-z0-9._-] are
 * written as '@' and two hex digits ("nightly@20report"), and what exceeds the token's length is missing. */
#define DLOCK_TOKEN_MAX 127
/* Longest label of a client, in bytes. */
#define DLOCK_LABEL_MAX 48
/* Longest ticket of dlock_export(), in bytes, without the terminating NUL. */
#define DLOCK_TICKET_MAX 1279

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Every error code: X(name, number, text, advice for the caller). The enum, dlock_strerror() and the documentation are
 * generated from this list. Numbers never change. */
#define DLOCK_ERRORS(X)                                                                                          \
    X(OK, 0, "success", "nothing")                                                                               \
    X(EBUSY, -1, "somebody else holds the lock", "try later, or acquire with a timeout")                         \
    X(ETIMEDOUT, -2, "the lock was not free in time", "try later, or wait longer")                               \
    X(ECANCELED, -3, "the wait was cancelled, or the client was stopped or closed", "stop")                      \
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
    X(EPROTO, -12, "the server sent an invalid answer", "check that the URI names the right kind of server")     \
    X(ENOBACKEND, -13, "no backend for this URI scheme", "install the backend, or set DLOCK_PLUGIN_PATH")        \
    X(EABI, -14, "the backend module does not fit this library", "rebuild or replace the module")                \
    X(EFORKED, -15, "the handle was made before fork()", "open a client in the child")                           \
    X(ENOTREADY, -16, "the server was started recently and grants nothing yet", "wait; the message says for how long")

/* DLOCK_OK, DLOCK_EBUSY and so on. */
enum dlock_code {
#define DLOCK_X(name, number, text, action) DLOCK_##name = number,
    DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
};

/* Describes an error. `code` is the function's return value; `message` is one line for a person, without a newline, and
 * never contains a password. The struct never grows. */
struct dlock_error {
    int code;          /* DLOCK_E… */
    char message[508]; /* what is wrong and what to do */
};

/* Returns a short, static, English text for `code`: "unknown error" if there is no such code. Never NULL. Never
 * blocks. */
DLOCK_EXPORT const char *dlock_strerror(int code);

/* Returns the library's version: DLOCK_VERSION of the header it was built with. Static. Never blocks. */
DLOCK_EXPORT const char *dlock_version(void);

/* ---- vocabulary -------------------------------------------------------------------------------------------------- */

/* How many owners may hold a name at the same time. */
enum dlock_mode {
    DLOCK_EXCLUSIVE = 0, /* one holder */
    /* Many readers, or one exclusive holder. An owner that holds the name exclusively may re-enter it shared, and
     * remains a reader after its last exclusive release. An owner that holds it shared cannot acquire it exclusively
     * (EDEADLK). */
    DLOCK_SHARED = 1,
    /* Up to dlock_options.limit holders, which must all give the same limit (else EINVAL). Not re-entrant: a thread
     * that acquires again has two permits, and gives back the younger one first. */
    DLOCK_PERMIT = 2
};

/* The owner of a grant, which may acquire it again and release it. */
enum dlock_owner {
    DLOCK_OWNER_THREAD = 0, /* the calling thread, across all handles of a name in one client; re-entry is counted */
    DLOCK_OWNER_HANDLE = 1  /* the handle: any thread may release it; one acquisition at a time (for event loops) */
};

/* Why a grant was lost. */
enum dlock_loss {
    DLOCK_NOT_LOST = 0,
    DLOCK_LOSS_EXPIRED = 1,   /* it was not renewed in time: no answer, or this process did not run */
    DLOCK_LOSS_FIXED_END = 2, /* its fixed lease has ended */
    DLOCK_LOSS_BROKEN = 3,    /* somebody took it away: dlock_break(), or a deletion by hand */
    DLOCK_LOSS_FORGOTTEN = 4, /* the server no longer has it and cannot tell why: broken, or forgotten in a restart */
    DLOCK_LOSS_SESSION = 5    /* the connection or session in which it lived has ended */
};

/* dlock_options.flags */
enum dlock_flag {
    DLOCK_FIXED_LEASE = 1, /* the grant is not renewed: it ends with its lease, unless dlock_extend() restarts that */
    DLOCK_NO_REENTRY = 2   /* the owner may not acquire again (DLOCK_EDEADLK) */
};

/* dlock_client_options.flags */
enum dlock_client_flag {
    DLOCK_CLIENT_LAZY = 1,     /* dlock_open does not connect; the first operation does */
    DLOCK_CLIENT_MANUAL = 2,   /* callbacks run inside dlock_client_dispatch(): see dlock_callback */
    DLOCK_CLIENT_GUARDIAN = 4, /* as `guardian=on` in the URI; `guardian=off` there takes precedence */
    /* The guardian kills the groups of dlock_client_guard() and dlock_guard() only when this process is gone, and not
     * when a grant ends. For a program that handles the loss itself. */
    DLOCK_CLIENT_SPARE_GROUP = 8
};

/* The severity of a line that dlock_client_options.log gets. */
enum dlock_log_level { DLOCK_LOG_ERROR = 0, DLOCK_LOG_WARN = 1, DLOCK_LOG_INFO = 2, DLOCK_LOG_DEBUG = 3 };

/* The capabilities of a backend: X(name, bit, word, meaning). */
#define DLOCK_CAPS(X)                                                                               \
    X(FENCE, 0, "fence", "fences keep growing across a restart of the server")                      \
    X(QUEUE, 1, "queue", "waiters are served in order of arrival")                                  \
    X(WAKE, 2, "wake", "the server tells waiters of their turn; others are polled")                 \
    X(SHARED, 3, "shared", "DLOCK_SHARED and dlock_downgrade")                                      \
    X(PERMIT, 4, "permit", "DLOCK_PERMIT")                                                          \
    X(INSPECT, 5, "inspect", "dlock_inspect")                                                       \
    X(LIST, 6, "list", "dlock_list")                                                                \
    X(BREAK, 7, "break", "dlock_break")                                                             \
    X(EXPORT, 8, "export", "dlock_export and dlock_import")                                         \
    X(SESSION, 9, "session", "a grant ends with the connection that made it")                       \
    X(THREADSAFE, 10, "threadsafe", "one connection serves every thread")                           \
    X(VOLATILE, 11, "volatile", "a restart or failover may forget grants; quarantine applies")      \
    X(LOCAL, 12, "local", "there is no server: grants exclude processes of this machine only")      \
    X(WANTED, 13, "wanted", "a holder is told at once that another client asks: linger, on_wanted") \
    X(PRIVATE, 14, "private", "there is no server: grants exclude threads of one process only")     \
    X(FLOOR, 15, "floor", "fences can be raised, as a member of a quorum has to")                   \
    X(LEASE, 16, "lease", "a holder that hangs or is cut off loses its lock")

/* DLOCK_CAP_FENCE, DLOCK_CAP_QUEUE and so on: bits of dlock_backend_info.caps. */
enum dlock_cap {
#define DLOCK_X(name, bit, word, meaning) DLOCK_CAP_##name = 1 << bit,
    DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
};

/* A client of one server, and a handle for one name. Their contents are private to the library. */
typedef struct dlock_client dlock_client;
typedef struct dlock_lock dlock_lock;

/* One holder of a name, as the server reports it. Valid, with its strings, only inside the callback. */
struct dlock_info {
    size_t size;          /* sizeof(struct dlock_info) in the library that fills it */
    const char *name;     /* without the client's `prefix` */
    const char *token;    /* the holder's name at the server; "" when the server does not say */
    enum dlock_mode mode; /* how it is held */
    uint32_t waiters;     /* number of waiters in the server's queue; 0 where it keeps none */
    uint32_t limit;       /* number of permits; 1 in other modes */
    /* 0 when unknown. Its last byte is 0: the holder's own dlock_fence() is greater after a hand-over within its
     * client, a downgrade or an import. */
    uint64_t fence;
    int64_t remaining_ms; /* time left of the lease; -1: unknown; DLOCK_FOREVER: it ends with its holder */
    /* The holder's machine; "" where its token does not tell, as those of other programs. Everybody with a right to
     * write to the server can write anything there, and into the next two. */
    const char *host;
    int64_t pid;       /* the holder's process there; 0 where its token does not tell */
    const char *label; /* what the holder's client is for, without control characters; "": none */
    /* How long ago the server granted it, by the server's clock: less if that was set back since; -1: unknown. Hand-overs
     * within the holder's client, and imports, continue the same grant. */
    int64_t held_ms;
};

/* A backend as this process sees it. Everything in it is valid for the life of the process. */
struct dlock_backend_info {
    const char *name;           /* "redis" */
    const char *const *schemes; /* NULL-terminated; NULL where the module could not be loaded */
    uint32_t caps;              /* DLOCK_CAP_… bits */
    const char *path;           /* the module's file; NULL when built in or registered */
    const char *error;          /* why the module could not be loaded; NULL when it was */
    const char *schema;         /* script that an administrator runs on the server before its first use; NULL: none */
};

/* The judgement of dlock_check() on a setting. */
enum dlock_health {
    DLOCK_FINE = 0, /* as it should be */
    DLOCK_WEAK = 1  /* locks work, but promise less than they could */
};

/* One result of dlock_check(). Valid, with its strings, only inside the callback. */
struct dlock_finding {
    size_t size;              /* sizeof(struct dlock_finding) in the library that fills it */
    enum dlock_health health; /* the judgement */
    const char *what;         /* one line: the setting and its value */
    const char *advice;       /* one line: its consequence, and a better setting; NULL when fine */
};

/* Reports that something ended. `err` is NULL on success, and valid only inside the call.
 *
 * It runs in the client's worker thread, or inside dlock_client_dispatch() (DLOCK_CLIENT_MANUAL). The `done` of an
 * acquire or release that dlock_free() or dlock_close() ends runs in the thread that calls these, and may run beside a
 * callback of another lock. The worker thread blocks every signal, so that it takes none from the application; a
 * program that a callback starts inherits this mask and should unblock the signals that it needs. The callback may call
 * the library, but must not block for long, and must not close the client. */
typedef void (*dlock_callback)(dlock_lock *lock, const struct dlock_error *err, void *arg);

/* Gets one holder of a walk. Returns 0 to continue; any other value ends the walk, which then succeeds. Runs in the
 * calling thread and must not call the library with the same client. */
typedef int (*dlock_each)(const struct dlock_info *info, void *arg);

/* Gets one finding of dlock_check(). Returns 0 to continue; any other value ends the walk, which then succeeds. It must
 * not call the library with the same client. */
typedef int (*dlock_each_finding)(const struct dlock_finding *finding, void *arg);

/* Gets one backend of dlock_backends(). Returns 0 to continue; any other value ends the walk. */
typedef int (*dlock_each_backend)(const struct dlock_backend_info *info, void *arg);

/* What happens to a client's locks: X(name, number, word, meaning). */
#define DLOCK_EVENTS(X)                                                                                 \
    X(GRANTED, 1, "granted", "an owner got the lock, and re-entries are not told")                      \
    X(RELEASED, 2, "released", "its owner gave it back")                                                \
    X(LOST, 3, "lost", "it ended before its release; `text` says why")                                  \
    X(WAITING, 4, "waiting", "a wait begins; `text` says who has the lock, where the answer did")       \
    X(GIVEN_UP, 5, "given-up", "an acquire ended without the lock; `text` says why, where it is known") \
    X(LATE, 6, "late", "a renewal failed and is tried again; `text` says why")                          \
    X(RECONNECTED, 7, "reconnected", "a connection took the place of one that broke; no name")          \
    X(QUARANTINE, 8, "quarantine", "the server grants nothing yet: it may have forgotten grants")

/* DLOCK_EVENT_GRANTED, DLOCK_EVENT_RELEASED and so on. Later versions may have more. */
enum dlock_event_kind {
#define DLOCK_X(name, number, word, meaning) DLOCK_EVENT_##name = number,
    DLOCK_EVENTS(DLOCK_X)
#undef DLOCK_X
};

/* One event. Valid, with its strings, only inside the callback. */
struct dlock_event {
    size_t size;                /* sizeof(struct dlock_event) in the library that fills it */
    enum dlock_event_kind kind; /* what happened */
    uint32_t dropped;           /* events before this one that found the queue full */
    const char *name;           /* the lock's name, without the client's `prefix` */
    const char *token;          /* the acquisition's name at the server; "": it has none yet */
    const char *text;           /* a message for people; "": none */
    uint64_t fence;             /* the grant's; 0: there is none */
    int64_t waited_us;          /* since the call that acquires; -1: not of this kind */
    int64_t held_us;            /* since the grant; -1: not of this kind */
};

/* The options of dlock_open(). */
struct dlock_client_options {
    size_t size;    /* sizeof(struct dlock_client_options) */
    uint32_t flags; /* DLOCK_CLIENT_… */
    void (*log)(int level, const char *message,
                void *arg); /* gets a line for the log, in any thread; must not call the library; NULL: none */
    void *log_arg;          /* the last argument of `log` */
    /* Tells people who holds a lock: what this program does, up to DLOCK_LABEL_MAX bytes without control characters. It is
     * part of every token (see DLOCK_TOKEN_MAX), which whoever may read the server's locks can see. NULL: the URI's
     * `label`, else none; "": none */
    const char *label;
    /* Gets every event of the client, in their order, in the client's worker thread, even if it is MANUAL. A slow one
     * delays other callbacks, but no renewal; 256 events wait for it, further ones are dropped. It must not call the
     * library with the same client. NULL: none */
    void (*event)(const struct dlock_event *event, void *arg);
    void *event_arg; /* the last argument of `event` */
};
/* The default values of the members. */
#define DLOCK_CLIENT_OPTIONS_INIT \
    { sizeof(struct dlock_client_options), 0, NULL, NULL, NULL, NULL, NULL }

/* The options of dlock_new(). */
struct dlock_options {
    size_t size;            /* sizeof(struct dlock_options); bytes that the library does not know must be 0 */
    enum dlock_mode mode;   /* default DLOCK_EXCLUSIVE */
    enum dlock_owner owner; /* default DLOCK_OWNER_THREAD */
    uint32_t limit;         /* number of permits, 1 to DLOCK_LIMIT_MAX; 0 in other modes */
    uint32_t flags;         /* DLOCK_FIXED_LEASE, DLOCK_NO_REENTRY */
    /* 0: the URI's `lease` (default 10 s); else DLOCK_LEASE_MIN_MS to DLOCK_LEASE_MAX_MS, and not longer than the
     * server's quarantine */
    int64_t lease_ms;
    /* Called once per lost grant, with DLOCK_ELOST and a message that says why (see dlock_lost), before another owner
     * can be granted the lock. It comes later if the process was stopped or the machine suspended, if another callback
     * of the client still runs, or if the program does not dispatch (DLOCK_CLIENT_MANUAL). It comes at the next
     * renewal if the server took the grant away (dlock_break) or forgot it. The library releases the lost grant at the
     * server when on_lost has returned, or has released or freed the handle itself, but no later than one lease after
     * the loss: a program that hangs does not keep the lock, and its on_lost then comes when another owner may have
     * it. To acquire the lock again inside on_lost, first release the handle (DLOCK_OWNER_HANDLE), or free it and make
     * another one (DLOCK_OWNER_THREAD: only the thread that acquired it can release it). Until then dlock_fence and
     * dlock_token, called inside on_lost, are those of the lost grant, in any thread. Not called after the release of
     * the grant has returned ELOST, or its `done` has run: see dlock_release. */
    dlock_callback on_lost;
    void *on_lost_arg; /* the last argument of `on_lost` */
    /* For an exclusive lock, with a backend that has DLOCK_CAP_WANTED (else ENOTSUP): another client asks for what this
     * handle holds, by a wait or a try. Called once per grant, with `err` NULL; not after the release has returned. A
     * long job may then finish its step, release and acquire the lock again. It may also come without a reason, when
     * the connection that brings wake-ups has broken. */
    dlock_callback on_wanted;
    void *on_wanted_arg; /* the last argument of `on_wanted` */
};
/* The default values of the members. */
#define DLOCK_OPTIONS_INIT \
    { sizeof(struct dlock_options), DLOCK_EXCLUSIVE, DLOCK_OWNER_THREAD, 0, 0, 0, NULL, NULL, NULL, NULL }

/* The number of buckets in dlock_stats.wait_counts. */
#define DLOCK_WAIT_BUCKETS 24
/* The longest wait that bucket i counts, in microseconds: 0.1 ms doubled i times, up to 7 minutes; the last bucket
 * counts all longer waits. In seconds these bounds have few digits (0.0001, 0.0002, 0.0004 …), as suits a Prometheus
 * histogram, each of whose buckets is the sum of all up to it. */
#define DLOCK_WAIT_BOUND_US(i) (INT64_C(100) << (i))

/* The counters of a client since dlock_open(). All except `waiting`, `held` and `last_answer_ms` only grow. */
struct dlock_stats {
    size_t size; /* sizeof(struct dlock_stats), set by the caller */
    /* Acquisitions that an owner got: by any function that acquires (each lock of dlock_acquire_all counts), and by
     * dlock_import. Re-entries do not count. */
    uint64_t grants;
    /* Those among them that needed no new grant of the server: handed over by another thread or handle of this client,
     * taken while they lingered, or imported. */
    uint64_t local_grants;
    uint64_t reentries; /* acquisitions by an owner that already held the name */
    /* Grants that ended before their release. Each counts once, whether on_lost or the release reported it. A grant
     * that no owner had yet, or that only lingered, does not count, nor do those that a closed client gives back. */
    uint64_t losses;
    /* Grants that the server confirmed again, in the background, by dlock_extend and dlock_downgrade, and before some
     * hand-overs. One request that renews many grants counts once for each. */
    uint64_t renewals;
    uint64_t renewal_failures; /* grants whose renewal was refused, or not answered in time; it is tried again */
    uint64_t reconnects;       /* connections opened in place of one that broke or was silent */
    uint64_t waiting;          /* waits in progress now */
    /* Waits that have ended, with a grant or without. An acquire with a timeout is a wait if its first request did not
     * settle it: the name was held or had waiters, here or at the server, or the server granted nothing yet or was
     * unreachable. A try (timeout 0) is no wait, nor is a lock granted by the first request of dlock_acquire_all. */
    uint64_t waits;
    uint64_t wait_us;                         /* the sum of these waits, each from the call that acquires to its end */
    uint64_t wait_counts[DLOCK_WAIT_BUCKETS]; /* number of waits by length: see DLOCK_WAIT_BOUND_US */
    uint64_t held;                            /* grants that are held now */
    /* How long ago the server last answered a request or accepted a connection; -1: it has not yet. A client that holds
     * and waits for nothing sends no requests, and a grant that ends only with its holder needs no renewals. */
    int64_t last_answer_ms;
    uint64_t holds;                           /* grants that have ended, by a release or a loss */
    uint64_t hold_us;                         /* the sum of the times for which they were held */
    uint64_t hold_counts[DLOCK_WAIT_BUCKETS]; /* number of them by this time: see DLOCK_WAIT_BOUND_US */
    uint64_t quarantines;                     /* answers that the server grants nothing yet */
};
/* The initial value for dlock_client_stats(). */
#define DLOCK_STATS_INIT \
    { sizeof(struct dlock_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, {0}, 0 }

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* Opens a client of the server that `uri` names, and stores it in *client.
 *
 * End it with dlock_close(). `options` may be NULL. Connects once, unless DLOCK_CLIENT_LAZY is set, so that a wrong
 * address or password shows here; during later outages each call retries until its own deadline. Blocks up to the URI's
 * `timeout`.
 *
 * Errors:
 *   - EINVAL: the URI, one of its keys or a flag is unknown or invalid; the message names it
 *   - ENOBACKEND: no backend serves the URI's scheme
 *   - EABI: the backend's module does not fit this library
 *   - EAUTH: the server refuses the credentials
 *   - EUNAVAILABLE: the server cannot be reached
 *   - EPROTO: the server sends invalid answers
 *   - ENOTSUP: the server, or its settings, do not support what the URI asks for; or the guardian of a set-user-ID
 *     program */
DLOCK_EXPORT int dlock_open(const char *uri, const struct dlock_client_options *options, dlock_client **client,
                            struct dlock_error *err);

/* Stops the client: ends its waits with ECANCELED, and refuses every later acquisition with it, including tries.
 *
 * For shutting down, before dlock_close: no other thread begins new work. What is held stays held and is renewed; its
 * owner can acquire it again, extend and release it. A wait ends as after dlock_cancel. There is no way back. May be
 * called several times. Never blocks. */
DLOCK_EXPORT int dlock_client_stop(dlock_client *client);

/* Closes the client: releases its locks, ends its waits with ECANCELED and stops its callbacks.
 *
 * Every later call on its locks answers ECANCELED (dlock_cancel: 0, since nothing waits). Lock handles stay valid:
 * their owner frees them, before or after. The client ends with the last of them, or here if there is none; afterwards
 * no call may name it. Call it once, not from a callback. NULL is allowed. In a forked child it returns at once and
 * leaves the parent's memory alone. Blocks up to the URI's `timeout`, plus the time that a running callback takes; up to
 * 0.2 s if nothing is held and the server is silent. A request that is in progress may then end after the call, in a
 * thread of the library, which must not be unloaded before. */
DLOCK_EXPORT void dlock_close(dlock_client *client);

/* Closes the client as dlock_close does, but blocks up to timeout_ms if that is less than the URI's `timeout`.
 *
 * With 0 nothing is released: every grant ends with its lease, or its connection. */
DLOCK_EXPORT void dlock_close_within(dlock_client *client, int64_t timeout_ms);

/* Returns a descriptor that polls readable when dlock_client_dispatch() has something to do.
 *
 * For MANUAL clients. The descriptor belongs to the client. Never blocks.
 *
 * Errors:
 *   - ENOTSUP: not a MANUAL client */
DLOCK_EXPORT int dlock_client_fd(dlock_client *client);

/* Runs the callbacks that are due, in the calling thread, and returns how many ran.
 *
 * For MANUAL clients. Blocks only as long as the callbacks do.
 *
 * Errors:
 *   - ENOTSUP: not a MANUAL client */
DLOCK_EXPORT int dlock_client_dispatch(dlock_client *client);

/* Registers `group` as the process group that works under this client's grants; 0 unregisters it.
 *
 * For a client with a guardian (the URI's `guardian=on`). When this process is gone, the guardian kills that group
 * (SIGKILL), and releases the grants only once no process of it runs. Unless the client has DLOCK_CLIENT_SPARE_GROUP,
 * the guardian also kills the group before the first grant ends because this process is stopped or hangs, and so does
 * not renew it; grants with a group of their own (dlock_guard) do not count. A grant that was lost in another way ends
 * for the guardian when its lease does. Processes that have left the group are not killed. On file: and with mode=session the guardian keeps only the grants that are held at the time of the call:
 * acquire first. Call it before the group begins to work, and with 0 before its number can be reused, that is, before
 * its first process is waited for. Blocks while a guardian is started.
 *
 * Errors:
 *   - EINVAL: the group includes this process
 *   - ELOST: with 0: the guardian has already killed the group, since this process did not renew in time
 *   - ENOTSUP: no guardian, or a backend whose grants it cannot keep
 *   - EUNAVAILABLE: the guardian cannot be started */
DLOCK_EXPORT int dlock_client_guard(dlock_client *client, int group, struct dlock_error *err);

/* Returns the backend that serves this client, which must not be NULL. Static; never NULL. Never blocks. */
DLOCK_EXPORT const struct dlock_backend_info *dlock_client_backend(dlock_client *client);

/* Returns for how many milliseconds after its start the server grants nothing (ENOTREADY).
 *
 * Longer leases are refused. It is the URI's `quarantine` where a restart may forget grants; 0: there is none. `client`
 * must not be NULL. Never blocks. */
DLOCK_EXPORT int64_t dlock_client_quarantine_ms(dlock_client *client);

/* Copies the client's counters into *stats.
 *
 * The caller sets `size`: a program that was built with an older header gets the members that it knows, and members
 * that the library does not know become 0. Never blocks.
 *
 * Errors:
 *   - EINVAL: `stats` is NULL or has no `size` */
DLOCK_EXPORT int dlock_client_stats(dlock_client *client, struct dlock_stats *stats, struct dlock_error *err);

/* ---- backends ---------------------------------------------------------------------------------------------------- */

struct dlock_backend;

/* Adds a backend that is linked into the application (see <dlock/backend.h>).
 *
 * Its schemes take precedence over modules of the same name. The struct is copied, its strings are not. Never blocks.
 *
 * Errors:
 *   - EABI: the struct does not fit this library; the message says why
 *   - EINVAL: a mandatory operation or a name is missing, or a scheme is taken */
DLOCK_EXPORT int dlock_register(const struct dlock_backend *backend, struct dlock_error *err);

/* Calls `each` for every backend that is built in, registered, or found as a module.
 *
 * Looks for modules in DLOCK_PLUGIN_PATH and beside the library, and loads them. A module that cannot be loaded is
 * shown with its `error`. Blocks only on the disk. */
DLOCK_EXPORT int dlock_backends(dlock_each_backend each, void *arg, struct dlock_error *err);

/* Reads a duration, such as "500ms", "10s", "2m" or "1h", into *ms.
 *
 * This is the form that URIs and the command take: a bare number is seconds, and fractions are allowed. Never blocks.
 *
 * Errors:
 *   - EINVAL: empty, negative, an unknown unit, or too large */
DLOCK_EXPORT int dlock_parse_duration(const char *text, int64_t *ms, struct dlock_error *err);

/* Writes `uri` without its secrets into `out`, of `size` bytes.
 *
 * Leaves out the password, the key "auth", keys with "password", "secret" or "token" in their names, and keys whose
 * values are URIs with a secret. A `password_file` stays. A buffer with room for `uri` is large enough. Never blocks.
 *
 * Errors:
 *   - EINVAL: `uri` is invalid, or `size` is not greater than its length */
DLOCK_EXPORT int dlock_uri_without_secrets(const char *uri, char *out, size_t size, struct dlock_error *err);

/* ---- locks ------------------------------------------------------------------------------------------------------- */

/* Makes a handle for the lock `name`, and stores it in *lock.
 *
 * End it with dlock_free(). `options` may be NULL. Talks to no server and never blocks.
 *
 * Errors:
 *   - EINVAL: the name or the options; the message says which
 *   - ENOTSUP: the backend does not have this mode */
DLOCK_EXPORT int dlock_new(dlock_client *client, const char *name, const struct dlock_options *options,
                           dlock_lock **lock, struct dlock_error *err);

/* Ends a handle: cancels its waits, and releases everything that was acquired through it, by any thread.
 *
 * Waits in progress in other threads end with ECANCELED; from this call on no thread may begin another call on the
 * handle. Waits for a running callback of the handle, unless it is called from that callback; afterwards no callback of
 * the handle runs. NULL is allowed. Blocks up to the URI's `timeout` if something is held, and as long before that if
 * another thread's wait on it is in a request. */
DLOCK_EXPORT void dlock_free(dlock_lock *lock);

/* Acquires the lock, waiting up to timeout_ms for it.
 *
 * A timeout of 0 is a try: one request, bounded by the URI's `timeout`. The grant is renewed in the background until it
 * is released, unless the handle has DLOCK_FIXED_LEASE. The owner (thread or handle) may acquire again; each
 * acquisition needs a release. Through a handle with other terms the grant gets the stronger of both until its last
 * release: it is renewed unless both leases are fixed, for the longer of the two. After any error nothing is held: if
 * an answer was lost, the library continues to release in the background. Blocks.
 *
 * Errors:
 *   - EBUSY: another owner holds the lock (only of a try)
 *   - ETIMEDOUT: the lock was not free in time
 *   - ENOTREADY: the server was started recently, grants nothing yet, and knows no holder; the message says for how
 *     long. A wait continues, and returns this only if its deadline comes first
 *   - ECANCELED: dlock_cancel, dlock_free or dlock_close has ended the wait
 *   - EDEADLK: an upgrade from shared, a second acquisition without re-entry, or a longer fixed lease in place of a
 *     shorter fixed one (call dlock_extend() first)
 *   - ELOST: this owner's earlier acquisition was lost, and has not been released as often as it was acquired
 *   - EUNAVAILABLE: no answer until the deadline
 *   - EAUTH: the server refuses. Once it has accepted an acquire of this name from this client, a wait continues, since
 *     the change may be a mistake, and returns this only if its deadline comes first
 *   - ENOBACKEND, EABI: of a quorum's member, where dlock_open did not connect */
DLOCK_EXPORT int dlock_acquire(dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err);

/* Gives back one acquisition; the last one frees the lock for others.
 *
 * When it returns 0 the server has ended the grant, with two exceptions: if another thread of this client waits for the
 * lock, that thread gets the grant, after a renewal if the server has not confirmed it recently; and if the URI has
 * `linger`, the grant may stay with this client until that time is over or another client asks for the lock. If an
 * owner that also holds the name shared gives back its last exclusive acquisition, the grant becomes shared as by
 * dlock_downgrade, with that function's errors ELOST and EUNAVAILABLE; dlock_release_all and dlock_free do not wait for
 * that. (A grant whose fence cannot grow further stays exclusive.) Blocks up to the URI's `timeout`. A connection that
 * was silent for half of that time is treated as dead: the release is sent again over a new one, or returns
 * EUNAVAILABLE where the grant lives in the connection.
 *
 * Errors:
 *   - EOWNER: the caller holds nothing; nothing was released
 *   - ELOST: the grant had ended before: treat the work done as possibly overlapped. An on_lost that has not been
 *     called by now is not called any more; one that runs is waited for, up to the URI's `timeout`, unless this is
 *     called inside it
 *   - EUNAVAILABLE: no answer: the caller no longer holds the lock, the library continues to release it, and it becomes
 *     free when its lease ends, if not earlier
 *   - EAUTH, EPROTO, EINVAL, ENOTSUP, ENOMEM: the server refuses the release; otherwise as EUNAVAILABLE */
DLOCK_EXPORT int dlock_release(dlock_lock *lock, struct dlock_error *err);

/* Acquires the lock as dlock_acquire does, without blocking and without a thread that waits.
 *
 * `done` is called once, when the acquire has ended, with the result that dlock_acquire would have returned, and never
 * from inside this call. For handles with DLOCK_OWNER_HANDLE. dlock_free and dlock_close end the wait, and call `done`
 * before they return; an acquire of the same handle that `done` then begins is refused with ECANCELED. If this call
 * fails, `done` is not called.
 *
 * Errors:
 *   - ENOTSUP: the handle is owned by threads
 *   - EDEADLK: held or being acquired already
 *   - ELOST: the earlier acquisition was lost, and has not been released */
DLOCK_EXPORT int dlock_acquire_async(dlock_lock *lock, int64_t timeout_ms, dlock_callback done, void *arg);

/* Releases the lock as dlock_release does, without blocking.
 *
 * `done` is called once, when the release has ended, and never from inside this call. The handle no longer holds the
 * lock when this returns. If this call fails, `done` is not called.
 *
 * Errors:
 *   - ENOTSUP: the handle is owned by threads
 *   - EOWNER: the handle does not hold the lock */
DLOCK_EXPORT int dlock_release_async(dlock_lock *lock, dlock_callback done, void *arg);

/* Turns the caller's exclusive grant into a shared one.
 *
 * No waiting writer can be granted the lock in between. Only the last byte of the fence grows. Blocks up to the URI's
 * `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend has no shared locks
 *   - EOWNER: the caller does not hold the lock
 *   - EINVAL: not held exclusively; or the grant has changed hands 255 times since the server gave it: release it and
 *     acquire it again
 *   - ELOST: the grant has ended
 *   - EUNAVAILABLE: not confirmed: the grant is shared all the same, and the library continues to tell the server */
DLOCK_EXPORT int dlock_downgrade(dlock_lock *lock, struct dlock_error *err);

/* Restarts the lease of the caller's grant: it ends lease_ms from now, which may be later or earlier than before.
 *
 * 0 stands for the handle's own lease. Meant for grants with DLOCK_FIXED_LEASE, in a program that needs more time. A
 * grant that is renewed keeps its lease: it takes that value or 0, and is renewed at once, so that the server has just
 * confirmed it when this returns 0. The fence does not change. Of several permits of a thread, the one that
 * dlock_release would give back is extended. Every handle and thread that holds the grant sees the new end. The server
 * may keep it for less: see dlock_remaining_ms. Blocks up to the URI's `timeout`; calls of several threads take turns.
 *
 * Errors:
 *   - EINVAL: lease_ms is out of the bounds of dlock_options.lease_ms, or is not the own lease of a grant that is
 *     renewed
 *   - EOWNER: not held, or released by another thread during the call
 *   - ELOST: the grant has ended, and needs a release as always
 *   - EUNAVAILABLE: not confirmed: still held until the earlier of both ends, though the server may keep it until the
 *     later one; call it again
 *   - EAUTH, EPROTO, EINVAL: the server refuses the renewal; otherwise as EUNAVAILABLE */
DLOCK_EXPORT int dlock_extend(dlock_lock *lock, int64_t lease_ms, struct dlock_error *err);

/* Ends the waits in progress on this handle with ECANCELED.
 *
 * A call that waits returns when the server has answered the request in progress, within the URI's `timeout`. Waits
 * that begin later are not affected. Never blocks. */
DLOCK_EXPORT int dlock_cancel(dlock_lock *lock);

/* Tells whether the server granted anything when it was last asked for this lock's name.
 *
 * For programs that say why a wait lasts. Returns 0 also if this client has not asked yet. Never blocks.
 *
 * Errors:
 *   - ENOTREADY: it granted nothing yet, with the message that dlock_acquire would give now
 *   - EUNAVAILABLE, EAUTH: no answer, or a refusal; the message gives the reason */
DLOCK_EXPORT int dlock_ready(dlock_lock *lock, struct dlock_error *err);

/* Returns true while the caller holds the lock and its lease, by the local clock, has not ended.
 *
 * The caller is the calling thread, or the handle with DLOCK_OWNER_HANDLE. Never blocks. While it is true the call does
 * not wait for any other thread either, and is cheap enough for the condition of a loop. */
DLOCK_EXPORT bool dlock_held(dlock_lock *lock);

/* Returns for how many milliseconds the caller's grant is valid without a further renewal.
 *
 * 0 when not held or lost, DLOCK_FOREVER where it ends only with this process (file:). Never blocks. */
DLOCK_EXPORT int64_t dlock_remaining_ms(dlock_lock *lock);

/* Returns the fence of the caller's grant: greater than that of every earlier grant of the name.
 *
 * Pass it to the resource that the lock protects, which should refuse smaller ones. Still returned after a loss, until
 * the release; 0 when not held. Inside an on_lost it is the lost grant's. Never blocks. */
DLOCK_EXPORT uint64_t dlock_fence(dlock_lock *lock);

/* Tells why the caller's grant was lost.
 *
 * Returns DLOCK_LOSS_…, a positive number, and fills `err` with DLOCK_ELOST and a message that says more, which is also
 * that of on_lost: for how long it was not renewed, and how long this process did not run then. 0: the caller holds the
 * lock. Until the release; inside an on_lost it is about the lost grant. Never blocks.
 *
 * Errors:
 *   - EOWNER: the caller does not hold the lock, and has not lost it */
DLOCK_EXPORT int dlock_lost(dlock_lock *lock, struct dlock_error *err);

/* Copies the token of the caller's grant, which names the holder at the server, into `token`.
 *
 * `size` is at least DLOCK_TOKEN_MAX + 1. Inside an on_lost it is the lost grant's. Never blocks.
 *
 * Errors:
 *   - EOWNER: the caller does not hold the lock
 *   - EINVAL: `size` is too small */
DLOCK_EXPORT int dlock_token(dlock_lock *lock, char *token, size_t size, struct dlock_error *err);

/* Registers `group` as the process group that works under the caller's grant alone; 0: none does any more.
 *
 * For a program with several jobs. Otherwise as dlock_client_guard(): the guardian kills this group when this process
 * is gone, or before this grant ends without a renewal, and leaves the groups of other grants alone. The group is
 * registered until the caller has released the grant as often as it was acquired: call this with 0, or release the
 * lock, before the group's first process is waited for. Blocks while a guardian is started.
 *
 * Errors:
 *   - EOWNER: the caller does not hold the lock
 *   - ELOST: the grant has ended; with 0: the guardian has already killed the group
 *   - EINVAL, ENOTSUP, EUNAVAILABLE: as dlock_client_guard */
DLOCK_EXPORT int dlock_guard(dlock_lock *lock, int group, struct dlock_error *err);

/* Returns the lock's name as dlock_new() takes it, without the client's `prefix`.
 *
 * For a handle made by dlock_import() it is the name of the exported lock. The text belongs to the library, and is
 * valid until dlock_free(), also after dlock_close() and after fork() in the child. NULL only if `lock` is NULL. Never
 * blocks. */
DLOCK_EXPORT const char *dlock_name(dlock_lock *lock);

/* Acquires n locks, of one or several clients: all or none, without deadlock, in whatever order they are listed.
 *
 * If all are free this takes one request per server for up to 256 locks (with mode=session one for each lock, on MySQL
 * one for 128). timeout_ms is for all of them together. Permits of one name may occur several times in the list, for
 * one more permit each time, by one handle that is owned by threads or by several handles; each is a separate request.
 * While some of these permits are missing, those already granted are kept for at most 2 s, then given back for as long,
 * so that callers that lack each other's permits all get theirs, in no particular order. A lock that is lost while
 * others are waited for is acquired again, though its on_lost may be called. After any error this call holds none of
 * them. dlock_cancel, dlock_free or dlock_close of any of them ends it with ECANCELED. Blocks.
 *
 * Errors: as dlock_acquire, and
 *   - ELOST: a lock was lost in this way several times
 *   - EDEADLK: one lock of a client occurs twice, or permits occur more often than their limit or with
 *     DLOCK_NO_REENTRY. Two handles of one lock in different clients of one server are not noticed: the call waits
 *     until its deadline */
DLOCK_EXPORT int dlock_acquire_all(dlock_lock *const *locks, size_t n, int64_t timeout_ms, struct dlock_error *err);

/* Releases n locks, all of them even after an error, beside a NULL in the list, and without memory.
 *
 * Returns the first error that occurred. Blocks. Errors: as dlock_release. */
DLOCK_EXPORT int dlock_release_all(dlock_lock *const *locks, size_t n, struct dlock_error *err);

/* Acquires whichever of n locks of one client is free first, and stores its index in the list in *which.
 *
 * If several are free, that is the first of them in the list. A try, and the first question of a wait, is one request for
 * up to 256 locks; the other free ones that it takes along are released at once, but another client's try may find them
 * held in between. A wait is a wait for each of them. A lock that the caller holds already is acquired again, as by dlock_acquire, and nothing is asked
 * then. dlock_cancel, dlock_free or dlock_close of any of them ends the call with ECANCELED. Blocks.
 *
 * Errors: as dlock_acquire, and
 *   - EINVAL: n is 0, a handle stands twice in the list, or the locks are of several clients */
DLOCK_EXPORT int dlock_acquire_any(dlock_lock *const *locks, size_t n, int64_t timeout_ms, size_t *which,
                                   struct dlock_error *err);

/* Turns the caller's grant into a ticket that another process can import, and writes it into `ticket`.
 *
 * `size` is at least DLOCK_TICKET_MAX + 1. A ticket is printable, has no spaces, and is as good as the grant itself:
 * keep it private. Afterwards this handle no longer holds the grant, and it is no longer renewed: unless it is imported
 * it ends with its lease, which is restarted here unless it is fixed. Blocks up to the URI's `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend's grants end with their connection
 *   - EINVAL: `size`; acquired more than once; or changed hands 255 times, see dlock_downgrade
 *   - EOWNER: the caller does not hold the lock
 *   - ELOST: the grant has ended
 *   - EUNAVAILABLE: no answer: still held here */
DLOCK_EXPORT int dlock_export(dlock_lock *lock, char *ticket, size_t size, struct dlock_error *err);

/* Takes over the grant that a ticket names, into a new handle that holds it, and stores the handle in *lock.
 *
 * End it with dlock_free(). Restarts the lease, including a fixed one. Mode, limit and lease are the ticket's: leave
 * them zero in `options`, which may be NULL. The fence is greater than the exporter's. If two processes import one
 * ticket both hold the same grant. Blocks up to the URI's `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend's grants end with their connection
 *   - EINVAL: the ticket or the options
 *   - ELOST: the grant has ended
 *   - EUNAVAILABLE: not taken over: the ticket can still be imported */
DLOCK_EXPORT int dlock_import(dlock_client *client, const char *ticket, const struct dlock_options *options,
                              dlock_lock **lock, struct dlock_error *err);

/* ---- looking at locks, for operators ----------------------------------------------------------------------------- */

/* Calls `each` for every holder of `name`; not at all when it is free.
 *
 * The answer may be outdated when it arrives: never decide by it whether to do the protected work. Blocks up to the
 * URI's `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend cannot do that
 *   - EUNAVAILABLE: no answer in time */
DLOCK_EXPORT int dlock_inspect(dlock_client *client, const char *name, dlock_each each, void *arg,
                               struct dlock_error *err);

/* Calls `each` for every waiter in the server's queue for `name`, in its order; not at all when nobody waits there.
 *
 * `held_ms` is how long it has waited, -1 where the server does not know; `fence` is 0. Waiters behind another one of the
 * same process are in no server's queue. Blocks up to the URI's `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend has no queue that can be read
 *   - EUNAVAILABLE: no answer in time */
DLOCK_EXPORT int dlock_waiters(dlock_client *client, const char *name, dlock_each each, void *arg,
                               struct dlock_error *err);

/* Calls `each` for every holder of every held name that begins with `prefix` ("" for all), in no particular order.
 *
 * Blocks up to the URI's `timeout` per page of the walk.
 *
 * Errors:
 *   - ENOTSUP: the backend cannot do that
 *   - EUNAVAILABLE: no answer in time */
DLOCK_EXPORT int dlock_list(dlock_client *client, const char *prefix, dlock_each each, void *arg,
                            struct dlock_error *err);

/* Takes the lock `name` away from its holders; the next waiter gets it.
 *
 * The waiter gets it as soon as the server grants anything (ENOTREADY). The holders learn of it at their next renewal,
 * on Redis, ZooKeeper and mem: at once if they have renewed before, and may be working until then: their fences are
 * smaller. Blocks up to the URI's `timeout`.
 *
 * Errors:
 *   - EOWNER: the name is not held
 *   - ENOTSUP: the backend cannot do that
 *   - EUNAVAILABLE: no answer in time: it may have been taken away. Inspect it before you repeat the call, since the
 *     next holder could lose it */
DLOCK_EXPORT int dlock_break(dlock_client *client, const char *name, struct dlock_error *err);

/* Examines the server's version and settings, and calls `each` for everything that strengthens or weakens locks there.
 *
 * Changes no lock; on a Redis it may write the keys that the first client of a server writes, and a test key for a
 * moment. Blocks up to the URI's `timeout`.
 *
 * Errors:
 *   - ENOTSUP: the backend has nothing to check
 *   - EBUSY: another thread is checking a quorum with this client
 *   - EUNAVAILABLE: no answer in time */
DLOCK_EXPORT int dlock_check(dlock_client *client, dlock_each_finding each, void *arg, struct dlock_error *err);

#ifdef __cplusplus
}
#endif
#endif
