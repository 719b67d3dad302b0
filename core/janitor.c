/* The thread that releases what nobody owns any more but the server may keep: waits given up without an answer,
 * releases without an answer, grants that came too late. An acquire whose answer was lost may still be executed later,
 * so its token is released again and again for one lease after its last send; one that was queued, until the server has
 * acknowledged. */
#include "client.h"

enum { RETRY_MIN_US = 100000, RETRY_MAX_US = 1000000, REPEAT_MIN_US = 50000 };

static void drop(struct dlock__claim *claim) {
    struct dlock__claim **at = &claim->name->client->janitor.orphans;
    while (*at != claim) at = &(*at)->orphan_next;
    *at = claim->orphan_next;
    claim->orphaned = false;
    dlock__claim_put(claim);
}

/* The most urgent orphan that is not in somebody's batch. */
static struct dlock__claim *first_due(struct dlock_client *client) {
    struct dlock__claim *first = NULL;
    for (struct dlock__claim *claim = client->janitor.orphans; claim; claim = claim->orphan_next)
        if (claim->op.status != DLOCK__OP_RUNNING && (!first || claim->orphan_due_us < first->orphan_due_us))
            first = claim;
    return first;
}

static void release(struct dlock__claim *claim, int64_t deadline_us) {
    struct dlock_client *client = claim->name->client;
    if (dlock__claim_outlived(claim)) {
        drop(claim);
        return;
    }
    int rc = dlock__op_run(claim, DLOCK__RELEASE, 0, deadline_us, NULL);
    int64_t now = dlock__now_us(), lease = dlock__us(claim->lease_ms);
    bool answered = rc == 0 || rc == DLOCK_ELOST;
    if (answered || rc == DLOCK_EINVAL || rc == DLOCK_ENOTSUP) {
        claim->queued = false;
        if (!claim->may_be_held || now >= claim->orphan_until_us) {
            drop(claim);
            return;
        }
        claim->orphan_due_us = now + (lease / 4 > REPEAT_MIN_US ? lease / 4 : REPEAT_MIN_US);
        return;
    }
    bool lives_on = claim->queued || dlock__can(client, DLOCK_CAP_SESSION); /* whatever its lease says */
    if (now >= claim->orphan_until_us && !lives_on && claim->op.status != DLOCK__OP_RUNNING) {
        drop(claim); /* its lease has ended it */
        return;
    }
    int64_t pause = claim->orphan_pause_us * 2;
    claim->orphan_pause_us = pause < RETRY_MIN_US ? RETRY_MIN_US : pause > RETRY_MAX_US ? RETRY_MAX_US : pause;
    claim->orphan_due_us = now + dlock__jitter(client, claim->orphan_pause_us / 2, claim->orphan_pause_us);
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    dlock__enter(client);
    while (!client->janitor.stop) {
        struct dlock__claim *claim = first_due(client);
        if (claim && claim->orphan_due_us <= dlock__now_us())
            release(claim, DLOCK__NEVER);
        else
            dlock__cond_wait(&client->janitor.cond, &client->mutex, claim ? claim->orphan_due_us : DLOCK__NEVER);
    }
    dlock__leave(client);
    return NULL;
}

void dlock__orphan(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    int64_t now = dlock__now_us();
    if (!claim->orphaned) {
        claim->orphaned = true;
        claim->refs++;
        claim->orphan_next = client->janitor.orphans;
        client->janitor.orphans = claim;
    }
    if (claim->phase != DLOCK__LOST) claim->phase = DLOCK__ORPHAN;
    int64_t from = claim->may_be_held ? claim->last_unknown_us : now;
    claim->orphan_until_us = dlock__after(from, dlock__us(claim->lease_ms));
    claim->orphan_due_us = now;
    claim->orphan_pause_us = 0;
    if (!client->janitor.started && !client->janitor.stop)
        client->janitor.started = dlock__thread_start(&client->janitor.thread, run, client) == 0;
    pthread_cond_signal(&client->janitor.cond);
}

/* Orphans for one request: no name twice. At least one. */
static size_t last_batch(struct dlock_client *client, struct dlock__claim **batch) {
    size_t n = 0;
    for (struct dlock__claim *claim = client->janitor.orphans; claim && n < DLOCK__BATCH; claim = claim->orphan_next) {
        if (claim->name->in_batch) continue;
        claim->name->in_batch = true;
        batch[n++] = claim;
    }
    for (size_t i = 0; i < n; i++) batch[i]->name->in_batch = false;
    return n;
}

void dlock__janitor_stop(struct dlock_client *client, int64_t deadline_us) {
    dlock__enter(client);
    client->janitor.stop = true;
    pthread_cond_signal(&client->janitor.cond);
    dlock__leave(client);
    if (client->janitor.started) pthread_join(client->janitor.thread, NULL);
    dlock__enter(client);
    bool reachable = true;
    while (client->janitor.orphans) {
        struct dlock__claim *batch[DLOCK__BATCH];
        size_t n = last_batch(client, batch);
        if (reachable && dlock__now_us() < deadline_us) {
            for (size_t i = 0; i < n; i++) dlock__op_prepare(batch[i], DLOCK__RELEASE, 0, deadline_us, NULL);
            dlock__op_send(batch, n);
            reachable = batch[0]->op.result != DLOCK_EUNAVAILABLE;
        }
        for (size_t i = 0; i < n; i++) drop(batch[i]);
    }
    dlock__leave(client);
}
