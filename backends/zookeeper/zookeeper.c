/* The backend's table, and the life of a session. */
#include "zookeeper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- the session's state ----------------------------------------------------------------------------------------- */

static bool is_dead(const struct zookeeper *z) {
    return z->state == ZOOKEEPER_EXPIRED || z->state == ZOOKEEPER_NOT_ALLOWED;
}

void zookeeper_died(struct zookeeper *z, enum zookeeper_state how) {
    if (is_dead(z)) return;
    z->state = how;
    zookeeper_wake_queue(z, DLOCK_WAKE_LOST, NULL, NULL);
    pthread_cond_broadcast(&z->changed);
}

static void connected(struct zookeeper *z, zhandle_t *handle) {
    if (is_dead(z)) return;
    z->state = ZOOKEEPER_CONNECTED;
    z->session = (uint64_t)zoo_client_id(handle)->client_id;
    z->session_ms = zoo_recv_timeout(handle);
    if (z->session == 0 || z->session_ms <= 0) { /* what is said of sessions that have ended */
        zookeeper_died(z, ZOOKEEPER_EXPIRED);
        return;
    }
    if (z->was_connected) zookeeper_wake_queue(z, DLOCK_WAKE_LOOK, NULL, NULL); /* whatever was missed meanwhile */
    z->was_connected = true;
}

static void on_session(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct zookeeper *z = context;
    (void)path;
    if (type != ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&z->mutex);
    if (state == ZOO_CONNECTED_STATE)
        connected(z, handle);
    else if (state == ZOO_EXPIRED_SESSION_STATE)
        zookeeper_died(z, ZOOKEEPER_EXPIRED);
    else if (state == ZOO_AUTH_FAILED_STATE)
        zookeeper_died(z, ZOOKEEPER_NOT_ALLOWED);
    else if (!is_dead(z))
        z->state = ZOOKEEPER_CONNECTING;
    pthread_cond_broadcast(&z->changed);
    pthread_mutex_unlock(&z->mutex);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static int prepare(struct zookeeper *z, const struct dlock_peer *peer, struct dlock_error *err) {
    z->peer = peer;
    z->wakes_end = &z->wakes;
    z->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (z->event_fd < 0) return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left; raise the limit (ulimit -n)");
    pthread_mutex_init(&z->mutex, NULL);
    zookeeper_cond_init(&z->changed);
    z->made = true;
    return zookeeper_guard_init(z, err);
}

static int open_handle(struct zookeeper *z, const struct zookeeper_address *address, struct dlock_error *err) {
    z->handle = zookeeper_guarded_init(z, address->hosts, on_session, address->session_ms);
    if (z->handle) {
        zoo_set_servers_resolution_delay(z->handle, -1);
        return 0;
    }
    int code = errno == EINVAL ? DLOCK_EINVAL : errno == ENOMEM || errno == EMFILE ? DLOCK_ENOMEM : DLOCK_EUNAVAILABLE;
    return dlock_fail(err, code, "cannot begin a session with ZooKeeper at %s: %s", z->where, strerror(errno));
}

/* AGAIN: the connection broke, or the answer says nothing. */
enum { AGAIN = 1 };

static int try_write(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err) {
    bool dead;
    int rc = zookeeper_ready(z, deadline_us, &dead, err);
    if (rc != 0) return rc;
    struct zookeeper_call *call = zookeeper_call(z, 1);
    if (!call) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a request");
    struct zookeeper_request *write = zookeeper_ask_write(call);
    zookeeper_call_wait(call, deadline_us);
    if (zookeeper_written(write))
        zookeeper_wrote(z, call->sent_us);
    else if (zookeeper_unknown(write->rc) && dlock_now_us() < deadline_us)
        rc = AGAIN;
    else
        rc = zookeeper_refused(z, write->rc, "write to", "/", err);
    zookeeper_call_end(call);
    return rc;
}

/* One write: the credentials are all right, and a majority is there. */
static int check(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err) {
    bool dead;
    int rc;
    while ((rc = try_write(z, deadline_us, err)) == AGAIN) zookeeper_pause(z);
    zookeeper_ready(z, 0, &dead, NULL);
    return dead ? zookeeper_ready(z, 0, &dead, err) : rc; /* which knows best */
}

static int zookeeper_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                             struct dlock_error *err) {
    struct zookeeper *z = conn;
    struct zookeeper_address address = {NULL, 0};
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = zookeeper_address(z, uri, &address, err);
    if (rc == 0) rc = prepare(z, peer, err);
    if (rc == 0) rc = open_handle(z, &address, err);
    if (rc == 0) rc = zookeeper_credentials(z, uri, deadline_us, err);
    if (rc == 0) rc = check(z, deadline_us, err);
    free(address.hosts);
    return rc;
}

static void zookeeper_disconnect(void *conn) {
    struct zookeeper *z = conn;
    if (!z->made) return;
    if (z->handle) zookeeper_guarded_close(z);
    zookeeper_guard_end(z);
    zookeeper_calls_free(z);
    zookeeper_watches_free(z);
    close(z->event_fd);
    pthread_cond_destroy(&z->changed);
    pthread_mutex_destroy(&z->mutex);
}

static void zookeeper_abandon(void *conn) {
    struct zookeeper *z = conn;
    if (!z->made) return;
    zookeeper_guard_abandon(z);
    close(z->event_fd);
}

static const char *const schemes[] = {"zookeeper", NULL};
static const char *const keys[] = {"session", "auth*", "acl", "curator", NULL};

DLOCK_BACKEND(zookeeper) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "zookeeper",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE |
            DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_WANTED | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST |
            DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct zookeeper),
    .connect = zookeeper_connect,
    .disconnect = zookeeper_disconnect,
    .acquire = zookeeper_acquire,
    .renew = zookeeper_renew,
    .release = zookeeper_release,
    .abandon = zookeeper_abandon,
    .listen = zookeeper_listen,
    .wake = zookeeper_wake,
    .inspect = zookeeper_inspect,
    .list = zookeeper_list,
    .break_lock = zookeeper_break,
    .check = zookeeper_check,
    .accepts = zookeeper_accepts,
};
