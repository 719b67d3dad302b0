/* One connection: opening it, closing it, and the calls of batch operations. */
#include "base/probe.h"
#include "io/io.h"
#include "plugin/server.h"

#include <stdlib.h>
#include <string.h>

static const struct dlock__conn *conn_of(const struct dlock_peer *peer) {
    return (const struct dlock__conn *)(const void *)((const char *)peer - offsetof(struct dlock__conn, peer));
}

static void peer_log(const struct dlock_peer *peer, int level, const char *message) {
    dlock__log(conn_of(peer)->client, level, "%s", message);
}

/* The keeper waits for no name server. */
static bool may_wait(const struct dlock_client *client) {
    return atomic_load(&client->keeper.id) != dlock__thread_id();
}

static int connect_to(const struct dlock_peer *peer, const char *host, int port, bool lookup, dlock_connect *connect,
                      void *data, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn_of(peer)->client;
    const struct dlock__server server = {client->uri, client->module, client->resolver, client->base_caps};
    return dlock__server_connect(&server, host, port, lookup, connect, peer, data, deadline_us, err);
}

static int connect_again(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *data,
                         int timeout_ms, struct dlock_error *err) {
    bool lookup = !host || may_wait(conn_of(peer)->client);
    return connect_to(peer, host, port, lookup, connect, data, dlock__now_us() + dlock__us(timeout_ms), err);
}

struct dlock__conn *dlock__conn_new(struct dlock_client *client) {
    struct dlock__conn *conn = calloc(1, sizeof *conn + client->backend->conn_size);
    if (!conn) return NULL;
    conn->client = client;
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

static void disconnect(struct dlock__conn *conn) {
    conn->client->backend->disconnect(conn->data);
    atomic_store(&conn->live, false);
    dlock__resolver_stale(conn->client->resolver); /* the server may have moved */
}

static int connect_anew(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    const struct dlock_backend *backend = conn->client->backend;
    memset(conn->data, 0, backend->conn_size);
    atomic_store(&conn->live, true);
    const bool lookup = may_wait(conn->client);
    int rc = connect_to(&conn->peer, NULL, 0, lookup, backend->connect, conn->data, deadline_us, err);
    if (rc != 0) disconnect(conn);
    return rc;
}

int dlock__conn_ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    if (conn->connected) return 0;
    dlock__leave(client);
    int rc = connect_anew(conn, deadline_us, err);
    dlock__enter(client);
    conn->connected = rc == 0;
    if (rc == 0) {
        dlock__stats_answered(client);
        if (conn->broken) {
            client->stats.reconnects++;
            DLOCK__PROBE3(reconnect, client->backend->name, (const char *)client->id, client->stats.reconnects);
            dlock__tell(client, DLOCK_EVENT_RECONNECTED);
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

int dlock__conn_call(struct dlock__conn *conn, enum dlock__op_kind kind, struct dlock_claim *const *args, size_t n,
                     int64_t deadline_us, int64_t *sent_us, struct dlock_error *err) {
    static const char *const words[] = {"acquire", "renew", "release"};
    struct dlock_client *client = conn->client;
    int64_t now = *sent_us = dlock__now(client);
    dlock__leave(client);
    int rc = dlock__conn_batch(client, kind)(conn->data, args, n, dlock__timeout_ms(now, deadline_us), err);
    dlock__enter(client);
    if (rc != 0) return dlock__about_connection(client->backend, words[kind], rc, err);
    dlock__stats_answered(client);
    return 0;
}
