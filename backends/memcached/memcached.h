/* The memcached backend's inside: one connection, and what its files offer each other.
 *
 * It speaks the text protocol on its own socket: "Why no client library" in docs/backends.md. The files that do so are
 * login, replies, requests, wire and text/wire.h; ../memcached_sasl has others in their place.
 *
 * The files; each calls those below it only:
 *   memcached
 *   claims
 *   turns  inspect  check
 *   shared
 *   grants  holders  facts  login
 *   replies
 *   requests  numbers
 *   wire  address  names  flags  clock  sightings */
#ifndef DLOCK_MEMCACHED_H
#define DLOCK_MEMCACHED_H

#include <wire.h>

#include <stdint.h>

#define MEMCACHED_NAME_MAX 255
/* memcached's own limit. Longer names are cut and end in a hash; then their values bear the whole name too. */
#define MEMCACHED_KEY_MAX 250
/* A token, or a list of one; and the name. */
#define MEMCACHED_VALUE_MAX (DLOCK_TOKEN_MAX + 1 + MEMCACHED_NAME_MAX + 100)
/* How much of a value is kept when it is read, and the longest list: with its request it can be sent together. */
#define MEMCACHED_KEPT_MAX (MEMCACHED_SENT_MAX - 1025)
#define MEMCACHED_HOLDERS_MAX 128

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

/* The server's clock as far as it is known, see clock.c. */
struct memcached_clock {
    int64_t at_us;    /* when the last reading was asked for; local clock; 0: never */
    int64_t below_us; /* at that time the server's clock, in microseconds since 1970, was certainly below this */
    uint64_t said_s;  /* the last reading */
    bool ticked;      /* readings have differed */
};

/* Something that was seen in one version since then, see sightings.c. */
struct memcached_sighting {
    uint64_t key, version;
    int64_t since_us, last_us;
};

/* Holders that one connection watches at a time; more get in each other's way, and wait for the server's clock. */
#define MEMCACHED_SIGHTINGS 512

struct memcached {
    const struct dlock_peer *peer;
    struct memcached_wire wire;
    char where[160]; /* the server, for error messages */

    uint64_t started_us;         /* when the server started, by its own clock: the first part of every fence */
    int64_t connected_us;        /* since then, at the latest, this server has been the one; local clock */
    int64_t quarantine_until_us; /* nothing is granted before; local clock; 0: no quarantine */

    struct memcached_clock clock;
    const struct memcached_meta *meta; /* NULL: it does not know them */
    bool reserves;                     /* it lets clients choose cas ids, and so memcached_ask_add() has to reserve */
    bool evicts;                       /* it runs without -M */
    bool tells_ttl;                    /* `meta` is asked how long an item has to live, which costs less than `stats` */
    struct memcached_sighting sightings[MEMCACHED_SIGHTINGS];

    char value[MEMCACHED_KEPT_MAX + 1]; /* of the last item that was read */
};

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct memcached_address {
    const char *socket; /* of a Unix socket; else NULL */
    const struct dlock_uri *uri;
    const struct dlock_host *host;
    int port;
    const char *user, *password; /* NULL: none */
};

/* Reads what the URI asks for, all but the address; checks that its hosts are one server. EINVAL. */
int memcached_address(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err);
int memcached_accepts(const struct dlock_uri *uri, struct dlock_error *err);

struct memcached_item;

/* ---- wire.c: the connection -------------------------------------------------------------------------------------- */

