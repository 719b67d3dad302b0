/* Redis: replies of scripts, errors, messages of a subscription, INFO. If the script begins with '!' there is no
 * greeting: the input then also answers the requests of a new connection. */
#include "operate.h"
#include "resp.h"

extern const struct dlock_backend dlock_backend_redis;

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static _Alignas(max_align_t) char conn[128 * 1024];
    static const struct dlock_uri plain = {.scheme = "redis+unix", .path = "/fuzz"},
                                  strict = {
                                      .scheme = "redis+unix", .user = "u", .password = FUZZ_PASSWORD, .path = "/fuzz"};
    struct dlock_error err = {0};
    const bool told = fuzz_tells(data, size);
    char script[32];
    bool naked;
    if (dlock_backend_redis.conn_size > sizeof conn || size > 32 * 1024) return 0;
    if (!fuzz_script(&data, &size, script)) return 0;
    resp_expand(&data, &size);
    naked = *script == '!';
    memset(conn, 0, dlock_backend_redis.conn_size);
    fuzz_server_says(naked ? "" : RESP_GREETING, data, size);
    int rc = dlock_backend_redis.connect(conn, naked ? &strict : &plain, &fuzz_peer,
                                         naked ? FUZZ_TIMEOUT_MS : FUZZ_CONNECT_MS, &err);
    fuzz_require(naked || rc == 0, "the greeting of an honest server");
    fuzz_connected(&dlock_backend_redis, conn, rc, &err, told, script + naked);
    return 0;
}
