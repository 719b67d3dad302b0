#include "supervise.h"

#include "child.h"
#include "cli.h"
#include "job_control.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

struct supervision {
    const struct supervise_plan *plan;
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
static int64_t grace_ms(const struct supervision *supervision) {
    int64_t lease = supervision->lease->longest_ms ? supervision->lease->longest_ms : 10000;
    int64_t asked_for = supervision->plan->policy.kill_after_ms;
    return asked_for ? asked_for : least(lease / 6, 10000);
}

/* How long before the end of its lease a command is killed: dying takes a moment. */
static int64_t margin_ms(const struct supervision *supervision) {
    int64_t lease = supervision->lease->longest_ms;
    return least(lease / 10, 50) > lease / 20 ? least(lease / 10, 50) : least(lease / 20, 1000);
}

/* How long before the end of its lease the lock counts as lost. */
static int64_t notice_ms(const struct supervision *supervision) {
    const struct loss_policy *policy = &supervision->plan->policy;
    switch (policy->action) {
    case LOSS_KILL: return margin_ms(supervision);
    case LOSS_WARN: return 0;
    default: return grace_ms(supervision) + (policy->kill_after_ms ? margin_ms(supervision) : 0);
    }
}

static void terminate(struct supervision *supervision) {
    supervision->kill_at_ms = now_ms() + grace_ms(supervision);
    if (supervision->lease->longest_ms)
        supervision->kill_at_ms =
            least(supervision->kill_at_ms, supervision->lease->valid_until_ms - margin_ms(supervision));
    child_signal(supervision->plan->child, SIGTERM);
}

static void say_lost(const struct supervision *supervision, int64_t remaining_ms, const char *consequence) {
    const struct supervise_plan *plan = supervision->plan;
    char reason[LOSS_REASON_MAX];
    note("lost the lock \"%s\": %s; %s", plan->name,
         loss_reason(plan->loss, supervision->lease, plan->client, reason, remaining_ms), consequence);
}

/* Once. */
static void lock_lost(struct supervision *supervision, int64_t remaining_ms) {
    static const char *const does[] = {"ending the command", "killing the command", "the command goes on without it"};
    enum loss_action action = supervision->plan->policy.action;
    if (supervision->lost) return;
    supervision->lost = true;
    if (action == LOSS_TERM) terminate(supervision);
    if (action == LOSS_KILL) child_signal(supervision->plan->child, SIGKILL);
    say_lost(supervision, remaining_ms, does[action]);
}

static void hear_loss(struct supervision *supervision) {
    uint64_t count;
    if (read(supervision->plan->loss->fd, &count, sizeof count) != (ssize_t)sizeof count) return;
    lock_lost(supervision, 0);
}

static void say_late(const struct supervision *supervision, const char *consequence) {
    note("lost the lock \"%s\": SIGTERM has not ended the command; %s", supervision->plan->name, consequence);
}

/* The command has been told to end and has not. Returns when to look again, as poll() takes it. */
static int kill_late(struct supervision *supervision) {
    int64_t left = supervision->kill_at_ms - now_ms();
    if (supervision->killed) return -1;
    if (left > 0) return (int)least(left, INT_MAX);
    supervision->killed = true;
    child_signal(supervision->plan->child, SIGKILL);
    say_late(supervision, "killing it");
    return -1;
}

/* Looks at the lease and does what is due. Returns for how long there is nothing to do, as poll() takes it. */
static int look_at_lease(struct supervision *supervision) {
    const struct supervise_plan *plan = supervision->plan;
    int64_t remaining = supervision->lost ? 0 : lease_look(supervision->lease, plan->lock);
    if (remaining == DLOCK_FOREVER) return -1;
    if (remaining > notice_ms(supervision)) return (int)least(remaining - notice_ms(supervision), INT_MAX);
    lock_lost(supervision, remaining);
    return plan->policy.action == LOSS_TERM ? kill_late(supervision) : -1;
}

/* ---- stopping and going on --------------------------------------------------------------------------------------- */

static void resume(struct supervision *supervision) {
    supervision->stop_signal = 0;
    terminal_give(supervision->plan->terminal, supervision->plan->child);
    child_signal(supervision->plan->child, SIGCONT);
}

/* The command stopped. Where it wants the terminal and our job has it, it gets it. Otherwise the job stops, too, as its
 * user expects, while the lock stays held and renewed. Without a job process nobody waits for us to stop. */
static void command_stopped(struct supervision *supervision, int sig) {
    const struct supervise_plan *plan = supervision->plan;
    bool asks_for_terminal = sig == SIGTTIN || sig == SIGTTOU;
    supervision->stop_signal = sig;
    if (asks_for_terminal && terminal_give(plan->terminal, plan->child)) {
        resume(supervision);
        return;
    }
    terminal_take_back(plan->terminal, plan->child);
    job_tell(plan->job, JOB_STOP);
}

static void hear_stop(struct supervision *supervision) {
    int sig = child_stopped(supervision->plan->child);
    if (sig) command_stopped(supervision, sig);
}

static void hear_job(struct supervision *supervision) {
    char answer;
    if (read(supervision->plan->job, &answer, 1) != 1) return; /* it died, and so shall we */
    if (answer == JOB_ORPHANED && (supervision->stop_signal == SIGTTIN || supervision->stop_signal == SIGTTOU)) {
        /* It will never get the terminal: the same end that the kernel gives to stopped orphans. */
        child_signal(supervision->plan->child, SIGHUP);
    }
    resume(supervision);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void pass_on(struct supervision *supervision, int sig) {
    hear_stop(supervision); /* its SIGCHLD may be behind this signal */
    if (sig != SIGCONT) child_signal(supervision->plan->child, sig);
    if (sig != SIGCONT && sig != SIGTSTP) supervision->passed_on = sig;
    /* A stopped command could not act on what asks it to end. */
    if (sig == SIGCONT || (supervision->stop_signal && sig != SIGTSTP)) resume(supervision);
}

/* Returns true once the command has ended. */
static bool hear_signals(struct supervision *supervision) {
    pid_t child = supervision->plan->child;
    for (int sig; (sig = signals_next(supervision->plan->signals)) != 0;) {
        if (sig != SIGCHLD) {
            pass_on(supervision, sig);
            continue;
        }
        if (child_ended(child, &supervision->fatal_signal)) return true;
        hear_stop(supervision);
    }
    return false;
}

/* The guardian was first: we stood still, or did not hear of the end of the lease before that of the command. */
static void killed_by_guardian(struct supervision *supervision) {
    const bool late = supervision->lost && supervision->plan->policy.action == LOSS_TERM && !supervision->killed;
    if (late) say_late(supervision, "the guardian has killed it");
    if (supervision->lost) return;
    supervision->lost = true;
    int64_t remaining = lease_look(supervision->lease, supervision->plan->lock);
    say_lost(supervision, remaining, "the guardian has killed the command");
}

/* The command has ended, and is still to be waited for. */
static struct ending end(struct supervision *supervision) {
    const struct supervise_plan *plan = supervision->plan;
    bool warns = plan->policy.action == LOSS_WARN;
    /* Once it is waited for, its number may become another's. */
    if (dlock_client_guard(plan->client, 0, NULL) == DLOCK_ELOST) killed_by_guardian(supervision);
    /* What it left behind in its process group may be at work on what the lock no longer protects. */
    if (supervision->lost && !warns) child_signal(plan->child, SIGKILL);
    bool had_terminal = terminal_take_back(plan->terminal, plan->child);
    int status = child_reap(plan->child);
    if (had_terminal && supervision->fatal_signal == SIGINT) job_tell(plan->job, JOB_INTERRUPTED);
    bool from_terminal = had_terminal && (supervision->fatal_signal == SIGINT || supervision->fatal_signal == SIGQUIT);
    if (supervision->lost && warns)
        note("the command has ended with status %d, without the lock \"%s\"", status, plan->name);
    return (struct ending){supervision->lost ? STATUS_LOST : status, supervision->lost,
                           from_terminal ? supervision->fatal_signal : supervision->passed_on, now_ms()};
}

struct ending supervise_command(const struct supervise_plan *plan) {
    struct supervision supervision = {.plan = plan, .lease = plan->lease};
    bool ended = false;
    job_tell(plan->job, JOB_RUNNING);
    while (!ended) {
        struct pollfd fds[] = {{plan->signals->fd, POLLIN, 0}, {plan->loss->fd, POLLIN, 0}, {plan->job, POLLIN, 0}};
        if (poll(fds, 3, look_at_lease(&supervision)) < 0) continue;
        if (fds[1].revents) hear_loss(&supervision);
        if (fds[2].revents) hear_job(&supervision);
        if (fds[0].revents) ended = hear_signals(&supervision);
    }
    return end(&supervision);
}
