/* Grants that nobody renews, as those see it who wait for them.
 *
 * memcached frees the item of a dead holder some seconds after the lease, as its clock has only whole ones. But every
 * store gives the item a new cas id, and the item says how long its lease is. So whoever has seen one and the same id
 * for as long as that, by his own clock, knows that the lease has ended: its holder counts from before the store, and
 * the store was before the first look. A cas with that id then takes the item over, and fails if a renewal came first.
 * No clock of the server's has a part in it. */
#include "memcached.h"

#define PLACES 4

/* Never 0. */
static uint64_t hash(const char *text) {
    return dlock_hash(text, strlen(text), DLOCK_HASH_SEED) | 1;
}

/* Where it is remembered, or what of the places for it was not seen for longest. */
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
