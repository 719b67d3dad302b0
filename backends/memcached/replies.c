/* Reads the server's replies. */
#include "memcached.h"

/* Most lines of stats; an honest server has a few hundred. */
#define MAX_STATS 2000

/* memcached's default limit is 1 MB, its largest possible one 1 GB. */
#define MAX_VALUE (UINT64_C(1) << 30)

int memcached_refused(struct memcached *memcached, const char *line, struct dlock_error *err) {
    int printable = 0, code = DLOCK_EPROTO;
    const char *advice = "";
    while (printable < 200 && line[printable] >= 0x20 && line[printable] < 0x7f) printable++;
    if (strncmp(line, "SERVER_ERROR", 12) == 0 || strncmp(line, "ERROR Too many open connections", 31) == 0) {
        code = DLOCK_EUNAVAILABLE; /* out of memory for example; it may have stored the item or not */
    } else if (strncmp(line, "CLIENT_ERROR unauthenticated", 28) == 0) {
        code = DLOCK_EAUTH;
        advice = "; give a user and a password in the URI, or password_file=";
    }
    memcached->wire.broken = true;
    return dlock_fail(err, code, "memcached at %s answered: %.*s%s", memcached->where, printable, line, advice);
}

/* The replies to a store, of the classic commands and of the meta commands. */
typedef const char *const store_words[MEMCACHED_NOT_FOUND + 1];
static store_words classic_words = {[MEMCACHED_STORED] = "STORED",
                                    [MEMCACHED_NOT_STORED] = "NOT_STORED",
                                    [MEMCACHED_EXISTS] = "EXISTS",
                                    [MEMCACHED_NOT_FOUND] = "NOT_FOUND"};
static store_words meta_words = {
    [MEMCACHED_STORED] = "HD", [MEMCACHED_NOT_STORED] = "NS", [MEMCACHED_EXISTS] = "EX", [MEMCACHED_NOT_FOUND] = "NF"};

/* Reads a line with one of these words. If `flags` is not NULL, return flags may follow the word, and *flags points to
 * them. */
static int read_word(struct memcached *memcached, int64_t deadline_us, store_words words, enum memcached_stored *stored,
                     const char **flags, struct dlock_error *err) {
    char *line;
    int rc = memcached_line(memcached, deadline_us, &line, err);
    if (rc) return rc;
    for (size_t i = 0; i <= MEMCACHED_NOT_FOUND; i++) {
        const size_t length = strlen(words[i]);
        if (strncmp(line, words[i], length) != 0 || (line[length] && !(flags && line[length] == ' '))) continue;
        *stored = (enum memcached_stored)i;
        if (flags) *flags = line + length;
        memcached->wire.unanswered--;
        return 0;
    }
    return memcached_refused(memcached, line, err);
}

int memcached_read_swapped(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                           struct dlock_error *err) {
    int rc = read_word(memcached, deadline_us, classic_words, stored, NULL, err);
    return rc == 0 && *stored == MEMCACHED_NOT_STORED ? memcached_nonsense(memcached, "the reply to cas", err) : rc;
}

/* Reads the reply to a reservation: "HD" and flags, which do not matter, both if the item was made and if there was
 * one. */
static int read_reserved(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    char *line;
    int rc = memcached_line(memcached, deadline_us, &line, err);
    if (rc) return rc;
    if (strcmp(line, "EN") == 0) return memcached_dead(memcached, "no memory for another item", err);
    if (strcmp(line, "HD") != 0 && strncmp(line, "HD ", 3) != 0) return memcached_refused(memcached, line, err);
    memcached->wire.unanswered--;
    return 0;
}

int memcached_read_added(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err) {
    int rc;
    if (memcached->reserves) {
        if ((rc = read_reserved(memcached, deadline_us, err)) != 0) return rc;
        rc = memcached_read_swapped(memcached, deadline_us, stored, err);
        if (rc == 0 && *stored != MEMCACHED_STORED) *stored = MEMCACHED_NOT_STORED;
        return rc;
    }
    rc = read_word(memcached, deadline_us, classic_words, stored, NULL, err);
    if (rc == 0 && *stored != MEMCACHED_STORED && *stored != MEMCACHED_NOT_STORED)
        return memcached_nonsense(memcached, "the reply to add", err);
    return rc;
}

int memcached_read_ended(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored,
                         struct dlock_error *err) {
    int rc = read_word(memcached, deadline_us, memcached->meta ? meta_words : classic_words, stored, NULL, err);
    if (rc == 0 && *stored == MEMCACHED_NOT_STORED) return memcached_nonsense(memcached, "the end of an item", err);
    return rc;
}

/* Reads " c<cas>", to which 1.6.20 adds " s<size>". */
static bool read_cas(const char *flags, uint64_t *cas) {
    uint64_t size;
    if (strncmp(flags, " c", 2) != 0) return false;
    flags += 2;
    if (!memcached_number(&flags, cas)) return false;
    if (strncmp(flags, " s", 2) == 0) {
        flags += 2;
        if (!memcached_number(&flags, &size)) return false;
    }
    return !*flags;
}

static int read_meta_set(struct memcached *memcached, int64_t deadline_us, enum memcached_stored *stored, uint64_t *cas,
                         struct dlock_error *err) {
    const char *flags = "";
    int rc = read_word(memcached, deadline_us, meta_words, stored, &flags, err);
    if (rc) return rc;
    if (*stored == MEMCACHED_NOT_STORED ||
        (*stored == MEMCACHED_STORED && (!read_cas(flags, cas) || !memcached_fence(memcached, *cas))))
        return memcached_nonsense(memcached, "a meta set", err);
    return 0;
}

