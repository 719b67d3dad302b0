/* Three Sentinels of a test's own, which look after a master. */
#ifndef DLOCK_TESTS_REDIS_SENTINELS_H
#define DLOCK_TESTS_REDIS_SENTINELS_H

#include "harness.h"

enum { SENTINELS = 3 };
extern struct server sentinels[SENTINELS];

/* Starts the i-th, for the master at this port, which it calls mymaster; `more` is added to its settings. */
void sentinel_start(int i, int master_port, const char *more);
/* All know each other and the replica, so that they can fail over. */
void sentinels_await_agreement(void);
/* All say that the master is at this port. */
void sentinels_await_master(int port);
void sentinels_stop(void);

#endif
