/* A program that exits without closing its connection: fails if OpenSSL then frees its state, which dlock's threads may
 * still use. Also without TLS, since libcurl initializes OpenSSL in any case, and OpenSSL's first user decides for
 * all. */
#include "support/link.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell(void) {
    fputs("OpenSSL has freed its state\n", stderr);
    _exit(1);
}

int main(void) {
    const char *address = getenv("DLOCK_TEST_ETCD"), *colon = address ? strrchr(address, ':') : NULL;
    struct dlock_error err;
    static struct link link; /* what it points to is no leak */
    struct uri uri;
    if (backend_load(NULL) != 0 || !colon) return 1;
    uri_init(&uri, atoi(colon + 1));
    uri.parts.path = "/dlock/exit";
    if (link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (OPENSSL_atexit(tell) != 1) return 1;
    exit(0);
}
