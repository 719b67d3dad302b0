/* Clients of the group's server, each of which asks on one connection and listens on another. */
#ifndef DLOCK_TESTS_REDIS_CREW_H
#define DLOCK_TESTS_REDIS_CREW_H

#include "harness.h"

#include "support/group.h"

enum { CREW = 4 };
extern struct link asker[CREW], listener[CREW]; /* of the clients 'a' to 'd' */

/* For each test, which finds an empty server. */
int crew_setup(void **state);
int crew_teardown(void **state);

/* A claim of client i, with its own token. */
void crew_claim(struct held *held, int i, const char *name, enum dlock_mode mode, uint32_t limit);

/* The next message to client i says that this token was granted its name, for the duration of a hand-over. The fence
 * must be greater than `after_fence`, and becomes the claim's. */
void assert_granted(int i, struct held *waiter, uint64_t after_fence);
void assert_quiet(int i);

/* Waits until client i has no listener any more. */
void crew_deaf(int i);

#endif
