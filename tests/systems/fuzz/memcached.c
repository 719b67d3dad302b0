/* memcached: lines of the classic and of the meta commands, items, lists of holders, stats. If the script begins with
 * '!' there is no greeting: the input then also answers the requests of a new connection. With '-' the server has no
 * meta commands, with '+' it also lets clients choose cas ids. */
#include "operate.h"

extern const struct dlock_backend dlock_backend_memcached;

/* The answers to the requests of memcached_ask_facts(): stats and stats settings; the answers about meta commands
 * follow. */
#define STATS "STAT time 1795248000\r\nSTAT uptime 1000000\r\nEND\r\nSTAT evictions off\r\nEND\r\n"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static _Alignas(max_align_t) char conn[128 * 1024];
    static const struct dlock_uri plain = {.scheme = "memcached+unix", .path = "/fuzz"},
                                  strict = {.scheme = "memcached+unix",
                                            .user = "u",
                                            .password = FUZZ_PASSWORD,
                                            .path = "/fuzz"};
    struct dlock_error err = {0};
    const bool told = fuzz_tells(data, size);
    char script[32];
    if (dlock_backend_memcached.conn_size > sizeof conn || size > 32 * 1024) return 0;
    if (!fuzz_script(&data, &size, script)) return 0;
    const bool naked = *script == '!', old = *script == '-', new = *script == '+';
    memset(conn, 0, dlock_backend_memcached.conn_size);
    fuzz_server_says(naked ? ""
                     : old ? STATS "ERROR\r\nERROR\r\n"
                     : new ? STATS "NF\r\nEN\r\n"
                           : STATS "NF\r\nCLIENT_ERROR invalid flag\r\n",
                     data, size);
    int rc = dlock_backend_memcached.connect(conn, naked ? &strict : &plain, &fuzz_peer,
                                             naked ? FUZZ_TIMEOUT_MS : FUZZ_CONNECT_MS, &err);
    fuzz_require(naked || rc == 0, "the greeting of an honest server");
    fuzz_connected(&dlock_backend_memcached, conn, rc, &err, told, script + (naked || old || new));
    return 0;
}
