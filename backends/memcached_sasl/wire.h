/* The connection between the memcached backend and its server: libmemcached, and its binary protocol. It has the place of
 * ../memcached/text/wire.h, by its include path alone.
 *
 * libmemcached answers one request at a time. So a request that is asked waits here until its reply is read, which is when
 * it is sent. */
#ifndef DLOCK_MEMCACHED_WIRE_H
#define DLOCK_MEMCACHED_WIRE_H

#include "library.h"

#define WIRE_IS_SASL 1
#define STREAM_IS_TLS 0
/* URI keys of its own, for the backend's list. */
#define WIRE_KEYS

/* As over the text protocol: what limits the length of a list. */
#define MEMCACHED_SENT_MAX 16384

struct memcached;

enum wire_kind { WIRE_ITEM, WIRE_ADD, WIRE_SWAP, WIRE_STATS, WIRE_SETTINGS };

struct wire_request {
    enum wire_kind kind;
    uint32_t flags;
    uint64_t expiry_s, cas;
    char key[256];
};

/* Asked at once: a store, a look, and `stats`. */
#define WIRE_REQUESTS_MAX 4

struct memcached_wire {
    struct memcached_st *library; /* NULL: closed */
    bool heard;                   /* the server has answered */
    bool broken;                  /* a reply is missing, and those to come would be taken for others */

    struct memcached_requests *requests; /* still to be asked, or NULL */
    struct wire_request asked[WIRE_REQUESTS_MAX];
    size_t asked_at, asked_end;
    char value[MEMCACHED_SENT_MAX]; /* of the one store among them */
};

/* Whether the URI has what a login needs. 0, EINVAL. */
int wire_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- wire.c, for requests.c and replies.c ------------------------------------------------------------------------ */

/* Appends a request; one that stores has a value, others NULL. */
void wire_ask(struct memcached *memcached, const struct wire_request *request, const char *value);

/* The request whose reply is to be read next, which is of this kind; NULL: the connection is broken, and *rc says so. */
const struct wire_request *wire_next(struct memcached *memcached, enum wire_kind kind, int *rc,
                                     struct dlock_error *err);

/* The reply has not come, or makes no sense: ends the connection. EUNAVAILABLE, EAUTH, EPROTO. */
int wire_failed(struct memcached *memcached, const struct library_failure *failure, struct dlock_error *err);

#endif
