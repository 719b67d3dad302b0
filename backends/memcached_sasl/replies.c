/* Replies: each function sends its request and returns the result. */
#include "memcached.h"

static int read_stored(struct memcached *memcached, enum wire_kind kind, int64_t deadline_us,
                       enum memcached_stored *stored, struct dlock_error *err) {
    struct memcached_wire *wire = &memcached->wire;
    struct library_failure failure;
    int rc;
    const struct wire_request *asked = wire_next(memcached, kind, &rc, err);
    if (!asked) return rc;
    const enum library_result result =
        kind == WIRE_ADD
            ? library_add(wire->library, asked->key, asked->flags, asked->expiry_s, wire->value, deadline_us, &failure)
            : library_swap(wire->library, asked->key, asked->flags, asked->expiry_s, wire->value, asked->cas,
                           deadline_us, &failure);
    switch (result) {
    case LIBRARY_DONE: *stored = MEMCACHED_STORED; return 0;
    case LIBRARY_EXISTS: *stored = MEMCACHED_EXISTS; return 0;
    case LIBRARY_NOT_FOUND: *stored = MEMCACHED_NOT_FOUND; return 0;
    case LIBRARY_FAILED: break;
    }
    return wire_failed(memcached, &failure, err);
}

/* An add makes a reservation at most, so the item always has to be read next: hence NOT_STORED. */
int memcached_read_added(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err) {
    int rc = read_stored(memcached, WIRE_ADD, deadline_us, stored, err);
    if (rc == 0) *stored = MEMCACHED_NOT_STORED;
    return rc;
}

int memcached_read_swapped(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                           struct dlock_error *err) {
    return read_stored(memcached, WIRE_SWAP, deadline_us, stored, err);
}

int memcached_read_ended(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err) {
    return memcached_read_swapped(memcached, deadline_us, stored, err);
}

int memcached_read_item(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                        struct dlock_error *err) {
    struct library_failure failure;
    struct library_item found;
    int rc;
    const struct wire_request *asked = wire_next(memcached, WIRE_ITEM, &rc, err);
    if (!asked) return rc;
    memset(item, 0, sizeof *item);
    item->value = memcached->value;
    memcached->value[0] = '\0';
    switch (library_look(memcached->wire.library, key, deadline_us, &found, memcached->value, sizeof memcached->value,
                         &failure)) {
    case LIBRARY_DONE: break;
    case LIBRARY_NOT_FOUND: return 0;
    default: return wire_failed(memcached, &failure, err);
    }
    item->cas = found.cas;
    item->flags = found.flags;
    item->length = found.length;
    if ((rc = memcached_check_id(memcached, item->cas, err)) != 0) return rc;
    memcached_read_flags(item);
    item->found = true;
    return 0;
}

int memcached_read_stats(struct memcached *memcached, int64_t deadline_us,
                         void (*each)(const char *name, const char *value, void *arg), void *arg,
                         struct dlock_error *err) {
    struct memcached_wire *wire = &memcached->wire;
    struct library_failure failure;
    int rc;
    const bool settings = wire->asked_at < wire->asked_end && wire->asked[wire->asked_at].kind == WIRE_SETTINGS;
    if (!wire_next(memcached, settings ? WIRE_SETTINGS : WIRE_STATS, &rc, err)) return rc;
    if (library_stats(wire->library, settings ? "settings" : NULL, deadline_us, each, arg, &failure) == LIBRARY_DONE)
        return 0;
    return wire_failed(memcached, &failure, err);
}

int memcached_read_abilities(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    (void)deadline_us, (void)err;
    memcached->meta = NULL;
    memcached->reserves = false; /* requests.c makes reservations on every server, in another way */
    return 0;
}
