/* Tokens, which name acquisitions to the server, and the memory of those that were exported. */
#include "state/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_DIGITS = 16, LIMIT_DIGITS = 8 };

size_t dlock__token_room(const struct dlock_client *client) {
    return 24 + 1 + NUMBER_DIGITS + 2 + LIMIT_DIGITS + client->token_tail_size;
}

/* Returns the bytes of the first character of UTF-8, or 1. */
static size_t character(const char *text) {
    size_t n = 1;
    while (n < 4 && (*text & 0xc0) == 0xc0 && (text[n] & 0xc0) == 0x80) n++;
    return n;
}

void dlock__token_tail(struct dlock_client *client, const char *host, long pid, const char *label) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    char *tail = client->token_tail;
    const size_t most = sizeof client->token_tail - 1;
    size_t used = (size_t)snprintf(tail, sizeof client->token_tail, "@%.40s:%ld", host, pid), n;
    if (*label && used < most) tail[used++] = '@';
    for (; *label; label += n) {
        n = character(label);
        size_t need = n == 1 && strchr(plain, *label) ? 1 : 3 * n;
        if (used + need > most) break;
        if (need == 1) tail[used++] = *label;
        for (size_t i = 0; need > 1 && i < n; i++)
            used += (size_t)sprintf(tail + used, "@%02X", (unsigned)(unsigned char)label[i]);
    }
    tail[used] = '\0';
    client->token_tail_size = used + 1;
}

static uint64_t turned(uint64_t word, int by) {
    return word << by | word >> (64 - by);
}

static inline void mix(uint64_t v[4], int rounds) {
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
        v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
    }
}

/* SipHash-2-4 (Aumasson, Bernstein, 2012) of one number, without the word with the message's length: all messages have
 * the same. Other tokens of this client tell nothing about the next one to anybody without the key, and no system call
 * per token is needed, as random numbers would need. */
static uint64_t scramble(const uint64_t key[2], uint64_t number) {
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    v[3] ^= number;
    mix(v, 2);
    v[0] ^= number;
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Writes eight hex digits without a loop: this is on the hot path, and a loop takes three times as long. */
static char *write_hex(uint32_t number, char *out) {
    uint64_t digits = number; /* spread: four bits in each byte; then each becomes its digit */
    digits = (digits | digits << 16) & UINT64_C(0x0000ffff0000ffff);
    digits = (digits | digits << 8) & UINT64_C(0x00ff00ff00ff00ff);
    digits = (digits | digits << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    uint64_t above_9 = (digits + UINT64_C(0x0606060606060606)) >> 4 & UINT64_C(0x0101010101010101);
    digits += UINT64_C(0x3030303030303030) + above_9 * ('a' - '0' - 10);
    for (int i = 0; i < 8; i++) out[i] = (char)(digits >> (56 - 8 * i));
    return out + 8;
}

void dlock__token_write(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    char *out = acq->token;
    memcpy(out, client->id, 24);
    out += 24;
    *out++ = '.';
    uint64_t number = scramble(client->token_key, ++client->tokens);
    out = write_hex((uint32_t)number, write_hex((uint32_t)(number >> 32), out));
    if (acq->mode != DLOCK_EXCLUSIVE) *out++ = '-';
    if (acq->mode != DLOCK_EXCLUSIVE) *out++ = acq->mode == DLOCK_SHARED ? 's' : 'p';
    if (acq->mode == DLOCK_PERMIT) out = write_hex(acq->limit, out);
    memcpy(out, client->token_tail, client->token_tail_size);
}

bool dlock__token_check(const char *text) {
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-");
    return n > 0 && n <= DLOCK_TOKEN_MAX && text[n] == '\0';
}

void dlock__token_read(struct dlock__acquisition *acq) {
    const char *at = acq->token + strcspn(acq->token, "-@");
    if (strncmp(at, "-s@", 3) == 0) acq->mode = DLOCK_SHARED;
    if (strncmp(at, "-p", 2) != 0) return;
    char *end;
    unsigned long limit = strtoul(at + 2, &end, 16);
    if (*end != '@' || limit == 0 || limit > UINT32_MAX) return;
    acq->mode = DLOCK_PERMIT;
    acq->limit = (uint32_t)limit;
}

/* ---- exported tokens ---- */

/* An exported token is remembered for at least this long. */
enum { KNOWN_US = 60000000 };

static void forget_before(struct dlock_client *client, int64_t now_us) {
    struct dlock__exported **at = &client->exported;
    for (struct dlock__exported *exported; (exported = *at);) {
        if (exported->until_us > now_us) {
            at = &exported->next;
        } else {
            *at = exported->next;
            free(exported);
        }
    }
}

void dlock__exported_free(struct dlock_client *client) {
    forget_before(client, DLOCK__NEVER);
}

bool dlock__exported(const struct dlock_client *client, const char *token) {
    const struct dlock__exported *exported = client->exported;
    while (exported && strcmp(exported->token, token) != 0) exported = exported->next;
    return exported != NULL;
}

int dlock__exported_remember(const struct dlock__acquisition *acq, struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    if (!acq->unanswered.untold) return 0;
    forget_before(client, dlock__now_us());
    struct dlock__exported *exported = calloc(1, sizeof *exported);
    if (!exported) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for an export");
    memcpy(exported->token, acq->token, strlen(acq->token) + 1);
    exported->until_us = dlock__after(dlock__now_us(), dlock__us(acq->lease_ms) + KNOWN_US);
    exported->next = client->exported;
    client->exported = exported;
    return 0;
}
