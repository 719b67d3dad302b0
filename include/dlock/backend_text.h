/* Helpers of backends for texts: messages, durations, guesses, encoded names, requests in JSON. <dlock/backend.h>
 * includes it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef DLOCK_BACKEND_TEXT_H
#define DLOCK_BACKEND_TEXT_H

#include <dlock/dlock.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces control characters by '?': in a text of a server they could do anything to a terminal. */
static inline void dlock_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

/* Sets code and message, of one line, and returns the code: `return dlock_fail(err, DLOCK_EPROTO, "…%d…", n);`. `err`
 * may be NULL. */
DLOCK_PRINTF(3, 4)
static inline int dlock_fail(struct dlock_error *err, int code, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        dlock_one_line(err->message);
    }
    return code;
}

/* Appends the question whether this is the right kind of server, after an answer that no such server gives, or none:
 * dlock_doubt(err, "Redis"). `err` may be NULL. */
static inline void dlock_doubt(struct dlock_error *err, const char *kind) {
    if (!err) return;
    size_t used = strlen(err->message);
    const char *article = *kind && strchr("aeiouAEIOU", *kind) ? "an" : "a";
    snprintf(err->message + used, sizeof err->message - used, "; is this %s %s server?", article, kind);
}

/* Words of at least this length are not compared. */
#define DLOCK_GUESS_MAX 40

/* Returns how many letters have to be inserted, deleted, changed or exchanged with their neighbours to turn `a` into
 * `b`, regardless of case. A '*' at the end of `b` does not count. DLOCK_GUESS_MAX: one of them is too long. */
static inline size_t dlock_edit_distance(const char *a, const char *b) {
    size_t rows[3][DLOCK_GUESS_MAX + 1], n = strlen(a), m = strlen(b);
    size_t *before = rows[0], *last = rows[1], *row = rows[2], *spare;
    if (m && b[m - 1] == '*') m--;
    if (n >= DLOCK_GUESS_MAX || m >= DLOCK_GUESS_MAX) return DLOCK_GUESS_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        spare = before;
        before = last;
        last = row;
        row = spare;
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + ((a[i - 1] | 0x20) != (b[j - 1] | 0x20));
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

/* Guesses the intended word in place of an unknown one. If exactly one of `words` (NULL-terminated) is near it (a third
 * of its letters may be wrong, and one always), writes "; did you mean "WORD"?" into `out` and returns true. Otherwise
 * `out` is "": show all of them. */
static inline bool dlock_guess(char *out, size_t size, const char *word, const char *const *words) {
    const char *nearest = NULL;
    size_t least = DLOCK_GUESS_MAX;
    for (; words && *words; words++) {
        size_t distance = dlock_edit_distance(word, *words);
        if (distance > least) continue;
        nearest = distance == least ? NULL : *words;
        least = distance;
    }
    *out = '\0';
    if (!nearest) return false;
    size_t length = strlen(nearest) - (nearest[strlen(nearest) - 1] == '*');
    if (least > 1 && least > length / 3) return false;
    snprintf(out, size, "; did you mean \"%.*s\"?", (int)length, nearest);
    return true;
}

/* Returns the milliseconds of a duration in the form that every URI key takes: "500ms", "10s", "2m", "1h"; a bare
 * number is seconds. Rounded to the nearest, but what is not zero does not become zero. -1: not a duration; INT64_MAX:
 * longer than 292 years, so that it could not be added to a clock in nanoseconds. Computes with integers only, so that
 * 0.3s is 300 on every machine. */
static inline int64_t dlock_duration_ms(const char *text) {
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
    const int64_t longest_ms = INT64_MAX / 1000000;
    int64_t whole = 0, fraction = 0, scale = 1;
    bool more = false; /* more than twelve digits after the point; these make no difference even to an hour */
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (whole <= longest_ms) whole = whole * 10 + (*at - '0');
    if (*at == '.') {
        if (at[1] < '0' || at[1] > '9') return -1;
        for (at++; *at >= '0' && *at <= '9'; at++) {
            if (scale == INT64_C(1000000000000)) {
                more = more || *at != '0';
                continue;
            }
            fraction = fraction * 10 + (*at - '0');
            scale *= 10;
        }
    }
    for (size_t i = 0; at > text && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(at, units[i].unit) != 0) continue;
        if (whole > longest_ms / units[i].ms - 1) return INT64_MAX;
        int64_t ms = whole * units[i].ms + (fraction * units[i].ms + scale / 2) / scale;
        return ms == 0 && (fraction || more) ? 1 : ms;
    }
    return -1;
}

