/* Requests, for libmemcached.
 *
 * A fence is the cas id of the store that made the grant, and must be greater than those of all earlier grants of the
 * name. Servers from 1.6.27 on draw the id of an `add` before they lock the item (../memcached/requests.c). The text
 * protocol can make an item with an id that the client chooses. Here an `add` makes a reservation instead, whose value
 * contains the token, and which is no grant. A client that then finds its own reservation takes the item with a `cas`
 * and the id that it has read. The id of that store is drawn while no other client can be granted the name.
 *
 * A reservation whose `cas` did not arrive is completed by the next try with the same token, and ended by its release;
 * otherwise it ends with the lease. */
#include "memcached.h"

/* The prefix of a reservation's value; no token of dlock begins with it. */
#define RESERVED "? "

bool memcached_is_reserved(const struct memcached_item *item) {
    return item->found && strncmp(item->value, RESERVED, strlen(RESERVED)) == 0;
}

bool memcached_is_reserved_for(const struct memcached_item *item, const char *token) {
    return memcached_is_reserved(item) && strcmp(item->value + strlen(RESERVED), token) == 0;
}

static void ask(struct memcached *memcached, enum wire_kind kind, const char *key) {
    struct wire_request request = {.kind = kind};
    if (key) snprintf(request.key, sizeof request.key, "%s", key);
    wire_ask(memcached, &request, NULL);
}

void memcached_ask_item(struct memcached *memcached, const char *key) {
    ask(memcached, WIRE_ITEM, key);
}

void memcached_ask_add(struct memcached *memcached, const char *key, const char *token, uint32_t flags,
                       uint64_t expiry_s, const char *value) {
    struct wire_request request = {.kind = WIRE_ADD, .expiry_s = expiry_s};
    char reservation[sizeof RESERVED + DLOCK_TOKEN_MAX];
    (void)flags, (void)value; /* they are for the `cas` that follows */
    snprintf(request.key, sizeof request.key, "%s", key);
    snprintf(reservation, sizeof reservation, RESERVED "%s", token);
    wire_ask(memcached, &request, reservation);
}

void memcached_ask_swap(struct memcached *memcached, const char *key, uint32_t flags, uint64_t expiry_s,
                        const char *value, uint64_t cas) {
    struct wire_request request = {.kind = WIRE_SWAP, .flags = flags, .expiry_s = expiry_s, .cas = cas};
    snprintf(request.key, sizeof request.key, "%s", key);
    wire_ask(memcached, &request, value);
}

/* This is a store that expires at once, since libmemcached's `delete` does not compare ids. */
void memcached_ask_end(struct memcached *memcached, const char *key, uint64_t cas) {
    memcached_ask_swap(memcached, key, 0, MEMCACHED_PAST_S, "", cas);
}

void memcached_ask_stats(struct memcached *memcached) {
    ask(memcached, WIRE_STATS, NULL);
}

void memcached_ask_settings(struct memcached *memcached) {
    ask(memcached, WIRE_SETTINGS, NULL);
}

/* The binary protocol has no meta commands. */
void memcached_ask_abilities(struct memcached *memcached) {
    (void)memcached;
}
