/* Eight clients that contend for one lock through a failover, and one that is granted it behind the replica's back. */
#ifndef DLOCK_TESTS_REDIS_PLAYERS_H
#define DLOCK_TESTS_REDIS_PLAYERS_H

#include "api.h"

enum { PLAYERS = 8, LATE = 4, HOLD_MS = 5, CHANGE_MS = 30000 }; /* 5: the tests wait more than they work */

/* Each holds the lock for a moment, again and again. The holders themselves check that there is no other one, and that
 * fences grow. */
void players_begin(const char *uri, const char *name);
/* LATE more, once. */
void players_join(const char *uri, const char *name);
/* Each gets a turn from now on. */
void players_await_turns(void);
/* Within a while each gets its turns again, about as many as the others. */
void players_await_fairness(void);
/* Each of those that joined gets a turn. */
void players_await_late_turns(void);
/* How often, up to now, one was granted the lock while another one had it. */
int players_met(void);
/* Ends them, and the one below; fails the test where one was told anything else than that it cannot have the lock now. */
void players_stop(void);
/* The same, and where two have met, or a fence did not grow. */
void players_end(void);

/* A separate client that takes the lock and keeps it for as long as it may; returns once it has it. */
void players_keep(const char *uri, const char *name);
/* The replica takes over, and all are served again. */
void players_await_failover(struct server *replica, const char *how);

/* The answer over a separate connection: a server may end existing ones when its role changes. "": none. Lives until
 * the next call. */
const char *said_to(const struct server *server, const char *question);
/* Until the server's answer has this in it. */
void await_said(const struct server *server, const char *question, const char *expected);

/* The code of an attempt to take a lock, and why. */
int try_lock(const char *uri, const char *name, struct dlock_error *err);

#endif
