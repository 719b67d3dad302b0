/* Supervises the running command: passes signals on, handles stops, watches the lease. */
#ifndef DLOCK_CLI_SUPERVISE_H
#define DLOCK_CLI_SUPERVISE_H

#include "loss.h"
#include "signals.h"
#include "terminal.h"

#include <dlock/dlock.h>

/* The action on the command when the lock is lost. */
enum loss_action {
    LOSS_TERM, /* SIGTERM, then SIGKILL */
    LOSS_KILL, /* SIGKILL */
    LOSS_WARN  /* nothing: it continues */
};

struct loss_policy {
    enum loss_action action;
    int64_t kill_after_ms; /* LOSS_TERM: time between the two signals; 0: depends on the lease */
};

struct supervise_plan {
    dlock_client *client; /* its guardian, if any, guards the child */
    dlock_lock *lock;
    const char *name; /* of the lock */
    struct loss *loss;
    struct lease *lease;
    const struct signals *signals;
    const struct terminal *terminal;
    int job;     /* the descriptor to the job process, see job_control.h; -1: none */
    pid_t child; /* the command; also its process group */
    struct loss_policy policy;
    int wanted_signal; /* sent to the command when another client asks for the lock; 0: none */
    bool verbose;
};

/* How a command ended. */
struct ending {
    int status;       /* the exit status of `dlock run` */
    bool lost;        /* the lock was lost, or about to be, before the end; `status` is then STATUS_LOST */
    int sig;          /* the signal that asked the command to end, passed on by us or from the terminal; 0: none */
    bool interrupted; /* the command died of the SIGINT that was passed on to it */
    int64_t at_ms;    /* time of the end, by now_ms() */
};

/* Blocks until the command has ended, reaps it, and returns how it ended. */
struct ending supervise_command(const struct supervise_plan *plan);

#endif
