/* The signals of `dlock run`: those that are passed on to the command, and what the command inherits. */
#ifndef DLOCK_CLI_SIGNALS_H
#define DLOCK_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct signals {
    sigset_t passed_on;      /* SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, except those inherited as ignored
                              * (nohup) */
    sigset_t heard;          /* the signals that `fd` reads */
    int fd;                  /* a signalfd; -1 until signals_open() */
    sigset_t inherited_mask; /* the signal mask that this process inherited */
    struct sigaction inherited_pipe, inherited_xfsz, inherited_chld; /* the inherited dispositions */
};

/* Notes the inherited mask and dispositions. Ignores SIGPIPE and SIGXFSZ, since a stderr that is closed, or a file beyond
 * RLIMIT_FSIZE, must not kill a process that holds a lock: its write fails. Resets SIGCHLD, so that children can be
 * waited for. */
void signals_begin(struct signals *signals);

/* Blocks the signals that are passed on, SIGCHLD and SIGTTOU, and opens `fd`, a non-blocking signalfd. 0 or -1. */
int signals_open(struct signals *signals);

/* Makes `fd` also read SIGCONT, and SIGTSTP unless that was inherited as ignored: once a command runs, both are meant
 * for the command. */
void signals_hear_job_control(struct signals *signals);

/* Returns the next pending signal of `heard`, or 0. Does not block. */
int signals_next(const struct signals *signals);

/* True for SIGINT, SIGTERM, SIGHUP and SIGQUIT. To a command SIGUSR1 and SIGUSR2 mean what it likes. */
bool signals_asks_to_end(int sig);

/* Returns the name of a signal that asks to end or that signals_number() knows, such as "SIGTERM". Static. */
const char *signals_name(int sig);

/* Returns the number of the signal with this name, such as "USR1" or "SIGUSR1"; 0: none that one would send. */
int signals_number(const char *name);

/* Restores the inherited mask and dispositions. Async-signal-safe, for the child before its exec. */
void signals_restore(const struct signals *signals);

/* Ends this process by the signal `sig`, so that its parent sees the cause in the wait status. */
_Noreturn void signals_die(int sig);

#endif
