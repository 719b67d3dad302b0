/* A census: who is inside of what one name protects, counted by mode in memory that all processes share. Everything is
 * checked by those who enter; a broken lock shows as a failed case. */
#ifndef CONFORMANCE_CENSUS_H
#define CONFORMANCE_CENSUS_H

#include "suite.h"

#include <stdatomic.h>

enum { CENSUS_FENCES = 1 << 20 };

struct census {
    _Atomic int64_t until_ms; /* workers stop then */
    atomic_int inside[3];     /* by enum dlock_mode */
    atomic_int most[3];       /* at once */
    atomic_int entries[3];
    _Atomic int64_t counter;     /* what writers change and readers see unchanged */
    _Atomic uint64_t last_fence; /* the greatest that anybody entered with */
    _Atomic uint64_t fences[CENSUS_FENCES];
};

/* Empty, in shared memory; its workers run for run_ms. */
struct census *census_open(int64_t run_ms);
bool census_is_over(struct census *census);

/* When everybody has left: no update of a writer was lost. */
void census_close(struct census *census);

/* Before asking for the lock; give the result to census_enter. */
uint64_t census_fence(struct census *census);

/* Fails unless those inside get along with one more in this mode (of at most `limit` permits), and the fence is new and
 * greater than all that were granted before the asking began. */
void census_enter(struct census *census, enum dlock_mode mode, uint32_t limit, uint64_t before, uint64_t fence);

/* For a writer that becomes a reader, before it downgrades: it is both from here on, until census_leave as a writer. */
void census_enter_downgraded(struct census *census);
void census_leave(struct census *census, enum dlock_mode mode);

/* One visit through `lock`, whose options these are: enters, stays for hold_ms, leaves. False: there was no grant
 * within timeout_ms. */
bool census_visit(struct census *census, dlock_lock *lock, const struct dlock_options *options, int64_t timeout_ms,
                  int64_t hold_ms);

/* Who visits: one process with one client and a handle and a thread for each of `n_kinds` options, over and over. Kinds
 * differ in how long they stay (0 to 3 ms) and, unless `patient`, in how long they wait (mostly 0 to 11 ms). */
struct visitors {
    struct census *census;
    const char *name;
    const struct dlock_options *kinds;
    int n_kinds; /* up to 8 */
    bool patient;
};

/* Runs that many processes of visitors until the census is over, and joins them. */
void census_run(const struct visitors *visitors, int processes);

#endif
