/* `dlock run --metrics FILE`: writes what a run has counted to a file for the textfile collector of node_exporter. The
 * file is always replaced as a whole, so that no reader sees half of it. Runs of a job that overlap, of which one holds
 * the lock and others wait or are refused, all count in it: each adds its own to what it reads there. Once the lock is
 * held, a failure here is only a warning. */
#ifndef DLOCK_CLI_RUN_METRICS_H
#define DLOCK_CLI_RUN_METRICS_H

#include "run_totals.h"

#include <dlock/dlock.h>
#include <pthread.h>

struct run_metrics {
    const char *path; /* the file; NULL: no metrics are wanted, and the functions below do nothing */
    char *temporary;  /* path of the file that is written and then renamed to `path` */
    struct totals_labels labels;
    struct totals all;    /* the contents of the file, of all runs; as it was when we last wrote or read it */
    struct totals told;   /* what of this run is in there */
    dlock_client *client; /* NULL until the grant */
    dlock_lock *lock;     /* NULL until the grant */
    int64_t granted_ms;   /* time of the grant, by now_ms() */
    int64_t began_us;     /* time of the grant, by the wall clock */
    struct totals last;   /* this run's final totals, which the thread writes before it ends */
    int end_fd;           /* an eventfd that tells the thread to write `last` and to end */
    bool attended;        /* the thread exists */
    bool failed;          /* the last write failed and a message was printed; belongs to the thread while it exists */
    pthread_t thread;
};
#define RUN_METRICS_INIT \
    { .end_fd = -1 }

/* To be called before the lock is asked for: reads the totals of earlier runs from `path`, and writes the file,
 * which proves that it can be written. Returns STATUS_OK, or prints the error and returns the exit status. */
int run_metrics_open(struct run_metrics *metrics, const char *path, const char *uri, const char *name);

/* To be called when the lock is granted: starts a thread that writes the file now and every few seconds until
 * run_metrics_ended(). */
void run_metrics_granted(struct run_metrics *metrics, dlock_client *client, dlock_lock *lock);

/* To be called after the release: writes the file. `status` is the exit status, `ended_ms` the time of the command's
 * end by now_ms(), or 0 if the command did not run. Blocks for a few seconds at most. */
void run_metrics_ended(struct run_metrics *metrics, int status, int64_t ended_ms);

/* To be called at the end of each run: writes the file if the lock was never granted. `client` is NULL if it could not
 * be opened. */
void run_metrics_refused(struct run_metrics *metrics, dlock_client *client);

void run_metrics_close(struct run_metrics *metrics);

#endif
