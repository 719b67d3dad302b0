/* SHA-256, which authenticates wake-ups, and the key of a lock in mode=session, which is its first 8 bytes. The client
 * computes the key, to save the server the work. */
#include "postgresql.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

void pg_begin_openssl(void) {
    pthread_once(&once, begin);
}

bool pg_sha256(const struct pg_text *parts, size_t n, unsigned char out[PG_SHA256]) {
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    bool done = sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < n && done; i++) done = EVP_DigestUpdate(sum, parts[i].bytes, parts[i].length) == 1;
    done = done && EVP_DigestFinal_ex(sum, out, NULL) == 1;
    EVP_MD_CTX_free(sum);
    return done;
}

bool pg_key(const char *schema, const char *name, int64_t *key) {
    const struct pg_text text[] = {{schema, strnlen(schema, PG_IDENTIFIER_MAX)},
                                   {" ", 1},
                                   {name, strnlen(name, PG_NAME_MAX)}};
    unsigned char sum[PG_SHA256];
    uint64_t bits = 0;
    if (!pg_sha256(text, 3, sum)) return false;
    for (int i = 0; i < 8; i++) bits = bits << 8 | sum[i];
    *key = (int64_t)bits;
    return true;
}
