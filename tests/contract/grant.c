/* Claims, prepared as by the core, and what every answer has to look like. */
#include "contract/contract.h"
#include "support/claim.h"

#include <inttypes.h>
#include <unistd.h>

void grant_as(struct grant *grant, int client, const char *name, enum dlock_mode mode, uint32_t limit) {
    static _Atomic int serial; /* threads make claims, too */
    memset(grant, 0, sizeof *grant);
    snprintf(grant->token, sizeof grant->token, "%s.%d@contract:%d", client_id(client), ++serial, (int)getpid());
    grant->client = client;
    grant->claim =
        (struct dlock_claim){.name = name, .token = grant->token, .mode = mode, .limit = limit, .lease_ms = HELD_MS};
    claim_preset(&grant->claim);
}

void grant_new(struct grant *grant, int client, const char *name) {
    grant_as(grant, client, name, DLOCK_EXCLUSIVE, 0);
}

void grant_copy(struct grant *copy, const struct grant *grant, bool forget) {
    *copy = *grant;
    copy->claim.token = copy->token;
    if (forget) memset(copy->claim.state, 0, sizeof copy->claim.state);
}

void full_length_token(struct grant *grant, char last) {
    size_t used = strlen(grant->token);
    memset(grant->token + used, 'x', DLOCK_TOKEN_MAX - used);
    grant->token[DLOCK_TOKEN_MAX - 1] = last;
}

void full_length_name(char name[DLOCK_FULL_NAME_MAX + 1], char last) {
    static const char filler[] = "/ %\xff";
    int used = snprintf(name, DLOCK_FULL_NAME_MAX + 1, "%s", suite.name);
    for (int i = used; i < DLOCK_FULL_NAME_MAX; i++) name[i] = filler[i % 4];
    name[DLOCK_FULL_NAME_MAX - 1] = last;
    name[DLOCK_FULL_NAME_MAX] = '\0';
}

/* A result beside which the claim has to have a plausible time, and a grant a fence. */
static void check_answer(enum dlock_operation operation, const struct dlock_claim *claim) {
    EXPECT(claim->server_us >= 0);
    if (claim->result == 0 && operation != DLOCK_RELEASE) {
        bool forever = claim->kept_ms == DLOCK_FOREVER && can(DLOCK_CAP_SESSION) && !can(DLOCK_CAP_LEASE);
        if (!forever) EXPECT_BETWEEN(1, claim->lease_ms, claim->kept_ms);
    }
    if (operation != DLOCK_ACQUIRE) return;
    if (claim->result == 0) EXPECT_BETWEEN(1, (INT64_C(1) << 55) - 1, (int64_t)claim->fence);
    if (claim->result == DLOCK_EBUSY || claim->result == DLOCK_ENOTREADY) {
        bool valid = claim->retry_ms == DLOCK_FOREVER || (claim->retry_ms >= -1 && claim->retry_ms <= 3600000);
        if (!valid) FAIL("retry_ms is %" PRId64, claim->retry_ms);
        EXPECT(claim->ready_ms >= -1);
    }
}

static dlock_batch *batch_of(enum dlock_operation operation) {
    return operation == DLOCK_ACQUIRE ? backend->acquire : operation == DLOCK_RENEW ? backend->renew : backend->release;
}

static const char *word_of(enum dlock_operation operation) {
    return operation == DLOCK_ACQUIRE ? "acquire" : operation == DLOCK_RENEW ? "renew" : "release";
}

int request_on(struct line *line, enum dlock_operation operation, struct grant *grant, uint32_t flags) {
    struct dlock_error err = {0};
    grant->asked_ms = now_ms();
    grant->claim.flags = flags;
    if (operation == DLOCK_ACQUIRE) grant->claim.fence = 0;
    int rc = claim_run(batch_of(operation), line->conn, &grant->claim, REQUEST_MS, &err);
    if (rc != 0) FAIL("%s answers %d: %s", word_of(operation), rc, err.message);
    if (grant->claim.result == DLOCK_EINVAL || grant->claim.result == DLOCK_ENOTSUP)
        EXPECT(err.code == grant->claim.result && err.message[0]);
    check_answer(operation, &grant->claim);
    return grant->claim.result;
}

int acquire(struct grant *grant) {
    return request_on(line_of(grant->client), DLOCK_ACQUIRE, grant, 0);
}

int queue_up(struct grant *grant) {
    bool may = can(DLOCK_CAP_QUEUE) || (can(DLOCK_CAP_WAKE) && !can(DLOCK_CAP_SESSION));
    listens(grant->client);
    return request_on(line_of(grant->client), DLOCK_ACQUIRE, grant, may ? DLOCK_CLAIM_QUEUE : 0);
}

