/* A backend that is broken on purpose: it grants every lock to every client, always with the same fence. */
#include <dlock/backend.h>

static int everybody_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                             struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void everybody_disconnect(void *conn) {
    (void)conn;
}

static int everybody_agree(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                           struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) {
        claims[i]->fence = 1;
        claims[i]->result = 0;
    }
    return 0;
}

static const char *const schemes[] = {"everybody", NULL};

DLOCK_BACKEND(everybody) = {.abi = DLOCK_ABI,
                            .size = sizeof(struct dlock_backend),
                            .name = "everybody",
                            .schemes = schemes,
                            .conn_size = 1,
                            .connect = everybody_connect,
                            .disconnect = everybody_disconnect,
                            .acquire = everybody_agree,
                            .renew = everybody_agree,
                            .release = everybody_agree};
