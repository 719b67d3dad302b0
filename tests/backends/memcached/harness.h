/* Shared by the memcached tests, beside tests/support: a plain client of the server, and what it counts. */
#ifndef DLOCK_TESTS_MEMCACHED_HARNESS_H
#define DLOCK_TESTS_MEMCACHED_HARNESS_H

#include "classic.h"
#include "support/backend.h"
#include "support/claim.h"
#include "support/clock.h"
#include "support/held.h"
#include "support/link.h"
#include "support/server.h"
#include "support/test.h"

/* Sends lines (without the last end of line) on a new connection that dlock has nothing to do with, and returns all
 * that the server says. Lives until the next call. */
DLOCK_PRINTF(2, 3) const char *ask(const struct server *server, const char *format, ...);

/* One number of `stats`. */
int64_t stat_of(const struct server *server, const char *name);

/* How many commands, and which, a server has received from its clients since the last call. */
struct counts {
    int64_t stores, gets, cas_hits, cas_misses, deletes;
};
void count(const struct server *server, struct counts *since);
/* How often an acquire of a free name reserves it first: once on servers from 1.6.27 on, else never. That is one get
 * more, in the same packet, and makes a cas hit of its store. */
int reservations(const struct server *server);
/* Until a connection has seen the server's clock tick, it reads the clock along with every lease: one more get. */
void await_tick(const struct server *server, struct link *link);

/* Asks again and again, as a waiter does; false: never granted within ms. */
bool poll_for(struct link *link, struct held *held, int ms);

/* ---- a fake server (support/fake.h) ------------------------------------------------------------------------------ */

/* memcached's answers to the first requests of a connection: it was started at 1700000000. */
#define FAKE_GREETING FAKE_SETTINGS("on", "ERROR")
/* The same of a server that evicts or does not ("on", "off"), and says this to a meta command; and when it is asked
 * whether clients may choose cas ids. */
#define FAKE_SETTINGS(evictions, meta) FAKE_VERSION(evictions, meta, "CLIENT_ERROR invalid flag")
#define FAKE_VERSION(evictions, meta, choice)                                                      \
    "STAT pid 1\r\nSTAT uptime 100000\r\nSTAT time 1700100000\r\nEND\r\nSTAT evictions " evictions \
    "\r\nSTAT cas_enabled yes\r\nEND\r\n" meta "\r\n" choice "\r\n"
#define FAKE_CLOCK(seconds) "STAT pid 1\r\nSTAT time " #seconds "\r\nEND\r\n"
#define FAKE_STARTED_US UINT64_C(1700000000000000)

#endif
