/* Clients and handles that end with the block that declares them, the last one first:
 * SCOPED_CLIENT *client = …; needs nothing but the library's public header. */
#ifndef DLOCK_TESTS_SUPPORT_SCOPED_H
#define DLOCK_TESTS_SUPPORT_SCOPED_H

#include <dlock/dlock.h>

#define SCOPED_CLIENT __attribute__((cleanup(close_scoped))) dlock_client
#define SCOPED_LOCK __attribute__((unused, cleanup(free_scoped))) dlock_lock

static inline void close_scoped(dlock_client **client) {
    dlock_close(*client);
}

static inline void free_scoped(dlock_lock **lock) {
    dlock_free(*lock);
}

#endif
