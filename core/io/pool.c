/* Which connection a request gets: the only one (THREADSAFE), or one of as many as `connections` says. */
#include "io/io.h"

/* ---- connections ---- */

static bool threadsafe(const struct dlock_client *client) {
    return dlock__can(client, DLOCK_CAP_THREADSAFE);
}

static void shared_close_if_unused(struct dlock__conn *conn) {
    if (conn->users > 0 || conn->connected || conn->busy) return;
    dlock__conn_close(conn);
    pthread_cond_broadcast(&conn->client->changed);
}

static int shared_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **out,
                       struct dlock_error *err) {
    if (!client->pool.shared) client->pool.shared = dlock__conn_new(client);
    struct dlock__conn *conn = client->pool.shared;
    if (!conn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection");
    while (conn->busy || (!conn->connected && conn->users > 0)) {
        if (dlock__now(client) >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "the connection was not ready in time");
        dlock__wait(client, &client->changed, deadline_us);
    }
    if (!conn->connected) {
        conn->busy = true;
        int rc = dlock__conn_ready(conn, deadline_us, err);
        conn->busy = false;
        pthread_cond_broadcast(&client->changed);
        if (rc != 0) return rc;
    }
    conn->users++;
    *out = conn;
    return 0;
}

static void shared_give(struct dlock__conn *conn, int rc) {
    struct dlock_client *client = conn->client;
    if (rc != 0 && conn->connected) {
        conn->connected = false;
        conn->broken = true;
        dlock__connection_epoch_ended(client);
        dlock__keeper_kick(client); /* the keeper drops the listener on it */
    }
    conn->users--;
    if (!conn->connected) pthread_cond_broadcast(&client->changed);
    shared_close_if_unused(conn);
}

struct dlock__conn *dlock__pool_pick(struct dlock_client *client) {
    struct dlock__conn *conn = client->pool.idle;
    if (conn) {
        client->pool.idle = conn->idle;
        return conn;
    }
    if (client->pool.n >= client->uri->connections) return NULL;
    conn = dlock__conn_new(client);
    if (conn) client->pool.n++;
    return conn;
}

void dlock__pool_unqueue(struct dlock_client *client, struct dlock__acquisition *acq) {
    struct dlock__acquisition **at = &client->ops.pending, *before = NULL;
    while (*at != acq) {
        before = *at;
        at = &(*at)->op->next;
    }
    *at = acq->op->next;
    client->ops.n_pending--;
    if (client->ops.last == acq) client->ops.last = before;
}

/* The first waiting operation that no thread will take along in its batch. */
static struct dlock__acquisition *first_pending(struct dlock_client *client) {
    struct dlock__acquisition *acq = client->ops.pending;
    while (acq && client->ops.coalescing[acq->op->kind]) acq = acq->op->next;
    return acq;
}

void dlock__pool_put_back(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    bool borrows = client->keeper.borrows && conn->connected; /* the keeper takes no other one */
    struct dlock__acquisition *first = borrows ? NULL : first_pending(client);
    if (!first) {
        conn->idle = client->pool.idle;
        client->pool.idle = conn;
        pthread_cond_broadcast(&client->changed);
        return;
    }
    dlock__pool_unqueue(client, first);
    first->op->conn = conn;
    dlock__bell_ring(client, first->op->bell);
}

/* Gives free connections to waiting operations, unless the keeper waits for one: it goes first. */
void dlock__pool_hand_out(struct dlock_client *client) {
    struct dlock__conn *conn;
    while (!client->keeper.borrows && first_pending(client) && (conn = dlock__pool_pick(client)))
        dlock__pool_put_back(conn);
}

/* ---- connections for other uses than acquisitions ---- */

int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **out,
                     struct dlock_error *err) {
    deadline_us = dlock__bounded(client, deadline_us);
    if (threadsafe(client)) return shared_take(client, deadline_us, out, err);
    struct dlock__conn *conn;
    while (!(conn = dlock__pool_pick(client))) {
        if (dlock__now(client) >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "no free connection in time: all %u are busy",
                              client->uri->connections);
        dlock__wait(client, &client->changed, deadline_us);
    }
    int rc = dlock__conn_ready(conn, deadline_us, err);
    if (rc != 0) {
        dlock__pool_put_back(conn);
        return rc;
    }
    *out = conn;
    return 0;
}

void dlock__pool_give(struct dlock__conn *conn, int rc) {
    if (threadsafe(conn->client)) {
        shared_give(conn, rc);
        return;
    }
    if (rc != 0) dlock__conn_drop(conn);
    dlock__pool_put_back(conn);
}

/* Takes a connected one out of `idle`. *in_use: others are in use, and may become free. */
static struct dlock__conn *pick_connected(struct dlock_client *client, bool *in_use) {
    struct dlock__conn **at = &client->pool.idle, *conn;
    unsigned n = 0;
    for (; *at && !(*at)->connected; at = &(*at)->idle) n++;
    *in_use = n < client->pool.n;
    if ((conn = *at)) *at = conn->idle;
    return conn;
}

struct dlock__conn *dlock__pool_borrow(struct dlock_client *client, int64_t deadline_us) {
    struct dlock__conn *conn;
    bool in_use;
    client->keeper.borrows = true;
    while (!(conn = pick_connected(client, &in_use)) && in_use && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    client->keeper.borrows = false;
    dlock__pool_hand_out(client); /* more than one may have become idle */
    return conn;
}
