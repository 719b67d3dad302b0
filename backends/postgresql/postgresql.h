/* The postgresql backend. schema/intro.sql tells how locks live in the database; here is what calls it.
 *
 * The files; each calls those below it only:
 *   postgresql   the tables of operations
 *   claims       acquire, renew, release              inspect     inspect, list, break
 *   session      all of these for mode=session, on the objects of schema/session.sql
 *   listen       wake-ups                             tell        waking others
 *   calls        calls of the schema's functions
 *   schema       creating the objects on first use    check       the doctor
 *   connect      connecting, and what a session is set to
 *   hosts        where to, when the URI leaves that to libpq
 *   wire         requests and answers in time         key         the hash of keys in mode=session, and of wake-ups
 *   address      the URI: ours and libpq's            arguments   arrays and numbers as the server reads them
 *   errors       the server's errors, in our words
 */
#ifndef DLOCK_POSTGRESQL_H
#define DLOCK_POSTGRESQL_H

#include <dlock/backend_socket.h>

#include <libpq-fe.h>

#define PG_NAME_MAX 255
#define PG_FENCE_END (INT64_C(1) << 55)
#define PG_SCHEMA_MAX 63
/* Longest prefix of a table or a function. */
#define PG_IDENTIFIER_MAX (PG_SCHEMA_MAX + 2)

/* Hex digits of what proves that a wake-up is the server's. */
#define PG_SECRET 32

#define PG_SCHEMA_OLDEST 3  /* that the script brings up to date */
#define PG_SCHEMA_VERSION 4 /* schema/acquire.sql's */

/* Functions of the schema; the statements are in calls.c. */
enum pg_call {
    PG_ACQUIRE,
    PG_RENEW,
    PG_RELEASE,
    PG_BREAK,
    PG_HOLDERS,
    PG_LISTEN,
    PG_TELL,
    PG_TRY, /* from here on: mode=session */
    PG_TRY_SHARED,
    PG_WAIT,
    PG_WAIT_SHARED,
    PG_TRY_LEASE, /* and from here those that set the lease, too */
    PG_TRY_SHARED_LEASE,
    PG_WAIT_LEASE,
    PG_WAIT_SHARED_LEASE,
    PG_PROVE,
    PG_DOWNGRADE,
    PG_GIVE_BACK,
    PG_END_SESSIONS,
    PG_CALLS
};
#define PG_ARGUMENTS 7

/* The arguments of one request, in the server's binary format. The memory stays for the next request. */
struct pg_arguments {
    char *bytes;
    size_t used, size;
    bool failed; /* out of memory */
    int n;
    size_t at[PG_ARGUMENTS]; /* where each begins; it ends where the next one begins */
    bool null[PG_ARGUMENTS];
};

/* How waiters get to know of their turn: the URI's `listen`. */
enum pg_wakes {
    PG_LISTEN_CHECKED, /* not given: by LISTEN, unless a connection pooler stands in between */
    PG_LISTEN_ON,      /* by LISTEN; the user answers for the pooler, if there is one */
    PG_LISTEN_OFF      /* not at all; nothing of ours outlives a statement, which suits a transaction pooler */
};

struct pg {
    const struct dlock_peer *peer;
    PGconn *link; /* NULL: not connected */
    enum pg_wakes listen;
    char schema[PG_IDENTIFIER_MAX + 1]; /* quoted */
    char where[160];                    /* the server, for error messages */
    bool unanswered;                    /* a request was sent whose answer was not read */
    bool probed;                        /* that request is a probe of the listening connection */
    bool prepared[PG_CALLS];
    bool sessions;      /* mode=session */
    const char *script; /* that makes the objects of that mode */
    bool blocks;        /* the socket does, for PG_BLOCK_US at most */
    struct {
        uint64_t fence; /* of the lock that this session holds; 0: it holds none */
        int64_t granted_us;
        bool shared;       /* it holds it as a reader */
        bool ended;        /* the server has said so */
        bool waits;        /* a request waits for it */
        bool waits_shared; /* … as a reader */
        bool owed;         /* the answer to a proof was late, and is still to be read */
        int64_t lease_ms;  /* what its idle_session_timeout is set to; 0: it has none; -1: nobody knows */
        int64_t kept_ms;   /* of the request that waits */
        int64_t idle_s;    /* how long the server lets this client be silent; 0: nobody has told it */
        PGresult *answer;  /* what has come so far of the answer to pg_post() */
        int64_t key;       /* of the last lock */
        char key_name[PG_NAME_MAX + 1];
    } session;
    struct pg_arguments arguments;
    int64_t apart_until_us;        /* until then what others are to be told is left to pg_tell() */
    int64_t quickest_us;           /* of the calls that may write; 0: there was none */
    int64_t commit_us;             /* what a release takes beyond that, on the average */
    char awaited[PG_NAME_MAX + 1]; /* the lock that had to be waited for last, unless one was free since */
    bool untold;                   /* the application knows that others cannot be told */
    char secret[PG_SECRET + 1];    /* of this connection's wake-ups */
    char name[PG_NAME_MAX + 1];    /* of the last wake-up, as is the token */
    char token[DLOCK_TOKEN_MAX + 1];
};

