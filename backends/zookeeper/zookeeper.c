/* The backend's table, and connections. */
#include "zookeeper.h"

#include <stdatomic.h>
#include <unistd.h>

/* The connection broke or the answer said nothing: to be tried again. */
enum { AGAIN = 1 };

enum { EXPLAIN_SHARE = 10 };

static int try_write(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err) {
    bool dead;
    int rc = zookeeper_ready(z, deadline_us, &dead, err);
    if (rc != 0) return rc;
    struct zookeeper_call *call = zookeeper_call(z, 1);
    if (!call) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a request");
    struct zookeeper_request *write = zookeeper_ask_write(call);
    zookeeper_call_wait(call, deadline_us);
    if (zookeeper_committed(write))
        zookeeper_wrote(z, call->sent_us);
    else if (zookeeper_unknown(write->rc) && dlock_now_us() < deadline_us)
        rc = AGAIN;
    else
        rc = zookeeper_refused(z, write->rc, "write to", "/", err);
    zookeeper_call_end(call);
    return rc;
}

/* Writes once, which shows that the credentials are accepted and that the ensemble has a majority. */
static int check(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err) {
    bool dead;
    int rc;
    while ((rc = try_write(z, deadline_us, err)) == AGAIN) zookeeper_pause(z);
    zookeeper_ready(z, 0, &dead, NULL);
    return dead ? zookeeper_ready(z, 0, &dead, err) : rc; /* its error says most */
}

static bool began(struct zookeeper *z) {
    pthread_mutex_lock(&z->mutex);
    bool began = z->was_connected;
    pthread_mutex_unlock(&z->mutex);
    return began;
}

static int begin(struct zookeeper *z, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    int rc = zookeeper_open(z, deadline_us, err);
    if (rc == 0) rc = zookeeper_credentials(z, uri, deadline_us, err);
    return rc == 0 ? check(z, deadline_us, err) : rc;
}

static int zookeeper_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                             struct dlock_error *err) {
    /* A tenth of the time is kept for finding out why there was no session. */
    int64_t deadline_us = dlock_deadline_us(timeout_ms), rest_us = (int64_t)timeout_ms * 1000 / EXPLAIN_SHARE;
    struct zookeeper *z = zookeeper_new(err);
    *(struct zookeeper **)conn = z;
    if (!z) return DLOCK_ENOMEM;
    z->peer = peer;
    int rc = zookeeper_address(z, uri, err);
    if (rc == 0) rc = begin(z, uri, deadline_us - rest_us, err);
    return rc == DLOCK_EUNAVAILABLE ? zookeeper_explain(z, uri, began(z), deadline_us, err) : rc;
}

static void zookeeper_disconnect(void *conn) {
    struct zookeeper *z = zookeeper_of(conn);
    *(struct zookeeper **)conn = NULL; /* cleared first, since a child forked during cleanup reads it */
    atomic_signal_fence(memory_order_seq_cst);
    if (z) zookeeper_leave_session(z);
}

/* The library's descriptors are hidden, and copies of them do no harm: a session lives by what its client sends. */
static void zookeeper_abandon(void *conn) {
    struct zookeeper *z = zookeeper_of(conn);
    if (z) close(z->event_fd);
}

static const char *const schemes[] = {"zookeeper", NULL};
static const char *const keys[] = {"session", "auth*", "acl", "curator", NULL};

DLOCK_BACKEND(zookeeper) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "zookeeper",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE |
            DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_WANTED | DLOCK_CAP_INSPECT |
            DLOCK_CAP_LIST | DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct zookeeper *),
    .connect = zookeeper_connect,
    .disconnect = zookeeper_disconnect,
    .acquire = zookeeper_acquire,
    .renew = zookeeper_renew,
    .release = zookeeper_release,
    .abandon = zookeeper_abandon,
    .listen = zookeeper_listen,
    .wake = zookeeper_wake,
    .inspect = zookeeper_inspect,
    .waiters = zookeeper_waiters,
    .list = zookeeper_list,
    .break_lock = zookeeper_break,
    .check = zookeeper_check,
    .accepts = zookeeper_accepts,
};
