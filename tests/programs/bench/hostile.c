/* A backend whose texts attack the HTML page that contains them. */
#include <dlock/backend.h>

static const char words[] = "</script></title><!--<img src=x onerror=alert(1)>&\"'\xff";

static int hostile_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                           struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void hostile_disconnect(void *conn) {
    (void)conn;
}

static int hostile_refuse(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                          struct dlock_error *err) {
    (void)conn, (void)claims, (void)n, (void)timeout_ms;
    return dlock_fail(err, DLOCK_EAUTH, "%s", words);
}

static int hostile_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const struct dlock_finding finding = {sizeof finding, DLOCK_WEAK, words, words};
    (void)conn, (void)timeout_ms, (void)err;
    each(&finding, arg);
    return 0;
}

static const char *const schemes[] = {"hostile", NULL};

DLOCK_BACKEND(hostile) = {.abi = DLOCK_ABI,
                          .size = sizeof(struct dlock_backend),
                          .name = "hostile",
                          .schemes = schemes,
                          .conn_size = 1,
                          .connect = hostile_connect,
                          .disconnect = hostile_disconnect,
                          .acquire = hostile_refuse,
                          .renew = hostile_refuse,
                          .release = hostile_refuse,
                          .check = hostile_check};
