/* The value of an item with several holders, readers or permits: a line with their mode, and one line for each of them.
 *
 *     dlock shared 0[ the whole name, where the key was cut]
 *     <token> <cas id of the grant> <cas id before its lease was set> <lease in ms> <its end, by the server's clock>
 *
 * A store does not know its own cas id beforehand. So a new holder is written with id 0, which means the item's present
 * id; the client that changes the item next writes that id down. These ids differ for any two grants, and grow. */
#include "memcached.h"

#include <inttypes.h>

/* Bounds of plausible values: dlock writes no lease of more than thirty years. */
#define LEASE_END_MS UINT64_C(1000000000000)
#define EXPIRY_END_S UINT64_C(10000000000)

/* Longest first line, and longest numbers after a token: ids have at most 17 digits. */
#define TITLE_MAX (24 + MEMCACHED_NAME_MAX + 1)
#define NUMBERS_MAX (1 + 17 + 1 + 17 + 1 + 12 + 1 + 10 + 1)

static const char *const words[] = {[DLOCK_SHARED] = "shared", [DLOCK_PERMIT] = "permit"};

/* Moves *text past `word`. False: the text does not begin with it. */
static bool skip(const char **text, const char *word) {
    const size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0) return false;
    *text += length;
    return true;
}

static bool read_title(const char **text, const char *name, struct memcached_holders *out) {
    uint64_t limit;
    if (!skip(text, "dlock ")) return false;
    out->mode = skip(text, words[DLOCK_SHARED]) ? DLOCK_SHARED : DLOCK_PERMIT;
    if (out->mode == DLOCK_PERMIT && !skip(text, words[DLOCK_PERMIT])) return false;
    if (!skip(text, " ") || !memcached_number(text, &limit) || limit > UINT32_MAX) return false;
    out->limit = (uint32_t)limit;
    return (limit > 0) == (out->mode == DLOCK_PERMIT) && (!name || (skip(text, " ") && skip(text, name))) &&
           skip(text, "\n");
}

/* True if a token is printable and not too long; any client may have written the item. */
static bool is_printable(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] <= 0x20 || text[i] == 0x7f) return false;
    return length > 0 && length <= DLOCK_TOKEN_MAX;
}

static bool read_holder(const char **text, uint64_t cas, struct memcached_holder *out) {
    uint64_t lease_ms;
    out->token = *text;
    out->length = strcspn(*text, " \n");
    *text += out->length;
    if (!is_printable(out->token, out->length) || !skip(text, " ") || !memcached_number(text, &out->granted) ||
        !skip(text, " ") || !memcached_number(text, &out->set) || !skip(text, " ") ||
        !memcached_number(text, &lease_ms) || lease_ms >= LEASE_END_MS || !skip(text, " ") ||
        !memcached_number(text, &out->expiry_s) || out->expiry_s >= EXPIRY_END_S || out->granted > cas ||
        out->set >= cas)
        return false;
    out->lease_ms = (int64_t)lease_ms;
    if (out->granted == 0) out->granted = cas;
    return skip(text, "\n");
}

bool memcached_read_holders(const struct memcached_item *item, const char *name, struct memcached_holders *out) {
    const char *text = item->value;
    if (item->length > MEMCACHED_KEPT_MAX || !read_title(&text, name, out)) return false;
    for (out->n = 0; *text; out->n++)
        if (out->n == MEMCACHED_HOLDERS_MAX || !read_holder(&text, item->cas, &out->holder[out->n])) return false;
    return out->n > 0 && (size_t)(text - item->value) == item->length;
}

size_t memcached_holders_size(const struct memcached_holders *holders) {
    size_t size = TITLE_MAX + strlen(MEMCACHED_WRITER) + NUMBERS_MAX;
    for (size_t i = 0; i < holders->n; i++) size += holders->holder[i].length + NUMBERS_MAX;
    return size;
}

void memcached_write_holders(char *out, size_t size, const char *name, const struct memcached_holders *holders) {
    size_t used = (size_t)snprintf(out, size, "dlock %s %" PRIu32 "%s%s\n", words[holders->mode], holders->limit,
                                   name ? " " : "", name ? name : "");
    for (size_t i = 0; i < holders->n && used < size; i++) {
        const struct memcached_holder *holder = &holders->holder[i];
        used += (size_t)snprintf(out + used, size - used, "%.*s %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRIu64 "\n",
                                 (int)holder->length, holder->token,
                                 holder->granted == MEMCACHED_THIS_STORE ? 0 : holder->granted, holder->set,
                                 holder->lease_ms, holder->expiry_s);
    }
}

struct memcached_holder *memcached_find_holder(struct memcached_holders *holders, const char *token) {
    const size_t length = strlen(token);
    for (size_t i = 0; i < holders->n; i++)
        if (holders->holder[i].length == length && memcmp(holders->holder[i].token, token, length) == 0)
            return &holders->holder[i];
    return NULL;
}

void memcached_drop_holder(struct memcached_holders *holders, struct memcached_holder *holder) {
    const size_t after = holders->n - (size_t)(holder - holders->holder) - 1;
    memmove(holder, holder + 1, after * sizeof *holder);
    holders->n--;
}

struct memcached_holder *memcached_add_holder(struct memcached_holders *holders, const char *token) {
    struct memcached_holder *holder = &holders->holder[holders->n++];
    *holder = (struct memcached_holder){token, strlen(token), MEMCACHED_THIS_STORE, 0, 0, 0};
    return holder;
}

/* The sighting of a holder's lease (sightings.c). Its version differs from that of every other lease of the holder: it
 * is the item's id before the lease was set; or, if there was no item before, the grant's own id. */
int64_t memcached_holder_seen_us(struct memcached *memcached, const char *key, const struct memcached_holder *holder) {
    char what[MEMCACHED_KEY_MAX + 1 + DLOCK_TOKEN_MAX + 1];
    snprintf(what, sizeof what, "%s %.*s", key, (int)holder->length, holder->token);
    return memcached_seen_us(memcached, what, holder->set ? holder->set << 1 | 1 : holder->granted << 1);
}

static bool has_ended(struct memcached *memcached, const char *key, const struct memcached_holder *holder) {
    return memcached_holder_seen_us(memcached, key, holder) >= holder->lease_ms * 1000 ||
           holder->expiry_s <= memcached->clock.said_s;
}

void memcached_drop_ended(struct memcached *memcached, const char *key, uint64_t but_set,
                          struct memcached_holders *holders) {
    for (size_t i = holders->n; i-- > 0;)
        if (holders->holder[i].set != but_set && has_ended(memcached, key, &holders->holder[i]))
            memcached_drop_holder(holders, &holders->holder[i]);
}

size_t memcached_live_holders(struct memcached_holders *holders) {
    return holders->n - (memcached_find_holder(holders, MEMCACHED_WRITER) ? 1 : 0);
}
