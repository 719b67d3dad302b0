/* Releasing what a dead process left. */
#ifndef DLOCK_CORE_GUARDIAN_RELEASE_H
#define DLOCK_CORE_GUARDIAN_RELEASE_H

#include "guardian_table.h"

/* Releases every entry, through the backend that the table's URI names, again and again for one second after `died_us`:
 * the dead process's last requests may still be on their way. While the server cannot be reached it goes on until every
 * lease has ended. */
void dlock__guard_release(const struct dlock__guard_table *table, int64_t died_us);

#endif