/* ---- address.c --------------------------------------------------------------------------------------------------- */

/* Parameters as PQconnectStartParams() takes them. */
struct pg_parameters {
    const char **keys, **values;
    size_t n;
    char port[12];
};

/* Reads our own keys into `pg` and checks those that are libpq's. EINVAL. */
int pg_address(struct pg *pg, const struct dlock_uri *uri, struct dlock_error *err);

/* The parameters for one host (NULL: wherever the URI's keys, the environment or libpq's defaults lead), with room for
 * one more. An address of "" leaves it to `host`, which then is numeric, a socket's folder or "", libpq's default. Free
 * them with pg_parameters_free(), also after ENOMEM. */
int pg_parameters(const struct dlock_uri *uri, const struct dlock_host *host, struct pg_parameters *parameters,
                  struct dlock_error *err);
void pg_parameters_free(struct pg_parameters *parameters);

/* ---- hosts.c ----------------------------------------------------------------------------------------------------- */

#define PG_HOSTS_MAX 16
#define PG_HOST_MAX 256

struct pg_host {
    char host[PG_HOST_MAX];
    char address[64]; /* numeric; "" when `host` says it all */
    int port;
};

struct pg_hosts {
    size_t n;
    struct pg_host list[PG_HOSTS_MAX]; /* what does not fit is left out */
};

/* Starts a detached thread that gets no signals of the application's. */
bool pg_detach(void *(*run)(void *), void *arg);

/* Whether the URI's keys say where to connect; no value of a key is to be shown. */
bool pg_hosts_in_keys(const struct dlock_uri *uri);

/* Where libpq would connect to if the URI had no hosts in front. EUNAVAILABLE (nothing could be looked up), ENOMEM. */
int pg_hosts(const struct dlock_uri *uri, struct pg_hosts *hosts, int64_t deadline_us, struct dlock_error *err);

/* ---- connect.c --------------------------------------------------------------------------------------------------- */

/* Connects to the first host that is there and takes writes. EUNAVAILABLE, EAUTH, EINVAL, ENOTSUP, EPROTO, ENOMEM. */
int pg_connect_link(struct pg *pg, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err);

/* Closes the connection, by reset when a request is unanswered. */
void pg_hang_up(struct pg *pg);

/* ---- wire.c ------------------------------------------------------------------------------------------------------ */

/* Runs SQL text, of one or more statements, and stores the last result, or the first that is an error; free it with
 * PQclear(). EUNAVAILABLE, ENOMEM. */
int pg_query(struct pg *pg, const char *sql, int64_t deadline_us, PGresult **result, struct dlock_error *err);

/* Waits until there is something to read, or it is known that there never will be: POLLIN or more; 0: the time is over.
 * A socket that may block is read by a call of its own for the first PG_BLOCK_US, which costs less than poll(). */
#define PG_BLOCK_US 10000
int pg_wait(const struct pg *pg, int64_t deadline_us);

/* After a PQsend…() of the caller's: the first sends all of it; the second reads the whole answer and stores the last
 * result, or the first that is an error. EUNAVAILABLE, EPROTO. */
int pg_flush(struct pg *pg, int64_t deadline_us, struct dlock_error *err);
int pg_read_answer(struct pg *pg, int64_t deadline_us, PGresult **result, struct dlock_error *err);
bool pg_is_error(const PGresult *result);

/* After a PQsend…() that has failed. EUNAVAILABLE. */
int pg_send_failed(struct pg *pg, struct dlock_error *err);

/* Reads the answer to such a request as far as it is here, without waiting: 0 and NULL, it is not complete yet. */
int pg_posted(struct pg *pg, PGresult **result, struct dlock_error *err);

/* Reads, and forgets, what is left of an answer that came too late. */
int pg_catch_up(struct pg *pg, int64_t deadline_us, struct dlock_error *err);

/* ---- calls.c ----------------------------------------------------------------------------------------------------- */

/* Runs one of the calls with pg->arguments, to which it adds the patience where that is the last one, and stores its
 * rows. Where the objects are missing PG_ACQUIRE and PG_LISTEN create them; the others store NULL when there is no
 * schema, and so no lock. Calls again after a serialization failure or a deadlock. A refusal is told as by
 * pg_refused(). */
