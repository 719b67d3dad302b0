#include "hold.h"

#include "child.h"
#include "cli.h"
#include "holders.h"
#include "job_control.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

enum {
    WORTH_A_WORD_MS = 500, /* shortest rest of the hold that is announced on a terminal; -v announces every one */
    LOOKS = 8              /* how often the lease is read within its length, so that no renewal is missed */
};

struct hold {
    const struct hold_plan *plan;
    struct ending *ending;
    int sig; /* the first signal that ended the hold; 0: none yet */
};

static int64_t left_ms(const struct hold_plan *plan) {
    int64_t left = plan->until_ms - now_ms();
    return left > 0 ? left : 0;
}

static void say_held(const struct hold *hold) {
    const struct hold_plan *plan = hold->plan;
    char left[32];
    if (!plan->verbose && (!isatty(STDERR_FILENO) || left_ms(plan) < WORTH_A_WORD_MS)) return;
    time_text(left_ms(plan), left);
    note("the command has ended with status %d; \"%s\" is held for another %s (--hold)%s", hold->ending->status,
         plan->command->name, left, isatty(STDERR_FILENO) ? ", Ctrl-C releases it" : "");
}

static void say_interrupted(const struct hold_plan *plan, int sig) {
    char left[32];
    time_text(left_ms(plan), left);
    note("%s: \"%s\" is released %s before the end of --hold", signals_name(sig), plan->command->name, left);
}

/* Takes note that the lock was lost. The command has ended, so its status changes only if the lock may have been lost
 * while the command still ran. */
static void hear_loss(const struct hold *hold) {
    const struct hold_plan *plan = hold->plan;
    bool too_late =
        lease_ended(plan->command->lease) || lease_confirmed_since(plan->command->lease, hold->ending->at_ms);
    char reason[LOSS_REASON_MAX];
    hold->ending->lost = true;
    if (!too_late) hold->ending->status = STATUS_LOST;
    note("lost the lock \"%s\" during --hold: %s; %s", plan->command->name,
         loss_reason(plan->command->loss, plan->command->lease, plan->command->lock, reason, 0),
         too_late ? "the command had ended before" : "perhaps before the command ended");
}

static void hear_signals(struct hold *hold) {
    for (int sig; (sig = signals_next(hold->plan->command->signals)) != 0;) {
        if (sig == SIGTSTP)
            job_tell(hold->plan->command->job, JOB_STOP); /* the job process stops; we continue to hold the lock */
        else if (sig == SIGCHLD)
            child_reap_orphans(0); /* the command is reaped already */
        else if (signals_asks_to_end(sig) && !hold->sig)
            hold->sig = sig;
    }
}

/* Reads the lease. Returns the time until the next read or the end of the hold, as poll()'s timeout. */
static int look(const struct hold_plan *plan) {
    int64_t pause = left_ms(plan);
    if (lease_look(plan->command->lease, plan->command->lock) != DLOCK_FOREVER &&
        plan->command->lease->longest_ms / LOOKS < pause)
        pause = plan->command->lease->longest_ms / LOOKS;
    return (int)(pause < INT_MAX ? pause : INT_MAX);
}

static void wait_for_end(struct hold *hold) {
    const struct hold_plan *plan = hold->plan;
    char answer;
    while (left_ms(plan) > 0 && !hold->sig && !hold->ending->lost) {
        struct pollfd fds[] = {{plan->command->loss->fd, POLLIN, 0},
                               {plan->command->signals->fd, POLLIN, 0},
                               {plan->command->job, POLLIN, 0}};
        if (poll(fds, 3, look(plan)) <= 0) continue;
        if (fds[0].revents && loss_read(plan->command->loss).lost) hear_loss(hold);
        if (fds[1].revents) hear_signals(hold);
        if (fds[2].revents) (void)!read(plan->command->job, &answer, 1); /* the answer to JOB_STOP: nothing to do */
    }
}

/* Returns the signal of which this process has to die after `sig` ended the hold, or 0. A signal from the keyboard is
 * also meant for a script that runs us, and a shell ends its script only if its child died of that signal. A signal to
 * this process alone ends the hold and leaves the command's exit status as it is. */
static int dies_of(int sig) {
    return sig == SIGINT || sig == SIGQUIT ? sig : 0;
}

int hold_lock(const struct hold_plan *plan, struct ending *ending) {
    struct hold hold = {.plan = plan, .ending = ending};
    if (left_ms(plan) == 0) return 0;
    if (ending->sig) {
        say_interrupted(plan, ending->sig);
        return 0;
    }
    job_tell(plan->command->job, JOB_HOLDS);
    leave_streams();
    say_held(&hold);
    wait_for_end(&hold);
    if (hold.sig && !ending->lost) say_interrupted(plan, hold.sig);
    return dies_of(hold.sig);
}
