/* The postgresql backend. schema/intro.sql explains how locks are stored in the database; these files call the
 * functions of that schema.
 *
 * The files; each calls those below it only:
 *   postgresql   the tables of operations
 *   claims       acquire, renew, release              inspect     inspect, list, break
 *   session      all of these for mode=session, on the objects of schema/session.sql
 *   listen       receiving wake-ups                   tell        sending wake-ups to other clients
 *   check        the `check` operation
 *   calls        calls of the schema's functions
 *   schema       creating the objects on first use
 *   connect      connecting, and the settings of a session
 *   hosts        finding the server when the URI leaves that to libpq
 *   wire         requests and answers within a deadline
 *   key          the hash of lock keys in mode=session, and of wake-ups
 *   address      the URI: dlock's keys and libpq's    arguments   arrays and numbers in the server's format
 *   errors       the server's errors as dlock's codes and messages
 */
#ifndef DLOCK_POSTGRESQL_H
#define DLOCK_POSTGRESQL_H

#include <dlock/backend_socket.h>

#include <libpq-fe.h>

#define PG_NAME_MAX 255
#define PG_FENCE_END (INT64_C(1) << 55)
/* No server has this time, and any timeout can be added to an earlier one. */
#define PG_CLOCK_END (INT64_C(1) << 62)
#define PG_SCHEMA_MAX 63
/* Longest schema name, with its quotes. */
#define PG_IDENTIFIER_MAX (PG_SCHEMA_MAX + 2)

/* Hex digits of the secret that proves that a wake-up comes from the server's functions. */
#define PG_SECRET 32

/* The prepared statements; calls.c has their SQL. */
enum pg_call {
    PG_TAKE,
    PG_ACQUIRE,
    PG_RENEW,
    PG_GIVE,
    PG_RELEASE,
    PG_BREAK,
    PG_HOLDERS,
    PG_WAITERS,
    PG_QUARANTINE,
    PG_LISTEN,
    PG_TELL,
    PG_TRY, /* from here on, mode=session */
    PG_TRY_SHARED,
    PG_WAIT,
    PG_WAIT_SHARED,
    PG_TRY_LEASE, /* from here to PG_WAIT_SHARED_LEASE, the same with the lease set in addition */
    PG_TRY_SHARED_LEASE,
    PG_WAIT_LEASE,
    PG_WAIT_SHARED_LEASE,
    PG_DRAW, /* a first fence, and the lease, for the lock that the session has */
    PG_PROVE,
    PG_DOWNGRADE,
    PG_GIVE_BACK,
    PG_END_SESSIONS,
    PG_CALLS
};
#define PG_ARGUMENTS 9

/* The arguments of one request, in the server's binary format. The buffer is reused by the next request. */
struct pg_arguments {
    char *bytes;
    size_t used, size;
    bool failed; /* out of memory */
    int n;
    size_t at[PG_ARGUMENTS]; /* offset at which each begins; it ends where the next one begins */
    bool null[PG_ARGUMENTS];
};

/* How waiters learn of a grant: the URI's `listen`. */
enum pg_wakes {
    PG_LISTEN_CHECKED, /* not given: by LISTEN; connecting fails behind a connection pooler */
    PG_LISTEN_ON,      /* by LISTEN, without that check: the user vouches for the pooler, if there is one */
    PG_LISTEN_OFF      /* they poll; no session state outlives a statement, which suits a transaction pooler */
};

