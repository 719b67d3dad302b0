/* Lock names, paths, and who stands where in line. */
#include "zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- lock names -------------------------------------------------------------------------------------------------- */

/* ZooKeeper refuses '/', control characters and much of Unicode in a node's name, and the nodes "." and ".."; its own
 * /zookeeper is no place for locks. What is plain ASCII stays as it is, so that the path is the one that Curator would
 * be given. */
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
        if (*at != '%') {
            name[n++] = *at;
            continue;
        }
        if ((high = hex_digit(at[1])) < 0 || (low = hex_digit(at[2])) < 0 || (high == 0 && low == 0)) return false;
        name[n++] = (char)(high << 4 | low);
        at += 2;
    }
    name[n] = '\0';
    if (n == 0) return false;
    encode(z, name, again);
    return strcmp(again, node) == 0;
}

/* ---- the nodes of claims ----------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t from, const char *text) {
    for (; *text; text++) from = (from ^ (unsigned char)*text) * UINT64_C(1099511628211);
    from ^= from >> 33; /* MurmurHash3's finalizer: spreads what differs in the last characters only */
    from *= UINT64_C(0xff51afd7ed558ccd);
    from ^= from >> 33;
    from *= UINT64_C(0xc4ceb9fe1a85ec53);
    return from ^ from >> 33;
}

void zookeeper_uuid(const char *token, struct zookeeper_uuid *uuid) {
    uint64_t high = hash(UINT64_C(14695981039346656037), token), low = hash(high, token);
    snprintf(uuid->text, sizeof uuid->text, "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
             high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & UINT64_C(0xffffffffffff));
}

void zookeeper_node(const struct zookeeper_uuid *uuid, const int32_t *sequence, char node[ZOOKEEPER_NODE_SIZE]) {
    int n = snprintf(node, ZOOKEEPER_NODE_SIZE, "_c_%s-lock-", uuid->text);
    if (sequence) snprintf(node + n, ZOOKEEPER_NODE_SIZE - (size_t)n, "%010" PRId32, *sequence);
}

/* Ten digits, or "-" and ten of them, after "lock-": Java's %010d of a counter that wraps at 2^31. */
bool zookeeper_sequence(const char *node, int32_t *sequence) {
    size_t length = strlen(node), digits = 0;
    long long value = 0;
    while (digits < length && node[length - 1 - digits] >= '0' && node[length - 1 - digits] <= '9') digits++;
    if (digits < 9 || digits > 10) return false;
    for (size_t i = length - digits; i < length; i++) value = value * 10 + (node[i] - '0');
    length -= digits;
    if (length > 5 && node[length - 1] == '-' && strncmp(node + length - 6, "lock-", 5) == 0) {
        value = -value;
        length--;
    } else if (digits < 10) {
        return false; /* %010d counts the sign */
    }
    if (value < INT32_MIN || value > INT32_MAX || length < 5 || strncmp(node + length - 5, "lock-", 5) != 0)
        return false;
    *sequence = (int32_t)value;
    return true;
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

/* How far a is behind b, across the counter's wrap. */
static int32_t behind(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static bool is_own(const char *node, const struct zookeeper_uuid *uuid) {
    char prefix[ZOOKEEPER_NODE_SIZE];
    if (!uuid) return false;
    zookeeper_node(uuid, NULL, prefix);
    return strncmp(node, prefix, strlen(prefix)) == 0;
}

/* Which of the nodes with our uuid is ours: the one we know, else the last. */
static void find_own(const struct String_vector *nodes, const struct zookeeper_uuid *uuid, const int32_t *known,
                     struct zookeeper_line *line) {
    for (int32_t i = 0; i < nodes->count; i++) {
        const char *node = nodes->data[i];
        int32_t sequence;
        if (!node || !is_own(node, uuid) || !zookeeper_sequence(node, &sequence)) continue;
        if (known ? sequence == *known : !line->own || behind(sequence, line->own_sequence) > 0) {
            line->own = true;
            line->own_sequence = sequence;
        }
    }
}

bool zookeeper_line(const struct String_vector *nodes, const struct zookeeper_uuid *uuid, const int32_t *known,
                    struct zookeeper_line *line) {
    const char *first = NULL, *before = NULL, *twin = NULL;
    int32_t before_sequence = 0;
    memset(line, 0, sizeof *line);
    find_own(nodes, uuid, known, line);
    for (int32_t i = 0; i < nodes->count; i++) {
        const char *node = nodes->data[i];
        int32_t sequence;
        if (!node || !zookeeper_sequence(node, &sequence)) continue;
        if (strlen(node) >= ZOOKEEPER_NODE_SIZE) return false;
        line->members++;
        if (!first || behind(sequence, line->first_sequence) < 0) {
            first = node;
            line->first_sequence = sequence;
        }
        if (is_own(node, uuid) && !(line->own && sequence == line->own_sequence)) twin = node;
        if (!line->own || behind(sequence, line->own_sequence) >= 0) continue;
        line->ahead++;
        if (!before || behind(sequence, before_sequence) > 0) {
            before = node;
            before_sequence = sequence;
        }
    }
    snprintf(line->first, sizeof line->first, "%s", first ? first : "");
    snprintf(line->before, sizeof line->before, "%s", before ? before : "");
    snprintf(line->twin, sizeof line->twin, "%s", twin ? twin : "");
    return true;
}
