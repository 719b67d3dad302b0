/* The signals of `dlock run`: which are ours to pass on, and how a command gets back what we changed. */
#ifndef DLOCK_CLI_SIGNALS_H
#define DLOCK_CLI_SIGNALS_H

#include <signal.h>

struct signals {
    sigset_t passed_on; /* INT, TERM, HUP and QUIT, less those that we inherited as ignored (nohup) */
    sigset_t heard;     /* what `fd` reads */
    int fd;             /* -1 until signals_open() */
    sigset_t inherited_mask;
    struct sigaction inherited_pipe, inherited_chld;
};

/* Notes what we inherited. From here on SIGPIPE is ignored (a closed stderr must not kill us while we hold a lock) and
 * children can be waited for. */
void signals_begin(struct signals *signals);

/* Blocks what is passed on, SIGCHLD and the terminal's SIGTTOU, and opens `fd`, a non-blocking signalfd. 0 or -1. */
int signals_open(struct signals *signals);

/* Hears SIGTSTP, unless inherited as ignored, and SIGCONT too: once a command runs they are meant for it. */
void signals_hear_job_control(struct signals *signals);

/* The next signal that came, or 0. */
int signals_next(const struct signals *signals);

/* "SIGTERM" and the like, of those that are passed on. Static. */
const char *signals_name(int sig);

/* Mask and dispositions as we inherited them; async-signal-safe, for the child before exec. */
void signals_restore(const struct signals *signals);

/* Ends this process by `sig`, so that our parent sees what happened. */
_Noreturn void signals_die(int sig);

#endif
