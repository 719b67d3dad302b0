/* Requests, for libmemcached.
 *
 * A fence is the cas id of the store that made the grant, and must be above those of all earlier grants of the name. Servers
 * from 1.6.27 on draw the id of an `add` before they lock the item (../memcached/requests.c). The text protocol has a way
 * to make an item under an id of the client's choice; here an `add` makes a reservation, which tells its token, and is no
 * grant. Whoever then finds its own reservation takes the item by a `cas` with the id that it has read. That store draws its
 * id while nobody else can be granted the name.
 *
 * A reservation whose `cas` did not arrive is completed by the next try with the same token, and ended by its release;
 * otherwise it ends with the lease. */
#include "memcached.h"

/* Before the token: no token of ours begins so. */
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
    (void)flags, (void)value; /* of the `cas` that will follow */
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

/* libmemcached's `delete` does not compare. */
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