int pg_call(struct pg *pg, enum pg_call call, int64_t deadline_us, PGresult **rows, struct dlock_error *err);

/* Sends one of the calls, which must exist, and leaves its answer to pg_posted(): 0 and NULL, it is not there yet. */
int pg_post(struct pg *pg, enum pg_call call, int64_t deadline_us, struct dlock_error *err);

/* ---- tell.c ------------------------------------------------------------------------------------------------------ */

/* Tells others what a call's rows have for them in this column, in a request, and a transaction, of its own. A message
 * that cannot be sent costs its receiver a question, and no more: a connection that breaks now shows that at its next
 * request. */
void pg_tell(struct pg *pg, const PGresult *rows, int column, int64_t deadline_us);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* The result's SQLSTATE; "" when it has none. */
const char *pg_state(const PGresult *result);
bool pg_state_is(const char *state, const char *start);

/* Looks for the server's farewell. */
void pg_hear(struct pg *pg, const PGresult *result);

/* The connection itself has failed. EUNAVAILABLE. */
int pg_dead(struct pg *pg, const char *why, struct dlock_error *err);

/* The code for an error result, with the server's reason in `err`. */
int pg_refused(const struct pg *pg, const PGresult *result, struct dlock_error *err);

/* The code for a connection that could not be made, in words that hold no value of the URI. */
int pg_rejected(struct pg *pg, const struct dlock_uri *uri, struct dlock_error *err);

/* An answer that makes no sense. EPROTO. */
int pg_nonsense(struct pg *pg, const char *what, struct dlock_error *err);

/* ---- schema.c ---------------------------------------------------------------------------------------------------- */

/* Creates what is missing of the objects. As pg_refused(); a right that is lacking is that to create. */
int pg_create_schema(struct pg *pg, int64_t deadline_us, struct dlock_error *err);

/* ---- arguments.c ------------------------------------------------------------------------------------------------- */

/* Object identifiers of the types that arrays consist of; fixed in PostgreSQL's catalogue. */
enum pg_type { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_INT4 = 23, PG_TEXT = 25, PG_TIME = 1184 };

/* An empty list of arguments; the following add to it. Running out of memory shows in pg_call(). */
void pg_begin(struct pg_arguments *arguments);
void pg_add_int4(struct pg_arguments *arguments, int32_t value);
void pg_add_int8(struct pg_arguments *arguments, int64_t value);
void pg_drop_last(struct pg_arguments *arguments);
void pg_add_bytes(struct pg_arguments *arguments, const void *bytes, size_t length); /* NULL: null */
void pg_add_column(struct pg_arguments *arguments, const PGresult *rows,
                   int column);                                                 /* the texts of all rows, joined */
void pg_add_array(struct pg_arguments *arguments, enum pg_type type, size_t n); /* its n elements follow: */
void pg_item_bytes(struct pg_arguments *arguments, const void *bytes, size_t length);
void pg_item_int8(struct pg_arguments *arguments, int64_t value);
void pg_item_int4(struct pg_arguments *arguments, int32_t value);

/* Values of a row; false: it is NULL, or of another type. */
bool pg_read_int8(const PGresult *rows, int row, int column, int64_t *value);
bool pg_read_time(const PGresult *rows, int row, int column, int64_t *unix_us);
bool pg_read_int4(const PGresult *rows, int row, int column, int32_t *value);
bool pg_read_bool(const PGresult *rows, int row, int column, bool *value);
/* Text or bytes of at least 1 and less than `size` bytes, without NUL, into out. */
bool pg_read_text(const PGresult *rows, int row, int column, char *out, size_t size);

/* ---- key.c ------------------------------------------------------------------------------------------------------- */

#define PG_SHA256 32

/* Text in pieces. */
struct pg_text {
    const char *bytes;
    size_t length;
};

/* The hash of n pieces, one after the other. false: out of memory. */
bool pg_sha256(const struct pg_text *parts, size_t n, unsigned char out[PG_SHA256]);

/* Of the lock in mode=session that a name stands for; names of different schemas, which are quoted, are different
 * locks. All clients work it out alike: see session.sql. false: out of memory. */
bool pg_key(const char *schema, const char *name, int64_t *key);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch pg_acquire, pg_renew, pg_release, pg_session_acquire, pg_session_renew, pg_session_release;

int pg_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int pg_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int pg_probe(void *conn, struct dlock_error *err);
int pg_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int pg_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
            struct dlock_error *err);
int pg_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int pg_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int pg_session_rest(void *conn, int timeout_ms, struct dlock_error *err);
int pg_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int pg_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int pg_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

/* Whether the URI says mode=session. */
bool pg_says_session(const struct dlock_uri *uri);

#endif
