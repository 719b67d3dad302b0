/* A backend that is broken on purpose: it grants every lock to every client, always with the same fence. With
 * EVERYBODY_WAITS_MS in the environment each grant takes so long. */
#include <dlock/backend.h>

#include <stdlib.h>
#include <unistd.h>

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

static int everybody_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                             struct dlock_error *err) {
    const char *waits_ms = getenv("EVERYBODY_WAITS_MS");
    if (waits_ms) usleep((useconds_t)atoi(waits_ms) * 1000);
    return everybody_agree(conn, claims, n, timeout_ms, err);
}

static const char *const schemes[] = {"everybody", NULL};

DLOCK_BACKEND(everybody) = {.abi = DLOCK_ABI,
                            .size = sizeof(struct dlock_backend),
                            .name = "everybody",
                            .schemes = schemes,
                            .conn_size = 1,
                            .connect = everybody_connect,
                            .disconnect = everybody_disconnect,
                            .acquire = everybody_acquire,
                            .renew = everybody_agree,
                            .release = everybody_agree};
