/* What the ZooKeeper tests share: servers, a proxy that counts and interferes, a plain client beside dlock, and the
 * backend driven by its table of operations alone, without the core.
 */
#ifndef DLOCK_TESTS_ZOOKEEPER_HARNESS_H
#define DLOCK_TESTS_ZOOKEEPER_HARNESS_H

#include <dlock/backend.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <pthread.h>
#include <zookeeper/zookeeper.h>

/* ---- servers (site.c) -------------------------------------------------------------------------------------------- */

/* Of the server that tests/run.sh has started. */
int shared_port(void);

/* A server of the test's own. */
struct site {
    char folder[64];
    int port;
};
void site_start(struct site *site);
void site_signal(const struct site *site, int number);
void site_again(const struct site *site); /* after SIGKILL: same port, same data */
void site_stop(struct site *site);

/* ---- a plain client (site.c) ------------------------------------------------------------------------------------- */

/* Connects once per program; fails the test when that does not work. */
zhandle_t *plain(void);
zhandle_t *plain_to(int port);
/* Makes a node and its parents. */
void plain_make(const char *path, const char *data, int flags, char *made, int size);
int plain_count(const char *dir); /* children; 0 where there is no such node */
/* The only child of dir, with its path; fails the test when there is not exactly one. */
void plain_only(const char *dir, char *path, size_t size);

/* ---- a proxy in front of a server (proxy.c) ---------------------------------------------------------------------- */

/* Request types of ZooKeeper's protocol. */
enum { OP_DELETE = 2, OP_GET = 4, OP_MULTI = 14, OP_CREATE2 = 15, OP_CONTAINER = 19, OP_CHILDREN = 8, OP_PING = 11 };

struct proxy;
struct proxy *proxy_new(int server_port);
void proxy_end(struct proxy *proxy);
int proxy_port(const struct proxy *proxy);
/* Requests of a type so far, or of all types but pings (-1). */
int proxy_seen(struct proxy *proxy, int type);
/* Waits until so many were seen; false after ten seconds. */
bool proxy_await(struct proxy *proxy, int type, int count);
/* Answers stay in the proxy. */
void proxy_hold(struct proxy *proxy, bool on);
/* Nothing passes in either direction, and nobody is told. */
void proxy_silence(struct proxy *proxy, bool on);
/* Existing connections end, and new ones do at once, while it is on. */
void proxy_refuse(struct proxy *proxy, bool on);
/* The next request of this type reaches the server, but the connection ends instead of its answer. */
void proxy_lose_answer(struct proxy *proxy, int type);

/* ---- the backend (link.c) ---------------------------------------------------------------------------------------- */

extern const struct dlock_backend *backend;
void backend_load(void);

/* A URI whose parts a test may change: zookeeper://127.0.0.1:port/dlock-test?session=… */
struct uri {
    struct dlock_uri parts;
    struct dlock_host host[3];
    struct dlock_param param[4];
};
void uri_init(struct uri *uri, int port, const char *session);

/* One connection, with the client it belongs to. */
struct link {
    void *conn;
    struct dlock_peer peer;
    char client[25];
    int fd; /* once it listens */
};
/* Connects as the client whose id is 24 times `letter` (a hex digit). Returns what connect returned; *link is to be
 * ended with link_end() in any case. */
int link_try(struct link *link, const struct uri *uri, char letter, struct dlock_error *err);
int link_within(struct link *link, const struct uri *uri, char letter, int timeout_ms, struct dlock_error *err);
void link_new(struct link *link, int port, const char *session, char letter); /* must work, and listens */
void link_end(struct link *link);

enum { LEASE_MS = 60000, TIMEOUT_MS = 10000 };
#define BASE "/dlock-test"

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
/* One operation on one claim, within timeout_ms; returns what the operation did, and the claim has its result. */
int run(dlock_batch *batch, struct link *link, struct held *held, uint32_t flags, int timeout_ms,
        struct dlock_error *err);

/* An operation in a thread of its own. */
struct task {
    pthread_t thread;
    dlock_batch *batch;
    struct link *link;
    struct held *held;
    uint32_t flags;
    int timeout_ms, rc;
    struct dlock_error err;
};
void task_begin(struct task *task, dlock_batch *batch, struct link *link, struct held *held, uint32_t flags);
int task_end(struct task *task); /* the operation's return value */

/* Waits for a wake-up; false when none comes within ms. */
bool wake_within(struct link *link, struct dlock_wake *wake, int ms);
/* Waits for one of this kind and skips others. */
bool wake_kind_within(struct link *link, struct dlock_wake *wake, enum dlock_wake_kind kind, int ms);

int64_t now_ms(void);
void sleep_ms(int ms);

#endif
