/* Job control. A process that is stopped cannot renew a lease. So on a terminal `dlock run` is two processes: the
 * front, which is what the shell knows, and stops and goes on as the shell and Ctrl-Z want it; and the keeper behind
 * it, which holds the lock, runs the command, and never stops while the command exists. Without a terminal there is no
 * front. */
#ifndef DLOCK_CLI_FRONT_H
#define DLOCK_CLI_FRONT_H

#include "signals.h"

/* What the keeper tells the front. */
enum front_word {
    FRONT_RUNNING = 'r', /* the command runs: SIGTSTP is now the keeper's to pass on */
    FRONT_STOP = 's',    /* the command stopped: stop the job */
    FRONT_HOLDS = 'h',   /* the command has ended, the lock stays held */
    FRONT_INTERRUPTED =
        'i' /* the command died of the terminal's SIGINT: the rest of the job gets it, once we are gone */
};

/* What the front answers to FRONT_STOP, once. */
enum front_answer {
    FRONT_CONTINUED = 'c', /* the job was stopped and goes on */
    FRONT_ORPHANED = 'o'   /* the job cannot be stopped: nobody is there to continue it */
};

/* Splits this process; it must have one thread. Returns in the keeper only, with the descriptor that leads to the
 * front, or -1 when there can be none. In the front it ends, as the keeper ended. */
int front_split(struct signals *signals);

/* Nothing, where there is no front. */
void front_tell(int front, enum front_word word);

#endif
