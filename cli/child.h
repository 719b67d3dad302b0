/* The command as a child process in a process group of its own. */
#ifndef DLOCK_CLI_CHILD_H
#define DLOCK_CLI_CHILD_H

#include "signals.h"
#include "terminal.h"

struct child_plan {
    char *const *argv;
    char *const *env;
    const struct signals *signals;
    const struct terminal *terminal;
};

/* Starts the command and returns its pid, which is also its process group. It dies with the thread that calls this, so
 * call it on the main one. On failure returns -1 with the reason in *why (an errno); *forked tells whether the exec
 * failed, and not the fork. */
pid_t child_start(const struct child_plan *plan, int *why, bool *forked);

/* Sends `sig` to the command's process group, and to the command itself where it has left that. */
void child_signal(pid_t child, int sig);

/* Has the child ended, and if so by which signal (0: it exited)? Leaves it unwaited-for, so that the number of its
 * process group stays taken. */
bool child_ended(pid_t child, int *sig);

/* The signal that stopped it since the last call, or 0. */
int child_stopped(pid_t child);

/* Takes the status of a child that ended, as a shell shows it: 128 + n for death by signal n. */
int child_reap(pid_t child);

#endif
