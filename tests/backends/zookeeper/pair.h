/* Two clients of one server, with sessions of this length. */
#ifndef DLOCK_TESTS_ZOOKEEPER_PAIR_H
#define DLOCK_TESTS_ZOOKEEPER_PAIR_H

#include "harness.h"
#include "support/pair.h"

void pair_new(int port, const char *session);

/* Setup of a test: clients of the server that tests/run.sh has started. pair_end() is its teardown. */
int pair_begin(void **state);

#endif
