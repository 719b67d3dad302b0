/* Requests of the text protocol.
 *
 * A fence is the cas id of the store that made the grant, and must be greater than those of all earlier grants of the
 * name. Ids come from one counter. Up to 1.6.26 the server draws an id while it has the item locked, and an `add` is
 * enough. Newer servers draw it before they lock the item: an `add` whose thread is delayed in between may store an id
 * that is older than a whole grant of another client. The same change let clients choose ids, which solves the problem:
 * `mg` with N makes an item where there is none (a reservation, without a value), and E gives it an id that the client
 * knows beforehand. A `cas` that compares with that id follows in the same packet. It stores only if the reservation
 * was made, and its own id is drawn after that: while no other client can be granted the name, and before the release.
 * All later stores of the item compare with an id that their client has read, so their ids are drawn later as well.
 *
 * A meta set could do both in one, but if it finds no memory it frees the existing item (turns.c).
 *
 * The chosen id is derived from the token. So a reservation whose `cas` did not arrive is completed by the next try
 * with the same token, and ended by its release; otherwise it ends with the lease. Two tokens with the same id still
 * exclude each other, since the first `cas` changes the id. */
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

void memcached_ask_item(struct memcached *memcached, const char *key) {
    memcached_request(memcached, 1, "gets %s\r\n", key);
}

void memcached_ask_swap(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                        const char *value, uint64_t cas) {
    memcached_request(memcached, 1, "cas %s %" PRIu32 " %" PRIu64 " %zu %" PRIu64 "\r\n%s\r\n", key, flags, expiry_s,
                      strlen(value), cas, value);
}

void memcached_ask_add(struct memcached *memcached, const char *key, const char *token, uint32_t flags,
                       uint64_t expiry_s, const char *value) {
    if (memcached->reserves) {
        memcached_request(memcached, 1, "mg %s N%" PRIu64 " E%" PRIu64 "\r\n", key, expiry_s, reservation(token));
        memcached_ask_swap(memcached, key, flags, expiry_s, value, reservation(token));
    } else {
        memcached_request(memcached, 1, "add %s %" PRIu32 " %" PRIu64 " %zu\r\n%s\r\n", key, flags, expiry_s,
                          strlen(value), value);
    }
}

/* Without meta commands this is a store, for which a full server may lack the memory. */
void memcached_ask_end(struct memcached *memcached, const char *key, uint64_t cas) {
    if (memcached->meta)
        memcached_request(memcached, 1, "md %s C%" PRIu64 "\r\n", key, cas);
    else
        memcached_ask_swap(memcached, key, 0, MEMCACHED_PAST_S, "", cas);
}

void memcached_ask_stats(struct memcached *memcached) {
    memcached_request(memcached, 1, "stats\r\n");
}

void memcached_ask_settings(struct memcached *memcached) {
    memcached_request(memcached, 1, "stats settings\r\n");
}

/* ---- meta commands ----------------------------------------------------------------------------------------------- */

/* Sends a compare-and-delete with an id that no item has, to which servers before 1.6.18 reply with an error or an
 * added space; and an `mg` with an id for a new item, which creates none, and which servers from 1.6.27 on accept. */
void memcached_ask_abilities(struct memcached *memcached) {
    memcached_request(memcached, 2,
                      "md dlock-asks-for-meta C9223372036854775807\r\n"
                      "mg dlock-asks-for-meta E9223372036854775807\r\n");
}

void memcached_ask_meta_set(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                            const char *value, uint64_t cas) {
    memcached_request(memcached, 1, "ms %s %zu T%" PRIu64 " F%" PRIu32 " C%" PRIu64 " c\r\n%s\r\n", key, strlen(value),
                      expiry_s, flags, cas, value);
}

void memcached_ask_ttl(struct memcached *memcached, const char *key) {
    memcached_request(memcached, 1, "mg %s c t\r\n", key);
}
