/* Lock names, paths, and places in the queue. */
#include "zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- lock names -------------------------------------------------------------------------------------------------- */

/* Encodes a lock name. ZooKeeper refuses '/', control characters and much of Unicode in a node's name, and the nodes
 * "." and ".."; its own /zookeeper is no place for locks. Other ASCII stays as it is, so that the path is the one that
 * Curator would be given. */
static void encode(const struct zookeeper *z, const char *name, char node[ZOOKEEPER_NAME_SIZE]) {
    static const char hex[] = "0123456789ABCDEF";
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (!z->base[0] && strcmp(name, "zookeeper") == 0)) {
        snprintf(node, ZOOKEEPER_NAME_SIZE, "%%%c%c%s", hex[(unsigned char)name[0] >> 4], hex[name[0] & 15], name + 1);
        return;
    }
    dlock_encode_name(node, ZOOKEEPER_NAME_SIZE, name, "/", true);
}

void zookeeper_path(const struct zookeeper *z, const char *name, char path[ZOOKEEPER_PATH_SIZE]) {
    char node[ZOOKEEPER_NAME_SIZE];
    encode(z, name, node);
    snprintf(path, ZOOKEEPER_PATH_SIZE, "%s/%s", z->base, node);
}

bool zookeeper_join(const char *dir, const char *node, char path[ZOOKEEPER_PATH_SIZE]) {
    int n = snprintf(path, ZOOKEEPER_PATH_SIZE, "%s/%s", dir, node);
    return n > 0 && n < ZOOKEEPER_PATH_SIZE;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool zookeeper_name(const struct zookeeper *z, const char *node, char name[256], bool *cut) {
    char again[ZOOKEEPER_NAME_SIZE];
    size_t length = strlen(node), n = 0;
    *cut = length >= 17 && length >= ZOOKEEPER_NAME_SIZE - 4 && node[length - 17] == '~';
    for (const char *at = node; *at; at++) {
        int high, low;
        if (n >= 255) return false;
        char byte = *at;
        if (byte == '%') {
            if ((high = hex_digit(at[1])) < 0 || (low = hex_digit(at[2])) < 0) return false;
            byte = (char)(high << 4 | low);
            at += 2;
        }
        if ((unsigned char)byte < 0x20 || byte == 0x7f) return false; /* not a valid name of a lock */
        name[n++] = byte;
    }
    name[n] = '\0';
    if (n == 0) return false;
    encode(z, name, again);
    return strcmp(again, node) == 0;
}

/* ---- the nodes of claims ----------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t from, const char *text) {
    from = dlock_hash(text, strlen(text), from);
    from ^= from >> 33; /* MurmurHash3's finalizer: spreads differences in the last characters */
    from *= UINT64_C(0xff51afd7ed558ccd);
    from ^= from >> 33;
    from *= UINT64_C(0xc4ceb9fe1a85ec53);
    return from ^ from >> 33;
}

void zookeeper_label(const struct dlock_claim *claim, struct zookeeper_label *label) {
    uint64_t high = hash(DLOCK_HASH_SEED, claim->token), low = hash(high, claim->token);
    snprintf(label->uuid, sizeof label->uuid, "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
             high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & UINT64_C(0xffffffffffff));
    label->limit = claim->mode == DLOCK_PERMIT ? claim->limit : 0;
}

/* The text between a node's uuid and its sequence: dlock's and Curator's, indexed by kind; then kazoo's. */
static const struct {
    const char *text;
    enum zookeeper_kind kind;
} marks[] = {[ZOOKEEPER_MUTEX] = {"lock-", ZOOKEEPER_MUTEX},
             [ZOOKEEPER_WRITER] = {"__WRIT__", ZOOKEEPER_WRITER},
             [ZOOKEEPER_READER] = {"__READ__", ZOOKEEPER_READER},
             [ZOOKEEPER_LEASE] = {"lease-", ZOOKEEPER_LEASE},
             {"__lock__", ZOOKEEPER_MUTEX},
             {"__rlock__", ZOOKEEPER_READER}};

void zookeeper_node(const struct zookeeper_label *label, enum zookeeper_kind kind, const int32_t *sequence,
                    char node[ZOOKEEPER_NODE_SIZE]) {
    int n = snprintf(node, ZOOKEEPER_NODE_SIZE, "_c_%s-", label->uuid);
    if (label->limit) n += snprintf(node + n, ZOOKEEPER_NODE_SIZE - (size_t)n, "of-%" PRIu32 "-", label->limit);
    if (kind & ZOOKEEPER_TRY) n += snprintf(node + n, ZOOKEEPER_NODE_SIZE - (size_t)n, "try-");
    n += snprintf(node + n, ZOOKEEPER_NODE_SIZE - (size_t)n, "%s", marks[kind & ~ZOOKEEPER_TRY].text);
    if (sequence) snprintf(node + n, ZOOKEEPER_NODE_SIZE - (size_t)n, "%010" PRId32, *sequence);
}

/* Parses Java's %010d of a counter that wraps at 2^31: ten characters, or eleven with a sign. Downgraded nodes of newer
 * Curators have two sequences, the writer's first. */
static bool read_sequence(const char *text, bool downgraded, int32_t *sequence) {
    size_t length = strlen(text), sign = text[0] == '-', first = length == 20 && downgraded ? 10 : length;
    long long value = 0;
    if (first < 10 || first > 10 + sign || strspn(text + sign, "0123456789") != length - sign) return false;
    for (size_t i = sign; i < first; i++) value = value * 10 + (text[i] - '0');
    if (sign) value = -value;
    if (value < INT32_MIN || value > INT32_MAX) return false;
    *sequence = (int32_t)value;
    return true;
}

