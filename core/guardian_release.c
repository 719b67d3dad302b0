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

/* The grants of the dead. */
struct estate {
    struct dlock_claim *claims; /* sorted by name */
    bool *done;                 /* per claim: in this round */
    size_t n;
    int64_t lease_us; /* the longest */
};

static int by_name(const void *a, const void *b) {
    const struct dlock_claim *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static bool collect(const struct dlock__guard_table *table, struct estate *estate) {
    uint32_t n = atomic_load(&table->n_entries);
    memset(estate, 0, sizeof *estate);
    estate->claims = calloc(n + 1, sizeof *estate->claims);
    estate->done = calloc(n + 1, sizeof *estate->done);
    if (!estate->claims || !estate->done) return false;
    for (uint32_t i = 1; i <= n; i++) {
        const struct dlock__guard_entry *entry = dlock__guard_entry(table, i);
        if (!atomic_load(&entry->used)) continue;
        struct dlock_claim *claim = &estate->claims[estate->n++];
        claim->name = entry->name;
        claim->token = entry->token;
        claim->mode = (enum dlock_mode)atomic_load(&entry->mode);
        claim->limit = entry->limit;
        claim->lease_ms = entry->lease_ms;
        memcpy(claim->state, entry->state[atomic_load(&entry->copy) & 1], sizeof claim->state);
        if (dlock__us(claim->lease_ms) > estate->lease_us) estate->lease_us = dlock__us(claim->lease_ms);
    }
    qsort(estate->claims, estate->n, sizeof *estate->claims, by_name);
    return true;
}

/* The next claims that fit into one request: no name twice. */
static size_t next_batch(struct estate *estate, struct dlock_claim **batch) {
    size_t n = 0;
    for (size_t i = 0; i < estate->n && n < DLOCK__BATCH; i++) {
        if (estate->done[i] || (n > 0 && strcmp(batch[n - 1]->name, estate->claims[i].name) == 0)) continue;
        estate->done[i] = true;
        batch[n++] = &estate->claims[i];
    }
    return n;
}

/* Releases all of them once. False: the server did not answer for all. */
static bool release_round(struct dlock_client *client, struct estate *estate) {
    struct dlock_claim *batch[DLOCK__BATCH];
    struct dlock__conn *conn;
    bool answered = true;
    uint32_t flags = dlock__can(client, DLOCK_CAP_SESSION) ? DLOCK_CLAIM_DEAD : 0;
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    dlock__enter(client);
    int rc = dlock__pool_take(client, deadline_us, &conn, NULL);
    dlock__leave(client);
    if (rc != 0) return false;
    memset(estate->done, 0, estate->n * sizeof *estate->done);
    for (size_t n; rc == 0 && (n = next_batch(estate, batch)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            batch[i]->result = DLOCK_EPROTO;
            batch[i]->flags = flags;
            batch[i]->kept_ms = batch[i]->lease_ms;
            batch[i]->retry_ms = -1;
        }
        struct dlock_error err;
        rc = client->backend->release(conn->data, batch, n, dlock__timeout_ms(deadline_us), &err);
        for (size_t i = 0; i < n; i++) answered = answered && batch[i]->result != DLOCK_EUNAVAILABLE;
    }
    dlock__enter(client);
    dlock__pool_give(conn, rc);
    dlock__leave(client);
    return rc == 0 && answered;
}

static void pause_us(int64_t us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void release_all(struct dlock_client *client, struct estate *estate, int64_t died_us) {
    int64_t wait_us = FIRST_PAUSE_US;
    for (;;) {
        bool answered = release_round(client, estate);
        int64_t now = dlock__now_us();
        if (now >= dlock__after(died_us, answered ? REPEAT_US : REPEAT_US + estate->lease_us)) return;
        pause_us(wait_us);
        wait_us = wait_us * 2 < LAST_PAUSE_US ? wait_us * 2 : LAST_PAUSE_US;
    }
}

void dlock__guard_release(const struct dlock__guard_table *table, int64_t died_us) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_client *client;
    struct estate estate;
    options.flags = DLOCK_CLIENT_LAZY;
    if (collect(table, &estate) && estate.n > 0 && dlock_open(table->texts, &options, &client, NULL) == 0) {
        release_all(client, &estate, died_us);
        dlock_close(client);
    }
    free(estate.claims);
    free(estate.done);
}
