/* A census: how many are inside the section that one name protects, by mode in memory that all processes share. Workers
 * check everything when they enter; a broken lock shows as a failed case. */
#ifndef CONFORMANCE_CENSUS_H
#define CONFORMANCE_CENSUS_H

#include "suite.h"

#include <stdatomic.h>

enum { CENSUS_FENCES = 1 << 20 };

struct census {
    _Atomic int64_t until_ms; /* when workers stop */
    atomic_int inside[3];     /* by enum dlock_mode */
    atomic_int most[3];       /* at the same time */
    atomic_int entries[3];
    enum dlock_mode meets;       /* not EXCLUSIVE: it is over only when two of this mode were inside together */
    _Atomic int64_t counter;     /* what writers change and readers see unchanged */
    _Atomic uint64_t last_fence; /* the greatest of all that have entered */
    _Atomic uint64_t fences[CENSUS_FENCES];
};

/* Makes an empty census in shared memory; its workers run for run_ms. */
struct census *census_open(int64_t run_ms);
bool census_is_over(struct census *census);

/* When all have left: checks that no update of a writer was lost. */
void census_close(struct census *census);

/* Called before asking for the lock; pass the result to census_enter. */
uint64_t census_fence(struct census *census);

/* Fails unless the mode (with at most `limit` permits) is compatible with those inside, and the fence is new and
 * greater than all that were granted before the asking began. */
void census_enter(struct census *census, enum dlock_mode mode, uint32_t limit, uint64_t before, uint64_t fence);

/* For a writer before it downgrades: it is counted as a writer and a reader until census_leave as a writer. */
void census_enter_downgraded(struct census *census);
void census_leave(struct census *census, enum dlock_mode mode);

/* One visit with `lock`, which has these options: enters, stays for hold_ms, leaves. False: no grant within
 * timeout_ms. */
bool census_visit(struct census *census, dlock_lock *lock, const struct dlock_options *options, int64_t timeout_ms,
                  int64_t hold_ms);

/* Visitors: a process with one client, and a handle and a thread for each of `n_kinds` options, which visit repeatedly.
 * Kinds differ in how long they stay (0 to 3 ms) and, unless `patient`, in how long they wait (mostly 0 to 11 ms). */
struct visitors {
    struct census *census;
    const char *name;
    const struct dlock_options *kinds;
    int n_kinds; /* up to 8 */
    bool patient;
};

/* Runs this number of processes of visitors until the census is over, and joins them. */
void census_run(const struct visitors *visitors, int processes);

#endif
