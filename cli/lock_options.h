/* The options that `run` and `acquire` share: which lock, in which mode, and how long to wait for it. */
#ifndef DLOCK_CLI_LOCK_OPTIONS_H
#define DLOCK_CLI_LOCK_OPTIONS_H

#include "cli.h"
#include "signals.h"

#include <dlock/dlock.h>
#include <getopt.h>

struct lock_options {
    const char *uri;
    const char *name;
    const char *label; /* NULL: the URI's */
    int64_t wait_ms;
    int64_t lease_ms;       /* 0: the URI's */
    const char *lease_text; /* the value of -l as it was given */
    enum dlock_mode mode;
    uint32_t limit;      /* DLOCK_PERMIT: how many permits the name has */
    int conflict_status; /* exit status when the lock is not free in time */
    bool nonblock;       /* do not wait, whatever wait_ms says */
    bool verbose;
};
#define LOCK_OPTIONS_INIT \
    { .wait_ms = DLOCK_FOREVER, .conflict_status = STATUS_CONFLICT }

/* The options as getopt_long() takes them, and as the help shows them. */
#define LOCK_OPTIONS_SHORTS "b:w:nl:E:xesp:v"
#define LOCK_OPTIONS(X)                                                                                            \
    X("backend", required_argument, 'b'), X("wait", required_argument, 'w'), X("timeout", required_argument, 'w'), \
        X("nonblock", no_argument, 'n'), X("nb", no_argument, 'n'), X("lease", required_argument, 'l'),            \
        X("conflict-exit-code", required_argument, 'E'), X("exclusive", no_argument, 'x'),                         \
        X("shared", no_argument, 's'), X("permits", required_argument, 'p'), X("label", required_argument, 'A'),   \
        X("verbose", no_argument, 'v')
#define LOCK_OPTIONS_LONG(word, argument, letter) \
    { word, argument, NULL, letter }
#define LOCK_OPTIONS_HELP                                                                                  \
    "  -b, --backend URI              the lock server; default $DLOCK_URI, then file:\n"                   \
    "  -w, --wait, --timeout TIME     give up when the lock is not free in TIME; default: wait for ever\n" \
    "  -n, --nonblock, --nb           give up when the lock is not free now\n"                             \
    "  -x, -e, --exclusive            one holder at a time; the default\n"                                 \
    "  -s, --shared                   many readers at a time, or one exclusive holder\n"                   \
    "  -p, --permits N                one of N permits: up to N holders at a time, all with the same N\n"  \
    "  -E, --conflict-exit-code CODE  exit status on giving up; default 1\n"                               \
    "      --label TEXT               tells people who holds the lock: what it is for, up to 48 bytes\n"   \
    "  -v, --verbose                  say on standard error which holder it waits for, and when it got the lock\n"

/* Reads the option that getopt_long() found; `command` is for error messages. Returns GO_ON, or the exit status. */
enum parsed { GO_ON = -1 };
int lock_options_take(struct lock_options *wanted, const struct command *command, int option);

/* Reads the option's value, a duration, from getopt's `optarg`. Returns GO_ON, or prints what is wrong and returns the
 * exit status. */
int take_duration(const struct command *command, const char *option, int64_t *ms);

/* Returns the flags of the client: with a finite wait the command also waits for a server that is away at the start. */
uint32_t lock_options_flags(const struct lock_options *wanted);

/* Makes the wanted handle, with DLOCK_OWNER_HANDLE; flags and on_lost come from `options`. Returns STATUS_OK, or prints
 * the error and returns the exit status. */
int lock_options_new(const struct lock_options *wanted, dlock_client *client, struct dlock_options options,
                     dlock_lock **lock);

/* Acquires the lock; blocks as long as `wanted` says. Returns GO_ON when it is held; otherwise prints why not (who holds
 * a lock that is not free: only with verbose or to a terminal) and returns the exit status. *sig is the signal that ended the wait, or 0. `why` NULL: not
 * wanted; otherwise its message says who has a lock that is not free, or why it was not acquired. */
int lock_options_wait(const struct lock_options *wanted, dlock_client *client, dlock_lock *lock,
                      const struct signals *signals, int *sig, struct dlock_error *why);

#endif
