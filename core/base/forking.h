/* Code of others that must not be in the middle of something when the process forks: the child would have copies of the
 * locks that other threads held, and no thread to release them. */
#ifndef DLOCK_CORE_BASE_FORKING_H
#define DLOCK_CORE_BASE_FORKING_H

#include <stdbool.h>

/* Around a use of the dynamic loader. A fork by another thread waits until it is over. */
void dlock__loading_begin(void);
void dlock__loading_end(void);

/* Around what takes locks of a client library or of the C library, and may also wait for the network: opening a
 * connection, looking up a name. A fork by another thread waits a moment until it is over: waiting for the network they
 * hold no lock. */
void dlock__foreign_begin(void);
void dlock__foreign_end(void);

/* True in a process that was forked although another thread was in such a call. */
bool dlock__forked_amid(void);

#endif
