/* Keeps a grant in the claim's state, at the end of an operation. */
#include "memcached.h"

void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us) {
    claim->result = 0;
    claim->state[STATE_CAS] = cas;
    claim->state[STATE_SEEN_US] = (uint64_t)sent_us;
    claim->state[STATE_GRANTED] = granted;
    claim->state[STATE_ALONE] = alone;
    if (operation == MEMCACHED_ACQUIRE) claim->fence = memcached_fence(memcached, granted);
}
