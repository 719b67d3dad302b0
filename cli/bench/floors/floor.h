/* A floor program: the barest correct client of one server, with which the cost of dlock's locks is compared.
 * `dlock bench --floors` runs it as
 *
 *     floor-BACKEND OPERATION MILLISECONDS [WORKERS [HOLD_MS]]       with the URI as a line on standard input
 *
 * OPERATION is one of
 *     cycle      measures an acquire and its release
 *     threads    the same in WORKERS threads, each with its own lock. They share as many connections as the URI's
 *                key `connections` says (default 4), one request on a connection at a time; where a lock is bound to
 *                its connection, each thread has its own connection
 *     hand-over  WORKERS processes want one lock; each holds it for HOLD_MS and pauses as long. Measures the time from
 *                a release to the grant of another process that waits. Where the barest client can wait only by
 *                polling, measures the cheapest request that the server answers, each after a pause of HOLD_MS
 *     queue      as hand-over, with the simplest queue that the server allows
 *     commands   prints the number of commands that the server has received, once for each further line on standard
 *                input
 *
 * What the programs do in `cycle`, and in `hand-over` where they wait:
 *     file                       open, flock(2), close; the same
 *     redis                      SET NX PX, then the script that compares and deletes; PING
 *     memcached, memcached_sasl  add, gets, cas; a get
 *     zookeeper                  create, list, delete; exists
 *     etcd                       puts and deletes a key without a condition; a range request
 *     postgresql, mysql          one statement that takes a row with a lease, one that gives it back; one row changed
 *     the same, mode=session     pg_advisory_lock and _unlock, GET_LOCK and RELEASE_LOCK; the same
 *
 * An operation that ends after MILLISECONDS does not count.
 * It prints lines "NANOSECONDS COUNT" (`commands`: "COUNT"), then "end". Exit status 77: the server has no such
 * operation, or the program does not understand this URI. */
#ifndef DLOCK_TESTS_FLOOR_H
#define DLOCK_TESTS_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLOOR_FAILED = 1, FLOOR_SKIPPED = 77, FLOOR_WORKERS = 64, FLOOR_TEXT = 256 };

struct histogram;

/* The operations on one server. Each program defines one struct, floor_program; main() is in floor.c. */
struct floor {
    void (*prepare)(struct floor *floor, const char *uri); /* called once, first; may change the members below */
    void *(*connect)(void);                                /* opens a connection; NULL: none is needed */
    /* Acquire and release the lock `number`, as the server's documentation recommends. */
    void (*acquire)(void *server, int number);
    void (*release)(void *server, int number);
    /* The same with a queue: queue_acquire() blocks until it is granted. NULL: there is no queue. */
    void (*queue_acquire)(void *server, int number);
    void (*queue_release)(void *server, int number);
    void (*round_trip)(void *server); /* sends the cheapest request that the server answers; NULL: none */
    int64_t (*commands)(void);        /* number of commands received, without this program's; NULL: not counted */
    bool waits;                       /* acquire() blocks until it is granted */
    bool shared;                      /* threads may use one connection at the same time */
    bool bound;                       /* a lock must be released on the connection that acquired it */
};
extern struct floor floor_program;

/* floor_begin.c. End the program: floor_check() with FLOOR_FAILED and a message unless `ok`; floor_need() with FLOOR_SKIPPED unless
 * `plain`. */
void floor_check(bool ok, const char *what);
void floor_need(bool plain);

void *floor_connect(const struct floor *floor);

/* floor_crowd.c: `hand-over` where acquire() waits, and `threads`. */
void floor_processes(const struct floor *floor, int64_t ms, int workers, int hold_ms, struct histogram *histogram);
void floor_threads(const struct floor *floor, int64_t ms, int workers, int connections, struct histogram *histogram);

/* floor_uri.c: decodes "scheme://user:password@host:port/path?keys". The program ends with FLOOR_SKIPPED at a list of
 * hosts or a socket. */
struct floor_address {
    char user[FLOOR_TEXT], password[FLOOR_TEXT], host[FLOOR_TEXT], path[FLOOR_TEXT];
    int port;
};
void floor_address(const char *uri, int default_port, struct floor_address *address);
/* Copies the decoded value of a key. False if the URI does not have the key. */
bool floor_key(const char *uri, const char *key, char value[FLOOR_TEXT]);
/* Decodes the text from `begin` up to `end`. The program ends with FLOOR_SKIPPED if the result does not fit. */
void floor_decode(const char *begin, const char *end, char *out, size_t size);

#endif
