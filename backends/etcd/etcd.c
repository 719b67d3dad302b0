/* The backend's table, and connections. */
#include "etcd.h"

#include <openssl/crypto.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode begun;

/* Initializes the process-wide state of OpenSSL, libcurl and jansson, under pthread_once(). OpenSSL first, since its first
 * user decides what exit() does, also for other backends: it must not free what dlock's threads still use. */
static void begin_libraries(void) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    begun = curl_global_init(CURL_GLOBAL_DEFAULT);
    json_object_seed(0);
}

static struct etcd *etcd_new(void) {
    struct etcd *z = calloc(1, sizeof *z);
    if (!z) return NULL;
    z->poll_fd = z->timer_fd = z->event_fd = -1;
    z->failed_us = INT64_MIN / 2;
    pthread_mutex_init(&z->mutex, NULL);
    pthread_mutex_init(&z->watch_mutex, NULL);
    return z;
}

/* The grant of a lease shows that the members have a majority, and that they accept the user. They refuse it without space,
 * but not that locks are looked at. */
static int etcd_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                        struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct etcd_lease lease;
    pthread_once(&once, begin_libraries);
    struct etcd *z = begun == CURLE_OK ? etcd_new() : NULL;
    *(struct etcd **)conn = z;
    if (!z) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection to etcd");
    z->peer = peer;
    int rc = etcd_address(z, uri, err);
    if (rc == 0) rc = etcd_watches_begin(z, err);
    if (rc == 0) rc = etcd_authenticate(z, deadline_us, err);
    if (rc == 0) rc = etcd_lease(z, ETCD_KEEP_SHARE, deadline_us, &lease, err);
    return rc == DLOCK_EUNAVAILABLE && atomic_load(&z->full) ? 0 : rc;
}

/* The lease is left to expire: all its claims have been released already. */
static void etcd_disconnect(void *conn) {
    struct etcd *z = etcd_of(conn);
    struct dlock_http_signals signals;
    *(struct etcd **)conn = NULL; /* cleared first, since a child forked during cleanup reads it */
    atomic_signal_fence(memory_order_seq_cst);
    if (!z) return;
    dlock_http_quiet(&z->http, &signals);
    etcd_watches_free(z);
    etcd_requests_free(z);
    dlock_http_loud(&z->http, &signals);
    if (z->token) explicit_bzero(z->token, strlen(z->token));
    free(z->token);
    etcd_address_free(&z->address);
    dlock_http_end(&z->http);
    pthread_mutex_destroy(&z->mutex);
    pthread_mutex_destroy(&z->watch_mutex);
    free(z);
}

static void etcd_abandon(void *conn) {
    struct etcd *z = etcd_of(conn);
    if (!z) return;
    dlock_http_abandon(&z->http);
    if (z->poll_fd >= 0) close(z->poll_fd);
    if (z->timer_fd >= 0) close(z->timer_fd);
    if (z->event_fd >= 0) close(z->event_fd);
}

static const char *const schemes[] = {"etcd", "etcd+tls", NULL};
static const char *const keys[] = {"session", DLOCK_TLS_KEYS, NULL};

DLOCK_BACKEND(etcd) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "etcd",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE |
            DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct etcd *),
    .connect = etcd_connect,
    .disconnect = etcd_disconnect,
    .acquire = etcd_acquire,
    .renew = etcd_renew,
    .release = etcd_release,
    .abandon = etcd_abandon,
    .listen = etcd_listen,
    .wake = etcd_wake,
    .inspect = etcd_inspect,
    .waiters = etcd_waiters,
    .list = etcd_list,
    .break_lock = etcd_break,
    .check = etcd_check,
    .accepts = etcd_accepts,
};
