/* The core's side of the contract with a backend: see fake_contract.h. */
#include "fake_contract.h"

#include <ctype.h>
#include <stdlib.h>

enum { MAX_BATCH = 256, MAX_TIMEOUT_MS = 3600000 };

static unsigned violations;

DLOCK_PRINTF(1, 2)
static void violated(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("fake backend: the core broke the contract: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    violations++;
}

void contract_reset(void) {
    violations = 0;
}

unsigned fake_violations(void) {
    return violations;
}

/* A number that belongs to the claim's token; never 0. */
static uint64_t mark(const char *token) {
    return dlock_hash(token, strlen(token), DLOCK_HASH_SEED) | 1;
}

static void check_time(const char *what, int timeout_ms) {
    if (timeout_ms <= 0 || timeout_ms > MAX_TIMEOUT_MS) violated("%s with timeout_ms %d", what, timeout_ms);
}

void contract_connect(const struct fake_conn *conn, const struct dlock_uri *uri, const struct dlock_peer *peer,
                      int timeout_ms) {
    static const struct fake_conn zeroed;
    if (memcmp(conn, &zeroed, sizeof zeroed) != 0) violated("connect on memory that is not zeroed");
    if (strspn(peer->client, "0123456789abcdef") != 24 || peer->client[24]) violated("client \"%s\"", peer->client);
    if (peer->abi != DLOCK_ABI || !peer->log) violated("peer without abi or log");
    for (size_t i = 0; i < uri->n_hosts; i++)
        if (!uri->hosts[i].address) violated("host without address");
    check_time("connect", timeout_ms);
}

static void check_modes(const struct fake_conn *conn, enum fake_op op, const struct dlock_claim *claim) {
    if ((claim->mode == DLOCK_SHARED && !(conn->kind->caps & DLOCK_CAP_SHARED)) ||
        (claim->mode == DLOCK_PERMIT && !(conn->kind->caps & DLOCK_CAP_PERMIT)))
        violated("mode %d is not offered", (int)claim->mode);
    if ((claim->mode == DLOCK_PERMIT) != (claim->limit > 0)) violated("limit %u", (unsigned)claim->limit);
    const struct server_entry *entry = server_find(claim->name, claim->token);
    bool downgrade = entry && op != FAKE_ACQUIRE && entry->mode == DLOCK_EXCLUSIVE && claim->mode == DLOCK_SHARED;
    if (entry && entry->mode != claim->mode && !downgrade)
        violated("mode %d of a grant in mode %d", (int)claim->mode, (int)entry->mode);
}

/* Sorted by name; one name may stand several times in releases, and in renewals of readers and permits. */
static void check_order(enum fake_op op, const struct dlock_claim *before, const struct dlock_claim *claim) {
    int order = strcmp(before->name, claim->name);
    bool renewed = op == FAKE_RENEW && before->mode != DLOCK_EXCLUSIVE && claim->mode != DLOCK_EXCLUSIVE;
    bool together = renewed || op == FAKE_RELEASE;
    if (order > 0 || (order == 0 && !together)) violated("batch not sorted, or a name twice");
    if (order == 0 && strcmp(before->token, claim->token) == 0) violated("a token twice in a batch");
}

static void check_claim(const struct fake_conn *conn, enum fake_op op, const struct dlock_claim *claim, bool heard) {
    size_t length = strlen(conn->client);
    bool imported = op != FAKE_ACQUIRE && conn->kind->caps & DLOCK_CAP_EXPORT; /* perhaps: another client's */
    if (!imported && (strncmp(claim->token, conn->client, length) != 0 || claim->token[length] != '.'))
        violated("token \"%s\" does not begin with its client", claim->token);
    if (strlen(claim->token) > DLOCK_TOKEN_MAX) violated("token too long");
    for (const char *c = claim->token; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._:@-", *c)) violated("token \"%s\"", claim->token);
    if (claim->result != DLOCK_EPROTO || claim->kept_ms != claim->lease_ms || claim->retry_ms != -1 || claim->hints ||
        claim->ready_ms != -1)
        violated("results not preset: %d, kept %lld, retry %lld", claim->result, (long long)claim->kept_ms,
                 (long long)claim->retry_ms);
    if (claim->lease_ms <= 0) violated("lease_ms %lld", (long long)claim->lease_ms);
    if (claim->flags & ~(uint32_t)(DLOCK_CLAIM_QUEUE | DLOCK_CLAIM_LINGER))
        violated("unknown flags 0x%x", claim->flags);
    check_modes(conn, op, claim);
    if (claim->flags & DLOCK_CLAIM_LINGER && (op != FAKE_ACQUIRE || !(conn->kind->caps & DLOCK_CAP_WANTED) || !heard))
        violated("LINGER asked where nobody tells, or nobody listens");
    if (op == FAKE_ACQUIRE && (claim->flags & DLOCK_CLAIM_QUEUE)) {
        if (!(conn->kind->caps & DLOCK_CAP_QUEUE)) violated("QUEUE asked of a backend without a queue");
        if (!heard) violated("QUEUE asked while no connection listens");
    }
    const struct server_entry *entry = server_find(claim->name, claim->token);
    bool told = entry && entry->told;
    if (claim->state[0] != mark(claim->token) && (claim->state[0] != 0 || told))
        violated("state of \"%s\" was not kept", claim->token);
    if (entry && entry->conn != conn->id && (conn->kind->caps & DLOCK_CAP_SESSION))
        violated("a claim of connection %u is used on connection %u", entry->conn, conn->id);
}

void contract_begin(struct fake_conn *conn, enum fake_op op, struct dlock_claim *const *claims, size_t n,
                    int timeout_ms, bool heard) {
    bool threadsafe = conn->kind->caps & DLOCK_CAP_THREADSAFE;
    check_time("operation", timeout_ms);
    if (!conn->connected) violated("operation on a connection that is not connected");
    /* A thread may begin on a THREADSAFE connection before another has reported its end. */
    if (conn->failed && !threadsafe) violated("operation on a connection that has failed");
    if (conn->users++ && !threadsafe) violated("two threads use one connection");
    if (op != FAKE_LISTEN && conn->listening && !threadsafe) violated("request on the listening connection");
    if (op == FAKE_LISTEN || op == FAKE_INSPECT || op == FAKE_BREAK) return;
    if (n == 0 || n > MAX_BATCH) violated("batch of %zu", n);
    for (size_t i = 0; i < n; i++) {
        if (i) check_order(op, claims[i - 1], claims[i]);
        check_claim(conn, op, claims[i], heard);
    }
}

void contract_end(struct fake_conn *conn) {
    conn->users--;
}

void contract_wake(const struct fake_conn *conn) {
    if (!conn->listening) violated("wake on a connection that does not listen");
    if (conn->failed) violated("wake on a connection that has failed");
}

void contract_probe(const struct fake_conn *conn) {
    if (!conn->listening) violated("probe on a connection that does not listen");
    if (conn->failed) violated("probe on a connection that has failed");
    if (conn->probed) violated("probe before the answer to the last one");
}

void contract_disconnect(const struct fake_conn *conn) {
    if (conn->users) violated("disconnect while a call is in progress");
}

void contract_told(const struct fake_conn *conn, struct dlock_claim *claim, struct server_entry *entry) {
    if (!entry || !conn->kind->keeps_state) return;
    claim->state[0] = mark(claim->token);
    entry->told = true;
}
