/* The totals of `dlock run --metrics`, which add up from run to run: writes them in Prometheus' text format and reads
 * them back. */
#ifndef DLOCK_CLI_RUN_TOTALS_H
#define DLOCK_CLI_RUN_TOTALS_H

#include <dlock/dlock.h>
#include <stdbool.h>
#include <stdio.h>

enum { TOTALS_EVERY_MS = 5000 }; /* the time between two words of a run that has the lock */

/* What one run has counted, or all runs of a job. */
struct totals {
    struct dlock_stats stats;
    uint64_t failures;   /* number of runs that did not get the lock */
    bool waiting, held;  /* a run waits for the lock, has it */
    bool ended;          /* a run that had the lock has ended; `status` is valid */
    int status;          /* exit status of the last run that had the lock */
    int64_t duration_us; /* how long the command of the last run with the lock took, or has run so far; 0: none */
    int64_t began_us, succeeded_us; /* when a run last got the lock, and ended with status 0; wall clock, 0: never */
};

/* The labels of all samples; valid label texts, owned. */
struct totals_labels {
    char *server, *name;
};

/* Writes all totals. */
void totals_write(FILE *out, const struct totals *totals, const struct totals_labels *labels);

/* Reads what totals_write() wrote for the same labels; values that are missing are 0. */
void totals_read(const char *text, struct totals *totals, const struct totals_labels *labels);

/* True if `text` begins as every output of totals_write(), or is empty. */
bool totals_are(const char *text);

/* Brings what `run` has counted into `all`, beside what runs at the same time have brought there: `told` is what of it
 * is in `all` already. The members about the last run that had the lock are those of the latest grant. */
void totals_merge(struct totals *all, const struct totals *run, const struct totals *told, int64_t now_us);

#endif