struct pg {
    const struct dlock_peer *peer;
    PGconn *link; /* NULL: not connected */
    enum pg_wakes listen;
    char schema[PG_IDENTIFIER_MAX + 1]; /* quoted */
    char where[160];                    /* the server, for error messages */
    bool unanswered;                    /* a request was sent whose answer has not been read */
    bool probed;                        /* that request is the probe of a listening connection */
    bool prepared[PG_CALLS];
    bool settled;       /* no quarantine: the rows have been this server's for long enough, or it is off */
    bool sessions;      /* mode=session */
    const char *script; /* the script that creates the objects of that mode */
    bool blocks;        /* the socket blocks, for PG_BLOCK_US at most per call */
    struct {
        uint64_t fence; /* of the lock that this session holds; 0: none */
        int64_t granted_us;
        bool tried;        /* PG_TRY or a variant was answered on this connection, without an error */
        bool drawn;        /* this connection has drawn a fence: the sequence is ahead of all fences from before it */
        bool shared;       /* the lock is held as SHARED */
        bool ended;        /* the server has announced the end of the session */
        bool waits;        /* PG_WAIT, a variant or PG_DRAW is unanswered */
        bool waits_shared; /* that request asks for SHARED */
        bool owed;         /* the answer to PG_PROVE was late and is still to be read */
        int64_t lease_ms;  /* the idle_session_timeout in effect; 0: none; -1: unknown */
        int64_t kept_ms;   /* the lease that the waiting request sets */
        int64_t idle_s;    /* for how long the server tolerates a silent client; 0: not set yet */
        PGresult *answer;  /* the part of the answer to pg_post() received until now */
        int64_t key;       /* of the last lock, whose name is key_name */
        char key_name[PG_NAME_MAX + 1];
    } session;
    struct pg_arguments arguments;
    struct {
        int64_t server_us, received_us; /* the server's clock in an answer that was here by received_us; 0: unknown */
    } clock;
    int64_t apart_until_us;       /* until then notifications are sent by pg_tell(), not by the call itself */
    int64_t quickest_us;          /* the shortest duration of a call that may write; 0: none yet */
    int64_t commit_us;            /* how much longer than that a release takes, on average */
    char wanted[PG_NAME_MAX + 1]; /* the name that another client last had or waited for; "" once it was free */
    bool untold;                  /* the application has been warned that notifications fail */
    char secret[PG_SECRET + 1];   /* proves wake-ups on this connection's channel */
    char name[PG_NAME_MAX + 1];   /* name and token of the last wake-up */
    char token[DLOCK_TOKEN_MAX + 1];
};

/* ---- address.c --------------------------------------------------------------------------------------------------- */

/* Parameters as PQconnectStartParams() takes them. */
struct pg_parameters {
    const char **keys, **values;
    size_t n;
    char port[12];
};

/* Reads dlock's keys into `pg` and checks that libpq knows the others. Returns 0, EINVAL or ENOTSUP. */
int pg_address(struct pg *pg, const struct dlock_uri *uri, struct dlock_error *err);

/* Stores libpq's parameters for one host, with room for one more. `host` NULL: the URI's keys, the environment or
 * libpq's defaults say where to connect. If host->address is "", host->host is numeric, a socket's folder, or ""
 * (libpq's default). To be freed with pg_parameters_free(), even after ENOMEM. */
int pg_parameters(const struct dlock_uri *uri, const struct dlock_host *host, struct pg_parameters *parameters,
                  struct dlock_error *err);
void pg_parameters_free(struct pg_parameters *parameters);

/* ---- hosts.c ----------------------------------------------------------------------------------------------------- */

#define PG_HOSTS_MAX 16
#define PG_HOST_MAX 256

struct pg_host {
    char host[PG_HOST_MAX];
    char address[64]; /* numeric; "" when `host` alone suffices */
    int port;
};

struct pg_hosts {
    size_t n;
    struct pg_host list[PG_HOSTS_MAX]; /* further hosts are ignored */
};

/* Starts a detached thread, by dlock_start_thread(). False: out of memory or threads. */
bool pg_detach(void *(*run)(void *), void *arg);

/* True if the URI's keys say where to connect. */
bool pg_hosts_in_keys(const struct dlock_uri *uri);

/* Finds the hosts that libpq would connect to if the URI had none in front. Returns 0, EUNAVAILABLE (no name could be
 * looked up) or ENOMEM. */
int pg_hosts(const struct dlock_uri *uri, struct pg_hosts *hosts, int64_t deadline_us, struct dlock_error *err);

/* ---- connect.c --------------------------------------------------------------------------------------------------- */

