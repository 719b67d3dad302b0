/* The memcached backend's inside: one connection, and what its files offer each other.
 *
 * It speaks the text protocol on its own socket. libmemcached 1.1.4 cannot do what <dlock/backend.h> asks: an answer it
 * does not expect aborts the program (an assert in storage.cc) or ends it (VERSION without a number), a long key in an
 * answer overflows its result, its timeout begins anew with every byte, and it sends no two requests that want answers
 * without waiting in between. Six commands do not need it. */
#ifndef DLOCK_MEMCACHED_H
#define DLOCK_MEMCACHED_H

#include <dlock/backend_socket.h>

#include <stdint.h>

#define MEMCACHED_NAME_MAX 255
/* memcached's own limit. Longer names are cut and end in a hash; then their values bear the whole name too. */
#define MEMCACHED_KEY_MAX 250
#define MEMCACHED_VALUE_MAX (DLOCK_TOKEN_MAX + 1 + MEMCACHED_NAME_MAX)
/* Longest request: cas or add, and a gets behind it. */
#define MEMCACHED_REQUEST_MAX (2 * MEMCACHED_KEY_MAX + MEMCACHED_VALUE_MAX + 128)

/* Two answers for memcached_read_stats(). */
#define MEMCACHED_ASK_STATS "stats\r\nstats settings\r\n"

/* Fences are below this (<dlock/backend.h>). */
#define MEMCACHED_FENCE_END (UINT64_C(1) << 55)

struct memcached;

/* Requests that are written while the replies to those before them are read, so that any number of them needs no more
 * than the connection's own buffer, and neither side ever waits for the other to read. */
struct memcached_requests {
    size_t count, next;
    void (*write)(struct memcached *memcached, size_t i, void *arg);
    void *arg;
};

/* What is known of the server's clock, see clock.c. */
struct memcached_clock {
    int64_t at_us;    /* when the last reading was asked for; local clock; 0: never */
    int64_t below_us; /* at that time the server's clock, in microseconds since 1970, was certainly below this */
    uint64_t said_s;  /* the last reading */
    bool ticked;      /* readings have differed */
};

/* Something that was seen in one version since then, see watch.c. */
struct memcached_sighting {
    uint64_t key, version;
    int64_t since_us;
};

/* Names whose holders one connection watches at a time; more get in each other's way, and wait for the server. */
#define MEMCACHED_SIGHTINGS 256

struct memcached {
    const struct dlock_peer *peer;
    bool open;
    int dialing; /* a socket that is not yet fd, plus 1: a child forked meanwhile must close it, too */
    int fd;
    bool heard;        /* it has said something */
    bool broken;       /* an answer is missing or makes no sense: nothing that comes can be trusted any more */
    size_t unanswered; /* replies that are still to come */
    char where[160];   /* the server, for error messages */

    uint64_t started_us;         /* when the server started, by its own clock: the first part of every fence */
    int64_t connected_us;        /* since then, at the latest, this server has been the one; local clock */
    int64_t quarantine_until_us; /* nothing is granted before; local clock; 0: no quarantine */

    struct memcached_clock clock;
    struct memcached_sighting sightings[MEMCACHED_SIGHTINGS];

    struct memcached_requests *requests; /* still to be written, or NULL */
    char out[16384];
    size_t out_at, out_end; /* what is still to be sent */
    char in[4096];
    size_t in_at, in_end; /* what is still to be read */
};

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct memcached_address {
    const char *socket; /* of a Unix socket; else NULL */
    const char *host;   /* numeric */
    int port;
    const char *user, *password; /* NULL: none */
};

/* Reads what the URI asks for, all but the address; checks that its hosts are one server. EINVAL. */
int memcached_address(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err);
int memcached_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- wire.c: the socket, deadlines, requests, lines -------------------------------------------------------------- */

