/* What the Redis tests share: private servers, a plain client beside dlock, and the backend driven by its table of
 * operations alone, without the core.
 */
#ifndef DLOCK_TESTS_REDIS_HARNESS_H
#define DLOCK_TESTS_REDIS_HARNESS_H

#include <dlock/backend.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

/* ---- servers ----------------------------------------------------------------------------------------------------- */

struct server {
    pid_t pid;
    int port;
    char folder[64]; /* its own; holds the socket "sock" */
    struct redisContext *plain;
};

/* Starts redis-server on a free loopback port; `arguments` (NULL-terminated, or NULL) are added to its own. Fails the
 * test when it does not answer. */
void server_start(struct server *server, const char *const *arguments);
void server_kill(struct server *server);                                /* SIGKILL */
void server_again(struct server *server, const char *const *arguments); /* on the same port and folder */
void server_stop(struct server *server);                                /* removes the folder, too */

/* Runs a command on a connection that dlock has nothing to do with. The format is that of hiredis. An error reply
 * fails the test. */
int64_t ask_number(struct server *server, const char *format, ...);
/* A string or a status; "" for nil. Lives until the next call. */
const char *ask_text(struct server *server, const char *format, ...);

/* Counts what clients send to a server, by MONITOR. */
struct monitor {
    struct redisContext *link;
    int requests;  /* sent by clients; those that scripts run are not counted */
    int evalsha;   /* of these, calls of scripts */
    int published; /* messages that scripts sent */
};
void monitor_begin(struct monitor *monitor, const struct server *server);
void monitor_end(struct monitor *monitor, struct server *server);

/* ---- the backend ------------------------------------------------------------------------------------------------- */

extern const struct dlock_backend *backend;
void backend_load(void);

/* One connection, with the client it belongs to. */
struct link {
    void *conn;
    struct dlock_peer peer;
    char client[25];
    int fd; /* once it listens */
};

/* Connects as the client whose id is 24 times `letter` (a hex digit). Returns what connect returned; *link is to be
 * ended with link_end() in any case. */
int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms,
             struct dlock_error *err);

/* The same on loopback, and it must work. */
void link_new(struct link *link, const struct server *server, char letter);
void link_listen(struct link *link);
void link_end(struct link *link);

/* A URI for redis://127.0.0.1:port, whose parts a test may change. */
struct uri {
    struct dlock_uri parts;
    struct dlock_host host[3];
};
void uri_init(struct uri *uri, int port);

enum { LEASE_MS = 10000, TIMEOUT_MS = 5000 };

/* A claim of client `letter`: its token is the client's id, '.', `serial` and "@test:1". */
struct held {
    struct dlock_claim claim;
    char token[DLOCK_TOKEN_MAX + 1];
};
void claim_init(struct held *held, const char *name, char letter, int serial);

/* One operation on one claim; the connection must survive it. Returns the claim's result. */
int acquire(struct link *link, struct held *held);
int queue_up(struct link *link, struct held *held); /* acquire with QUEUE */
int renew(struct link *link, struct held *held);
int release(struct link *link, struct held *held);

/* Waits for a wake-up of a listening connection; false when none comes within ms. */
bool wake_within(struct link *link, struct dlock_wake *wake, int ms);

int64_t now_ms(void);
void sleep_ms(int ms);

#endif
