/* A program that exits without closing its connection over TLS: says so if OpenSSL then frees its state, which dlock's
 * threads may still use. tls_test.sh runs it. */
#include "site.h"

#include <openssl/crypto.h>

static void tell(void) {
    puts("OpenSSL has freed its state");
}

int main(void) {
    const struct params params = {.more = {{"sslmode", "require"}}};
    const char *where = getenv("DLOCK_TEST_POSTGRESQL");
    struct dlock_error err;
    struct link link;
    if (backend_load(NULL) != 0 || !where || sscanf(where, "%63[^:]:%d", site.host, &site.port) != 2) return 1;
    snprintf(site.schema, sizeof site.schema, "test_exit"); /* connecting makes nothing in it */
    if (link_with(&link, &params, 'a', TIMEOUT_MS, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (OPENSSL_atexit(tell) != 1) return 1;
    exit(0);
}
