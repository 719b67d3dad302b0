/* Shared by the Redis tests, beside tests/support: a plain client of the server, and what it counts. */
#ifndef DLOCK_TESTS_REDIS_HARNESS_H
#define DLOCK_TESTS_REDIS_HARNESS_H

#include "support/backend.h"
#include "support/clock.h"
#include "support/held.h"
#include "support/link.h"
#include "support/server.h"
#include "support/test.h"

/* How long a fence is kept at least when its lock is not used. */
enum { LIFE_MS = 600000 };

/* Runs a command on a connection that dlock has nothing to do with. The format is that of hiredis. An error reply
 * fails the test. */
int64_t ask_number(struct server *server, const char *format, ...);
/* A string or a status; "" for nil. Lives until the next call. */
const char *ask_text(struct server *server, const char *format, ...);

/* Waits until INFO replication contains this. */
void await_role(struct server *server, const char *said);
/* Makes the server a replica of the one on this port, and waits until it knows all that this one knows. */
void follow(struct server *replica, int master_port);

/* Counts what clients send to a server, by MONITOR. */
struct monitor {
    struct redisContext *link;
    int requests;  /* sent by clients; those that scripts run are not counted */
    int evalsha;   /* of these, calls of scripts */
    int commands;  /* run by scripts */
    int published; /* of these, messages sent */
};
void monitor_begin(struct monitor *monitor, const struct server *server);
void monitor_end(struct monitor *monitor, struct server *server);

#endif
