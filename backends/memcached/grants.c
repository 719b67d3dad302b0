/* The end of every operation on a claim: a grant that is kept in its state, or an item that is ended. */
#include "memcached.h"

#include <inttypes.h>

void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us) {
    claim->result = 0;
    claim->state[STATE_CAS] = cas;
    claim->state[STATE_SEEN_US] = (uint64_t)sent_us;
    claim->state[STATE_GRANTED] = granted;
    claim->state[STATE_ALONE] = alone;
    if (operation == MEMCACHED_ACQUIRE) claim->fence = memcached_fence(memcached, granted);
}

/* The classic way is a store, which may need memory that a full server has not. Expiries beyond 30 days are absolute
 * times: this one has passed. */
void memcached_end(struct memcached *memcached, const char *key, uint64_t cas) {
    if (memcached->knows_meta)
        memcached_request(memcached, 1, "md %s C%" PRIu64 "\r\n", key, cas);
    else
        memcached_request(memcached, 1, "cas %s 0 2592001 0 %" PRIu64 "\r\n\r\n", key, cas);
}
