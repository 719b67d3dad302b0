/* The beginning and the end of operations on a claim: an item that is made, a grant that is kept in the claim's state, an
 * item that is ended.
 *
 * A fence is the cas id of the store that made the grant, and must be above those of all earlier grants of the name. Ids
 * come from one counter, and up to 1.6.26 the server draws one while it has the item locked: `add` will do. Newer ones
 * draw it before they lock the item, so an `add` that waits for its thread meanwhile may store an id that is older than
 * another client's whole grant. With the same change clients could choose ids, and that mends it: `mg` with N makes an
 * item where there is none (a reservation, without a value), and E gives it an id that the client knows beforehand. A
 * `cas` that compares with that id follows in the same packet. It stores only where the reservation was made, and its own
 * id is drawn after that: while nobody else can be granted the name, and before the release. All later stores of the
 * item compare with an id that their client has read, so they draw theirs later, too.
 *
 * A meta set could do both in one, but one that finds no memory frees the item that it meets (turns.c).
 *
 * The id is derived from the token. So a reservation whose `cas` did not arrive is completed by the next try with the
 * same token, and ended by its release; otherwise it ends with the lease. Two tokens with the same id still exclude each
 * other, as the first `cas` changes it. */
#include "memcached.h"

#include <inttypes.h>

/* Ids of reservations have this bit, which the counter never reaches, and the 53 bits below it are the token's. */
#define RESERVED (UINT64_C(1) << 53)

static uint64_t reservation(const char *token) {
    return RESERVED | (dlock_hash(token, strlen(token), DLOCK_HASH_SEED) & (RESERVED - 1));
}

bool memcached_is_reserved(const struct memcached_item *item) {
    return item->found && item->length == 0 && item->cas >= RESERVED;
}

bool memcached_is_reserved_for(const struct memcached_item *item, const char *token) {
    return memcached_is_reserved(item) && item->cas == reservation(token);
}

void memcached_add(struct memcached *memcached, const char *key, const char *token, uint32_t flags, uint64_t expiry_s,
                   const char *value) {
    const size_t length = strlen(value);
    if (memcached->reserves)
        memcached_request(memcached, 3,
                          "mg %s N%" PRIu64 " E%" PRIu64 "\r\ncas %s %" PRIu32 " %" PRIu64 " %zu %" PRIu64
                          "\r\n%s\r\ngets %s\r\n",
                          key, expiry_s, reservation(token), key, flags, expiry_s, length, reservation(token), value,
                          key);
    else
        memcached_request(memcached, 2, "add %s %" PRIu32 " %" PRIu64 " %zu\r\n%s\r\ngets %s\r\n", key, flags, expiry_s,
                          length, value, key);
}

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
