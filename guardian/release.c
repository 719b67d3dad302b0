#include "release.h"

#include "api/api.h"
#include "guardian/guardian.h"

#include <stdlib.h>
#include <string.h>

enum {
    REPEAT_US = 1000000, /* how long after the death releases are repeated */
    FIRST_PAUSE_US = 20000,
    LAST_PAUSE_US = 250000 /* between rounds */
};

/* A grant that the dead process left. */
struct left {
    struct dlock_claim claim;
    bool fixed;    /* a fixed lease: its holder would not have renewed it */
    bool asked;    /* was sent in this pass */
    bool answered; /* in this round, which takes as many passes as the server needs */
};

struct dlock__estate {
    struct dlock_client *client;     /* a client of our own, for the same server */
    int64_t shortest_us, longest_us; /* of all leases */
    size_t n;
    struct left left[]; /* sorted by name */
};

static int by_name(const void *a, const void *b) {
    const struct left *one = a, *two = b;
    return strcmp(one->claim.name, two->claim.name);
}

static void add(struct dlock__estate *estate, const struct dlock__guard_entry *entry) {
    struct left *left = &estate->left[estate->n++];
    struct dlock_claim *claim = &left->claim;
    int64_t lease_us = dlock__us(entry->lease_ms);
    left->fixed = entry->fixed;
    claim->name = entry->name;
    claim->token = entry->token;
    claim->mode = (enum dlock_mode)atomic_load(&entry->mode);
    claim->limit = entry->limit;
    claim->lease_ms = entry->lease_ms;
    memcpy(claim->state, entry->state[atomic_load(&entry->copy) & 1], sizeof claim->state);
    if (lease_us > estate->longest_us) estate->longest_us = lease_us;
    if (lease_us < estate->shortest_us) estate->shortest_us = lease_us;
}

struct dlock__estate *dlock__estate_open(const struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock__estate *estate = calloc(1, sizeof *estate + n * sizeof estate->left[0]);
    if (!estate) return NULL;
    estate->shortest_us = DLOCK__NEVER;
    for (uint32_t i = 1; i <= n; i++)
        if (atomic_load(&dlock__guard_entry(table, i)->used)) add(estate, dlock__guard_entry(table, i));
    qsort(estate->left, estate->n, sizeof estate->left[0], by_name);
    options.flags = DLOCK_CLIENT_LAZY;
    if (estate->n > 0 && dlock_open(table->texts, &options, &estate->client, NULL) == 0) return estate;
    free(estate);
    return NULL;
}

/* Collects the next claims that fit into one request: no name twice. */
static size_t next_batch(struct dlock__estate *estate, struct left **batch) {
    size_t n = 0;
    for (size_t i = 0; i < estate->n && n < DLOCK__BATCH; i++) {
        struct left *left = &estate->left[i];
        if (left->asked || (n > 0 && strcmp(batch[n - 1]->claim.name, left->claim.name) == 0)) continue;
        left->asked = true;
        batch[n++] = left;
    }
    return n;
}

/* Sends one request. Returns the backend's return value. */
static int send_batch(struct dlock__estate *estate, struct dlock__conn *conn, enum dlock__op_kind kind, uint32_t flags,
                      struct left *const *batch, size_t n, int64_t deadline_us) {
    struct dlock_claim *claims[DLOCK__BATCH];
    struct dlock_error err;
    for (size_t i = 0; i < n; i++) {
        struct dlock_claim *claim = claims[i] = &batch[i]->claim;
        dlock__preset(claim);
        claim->flags = flags;
    }
    int timeout_ms = dlock__timeout_ms(dlock__now_us(), deadline_us);
    int rc = dlock__conn_batch(estate->client, kind)(conn->data, claims, n, timeout_ms, &err);
    for (size_t i = 0; i < n; i++) batch[i]->answered = rc == 0 && claims[i]->result != DLOCK_EUNAVAILABLE;
    return rc;
}

static void begin_round(struct dlock__estate *estate) {
    for (size_t i = 0; i < estate->n; i++) estate->left[i].answered = false;
}

/* Sends one pass, until until_us: a request for everything that is not answered in this round. Each request has the
 * time that any request has, so that a slow server answers for some more in every pass, and a request that fails keeps
 * no other one from being sent. True: the round is over. */
static bool pass(struct dlock__estate *estate, enum dlock__op_kind kind, uint32_t flags, int64_t until_us) {
    struct dlock_client *client = estate->client;
    struct left *batch[DLOCK__BATCH];
    bool over = true;
    for (size_t i = 0; i < estate->n; i++) estate->left[i].asked = estate->left[i].answered;
    for (size_t n; (n = next_batch(estate, batch)) > 0;) {
        struct dlock__conn *conn;
        int64_t now = dlock__now_us(), deadline_us = dlock__after(now, dlock__us(client->uri->timeout_ms));
        if (now >= until_us) return false;
        if (deadline_us > until_us) deadline_us = until_us;
        dlock__enter(client);
        int rc = dlock__pool_take(client, deadline_us, &conn, NULL);
        dlock__leave(client);
        if (rc != 0) return false;
        rc = send_batch(estate, conn, kind, flags, batch, n, deadline_us);
        dlock__enter(client);
        dlock__pool_give(conn, rc);
        dlock__leave(client);
        for (size_t i = 0; i < n; i++) over = over && batch[i]->answered;
    }
    return over;
}

int64_t dlock__estate_patience_us(const struct dlock__estate *estate) {
    return estate->shortest_us / 6; /* its holder renewed it every third of it */
}

int64_t dlock__estate_renew(struct dlock__estate *estate) {
    int64_t now = dlock__now_us(), third = estate->shortest_us / 3;
    if (dlock__can(estate->client, DLOCK_CAP_SESSION)) return DLOCK__NEVER; /* only its own session could */
    for (size_t i = 0; i < estate->n; i++) estate->left[i].answered = estate->left[i].fixed;
    pass(estate, DLOCK__RENEW, 0, dlock__after(now, third));
    return dlock__after(now, third);
}

/* Sleeps for `us` and returns the next pause. */
static int64_t pause_longer(int64_t us) {
    dlock__sleep_us(us);
    return us * 2 < LAST_PAUSE_US ? us * 2 : LAST_PAUSE_US;
}

void dlock__estate_release(struct dlock__estate *estate, int64_t died_us) {
    uint32_t flags = dlock__can(estate->client, DLOCK_CAP_SESSION) ? DLOCK_CLAIM_DEAD : 0;
    int64_t repeat_until_us = dlock__after(died_us, REPEAT_US), wait_us = FIRST_PAUSE_US;
    int64_t end_us = dlock__after(repeat_until_us, estate->longest_us), begun_us;
    do {
        begin_round(estate);
        begun_us = dlock__now_us();
        while (!pass(estate, DLOCK__RELEASE, flags, end_us)) {
            if (dlock__now_us() >= end_us) return;
            wait_us = pause_longer(wait_us);
        }
        if (begun_us < repeat_until_us) wait_us = pause_longer(wait_us);
    } while (begun_us < repeat_until_us);
}

void dlock__estate_free(struct dlock__estate *estate) {
    if (!estate) return;
    dlock_close(estate->client);
    free(estate);
}
