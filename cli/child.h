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

/* What a process that is not the command yet waits for, and where it tells why it cannot be. */
struct child_gate {
    int go, failure;
};

/* Whether what our descendants leave behind comes to us (PR_SET_CHILD_SUBREAPER) from here on; returns whether it did
 * before. The guardian is left behind: started while this is on, it is reaped before we end, although the first process
 * of a container may reap nobody. Off again before the command runs: what that leaves behind is not ours. */
bool child_adopt(bool on);

/* Starts a process that is going to be the command and returns its pid, which is also its process group. It waits until
 * child_go() lets it, and dies with the thread that calls this, so call it on the main one. -1: *why is an errno. */
pid_t child_start(const struct child_plan *plan, struct child_gate *gate, int *why);

/* Lets it become the command. False when it cannot: it has ended then, and *why is the exec's errno. */
bool child_go(pid_t child, const struct terminal *terminal, struct child_gate *gate, int *why);

/* Ends it instead. */
void child_cancel(pid_t child, struct child_gate *gate);

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
