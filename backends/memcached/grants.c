/* Keeps a grant in the claim's state, at the end of an operation. */
#include "memcached.h"

/* Returns a number that stands for this client, and is no other value of STATE_ALONE. */
static uint64_t self(const struct memcached *memcached) {
    return dlock_hash(memcached->peer->client, strlen(memcached->peer->client), DLOCK_HASH_SEED) | 4;
}

void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us) {
    claim->result = 0;
    claim->state[STATE_CAS] = cas;
    claim->state[STATE_SEEN_US] = (uint64_t)sent_us;
    claim->state[STATE_GRANTED] = granted;
    claim->state[STATE_ALONE] = alone ? self(memcached) : 0;
    if (operation == MEMCACHED_ACQUIRE) claim->fence = memcached_fence(memcached, granted);
}

/* A grant that goes from host to host in a ticket comes with the time of the one that stored last, which says nothing
 * here. */
bool memcached_id_is_known(const struct memcached *memcached, const struct dlock_claim *claim) {
    return claim->state[STATE_ALONE] == self(memcached) &&
           claim->state[STATE_SEEN_US] >= (uint64_t)memcached->connected_us;
}
