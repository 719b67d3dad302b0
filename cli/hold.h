/* --hold: the lock stays held for a while after its grant, also when the command has ended before. */
#ifndef DLOCK_CLI_HOLD_H
#define DLOCK_CLI_HOLD_H

#include "supervise.h"

struct hold_plan {
    const struct supervise_plan *command; /* which has ended */
    int64_t until_ms;                     /* by now_ms() */
    bool verbose;
};

/* Returns when it is time to release the lock: at until_ms; or before, when a signal asks for it; or when the lock is
 * lost, which `ending` then tells of. Returns the signal that we are to die of, or 0. */
int hold_lock(const struct hold_plan *plan, struct ending *ending);

#endif
