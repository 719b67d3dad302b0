/* What happens while the command runs: signals, stops, and the lease. */
#ifndef DLOCK_CLI_WATCH_H
#define DLOCK_CLI_WATCH_H

#include "signals.h"
#include "terminal.h"

#include <dlock/dlock.h>
#include <pthread.h>

/* Filled by on_lost, on a thread of the library. */
struct loss {
    int fd; /* an eventfd, readable once the lock is lost */
    pthread_mutex_t mutex;
    char reason[sizeof((struct dlock_error *)0)->message];
};

int loss_open(struct loss *loss); /* 0 or -1 */
void loss_close(struct loss *loss);
void loss_happened(dlock_lock *lock, const struct dlock_error *err,
                   void *arg); /* the on_lost; arg is the struct loss */

struct watch_plan {
    dlock_client *client; /* its guardian, if any, guards the child */
    dlock_lock *lock;
    const char *name;
    struct loss *loss;
    const struct signals *signals;
    const struct terminal *terminal;
    int front; /* see front.h; -1: none */
    pid_t child;
};

/* Returns the command's status once it has ended; *lost tells that the lock was lost, or about to be, before. */
int watch_command(const struct watch_plan *plan, bool *lost);

#endif
