/* Two clients of one server. */
#ifndef DLOCK_TESTS_SUPPORT_PAIR_H
#define DLOCK_TESTS_SUPPORT_PAIR_H

#include "support/link.h"

extern struct link one, two; /* clients a and b, which a test's setup connects */

/* Teardown of a test. */
int pair_end(void **state);

#endif