/* Connects. EUNAVAILABLE, EINVAL. */
int memcached_dial(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                   struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void memcached_hang_up(struct memcached *memcached);

/* Closes nothing but what a forked child has inherited. */
void memcached_abandon(void *conn);

/* Asks, in `err`, what kind of server this is. */
void memcached_doubt(const struct memcached_address *address, struct dlock_error *err);

/* What `check` has to say of the connection. */
void memcached_report(const struct memcached *memcached, struct dlock_report *report);

/* Begins to write these requests; the reads that follow write the rest. `requests` must live until all replies are
 * read, or until memcached_write(memcached, NULL). */
void memcached_write(struct memcached *memcached, struct memcached_requests *requests);

/* The connection can be used no longer: EUNAVAILABLE; or an answer makes no sense: EPROTO. */
int memcached_dead(struct memcached *memcached, const char *why, struct dlock_error *err);
int memcached_nonsense(struct memcached *memcached, const char *what, struct dlock_error *err);

/* ---- login.c ----------------------------------------------------------------------------------------------------- */

/* Logs in, if the URI has a user and a password. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_log_in(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                     struct dlock_error *err);

/* ---- requests.c: each is appended, for memcached_requests.write, or while nothing else is on its way --------------- */

/* A look at an item; read by memcached_read_item(). */
void memcached_ask_item(struct memcached *memcached, const char *key);

/* Stores this value, unless the key has an item; read by memcached_read_added(). */
void memcached_ask_add(struct memcached *memcached, const char *key, const char *token, uint32_t flags,
                       uint64_t expiry_s, const char *value);

/* Stores this value if the item still has this id; read by memcached_read_swapped(). */
void memcached_ask_swap(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                        const char *value, uint64_t cas);

/* Ends the item with this id: the comparison and the end in one step, which `delete` cannot; read by
 * memcached_read_ended(). */
void memcached_ask_end(struct memcached *memcached, const char *key, uint64_t cas);

/* Expiries beyond 30 days are absolute times: this one has passed. */
#define MEMCACHED_PAST_S 2592001

/* All that the server says of itself, the time, too; and its settings. Each is read by memcached_read_stats(). */
void memcached_ask_stats(struct memcached *memcached);
void memcached_ask_settings(struct memcached *memcached);

/* What it can beyond the classic commands; read by memcached_read_abilities(). */
void memcached_ask_abilities(struct memcached *memcached);

/* Whether the item is a reservation, which memcached_ask_add() may have left, and whether it is the one for this token. */
bool memcached_is_reserved(const struct memcached_item *item);
bool memcached_is_reserved_for(const struct memcached_item *item, const char *token);

/* ---- replies.c --------------------------------------------------------------------------------------------------- */

enum memcached_stored { MEMCACHED_STORED, MEMCACHED_NOT_STORED, MEMCACHED_EXISTS, MEMCACHED_NOT_FOUND };

/* The reply to memcached_ask_add(): STORED or NOT_STORED; and the one to memcached_ask_swap(): never NOT_STORED.
 * EUNAVAILABLE, which a server without memory is, too, EAUTH, EPROTO. */
int memcached_read_added(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err);
int memcached_read_swapped(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                           struct dlock_error *err);

/* The reply to memcached_ask_end(): STORED when the item has ended; never NOT_STORED. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_ended(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err);

struct memcached_item {
    bool found;
    uint64_t cas;
    uint32_t flags;
    uint64_t granted; /* the cas id of the grant: renewals change `cas`; or MEMCACHED_NOT_KNOWN */
    int64_t lease_ms; /* 0: unknown */
    uint64_t length;  /* may be more than is kept of it */
    const char *value;
};

/* The reply to memcached_ask_item(). `value` is valid until the next one. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_item(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                        struct dlock_error *err);

/* Sets `meta`, if the server knows the meta commands as 1.6.18 does, and `reserves`, if it knows cas ids that clients
 * choose as 1.6.27 does. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_abilities(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err);

/* The meta commands, where the server has them. Reads: EUNAVAILABLE, EAUTH, EPROTO. */
struct memcached_meta {
    /* As memcached_ask_swap(), but tells the new id, too, which is stored in *cas when the item was stored. */
    void (*ask_set)(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s, const char *value,
                    uint64_t cas);
    int (*read_set)(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored, uint64_t *cas,
                    struct dlock_error *err);
    /* How many seconds the item with this id has to live, by the server's clock; -1: it is not there (any more). */
    void (*ask_ttl)(struct memcached *memcached, const char *key);
    int (*read_ttl)(struct memcached *memcached, uint64_t cas, int64_t deadline_us, int64_t *left_s,
                    struct dlock_error *err);
};

/* The reply to memcached_ask_stats() or _settings(): `each` gets every line's name and value. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_stats(struct memcached *memcached, int64_t deadline_us,
                         void (*each)(const char *name, const char *value, void *arg), void *arg,
                         struct dlock_error *err);

/* ---- numbers.c --------------------------------------------------------------------------------------------------- */

/* A whole decimal number; moves past it. */
bool memcached_number(const char **text, uint64_t *number);

/* The fence of a grant; 0: it makes no sense. */
uint64_t memcached_fence(const struct memcached *memcached, uint64_t granted);

/* Whether an item may have this cas id. 0, EPROTO. */
int memcached_check_id(struct memcached *memcached, uint64_t cas, struct dlock_error *err);

/* ---- names.c: what items are called, and contain ----------------------------------------------------------------- */

/* The value of an exclusive grant: the token; behind a key that was cut, the whole name too, so that another name with
 * the same hash is not taken for this one. */
void memcached_value(char out[MEMCACHED_VALUE_MAX + 1], const struct dlock_claim *claim, bool cut);

/* The key of a lock; true: the name was cut. */
bool memcached_key(char key[MEMCACHED_KEY_MAX + 1], const char *name);

/* ---- flags.c: what an item's flags note -------------------------------------------------------------------------- */

/* Instead of the cas id of a grant. */
#define MEMCACHED_NOT_KNOWN UINT64_C(0)
#define MEMCACHED_THIS_STORE UINT64_MAX

/* The flags for an item whose grant had this cas id, and that has now got `cas`. */
uint32_t memcached_flags(int64_t lease_ms, uint64_t granted, uint64_t cas);

/* The cas id of the grant, as an item with these flags of ours and this id tells it; or MEMCACHED_NOT_KNOWN. */
uint64_t memcached_granted(uint32_t flags, uint64_t cas);

