/* The calls of libmemcached that this backend uses. Its names have the prefix of our own (memcached_…), so only
 * library.c includes its headers.
 *
 * There is never a second connection: libmemcached would make one silently, but library_log_in() removes what that
 * requires. After LIBRARY_FAILED the connection is closed, and library_end() has to be called.
 *
 * Every call blocks until its deadline at most; longer only if a server sends its answer in pieces, since the library
 * restarts the wait for each of them. */
#ifndef DLOCK_MEMCACHED_SASL_LIBRARY_H
#define DLOCK_MEMCACHED_SASL_LIBRARY_H

#include <dlock/backend_socket.h>

#include <stdint.h>

struct memcached_st;

enum library_result {
    LIBRARY_DONE,
    LIBRARY_EXISTS,    /* the item exists, with another id than the compared one */
    LIBRARY_NOT_FOUND, /* the item does not exist */
    LIBRARY_FAILED     /* the outcome is unknown; *failure says why */
};

struct library_failure {
    int code;       /* EUNAVAILABLE, EAUTH, EPROTO */
    int error;      /* errno, or 0 */
    bool mechanism; /* with EAUTH: the two sides have no common mechanism */
    char why[128];  /* a part of a sentence */
};

/* Returns a handle for a server at a numeric address; does not connect. NULL: out of memory. */
struct memcached_st *library_new(const char *address, int port);

/* Closes the connection by reset, without waiting, so that no unfinished request arrives later. */
void library_end(struct memcached_st *library);

/* Connects and logs in. Up to half of the time is for the connection, half for the first answer; the others share what
 * is left. */
enum library_result library_log_in(struct memcached_st *library, const char *user, const char *password,
                                   int64_t deadline_us, struct library_failure *failure);

struct library_item {
    uint64_t cas;
    uint32_t flags;
    size_t length; /* of the value on the server; may be more than `value` has room for */
};

/* Reads an item: DONE, with *item and `value`, which is terminated; or NOT_FOUND. */
enum library_result library_look(struct memcached_st *library, const char *key, int64_t deadline_us,
                                 struct library_item *item, char *value, size_t size, struct library_failure *failure);

/* Stores an item unless there is one: DONE or EXISTS. */
enum library_result library_add(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                const char *value, int64_t deadline_us, struct library_failure *failure);

/* Replaces the item if it has this id: DONE, EXISTS or NOT_FOUND. */
enum library_result library_swap(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                 const char *value, uint64_t cas, int64_t deadline_us, struct library_failure *failure);

/* Calls `each` for every line of `stats`, or of `stats` with `word` unless that is NULL: DONE. */
enum library_result library_stats(struct memcached_st *library, const char *word, int64_t deadline_us,
                                  void (*each)(const char *name, const char *value, void *arg), void *arg,
                                  struct library_failure *failure);

#endif
