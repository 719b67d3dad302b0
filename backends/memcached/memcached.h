/* Declarations for all files of the memcached backend.
 *
 * It speaks the text protocol on its own socket, for what libmemcached 1.1.4 (Debian 12 and 13) does where a lock depends
 * on it. tests/backends/memcached/libmemcached_test.c shows the first three, and fails when the library has changed:
 *   - An unexpected answer ends the program, by an assertion or a segmentation fault: 10 of the 12 that the test gives.
 *   - Its timeout restarts with every byte, so a server that sends slowly delays a renewal without limit.
 *   - It reconnects silently. A restarted server's cas ids start again, so a repeated `cas` may fit the id of another
 *     client's lock, and overwrite it. An id may be used only on the connection that it was seen on.
 *   - It waits for each answer, so 1000 renewals are 1000 round trips.
 * The files that speak it are list, login, replies, requests, wire and text/wire.h; ../memcached_sasl, which uses libmemcached
 * for the binary protocol, has others in their place.
 *
 * The files; each calls those below it only:
 *   memcached
 *   claims  list
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
/* memcached's own limit. Longer keys are cut and end in a hash; their values then also contain the whole name. */
#define MEMCACHED_KEY_MAX 250
/* Longest value with a single holder: a token or a list of one, and the name. */
#define MEMCACHED_VALUE_MAX (DLOCK_TOKEN_MAX + 1 + MEMCACHED_NAME_MAX + 100)
/* Bytes of a value that are kept when it is read, and longest list: with its request it can be sent in one piece. */
#define MEMCACHED_KEPT_MAX (MEMCACHED_SENT_MAX - 1025)
#define MEMCACHED_HOLDERS_MAX 128

/* Fences are below this (<dlock/backend.h>). */
#define MEMCACHED_FENCE_END (UINT64_C(1) << 55)

struct memcached;

/* Requests that are written while the replies to earlier ones are read. So any number of them fits through the
 * connection's buffer, and neither side ever blocks because the other does not read. */
struct memcached_requests {
    size_t count, next;
    void (*write)(struct memcached *memcached, size_t i, void *arg);
    void *arg;
};

/* The knowledge of the server's clock, see clock.c. */
struct memcached_clock {
    int64_t at_us;    /* when the last reading was sent, by the local clock; 0: never */
    int64_t below_us; /* upper bound of the server's real time at at_us, in microseconds since 1970 */
    uint64_t said_s;  /* the last reading */
    bool ticked;      /* two readings have differed */
};

/* Something that has been seen in the same version since a time, see sightings.c. */
struct memcached_sighting {
    uint64_t key, version;
    int64_t since_us, last_us; /* when this version was seen first and last, by the local clock */
};

/* Number of leases that one connection watches at a time. More of them displace each other; a displaced one ends by the
 * server's clock. */
#define MEMCACHED_SIGHTINGS 512

struct memcached {
    const struct dlock_peer *peer;
    struct memcached_wire wire;
    char where[160]; /* the server, for error messages */

    uint64_t started_us;         /* the server's start by its own clock: the base of every fence */
    int64_t connected_us;        /* when it was known that this server is at the other end; local clock */
    int64_t quarantine_until_us; /* end of the quarantine; local clock; 0: no quarantine */

    struct memcached_clock clock;
    const struct memcached_meta *meta; /* the meta commands; NULL: the server does not have them */
    bool reserves;                     /* clients can choose cas ids, so memcached_ask_add() has to make reservations */
    bool evicts;                       /* the server runs without -M */
    bool walks_hash;                   /* its crawler walks the hash table without locking it for long (list.c) */
    bool tells_ttl;                    /* read the clock by an item's time to live (`meta`), cheaper than `stats` */
    struct memcached_sighting sightings[MEMCACHED_SIGHTINGS];

    char value[MEMCACHED_KEPT_MAX + 1]; /* value of the last item that was read */
};

/* ---- address.c: the URI ------------------------------------------------------------------------------------------ */

struct memcached_address {
    const char *socket; /* path of a Unix socket; else NULL */
    const struct dlock_uri *uri;
    const struct dlock_host *host;
    int port;
    const char *user, *password; /* NULL: none */
};

/* Reads the URI, except the address of the host, and checks that its hosts are one server. EINVAL. */
int memcached_address(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err);
int memcached_accepts(const struct dlock_uri *uri, struct dlock_error *err);

struct memcached_item;

/* ---- wire.c: the connection -------------------------------------------------------------------------------------- */

/* Connects. EUNAVAILABLE, EINVAL. */
int memcached_dial(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                   struct dlock_error *err);

/* Closes the connection, by reset if a request is unanswered. */
void memcached_hang_up(struct memcached *memcached);

