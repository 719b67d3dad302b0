/* The connection between the memcached backend and its server, by libmemcached and the binary protocol. The include
 * path puts this file in the place of ../memcached/text/wire.h.
 *
 * libmemcached handles one request at a time. So a request is kept here, and sent only when its reply is needed. */
#ifndef DLOCK_MEMCACHED_WIRE_H
#define DLOCK_MEMCACHED_WIRE_H

#include "library.h"

#define WIRE_IS_SASL 1
#define DLOCK_STREAM_IS_TLS 0
/* Additional URI keys, for the backend's list. */
#define WIRE_KEYS

/* Limits the length of a list; the same value as for the text protocol. */
#define MEMCACHED_SENT_MAX 16384

struct memcached;

enum wire_kind { WIRE_ITEM, WIRE_ADD, WIRE_SWAP, WIRE_STATS, WIRE_SETTINGS };

struct wire_request {
    enum wire_kind kind;
    uint32_t flags;
    uint64_t expiry_s, cas;
    char key[256];
};

/* Most requests that are kept: a store, a read, and `stats` come together. */
#define WIRE_REQUESTS_MAX 4

struct memcached_wire {
    struct memcached_st *library; /* NULL: closed */
    bool heard;                   /* the server has answered */
    bool broken;                  /* a reply is missing, so later ones cannot be matched to requests */

    struct memcached_requests *requests; /* the requests that are still to be made, or NULL */
    struct wire_request asked[WIRE_REQUESTS_MAX];
    size_t asked_at, asked_end;     /* the unsent part of `asked` */
    char value[MEMCACHED_SENT_MAX]; /* the value of the one store among them */
};

/* Checks the additional URI keys: always 0, since there are none. */
int wire_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- wire.c, for requests.c and replies.c ------------------------------------------------------------------------ */

/* Appends a request. `value` is that of a store; NULL for other requests. */
void wire_ask(struct memcached *memcached, const struct wire_request *request, const char *value);

/* Returns the request whose reply comes next, which has to be of this kind. NULL: the connection is broken, and *rc is
 * the error. */
const struct wire_request *wire_next(struct memcached *memcached, enum wire_kind kind, int *rc,
                                     struct dlock_error *err);

/* Ends the connection after a missing or malformed reply. Returns EUNAVAILABLE, EAUTH or EPROTO. */
int wire_failed(struct memcached *memcached, const struct library_failure *failure, struct dlock_error *err);

#endif
