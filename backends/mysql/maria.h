/* The mysql backend, for MySQL and MariaDB: locks are rows of a table, or the server's own user locks (mode=session).
 *
 * Only libmariadb's non-blocking calls are used: each is started, and continued when poll() reports the socket ready,
 * until the deadline. The library never reconnects automatically (MYSQL_OPT_RECONNECT), reads no configuration, and
 * sends no file to a server that requests one. Its process-wide state is initialized once, under pthread_once(), and
 * the effect of that on SIGPIPE is undone.
 *
 * A non-blocking call still reads as long as data arrives, so each may read only a little: one row, or the descriptions
 * of a result's few columns. An endless answer ends the connection.
 *
 * The files; each calls those below it only:
 *   mysql     the tables of operations
 *   rows      acquire, renew, release             session   the same for mode=session
 *   queue     waiters, hand-overs and wake-ups of mode=rows
 *   inspect   inspect, list, break                check     the `check` operation
 *   connect   connecting, and the settings of a session
 *   tls       TLS settings, and a handshake within the deadline
 *   incarnation   the quarantine: whose the rows are, and since when
 *   call      requests that are repeated after a deadlock, and the objects, created on first use
 *   wire      requests and answers within a deadline, and a limit of their length
 *   process   SIGPIPE, which stays the program's own, and exit()
 *   columns   the descriptions of columns          kept      values of rows, copied from libmariadb
 *   errors    the server's errors as dlock's codes and messages
 *   text      statements and values               address   the URI */
#ifndef DLOCK_MARIA_H
#define DLOCK_MARIA_H

#include <dlock/backend_socket.h>

#include <mysql.h>
#include <pthread.h>
#include <signal.h>

#define MARIA_NAME_MAX 255
#define MARIA_FENCE_END (INT64_C(1) << 55)

/* Most claims in one packet of statements, and most results of such a packet: one for each claim, and some for the
 * statements around them. */
#define MARIA_BATCH 128
#define MARIA_ANSWERS (MARIA_BATCH + 8)

/* Most columns of a result, and most bytes of the answer to a packet of statements: a page of a list has a third of
 * that at most. No packet of the server's that dlock asks for has more than a kilobyte. */
#define MARIA_COLUMNS 8
#define MARIA_ANSWER_MAX ((size_t)1 << 20)
#define MARIA_PACKET_MAX ((size_t)1 << 16)

/* Hex digits of a SHA-256. */
#define MARIA_KEY 64

/* The server's clock at the beginning of a statement, in µs. The session's time zone is UTC, without daylight saving
 * time. */
#define MARIA_NOW_US "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"

/* Bytes that name a server in a record (incarnation.c): 16 hex digits and a space. */
#define MARIA_SERVER 17

/* The end of a lease from now on, in a statement; its ms are an argument. Two bits are added to it: 1 while a hand-over is
 * not confirmed by its receiver, and 2 if others may wait. An older client adds both as it happens, or clears them: the
 * first means nothing without a waiter's row of the holder, the second only chooses the way. */
#define MARIA_LEASE_US "(" MARIA_NOW_US " + %lld000) DIV 4 * 4"

/* For how long the server keeps a silent session without a lock; in seconds. */
#define MARIA_IDLE_S 86400

/* The name of the user lock that a client's listener holds is this and the client's name. */
#define MARIA_EAR "dlock."

/* Indices in a claim's state: it is in the queue; it has been. */
enum { MARIA_QUEUED, MARIA_MET };

/* One result of a packet. */
struct maria_answer {
    uint32_t columns; /* 0: the statement returns no rows */
    uint32_t at, end; /* its unread rows, as offsets in the kept bytes */
    uint64_t affected;
    uint64_t id; /* what the statement has passed to LAST_INSERT_ID(); 0: nothing */
};

/* A value of a row; it ends without a NUL. */
struct maria_value {
    const char *bytes; /* NULL: it is NULL */
    size_t length;
};

enum maria_step { MARIA_IDLE, MARIA_CONNECT, MARIA_QUERY, MARIA_ROW, MARIA_NEXT };

