/* What the memcached tests share: private servers, a plain client beside dlock, and the backend driven by its table of
 * operations alone, without the core. */
#ifndef DLOCK_TESTS_MEMCACHED_HARNESS_H
#define DLOCK_TESTS_MEMCACHED_HARNESS_H

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
    char folder[64]; /* its own; holds whatever a test puts there */
};

/* Starts memcached on a free loopback port; `arguments` (NULL-terminated, or NULL) are added to its own. Fails the test
 * when it does not answer. */
void server_start(struct server *server, const char *const *arguments);
/* The same without waiting until it answers: on a socket, or in another protocol. Ends with server_stop(). */
void server_start_unheard(struct server *server, const char *const *arguments);
void server_kill(struct server *server);                                /* SIGKILL */
void server_again(struct server *server, const char *const *arguments); /* on the same port and folder */
void server_stop(struct server *server);                                /* removes the folder, too */

/* Sends lines (without the last end of line) on a new connection that dlock has nothing to do with, and returns all
 * that the server says. Lives until the next call. */
DLOCK_PRINTF(2, 3) const char *ask(const struct server *server, const char *format, ...);

/* One number of `stats`. */
int64_t stat_of(const struct server *server, const char *name);

/* How many commands, and which, a server has had from its clients since the last call. */
struct counts {
    int64_t stores, gets, cas_hits, cas_misses;
};
void count(const struct server *server, struct counts *since);

/* ---- the backend ------------------------------------------------------------------------------------------------- */

extern const struct dlock_backend *backend;
int backend_load(void **state); /* a group's setup */

/* One connection, with the client it belongs to. */
struct link {
    void *conn;
    struct dlock_peer peer;
    char client[25];
};

/* A URI for memcached://127.0.0.1:port, whose parts a test may change. */
struct uri {
    struct dlock_uri parts;
    struct dlock_host host[3];
};
void uri_init(struct uri *uri, int port);

enum { LEASE_MS = 10000, TIMEOUT_MS = 5000 };

/* Connects as the client whose id is 24 times `letter` (a hex digit). Returns what connect returned; *link is to be
 * ended with link_end() in any case. */
int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms, int timeout_ms,
             struct dlock_error *err);

/* The same on loopback, without quarantine, and it must work. */
void link_new(struct link *link, int port, char letter);
void link_end(struct link *link);

/* A claim of client `letter`: its token is the client's id, '.', `serial` and "@test:1". */
struct held {
    struct dlock_claim claim;
    char token[DLOCK_TOKEN_MAX + 1];
};
void claim_init(struct held *held, const char *name, char letter, int serial);
void claim_preset(struct dlock_claim *claim); /* as the core does before each call */

/* One operation on one claim; the connection must survive it. Returns the claim's result. */
int acquire(struct link *link, struct held *held);
int renew(struct link *link, struct held *held);
int release(struct link *link, struct held *held);

int64_t now_ms(void);
void sleep_ms(int ms);

#endif
