/* Job control. A stopped process cannot renew a lease. So on a terminal `dlock run` is two processes: the job process,
 * which is the shell's child and which the shell and Ctrl-Z stop and continue; and the supervisor, a child of the job
 * process, which holds the lock, runs the command, and is never stopped while the command exists. Without a terminal
 * there is no job process. */
#ifndef DLOCK_CLI_JOB_CONTROL_H
#define DLOCK_CLI_JOB_CONTROL_H

#include "signals.h"

/* The supervisor's messages to the job process. */
enum job_word {
    JOB_RUNNING = 'r',    /* the command runs: from now on SIGTSTP goes to the supervisor, which passes it on */
    JOB_STOP = 's',       /* the command stopped: stop the job */
    JOB_HOLDS = 'h',      /* the command has ended, the lock stays held */
    JOB_INTERRUPTED = 'i' /* the command died of the terminal's SIGINT: send it to the job after the supervisor's end */
};

/* The job process's one answer to JOB_STOP. */
enum job_answer {
    JOB_CONTINUED = 'c', /* the job was stopped and has been continued */
    JOB_ORPHANED = 'o'   /* the job cannot be stopped: its process group is orphaned, no shell would continue it */
};

/* Forks this process, which must have one thread, into job process and supervisor. Returns in the supervisor only: its
 * descriptor to the job process, or -1 when the split failed. The job process does not return from here; it ends as the
 * supervisor ended. */
int job_split(struct signals *signals);

/* Sends `word` to the job process; does nothing if `job` is -1. */
void job_tell(int job, enum job_word word);

#endif
