/* --hold: keeps the lock until a while after its grant, even if the command ends earlier. */
#ifndef DLOCK_CLI_HOLD_H
#define DLOCK_CLI_HOLD_H

#include "supervise.h"

struct hold_plan {
    const struct supervise_plan *command; /* of the command, which has ended */
    int64_t until_ms;                     /* end of the hold, by now_ms() */
    bool verbose;
};

/* Blocks until the lock is to be released: at until_ms; or earlier, when a signal arrives; or when the lock is lost,
 * which is then noted in `ending`. Returns the signal that this process has to die of, or 0. */
int hold_lock(const struct hold_plan *plan, struct ending *ending);

#endif
