/* The core's side of the contract with a backend, checked on every call. Called under fake_backend.c's mutex. */
#ifndef DLOCK_TESTS_FAKE_CONTRACT_H
#define DLOCK_TESTS_FAKE_CONTRACT_H

#include "fake_backend.h"
#include "fake_server.h"

enum { FAKE_WAKES = 256 };

struct fake_kind {
    const char *name;
    uint32_t caps;
    const struct server_rules *rules;
    bool keeps_state; /* in dlock_claim.state, as memcached does; the core must not need it, as with Redis */
};

struct fake_wake {
    struct dlock_wake wake;
    char name[DLOCK_NAME_MAX + 56], token[DLOCK_TOKEN_MAX + 1];
};

/* One connection: zeroed by the core before connect. */
struct fake_conn {
    const struct fake_kind *kind;
    unsigned id, users; /* calls in progress */
    bool connected, listening;
    bool dead;   /* the server has dropped it; the client may not know yet */
    bool failed; /* the core was told: only disconnect may follow */
    bool hushed; /* nothing passes */
    bool astray; /* at a server that hands nothing over */
    bool probed; /* and has brought nothing since */
    int fd;
    char client[32];
    size_t wakes_begin, wakes_end;
    struct fake_wake wakes[FAKE_WAKES], last;
};

void contract_reset(void);
void contract_connect(const struct fake_conn *conn, const struct dlock_uri *uri, const struct dlock_peer *peer,
                      int timeout_ms);
/* `heard`: a connection of this client listens. */
void contract_begin(struct fake_conn *conn, enum fake_op op, struct dlock_claim *const *claims, size_t n,
                    int timeout_ms, bool heard);
void contract_end(struct fake_conn *conn);
void contract_wake(const struct fake_conn *conn);
void contract_probe(const struct fake_conn *conn);
void contract_disconnect(const struct fake_conn *conn);

/* Writes the backend's state into the answer of a claim that the server now keeps something for (else `entry` is NULL).
 */
void contract_told(const struct fake_conn *conn, struct dlock_claim *claim, struct server_entry *entry);

#endif
