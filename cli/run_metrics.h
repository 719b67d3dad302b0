/* `dlock run --metrics FILE`: what a run has counted, in a file for the textfile collector of node_exporter. The file is
 * replaced as a whole, so that nobody reads half of it. Once the lock is held nothing that goes wrong here is worth more
 * than a warning. */
#ifndef DLOCK_CLI_RUN_METRICS_H
#define DLOCK_CLI_RUN_METRICS_H

#include "run_totals.h"

#include <dlock/dlock.h>
#include <pthread.h>

struct run_metrics {
    const char *path; /* NULL: none are wanted, and nothing below does anything */
    char *temporary;
    struct totals_labels labels;
    struct totals before; /* what earlier runs left */
    dlock_client *client; /* NULL, and 0: not yet */
    dlock_lock *lock;
    int64_t granted_ms; /* by now_ms() */
    int64_t began_us;   /* the same, by the wall clock */
    struct totals last; /* how it ended, for the thread to write */
    int end_fd;         /* an eventfd: it is to do so, and to end */
    bool attended;      /* there is the thread */
    bool failed;        /* the last attempt to write has, and that was said; the thread's while there is one */
    pthread_t thread;
};
#define RUN_METRICS_INIT \
    { .end_fd = -1 }

/* Before the lock is asked for: reads what earlier runs left in `path`, and writes it anew, which shows that it can be
 * written. STATUS_OK, or says what is wrong and returns the exit status. */
int run_metrics_open(struct run_metrics *metrics, const char *path, const char *uri, const char *name);

/* The lock is held: the file is written now, and from now on every few seconds by a thread, until run_metrics_ended(). */
void run_metrics_granted(struct run_metrics *metrics, dlock_client *client, dlock_lock *lock);

/* The lock has been released; `ended_ms`: when the command ended, 0: it did not run. Writes the file. */
void run_metrics_ended(struct run_metrics *metrics, int status, int64_t ended_ms);

/* The run is over: writes the file if the lock was never granted. `client` is NULL where none could be opened. */
void run_metrics_refused(struct run_metrics *metrics, dlock_client *client);

void run_metrics_close(struct run_metrics *metrics);

#endif
