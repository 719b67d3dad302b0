/* A floor program: the barest correct client of one server, to measure a lock's cost against. `dlock bench --floors`
 * runs it as
 *
 *     floor-BACKEND OPERATION MILLISECONDS [WORKERS [HOLD_MS]]       with the URI as a line on standard input
 *
 * OPERATION is one of
 *     cycle      the lock and its release
 *     threads    the same by WORKERS threads, each with a lock of its own; they share `connections` of the URI (4), one
 *                request on a connection at a time; where a lock is bound to its connection, each has one
 *     hand-over  WORKERS processes on one lock, each holds it for HOLD_MS and pauses as long: from the release to the
 *                grant of another one that waits. Where the barest client cannot wait but by asking over and over, the
 *                least that the server answers to, each after a pause of HOLD_MS
 *     queue      as hand-over, with the barest queue that can be made of what the server has
 *     commands   how many commands the server has been sent: for each further line on standard input it answers with
 * one
 *
 * It writes lines "NANOSECONDS COUNT" (`commands`: "COUNT"), then "end". Status 77: there is no such operation here, or
 * this URI is more than it understands. */
#ifndef DLOCK_TESTS_FLOOR_H
#define DLOCK_TESTS_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLOOR_FAILED = 1, FLOOR_SKIPPED = 77, FLOOR_WORKERS = 64, FLOOR_TEXT = 256 };

struct histogram;

/* Each program defines one, floor_program; main() is in floor.c. */
struct floor {
    void (*prepare)(struct floor *floor, const char *uri); /* once, first; it may change what stands below */
    void *(*connect)(void);                                /* a connection of its own; NULL: none is needed */
    /* The lock `number` and its release, as the server's documentation has them. */
    void (*acquire)(void *server, int number);
    void (*release)(void *server, int number);
    /* The same with a queue: queue_acquire() waits until it is granted. NULL: there is none. */
    void (*queue_acquire)(void *server, int number);
    void (*queue_release)(void *server, int number);
    void (*round_trip)(void *server); /* the least that the server answers to; NULL: there is none */
    int64_t (*commands)(void);        /* without those that this sends; NULL: nobody counts them */
    bool waits;                       /* acquire() does, until it is granted */
    bool shared;                      /* threads may use one connection at the same time */
    bool bound;                       /* a lock is released on the connection that took it */
};
extern struct floor floor_program;

/* Ends the program: with FLOOR_FAILED and a message, unless `ok`; with FLOOR_SKIPPED, unless `plain`. */
void floor_check(bool ok, const char *what);
void floor_need(bool plain);

void *floor_connect(const struct floor *floor);

/* floor_crowd.c: `hand-over` where acquire() waits, and `threads`. */
void floor_processes(const struct floor *floor, int64_t ms, int workers, int hold_ms, struct histogram *histogram);
void floor_threads(const struct floor *floor, int64_t ms, int workers, int connections, struct histogram *histogram);

/* floor_uri.c. "scheme://user:password@host:port/path?keys", decoded; a list of hosts or a socket is skipped. */
struct floor_address {
    char user[FLOOR_TEXT], password[FLOOR_TEXT], host[FLOOR_TEXT], path[FLOOR_TEXT];
    int port;
};
void floor_address(const char *uri, int default_port, struct floor_address *address);
/* The value of a key, as it stands there; false when there is none. */
bool floor_key(const char *uri, const char *key, char value[FLOOR_TEXT]);
/* Decodes what stands from `begin` to before `end`; what does not fit is skipped. */
void floor_decode(const char *begin, const char *end, char *out, size_t size);

#endif
