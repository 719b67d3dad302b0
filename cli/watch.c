#include "watch.h"

#include "child.h"
#include "cli.h"
#include "job_control.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

struct watch {
    const struct watch_plan *plan;
    struct lease *lease;
    bool lost;          /* the lock is, or nearly so */
    int64_t kill_at_ms; /* then, after SIGTERM */
    bool killed;        /* that has come */
    int stop_signal;    /* what stopped the command; 0: it runs */
    int passed_on;      /* the last signal that was passed on to it to end it; 0: none */
    int fatal_signal;   /* what killed it; 0: it exited */
};

/* ---- the lease --------------------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* How long a command has between SIGTERM and SIGKILL. By itself a sixth of the lease: renewals are due every third of
 * it, so with less than a sixth left several have failed. */
static int64_t grace_ms(const struct watch *watch) {
    int64_t lease = watch->lease->longest_ms ? watch->lease->longest_ms : 10000;
    int64_t asked_for = watch->plan->policy.kill_after_ms;
    return asked_for ? asked_for : least(lease / 6, 10000);
}

/* How long before the end of its lease a command is killed: dying takes a moment. */
static int64_t margin_ms(const struct watch *watch) {
    int64_t lease = watch->lease->longest_ms;
    return least(lease / 10, 50) > lease / 20 ? least(lease / 10, 50) : least(lease / 20, 1000);
}

/* How long before the end of its lease the lock counts as lost. */
static int64_t notice_ms(const struct watch *watch) {
    const struct loss_policy *policy = &watch->plan->policy;
    switch (policy->action) {
    case LOSS_KILL: return margin_ms(watch);
    case LOSS_WARN: return 0;
    default: return grace_ms(watch) + (policy->kill_after_ms ? margin_ms(watch) : 0);
    }
}

static void terminate(struct watch *watch) {
    watch->kill_at_ms = now_ms() + grace_ms(watch);
    if (watch->lease->longest_ms)
        watch->kill_at_ms = least(watch->kill_at_ms, watch->lease->valid_until_ms - margin_ms(watch));
    child_signal(watch->plan->child, SIGTERM);
}

/* Once. */
static void lock_lost(struct watch *watch, int64_t remaining_ms) {
    static const char *const does[] = {"ending the command", "killing the command", "the command goes on without it"};
    const struct watch_plan *plan = watch->plan;
    enum loss_action action = plan->policy.action;
    char reason[LOSS_REASON_MAX];
    if (watch->lost) return;
    watch->lost = true;
    if (action == LOSS_TERM) terminate(watch);
    if (action == LOSS_KILL) child_signal(plan->child, SIGKILL);
    note("lost the lock \"%s\": %s; %s", plan->name,
         loss_reason(plan->loss, watch->lease, plan->client, reason, remaining_ms), does[action]);
}

static void hear_loss(struct watch *watch) {
    uint64_t count;
    if (read(watch->plan->loss->fd, &count, sizeof count) != (ssize_t)sizeof count) return;
    lock_lost(watch, 0);
}

/* The command has been told to end and has not. Returns when to look again, as poll() takes it. */
static int kill_late(struct watch *watch) {
    int64_t left = watch->kill_at_ms - now_ms();
    if (watch->killed) return -1;
    if (left > 0) return (int)least(left, INT_MAX);
    watch->killed = true;
    child_signal(watch->plan->child, SIGKILL);
    note("lost the lock \"%s\": SIGTERM has not ended the command; killing it", watch->plan->name);
    return -1;
}

/* Looks at the lease and does what is due. Returns for how long there is nothing to do, as poll() takes it. */
static int look_at_lease(struct watch *watch) {
    const struct watch_plan *plan = watch->plan;
    int64_t remaining = watch->lost ? 0 : lease_look(watch->lease, plan->lock);
    if (remaining == DLOCK_FOREVER) return -1;
    if (remaining > notice_ms(watch)) return (int)least(remaining - notice_ms(watch), INT_MAX);
    lock_lost(watch, remaining);
    return plan->policy.action == LOSS_TERM ? kill_late(watch) : -1;
}

