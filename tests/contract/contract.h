/* The contract suite: what include/dlock/backend.h promises of every backend's table of operations, which the core
 * relies on. Its capabilities decide which cases apply. The cases of a file run in sequence in one process,
 * with the same clients; a case returns if it passes and otherwise calls fail_at (by EXPECT…). */
#ifndef DLOCK_TESTS_CONTRACT_H
#define DLOCK_TESTS_CONTRACT_H

#include "conformance/suite.h"

#include <dlock/backend.h>

#include <stdio.h>
#include <string.h>

/* ---- the backend under test -------------------------------------------------------------------------------------- */

extern const struct dlock_backend *backend;

static inline bool can(uint32_t caps) {
    return (backend->caps & caps) == caps;
}

/* Each claim has a session of its own behind the connection, of which a server allows some hundreds. */
static inline bool session_each(void) {
    return can(DLOCK_CAP_SESSION) && backend->descriptors && !can(DLOCK_CAP_LOCAL);
}

/* A request is carried out, and its answer is lost with the connection: the claim is as it was before. */
static inline bool answers_can_be_lost(void) {
    return !can(DLOCK_CAP_SESSION);
}

/* ---- clients (client.c) ------------------------------------------------------------------------------------------ */

enum {
    CLIENTS = 5,             /* a, b, c, d, and one that has a quarantine of QUARANTINE_MS */
    CAREFUL = 4,             /* the number of that one */
    HELD_MS = 90000,         /* the usual lease, here: its end is never waited for */
    REQUEST_MS = 30000,      /* for one operation: only a failure takes as long */
    QUARANTINE_MS = 86400000 /* longer than any server of the tests is up, and than a retry_ms may be */
};

/* One connection of a client. */
struct line {
    void *conn;
    int fd; /* that it polls with; -1: it does not listen */
    struct line *next;
};

/* Opens the URI's backend without a connection. Returns the code of opening it. */
int contract_open(const char *uri, struct dlock_error *err);

/* The line that a client's requests are sent on, and a second one. */
struct line *line_of(int client);
struct line *second_line_of(int client);

/* What the client's tokens begin with. */
const char *client_id(int client);

/* Makes the client's wake-ups come, if the backend has any. */
void listens(int client);

/* Closes all connections of a client, as its death would. It may be used again. */
void client_dies(int client);
void all_clients_end(void);

/* The next wake-up of the client within `ms`, on its listener. */
bool wake_of(int client, struct dlock_wake *wake, int ms);

bool readable(int fd, int ms); /* whether the descriptor is, within `ms` */

/* ---- claims (grant.c) -------------------------------------------------------------------------------------------- */

/* A claim of a client. */
struct grant {
    struct dlock_claim claim;
    char token[DLOCK_TOKEN_MAX + 1];
    int client;
    int64_t asked_ms; /* when the last operation on it began */
};

/* Prepares a claim of the client for the name, with the client's next token. */
void grant_new(struct grant *grant, int client, const char *name);
void grant_as(struct grant *grant, int client, const char *name, enum dlock_mode mode, uint32_t limit);

/* A copy, such as that of a request that was delayed; `forget`: without what the backend has stored in it. */
void grant_copy(struct grant *copy, const struct grant *grant, bool forget);

/* A token of the longest length, and a name that begins with suite.name; they end with `last`. */
void full_length_token(struct grant *grant, char last);
void full_length_name(char name[DLOCK_FULL_NAME_MAX + 1], char last);

/* One operation on one claim; the connection has to survive it. Return the claim's result, and check what the backend
 * has filled in. */
int acquire(struct grant *grant);
int queue_up(struct grant *grant); /* with QUEUE, where that may be sent; its client listens then */
/* A claim that is in line when this returns, behind those that were before. Where a request is left with the server,
 * nothing tells when the server has got it. */
void line_up(struct grant *grant, int client, const char *name, enum dlock_mode mode, uint32_t limit);
int renew(struct grant *grant);
int release(struct grant *grant);

/* Acquires, as one that polls and leaves nothing at the server but marks that soon expire: other clients' marks may
 * keep it out for a moment. */
int await_free(struct grant *grant);

/* One operation, DLOCK_ACQUIRE and so on, on this line, with these flags. */
int request_on(struct line *line, enum dlock_operation operation, struct grant *grant, uint32_t flags);

/* Fails unless it has lost its grant by a break. */
void expect_broken(struct grant *grant);

/* Waits as the core does, after queue_up() or acquire() was EBUSY, until it is granted: 0, or EBUSY if it is not within
 * `ms`. Where the server hands over, the grant is also confirmed. */
int await(struct grant *grant, int ms);

/* The same where wake-ups come: fails unless one does, and it leads to the grant. */
void expect_woken(struct grant *grant);

/* Fails if a wake-up comes that says this claim is granted, or that leads to a grant. */
void expect_not_granted(struct grant *grant);

#define GRANTED(call) EXPECT_CODE(0, call)
#define BUSY(call) EXPECT_CODE(DLOCK_EBUSY, call)
#define LOST(call) EXPECT_CODE(DLOCK_ELOST, call)

/* One operation on several claims of a client, of DLOCK_ACQUIRE and so on, sorted by name; each has its result. */
void batch(int client, enum dlock_operation operation, struct grant *const *grants, size_t n, struct dlock_error *err);

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* Beside DLOCK_CAP_… among the needs: a connection serves many claims; the end of a connection frees nothing. */
#define NEEDS_MANY (UINT32_C(1) << 29)
#define NEEDS_LEASES (UINT32_C(1) << 28)

struct contract_case {
    const char *name;
    void (*run)(void);
    uint32_t needs; /* capabilities, and the above */
};

#define PROMISE(name, needs) \
    { #name, name, needs }

struct contract_file {
    const char *name;
    const struct contract_case *cases; /* ends with one without a name */
};

/* Every file of cases. */
#define CONTRACT_FILES(X) \
    X(tokens)             \
    X(fences)             \
    X(lease) X(shared) X(downgrade) X(permits) X(batch) X(inspect) X(wake) X(queue) X(session) X(ready) X(manners)
#define DLOCK_X(name) extern const struct contract_case contract_##name[];
CONTRACT_FILES(DLOCK_X)
#undef DLOCK_X

#endif