struct maria {
    const struct dlock_peer *peer;
    MYSQL *link; /* NULL: not connected */
    int fd;      /* the connection's descriptor + 1; 0 while libmariadb might close it */
    char where[160];
    bool sessions;      /* mode=session */
    bool tls, insecure; /* TLS; the server's certificate is not verified */
    bool certified;     /* the client has a certificate, too */
    bool confidential;  /* the server may be sent the password itself: over TLS, or a socket of this machine */
    const char *script; /* the script that creates the table for mode=rows */
    bool has_sequence;  /* mode=session: fences come from a sequence (MariaDB 10.3), else from a table */
    char *text;         /* the statements to send; the buffer is reused */
    size_t used, size;
    bool no_memory;
    struct {
        char self[64];     /* this server, and since when it runs: MARIA_SERVER bytes are the server's */
        int64_t started_s; /* by its clock */
        bool replicates;   /* it gets changes from another server */
        char record[96];   /* the table's record, which names this server; "": not read yet */
        int64_t until_us;  /* nothing is granted before this, by the local clock */
    } incarnation;
    enum maria_step step; /* libmariadb's unfinished call, or that the answer was given up */
    int waits;            /* MYSQL_WAIT_…, the events that the call waits for; 0: none */
    int failed;           /* the call's result */
    MYSQL *connected;
    char *no_version;    /* see maria_set_version(); NULL: there is none any more */
    MYSQL_RES *unread;   /* the result whose rows are being read */
    MYSQL_ROW row;       /* the last one */
    size_t heard;        /* bytes of the answer received until now */
    int64_t deadline_us; /* of the present call */
    const char *flaw;    /* the fault in a result's columns; NULL: none */
    struct st_mariadb_methods methods;
    int64_t ahead_us; /* the server's clock minus the local one; up to the time of a request more than that */
    unsigned error;   /* the server's error number; 0: none, or the connection broke */
    struct {
        int64_t deadline_us;
        bool is_late, has_ended;
        char host[256]; /* first the address, then the name that the certificate must have */
    } handshake;
    int64_t slept_us;                /* when the listener began to sleep */
    unsigned swept;                  /* how often a waiter has joined a queue */
    int64_t clock_at_us;             /* when ahead_us was learnt from an answer; 0: not yet */
    char wanted[MARIA_NAME_MAX + 1]; /* the name that another client last had or waited for; "": none */
    size_t n_answers;
    struct maria_answer answers[MARIA_ANSWERS];
    struct {
        char *bytes;
        size_t used, size;
    } kept;                                  /* the rows of all results */
    struct maria_value value[MARIA_COLUMNS]; /* of the row that maria_row() has returned */
    struct {
        uint64_t fence; /* of the lock that this session holds; 0: none */
        int64_t granted_us;
        int64_t clock_us;        /* the server's clock at connect; 0: the sequence has been set to it */
        int64_t idle_s;          /* the session's wait_timeout; 0: unknown */
        bool owed;               /* the answer to a renewal was late and is still to be read */
        bool waits;              /* a request for a lock is unanswered */
        size_t at;               /* which of its answers has the fence */
        char key[MARIA_KEY + 1]; /* of the last lock, as computed by the server; "": none */
        char key_name[MARIA_NAME_MAX + 1];
    } session;
};

/* ---- address.c --------------------------------------------------------------------------------------------------- */

bool maria_says_session(const struct dlock_uri *uri);
bool maria_says_tls(const struct dlock_uri *uri);
/* Returns 0 or EINVAL. */
int maria_accepts(const struct dlock_uri *uri, struct dlock_error *err);

/* ---- text.c ------------------------------------------------------------------------------------------------------ */

/* Empties the text; the functions below add to it. maria_ask() reports a lack of memory. */
void maria_begin(struct maria *maria);
DLOCK_PRINTF(2, 3)
void maria_say(struct maria *maria, const char *format, ...);
/* Adds bytes as a hexadecimal literal, which no setting of the server changes. */
void maria_say_bytes(struct maria *maria, const char *bytes, size_t length);
/* Adds both of the claim, in this way, with a text between them. */
void maria_say_name_and_token(struct maria *maria, const struct dlock_claim *claim, const char *between);

