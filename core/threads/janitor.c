/* The thread that releases what nobody owns any more but the server may keep: waits given up without an answer,
 * releases without an answer, grants that came too late. An acquire whose answer was lost may still be executed later,
 * so its token is released again and again for one lease after its last send; one that was queued, until the server has
 * acknowledged. */
#include "threads/threads.h"

enum { RETRY_MIN_US = 100000, RETRY_MAX_US = 1000000, REPEAT_MIN_US = 50000 };

static void drop(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock__acquisition **at = &client->janitor.orphans;
    while (*at != acq) at = &(*at)->orphan_next;
    *at = acq->orphan_next;
    dlock__orphan_gone(acq);
    pthread_cond_broadcast(&client->changed); /* dlock__give_back_await */
    dlock__acq_put(acq);
}

/* Orphans that are due by then, for one request. */
static size_t gather(struct dlock_client *client, struct dlock__acquisition **batch, int64_t due_us) {
    size_t n = 0;
    for (struct dlock__acquisition *acq = client->janitor.orphans; acq && n < DLOCK__BATCH; acq = acq->orphan_next) {
        if (acq->release_at_us > due_us || dlock__acq_in_request(acq)) continue;
        if (!dlock__slot_attach(acq)) { /* some other time */
            acq->release_at_us = dlock__now_us() + RETRY_MAX_US;
            continue;
        }
        batch[n++] = acq;
    }
    return n;
}

static int64_t first_due(struct dlock_client *client) {
    int64_t due_us = DLOCK__NEVER;
    for (struct dlock__acquisition *acq = client->janitor.orphans; acq; acq = acq->orphan_next)
        if (!dlock__acq_in_request(acq) && acq->release_at_us < due_us) due_us = acq->release_at_us;
    return due_us;
}

static void answered(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    int rc = acq->op->result;
    int64_t now = dlock__now_us(), lease = dlock__us(acq->lease_ms);
    bool lease_over = now >= acq->unknown_until_us;
    if (rc == 0 || rc == DLOCK_ELOST || rc == DLOCK_EINVAL || rc == DLOCK_ENOTSUP) {
        acq->queued = false;
        if (!dlock__acq_may_come_late(acq)) {
            drop(acq);
            return;
        }
        acq->release_at_us = now + (lease / 4 > REPEAT_MIN_US ? lease / 4 : REPEAT_MIN_US);
        return;
    }
    bool lives_on = acq->queued || dlock__can(client, DLOCK_CAP_SESSION); /* whatever its lease says */
    if (lease_over && !lives_on && !dlock__acq_in_request(acq)) {
        drop(acq); /* its lease has ended it */
        return;
    }
    acq->pause_us = dlock__longer_pause(acq->pause_us, RETRY_MIN_US, RETRY_MAX_US);
    acq->release_at_us = now + dlock__jitter(client, acq->pause_us / 2, acq->pause_us);
}

/* Acquisitions that died with their connection are gone already. */
static size_t drop_outlived(struct dlock__acquisition **batch, size_t n) {
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (dlock__acq_died_with_connection(batch[i]))
            drop(batch[i]);
        else
            batch[left++] = batch[i];
    }
    return left;
}

static void release(struct dlock__acquisition *const *batch, size_t n, int64_t deadline_us) {
    for (size_t i = 0; i < n; i++) dlock__op_prepare(batch[i], DLOCK__RELEASE, 0, deadline_us, NULL);
    dlock__op_send(batch, n);
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    struct dlock__acquisition *batch[DLOCK__BATCH];
    dlock__enter(client);
    while (!client->janitor.stop) {
        size_t n = drop_outlived(batch, gather(client, batch, dlock__now_us()));
        if (n > 0) {
            release(batch, n, DLOCK__NEVER);
            for (size_t i = 0; i < n; i++) answered(batch[i]);
        } else {
            dlock__wait(client, &client->janitor.cond, first_due(client));
        }
    }
    dlock__leave(client);
    return NULL;
}

void dlock__janitor_start(struct dlock_client *client) {
    if (client->janitor.started || client->janitor.stop || !client->janitor.orphans) return;
    client->janitor.started = dlock__thread_start(&client->janitor.thread, run, client) == 0;
}

void dlock__janitor_stop(struct dlock_client *client, int64_t deadline_us) {
    dlock__enter(client);
    client->janitor.stop = true;
    pthread_cond_signal(&client->janitor.cond);
    dlock__leave(client);
    if (client->janitor.started) pthread_join(client->janitor.thread, NULL);
    dlock__enter(client);
    client->janitor.started = false;
    bool reachable = true;
    while (client->janitor.orphans) {
        struct dlock__acquisition *batch[DLOCK__BATCH];
        size_t n = gather(client, batch, DLOCK__NEVER);
        if (n == 0) { /* nobody else has requests any more: there is no memory for them */
            drop(client->janitor.orphans);
            continue;
        }
        if (reachable && dlock__now_us() < deadline_us) {
            release(batch, n, deadline_us);
            reachable = batch[0]->op->result != DLOCK_EUNAVAILABLE;
        }
        for (size_t i = 0; i < n; i++) drop(batch[i]);
    }
    dlock__leave(client);
}
