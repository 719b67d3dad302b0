/* The bytes between this backend and its server: the text protocol over a stream. ../memcached_sasl/wire.h has another
 * struct memcached_wire; which of them a backend is built with is said by its include path alone. */
#ifndef DLOCK_MEMCACHED_WIRE_H
#define DLOCK_MEMCACHED_WIRE_H

#include <stream.h>

struct memcached;

#define WIRE_IS_SASL 0
/* URI keys of its own, for the backend's list. */
#define WIRE_KEYS STREAM_KEYS

#define wire_accepts stream_accepts

/* What goes out together: no more than a TLS record has, and no request in two. memcached (seen with 1.6.18) does not look
 * at what is left of a record of which it has read the end of a value alone, until more comes. */
#define MEMCACHED_SENT_MAX 16384
/* Longest request: a reservation, a cas, and a gets behind it. */
#define MEMCACHED_REQUEST_MAX (3 * MEMCACHED_KEY_MAX + MEMCACHED_VALUE_MAX + 192)

struct memcached_wire {
    bool open;
    struct stream stream;
    bool heard;        /* the server has said a line */
    bool broken;       /* an answer is missing or makes no sense: nothing that comes can be trusted any more */
    size_t unanswered; /* replies that are still to come */

    struct memcached_requests *requests; /* still to be written, or NULL */
    char out[MEMCACHED_SENT_MAX];
    size_t out_at, out_end; /* what is still to be sent */
    char in[4096];
    size_t in_at, in_end; /* what is still to be read */
};

/* ---- ../wire.c --------------------------------------------------------------------------------------------------- */

/* Appends a request of at most MEMCACHED_REQUEST_MAX bytes that gets that many replies. For memcached_requests.write,
 * or while nothing else is on its way. */
DLOCK_PRINTF(3, 4)
void memcached_request(struct memcached *memcached, size_t replies, const char *format, ...);

/* Sends what is to be sent and reads one line, without its end; valid until the next read. EUNAVAILABLE, EPROTO. */
int memcached_line(struct memcached *memcached, int64_t deadline_us, char **line, struct dlock_error *err);

/* Reads a block of `length` bytes and its end of line; keeps the first `size` bytes of it. EUNAVAILABLE, EPROTO. */
int memcached_block(struct memcached *memcached, uint64_t length, char *keep, size_t size, int64_t deadline_us,
                    struct dlock_error *err);

/* ---- ../requests.c ----------------------------------------------------------------------------------------------- */

/* struct memcached_meta's. */
void memcached_ask_meta_set(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                            const char *value, uint64_t cas);
void memcached_ask_ttl(struct memcached *memcached, const char *key);

/* ---- ../replies.c ------------------------------------------------------------------------------------------------ */

/* The code for a reply that is none of the expected ones, with the server's words in `err`. */
int memcached_refused(struct memcached *memcached, const char *line, struct dlock_error *err);

#endif
