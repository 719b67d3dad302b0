/* Locks in MySQL and MariaDB: rows of a table, or the server's own user locks (mode=session).
 *
 * libmariadb's calls are those that do not block: each is begun, and goes on when poll() says so, until our deadline.
 * It never connects again by itself (MYSQL_OPT_RECONNECT), reads no configuration, and sends no file to a server that
 * asks for one. State of its own: it initializes itself once, under pthread_once().
 *
 * The files; each calls those below it only:
 *   mysql     the tables of operations
 *   rows      acquire, renew, release             session   the same for mode=session
 *   inspect   inspect, list, break                check     the doctor
 *   connect   connecting, and what a session is set to
 *   tls       what libmariadb is told of TLS, and its handshake in time
 *   call      requests that are repeated after a deadlock, and the objects, made on first use
 *   wire      requests and answers in time
 *   errors    the server's errors, in our words
 *   text      statements and values               address   the URI */
#ifndef DLOCK_MARIA_H
#define DLOCK_MARIA_H

#include <dlock/backend_socket.h>

#include <mysql.h>

#define MARIA_NAME_MAX 255
#define MARIA_FENCE_END (INT64_C(1) << 55)

/* Claims in one packet of statements, and results of such a packet: one for each, and for what stands around them. */
#define MARIA_BATCH 128
#define MARIA_ANSWERS (MARIA_BATCH + 8)

/* Hex digits of a SHA-256. */
#define MARIA_KEY 64

/* The server's clock at the beginning of a statement, in µs; the session's time zone has no summer. */
#define MARIA_NOW_US "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"

/* How long the server keeps a silent session that holds nothing; in seconds. */
#define MARIA_IDLE_S 86400

/* One result of a packet. */
struct maria_answer {
    MYSQL_RES *rows; /* NULL: the statement has none */
    uint64_t affected;
};

enum maria_step { MARIA_IDLE, MARIA_CONNECT, MARIA_QUERY, MARIA_STORE, MARIA_NEXT };

struct maria {
    const struct dlock_peer *peer;
    MYSQL *link; /* NULL: not connected */
    int fd;      /* its descriptor + 1; 0 while libmariadb might close it */
    char where[160];
    bool sessions;      /* mode=session */
    bool tls, insecure; /* … the server's certificate is not looked at */
    const char *script; /* that makes the table of the other mode */
    bool has_sequence;  /* MariaDB: fences of sessions come from one, else from a table */
    char *text;         /* the statements to send; the memory stays for the next ones */
    size_t used, size;
    bool no_memory;
    enum maria_step step; /* what libmariadb is in the middle of */
    int waits;            /* … and what for: MYSQL_WAIT_…; 0: for nothing */
    int failed;           /* … and what came of it */
    my_bool closed;
    MYSQL *connected;
    MYSQL_RES *stored;
    unsigned error; /* the server's number for what it refused; 0: it did not, or the connection broke */
    struct {
        int64_t deadline_us;
        bool is_late, has_ended;
        char host[256]; /* where to connect; from then on the name that the certificate has to bear */
    } handshake;
    size_t n_answers;
    struct maria_answer answers[MARIA_ANSWERS];
    struct {
        uint64_t fence; /* of the lock that this session holds; 0: it holds none */
        int64_t granted_us;
        int64_t clock_us;        /* the server's, when this connection was made; 0: the sequence is past it */
        int64_t idle_s;          /* what its wait_timeout is set to; 0: nobody knows */
        bool owed;               /* the answer to a proof was late, and is still to be read */
        char key[MARIA_KEY + 1]; /* of the last lock, as the server has worked it out; "": none */
        char key_name[MARIA_NAME_MAX + 1];
    } session;
};

/* ---- address.c --------------------------------------------------------------------------------------------------- */

bool maria_says_session(const struct dlock_uri *uri);
bool maria_says_tls(const struct dlock_uri *uri);
bool maria_says_insecure(const struct dlock_uri *uri);
/* EINVAL. */
int maria_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- text.c ------------------------------------------------------------------------------------------------------ */