/* Writes a duration for people: "250ms", "42s", "9m32s", "2h5m". Returns `out`. */
static inline const char *dlock_duration_text(char out[32], int64_t ms) {
    const long long values[] = {(long long)(ms / 3600000), (long long)(ms / 60000 % 60), (long long)(ms / 1000 % 60)};
    size_t used = 0;
    snprintf(out, 32, "%lldms", (long long)ms);
    for (size_t i = 0; i < 3 && ms > 0 && ms % 1000 == 0; i++)
        if (values[i]) used += (size_t)snprintf(out + used, 32 - used, "%lld%c", values[i], "hms"[i]);
    return out;
}

/* Writes how much longer a server answers ENOTREADY: "grants nothing for another 9m32s"; left_ms is as ready_ms.
 * Returns `out`. */
static inline const char *dlock_not_ready_text(char out[64], int64_t left_ms) {
    char text[32];
    if (left_ms > 1000 && left_ms < DLOCK_FOREVER - 1000) left_ms = (left_ms + 999) / 1000 * 1000;
    if (left_ms < 0 || left_ms == DLOCK_FOREVER)
        snprintf(out, 64, "grants nothing yet");
    else
        snprintf(out, 64, "grants nothing for another %s", dlock_duration_text(text, left_ms));
    return out;
}

