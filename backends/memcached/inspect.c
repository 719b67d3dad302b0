/* The operations for operators, inspect and break. */
#include "memcached.h"

/* How often a break is tried while other clients change the item. */
#define MAX_TRIES 16

static int look(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                struct dlock_error *err) {
    memcached_ask_item(memcached, key);
    return memcached_read_item(memcached, key, deadline_us, item, err);
}

/* Copies the token: the value, up to the name that follows the token where the key was cut. Any client may have written
 * the value, so unprintable bytes become '?'. */
static void copy_token(char *out, size_t size, const struct memcached_item *item) {
    const size_t kept = item->length < MEMCACHED_KEPT_MAX ? (size_t)item->length : MEMCACHED_KEPT_MAX;
    size_t n = 0;
    while (n < kept && n + 1 < size && item->value[n] != ' ') {
        unsigned char byte = (unsigned char)item->value[n];
        out[n++] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    out[n] = '\0';
}

/* Calls `each` for the holders, except those whose lease has ended: these stay in the list until its next change. */
static bool show_holders(struct memcached *memcached, struct memcached_holders *holders, struct dlock_info *info,
                         dlock_each each, void *arg) {
    const struct memcached_holder *word = memcached_find_holder(holders, MEMCACHED_WRITER);
    char token[DLOCK_TOKEN_MAX + 1];
    info->token = token;
    info->mode = holders->mode;
    if (holders->mode == DLOCK_PERMIT) info->limit = holders->limit;
    for (size_t i = 0; i < holders->n; i++) {
        const struct memcached_holder *holder = &holders->holder[i];
        if (holder->expiry_s <= memcached->clock.said_s || holder == word) continue;
        snprintf(token, sizeof token, "%.*s", (int)holder->length, holder->token);
        info->fence = memcached_fence(memcached, holder->granted);
        if (each(info, arg)) return true;
    }
    return false;
}

bool memcached_show(struct memcached *memcached, const struct memcached_item *item, const char *name, bool cut,
                    bool ours, dlock_each each, void *arg) {
    struct dlock_info info = {
        .size = sizeof info, .name = name, .mode = DLOCK_EXCLUSIVE, .limit = 1, .remaining_ms = -1};
    struct memcached_holders holders;
    char token[DLOCK_TOKEN_MAX + 1];
    if (!item->found || memcached_is_reserved(item)) return false;
    if (memcached_read_holders(item, cut ? name : NULL, &holders))
        return show_holders(memcached, &holders, &info, each, arg);
    if (ours && item->lease_ms == 0) return false;
    copy_token(token, sizeof token, item);
    info.token = token;
    info.fence = memcached_fence(memcached, item->granted);
    return each(&info, arg) != 0;
}

int memcached_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err) {
    char key[MEMCACHED_KEY_MAX + 1];
    const bool cut = memcached_key(key, name);
    struct memcached_item item;
    int rc = look(conn, key, dlock_deadline_us(timeout_ms), &item, err);
    if (rc == 0) memcached_show(conn, &item, name, cut, false, each, arg);
    return rc;
}

/* Ends the item only if it still has the id that was read: otherwise another grant may have begun in between. */
int memcached_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    char key[MEMCACHED_KEY_MAX + 1];
    struct memcached_item item;
    enum memcached_stored stored;
    memcached_key(key, name);
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        int rc = look(conn, key, deadline_us, &item, err);
        if (rc) return rc;
        if (!item.found) return dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
        memcached_ask_end(conn, key, item.cas);
        if ((rc = memcached_read_ended(conn, deadline_us, &stored, err)) != 0) return rc;
        if (stored == MEMCACHED_STORED) return 0;
    }
    return memcached_dead(conn, "an item changed between every two reads", err);
}
