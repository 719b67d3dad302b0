/* redis+sentinel: the answers of three Sentinels about their master. These, and the master's answers after an honest
 * greeting, are separated by "---" and a newline. If the script begins with '!', the URI has a user and a password for
 * the Sentinels; with '?' there is a quarantine, for which a majority of them is needed. */
#include "operate.h"
#include "resp.h"

#include <sentinel.h>

enum { SENTINELS = 3 };

extern const struct dlock_backend dlock_backend_redis;

static void check_master(const struct redis_master *master) {
    fuzz_require(redis_is_host(master->host), "the master's host");
    fuzz_require(master->port > 0 && master->port < 65536, "the master's port");
}

static bool votes_for(const struct redis_named *master, const struct redis_sentinel *sentinel) {
    return sentinel->said_us && sentinel->said.epoch == master->epoch && sentinel->said.port == master->port &&
           strcmp(sentinel->said.host, master->host) == 0;
}

/* More different Sentinels have named the master than half of those that one of them knows of. */
static void check_majority(const struct redis_sentinels *sentinels) {
    const struct redis_sentinel *each = sentinels->each;
    int votes = 0, others = 0;
    for (size_t i = 0; i < sentinels->n; i++) {
        bool counts = votes_for(&sentinels->master, &each[i]);
        for (size_t j = 0; j < i; j++)
            if (votes_for(&sentinels->master, &each[j]) && strcmp(each[i].id, each[j].id) == 0) counts = false;
        votes += counts;
        if (each[i].said.others > others) others = each[i].said.others;
    }
    fuzz_require(2 * votes > others + 1, "a majority of Sentinels");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static _Alignas(max_align_t) char conn[128 * 1024];
    static const struct dlock_host hosts[SENTINELS] = {{"localhost", "127.0.0.1", 0},
                                                       {"localhost", "::1", 0},
                                                       {"127.0.0.1", "127.0.0.1", 2}};
    static const char *const greetings[SENTINELS + 1] = {"", "", "", RESP_GREETING};
    static const struct dlock_param login[] = {{"sentinel_user", "u"}, {"sentinel_password", FUZZ_PASSWORD}};
    struct dlock_uri uri = {.scheme = REDIS_SENTINEL, .path = "/mymaster", .hosts = hosts, .n_hosts = SENTINELS};
    struct dlock_error err = {0};
    const bool told = fuzz_tells(data, size);
    const struct redis *redis = (const void *)conn;
    char script[32];
    if (dlock_backend_redis.conn_size > sizeof conn || size > 32 * 1024) return 0;
    if (!fuzz_script(&data, &size, script)) return 0;
    resp_expand(&data, &size);
    struct dlock_peer peer = fuzz_peer;
    const bool logs_in = *script == '!', strict = *script == '?';
    if (strict) peer.quarantine_ms = 10000;
    if (logs_in) {
        uri.params = login;
        uri.n_params = sizeof login / sizeof *login;
    }
    memset(conn, 0, dlock_backend_redis.conn_size);
    fuzz_uri = &uri;
    fuzz_servers_say(greetings, SENTINELS + 1, data, size);
    int rc = dlock_backend_redis.connect(conn, &uri, &peer, FUZZ_CONNECT_MS, &err);
    if (rc == 0) check_master(&redis->master);
    if (rc == 0 && strict) check_majority(redis->sentinels);
    fuzz_connected(&dlock_backend_redis, conn, rc, &err, told, script + (logs_in || strict));
    return 0;
}