/* Closes a forked child's copy of the descriptors. */
void memcached_abandon(void *conn);

/* Adds to `err` the doubt that this is a memcached server. */
void memcached_doubt(const struct memcached_address *address, struct dlock_error *err);

/* Reports the findings of `check` about the connection. */
void memcached_report(const struct memcached *memcached, struct dlock_report *report);

/* Begins to write these requests; the reads that follow write the rest. `requests` must live until all replies are
 * read, or until memcached_write(memcached, NULL). */
void memcached_write(struct memcached *memcached, struct memcached_requests *requests);

/* Mark the connection as broken. memcached_dead() returns EUNAVAILABLE; memcached_nonsense(), for a malformed answer,
 * returns EPROTO. */
int memcached_dead(struct memcached *memcached, const char *why, struct dlock_error *err);
int memcached_nonsense(struct memcached *memcached, const char *what, struct dlock_error *err);

/* ---- login.c ----------------------------------------------------------------------------------------------------- */

/* Logs in, if the URI has a user and a password. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_log_in(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                     struct dlock_error *err);

/* ---- requests.c: each appends a request; for memcached_requests.write, or while no other request is unanswered
 * ----- */

/* Reads an item; the reply is read by memcached_read_item(). */
void memcached_ask_item(struct memcached *memcached, const char *key);

/* Stores this value, unless the key has an item; the reply is read by memcached_read_added(). */
void memcached_ask_add(struct memcached *memcached, const char *key, const char *token, uint32_t flags,
                       uint64_t expiry_s, const char *value);

/* Stores this value if the item still has this id; the reply is read by memcached_read_swapped(). */
void memcached_ask_swap(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                        const char *value, uint64_t cas);

/* Compares the item's id and ends the item in one step, which `delete` cannot; the reply is read by
 * memcached_read_ended(). */
void memcached_ask_end(struct memcached *memcached, const char *key, uint64_t cas);

/* An expiry in the past: values beyond 30 days are absolute times. */
#define MEMCACHED_PAST_S 2592001

/* Ask for the server's statistics, which include its time, and for its settings; each reply is read by
 * memcached_read_stats(). */
void memcached_ask_stats(struct memcached *memcached);
void memcached_ask_settings(struct memcached *memcached);

/* Asks which commands the server has beyond the classic ones; the reply is read by memcached_read_abilities(). */
void memcached_ask_abilities(struct memcached *memcached);

/* True if the item is a reservation, which memcached_ask_add() may have left; if it is the reservation of this
 * token. */
bool memcached_is_reserved(const struct memcached_item *item);
bool memcached_is_reserved_for(const struct memcached_item *item, const char *token);

/* ---- replies.c --------------------------------------------------------------------------------------------------- */

enum memcached_stored { MEMCACHED_STORED, MEMCACHED_NOT_STORED, MEMCACHED_EXISTS, MEMCACHED_NOT_FOUND };

/* Read the reply to memcached_ask_add(), STORED or NOT_STORED, and to memcached_ask_swap(), never NOT_STORED.
 * EUNAVAILABLE, also if the server has no memory, EAUTH, EPROTO. */
int memcached_read_added(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err);
int memcached_read_swapped(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                           struct dlock_error *err);

/* Reads the reply to memcached_ask_end(): STORED if the item was ended; never NOT_STORED. EUNAVAILABLE, EAUTH,
 * EPROTO. */
int memcached_read_ended(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err);

struct memcached_item {
    bool found;
    uint64_t cas;
    uint32_t flags;
    uint64_t granted; /* the cas id of the grant, while renewals change `cas`; or MEMCACHED_NOT_KNOWN */
    int64_t lease_ms; /* 0: unknown */
    uint64_t length;  /* of the value on the server; `value` has at most MEMCACHED_KEPT_MAX bytes of it */
    const char *value;
};

/* Reads the reply to memcached_ask_item(). `value` is valid until the next item is read. EUNAVAILABLE, EAUTH,
 * EPROTO. */
int memcached_read_item(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                        struct dlock_error *err);

/* Sets `meta` if the server has the meta commands as 1.6.18 does, and `reserves` if it lets clients choose cas ids as
 * 1.6.27 does. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_abilities(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err);

/* The meta commands, where the server has them. The reads return EUNAVAILABLE, EAUTH, EPROTO. */
struct memcached_meta {
    /* As memcached_ask_swap(), but its reply also contains the new id, which is put into *cas if the item was
     * stored. */
    void (*ask_set)(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s, const char *value,
                    uint64_t cas);
    int (*read_set)(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored, uint64_t *cas,
                    struct dlock_error *err);
    /* Asks how many seconds an item has to live, by the server's clock. *left_s is -1 if the item with this id does not
     * exist. */
    void (*ask_ttl)(struct memcached *memcached, const char *key);
    int (*read_ttl)(struct memcached *memcached, uint64_t cas, int64_t deadline_us, int64_t *left_s,
                    struct dlock_error *err);
};

