#include "supervise.h"

#include "child.h"
#include "cli.h"
#include "job_control.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct supervision {
    const struct supervise_plan *plan;
    struct lease *lease;
    bool lost;          /* the lock is lost, or will be before a renewal can be expected */
    int64_t kill_at_ms; /* when to send SIGKILL after SIGTERM, by now_ms() */
    bool killed;        /* kill_at_ms has come, and SIGKILL was sent */
    bool out_of_reach;  /* it is said that the command cannot be killed */
    int stop_signal;    /* the signal that stopped the command; 0: it runs */
    int passed_on;      /* the last signal to end the command that was passed on to it; 0: none */
    int fatal_signal;   /* the signal that killed the command; 0: it exited */
};

/* ---- the lease --------------------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Returns the time between SIGTERM and SIGKILL. The default is a sixth of the lease: renewals are due every third of
 * it, so when less than a sixth is left several have failed. */
static int64_t grace_ms(const struct supervision *supervision) {
    int64_t lease = supervision->lease->longest_ms ? supervision->lease->longest_ms : 10000;
    int64_t asked_for = supervision->plan->policy.kill_after_ms;
    return asked_for ? asked_for : least(lease / 6, 10000);
}

/* Returns how long before the end of the lease the command is killed: its death takes a moment. */
static int64_t margin_ms(const struct supervision *supervision) {
    int64_t lease = supervision->lease->longest_ms;
    return least(lease / 10, 50) > lease / 20 ? least(lease / 10, 50) : least(lease / 20, 1000);
}

/* Returns how long before the end of its lease the lock is treated as lost. */
static int64_t notice_ms(const struct supervision *supervision) {
    const struct loss_policy *policy = &supervision->plan->policy;
    switch (policy->action) {
    case LOSS_KILL: return margin_ms(supervision);
    case LOSS_WARN: return 0;
    default: return grace_ms(supervision) + (policy->kill_after_ms ? margin_ms(supervision) : 0);
    }
}

/* Returns child_signal()'s return value. */
static int terminate(struct supervision *supervision) {
    supervision->kill_at_ms = now_ms() + grace_ms(supervision);
    if (supervision->lease->longest_ms)
        supervision->kill_at_ms =
            least(supervision->kill_at_ms, supervision->lease->valid_until_ms - margin_ms(supervision));
    return child_signal(supervision->plan->child, SIGTERM);
}

static void say_lost(const struct supervision *supervision, int64_t remaining_ms, const char *consequence) {
    const struct supervise_plan *plan = supervision->plan;
    char reason[LOSS_REASON_MAX];
    note("lost the lock \"%s\": %s; %s", plan->name,
         loss_reason(plan->loss, supervision->lease, plan->lock, reason, remaining_ms), consequence);
}

/* Does what the policy says about a lost lock, at the first call only. */
static void lock_lost(struct supervision *supervision, int64_t remaining_ms) {
    static const char *const does[] = {"ending the command", "killing the command", "the command goes on without it"};
    enum loss_action action = supervision->plan->policy.action;
    char goes_on[128];
    if (supervision->lost) return;
    supervision->lost = true;
    int why = 0;
    if (action == LOSS_TERM) why = terminate(supervision);
    if (action == LOSS_KILL) why = child_signal(supervision->plan->child, SIGKILL);
    supervision->out_of_reach = why != 0;
    if (why != 0) snprintf(goes_on, sizeof goes_on, "the command goes on, as it cannot be killed: %s", strerror(why));
    say_lost(supervision, remaining_ms, why != 0 ? goes_on : does[action]);
}

static void lock_wanted(const struct supervision *supervision) {
    const struct supervise_plan *plan = supervision->plan;
    if (plan->verbose)
        note("another client asks for \"%s\": %s to the command", plan->name, signals_name(plan->wanted_signal));
    child_signal(plan->child, plan->wanted_signal);
}

static void hear_callbacks(struct supervision *supervision) {
    struct loss_news news = loss_read(supervision->plan->loss);
    if (news.lost) lock_lost(supervision, 0);
    if (news.wanted && !supervision->lost) lock_wanted(supervision);
}

static void say_late(const struct supervision *supervision, const char *consequence) {
    note("lost the lock \"%s\": SIGTERM has not ended the command; %s", supervision->plan->name, consequence);
}

/* Sends SIGKILL when the time after SIGTERM is over. Returns the time until then as poll()'s timeout; -1: it is sent.
 * */
static int kill_late(struct supervision *supervision) {
    int64_t left = supervision->kill_at_ms - now_ms();
    if (supervision->killed) return -1;
    if (left > 0) return (int)least(left, INT_MAX);
    supervision->killed = true;
    bool sent = child_signal(supervision->plan->child, SIGKILL) == 0;
    if (sent || !supervision->out_of_reach) say_late(supervision, sent ? "killing it" : "it cannot be killed");
    return -1;
}