void line_up(struct grant *grant, int client, const char *name, enum dlock_mode mode, uint32_t limit) {
    grant_as(grant, client, name, mode, limit);
    BUSY(queue_up(grant));
    if (!session_each()) return;
    sleep_ms(200); /* its request has been left with the server, which may not have read it yet */
    char other[DLOCK_NAME_MAX + 1];
    struct grant probe; /* takes longer if the machine is busy, as the request does */
    tagged_name(other, "probe");
    grant_new(&probe, client, other);
    GRANTED(acquire(&probe));
    GRANTED(release(&probe));
}

int renew(struct grant *grant) {
    return request_on(line_of(grant->client), DLOCK_RENEW, grant, 0);
}

int release(struct grant *grant) {
    return request_on(line_of(grant->client), DLOCK_RELEASE, grant, 0);
}

void batch(int client, enum dlock_operation operation, struct grant *const *grants, size_t n, struct dlock_error *err) {
    struct dlock_claim *claims[256];
    struct dlock_error own = {0};
    if (!err) err = &own;
    EXPECT(n <= 256);
    for (size_t i = 0; i < n; i++) {
        claims[i] = &grants[i]->claim;
        claims[i]->flags = 0;
        if (operation == DLOCK_ACQUIRE) claims[i]->fence = 0;
        claim_preset(claims[i]);
    }
    int rc = batch_of(operation)(line_of(client)->conn, claims, n, REQUEST_MS, err);
    if (rc != 0) FAIL("%s of %zu answers %d: %s", word_of(operation), n, rc, err->message);
    for (size_t i = 0; i < n; i++) check_answer(operation, claims[i]);
}

void expect_broken(struct grant *grant) {
    LOST(renew(grant));
    LOST(release(grant));
}

int await_free(struct grant *grant) {
    for (int64_t until = now_ms() + REQUEST_MS; acquire(grant) == DLOCK_EBUSY && now_ms() < until;) sleep_ms(5);
    return grant->claim.result;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* How long the core would wait for a wake-up, or poll, before it sends the next request. */
static int pause_ms(const struct dlock_claim *claim, int64_t left) {
    int64_t pause = claim->retry_ms < 0 ? 20 : claim->retry_ms;
    return (int)(pause < left ? pause : left);
}

/* What a wake-up says about the claim: 1: granted, and confirmed; 0: a request should be sent; -1: nothing. */
static int heard(struct grant *grant, const struct dlock_wake *wake) {
    const struct dlock_claim *claim = &grant->claim;
    if (wake->name && strcmp(wake->name, claim->name) != 0) return -1;
    if (wake->kind == DLOCK_WAKE_LOOK) return 0;
    if (wake->kind != DLOCK_WAKE_GRANTED || strcmp(wake->token, claim->token) != 0) return -1;
    if (!wake->fence) return 0;
    EXPECT(wake->fence < UINT64_C(1) << 55);
    uint64_t fence = wake->fence;
    EXPECT(wake->kept_ms > 0);
    if (renew(grant) != 0) return 0; /* it came too late: asking again tells */
    grant->claim.fence = fence;
    return 1;
}

int await(struct grant *grant, int ms) {
    const bool told = can(DLOCK_CAP_WAKE);
    struct dlock_wake wake;
    listens(grant->client);
    for (int64_t until = now_ms() + ms;;) {
        int64_t left = until - now_ms();
        int said = 0;
        if (left <= 0) return DLOCK_EBUSY;
        if (!told) sleep_ms(pause_ms(&grant->claim, left));
        if (told) said = wake_of(grant->client, &wake, pause_ms(&grant->claim, left)) ? heard(grant, &wake) : 0;
        if (said == 1) return 0;
        if (said == 0 && queue_up(grant) != DLOCK_EBUSY) return grant->claim.result;
    }
}

/* Without a queue a wake-up may be missing, for as long as retry_ms says. */
void expect_woken(struct grant *grant) {
    static int came, missed;
    struct dlock_wake wake;
    for (int64_t until = now_ms() + REQUEST_MS;;) {
        int64_t left = until - now_ms();
        bool told =
            left > 0 && wake_of(grant->client, &wake, can(DLOCK_CAP_QUEUE) ? (int)left : pause_ms(&grant->claim, left));
        if (!told && (left <= 0 || can(DLOCK_CAP_QUEUE))) FAIL("no wake-up for \"%s\"", grant->claim.name);
        int said = told ? heard(grant, &wake) : 0;
        if (said < 0 || (said == 0 && queue_up(grant) != 0)) continue;
        if (told) came++;
        if (!told && ++missed > came + 2) FAIL("most wake-ups are missing");
        return;
    }
}

void expect_not_granted(struct grant *grant) {
    struct dlock_wake wake;
    while (wake_of(grant->client, &wake, 150)) {
        int said = heard(grant, &wake);
        if (said == 1 || (said == 0 && queue_up(grant) == 0))
            FAIL("\"%s\" is granted to a waiter before its turn", grant->claim.name);
    }
}