/* FNV-1a hash of `n` bytes, continued from `from`; begin with DLOCK_HASH_SEED. */
#define DLOCK_HASH_SEED UINT64_C(14695981039346656037)
static inline uint64_t dlock_hash(const char *bytes, size_t n, uint64_t from) {
    for (size_t i = 0; i < n; i++) from = (from ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    return from;
}

/* Writes `name` into `out`, with control characters, '%' and every byte of `special` percent-encoded, and if `ascii` is
 * set also bytes above 0x7f. A result that does not fit into `size` - 1 bytes is cut and ends in '~' and the 16 hex
 * digits of the FNV-1a hash of the whole name, so that distinct long names stay distinct: store the full name in the
 * value. `size` is at least 64. */
static inline void dlock_encode_name(char *out, size_t size, const char *name, const char *special, bool ascii) {
    static const char hex[] = "0123456789ABCDEF";
    size_t used = 0, cut = 0;
    const unsigned char *p = (const unsigned char *)name;
    for (; *p; p++) {
        const char *kept = special;
        while (*kept && (unsigned char)*kept != *p) kept++;
        bool plain = *p >= 0x20 && *p != 0x7f && *p != '%' && (*p < 0x80 || !ascii) && !*kept;
        size_t need = plain ? 1 : 3;
        if (used + need >= size) break;
        if (plain) {
            out[used] = (char)*p;
        } else {
            out[used] = '%';
            out[used + 1] = hex[*p >> 4];
            out[used + 2] = hex[*p & 15];
        }
        used += need;
        if (used + 18 <= size) cut = used;
    }
    if (*p) { /* it does not fit */
        while (*p) p++;
        uint64_t hash = dlock_hash(name, (size_t)(p - (const unsigned char *)name), DLOCK_HASH_SEED);
        out[cut] = '~';
        for (int i = 0; i < 16; i++) out[cut + 1 + (size_t)i] = hex[(hash >> (60 - 4 * i)) & 15];
        used = cut + 17;
    }
    out[used] = '\0';
}

/* Reads a text in which bytes may be percent-encoded, as by dlock_encode_name(). False: it is malformed, is longer than
 * `size` - 1 bytes, or has control characters, which no name has. */
static inline bool dlock_decode_name(char *out, size_t size, const char *text) {
    size_t used = 0;
    for (; *text; text++) {
        unsigned byte = (unsigned char)*text;
        if (byte == '%') {
            static const char hex[] = "0123456789ABCDEF0123456789abcdef";
            const char *high = text[1] ? strchr(hex, text[1]) : NULL,
                       *low = high && text[2] ? strchr(hex, text[2]) : NULL;
            if (!low) return false;
            byte = (unsigned)((high - hex) % 16 * 16 + (low - hex) % 16);
            text += 2;
        }
        if (byte < 0x20 || byte == 0x7f || used + 1 >= size) return false;
        out[used++] = (char)byte;
    }
    out[used] = '\0';
    return true;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* What the end of a token tells about its process: see DLOCK_TOKEN_MAX. */
struct dlock_face {
    char host[64];                   /* "": the token tells none of the three */
    int64_t pid;                     /* in its own PID namespace */
    char label[DLOCK_LABEL_MAX + 1]; /* "": none */
};

/* Reads a label, encoded as in tokens, up to a ':', the end, or half a character that was cut there. Control characters
 * become '?'. */
static inline void dlock_read_label(char out[DLOCK_LABEL_MAX + 1], const char *text) {
    static const char hex[] = "0123456789ABCDEF0123456789abcdef";
    size_t used = 0;
    for (; *text && *text != ':' && used < DLOCK_LABEL_MAX; text++) {
        unsigned byte = (unsigned char)*text;
        if (byte == '@') {
            const char *high = text[1] ? strchr(hex, text[1]) : NULL,
                       *low = high && text[2] ? strchr(hex, text[2]) : NULL;
            if (!low) break;
            byte = (unsigned)((high - hex) % 16 * 16 + (low - hex) % 16);
            text += 2;
        }
        out[used++] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    out[used] = '\0';
}

/* Reads who the token says its process is. Any client may have written the token. A ':' and digits at its end, which a
 * quorum adds at its members, are skipped. */
static inline void dlock_token_face(const char *token, struct dlock_face *face) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *host = strchr(token, '@'), *pid;
    memset(face, 0, sizeof *face);
    if (!host) return;
    size_t length = strspn(++host, letters);
    if (length == 0 || length >= sizeof face->host || host[length] != ':') return;
    pid = host + length + 1;
    size_t digits = strspn(pid, "0123456789");
    if (digits == 0 || digits > 10 || (pid[digits] && pid[digits] != '@' && pid[digits] != ':')) return;
    memcpy(face->host, host, length);
    face->pid = strtoll(pid, NULL, 10);
    if (pid[digits] == '@') dlock_read_label(face->label, pid + digits + 1);
}

/* Room for dlock_holder_text(). */
#define DLOCK_HOLDER_MAX 160

/* Writes who has a token: "nightly.sh on web3, pid 4711", or the token itself if it is another program's. Returns
 * `out`. */
static inline const char *dlock_holder_text(char out[DLOCK_HOLDER_MAX], const char *token) {
    struct dlock_face face;
    dlock_token_face(token, &face);
    if (face.host[0])
        snprintf(out, DLOCK_HOLDER_MAX, "%s on %s, pid %lld", face.label[0] ? face.label : "a process", face.host,
                 (long long)face.pid);
    else
        snprintf(out, DLOCK_HOLDER_MAX, "%.*s", DLOCK_TOKEN_MAX, token[0] ? token : "somebody");
    dlock_one_line(out);
    return out;
}

/* Explains an EBUSY by the token that has the lock, for an acquire of one claim whose answer has that token at no extra
 * cost. `err` may be NULL. */
static inline void dlock_held_by(struct dlock_error *err, const char *token) {
    char who[DLOCK_HOLDER_MAX];
    if (err) dlock_fail(err, DLOCK_EBUSY, "held by %s", dlock_holder_text(who, token));
}

/* ---- texts that grow --------------------------------------------------------------------------------------------- */

/* A text that grows, for requests and answers. All zeros: it is empty. */
struct dlock_text {
    char *at;    /* NUL-terminated; NULL while it is empty */
    size_t n;    /* its length */
    size_t room; /* the bytes allocated */
    bool failed; /* out of memory: the text is incomplete; look at this once, at the end */
};

/* Makes room for `more` bytes and a NUL. False: out of memory. */
static inline bool dlock_text_room(struct dlock_text *text, size_t more) {
    size_t room = text->room ? text->room : 512;
    if (text->failed) return false;
    while (room < text->n + more + 1) room *= 2;
    if (room == text->room) return true;
    char *at = (char *)realloc(text->at, room);
    text->failed = !at;
    if (!at) return false;
    text->at = at;
    text->room = room;
    return true;
}

/* Adds bytes. */
static inline void dlock_text_add_bytes(struct dlock_text *text, const void *bytes, size_t n) {
    if (!dlock_text_room(text, n)) return;
    memcpy(text->at + text->n, bytes, n);
    text->n += n;
    text->at[text->n] = '\0';
}

/* Adds what printf() would write, less than 512 bytes. */
DLOCK_PRINTF(2, 3) static inline void dlock_text_add(struct dlock_text *text, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof piece)
        text->failed = true;
    else
        dlock_text_add_bytes(text, piece, (size_t)n);
}

/* Adds a string of JSON, with its quotes. */
static inline void dlock_text_add_json(struct dlock_text *text, const char *string) {
    dlock_text_add_bytes(text, "\"", 1);
    for (const char *at = string; *at; at++) {
        if (*at == '"' || *at == '\\' || (unsigned char)*at < 0x20)
            dlock_text_add(text, "\\u%04x", (unsigned)(unsigned char)*at);
        else
            dlock_text_add_bytes(text, at, 1);
    }
    dlock_text_add_bytes(text, "\"", 1);
}

/* The digits of base64. */
#define DLOCK_BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

/* Adds a string of JSON that is `bytes` in base64, with its quotes. */
static inline void dlock_text_add_base64(struct dlock_text *text, const char *bytes) {
    const unsigned char *from = (const unsigned char *)bytes;
    size_t n = strlen(bytes);
    dlock_text_add_bytes(text, "\"", 1);
    for (size_t i = 0; i < n; i += 3) {
        char four[4];
        uint32_t three = (uint32_t)from[i] << 16;
        if (i + 1 < n) three |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < n) three |= from[i + 2];
        for (size_t k = 0; k < 4; k++) four[k] = i + k <= n ? DLOCK_BASE64[three >> (18 - 6 * k) & 63] : '=';
        dlock_text_add_bytes(text, four, 4);
    }
    dlock_text_add_bytes(text, "\"", 1);
}

/* Decodes base64 into `out`, NUL-terminated. False: it is too long or contains a NUL, and `out` is what fits before
 * that; or it is not base64, and `out` is empty. */
static inline bool dlock_base64(const char *text, char *out, size_t size) {
    size_t used = 0;
    uint32_t bits = 0;
    int n = 0;
    bool whole = true;
    for (; *text && *text != '=' && whole; text++) {
        const char *digit = strchr(DLOCK_BASE64, *text);
        if (!digit) {
            out[0] = '\0';
            return false;
        }
        bits = bits << 6 | (uint32_t)(digit - DLOCK_BASE64);
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

/* Frees the text, which is empty then. A password may be in it, so its bytes are overwritten first. */
static inline void dlock_text_free(struct dlock_text *text) {
    for (volatile char *at = text->at; at && at < text->at + text->room; at++) *at = 0;
    free(text->at);
    memset(text, 0, sizeof *text);
}

#ifdef __cplusplus
}
#endif
#endif
