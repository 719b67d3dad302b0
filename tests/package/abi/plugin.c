/* The source of every test module: a lock server in a few lines of memory, made wrong in one way by its definitions.
 * It is C and C++.
 *
 *   PLUGIN           the backend's name, as a word        PLUGIN_SYMBOL   the word in the symbol, if another
 *   PLUGIN_ABI       if not DLOCK_ABI                     PLUGIN_RENEW    if not the operation: NULL
 *   PLUGIN_SCHEMES   if not PLUGIN, as strings            PLUGIN_GONE     needs a library that is not there
 */
#include <dlock/backend.h>

#define STRING_OF(word) #word
#define STRING(word) STRING_OF(word)
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)
#define DEFINE(name) DLOCK_BACKEND(name)

#ifndef PLUGIN_ABI
#define PLUGIN_ABI DLOCK_ABI
#endif
#ifndef PLUGIN_SYMBOL
#define PLUGIN_SYMBOL PLUGIN
#endif
#ifndef PLUGIN_RENEW
#define PLUGIN_RENEW plugin_done
#endif
#ifndef PLUGIN_SCHEMES
#define PLUGIN_SCHEMES STRING(PLUGIN)
#endif

#ifdef PLUGIN_GONE
int dlock_abi_gone(void);
#endif

struct connection {
    uint64_t fence;
};

static int plugin_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                          struct dlock_error *err) {
    (void)uri, (void)peer, (void)timeout_ms;
    struct connection *connection = (struct connection *)conn;
    if (connection->fence != 0) return dlock_fail(err, DLOCK_EPROTO, "the connection was not zeroed");
#ifdef PLUGIN_GONE
    connection->fence = (uint64_t)dlock_abi_gone();
#endif
    return DLOCK_OK;
}

static void plugin_disconnect(void *conn) {
    (void)conn;
}

static int plugin_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                          struct dlock_error *err) {
    (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) {
        claims[i]->fence = ++((struct connection *)conn)->fence;
        claims[i]->result = DLOCK_OK;
    }
    return DLOCK_OK;
}

/* Renews and releases. */
static int plugin_done(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_OK;
    return DLOCK_OK;
}

static const char *const plugin_schemes[] = {PLUGIN_SCHEMES, NULL};
static const char *const plugin_keys[] = {"key", NULL};

DEFINE(PLUGIN_SYMBOL) = {
    PLUGIN_ABI,
    sizeof(struct dlock_backend),
    STRING(PLUGIN),
    plugin_schemes,
    plugin_keys,
    0,
    sizeof(struct connection),
    plugin_connect,
    plugin_disconnect,
    plugin_acquire,
    PLUGIN_RENEW,
    plugin_done,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
};