/* Reads the flags into lease_ms and granted. */
void memcached_read_flags(struct memcached_item *item);

/* ---- sightings.c: leases that were not renewed ------------------------------------------------------------------- */

/* For how long `what` has been seen in this version by this connection. Remembers that it was seen. */
int64_t memcached_seen_us(struct memcached *memcached, const char *what, uint64_t version);

/* Whether that is as long as its lease; lease_ms 0: unknown. */
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

/* ---- facts.c: what the server says about itself ------------------------------------------------------------------ */

/* Learns what holds as long as the connection, and reads the clock. EUNAVAILABLE, EAUTH, ENOTSUP, EPROTO. */
int memcached_ask_facts(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err);

/* Whether a server's clock may say so. */
bool memcached_time_makes_sense(uint64_t time_s);

/* The reply to memcached_ask_stats(). EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_time(struct memcached *memcached, int64_t deadline_us, uint64_t *time_s, struct dlock_error *err);

/* > 0 while the quarantine lasts. */
int64_t memcached_quarantine_left_us(const struct memcached *memcached);
/* True while it lasts: the claim then says for how long. */
bool memcached_quarantined(const struct memcached *memcached, struct dlock_claim *claim);

/* ---- holders.c: those who hold a name together ------------------------------------------------------------------- */

struct memcached_holder {
    const char *token; /* not terminated; in an item's value, or a claim's */
    size_t length;
    uint64_t granted; /* the cas id of the grant, or MEMCACHED_THIS_STORE */
    uint64_t set;     /* the item's id before the lease was set: another one each time */
    int64_t lease_ms;
    uint64_t expiry_s; /* as memcached_expiry_s() */
};

/* In the place of a token: a writer waits until the readers are gone, and no more of them come. */
#define MEMCACHED_WRITER "?"

struct memcached_holders {
    enum dlock_mode mode; /* DLOCK_SHARED, DLOCK_PERMIT */
    uint32_t limit;       /* of permits */
    size_t n;
    struct memcached_holder holder[MEMCACHED_HOLDERS_MAX];
};

/* Whether the item is such a list; `name` is the one it has to bear, if the key was cut, or NULL. */
bool memcached_read_holders(const struct memcached_item *item, const char *name, struct memcached_holders *out);
/* At most MEMCACHED_KEPT_MAX, or it does not fit: what the list may need as long as nobody joins it. */
size_t memcached_holders_size(const struct memcached_holders *holders);
void memcached_write_holders(char *out, size_t size, const char *name, const struct memcached_holders *holders);

struct memcached_holder *memcached_find_holder(struct memcached_holders *holders, const char *token);
/* There must be room. The lease is still to be set. */
struct memcached_holder *memcached_add_holder(struct memcached_holders *holders, const char *token);
void memcached_drop_holder(struct memcached_holders *holders, struct memcached_holder *holder);
/* How many there are beside MEMCACHED_WRITER. */
size_t memcached_live_holders(struct memcached_holders *holders);
/* How long this connection has known its lease. */
int64_t memcached_holder_seen_us(struct memcached *memcached, const char *key, const struct memcached_holder *holder);
/* Drops those whose lease has ended, but for leases that were set at this id. */
void memcached_drop_ended(struct memcached *memcached, const char *key, uint64_t but_set,
                          struct memcached_holders *holders);

/* ---- grants.c: what operations on claims end with ---------------------------------------------------------------- */

enum memcached_operation { MEMCACHED_ACQUIRE, MEMCACHED_RENEW, MEMCACHED_RELEASE };

/* dlock_claim.state */
enum { STATE_CAS, STATE_SEEN_US, STATE_GRANTED, STATE_ALONE };

/* The claim has its grant, and its lease was set by a request that was sent at sent_us: notes that in it. `alone`: the
 * item is as it would be if nobody else had ever held the name. */
void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us);

/* ---- claims.c, turns.c, shared.c: operations on claims ----------------------------------------------------------- */

dlock_batch memcached_acquire, memcached_renew, memcached_release;

/* Why a claim is refused; "": its result says all. */
#define MEMCACHED_WHY_MAX 160

/* An operation that cannot be done without looking at who else holds the name, on claims of one name; more than one
 * only in a renewal. Sets their results. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_shared(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *const *claims,
                     size_t n, int64_t deadline_us, char why[MEMCACHED_WHY_MAX], struct dlock_error *err);

/* The next step of an acquire that has met this item. */
enum memcached_way {
    MEMCACHED_CLOSED, /* nothing: its result is set */
    MEMCACHED_OPEN,   /* take the item over, alone */
    MEMCACHED_CHANGE  /* memcached_shared() */
};
enum memcached_way memcached_meet(struct memcached *memcached, struct dlock_claim *claim,
                                  const struct memcached_item *item, char why[MEMCACHED_WHY_MAX]);

/* ---- inspect.c, check.c: operations for operators ---------------------------------------------------------------- */

int memcached_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
int memcached_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int memcached_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
