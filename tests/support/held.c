#include "support/held.h"

#include "support/claim.h"
#include "support/test.h"

void claim_init(struct held *held, const char *name, char letter, int serial) {
    memset(held, 0, sizeof *held);
    memset(held->token, letter, 24);
    snprintf(held->token + 24, sizeof held->token - 24, ".%d@test:1", serial);
    held->claim.name = name;
    held->claim.token = held->token;
    held->claim.lease_ms = LEASE_MS;
    claim_preset(&held->claim);
}

void held_new(struct held *held, struct link *link, const char *name) {
    claim_init(held, name, link->client[0], ++link->tokens);
}

int held_run(dlock_batch *operation, struct link *link, struct held *held, uint32_t flags, int timeout_ms,
             struct dlock_error *err) {
    held->claim.flags = flags;
    if (operation == backend->acquire) held->claim.fence = 0;
    return claim_run(operation, link->conn, &held->claim, timeout_ms, err);
}

static int must_run(dlock_batch *operation, struct link *link, struct held *held, uint32_t flags) {
    struct dlock_error err = {0};
    int rc = held_run(operation, link, held, flags, TIMEOUT_MS, &err);
    if (rc != 0) fail_msg("%d: %s", rc, err.message);
    return held->claim.result;
}

int acquire(struct link *link, struct held *held) {
    return must_run(backend->acquire, link, held, 0);
}

int queue_up(struct link *link, struct held *held) {
    return must_run(backend->acquire, link, held, DLOCK_CLAIM_QUEUE);
}

int renew(struct link *link, struct held *held) {
    return must_run(backend->renew, link, held, 0);
}

int release(struct link *link, struct held *held) {
    return must_run(backend->release, link, held, 0);
}
