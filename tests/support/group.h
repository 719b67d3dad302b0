/* A group of tests with one private server. */
#ifndef DLOCK_TESTS_SUPPORT_GROUP_H
#define DLOCK_TESTS_SUPPORT_GROUP_H

#include "support/server.h"

extern struct server server;

/* Setup and teardown of the group: the backend is loaded, and the server runs. */
int group_begin(void **state);
int group_end(void **state);

/* Setup of a test: connects the clients of pair.h to the server. */
int group_pair(void **state);

#endif
