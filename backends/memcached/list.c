/* Listing locks. memcached shows its keys only by `lru_crawler metadump`. A walk of its hash table passes no key by; but
 * before 1.6.19 the crawler kept buckets locked while a client did not read. There its lists of items are walked, in which
 * renewed items move: so they are walked until that finds nothing more, with pauses in which items come to rest.
 *
 * The keys are read as fast as the server sends them, and the items only then: the crawler serves one client at a time,
 * and waits while that does not read. */
#include "memcached.h"

#include <stdlib.h>
#include <time.h>

/* Most bytes of keys that are kept. */
#define KEYS_MAX ((size_t)256 << 20)
/* Most walks, and the pause between two of them, or after the server was busy with another client's. */
enum { WALKS = 8, PAUSE_MS = 250, BUSY_MS = 20 };

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* True if this is the name's key, cut or not, as `cut` says. */
static bool has_key(const char *name, const char *key, bool cut) {
    char its[MEMCACHED_KEY_MAX + 1];
    return memcached_key(its, name) == cut && strcmp(its, key) == 0;
}

/* Stores the name whose key this is if it is whole. False: no name's. */
static bool name_of(const char *key, char name[MEMCACHED_NAME_MAX + 1]) {
    return dlock_decode_name(name, MEMCACHED_NAME_MAX + 1, key) && has_key(name, key, false);
}

/* True if the key may be cut, so that only the item has the name. */
static bool may_be_cut(const char *key) {
    const size_t length = strlen(key);
    return length > 17 && key[length - 17] == '~' && strspn(key + length - 16, "0123456789ABCDEF") == 16;
}

static bool begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Keeps the key of a line, "key=<percent-encoded> <more>", unless it is no lock's. */
static int keep_key(struct memcached *memcached, char *line, const char *prefix, struct dlock_text *keys,
                    struct dlock_error *err) {
    char key[MEMCACHED_KEY_MAX + 1], name[MEMCACHED_NAME_MAX + 1];
    const size_t length = strcspn(line, " ");
    if (strncmp(line, "key=", 4) != 0 || !line[length]) return memcached_nonsense(memcached, "a line of metadump", err);
    line[length] = '\0';
    if (!dlock_decode_name(key, sizeof key, line + 4) || !*key) return 0;
    if (!may_be_cut(key) && !(name_of(key, name) && begins(name, prefix))) return 0;
    if (keys->n < KEYS_MAX) dlock_text_add_bytes(keys, key, strlen(key) + 1);
    if (keys->n < KEYS_MAX && !keys->failed) return 0;
    memcached->wire.broken = true;
    return dlock_fail(err, DLOCK_ENOMEM, "more locks than there is memory for their names");
}

/* ENOTSUP, or 1 for a reply after which the same may be asked again. */
static int refused(struct memcached *memcached, const char *line, struct dlock_error *err) {
    const bool busy = strncmp(line, "BUSY", 4) == 0 || strncmp(line, "ERROR locked", 12) == 0;
    const bool off = strcmp(line, "ERROR") == 0 || strncmp(line, "ERROR metadump", 14) == 0 ||
                     strncmp(line, "CLIENT_ERROR lru", 16) == 0;
    if (!busy && !off) return memcached_refused(memcached, line, err);
    memcached->wire.unanswered--;
    if (busy) return 1;
    return dlock_fail(err, DLOCK_ENOTSUP, "memcached at %s lists no keys (it needs its lru_crawler, and no -X): %s",
                      memcached->where, line);
}

/* Walks once. Results as refused(). */
static int walk(struct memcached *memcached, const char *prefix, int64_t deadline_us, struct dlock_text *keys,
                struct dlock_error *err) {
    char *line;
    int rc;
    memcached_request(memcached, 1, "lru_crawler metadump %s\r\n", memcached->walks_hash ? "hash" : "all");
    for (bool begun = false;;) {
        if ((rc = memcached_line(memcached, deadline_us, &line, err)) != 0) return rc;
        if (strcmp(line, "END") == 0) break;
        if (!begun && strcmp(line, "OK") == 0) continue; /* from 1.6.42 on */
        if (!begun && strncmp(line, "key=", 4) != 0) return refused(memcached, line, err);
        if ((rc = keep_key(memcached, line, prefix, keys, err)) != 0) return rc;
        begun = true;
    }
    memcached->wire.unanswered--;
    return 0;
}