/* Connects the socket. EUNAVAILABLE, EINVAL. */
int memcached_dial(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                   struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void memcached_hang_up(struct memcached *memcached);

/* Appends a request of at most MEMCACHED_REQUEST_MAX bytes that gets that many replies. For memcached_requests.write,
 * or while nothing else is on its way. */
DLOCK_PRINTF(3, 4)
void memcached_request(struct memcached *memcached, size_t replies, const char *format, ...);

/* Begins to write these requests; the reads that follow write the rest. `requests` must live until all replies are
 * read, or until memcached_write(memcached, NULL). */
void memcached_write(struct memcached *memcached, struct memcached_requests *requests);

/* Sends what is to be sent and reads one line, without its end; valid until the next read. EUNAVAILABLE, EPROTO. */
int memcached_line(struct memcached *memcached, int64_t deadline_us, char **line, struct dlock_error *err);

/* Reads a block of `length` bytes and its end of line; keeps the first `size` bytes of it. EUNAVAILABLE, EPROTO. */
int memcached_block(struct memcached *memcached, uint64_t length, char *keep, size_t size, int64_t deadline_us,
                    struct dlock_error *err);

/* The connection can be used no longer: EUNAVAILABLE; or an answer makes no sense: EPROTO. */
int memcached_dead(struct memcached *memcached, const char *why, struct dlock_error *err);
int memcached_nonsense(struct memcached *memcached, const char *what, struct dlock_error *err);

/* ---- replies.c: what the lines mean ------------------------------------------------------------------------------ */

enum memcached_stored { MEMCACHED_STORED, MEMCACHED_NOT_STORED, MEMCACHED_EXISTS, MEMCACHED_NOT_FOUND };

/* The reply to add or cas. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_stored(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                          struct dlock_error *err);

struct memcached_item {
    bool found;
    uint64_t cas;
    uint32_t flags;
    uint64_t granted; /* the cas id of the grant: renewals change `cas`; or MEMCACHED_NOT_KNOWN */
    int64_t lease_ms; /* 0: unknown */
    uint64_t length;  /* may be more than is kept */
    char value[MEMCACHED_VALUE_MAX + 1];
};

/* The reply to gets. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_item(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                        struct dlock_error *err);

/* The fence of a grant; 0: it makes no sense. */
uint64_t memcached_fence(const struct memcached *memcached, uint64_t granted);

/* The reply to stats: `each` gets every line's name and value. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_stats(struct memcached *memcached, int64_t deadline_us,
                         void (*each)(const char *name, const char *value, void *arg), void *arg,
                         struct dlock_error *err);

/* A whole decimal number; moves past it. */
bool memcached_number(const char **text, uint64_t *number);

/* The code for a reply that is none of the expected ones, with the server's words in `err`. */
int memcached_refused(struct memcached *memcached, const char *line, struct dlock_error *err);

/* ---- flags.c: what an item's flags note -------------------------------------------------------------------------- */

/* Instead of the cas id of a grant. */
#define MEMCACHED_NOT_KNOWN UINT64_C(0)
#define MEMCACHED_THIS_STORE UINT64_MAX

/* The flags for an item whose grant had this cas id, and that has now got `cas`. */
uint32_t memcached_flags(int64_t lease_ms, uint64_t granted, uint64_t cas);

/* What the flags say, into lease_ms and granted. */
void memcached_read_flags(struct memcached_item *item);

/* ---- watch.c: leases that were not renewed ----------------------------------------------------------------------- */

/* Whether `what` has been seen in this version, by this connection, for as long as its lease is. Remembers that it was
 * seen. lease_ms 0: unknown. */
bool memcached_has_lapsed(struct memcached *memcached, const char *what, uint64_t version, int64_t lease_ms);

/* ---- clock.c: when leases end ------------------------------------------------------------------------------------ */

/* Too old to be used: to be read before anything else. */
bool memcached_clock_is_stale(const struct memcached_clock *clock, int64_t now_us);

/* The flight that sets leases is to end with a reading. */
bool memcached_clock_is_due(const struct memcached_clock *clock, int64_t now_us);

/* A reading that was sent after sent_us said `said_s`. True: what was written before by this clock may end too early.
 */
bool memcached_clock_read(struct memcached_clock *clock, int64_t sent_us, uint64_t said_s);

/* The expiry, in seconds since 1970 by the server's clock, for a lease that begins at sent_us. */
int64_t memcached_expiry_s(const struct memcached_clock *clock, int64_t sent_us, int64_t lease_ms);

/* ---- memcached.c: what the server says about itself -------------------------------------------------------------- */

#define MEMCACHED_ASK_TIME "stats\r\n"

/* The reply to MEMCACHED_ASK_TIME. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_time(struct memcached *memcached, int64_t deadline_us, uint64_t *time_s, struct dlock_error *err);

/* ---- claims.c, look.c, check.c: operations ----------------------------------------------------------------------- */

dlock_batch memcached_acquire, memcached_renew, memcached_release;

/* The key of a lock; true: the name was cut. */
bool memcached_key(char key[MEMCACHED_KEY_MAX + 1], const char *name);

/* Appends a request that lets the item with this id end at once: the comparison and the end in one step, which `delete`
 * cannot. */
void memcached_end(struct memcached *memcached, const char *key, uint64_t cas);

int memcached_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
/* > 0 while the quarantine lasts. */
int64_t memcached_quarantine_left_us(const struct memcached *memcached);

int memcached_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int memcached_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
