#include "wait.h"

#include "cli.h"
#include "holders.h"

#include <dlock/backend.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_REPORT_MS = 50,  /* shorter waits are not reported */
    NEXT_REPORT_MS = 2000, /* longest pause between two checks whether the holder has changed */
    CANCEL_REPEAT_MS = 20  /* dlock_cancel() has no effect on a wait that has not begun yet, so it is repeated */
};

/* A call of dlock_acquire() on a thread of its own; the main thread stays free for signals. */
struct attempt {
    const struct wait_plan *plan;
    int done_fd; /* an eventfd, readable once the call has returned */
    int result;
    struct dlock_error err;
};

static void *attempt_run(void *arg) {
    struct attempt *attempt = arg;
    const uint64_t one = 1;
    attempt->result = dlock_acquire(attempt->plan->lock, attempt->plan->timeout_ms, &attempt->err);
    (void)!write(attempt->done_fd, &one, sizeof one);
    return NULL;
}

static int say_holder(const struct dlock_info *info, void *arg) {
    char *last_token = arg, remaining[32];
    if (strncmp(last_token, info->token, DLOCK_TOKEN_MAX) == 0) return 1;
    snprintf(last_token, DLOCK_TOKEN_MAX + 1, "%s", info->token);
    remaining_text(info->remaining_ms, remaining, sizeof remaining);
    note("waiting for \"%s\": held by %s (lease: %s)", info->name, info->token[0] ? info->token : "somebody",
         remaining);
    return 1;
}

/* The last report of a wait, which is not repeated while it stays true. */
struct said {
    bool not_ready;                  /* the server was reported as granting nothing yet */
    char token[DLOCK_TOKEN_MAX + 1]; /* of the reported holder */
    int code;                        /* the error why the holder is not known; 0: it is known */
};

/* Reports a server that grants nothing yet. That is reported without -v, too: unlike in an ordinary wait, no holder is
 * at work. */
static void say_not_ready(const struct wait_plan *plan, struct said *said) {
    struct dlock_error err = {0, ""};
    bool not_ready = dlock_ready(plan->lock, &err) == DLOCK_ENOTREADY;
    if (not_ready && !said->not_ready) note("waiting for %s", err.message);
    said->not_ready = not_ready;
}

/* Reports the holder, or why it is not known, if that has changed since the last report. */
static void say_whom(const struct wait_plan *plan, struct said *said) {
    struct dlock_error err = {0, ""};
    int code = dlock_inspect(plan->client, plan->name, say_holder, said->token, &err);
    if (code != 0 && code != said->code)
        note("waiting for \"%s\": %s%s", plan->name, code == DLOCK_ENOTSUP ? "held by somebody: " : "", err.message);
    said->code = code;
}

static void say_why(const struct wait_plan *plan, struct said *said) {
    say_not_ready(plan, said);
    if (plan->verbose) say_whom(plan, said);
}

/* Sleeps until the attempt is over, a signal arrives or `timeout_ms` has passed. True if the attempt is over. */
static bool attempt_over(const struct attempt *attempt, int timeout_ms) {
    struct pollfd fds[] = {{attempt->done_fd, POLLIN, 0}, {attempt->plan->signals->fd, POLLIN, 0}};
    return poll(fds, 2, timeout_ms) > 0 && fds[0].revents;
}

/* Reports, and cancels the attempt at the first signal, until the attempt ends. Returns that signal, or 0. */
static int attend(const struct attempt *attempt) {
    const struct wait_plan *plan = attempt->plan;
    struct said said = {.token = "?"};
    int caught = 0, pause_ms = FIRST_REPORT_MS;
    while (!attempt_over(attempt, caught ? CANCEL_REPEAT_MS : pause_ms)) {
        int sig = signals_next(plan->signals);
        if (sig && sig != SIGCHLD && !caught) caught = sig;
        if (caught) {
            dlock_cancel(plan->lock);
            continue;
        }
        if (plan->timeout_ms != 0) say_why(plan, &said); /* a try waits for the server only, not for a holder */
        pause_ms = 2 * pause_ms < NEXT_REPORT_MS ? 2 * pause_ms : NEXT_REPORT_MS;
    }
    return caught;
}

/* On a LOCAL backend a try takes an instant, and no signal has to interrupt it: it needs no thread. */
static bool try_here(const struct wait_plan *plan) {
    return dlock_client_backend(plan->client)->caps & DLOCK_CAP_LOCAL && dlock_acquire(plan->lock, 0, NULL) == 0;
}

/* Starts the thread. Returns 0, or DLOCK_ENOMEM with a message. */
static int start(struct attempt *attempt, pthread_t *thread, struct dlock_error *err) {
    attempt->done_fd = eventfd(0, EFD_CLOEXEC);
    int why = attempt->done_fd < 0 ? errno : pthread_create(thread, NULL, attempt_run, attempt);
    if (why == 0) return 0;
    const char *what = attempt->done_fd < 0 ? "open a descriptor" : "start a thread";
    if (attempt->done_fd >= 0) close(attempt->done_fd);
    return dlock_fail(err, DLOCK_ENOMEM, "cannot %s to wait for the lock: %s%s", what, strerror(why),
                      limit_advice(why));
}

int wait_for_lock(const struct wait_plan *plan, int *sig, struct dlock_error *err) {
    struct attempt attempt = {.plan = plan, .done_fd = -1};
    pthread_t thread;
    *sig = 0;
    if (try_here(plan)) return 0;
    if (start(&attempt, &thread, err) != 0) return DLOCK_ENOMEM;
    int caught = attend(&attempt);
    pthread_join(thread, NULL);
    close(attempt.done_fd);
    if (attempt.result != 0) *err = attempt.err;
    if (!caught) return attempt.result;
    if (attempt.result == 0) dlock_release(plan->lock, NULL);
    *sig = caught;
    return DLOCK_ECANCELED;
}
