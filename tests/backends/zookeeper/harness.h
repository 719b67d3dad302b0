/* Shared by the ZooKeeper tests, beside tests/support: servers, a proxy that counts and interferes, and a plain client
 * beside dlock. */
#ifndef DLOCK_TESTS_ZOOKEEPER_HARNESS_H
#define DLOCK_TESTS_ZOOKEEPER_HARNESS_H

#include "support/backend.h"
#include "support/clock.h"
#include "support/held.h"
#include "support/link.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
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
void site_again(const struct site *site);   /* after SIGKILL: same port, same data */
void site_restart(const struct site *site); /* by SIGKILL */
/* From its next start on the server allows sessions of these lengths only. */
void site_sessions(const struct site *site, int least_ms, int most_ms);
void site_stop(struct site *site);

/* ---- a plain client (site.c) ------------------------------------------------------------------------------------- */

/* Connects once per program; fails the test when that does not work. The backend ends this connection too when it leaves a
 * server that is silent for a moment: the functions below, but plain_make(), then repeat their request. */
zhandle_t *plain(void);
zhandle_t *plain_to(int port);
/* Makes a node and its parents. */
void plain_make(const char *path, const char *data, int flags, char *made, int size);
int plain_count(const char *dir); /* children; 0 where there is no such node */
/* The only child of dir, with its path; fails the test when there is not exactly one. */
void plain_only(const char *dir, char *path, size_t size);
/* Deletes a node, which has to be there. */
void plain_delete(const char *path);

/* ---- a proxy in front of a server (proxy.c) ---------------------------------------------------------------------- */

/* Request types of ZooKeeper's protocol. */
enum {
    OP_DELETE = 2,
    OP_EXISTS = 3,
    OP_GET = 4,
    OP_MULTI = 14,
    OP_CREATE2 = 15,
    OP_CONTAINER = 19,
    OP_CHILDREN = 8,
    OP_PING = 11
};

struct proxy;
struct proxy *proxy_new(int server_port);
void proxy_end(struct proxy *proxy);
/* One that the end of its block ends: SCOPED_PROXY *proxy = proxy_new(port). */
#define SCOPED_PROXY __attribute__((cleanup(proxy_end_scoped))) struct proxy
static inline void proxy_end_scoped(struct proxy **proxy) {
    proxy_end(*proxy);
}
int proxy_port(const struct proxy *proxy);
/* Requests of a type up to now; or of all types (-1) but pings and OP_EXISTS, which dlock sends in place of them. */
int proxy_seen(struct proxy *proxy, int type);
/* The bytes of the requests of a type. */
size_t proxy_sent(struct proxy *proxy, int type);
/* Waits until this many were seen; false after ten seconds. */
bool proxy_await(struct proxy *proxy, int type, int count);
/* Answers stay in the proxy. */
void proxy_hold(struct proxy *proxy, bool on);
/* The same from the count-th request of this type on, from now: its answer is the first that stays. */
void proxy_hold_after(struct proxy *proxy, int type, int count);
/* Nothing passes in either direction, and neither side is told. */
void proxy_silence(struct proxy *proxy, bool on);
/* Requests pass, new connections are taken, and no answer comes. */
void proxy_deafen(struct proxy *proxy, bool on);
/* Nothing passes any more on existing connections, and neither side is told; new ones work. */
void proxy_strand(struct proxy *proxy);
/* Existing connections end, and new ones do at once, while it is on. */
void proxy_refuse(struct proxy *proxy, bool on);
/* The next request of this type reaches the server, but the connection ends instead of its answer. */
void proxy_lose_answer(struct proxy *proxy, int type);

/* ---- the backend (link.c) ---------------------------------------------------------------------------------------- */

#define BASE "/dlock-test"

/* zookeeper://127.0.0.1:port/dlock-test?session=… */
void uri_session(struct uri *uri, int port, const char *session);
void link_new(struct link *link, int port, const char *session, char letter); /* must work, and listens */

/* A claim as claim_init() makes it, of this mode. */
void claim_as(struct held *held, const char *name, char letter, int serial, enum dlock_mode mode, uint32_t limit);
/* Declares a claim, and initializes it so. */
#define CLAIM_AS(name, ...) \
    struct held name;       \
    claim_as(&name, __VA_ARGS__)

/* Asks until the answer is known, for as long as an election may take. */
int persistently(struct link *link, int (*operation)(struct link *, struct held *), struct held *held);

/* An operation in its own thread. */
struct task {
    pthread_t thread;
    dlock_batch *batch;
    struct link *link;
    struct held *held;
    uint32_t flags;
    int timeout_ms, rc;
    struct dlock_error err;
    atomic_bool over; /* it has returned */
};
void task_begin(struct task *task, dlock_batch *batch, struct link *link, struct held *held, uint32_t flags);
int task_end(struct task *task); /* the operation's return value */

/* Waits for a wake-up as wake_within does, but passes over what a new connection says: to look at every name. On a busy machine
 * there is one at any time, since the backend leaves a server that is silent for a moment. */
bool told_within(struct link *link, struct dlock_wake *wake, int ms);

/* Waits for a wake-up of this kind and skips others; false when none comes within ms. */
bool wake_kind_within(struct link *link, struct dlock_wake *wake, enum dlock_wake_kind kind, int ms);

#endif