/* Reads a value as a number. False: it is NULL, or no such number. */
bool maria_number(const struct maria_value *value, int64_t *number);
/* The same for `least` to size - 1 bytes without NUL. */
bool maria_bytes(const struct maria_value *value, size_t least, char *out, size_t size);

/* ---- errors.c ---------------------------------------------------------------------------------------------------- */

/* Returns the code for libmariadb's error, with its reason in err; sets maria->error. */
int maria_refused(struct maria *maria, struct dlock_error *err);
/* The same for a failed attempt to connect. */
int maria_rejected(struct maria *maria, struct dlock_error *err);
/* Reports a malformed answer. Returns EPROTO. */
int maria_nonsense(struct maria *maria, const char *what, struct dlock_error *err);
/* Reports that the connection cannot be used any more. Returns EUNAVAILABLE. */
int maria_dead(struct maria *maria, const char *why, struct dlock_error *err);
/* Returns 0 if this value of read_only says that the server can be written to, otherwise EUNAVAILABLE. */
int maria_writable(struct maria *maria, const char *read_only, struct dlock_error *err);
/* The same for @@GLOBAL.read_only in an answer; EPROTO: it is neither. The server itself refuses nothing to users with
 * SUPER. */
int maria_primary(struct maria *maria, const struct maria_value *read_only, struct dlock_error *err);
/* True if the same statements may succeed when they are sent once more. */
bool maria_passes(unsigned error);

/* ---- kept.c ------------------------------------------------------------------------------------------------------ */

/* Copies a row, as libmariadb has read it, to the end of the last answer. False: out of memory. */
bool maria_keep_row(struct maria *maria, const char *const *row, const unsigned long *lengths);
void maria_forget_answers(struct maria *maria);
/* Returns the values of a result's next row, until the next call; NULL: there is none, or it has fewer columns. */
const struct maria_value *maria_row(struct maria *maria, size_t answer, unsigned columns);

/* ---- columns.c --------------------------------------------------------------------------------------------------- */

/* Limits the number of columns on a new link, if the version of libmariadb is one whose table of functions is known. */
void maria_limit_columns(struct maria *maria);

/* ---- process.c --------------------------------------------------------------------------------------------------- */

struct maria_signals {
    sigset_t before;
    bool pending;
};

/* Initializes libmariadb, once, before its first use. */
void maria_begin_library(void);
/* Between these two calls the thread gets no SIGPIPE from a connection over TLS. */
void maria_signals_off(const struct maria *maria, struct maria_signals *signals);
void maria_signals_on(const struct maria *maria, const struct maria_signals *signals);

/* ---- wire.c ------------------------------------------------------------------------------------------------------ */

/* Sets the server's version on a new link, until it is known. libmariadb looks it up in a report of progress, even in one
 * that comes in place of the greeting, and would crash. False: out of memory. */
bool maria_set_version(struct maria *maria);
/* Called when an attempt to connect has ended. */
void maria_forget_version(struct maria *maria);
/* Sets a new link's limits on what the server may send. Returns 0, or another number: out of memory. */
int maria_set_limits(struct maria *maria);
/* Continues libmariadb's unfinished call. 1: it is done, and maria->failed is set; 0: the time is over. */
int maria_go_on(struct maria *maria, int64_t deadline_us);
/* Sends the text and reads the results into maria->answers, where they stay until the next request. Returns 0 or a code
 * of maria_refused(), but never ENOMEM: a lack of memory is EUNAVAILABLE. */
