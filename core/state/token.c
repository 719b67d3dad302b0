/* Tokens: what names an acquisition to the server. */
#include "state/client.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBER_DIGITS = 16, LIMIT_DIGITS = 8 };

size_t dlock__token_room(const struct dlock_client *client) {
    return 24 + 1 + NUMBER_DIGITS + 2 + LIMIT_DIGITS + strlen(client->token_tail) + 1;
}

static uint64_t turned(uint64_t word, int by) {
    return word << by | word >> (64 - by);
}

static void mix(uint64_t v[4], int rounds) {
    while (rounds-- > 0) {
        v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
        v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
    }
}

/* SipHash-2-4 (Aumasson, Bernstein, 2012) of one number. Knowing other tokens of this client, and not its key, nobody
 * can tell the next: no system call is needed for each, as fresh random numbers would. */
static uint64_t scramble(const uint64_t key[2], uint64_t number) {
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    const uint64_t words[] = {number, UINT64_C(8) << 56}; /* the last has the length */
    for (int i = 0; i < 2; i++) {
        v[3] ^= words[i];
        mix(v, 2);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* `least` digits of a number in hex, and as many more as it has, without snprintf: this is on the hot path. */
static char *write_hex(uint64_t number, unsigned least, char *out) {
    unsigned n = least;
    while (n < 16 && number >> 4 * n) n++;
    for (unsigned i = n; i-- > 0; number >>= 4) out[i] = "0123456789abcdef"[number & 15];
    return out + n;
}

void dlock__token_write(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    char *out = acq->token;
    memcpy(out, client->id, 24);
    out += 24;
    *out++ = '.';
    out = write_hex(scramble(client->token_key, ++client->tokens), NUMBER_DIGITS, out);
    if (acq->mode != DLOCK_EXCLUSIVE) *out++ = '-';
    if (acq->mode != DLOCK_EXCLUSIVE) *out++ = acq->mode == DLOCK_SHARED ? 's' : 'p';
    if (acq->mode == DLOCK_PERMIT) out = write_hex(acq->limit, 1, out);
    memcpy(out, client->token_tail, strlen(client->token_tail) + 1);
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