/* Reads the lease and does what is due. Returns the time until the next call, as poll()'s timeout. */
static int look_at_lease(struct supervision *supervision) {
    const struct supervise_plan *plan = supervision->plan;
    int64_t remaining = supervision->lost ? 0 : lease_look(supervision->lease, plan->lock);
    if (remaining == DLOCK_FOREVER) return -1;
    if (remaining > notice_ms(supervision)) return (int)least(remaining - notice_ms(supervision), INT_MAX);
    lock_lost(supervision, remaining);
    return plan->policy.action == LOSS_TERM ? kill_late(supervision) : -1;
}

/* ---- stop and continue ------------------------------------------------------------------------------------------- */

static void resume(struct supervision *supervision) {
    supervision->stop_signal = 0;
    terminal_give(supervision->plan->terminal, supervision->plan->child);
    child_signal(supervision->plan->child, SIGCONT);
}

/* Handles a stop of the command. If the command stopped because it wants the terminal, and our job has the terminal,
 * the command gets it and continues. Otherwise the job process also stops, as its user expects, while the lock stays
 * held and renewed. Without a job process there is no shell that waits for the job to stop. */
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
    if (read(supervision->plan->job, &answer, 1) != 1) return; /* the job process died, and so will we: PDEATHSIG */
    if (answer == JOB_ORPHANED && (supervision->stop_signal == SIGTTIN || supervision->stop_signal == SIGTTOU)) {
        /* The command will never get the terminal. It gets SIGHUP and SIGCONT, as the kernel sends them to the stopped
         * members of a process group that becomes orphaned. */
        child_signal(supervision->plan->child, SIGHUP);
    }
    resume(supervision);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void pass_on(struct supervision *supervision, int sig) {
    hear_stop(supervision); /* the command may have stopped, and its SIGCHLD come behind this signal */
    int why = sig == SIGCONT ? 0 : child_signal(supervision->plan->child, sig);
    if (why != 0) note("signal %d (%s) cannot be passed on to the command: %s", sig, strsignal(sig), strerror(why));
    if (signals_asks_to_end(sig)) supervision->passed_on = sig;
    /* A stopped command could not act on a signal that asks it to end. */
    if (sig == SIGCONT || (supervision->stop_signal && signals_asks_to_end(sig))) resume(supervision);
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
        child_reap_orphans(child);
    }
    return false;
}

/* Reports that the guardian killed the command at the end of the lease: this process was stopped until then, or the
 * command's end was noticed before the lease's. */
static void killed_by_guardian(struct supervision *supervision) {
    const bool late = supervision->lost && supervision->plan->policy.action == LOSS_TERM && !supervision->killed;
    if (late) say_late(supervision, "the guardian has killed it");
    if (supervision->lost) return;
    supervision->lost = true;
    int64_t remaining = lease_look(supervision->lease, supervision->plan->lock);
    say_lost(supervision, remaining, "the guardian has killed the command");
}

/* Finishes after the command's end, and reaps it. */
static struct ending end(struct supervision *supervision) {
    const struct supervise_plan *plan = supervision->plan;
    bool warns = plan->policy.action == LOSS_WARN;
    /* The guardian must let go of the group before the child is reaped: from then on its number may be reused. */
    if (dlock_client_guard(plan->client, 0, NULL) == DLOCK_ELOST) killed_by_guardian(supervision);
    /* Processes that the command left in its group may still work on what the lock no longer protects. */
    if (supervision->lost && !warns) child_signal(plan->child, SIGKILL);
    bool had_terminal = terminal_take_back(plan->terminal, plan->child);
    int status = child_reap(plan->child);
    if (had_terminal && supervision->fatal_signal == SIGINT) job_tell(plan->job, JOB_INTERRUPTED);
    bool from_terminal = had_terminal && (supervision->fatal_signal == SIGINT || supervision->fatal_signal == SIGQUIT);
    if (supervision->lost && warns)
        note("the command has ended with status %d, without the lock \"%s\"", status, plan->name);
    return (struct ending){supervision->lost ? STATUS_LOST : status, supervision->lost,
                           from_terminal ? supervision->fatal_signal : supervision->passed_on,
                           !supervision->lost && supervision->fatal_signal == SIGINT &&
                               supervision->passed_on == SIGINT,
                           now_ms()};
}

struct ending supervise_command(const struct supervise_plan *plan) {
    struct supervision supervision = {.plan = plan, .lease = plan->lease};
    bool ended = false;
    job_tell(plan->job, JOB_RUNNING);
    while (!ended) {
        struct pollfd fds[] = {{plan->signals->fd, POLLIN, 0}, {plan->loss->fd, POLLIN, 0}, {plan->job, POLLIN, 0}};
        if (poll(fds, 3, look_at_lease(&supervision)) < 0) continue;
        if (fds[1].revents) hear_callbacks(&supervision);
        if (fds[2].revents) hear_job(&supervision);
        if (fds[0].revents) ended = hear_signals(&supervision);
    }
    return end(&supervision);
}