struct list {
    char **keys; /* in order */
    size_t n;
};

static int in_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the keys, each of which is kept once. False: no memory. */
static bool sort(struct list *list, struct dlock_text *keys) {
    size_t n = 0;
    for (const char *at = keys->at; at && at < keys->at + keys->n; at += strlen(at) + 1) n++;
    free(list->keys);
    if (!(list->keys = malloc((n + 1) * sizeof *list->keys))) return false;
    n = 0;
    for (char *at = keys->at; at && at < keys->at + keys->n; at += strlen(at) + 1) list->keys[n++] = at;
    qsort(list->keys, n, sizeof *list->keys, in_order);
    list->n = 0;
    for (size_t i = 0; i < n; i++)
        if (list->n == 0 || strcmp(list->keys[list->n - 1], list->keys[i]) != 0) list->keys[list->n++] = list->keys[i];
    return true;
}

static void rest(int ms) {
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

/* Walks until nothing more is found. */
static int walk_all(struct memcached *memcached, const char *prefix, int64_t deadline_us, struct dlock_text *keys,
                    struct list *list, struct dlock_error *err) {
    size_t before = SIZE_MAX;
    for (int walks = 0; walks < WALKS && list->n != before;) {
        const int rc = walk(memcached, prefix, deadline_us, keys, err);
        if (rc < 0) return rc;
        if (rc == 1 && dlock_left_ms(deadline_us) < 2 * PAUSE_MS)
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "memcached at %s is listing its keys for another client",
                              memcached->where);
        if (rc == 1) {
            rest(BUSY_MS);
            continue;
        }
        before = walks++ ? list->n : SIZE_MAX;
        if (!sort(list, keys)) return dlock_fail(err, DLOCK_ENOMEM, "no memory for a list of locks");
        if (memcached->walks_hash || dlock_left_ms(deadline_us) < 2 * PAUSE_MS) return 0;
        if (list->n != before) rest(PAUSE_MS);
    }
    return 0;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void write_key(struct memcached *memcached, size_t i, void *arg) {
    memcached_ask_item(memcached, ((struct list *)arg)->keys[i]);
}

/* Reads the name in the value of an item whose key is cut: behind the token, or at the end of a list's first line. False:
 * it is none. */
static bool read_name(const struct memcached_item *item, const char *key, char name[MEMCACHED_NAME_MAX + 1]) {
    const char *at = item->value;
    for (int words = strncmp(at, "dlock ", 6) == 0 ? 3 : 1; words > 0 && at; words--)
        if ((at = strchr(at, ' '))) at++;
    const size_t length = at ? strcspn(at, "\n") : 0;
    if (length == 0 || length > MEMCACHED_NAME_MAX) return false;
    memcpy(name, at, length);
    name[length] = '\0';
    return has_key(name, key, true);
}

static int show(struct memcached *memcached, struct list *list, const char *prefix, dlock_each each, void *arg,
                int64_t deadline_us, struct dlock_error *err) {
    struct memcached_requests requests = {.count = list->n, .write = write_key, .arg = list};
    bool ended = false;
    int rc = 0;
    memcached_write(memcached, &requests);
    for (size_t i = 0; i < list->n && rc == 0; i++) {
        char name[MEMCACHED_NAME_MAX + 1];
        struct memcached_item item;
        rc = memcached_read_item(memcached, list->keys[i], deadline_us, &item, err);
        if (rc != 0 || ended || !item.found) continue;
        const bool cut = may_be_cut(list->keys[i]) && read_name(&item, list->keys[i], name);
        if ((cut || name_of(list->keys[i], name)) && begins(name, prefix))
            ended = memcached_show(memcached, &item, name, cut, true, each, arg);
    }
    memcached_write(memcached, NULL);
    return rc;
}

int memcached_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct dlock_text keys = {0};
    struct list list = {0};
    (void)cursor; /* it is one page */
    int rc = walk_all(conn, prefix, deadline_us, &keys, &list, err);
    if (rc == 0) rc = show(conn, &list, prefix, each, arg, deadline_us, err);
    free(list.keys);
    dlock_text_free(&keys);
    return rc;
}
