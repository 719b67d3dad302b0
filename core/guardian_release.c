#include "guardian_release.h"

#include "client.h"
#include "guardian.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REPEAT_US = 1000000, /* for so long after the death */
    FIRST_PAUSE_US = 20000,
    LAST_PAUSE_US = 250000 /* between rounds */
};

struct left {
    struct dlock_claim claim;
    bool fixed; /* nobody was to renew it */
    bool done;  /* in this round */
};

struct dlock__estate {
    struct dlock_client *client;     /* ours, of the same server */
    int64_t shortest_us, longest_us; /* leases */
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

/* The next claims that fit into one request: no name twice. */
static size_t next_batch(struct dlock__estate *estate, struct dlock_claim **batch) {
    size_t n = 0;
    for (size_t i = 0; i < estate->n && n < DLOCK__BATCH; i++) {
        struct left *left = &estate->left[i];
        if (left->done || (n > 0 && strcmp(batch[n - 1]->name, left->claim.name) == 0)) continue;
        left->done = true;
        batch[n++] = &left->claim;
    }
    return n;
}

/* One operation on everything that is not done yet. False: the server did not answer for all. */
static bool put(struct dlock__estate *estate, dlock_batch *operation, uint32_t flags, int64_t deadline_us) {
    struct dlock_client *client = estate->client;
    struct dlock_claim *batch[DLOCK__BATCH];
    struct dlock__conn *conn;
    bool answered = true;
    dlock__enter(client);
    int rc = dlock__pool_take(client, deadline_us, &conn, NULL);
    dlock__leave(client);
    if (rc != 0) return false;
    for (size_t n; rc == 0 && (n = next_batch(estate, batch)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            batch[i]->result = DLOCK_EPROTO;
            batch[i]->flags = flags;
            batch[i]->kept_ms = batch[i]->lease_ms;
            batch[i]->retry_ms = -1;
        }
        struct dlock_error err;
        rc = operation(conn->data, batch, n, dlock__timeout_ms(dlock__now_us(), deadline_us), &err);
        for (size_t i = 0; i < n; i++) answered = answered && batch[i]->result != DLOCK_EUNAVAILABLE;
    }
    dlock__enter(client);
    dlock__pool_give(conn, rc);
    dlock__leave(client);
    return rc == 0 && answered;
}

int64_t dlock__estate_patience_us(const struct dlock__estate *estate) {
    return estate->shortest_us / 6; /* it was renewed every third of it */
}

int64_t dlock__estate_renew(struct dlock__estate *estate) {
    int64_t now = dlock__now_us(), third = estate->shortest_us / 3;
    if (dlock__can(estate->client, DLOCK_CAP_SESSION)) return DLOCK__NEVER; /* its grants are renewed by it alone */
    for (size_t i = 0; i < estate->n; i++) estate->left[i].done = estate->left[i].fixed;
    put(estate, estate->client->backend->renew, 0, dlock__after(now, third));
    return dlock__after(now, third);
}

static void pause_us(int64_t us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

void dlock__estate_release(struct dlock__estate *estate, int64_t died_us) {
    struct dlock_client *client = estate->client;
    uint32_t flags = dlock__can(client, DLOCK_CAP_SESSION) ? DLOCK_CLAIM_DEAD : 0;
    int64_t wait_us = FIRST_PAUSE_US;
    for (;;) {
        for (size_t i = 0; i < estate->n; i++) estate->left[i].done = false;
        int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
        bool answered = put(estate, client->backend->release, flags, deadline_us);
        int64_t end_us = dlock__after(died_us, answered ? REPEAT_US : dlock__after(REPEAT_US, estate->longest_us));
        if (dlock__now_us() >= end_us) return;
        pause_us(wait_us);
        wait_us = wait_us * 2 < LAST_PAUSE_US ? wait_us * 2 : LAST_PAUSE_US;
    }
}

void dlock__estate_free(struct dlock__estate *estate) {
    if (!estate) return;
    dlock_close(estate->client);
    free(estate);
}
