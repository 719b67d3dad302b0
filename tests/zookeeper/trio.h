/* Three clients of the server that tests/run.sh has started. */
#ifndef DLOCK_TESTS_ZOOKEEPER_TRIO_H
#define DLOCK_TESTS_ZOOKEEPER_TRIO_H

#include "harness.h"

extern struct link one, two, three; /* clients a, b and c */

/* Setup and teardown of a test. */
int trio_begin(void **state);
int trio_end(void **state);

/* The next wake-up tells to look at this name. */
void expect_look(struct link *link, const char *name);

#endif
