/* Processes that take one lock over and over, in whatever way, all at the same time. */
#ifndef DLOCK_TESTS_FILE_CROWD_H
#define DLOCK_TESTS_FILE_CROWD_H

#include "fixture.h"

struct crowd {
    int members, takes; /* how many there are, and how often each takes it */
    struct dlock_claim (*claim)(int member, int take);
    /* Called by each while it has the lock: 0, or the number of a failure, from 10 on. NULL: nothing. `shared` is
     * memory that all share. */
    int (*visit)(void *shared, const struct dlock_claim *claim);
    void *shared;
};

/* Nothing may go wrong, and no fence be given twice or be smaller than the same member's last one. */
void crowd_run(const struct crowd *crowd);

/* Sorts the fences, of which none may stand twice. */
void check_fences(uint64_t *fences, size_t n);

#endif