/* An empty text; the others add to it. Running out of memory shows in maria_ask(). */
void maria_begin(struct maria *maria);
DLOCK_PRINTF(2, 3)
void maria_say(struct maria *maria, const char *format, ...);
/* Bytes as a literal that no setting of the server reads in another way. */
void maria_say_bytes(struct maria *maria, const char *bytes, size_t length);

/* Values of a row, whose columns have been counted; false: it is NULL, or something else. */
bool maria_number(MYSQL_RES *rows, MYSQL_ROW row, unsigned column, int64_t *value);
/* At least `least` and less than `size` bytes, without NUL, into out. */
bool maria_bytes(MYSQL_RES *rows, MYSQL_ROW row, unsigned column, size_t least, char *out, size_t size);
/* The first row of a result that has at least so many columns; NULL: there is none. */
MYSQL_ROW maria_row(struct maria *maria, size_t answer, unsigned columns);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* The code for what libmariadb reports, with its reason; sets maria->error. */
int maria_refused(struct maria *maria, struct dlock_error *err);
/* The same for a connection that could not be made. */
int maria_rejected(struct maria *maria, struct dlock_error *err);
/* An answer that makes no sense. EPROTO. */
int maria_nonsense(struct maria *maria, const char *what, struct dlock_error *err);
/* The connection is of no use any more. EUNAVAILABLE. */
int maria_dead(struct maria *maria, const char *why, struct dlock_error *err);
/* Whether the same statements may succeed if they are sent once more. */
bool maria_passes(unsigned error);

/* ---- wire.c ------------------------------------------------------------------------------------------------------ */

/* Goes on with what libmariadb is in the middle of: 1, it is done, and maria->failed is set; 0, the time is over. */
int maria_go_on(struct maria *maria, int64_t deadline_us);
/* Sends the text, and reads the results into maria->answers, where they stay until the next request. Codes of
 * maria_refused(), ENOMEM never: a lack of memory is EUNAVAILABLE. */
int maria_ask(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* Whether the last request is still to be answered; reads that answer, as maria_ask(). */
bool maria_is_late(const struct maria *maria);
int maria_catch_up(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
void maria_forget_answers(struct maria *maria);
/* Ends the connection, by reset where a request is unanswered. */
void maria_hang_up(struct maria *maria);

/* ---- call.c ------------------------------------------------------------------------------------------------------ */

/* maria_ask(), again and again while others are in the way of it. */
int maria_call(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* Whether the last request failed because the objects are missing. */
bool maria_lacks_objects(const struct maria *maria);
/* Makes them. The text is lost. */
int maria_make_objects(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* Whether it failed because the sequence has no row, as a server or a session that was killed can leave it. */
bool maria_lacks_row(const struct maria *maria);
/* Puts another sequence in its place, which begins at the server's clock, unless somebody else has. The text is lost;
 * for a session without a lock. */
int maria_replace_sequence(struct maria *maria, int64_t deadline_us, struct dlock_error *err);

/* ---- tls.c ------------------------------------------------------------------------------------------------------- */

/* Tells a new link what to do. EAUTH: a file cannot be read; ENOMEM. */
int maria_set_tls(struct maria *maria, const struct dlock_uri *uri, struct dlock_error *err);
/* Around the connecting of this thread. */
void maria_tls_begin(struct maria *maria, int64_t deadline_us);
void maria_tls_end(void);
/* Once the socket is on its way: for whom the certificate has to be. */
void maria_tls_name(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host);
/* Whether a connection that was made is over TLS. EPROTO. */
int maria_tls_proved(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                     struct dlock_error *err);
/* What came of a handshake that failed. EAUTH, EPROTO, EUNAVAILABLE. */
int maria_tls_rejected(struct maria *maria, const char *name, struct dlock_error *err);

/* ---- connect.c --------------------------------------------------------------------------------------------------- */

int maria_connect_link(struct maria *maria, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch maria_acquire, maria_renew, maria_release, maria_session_acquire, maria_session_renew,
    maria_session_release;
int maria_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int maria_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int maria_session_rest(void *conn, int timeout_ms, struct dlock_error *err);
int maria_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int maria_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int maria_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err);
int maria_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int maria_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

#endif
