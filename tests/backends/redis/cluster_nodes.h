/* A cluster of a test's own: three masters and, where that is wanted, a replica of the first. Redis 7 or newer. */
#ifndef DLOCK_TESTS_REDIS_CLUSTER_NODES_H
#define DLOCK_TESTS_REDIS_CLUSTER_NODES_H

#include "players.h"

#include "support/relay.h"

enum { MASTERS = 3, SLOTS = 16384 };

extern struct server master[MASTERS], replica;
extern struct relay *front;                   /* of the first master, for clients and for its replica; NULL: none */
extern char first[24], second[24], third[24]; /* names of locks on the masters, once they were chosen */

/* The last master has the slots from `last` to `end`; the others the rest, half of it each. */
void cluster_start(const char *timeout_ms, int last, int end);
void cluster_add_replica(const char *timeout_ms);
void cluster_stop(void);

void get_id(struct server *server, char id[41]);
int slot_of(const char *name);
/* The first name, or the first from a number on, whose slot this node has. */
const char *name_from(int i, struct server *server, char name[24]);
void choose_names(void);

/* Names two of the masters. */
void uri_of(char uri[200], const char *query);
/* Until a node grants something. */
void await_grant(const char *uri, const char *name);
/* The same for all, whose quarantines begin with the first question to each. */
void await_quarantines(const char *uri);

#endif
