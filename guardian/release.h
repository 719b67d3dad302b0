/* The estate of a dead process: its grants, as long as they are needed, and their end. */
#ifndef DLOCK_GUARDIAN_RELEASE_H
#define DLOCK_GUARDIAN_RELEASE_H

#include "state/guard_table.h"

struct dlock__estate;

/* Everything that is in the table. NULL: nothing, or nothing that could be done about it. */
struct dlock__estate *dlock__estate_open(const struct dlock__guard_table *table);

/* How long after the death the first renewal is due. */
int64_t dlock__estate_patience_us(const struct dlock__estate *estate);

/* Renews what can be renewed, while something still works under it. Returns when to do so again, as dlock__now_us(). */
int64_t dlock__estate_renew(struct dlock__estate *estate);

/* Releases every entry, again and again for one second after `died_us`, and each of them once more after that second:
 * the dead process's last requests may still be on their way. What the server does not answer for is asked again until
 * every lease has ended. */
void dlock__estate_release(struct dlock__estate *estate, int64_t died_us);

void dlock__estate_free(struct dlock__estate *estate); /* NULL is allowed */

#endif
