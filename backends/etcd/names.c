/* Names, tokens and modes in keys and values. */
#include "etcd.h"

#include <inttypes.h>
#include <stdlib.h>

static void encode(const char *name, char out[ETCD_NAME_SIZE + 64]) {
    dlock_encode_name(out, ETCD_NAME_SIZE + 64, name, "/", false);
}

void etcd_prefix(const struct etcd_address *address, const char *name, bool end, char key[ETCD_KEY_SIZE]) {
    char encoded[ETCD_NAME_SIZE + 64];
    encode(name, encoded);
    snprintf(key, ETCD_KEY_SIZE, "%s%s%c", address->base, encoded, end ? '/' + 1 : '/');
}

void etcd_start(const struct etcd_address *address, const char *start, char key[ETCD_KEY_SIZE]) {
    char encoded[ETCD_NAME_SIZE + 64];
    encode(start, encoded);
    snprintf(key, ETCD_KEY_SIZE, "%s%s", address->base, encoded);
}

void etcd_add_range(struct dlock_text *text, const struct etcd *z, const char *name) {
    char key[ETCD_KEY_SIZE];
    etcd_prefix(&z->address, name, false, key);
    dlock_text_add(text, "\"key\":");
    dlock_text_add_base64(text, key);
    etcd_prefix(&z->address, name, true, key);
    dlock_text_add(text, ",\"range_end\":");
    dlock_text_add_base64(text, key);
}

void etcd_key(const struct etcd_address *address, const struct dlock_claim *claim, char key[ETCD_KEY_SIZE]) {
    etcd_prefix(address, claim->name, false, key);
    size_t n = strlen(key);
    uint64_t slot = etcd_slot(claim);
    if (slot > 1)
        snprintf(key + n, ETCD_KEY_SIZE - n, "%" PRIx64 "/%" PRIu64, claim->state[ETCD_NAMED], slot);
    else
        snprintf(key + n, ETCD_KEY_SIZE - n, "%" PRIx64, claim->state[ETCD_NAMED]);
}

/* No name is encoded like that: '%' is followed by two digits there. */
void etcd_closed_slot(const struct etcd_address *address, const struct dlock_claim *claim, char key[ETCD_KEY_SIZE]) {
    snprintf(key, ETCD_KEY_SIZE, "%s%%.%" PRIx64 ".%" PRIu64, address->base, claim->state[ETCD_NAMED],
             etcd_slot(claim));
}

bool etcd_after_closed_slots(const struct etcd_address *address, const char *at, char key[ETCD_KEY_SIZE]) {
    size_t n = strlen(address->base);
    if (strncmp(at, address->base, n) != 0 || strncmp(at + n, "%.", 2) != 0) return false;
    snprintf(key, ETCD_KEY_SIZE, "%s%%%c", address->base, '.' + 1);
    return true;
}

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns the part of a key after the base, and stores the '/' that follows the name. NULL: the key is not a
 * claim's. */
static const char *split(const struct etcd_address *address, const char *key, const char **slash) {
    size_t n = strlen(address->base);
    if (strncmp(key, address->base, n) != 0) return NULL;
    *slash = strchr(key + n, '/');
    return *slash && *slash != key + n ? key + n : NULL;
}

/* Parses what follows a name's '/': `<lease>` or `<lease>/<slot>`. Slots are written from 2 on. */
static bool parse(const char *text, uint64_t *lease, uint64_t *slot) {
    size_t digits = strspn(text, "0123456789abcdef");
    if (digits == 0 || digits > 16 || *text == '0') return false;
    *lease = strtoull(text, NULL, 16);
    *slot = 1;
    if (!text[digits]) return true;
    const char *number = text + digits + 1;
    size_t length = strspn(number, "0123456789");
    if (text[digits] != '/' || length == 0 || length > 5 || number[length] || *number == '0') return false;
    *slot = strtoull(number, NULL, 10);
    return *slot > 1 && *slot <= ETCD_SLOTS;
}

bool etcd_is_key(const struct etcd_address *address, const char *name, const char *key) {
    char prefix[ETCD_KEY_SIZE];
    uint64_t lease, slot;
    etcd_prefix(address, name, false, prefix);
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 && parse(key + n, &lease, &slot);
}

/* A lease with so small a number is a slot: the key is that of a lock with the name of the path. */
bool etcd_name(const struct etcd_address *address, const char *key, char name[256]) {
    const char *slash, *at = split(address, key, &slash);
    uint64_t lease, slot;
    size_t used = 0;
    if (!at || !parse(slash + 1, &lease, &slot) || lease <= ETCD_SLOTS) return false;
    while (at < slash) {
        char c = *at++;
        if (c == '%') {
            int high = hex(at[0]), low = high < 0 ? -1 : hex(at[1]);
            if (low < 0) return false;
            c = (char)(high << 4 | low);
            if (c != '%' && c != '/') return false;
            at += 2;
        }
        if (used >= 255 || (unsigned char)c < 0x20 || c == 0x7f) return false;
        name[used++] = c;
    }
    name[used] = '\0';
    return true;
}

static bool token_like(const char *text) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._:@-";
    size_t n = strlen(text);
    return n > 0 && n <= DLOCK_TOKEN_MAX && strspn(text, letters) == n;
}

void etcd_read_key(const struct etcd_address *address, const char *key, struct dlock_claim *claim) {
    const char *slash;
    uint64_t lease, slot;
    if (!split(address, key, &slash) || !parse(slash + 1, &lease, &slot)) return;
    claim->state[ETCD_NAMED] = lease;
    claim->state[ETCD_FLAGS] &= (1 << ETCD_SLOT_SHIFT) - 1; /* another key may have been read before */
    claim->state[ETCD_FLAGS] |= slot << ETCD_SLOT_SHIFT;
}

void etcd_token(const struct etcd_address *address, const char *key, const char *value,
                char token[DLOCK_TOKEN_MAX + 1]) {
    const char *slash, *space = strrchr(value, ' ');
    const char *lease = split(address, key, &slash) ? slash + 1 : "";
    snprintf(token, DLOCK_TOKEN_MAX + 1, "%s", space ? space + 1 : value);
    if (!token_like(token)) snprintf(token, DLOCK_TOKEN_MAX + 1, "lease:0x%.16s", lease);
    if (!token_like(token)) snprintf(token, DLOCK_TOKEN_MAX + 1, "unknown");
}

void etcd_value(const struct dlock_claim *claim, char text[ETCD_VALUE_SIZE]) {
    char mode[24] = "";
    if (claim->mode == DLOCK_SHARED) snprintf(mode, sizeof mode, "shared ");
    if (claim->mode == DLOCK_PERMIT) snprintf(mode, sizeof mode, "permit %" PRIu32 " ", claim->limit);
    snprintf(text, ETCD_VALUE_SIZE, "%s%s", mode, claim->token);
}

void etcd_mode(const char *text, enum dlock_mode *mode, uint32_t *limit) {
    *mode = strncmp(text, "shared ", 7) == 0 ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
    *limit = 0;
    size_t digits = strncmp(text, "permit ", 7) == 0 ? strspn(text + 7, "0123456789") : 0;
    int64_t number = digits > 0 && digits <= 10 && text[7 + digits] == ' ' ? strtoll(text + 7, NULL, 10) : 0;
    if (number <= 0 || number > UINT32_MAX) return;
    *mode = DLOCK_PERMIT;
    *limit = (uint32_t)number;
}
