/* Texts that grow, base64 and JSON strings. */
#include "etcd.h"

#include <stdlib.h>

static bool make_room(struct etcd_text *text, size_t more) {
    if (text->failed) return false;
    if (text->n + more + 1 <= text->room) return true;
    size_t room = text->room ? text->room : 512;
    while (room < text->n + more + 1) room *= 2;
    char *at = realloc(text->at, room);
    text->failed = !at;
    if (!at) return false;
    text->at = at;
    text->room = room;
    return true;
}

void etcd_add_bytes(struct etcd_text *text, const void *bytes, size_t n) {
    if (!make_room(text, n)) return;
    memcpy(text->at + text->n, bytes, n);
    text->n += n;
    text->at[text->n] = '\0';
}

void etcd_add(struct etcd_text *text, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof piece)
        text->failed = true;
    else
        etcd_add_bytes(text, piece, (size_t)n);
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void etcd_add_base64(struct etcd_text *text, const char *bytes) {
    const unsigned char *from = (const unsigned char *)bytes;
    size_t n = strlen(bytes);
    etcd_add_bytes(text, "\"", 1);
    if (!make_room(text, (n + 2) / 3 * 4)) return;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = (uint32_t)from[i] << 16;
        if (i + 1 < n) three |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < n) three |= from[i + 2];
        for (int k = 0; k < 4; k++) text->at[text->n++] = i + (size_t)k <= n ? digits[three >> (18 - 6 * k) & 63] : '=';
    }
    etcd_add_bytes(text, "\"", 1);
}

void etcd_add_string(struct etcd_text *text, const char *string) {
    etcd_add_bytes(text, "\"", 1);
    for (const char *at = string; *at; at++) {
        if (*at == '"' || *at == '\\' || (unsigned char)*at < 0x20)
            etcd_add(text, "\\u%04x", (unsigned char)*at);
        else
            etcd_add_bytes(text, at, 1);
    }
    etcd_add_bytes(text, "\"", 1);
}

void etcd_text_free(struct etcd_text *text) {
    if (text->at) explicit_bzero(text->at, text->room); /* a password may be in it */
    free(text->at);
    memset(text, 0, sizeof *text);
}

bool etcd_base64(const char *text, char *out, size_t size) {
    size_t used = 0;
    uint32_t bits = 0;
    int n = 0;
    bool whole = true;
    for (; *text && *text != '=' && whole; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit) {
            out[0] = '\0';
            return false;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        n += 6;
        if (n < 8) continue;
        n -= 8;
        char byte = (char)(bits >> n & 0xff);
        whole = byte && used + 1 < size;
        if (whole) out[used++] = byte;
    }
    out[used] = '\0';
    return whole;
}