/* ---- stopping and going on --------------------------------------------------------------------------------------- */

static void resume(struct watch *watch) {
    watch->stop_signal = 0;
    terminal_give(watch->plan->terminal, watch->plan->child);
    child_signal(watch->plan->child, SIGCONT);
}

/* The command stopped. Where it wants the terminal and our job has it, it gets it. Otherwise the job stops, too, as its
 * user expects, while the lock stays held and renewed. Without a job process nobody waits for us to stop. */
static void command_stopped(struct watch *watch, int sig) {
    const struct watch_plan *plan = watch->plan;
    bool asks_for_terminal = sig == SIGTTIN || sig == SIGTTOU;
    watch->stop_signal = sig;
    if (asks_for_terminal && terminal_give(plan->terminal, plan->child)) {
        resume(watch);
        return;
    }
    terminal_take_back(plan->terminal, plan->child);
    job_tell(plan->job, JOB_STOP);
}

static void hear_job(struct watch *watch) {
    char answer;
    if (read(watch->plan->job, &answer, 1) != 1) return; /* it died, and so shall we */
    if (answer == JOB_ORPHANED && (watch->stop_signal == SIGTTIN || watch->stop_signal == SIGTTOU)) {
        /* It will never get the terminal: the same end that the kernel gives to stopped orphans. */
        child_signal(watch->plan->child, SIGHUP);
    }
    resume(watch);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void pass_on(struct watch *watch, int sig) {
    if (sig != SIGCONT) child_signal(watch->plan->child, sig);
    if (sig != SIGCONT && sig != SIGTSTP) watch->passed_on = sig;
    /* A stopped command could not act on what asks it to end. */
    if (sig == SIGCONT || (watch->stop_signal && sig != SIGTSTP)) resume(watch);
}

/* Returns true once the command has ended. */
static bool hear_signals(struct watch *watch) {
    pid_t child = watch->plan->child;
    for (int sig; (sig = signals_next(watch->plan->signals)) != 0;) {
        if (sig != SIGCHLD) {
            pass_on(watch, sig);
            continue;
        }
        if (child_ended(child, &watch->fatal_signal)) return true;
        int stop = child_stopped(child);
        if (stop) command_stopped(watch, stop);
    }
    return false;
}

/* The command has ended, and is still to be waited for. */
static struct ending end(const struct watch *watch) {
    const struct watch_plan *plan = watch->plan;
    bool warns = plan->policy.action == LOSS_WARN;
    /* What it left behind in its process group may be at work on what the lock no longer protects. */
    if (watch->lost && !warns) child_signal(plan->child, SIGKILL);
    bool had_terminal = terminal_take_back(plan->terminal, plan->child);
    dlock_client_guard(plan->client, 0, NULL); /* once it is waited for, its number may become another's */
    int status = child_reap(plan->child);
    if (had_terminal && watch->fatal_signal == SIGINT) job_tell(plan->job, JOB_INTERRUPTED);
    bool from_terminal = had_terminal && (watch->fatal_signal == SIGINT || watch->fatal_signal == SIGQUIT);
    if (watch->lost && warns) note("the command has ended with status %d, without the lock \"%s\"", status, plan->name);
    return (struct ending){watch->lost ? STATUS_LOST : status, watch->lost,
                           from_terminal ? watch->fatal_signal : watch->passed_on, now_ms()};
}

struct ending watch_command(const struct watch_plan *plan) {
    struct watch watch = {.plan = plan, .lease = plan->lease};
    bool ended = false;
    job_tell(plan->job, JOB_RUNNING);
    while (!ended) {
        struct pollfd fds[] = {{plan->signals->fd, POLLIN, 0}, {plan->loss->fd, POLLIN, 0}, {plan->job, POLLIN, 0}};
        if (poll(fds, 3, look_at_lease(&watch)) < 0) continue;
        if (fds[1].revents) hear_loss(&watch);
        if (fds[2].revents) hear_job(&watch);
        if (fds[0].revents) ended = hear_signals(&watch);
    }
    return end(&watch);
}
