/* The operation table, and connections. */
#include "memcached.h"

#define DEFAULT_PORT 11211

/* ---- connections ------------------------------------------------------------------------------------------------- */

static int try_address(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                       struct dlock_error *err) {
    int rc = memcached_dial(memcached, address, deadline_us, err);
    if (rc) return rc;
    rc = memcached_log_in(memcached, address, deadline_us, err);
    if (rc == 0) rc = memcached_ask_facts(memcached, deadline_us, err);
    if (rc == 0) return 0;
    if (rc == DLOCK_EPROTO || !memcached->wire.heard) memcached_doubt(address, err);
    memcached_hang_up(memcached);
    return rc;
}

static int memcached_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                             struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    const size_t n = uri->n_hosts ? uri->n_hosts : 1;
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct memcached *memcached = conn;
    struct memcached_address address;
    struct dlock_error last;
    int rc = memcached_address(uri, &address, err);
    memcached->peer = peer;
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        /* Each address gets its share of the time, so that a silent one leaves time for those after it. */
        int64_t now_us = dlock_now_us(), share_us = (deadline_us - now_us) / (int64_t)(n - i);
        address.host = &hosts[i];
        address.port = hosts[i].port ? hosts[i].port : DEFAULT_PORT;
        rc = try_address(memcached, &address, now_us + share_us, &last);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) break;
    }
    if (rc && err) *err = last;
    return rc;
}

static void memcached_disconnect(void *conn) {
    memcached_hang_up(conn);
}

static const char *const keys[] = {WIRE_KEYS NULL};

/* The same source makes three backends, each in a separate module: plain, over TLS, and with SASL. */
#if WIRE_IS_SASL
static const char *const schemes[] = {"memcached+sasl", NULL};
#define NAME "memcached_sasl"
#define LIST NULL /* the binary protocol shows no keys */
DLOCK_BACKEND(memcached_sasl) = {
#elif DLOCK_STREAM_IS_TLS
static const char *const schemes[] = {"memcached+tls", NULL};
#define NAME "memcached_tls"
#define LIST memcached_list
DLOCK_BACKEND(memcached_tls) = {
#else
static const char *const schemes[] = {"memcached", "memcached+unix", NULL};
#define NAME "memcached"
#define LIST memcached_list
DLOCK_BACKEND(memcached) = {
#endif
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = NAME,
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | (WIRE_IS_SASL ? 0 : DLOCK_CAP_LIST) | DLOCK_CAP_FENCE | DLOCK_CAP_SHARED |
            DLOCK_CAP_PERMIT | DLOCK_CAP_INSPECT | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE,
    .conn_size = sizeof(struct memcached),
    .connect = memcached_connect,
    .disconnect = memcached_disconnect,
    .acquire = memcached_acquire,
    .renew = memcached_renew,
    .release = memcached_release,
    .abandon = memcached_abandon,
    .inspect = memcached_inspect,
    .list = LIST,
    .break_lock = memcached_break,
    .check = memcached_check,
    .accepts = memcached_accepts,
};
