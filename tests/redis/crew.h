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

/* A claim of client i, with a token of its own. */
void crew_claim(struct held *held, int i, const char *name, enum dlock_mode mode, uint32_t limit);

/* The next message to client i is that this token was granted its name, for as long as hand-overs are. The fence, which
 * is greater than `after_fence`, is the claim's from then on. */
void assert_granted(int i, struct held *waiter, uint64_t after_fence);
void assert_quiet(int i);

/* Waits until nobody listens for client i any more. */
void crew_deaf(int i);

#endif
