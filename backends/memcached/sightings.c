/* Detects grants that are not renewed, without the server's clock.
 *
 * memcached frees the item of a dead holder up to some seconds after the lease, since its clock has only whole seconds.
 * But every store gives the item a new cas id, and the item tells its lease. So a waiter that has seen the same id for
 * the length of the lease, by its own clock, knows that the lease has ended: the holder counts from before the store,
 * and the store was before the waiter's first look. A cas with that id then takes the item over, and fails if a renewal
 * came first. */
#include "memcached.h"

#define PLACES 4

/* Returns a hash that is never 0: 0 marks an empty place. */
static uint64_t hash(const char *text) {
    return dlock_hash(text, strlen(text), DLOCK_HASH_SEED) | 1;
}

/* Returns the place of `key`; if there is none, the place of its set that was seen longest ago. */
static struct memcached_sighting *find(struct memcached *memcached, uint64_t key) {
    struct memcached_sighting *first = &memcached->sightings[(key >> 32) % MEMCACHED_SIGHTINGS / PLACES * PLACES];
    struct memcached_sighting *found = first;
    for (int i = 0; i < PLACES; i++) {
        if (first[i].key == key) return &first[i];
        if (first[i].last_us < found->last_us) found = &first[i];
    }
    return found;
}

int64_t memcached_seen_us(struct memcached *memcached, const char *what, uint64_t version) {
    const uint64_t key = hash(what);
    const int64_t now_us = dlock_now_us();
    struct memcached_sighting *sighting = find(memcached, key);
    if (sighting->key != key || sighting->version != version)
        *sighting = (struct memcached_sighting){key, version, now_us, now_us};
    sighting->last_us = now_us;
    return now_us - sighting->since_us;
}

bool memcached_has_lapsed(struct memcached *memcached, const char *what, uint64_t version, int64_t lease_ms) {
    return lease_ms > 0 && memcached_seen_us(memcached, what, version) >= lease_ms * 1000;
}
