/* A client behind a proxy, and another one beside it. */
#ifndef DLOCK_TESTS_ZOOKEEPER_BEHIND_H
#define DLOCK_TESTS_ZOOKEEPER_BEHIND_H

#include "harness.h"

extern struct proxy *proxy;
extern struct link far, near; /* clients a, behind the proxy, and b, with a session of 10 s */
extern int64_t linked_ms;     /* when the session of `far` was there */

/* For the setup of a test; its teardown. */
void behind_begin(const char *session);
int behind_end(void **state);

/* Makes the container be there already, as in any lock that is used. */
void warm(const char *name);

#endif
