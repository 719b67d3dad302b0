/* Job control. A process that is stopped cannot renew a lease. So on a terminal `dlock run` is two processes: the job
 * process, which is what the shell knows, and stops and goes on as the shell and Ctrl-Z want it; and the supervisor
 * behind it, which holds the lock, runs the command, and never stops while the command exists. Without a terminal there
 * is no job process. */
#ifndef DLOCK_CLI_JOB_CONTROL_H
#define DLOCK_CLI_JOB_CONTROL_H

#include "signals.h"

/* What the supervisor tells the job process. */
enum job_word {
    JOB_RUNNING = 'r',    /* the command runs: SIGTSTP is now the supervisor's to pass on */
    JOB_STOP = 's',       /* the command stopped: stop the job */
    JOB_HOLDS = 'h',      /* the command has ended, the lock stays held */
    JOB_INTERRUPTED = 'i' /* the command died of the terminal's SIGINT: the rest of the job gets it, once we are gone */
};

/* What the job process answers to JOB_STOP, once. */
enum job_answer {
    JOB_CONTINUED = 'c', /* the job was stopped and goes on */
    JOB_ORPHANED = 'o'   /* the job cannot be stopped: nobody is there to continue it */
};

/* Splits this process; it must have one thread. Returns in the supervisor only, with the descriptor that leads to the
 * job process, or -1 when there can be none. In the job process it ends, as the supervisor ended. */
int job_split(struct signals *signals);

/* Nothing, where there is no job process. */
void job_tell(int job, enum job_word word);

#endif
