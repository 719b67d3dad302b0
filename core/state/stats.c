/* The statistics of waits, holds and losses. The other numbers are counted where the counted event happens. */
#include "base/probe.h"
#include "state/client.h"

static unsigned bucket_of(int64_t us) {
    unsigned bucket = 0;
    while (bucket < DLOCK_WAIT_BUCKETS - 1 && us > DLOCK_WAIT_BOUND_US(bucket)) bucket++;
    return bucket;
}

void dlock__stats_held(const struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    const int64_t us = dlock__now(client) - acq->hold->since_us;
    client->stats.holds++;
    client->stats.hold_us += (uint64_t)us;
    client->stats.hold_counts[bucket_of(us)]++;
}

void dlock__stats_lost(const struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock_error err;
    client->stats.losses++;
    DLOCK__PROBE_GRANT(lost, acq);
    if (!client->event) return;
    dlock__loss_fail(acq, "", &err);
    dlock__tell_grant(DLOCK_EVENT_LOST, acq, -1, err.message);
}

void dlock__stats_waits(struct dlock__waiter *waiter) {
    if (waiter->waits || waiter->try_only) return;
    waiter->waits = true;
    waiter->lock->client->stats.waiting++;
    dlock__tell_wait(DLOCK_EVENT_WAITING, waiter);
}

void dlock__stats_waited(const struct dlock__waiter *waiter) {
    if (!waiter->waits) return;
    struct dlock_client *client = waiter->lock->client;
    int64_t us = dlock__now(client) - waiter->began_us;
    client->stats.waiting--;
    client->stats.waits++;
    client->stats.wait_us += (uint64_t)us;
    client->stats.wait_counts[bucket_of(us)]++;
}
