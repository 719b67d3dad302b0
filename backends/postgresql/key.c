/* The key of a session's lock: the first 8 bytes of a SHA-256. The client works it out, so that the server need not. */
#include "postgresql.h"

int64_t pg_key(const char *schema, const char *name) {
    const struct pg_text text[] = {{schema, strnlen(schema, PG_IDENTIFIER_MAX)},
                                   {" ", 1},
                                   {name, strnlen(name, PG_NAME_MAX)}};
    unsigned char sum[PG_SHA256];
    uint64_t key = 0;
    pg_sha256(text, 3, sum);
    for (int i = 0; i < 8; i++) key = key << 8 | sum[i];
    return (int64_t)key;
}
