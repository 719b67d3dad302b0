/* SHA-256 (FIPS 180-4), which every language has, PostgreSQL's SQL included. */
#include "postgresql.h"

#define BLOCK 64

static const uint32_t constants[BLOCK] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, int by) {
    return word >> by | word << (32 - by);
}

static void spread(const unsigned char *block, uint32_t words[BLOCK]) {
    for (int i = 0; i < 16; i++, block += 4)
        words[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int i = 16; i < BLOCK; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + words[i - 7] +
                   (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
}

static void add_block(uint32_t sum[8], const unsigned char *block) {
    uint32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3], e = sum[4], f = sum[5], g = sum[6], h = sum[7];
    uint32_t words[BLOCK];
    spread(block, words);
    for (int i = 0; i < BLOCK; i++) {
        uint32_t one =
            h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + words[i];
        uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    sum[0] += a, sum[1] += b, sum[2] += c, sum[3] += d, sum[4] += e, sum[5] += f, sum[6] += g, sum[7] += h;
}

void pg_sha256(const struct pg_text *parts, size_t n, unsigned char out[PG_SHA256]) {
    uint32_t sum[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char block[BLOCK];
    size_t used = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        bits += (uint64_t)parts[i].length * 8;
        for (size_t at = 0; at < parts[i].length; at++) {
            block[used++] = (unsigned char)parts[i].bytes[at];
            if (used < BLOCK) continue;
            add_block(sum, block);
            used = 0;
        }
    }
    block[used++] = 0x80;
    if (used > BLOCK - 8) {
        memset(block + used, 0, BLOCK - used);
        add_block(sum, block);
        used = 0;
    }
    memset(block + used, 0, BLOCK - 8 - used);
    for (int i = 0; i < 8; i++) block[BLOCK - 8 + i] = (unsigned char)(bits >> (56 - 8 * i));
    add_block(sum, block);
    for (int i = 0; i < PG_SHA256; i++) out[i] = (unsigned char)(sum[i / 4] >> (24 - 8 * (i % 4)));
}
