#include "wish.h"

#include "lease.h"
#include "wait.h"

#include <inttypes.h>

int wish_duration(const struct command *command, const char *option, int64_t *ms) {
    struct dlock_error err = {0, ""};
    if (dlock_parse_duration(optarg, ms, &err) == 0) return GO_ON;
    return usage_error(command, "%s: %s", option, err.message);
}

static int take_lease(struct wish *wish, const struct command *command) {
    int status = lease_read(command, optarg, &wish->lease_ms);
    wish->lease_text = optarg;
    return status == STATUS_OK ? GO_ON : status;
}

static int take_conflict_status(struct wish *wish, const struct command *command) {
    long number;
    if (!read_number(optarg, 0, 255, &number)) return usage_error(command, "-E takes a number from 0 to 255");
    wish->conflict_status = (int)number;
    return GO_ON;
}

static int take_mode(struct wish *wish, enum dlock_mode mode, uint32_t limit) {
    wish->mode = mode;
    wish->limit = limit;
    return GO_ON;
}

static int take_permits(struct wish *wish, const struct command *command) {
    long number;
    if (!read_number(optarg, 1, DLOCK_LIMIT_MAX, &number))
        return usage_error(command, "-p takes the number of permits that there are, 1 to %d", DLOCK_LIMIT_MAX);
    return take_mode(wish, DLOCK_PERMIT, (uint32_t)number);
}

int wish_option(struct wish *wish, const struct command *command, int option) {
    switch (option) {
    case 'b': wish->uri = optarg; return GO_ON;
    case 'w': return wish_duration(command, "-w", &wish->wait_ms);
    case 'n': wish->nonblock = true; return GO_ON;
    case 'l': return take_lease(wish, command);
    case 'E': return take_conflict_status(wish, command);
    case 'v': wish->verbose = true; return GO_ON;
    case 's': return take_mode(wish, DLOCK_SHARED, 0);
    case 'p': return take_permits(wish, command);
    default: return take_mode(wish, DLOCK_EXCLUSIVE, 0); /* -x, -e */
    }
}

int wish_new(const struct wish *wish, dlock_client *client, struct dlock_options options, dlock_lock **lock) {
    struct dlock_error err = {0, ""};
    int status = lease_fits(wish->uri, wish->lease_text, wish->lease_ms, client);
    if (status != STATUS_OK) return status;
    options.owner = DLOCK_OWNER_HANDLE; /* acquired on one thread, released on another */
    options.mode = wish->mode;
    options.limit = wish->limit;
    options.lease_ms = wish->lease_ms;
    return dlock_new(client, wish->name, &options, lock, &err) == 0 ? STATUS_OK : report(&err);
}

static int not_acquired(const struct wish *wish, const struct dlock_error *err) {
    if (err->code != DLOCK_EBUSY && err->code != DLOCK_ETIMEDOUT) return report(err);
    if (wish->verbose) note("%s", err->message);
    return wish->conflict_status;
}

int wish_wait(const struct wish *wish, dlock_client *client, dlock_lock *lock, const struct signals *signals,
              int *sig) {
    struct dlock_error err = {0, ""};
    const struct wait_plan plan = {client,        lock,   wish->name, wish->nonblock ? 0 : wish->wait_ms,
                                   wish->verbose, signals};
    int rc = wait_for_lock(&plan, sig, &err);
    if (*sig) return STATUS_SOFTWARE; /* not read: we die of it */
    if (rc != 0) return not_acquired(wish, &err);
    if (wish->verbose) note("got \"%s\", fence %" PRIu64, wish->name, dlock_fence(lock));
    return GO_ON;
}
