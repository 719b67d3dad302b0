/* What happens while the command runs: signals, stops, and the lease. */
#ifndef DLOCK_CLI_SUPERVISE_H
#define DLOCK_CLI_SUPERVISE_H

#include "loss.h"
#include "signals.h"
#include "terminal.h"

#include <dlock/dlock.h>

/* What becomes of the command when the lock is lost. */
enum loss_action {
    LOSS_TERM, /* SIGTERM, then SIGKILL */
    LOSS_KILL, /* SIGKILL */
    LOSS_WARN  /* it goes on */
};

struct loss_policy {
    enum loss_action action;
    int64_t kill_after_ms; /* LOSS_TERM: between the two; 0: as the lease allows */
};

struct supervise_plan {
    dlock_client *client; /* its guardian, if any, guards the child */
    dlock_lock *lock;
    const char *name;
    struct loss *loss;
    struct lease *lease;
    const struct signals *signals;
    const struct terminal *terminal;
    int job; /* see job_control.h; -1: none */
    pid_t child;
    struct loss_policy policy;
};

/* How a command ended. */
struct ending {
    int status;
    bool lost;     /* the lock was lost, or about to be, before; the status is STATUS_LOST then */
    int sig;       /* the signal that was to end it: one that we passed on, or the terminal's; 0: there was none */
    int64_t at_ms; /* when, by now_ms() */
};

/* Returns once the command has ended. */
struct ending supervise_command(const struct supervise_plan *plan);

#endif
