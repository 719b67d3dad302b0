/* One connection: opening it, closing it, and, of PENDING backends, watching its descriptor. */
#include "base/probe.h"
#include "io/io.h"
#include "plugin/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static const struct dlock__conn *conn_of(const struct dlock_peer *peer) {
    return (const struct dlock__conn *)(const void *)((const char *)peer - offsetof(struct dlock__conn, peer));
}

static void peer_log(const struct dlock_peer *peer, int level, const char *message) {
    dlock__log(conn_of(peer)->client, level, "%s", message);
}

static int connect_by(struct dlock_client *client, bool lookup, dlock_connect *connect, const struct dlock_peer *peer,
                      void *data, int64_t deadline_us, struct dlock_error *err) {
    const struct dlock__server server = {client->uri, client->module, client->resolver, client->base_caps};
    return dlock__server_connect(&server, lookup, connect, peer, data, deadline_us, err);
}

static int connect_again(const struct dlock_peer *peer, dlock_connect *connect, void *data, int timeout_ms,
                         struct dlock_error *err) {
    int64_t deadline_us = dlock__now_us() + dlock__us(timeout_ms);
    return connect_by(conn_of(peer)->client, true, connect, peer, data, deadline_us, err);
}

struct dlock__conn *dlock__conn_new(struct dlock_client *client) {
    struct dlock__conn *conn = calloc(1, sizeof *conn + client->backend->conn_size);
    if (!conn) return NULL;
    conn->client = client;
    conn->fd = -1;
    conn->rest_us = DLOCK__NEVER;
    conn->peer.abi = DLOCK_ABI;
    conn->peer.client = client->id;
    conn->peer.quarantine_ms = client->quarantine_ms;
    conn->peer.prefix = client->uri->prefix;
    conn->peer.log = peer_log;
    conn->peer.open_member = dlock__member_open;
    conn->peer.connect_again = connect_again;
    conn->all = client->pool.conns;
    client->pool.conns = conn;
    return conn;
}

/* Ends the watch of the connection's descriptor. Closing the descriptor would not: copies of it, in a guardian or a
 * forked child, keep it watched. The descriptor is compared first, since the backend may have closed it and its number
 * may belong to another connection by now. */
static void watch_end(struct dlock__conn *conn) {
    int fd = -1;
    if (conn->fd >= 0 && conn->client->backend->listen(conn->data, &fd, 1, NULL) == 0 && fd == conn->fd)
        epoll_ctl(conn->client->pool.watch, EPOLL_CTL_DEL, fd, NULL);
    conn->fd = -1;
}

static void disconnect(struct dlock__conn *conn) {
    watch_end(conn);
    conn->client->backend->disconnect(conn->data);
    atomic_store(&conn->live, false);
    dlock__resolver_stale(conn->client->resolver); /* the server may have moved */
}

/* PENDING: begins to watch the connection for messages from the server. */
static int watch_begin(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = conn};
    int fd = -1, rc = client->backend->listen(conn->data, &fd, dlock__timeout_ms(dlock__now_us(), deadline_us), err);
    rc = dlock__about_connection(client->backend, "listen", rc, err);
    if (rc == 0 && fd < 0) rc = dlock_fail(err, DLOCK_EPROTO, "the backend's listen gave no descriptor");
    if (rc == 0 && epoll_ctl(client->pool.watch, EPOLL_CTL_ADD, fd, &event) != 0)
        rc = dlock_fail(err, DLOCK_ENOMEM, "a connection cannot be watched: %s", strerror(errno));
    if (rc == 0)
        conn->fd = fd;
    else
        disconnect(conn);
    return rc;
}

static int connect_anew(struct dlock__conn *conn, int64_t deadline_us, bool lookup, struct dlock_error *err) {
    const struct dlock_backend *backend = conn->client->backend;
    memset(conn->data, 0, backend->conn_size);
    atomic_store(&conn->live, true);
    int rc = connect_by(conn->client, lookup, backend->connect, &conn->peer, conn->data, deadline_us, err);
    if (rc != 0) disconnect(conn);
    return rc;
}

int dlock__conn_ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    if (conn->connected) return 0;
    bool lookup = atomic_load(&client->keeper.id) != dlock__thread_id(); /* the keeper waits for no name server */
    bool watch = client->pool.watch >= 0 && conn != client->listener.conn;
    conn->watched = false; /* not in watch_end(), which lacks the mutex that the keeper writes it with */
    dlock__leave(client);
    int rc = connect_anew(conn, deadline_us, lookup, err);
    if (rc == 0 && watch) rc = watch_begin(conn, deadline_us, err);
    dlock__enter(client);
    conn->connected = rc == 0;
    if (rc == 0) {
        if (conn->broken) {
            client->stats.reconnects++;
            DLOCK__PROBE3(reconnect, client->backend->name, (const char *)client->id, client->stats.reconnects);
        }
        conn->broken = false;
    }
    return rc;
}

void dlock__conn_close(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    bool busy = conn->busy;
    conn->connected = false;
    if (!atomic_load(&conn->live)) return;
    conn->busy = true;
    dlock__leave(client);
    disconnect(conn);
    dlock__enter(client);
    conn->busy = busy;
}

void dlock__conn_drop(struct dlock__conn *conn) {
    conn->broken = true;
    dlock__conn_close(conn);
    dlock__connection_epoch_ended(conn->client);
}

/* ---- watching connections on which the server speaks unasked: PENDING ---- */

enum { SOON_US = 10000 };

int dlock__watch_open(struct dlock_client *client, struct dlock_error *err) {
    if (!dlock__can(client, DLOCK_CAP_PENDING)) return 0;
    client->pool.watch = epoll_create1(EPOLL_CLOEXEC);
    if (client->pool.watch >= 0) return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left for a client; raise the limit (ulimit -n)");
}

/* Has the keeper watch the connection, in its next round or within SOON_US. */
static void watch_later(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    dlock__keeper_arm(client, dlock__now(client) + SOON_US);
    if (conn->unwatched) return;
    conn->unwatched = true;
    conn->next_unwatched = client->pool.unwatched;
    client->pool.unwatched = conn;
}

/* If the kernel has no memory to begin the watch it is tried again later, since nothing else would notice the grant. If
 * it cannot end the watch, events are ignored while a call is in progress on the connection. */
void dlock__watch(struct dlock__conn *conn, bool on) {
    struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = conn};
    if (conn->fd < 0 || conn->watched == on) return;
    if (on) event.events |= EPOLLIN | EPOLLRDHUP;
    if (epoll_ctl(conn->client->pool.watch, EPOLL_CTL_MOD, conn->fd, &event) == 0)
        conn->watched = on;
    else if (on)
        watch_later(conn);
}

void dlock__watch_soon(struct dlock__conn *conn) {
    if (conn->fd < 0) return;
    if (conn->ended_us == 0 || dlock__now(conn->client) - conn->ended_us > SOON_US)
        dlock__watch(conn, true);
    else
        watch_later(conn);
}

void dlock__watch_due(struct dlock_client *client) {
    struct dlock__conn *conn = client->pool.unwatched, *next;
    client->pool.unwatched = NULL; /* some may be added again */
    for (; conn; conn = next) {
        next = conn->next_unwatched;
        conn->unwatched = false;
        bool carries = conn->acq && (conn->waiting || dlock__acq_renewable(conn->acq));
        if (carries && !conn->busy) dlock__watch(conn, true);
    }
}
