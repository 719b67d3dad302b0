/* The connection to the server: the text protocol over a stream. ../memcached_sasl/wire.h has another
 * struct memcached_wire; the include path decides with which of them a backend is built. */
#ifndef DLOCK_MEMCACHED_WIRE_H
#define DLOCK_MEMCACHED_WIRE_H

#include <dlock/backend_stream.h>

struct memcached;

#define WIRE_IS_SASL 0
/* The URI keys of the stream, for the backend's list. */
#define WIRE_KEYS DLOCK_STREAM_KEYS

#define wire_accepts dlock_stream_accepts

/* Most bytes that are sent together: no more than a TLS record, so that no request is split between two. When memcached
 * (seen with 1.6.18) has read only the end of a value from a record, it ignores the rest of it until more is
 * received. */
#define MEMCACHED_SENT_MAX 16384
/* Longest request: a reservation, a cas, and a gets behind it. */
#define MEMCACHED_REQUEST_MAX (3 * MEMCACHED_KEY_MAX + MEMCACHED_VALUE_MAX + 192)

struct memcached_wire {
    bool open;
    struct dlock_stream stream;
    bool heard;        /* the server has sent a line */
    bool broken;       /* an answer is missing or malformed: later ones cannot be matched to requests */
    size_t unanswered; /* number of outstanding replies */

    struct memcached_requests *requests; /* the requests not written yet, or NULL */
    char out[MEMCACHED_SENT_MAX];
    size_t out_at, out_end; /* the unsent part of `out` */
    char in[4096];
    size_t in_at, in_end; /* the unread part of `in` */
};

/* ---- ../wire.c --------------------------------------------------------------------------------------------------- */

/* Appends a request of at most MEMCACHED_REQUEST_MAX bytes that gets `replies` replies. For memcached_requests.write,
 * or while no other request is unanswered. */
DLOCK_PRINTF(3, 4)
void memcached_request(struct memcached *memcached, size_t replies, const char *format, ...);

/* Sends pending requests and reads one line, without its end; it is valid until the next read. EUNAVAILABLE, EPROTO. */
int memcached_line(struct memcached *memcached, int64_t deadline_us, char **line, struct dlock_error *err);

/* Reads a block of `length` bytes and its end of line; keeps the first `size` bytes of it. EUNAVAILABLE, EPROTO. */
int memcached_block(struct memcached *memcached, uint64_t length, char *keep, size_t size, int64_t deadline_us,
                    struct dlock_error *err);

/* ---- ../requests.c ----------------------------------------------------------------------------------------------- */

/* The requests of struct memcached_meta. */
void memcached_ask_meta_set(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                            const char *value, uint64_t cas);
void memcached_ask_ttl(struct memcached *memcached, const char *key);

/* ---- ../replies.c ------------------------------------------------------------------------------------------------ */

/* Returns the error code for an unexpected reply, with the server's words in `err`. */
int memcached_refused(struct memcached *memcached, const char *line, struct dlock_error *err);

#endif
