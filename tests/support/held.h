/* Claims with their own tokens, for the connections of link.h. */
#ifndef DLOCK_TESTS_SUPPORT_HELD_H
#define DLOCK_TESTS_SUPPORT_HELD_H

#include "support/link.h"

enum { LEASE_MS = 10000 };

struct held {
    struct dlock_claim claim;
    char token[DLOCK_TOKEN_MAX + 1];
};

/* A claim of client `letter`: its token is the client's id, '.', `serial` and "@test:1". */
void claim_init(struct held *held, const char *name, char letter, int serial);
/* Initializes a claim of the link's client, with the client's next token. */
void held_new(struct held *held, struct link *link, const char *name);
/* Declare a claim, and initialize it so. */
#define CLAIM_INIT(name, ...) \
    struct held name;         \
    claim_init(&name, __VA_ARGS__)
#define HELD(name, ...) \
    struct held name;   \
    held_new(&name, __VA_ARGS__)

/* Run one operation on one claim, within TIMEOUT_MS; the connection must survive it. Return the claim's result. */
int acquire(struct link *link, struct held *held);
int queue_up(struct link *link, struct held *held); /* acquire with QUEUE */
int renew(struct link *link, struct held *held);
int release(struct link *link, struct held *held);

/* The same within timeout_ms; returns what the operation returned, and the result is in the claim. */
int held_run(dlock_batch *operation, struct link *link, struct held *held, uint32_t flags, int timeout_ms,
             struct dlock_error *err);

#endif
