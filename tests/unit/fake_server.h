/* A lock server in memory, for fake_backend.c: names, holders, queues, leases on a clock of its own, and no network. It
 * takes no mutex: fake_backend.c calls everything under one mutex. */
#ifndef DLOCK_TESTS_FAKE_SERVER_H
#define DLOCK_TESTS_FAKE_SERVER_H

#include <dlock/backend.h>

enum { SERVER_ENTRIES = 2048, SERVER_NAMES = 1024 };

/* A holder or a waiter. */
struct server_entry {
    bool used, held, told; /* told: its client knows the backend state of the claim */
    bool linger;           /* its client wants to be told of other clients' requests */
    enum dlock_mode mode;
    uint32_t limit;
    char name[DLOCK_NAME_MAX + 56];
    char token[DLOCK_TOKEN_MAX + 1];
    unsigned conn; /* the connection that asked; 0: another client's */
    uint64_t fence, order;
    int64_t lease_ms, until_us; /* server clock; DLOCK_FOREVER: no end */
};

/* An unsolicited message of the server: `entry` was granted (kept_ms), or `entry` is NULL and `name` is free
 * (DLOCK_WAKE_LOOK). */
typedef void server_tell(const struct server_entry *entry, const char *name, int64_t kept_ms);
/* Tells the holder `entry`, which asked to be told, that another client wants its name. */
typedef void server_want(const struct server_entry *entry);
/* Is the client of a queued entry there to be told? */
typedef bool server_listens(const struct server_entry *entry);

struct server_rules {
    bool queue;   /* FIFO with direct hand-over; otherwise the first to ask gets it */
    bool look;    /* tells all listeners when a name becomes free */
    bool forever; /* grants have no lease: they end with their connection */
    bool tells;   /* tells clients that find a name held its holder's fence */
};

void server_reset(server_tell *tell, server_want *want, server_listens *listens);
int64_t server_now_us(void);
void server_ready_in_ms(int64_t ms); /* grants nothing before, on the local clock, and says so */
void server_step_us(int64_t us);     /* the server's clock alone; either way */
void server_handover_ms(int64_t ms); /* the longest lease of a hand-over until its first renewal; default 3,000 */

/* One request each. They read and set a claim as the operations of struct dlock_backend do. */
void server_acquire(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim);
void server_renew(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim);
void server_release(const struct server_rules *rules, unsigned conn, struct dlock_claim *claim);
int server_break(const struct server_rules *rules, const char *name);

void server_forget(void); /* drops all entries; fences continue by the clock */
void server_drop_conn(const struct server_rules *rules, unsigned conn); /* a session ends: its entries go */

struct server_entry *server_find(const char *name, const char *token);
struct server_entry *server_holder(const char *name); /* the first of them */
unsigned server_holders(const char *name);
struct server_entry *server_at(size_t index); /* NULL: that was all */
unsigned server_waiters(const char *name);
unsigned server_grants(const char *name); /* up to now; repeated answers to one token are one grant */

#endif