bool zookeeper_place(const char *node, enum zookeeper_kind *kind, int32_t *sequence) {
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *mark = NULL;
        for (const char *at = strstr(node, marks[i].text); at; at = strstr(at + 1, marks[i].text)) mark = at;
        if (!mark || !read_sequence(mark + strlen(marks[i].text), i == ZOOKEEPER_READER, sequence)) continue;
        *kind = (enum zookeeper_kind)(marks[i].kind | (strstr(node, "-try-") ? ZOOKEEPER_TRY : 0));
        return true;
    }
    return false;
}

bool zookeeper_reads(enum zookeeper_kind kind) {
    return (kind & ~ZOOKEEPER_TRY) == ZOOKEEPER_READER;
}

uint32_t zookeeper_limit(const char *node) {
    const char *of = strstr(node, "-of-");
    return of ? (uint32_t)strtoul(of + 4, NULL, 10) : 0;
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* Returns by how much a comes after b, across the counter's wrap. */
static int32_t behind(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static bool is_own(const char *node, const struct zookeeper_label *label) {
    return label && strncmp(node, "_c_", 3) == 0 && strncmp(node + 3, label->uuid, strlen(label->uuid)) == 0;
}

static bool is_misfit(const char *node, const struct zookeeper_label *label) {
    uint32_t limit = label && label->limit ? zookeeper_limit(node) : 0;
    return limit && limit != label->limit;
}

/* Finds the claim's node among those with its uuid: the one whose sequence is known, else the last. */
static void find_own(const struct String_vector *nodes, const struct zookeeper_label *label, const int32_t *known,
                     struct zookeeper_queue_view *view) {
    for (int32_t i = 0; i < nodes->count; i++) {
        const char *node = nodes->data[i];
        enum zookeeper_kind kind;
        int32_t sequence;
        if (!node || !is_own(node, label) || !zookeeper_place(node, &kind, &sequence)) continue;
        if (known ? sequence == *known : !view->own || behind(sequence, view->own_sequence) > 0) {
            view->own = true;
            view->own_kind = kind;
            view->own_sequence = sequence;
        }
    }
}

bool zookeeper_view_queue(const struct String_vector *nodes, const struct zookeeper_label *label, const int32_t *known,
                          struct zookeeper_queue_view *view) {
    const char *before = NULL, *twin = NULL;
    int32_t before_sequence = 0, first = 0;
    bool try_first = false;
    memset(view, 0, sizeof *view);
    find_own(nodes, label, known, view);
    for (int32_t i = 0; i < nodes->count; i++) {
        const char *node = nodes->data[i];
        enum zookeeper_kind kind;
        int32_t sequence;
        if (!node) continue;
        if (strcmp(node, "leases") == 0 || strcmp(node, "locks") == 0) view->permits = true;
        if (!zookeeper_place(node, &kind, &sequence)) continue;
        if (strlen(node) >= ZOOKEEPER_NODE_SIZE) return false;
        if (is_misfit(node, label)) {
            view->misfits++;
            continue;
        }
        if (view->members++ == 0 || behind(sequence, first) < 0) {
            first = sequence;
            try_first = kind & ZOOKEEPER_TRY;
        }
        if (is_own(node, label) && !(view->own && sequence == view->own_sequence)) twin = node;
        if (view->own && sequence == view->own_sequence && !is_own(node, label)) view->equal = true;
        if (!view->own || behind(sequence, view->own_sequence) >= 0) continue;
        if (zookeeper_reads(view->own_kind) && zookeeper_reads(kind)) continue;
        view->ahead++;
        if (kind & ZOOKEEPER_TRY) view->fleeting++;
        if (!before || behind(sequence, before_sequence) > 0) {
            before = node;
            before_sequence = sequence;
        }
    }
    if (try_first && view->fleeting > 0) view->fleeting--; /* the first node of all holds the lock */
    snprintf(view->before, sizeof view->before, "%s", before ? before : "");
    snprintf(view->twin, sizeof view->twin, "%s", twin ? twin : "");
    return true;
}

/* ---- holders ----------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    enum zookeeper_kind kind;
    int32_t left = 0, right = 0;
    zookeeper_place(*(const char *const *)a, &kind, &left);
    zookeeper_place(*(const char *const *)b, &kind, &right);
    return behind(left, right) < 0 ? -1 : behind(left, right) > 0;
}

size_t zookeeper_sort(char **names, size_t n) {
    size_t members = 0;
    for (size_t i = 0; i < n; i++) {
        enum zookeeper_kind kind;
        int32_t sequence;
        char *name = names[i];
        if (!zookeeper_place(name, &kind, &sequence) || strlen(name) >= ZOOKEEPER_NODE_SIZE) continue;
        names[i] = names[members];
        names[members++] = name;
    }
    if (members > 1) qsort(names, members, sizeof *names, by_place);
    return members;
}

size_t zookeeper_holders(char *const *names, size_t members) {
    enum zookeeper_kind kind;
    int32_t sequence;
    size_t n = 0;
    while (n < members && zookeeper_place(names[n], &kind, &sequence) && zookeeper_reads(kind)) n++;
    return n > 0 || members == 0 ? n : 1;
}