/* Reads the reply to memcached_ask_stats() or _settings(): calls `each` with the name and value of every line.
 * EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_stats(struct memcached *memcached, int64_t deadline_us,
                         void (*each)(const char *name, const char *value, void *arg), void *arg,
                         struct dlock_error *err);

/* ---- numbers.c --------------------------------------------------------------------------------------------------- */

/* Reads a whole decimal number and moves *text past it. False: there is none. */
bool memcached_number(const char **text, uint64_t *number);

/* Returns the fence of a grant from its cas id; 0: the id is invalid. */
uint64_t memcached_fence(const struct memcached *memcached, uint64_t granted);

/* Returns 0 if an item can have this cas id, else EPROTO. */
int memcached_check_id(struct memcached *memcached, uint64_t cas, struct dlock_error *err);

/* ---- names.c: keys and values of items --------------------------------------------------------------------------- */

/* Writes the value of an exclusive grant: the token; if the key was cut, also the whole name, so that another name with
 * the same hash is not mistaken for this one. */
void memcached_value(char out[MEMCACHED_VALUE_MAX + 1], const struct dlock_claim *claim, bool cut);

/* Writes the key of a lock. True: the name was cut. */
bool memcached_key(char key[MEMCACHED_KEY_MAX + 1], const char *name);

/* ---- flags.c: the flags of items --------------------------------------------------------------------------------- */

/* Values in the place of the cas id of a grant. */
#define MEMCACHED_NOT_KNOWN UINT64_C(0)
#define MEMCACHED_THIS_STORE UINT64_MAX

/* Returns the flags for storing an item whose grant has the cas id `granted`, and whose id before the store is
 * `cas`. */
uint32_t memcached_flags(int64_t lease_ms, uint64_t granted, uint64_t cas);

/* Returns the cas id of the grant of an item with these flags, which are dlock's, and this id; or
 * MEMCACHED_NOT_KNOWN. */
uint64_t memcached_granted(uint32_t flags, uint64_t cas);

/* Sets lease_ms and granted from the flags. */
void memcached_read_flags(struct memcached_item *item);

/* ---- sightings.c: leases that were not renewed ------------------------------------------------------------------- */

/* Returns how long this connection has seen `what` in this version, and remembers that it is seen now. */
int64_t memcached_seen_us(struct memcached *memcached, const char *what, uint64_t version);

/* True if that is as long as its lease. lease_ms 0: the lease is unknown. */
bool memcached_has_lapsed(struct memcached *memcached, const char *what, uint64_t version, int64_t lease_ms);

/* ---- clock.c: when leases end ------------------------------------------------------------------------------------ */

/* True if the last reading is too old: the clock must be read before anything else. */
bool memcached_clock_is_stale(const struct memcached_clock *clock, int64_t now_us);

/* True if a flight that sets leases has to end with a reading. */
bool memcached_clock_is_due(const struct memcached_clock *clock, int64_t now_us);

/* Takes a reading, which was sent at or after sent_us and returned `said_s`. True: leases that were set with the
 * earlier knowledge of the clock may end too early. */
bool memcached_clock_read(struct memcached_clock *clock, int64_t sent_us, uint64_t said_s);

/* Returns the expiry of a lease that begins at sent_us, in seconds since 1970 by the server's clock. */
int64_t memcached_expiry_s(const struct memcached_clock *clock, int64_t sent_us, int64_t lease_ms);

/* ---- facts.c: facts about the server ----------------------------------------------------------------------------- */

/* Reads the facts that hold for the connection's lifetime, and the clock. EUNAVAILABLE, EAUTH, ENOTSUP, EPROTO. */
int memcached_ask_facts(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err);

/* True if a server's clock can have this value. */
bool memcached_time_makes_sense(uint64_t time_s);

/* Reads the time from the reply to memcached_ask_stats(). EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_read_time(struct memcached *memcached, int64_t deadline_us, uint64_t *time_s, struct dlock_error *err);

/* Returns the rest of the quarantine; not positive: it is over. */
int64_t memcached_quarantine_left_us(const struct memcached *memcached);
/* True during the quarantine; then sets the claim's ready_ms to its rest. */
bool memcached_quarantined(const struct memcached *memcached, struct dlock_claim *claim);

/* ---- holders.c: lists of holders --------------------------------------------------------------------------------- */

