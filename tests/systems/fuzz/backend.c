/* Any backend that makes its own sockets, also one from outside: docs/writing-a-backend.md has the command that compiles
 * this with its sources and -DBACKEND=<name>. The input after the script answers everything, from the first byte that the
 * server sends; with a script that begins with '!' the URI has a user and a password. */
#include "operate.h"

#include <stdlib.h>

#define PASTE(a, b) a##b
#define TABLE_OF(name) PASTE(dlock_backend_, name)
#define TABLE TABLE_OF(BACKEND)

extern const struct dlock_backend TABLE;

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static const struct dlock_host host = {"localhost", "127.0.0.1", 0};
    struct dlock_uri uri = {.scheme = TABLE.schemes[0], .hosts = &host, .n_hosts = 1};
    struct dlock_error err = {0};
    const bool told = fuzz_tells(data, size);
    char script[32];
    if (size > 32 * 1024 || !fuzz_script(&data, &size, script)) return 0;
    const bool user = *script == '!';
    if (user) uri.user = "u", uri.password = FUZZ_PASSWORD;
    void *conn = calloc(1, TABLE.conn_size);
    if (!conn) abort();
    fuzz_server_says("", data, size);
    int rc = TABLE.connect(conn, &uri, &fuzz_peer, FUZZ_TIMEOUT_MS, &err);
    fuzz_connected(&TABLE, conn, rc, &err, told, script + user);
    free(conn);
    return 0;
}
