/* The command as a child process in a process group of its own. */
#ifndef DLOCK_CLI_CHILD_H
#define DLOCK_CLI_CHILD_H

#include "inherited.h"
#include "signals.h"
#include "terminal.h"

struct child_plan {
    char *const *argv;                 /* of the command */
    char *const *env;                  /* of the command */
    const struct inherited *inherited; /* all descriptors of the command */
    const struct signals *signals;     /* the dispositions and the mask that the command gets back */
    const struct terminal *terminal;   /* given to the command where it is wanted */
};

/* Our ends of two pipes to a child that has not executed the command yet. A byte written to `go` lets the child execute
 * the command; closing `go` unwritten ends the child. From `failure` comes the errno of a failed exec. */
struct child_gate {
    int go, failure;
};

/* Turns PR_SET_CHILD_SUBREAPER on or off: while it is on, orphaned descendants become our children. Returns the setting
 * before the call. It is on while the guardian starts: the guardian becomes our child and is reaped before we end,
 * although the first process of a container may reap no child. It is off again before the command runs: the orphans of
 * the command are not ours, unless we are that first process. */
bool child_adopt(bool on);

/* Forks the process that is to execute the command, and returns its pid, which is also its process group. The child
 * waits for child_go() or child_cancel(). It is killed when the calling thread ends, so call this on the main thread.
 * -1: *why is an errno. */
pid_t child_start(const struct child_plan *plan, struct child_gate *gate, int *why);

/* Lets the child execute the command. False when the exec failed: the child has ended and is reaped, and *why is the
 * exec's errno. */
bool child_go(pid_t child, const struct terminal *terminal, struct child_gate *gate, int *why);

/* Ends and reaps the child instead of child_go(). */
void child_cancel(pid_t child, struct child_gate *gate);

/* Sends `sig` to the command's process group, and to the command itself if it has left that group. SIGKILL always goes
 * to both. Returns 0, or an errno if the command did not get it: EPERM if it has other rights than we have, which sudo or
 * a set-user-ID program gives it. */
int child_signal(pid_t child, int sig);

/* True if the child has ended; *sig is then the signal that ended it, or 0 if it exited. Does not reap the child, so
 * that the number of its process group stays taken. */
bool child_ended(pid_t child, int *sig);

/* Returns the signal that stopped the child since the last call, or 0. */
int child_stopped(pid_t child);

/* Reaps our children other than `child`: orphans that came to us because this process is the first one of a container,
 * and that no other process would reap. The guardian may be among them: the library does not need its status. */
void child_reap_orphans(pid_t child);

/* Waits for the child's end and reaps it. Returns its status as a shell shows it: 128 + n for death by signal n. */
int child_reap(pid_t child);

#endif