int maria_ask(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* The first is true if the last request is unanswered; the second reads that answer, as maria_ask(). */
bool maria_is_late(const struct maria *maria);
int maria_catch_up(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* Closes the connection, by reset when an answer has not been read to its end. */
void maria_hang_up(struct maria *maria);

/* ---- call.c ------------------------------------------------------------------------------------------------------ */

/* As maria_ask(), repeated while other sessions cause deadlocks or time-outs. */
int maria_call(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* True if the last request failed because the objects are missing. */
bool maria_lacks_objects(const struct maria *maria);
/* Creates the objects. Overwrites the text. */
int maria_make_objects(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* True if the last request failed because the sequence has no row, which a killed server or session can leave
 * behind. */
bool maria_lacks_row(const struct maria *maria);
/* Replaces the sequence by one that begins at the server's clock, unless another session has done so. Overwrites the
 * text. Only for a session without a lock. */
int maria_replace_sequence(struct maria *maria, int64_t deadline_us, struct dlock_error *err);

/* ---- incarnation.c ----------------------------------------------------------------------------------------------- */

/* Before the first claim of a connection: learns since when the rows are this server's, and writes it down if they were
 * not. Overwrites the text. Returns 0, EUNAVAILABLE (they are another server's, which this one replicates), or as
 * maria_call(). */
int maria_settle(struct maria *maria, int64_t deadline_us, struct dlock_error *err);
/* Returns the rest of the quarantine; 0: there is none. */
int64_t maria_quarantine_left_ms(const struct maria *maria);
/* The first adds two columns to a request, which say whether the server may still grant and keep locks: another one may
 * have become the primary, which knows nothing of the locks here. The second judges them: 0, EUNAVAILABLE, EPROTO. */
void maria_say_proof(struct maria *maria);
int maria_proved(struct maria *maria, const struct maria_value *proof, struct dlock_error *err);

/* ---- tls.c ------------------------------------------------------------------------------------------------------- */

/* Sets the TLS options of a new link. Returns 0, EAUTH (a file cannot be read, or this libmariadb cannot verify the
 * host) or ENOMEM. */
int maria_set_tls(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                  struct dlock_error *err);
/* Called before and after this thread connects. */
void maria_tls_begin(struct maria *maria, int64_t deadline_us);
void maria_tls_end(void);
/* Sets the name that the certificate must have. Called once the socket exists. */
void maria_tls_name(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host);
/* Checks that an established connection uses TLS, and that the certificate was verified. Returns 0, EPROTO or EAUTH. */
int maria_tls_proved(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                     struct dlock_error *err);
/* True if a connection failed in the TLS handshake. */
bool maria_tls_failed(const struct maria *maria);
/* Reports a failed handshake. Returns EAUTH, EPROTO or EUNAVAILABLE. */
int maria_tls_rejected(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                       struct dlock_error *err);

/* ---- connect.c --------------------------------------------------------------------------------------------------- */

int maria_connect_link(struct maria *maria, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err);

/* ---- queue.c ----------------------------------------------------------------------------------------------------- */

/* Says the UPDATE that ends a grant and hands the row to the first waiter, up to a name and more conditions. Its answer has
 * the session to wake. */
void maria_say_hand_over(struct maria *maria);
/* The same as a whole, for the grant of a claim. */
void maria_say_hand_over_of(struct maria *maria, const struct dlock_claim *claim);
/* Wakes that session; 0: there is none. */
void maria_wake_ear(struct maria *maria, uint64_t session, int64_t deadline_us);
/* Asks for a claim, after joining the queue if it has to, and hands a free row to the first waiter. Returns 1 if there is
 * no row, or it may not be written. */
int maria_wait_in_line(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err);
/* Takes a claim out of the queue, and releases what it has. */
int maria_leave_line(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err);

/* ---- operations -------------------------------------------------------------------------------------------------- */

dlock_batch maria_acquire, maria_renew, maria_release, maria_session_acquire, maria_session_renew,
    maria_session_release;
int maria_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int maria_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int maria_probe(void *conn, struct dlock_error *err);
int maria_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int maria_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int maria_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int maria_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int maria_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int maria_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err);
int maria_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int maria_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

/* The operations of one session, as <dlock/backend_sessions.h> wants them. */
extern const struct dlock_backend maria_session;

#endif
