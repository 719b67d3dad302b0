/* libmemcached, as far as this backend uses it. Its names are those of our own files (memcached_…), so that nothing but
 * library.c sees its headers.
 *
 * A connection is never made a second time: libmemcached would do that silently, but library_log_in() takes from it all
 * that it needs for it. Whatever fails (LIBRARY_FAILED) has closed the connection: end it.
 *
 * Every call may wait until its deadline; longer only for a server that sends its answer in pieces, each of which is
 * waited for anew. */
#ifndef DLOCK_MEMCACHED_SASL_LIBRARY_H
#define DLOCK_MEMCACHED_SASL_LIBRARY_H

#include <dlock/backend_socket.h>

#include <stdint.h>

struct memcached_st;

enum library_result {
    LIBRARY_DONE,
    LIBRARY_EXISTS,    /* the item is there, with another id than was compared */
    LIBRARY_NOT_FOUND, /* it is not there */
    LIBRARY_FAILED     /* *failure says why: the outcome is unknown */
};

struct library_failure {
    int code;       /* EUNAVAILABLE, EAUTH, EPROTO */
    int error;      /* errno, or 0 */
    bool mechanism; /* EAUTH: there is none that both sides have */
    char why[128];  /* a part of a sentence */
};

/* For a server at a numeric address; does not connect. NULL: no memory. */
struct memcached_st *library_new(const char *address, int port);

/* Without waiting: by reset, so that no request that is still on its way arrives. */
void library_end(struct memcached_st *library);

/* Connects and logs in, with half of the time for each of the connection and the first answer; the rest for the others. */
enum library_result library_log_in(struct memcached_st *library, const char *user, const char *password,
                                   int64_t deadline_us, struct library_failure *failure);

struct library_item {
    uint64_t cas;
    uint32_t flags;
    size_t length; /* may be more than fitted into `value` */
};

/* DONE: *item and `value`, which ends in a NUL; or NOT_FOUND. */
enum library_result library_look(struct memcached_st *library, const char *key, int64_t deadline_us,
                                 struct library_item *item, char *value, size_t size, struct library_failure *failure);

/* DONE, or EXISTS. */
enum library_result library_add(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                const char *value, int64_t deadline_us, struct library_failure *failure);

/* DONE, EXISTS, NOT_FOUND. */
enum library_result library_swap(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                 const char *value, uint64_t cas, int64_t deadline_us, struct library_failure *failure);

/* DONE: `each` got every line of `stats`, or of `stats` with this word. */
enum library_result library_stats(struct memcached_st *library, const char *word, int64_t deadline_us,
                                  void (*each)(const char *name, const char *value, void *arg), void *arg,
                                  struct library_failure *failure);

#endif
