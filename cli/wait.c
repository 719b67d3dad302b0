#include "wait.h"

#include "cli.h"
#include "holders.h"
#include "loss.h"

#include <dlock/backend.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_REPORT_MS = 50,    /* shorter waits are not reported */
    NEXT_REPORT_MS = 2000,   /* longest pause between two checks whether the holder has changed */
    OUTAGE_REPORT_MS = 1000, /* shorter outages are not reported */
    LAST_WORD_S = 1,         /* for the answer who has the lock, after the wait */
    READY_MS = 100           /* a try asks a server in its quarantine so often whether that is over */
};

/* A call of dlock_acquire() on its own thread; the main thread stays free for signals. */
struct attempt {
    const struct wait_plan *plan;
    int done_fd; /* an eventfd, readable once the call has returned */
    int result;
    struct dlock_error err;
};

/* A try is about other holders. In a quarantine there is none, so it is repeated until the server grants something:
 * otherwise a job that every host tries would run on none. */
static void *attempt_run(void *arg) {
    struct attempt *attempt = arg;
    const struct wait_plan *plan = attempt->plan;
    const uint64_t one = 1;
    do attempt->result = dlock_acquire(plan->lock, plan->timeout_ms, &attempt->err);
    while (plan->timeout_ms == 0 && attempt->result == DLOCK_ENOTREADY && poll(NULL, 0, READY_MS) == 0);
    (void)!write(attempt->done_fd, &one, sizeof one);
    return NULL;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* The question who the holder is, which the server may leave unanswered for the URI's `timeout`. Its own thread
 * asks it, so that the wait can end meanwhile, and signals are seen. A process waits for one lock, so there is one. */
static struct {
    dlock_client *client;
    const char *name;
    pthread_t thread;
    bool asked;                      /* there is a thread to join */
    atomic_bool answered;            /* it is about to end */
    pthread_mutex_t mutex;           /* held for a report, so that none comes after the wait's end */
    bool over;                       /* the wait has ended: no reports any more */
    char who[HOLDERS_TEXT_MAX];      /* the last answer; "": nobody, or not known */
    char token[DLOCK_TOKEN_MAX + 1]; /* of the holder reported last */
    int code;                        /* the error reported last, why the holder is not known; 0: it is known */
} question = {.mutex = PTHREAD_MUTEX_INITIALIZER, .token = "?"};

/* Reports the holders if the first is another one than at the last report, or why they are not known. */
static void say_holders(const struct holders *holders, int code, const struct dlock_error *err) {
    const struct dlock_info *first = holders->items;
    char remaining[32];
    if (code != 0 && code != question.code)
        note("waiting for \"%s\": %s%s", question.name, code == DLOCK_ENOTSUP ? "held by somebody: " : "",
             err->message);
    if (!*question.who || strncmp(question.token, first->token, DLOCK_TOKEN_MAX) == 0) return;
    snprintf(question.token, sizeof question.token, "%s", first->token);
    note("waiting for \"%s\": held by %s (lease: %s)", question.name, question.who,
         time_text(first->remaining_ms, remaining));
}

static void *ask(void *arg) {
    struct dlock_error err = {0, ""};
    struct holders holders = {0};
    int code = dlock_inspect(question.client, question.name, holders_keep, &holders, &err);
    holders_sort(&holders);
    pthread_mutex_lock(&question.mutex);
    question.who[0] = '\0';
    if (code == 0 && holders.n > 0) holders_text(&holders, question.who);
    if (!question.over) say_holders(&holders, code, &err);
    question.code = code;
    pthread_mutex_unlock(&question.mutex);
    holders_free(&holders);
    question.answered = true;
    return arg;
}

/* Asks who the holder is, unless the last such question is not answered yet. */
static void ask_whom(dlock_client *client, const char *name) {
    if (question.asked && !question.answered) return;
    wait_end();
    question.client = client;
    question.name = name;
    question.answered = false;
    question.asked = pthread_create(&question.thread, NULL, ask, NULL) == 0; /* else the next report tries again */
}

const char *wait_holders(dlock_client *client, const char *name) {
    struct timespec until;
    ask_whom(client, name);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_WORD_S;
    if (question.asked && pthread_timedjoin_np(question.thread, NULL, &until) != 0) return "";
    question.asked = false;
    return question.who;
}

void wait_end(void) {
    if (question.asked) pthread_join(question.thread, NULL);
    question.asked = false;
}

static void end_reports(void) {
    pthread_mutex_lock(&question.mutex);
    question.over = true;
    pthread_mutex_unlock(&question.mutex);
}

/* What was reported of a server that grants nothing. */
struct trouble {
    int code;         /* of the last report; 0: it grants something, as far as is known */
    int64_t since_ms; /* since when it is unavailable, or refuses; 0: it does not */
    char why[sizeof((struct dlock_error *)0)->message];
};

/* Reports a server that grants nothing yet, or that has been unavailable or has refused for a second, unless the last
 * report says the same. That is reported without -v as well: unlike in an ordinary wait, no holder is at work. */
static void say_trouble(const struct wait_plan *plan, struct trouble *said) {
    struct dlock_error err = {0, ""};
    int code = dlock_ready(plan->lock, &err);
    bool outage = code == DLOCK_EUNAVAILABLE || code == DLOCK_EAUTH;
    if (!outage)
        said->since_ms = 0;
    else if (said->since_ms == 0)
        said->since_ms = now_ms();
    if (outage && now_ms() - said->since_ms < OUTAGE_REPORT_MS) return;
    if (code == DLOCK_ENOTREADY && said->code != code) note("waiting for %s", err.message);
    if (outage && (said->code != code || strcmp(said->why, err.message) != 0)) {
        note("waiting for \"%s\": %s", plan->name, err.message);
        snprintf(said->why, sizeof said->why, "%s", err.message);
    }
    said->code = code;
}

/* ---- the wait ---------------------------------------------------------------------------------------------------- */

/* Sleeps until the attempt is over, a signal arrives or `timeout_ms` has passed. True if the attempt is over. */
static bool attempt_over(const struct attempt *attempt, int timeout_ms) {
    struct pollfd fds[] = {{attempt->done_fd, POLLIN, 0}, {attempt->plan->signals->fd, POLLIN, 0}};
    return poll(fds, 2, timeout_ms) > 0 && fds[0].revents;
}

/* Reports until the attempt ends, which a signal makes it do. Returns that signal, or 0. */
static int attend(struct attempt *attempt) {
    const struct wait_plan *plan = attempt->plan;
    struct trouble said = {0};
    int caught = 0, pause_ms = FIRST_REPORT_MS;
    while (!attempt_over(attempt, pause_ms)) {
        int sig = signals_next(plan->signals);
        if (sig && sig != SIGCHLD && !caught) {
            caught = sig;
            dlock_client_stop(plan->client);
        }
        if (caught) continue;
        say_trouble(plan, &said);
        if (plan->timeout_ms != 0 && plan->verbose)
            ask_whom(plan->client, plan->name); /* a try waits for the server, not for a holder */
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
    end_reports();
    if (attempt.result != 0) *err = attempt.err;
    if (!caught) return attempt.result;
    if (attempt.result == 0) dlock_release(plan->lock, NULL);
    *sig = caught;
    return DLOCK_ECANCELED;
}
