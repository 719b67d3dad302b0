#include "lock_options.h"

#include "lease.h"
#include "wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int take_duration(const struct command *command, const char *option, int64_t *ms) {
    struct dlock_error err = {0, ""};
    if (dlock_parse_duration(optarg, ms, &err) == 0) return GO_ON;
    return usage_error(command, "%s: %s", option, err.message);
}

static int take_lease(struct lock_options *wanted, const struct command *command) {
    int status = lease_read(command, optarg, &wanted->lease_ms);
    wanted->lease_text = optarg;
    return status == STATUS_OK ? GO_ON : status;
}

static int take_conflict_status(struct lock_options *wanted, const struct command *command) {
    long number;
    if (!read_number(optarg, 0, 255, &number)) return usage_error(command, "-E takes a number from 0 to 255");
    wanted->conflict_status = (int)number;
    return GO_ON;
}

static int take_mode(struct lock_options *wanted, enum dlock_mode mode, uint32_t limit) {
    wanted->mode = mode;
    wanted->limit = limit;
    return GO_ON;
}

static int take_permits(struct lock_options *wanted, const struct command *command) {
    long number;
    if (!read_number(optarg, 1, DLOCK_LIMIT_MAX, &number))
        return usage_error(command, "-p takes the number of permits, 1 to %d", DLOCK_LIMIT_MAX);
    return take_mode(wanted, DLOCK_PERMIT, (uint32_t)number);
}

int lock_options_take(struct lock_options *wanted, const struct command *command, int option) {
    switch (option) {
    case 'b': wanted->uri = optarg; return GO_ON;
    case 'w': return take_duration(command, "-w", &wanted->wait_ms);
    case 'n': wanted->nonblock = true; return GO_ON;
    case 'l': return take_lease(wanted, command);
    case 'E': return take_conflict_status(wanted, command);
    case 'v': wanted->verbose = true; return GO_ON;
    case 'A': wanted->label = optarg; return GO_ON;
    case 's': return take_mode(wanted, DLOCK_SHARED, 0);
    case 'p': return take_permits(wanted, command);
    default: return take_mode(wanted, DLOCK_EXCLUSIVE, 0); /* -x, -e */
    }
}

uint32_t lock_options_flags(const struct lock_options *wanted) {
    return !wanted->nonblock && wanted->wait_ms > 0 && wanted->wait_ms != DLOCK_FOREVER ? DLOCK_CLIENT_LAZY : 0;
}

int lock_options_new(const struct lock_options *wanted, dlock_client *client, struct dlock_options options,
                     dlock_lock **lock) {
    struct dlock_error err = {0, ""};
    int status = lease_fits(wanted->uri, wanted->lease_text, wanted->lease_ms, client);
    if (status != STATUS_OK) return status;
    options.owner = DLOCK_OWNER_HANDLE; /* acquired on one thread, released on another */
    options.mode = wanted->mode;
    options.limit = wanted->limit;
    options.lease_ms = wanted->lease_ms;
    return dlock_new(client, wanted->name, &options, lock, &err) == 0 ? STATUS_OK : report(&err);
}

/* Whoever sits at a terminal wants to know who has the lock; a job that is not started by hand is silent. If that is not
 * known soon, or the lock is free by now, the message says why it was not acquired. */
static int not_acquired(const struct lock_options *wanted, dlock_client *client, struct dlock_error *err, bool tells) {
    if (err->code != DLOCK_EBUSY && err->code != DLOCK_ETIMEDOUT) return report(err);
    const bool says = wanted->verbose || isatty(STDERR_FILENO);
    const char *who = says || tells ? wait_holders(client, wanted->name) : "";
    if (says && *who)
        note("\"%s\" is held by %s", wanted->name, who);
    else if (says)
        note("%s", err->message);
    if (*who) snprintf(err->message, sizeof err->message, "held by %s", who);
    return wanted->conflict_status;
}

int lock_options_wait(const struct lock_options *wanted, dlock_client *client, dlock_lock *lock,
                      const struct signals *signals, int *sig, struct dlock_error *why) {
    struct dlock_error err = {0, ""};
    const struct wait_plan plan = {client,          lock,   wanted->name, wanted->nonblock ? 0 : wanted->wait_ms,
                                   wanted->verbose, signals};
    int rc = wait_for_lock(&plan, sig, &err);
    /* The status of a signal is never used: the caller dies of it. */
    int status = rc == 0 ? GO_ON : *sig ? STATUS_SOFTWARE : not_acquired(wanted, client, &err, why != NULL);
    if (why) *why = err;
    if (status != GO_ON) return status;
    if (wanted->verbose) note("got \"%s\", fence %" PRIu64, wanted->name, dlock_fence(lock));
    return GO_ON;
}
