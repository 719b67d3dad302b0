/* The statistics of waits and losses. The other numbers are counted where the counted event happens. */
#include "base/probe.h"
#include "state/client.h"

void dlock__stats_lost(const struct dlock__acquisition *acq) {
    acq->name->client->stats.losses++;
    DLOCK__PROBE_GRANT(lost, acq);
}

void dlock__stats_waits(struct dlock__waiter *waiter) {
    if (waiter->waits || waiter->try_only) return;
    waiter->waits = true;
    waiter->lock->client->stats.waiting++;
}

void dlock__stats_waited(const struct dlock__waiter *waiter) {
    if (!waiter->waits) return;
    struct dlock_client *client = waiter->lock->client;
    int64_t us = dlock__now(client) - waiter->began_us;
    unsigned bucket = 0;
    while (bucket < DLOCK_WAIT_BUCKETS - 1 && us > DLOCK_WAIT_BOUND_US(bucket)) bucket++;
    client->stats.waiting--;
    client->stats.waits++;
    client->stats.wait_us += (uint64_t)us;
    client->stats.wait_counts[bucket]++;
}