/* Connects to the first host that answers and accepts writes. Returns 0, EUNAVAILABLE, EAUTH, EINVAL, ENOTSUP, EPROTO
 * or ENOMEM. */
int pg_connect_link(struct pg *pg, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void pg_hang_up(struct pg *pg);

/* ---- wire.c ------------------------------------------------------------------------------------------------------ */

/* A statement before others of the same pg_query(): these find no function, operator, type or table of a schema that the
 * session's search_path names, where others may have the right to create some. */
#define PG_SAFE_PATH "SET LOCAL search_path = pg_catalog, pg_temp; "

/* Runs SQL text of one or more statements. Stores the last result, or the first that is an error, to be freed with
 * PQclear(). Errors are those of pg_read_answer(). */
int pg_query(struct pg *pg, const char *sql, int64_t deadline_us, PGresult **result, struct dlock_error *err);

/* Waits until the socket is readable or has failed. Returns poll()'s events, or 0 when the time is over. For the first
 * PG_BLOCK_US a socket that may block is read with recv() instead, which costs less than poll(). */
#define PG_BLOCK_US 10000
int pg_wait(const struct pg *pg, int64_t deadline_us);

/* Reads what has arrived, and drops notifications unless this connection listens. False: the connection has failed. */
bool pg_consume(struct pg *pg);

/* Both follow a PQsend…() by the caller. pg_flush() sends all of the request. pg_read_answer() reads the whole answer
 * and stores the last result, or the first that is an error. Return 0, EUNAVAILABLE or EPROTO, or EAUTH if that is why
 * the server has ended the session. */
int pg_flush(struct pg *pg, int64_t deadline_us, struct dlock_error *err);
int pg_read_answer(struct pg *pg, int64_t deadline_us, PGresult **result, struct dlock_error *err);
bool pg_is_error(const PGresult *result);

/* Reports a PQsend…() that has failed. Returns EUNAVAILABLE. */
int pg_send_failed(struct pg *pg, struct dlock_error *err);

/* Reads what has arrived of the answer to such a request, without waiting. Stores NULL while the answer is
 * incomplete. */
int pg_posted(struct pg *pg, PGresult **result, struct dlock_error *err);

/* Reads and discards the rest of an answer that was not awaited to its end. */
int pg_catch_up(struct pg *pg, int64_t deadline_us, struct dlock_error *err);

/* Notes the server's clock, as in an answer that has just been read. One to which no timeout can be added is unknown. */
void pg_note_clock(struct pg *pg, int64_t server_us);

/* ---- calls.c ----------------------------------------------------------------------------------------------------- */

/* Runs one of the calls with pg->arguments and stores its rows. Where the last arguments are the time that the server
 * may wait, and the one at which it may grant nothing any more, it adds those. If the objects are missing, calls marked
 * `creates` create them; the others store NULL, since without a schema there is no lock. PG_TAKE and PG_GIVE store an
 * empty result, or NULL, where the long way is needed. Repeats the call after a serialization failure or a deadlock. A
 * refusal is reported by pg_refused(). */
int pg_call(struct pg *pg, enum pg_call call, int64_t deadline_us, PGresult **rows, struct dlock_error *err);

/* Sends one of the calls and leaves its answer to be read with pg_posted(). */
int pg_post(struct pg *pg, enum pg_call call, int64_t deadline_us, struct dlock_error *err);

/* ---- tell.c ------------------------------------------------------------------------------------------------------ */

/* Sends the notifications in this column of a call's rows, in a separate request and transaction. A failure is only
 * logged: a client that misses a message learns its contents at its next call, and a connection that broke here fails
 * its next request. */
void pg_tell(struct pg *pg, const PGresult *rows, int column, int64_t deadline_us);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* The result's SQLSTATE; "" when it has none. */
const char *pg_state(const PGresult *result);
bool pg_state_is(const char *state, const char *start);

/* Sets session.ended if the result is the error with which the server ends a session. */
void pg_hear(struct pg *pg, const PGresult *result);

/* Marks the connection as failed. Returns EUNAVAILABLE. */
int pg_dead(struct pg *pg, const char *why, struct dlock_error *err);

/* Returns the code for an error result, with the server's reason in `err`. */
int pg_refused(const struct pg *pg, const PGresult *result, struct dlock_error *err);

/* Returns the code for a failed attempt to connect, with a message that contains no password. */
int pg_rejected(struct pg *pg, struct dlock_error *err);

/* Reports a malformed answer and marks the connection as failed. Returns EPROTO. */
int pg_nonsense(struct pg *pg, const char *what, struct dlock_error *err);

/* ---- schema.c ---------------------------------------------------------------------------------------------------- */

/* Creates the objects that are missing. Errors are those of pg_refused(); EAUTH means that the right to create is
 * lacking. */
int pg_create_schema(struct pg *pg, int64_t deadline_us, struct dlock_error *err);

/* ---- arguments.c ------------------------------------------------------------------------------------------------- */

/* Object identifiers of the types that are sent or read; PostgreSQL's catalogue fixes them. */
enum pg_type { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_INT4 = 23, PG_TEXT = 25, PG_TIME = 1184 };

/* Empties the list of arguments; the functions below add to it. pg_call() reports a lack of memory. */
void pg_begin(struct pg_arguments *arguments);
void pg_add_int4(struct pg_arguments *arguments, int32_t value);
void pg_add_int8(struct pg_arguments *arguments, int64_t value);
void pg_drop_last(struct pg_arguments *arguments);
void pg_add_bytes(struct pg_arguments *arguments, const void *bytes, size_t length);  /* NULL: null */
void pg_add_column(struct pg_arguments *arguments, const PGresult *rows, int column); /* all rows' texts, joined */
void pg_add_array(struct pg_arguments *arguments, enum pg_type type, size_t n);       /* its n elements follow: */
void pg_item_bytes(struct pg_arguments *arguments, const void *bytes, size_t length);
void pg_item_int8(struct pg_arguments *arguments, int64_t value);
void pg_item_int4(struct pg_arguments *arguments, int32_t value);

/* Read one value of a row. False: it is NULL or of another type. */
bool pg_read_int8(const PGresult *rows, int row, int column, int64_t *value);
bool pg_read_time(const PGresult *rows, int row, int column, int64_t *unix_us);
bool pg_read_int4(const PGresult *rows, int row, int column, int32_t *value);
bool pg_read_bool(const PGresult *rows, int row, int column, bool *value);
/* As the above, for text or bytea of 1 to size - 1 bytes without NUL. */
bool pg_read_text(const PGresult *rows, int row, int column, char *out, size_t size);

/* ---- key.c ------------------------------------------------------------------------------------------------------- */

#define PG_SHA256 32

/* Keeps OpenSSL's exit handler from freeing its state while dlock's threads still run. OpenSSL's first user decides, so it is
 * called before libpq is used. */
void pg_begin_openssl(void);

/* One of several pieces of text to be hashed. */
struct pg_text {
    const char *bytes;
    size_t length;
};

/* Stores the hash of n concatenated pieces. False: out of memory. */
bool pg_sha256(const struct pg_text *parts, size_t n, unsigned char out[PG_SHA256]);

/* Stores the advisory-lock key of a name in mode=session. The quoted schema is part of the hash, so that names in
 * different schemas are different locks. All clients compute the key alike: see session_intro.sql. False: out of
 * memory. */
bool pg_key(const char *schema, const char *name, int64_t *key);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch pg_acquire, pg_renew, pg_release, pg_session_acquire, pg_session_renew, pg_session_release;

int pg_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int pg_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int pg_probe(void *conn, struct dlock_error *err);
int pg_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int pg_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int pg_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
            struct dlock_error *err);
int pg_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int pg_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int pg_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int pg_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int pg_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* The operations of one session, as <dlock/backend_sessions.h> wants them. */
extern const struct dlock_backend pg_session;

/* True if the URI says mode=session. */
bool pg_says_session(const struct dlock_uri *uri);

#endif