struct memcached_holder {
    const char *token; /* not terminated; points into an item's value or to a claim's token */
    size_t length;
    uint64_t granted; /* the cas id of the grant, or MEMCACHED_THIS_STORE */
    uint64_t set;     /* the item's id before the lease was set, different for each lease */
    int64_t lease_ms;
    uint64_t expiry_s; /* as of memcached_expiry_s() */
};

/* The token of a writer's intent: a writer waits for the readers to leave, and new readers stay out. */
#define MEMCACHED_WRITER "?"

struct memcached_holders {
    enum dlock_mode mode; /* DLOCK_SHARED, DLOCK_PERMIT */
    uint32_t limit;       /* of permits */
    size_t n;
    struct memcached_holder holder[MEMCACHED_HOLDERS_MAX];
};

/* Reads a list of holders. False: the item is none, or does not contain `name` (NULL: the key was not cut). */
bool memcached_read_holders(const struct memcached_item *item, const char *name, struct memcached_holders *out);
/* Returns the bytes that the list may need until another holder joins. More than MEMCACHED_KEPT_MAX do not fit. */
size_t memcached_holders_size(const struct memcached_holders *holders);
void memcached_write_holders(char *out, size_t size, const char *name, const struct memcached_holders *holders);

struct memcached_holder *memcached_find_holder(struct memcached_holders *holders, const char *token);
/* Adds a holder, for which there must be room; the caller sets its lease. */
struct memcached_holder *memcached_add_holder(struct memcached_holders *holders, const char *token);
void memcached_drop_holder(struct memcached_holders *holders, struct memcached_holder *holder);
/* Returns the number of holders without MEMCACHED_WRITER. */
size_t memcached_live_holders(struct memcached_holders *holders);
/* Returns how long this connection has seen the holder's present lease. */
int64_t memcached_holder_seen_us(struct memcached *memcached, const char *key, const struct memcached_holder *holder);
/* Drops the holders whose lease has ended, except those whose lease was set when the item had the id `but_set`. */
void memcached_drop_ended(struct memcached *memcached, const char *key, uint64_t but_set,
                          struct memcached_holders *holders);

/* ---- grants.c: the end of operations on claims ------------------------------------------------------------------- */

enum memcached_operation { MEMCACHED_ACQUIRE, MEMCACHED_RENEW, MEMCACHED_RELEASE };

/* dlock_claim.state. STATE_SEEN_US is the time by the clock of the client that STATE_ALONE stands for; 0: it is not known
 * that the item is as it would be if no other client had ever held the name. */
enum { STATE_CAS, STATE_SEEN_US, STATE_GRANTED, STATE_ALONE };

/* The value of STATE_ALONE after an acquire of a claim without a grant found the lock held. */
#define STATE_MET 2

/* Stores in the claim that it has its grant, with a lease that a request sent at `sent_us` has set. `alone`: the item is
 * as it would be if no other client had ever held the name. */
void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us);

/* True if this client has stored the item with the id in the claim's state, alone, since this connection began, so that
 * the id is one of this server. */
bool memcached_id_is_known(const struct memcached *memcached, const struct dlock_claim *claim);

/* ---- claims.c, turns.c, shared.c: operations on claims ----------------------------------------------------------- */

dlock_batch memcached_acquire, memcached_renew, memcached_release;

/* Bytes of the message why a claim is refused; "": its result needs no message. */
#define MEMCACHED_WHY_MAX 160

/* Does an operation that depends on the other holders of the name, for claims of one name; more than one only in a
 * renewal or a release. Sets their results. EUNAVAILABLE, EAUTH, EPROTO. */
int memcached_shared(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *const *claims,
                     size_t n, int64_t deadline_us, char why[MEMCACHED_WHY_MAX], struct dlock_error *err);

/* The next step of an acquire that has met this item. */
enum memcached_way {
    MEMCACHED_CLOSED, /* none: its result is set */
    MEMCACHED_OPEN,   /* take the item over as the only holder */
    MEMCACHED_CHANGE  /* call memcached_shared() */
};
enum memcached_way memcached_meet(struct memcached *memcached, struct dlock_claim *claim,
                                  const struct memcached_item *item, char why[MEMCACHED_WHY_MAX]);

/* ---- inspect.c, list.c, check.c: operations for operators -------------------------------------------------------- */

/* Calls `each` for the holders of a name, as its item says; `ours`: not for a token of another program. True: `each` has
 * ended the walk. */
bool memcached_show(struct memcached *memcached, const struct memcached_item *item, const char *name, bool cut,
                    bool ours, dlock_each each, void *arg);
int memcached_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err);
/* ENOTSUP: the server does not show its keys. */
int memcached_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err);
int memcached_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int memcached_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
