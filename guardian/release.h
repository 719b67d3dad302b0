/* The estate of a dead process: its grants are renewed as long as they are needed, then released. */
#ifndef DLOCK_GUARDIAN_RELEASE_H
#define DLOCK_GUARDIAN_RELEASE_H

#include "state/guard_table.h"

struct dlock__estate;

/* Collects everything in the table and opens a client for it. NULL: nothing is there, or nothing can be done. */
struct dlock__estate *dlock__estate_open(const struct dlock__guard_table *table);

/* How long after the death the first renewal is due, in microseconds. */
int64_t dlock__estate_patience_us(const struct dlock__estate *estate);

/* Renews what can be renewed, while processes still work under the grants. Returns the time of the next renewal, by
 * dlock__now_us(). */
int64_t dlock__estate_renew(struct dlock__estate *estate);

/* Releases every entry repeatedly for one second after `died_us`, and each once more after that second, since the dead
 * process's last requests may still be on their way. Entries without an answer are released again until every lease has
 * ended. */
void dlock__estate_release(struct dlock__estate *estate, int64_t died_us);

void dlock__estate_free(struct dlock__estate *estate); /* NULL is allowed */

#endif
