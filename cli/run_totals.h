/* The numbers of `dlock run --metrics`, which go on from one run to the next: as text for Prometheus, and back. */
#ifndef DLOCK_CLI_RUN_TOTALS_H
#define DLOCK_CLI_RUN_TOTALS_H

#include <dlock/dlock.h>
#include <stdbool.h>
#include <stdio.h>

struct totals {
    struct dlock_stats stats; /* of this run and those before it */
    uint64_t failures;        /* runs that did not get the lock */
    bool waiting, held;       /* now */
    bool ended;               /* a run that had the lock has; the next two are its, or this one's */
    int status;
    int64_t duration_us;
    int64_t began_us, succeeded_us; /* by the wall clock; 0: none has */
};

/* Which run it is. Texts as labels have them; ours. */
struct totals_labels {
    char *server, *name;
};

void totals_write(FILE *out, const struct totals *totals, const struct totals_labels *labels);

/* Reads what totals_write() wrote for the same labels; what is not there stays 0. */
void totals_read(const char *text, struct totals *totals, const struct totals_labels *labels);

/* Whether a text begins as all that totals_write() wrote; an empty one does, too. */
bool totals_are(const char *text);

/* Adds what a run's client has counted. */
void totals_add(struct totals *totals, const struct dlock_stats *stats);

#endif