/* Reads the reply to a command that the server may not have, or may have with another meaning. *known: the reply is one
 * of the two words and nothing else. */
static int read_known(struct memcached *memcached, int64_t deadline_us, const char *word, const char *other,
                      bool *known, struct dlock_error *err) {
    char *line;
    int rc = memcached_line(memcached, deadline_us, &line, err);
    if (rc) return rc;
    *known = strcmp(line, word) == 0 || strcmp(line, other) == 0;
    const bool otherwise =
        strlen(line) > 2 && line[2] == ' ' && (strncmp(line, word, 2) == 0 || strncmp(line, other, 2) == 0);
    if (!*known && !otherwise && strcmp(line, "ERROR") != 0 && strncmp(line, "CLIENT_ERROR", 12) != 0)
        return memcached_refused(memcached, line, err);
    memcached->wire.unanswered--;
    return 0;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* Parses "VALUE <key> <flags> <bytes> <cas>". */
static int read_header(struct memcached *memcached, const char *line, const char *key, struct memcached_item *item,
                       struct dlock_error *err) {
    const size_t key_length = strlen(key);
    const char *p = line + 6;
    uint64_t flags;
    if (strncmp(p, key, key_length) != 0 || p[key_length] != ' ')
        return memcached_nonsense(memcached, "the value of another key", err);
    p += key_length + 1;
    if (!memcached_number(&p, &flags) || flags > UINT32_MAX || *p++ != ' ' || !memcached_number(&p, &item->length) ||
        item->length > MAX_VALUE || *p++ != ' ' || !memcached_number(&p, &item->cas) || *p)
        return memcached_nonsense(memcached, "a value without length or cas id", err);
    item->flags = (uint32_t)flags;
    return memcached_check_id(memcached, item->cas, err);
}

int memcached_read_item(struct memcached *memcached, const char *key, int64_t deadline_us, struct memcached_item *item,
                        struct dlock_error *err) {
    char *line;
    int rc = memcached_line(memcached, deadline_us, &line, err);
    if (rc) return rc;
    memset(item, 0, sizeof *item);
    item->value = memcached->value;
    if (strncmp(line, "VALUE ", 6) == 0) {
        if ((rc = read_header(memcached, line, key, item, err)) != 0) return rc;
        rc = memcached_block(memcached, item->length, memcached->value, MEMCACHED_KEPT_MAX, deadline_us, err);
        if (rc == 0) rc = memcached_line(memcached, deadline_us, &line, err);
        if (rc) return rc;
        memcached->value[item->length < MEMCACHED_KEPT_MAX ? item->length : MEMCACHED_KEPT_MAX] = '\0';
        memcached_read_flags(item);
        item->found = true;
    }
    if (strcmp(line, "END") != 0) return memcached_refused(memcached, line, err);
    memcached->wire.unanswered--;
    return 0;
}

/* Reads "HD c<cas> t<seconds>", with -1 for an item without an end; or "EN". */
static int read_ttl(struct memcached *memcached, uint64_t cas, int64_t deadline_us, int64_t *left_s,
                    struct dlock_error *err) {
    char *line;
    uint64_t its_cas, ttl_s;
    int rc = memcached_line(memcached, deadline_us, &line, err);
    if (rc) return rc;
    const char *p = line + 4;
    const bool found = strncmp(line, "HD c", 4) == 0;
    if (!found && strcmp(line, "EN") != 0) return memcached_refused(memcached, line, err);
    memcached->wire.unanswered--;
    *left_s = -1;
    if (!found) return 0;
    if (!memcached_number(&p, &its_cas) || strncmp(p, " t", 2) != 0)
        return memcached_nonsense(memcached, "an item without id or end", err);
    p += 2;
    if (its_cas == cas && memcached_number(&p, &ttl_s) && !*p && ttl_s <= INT32_MAX) *left_s = (int64_t)ttl_s;
    return 0;
}

int memcached_read_abilities(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    static const struct memcached_meta meta = {memcached_ask_meta_set, read_meta_set, memcached_ask_ttl, read_ttl};
    bool knows_meta = false;
    int rc = read_known(memcached, deadline_us, "NF", "EX", &knows_meta, err);
    memcached->meta = knows_meta ? &meta : NULL;
    return rc ? rc : read_known(memcached, deadline_us, "EN", "HD", &memcached->reserves, err);
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

int memcached_read_stats(struct memcached *memcached, int64_t deadline_us,
                         void (*each)(const char *name, const char *value, void *arg), void *arg,
                         struct dlock_error *err) {
    for (int i = 0; i < MAX_STATS; i++) {
        char *line, *space;
        int rc = memcached_line(memcached, deadline_us, &line, err);
        if (rc) return rc;
        if (strcmp(line, "END") == 0) {
            memcached->wire.unanswered--;
            return 0;
        }
        if (strncmp(line, "STAT ", 5) != 0) return memcached_refused(memcached, line, err);
        line += 5;
        space = strchr(line, ' ');
        if (!space) continue;
        *space = '\0';
        each(line, space + 1, arg);
    }
    return memcached_nonsense(memcached, "stats without an end", err);
}
