/* Three clients of the server that tests/run.sh has started. */
#ifndef DLOCK_TESTS_ZOOKEEPER_TRIO_H
#define DLOCK_TESTS_ZOOKEEPER_TRIO_H

#include "pair.h"

extern struct link three; /* client c, beside the two of support/pair.h */

/* Setup and teardown of a test. */
int trio_begin(void **state);
int trio_end(void **state);

/* The next wake-up tells to look at this name. */
void expect_look(struct link *link, const char *name);

/* Asks with QUEUE, and is refused for good, with a message that contains `why`; nothing of the claim is left. */
void expect_einval(struct link *link, struct held *held, const char *why);

#endif
