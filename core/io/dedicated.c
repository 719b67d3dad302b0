/* Connections that carry one acquisition each, from acquire to release: SESSION without THREADSAFE. A grant ends with
 * its connection, so closing the connection leaves nothing behind of a request that was not answered. */
#include "io/io.h"

enum { SPARE_US = 1000000 }; /* idle connections beyond `connections` are kept for this time */

/* ---- carrying an acquisition ---- */

static void begin(struct dlock__conn *conn, struct dlock__acquisition *acq) {
    conn->acq = acq;
    conn->rest_us = DLOCK__NEVER;
    conn->late = false;
    acq->conn = conn;
}

/* True if enough other connections are idle, so that one more need not be kept. */
static bool enough_without(const struct dlock_client *client) {
    return client->pool.n_idle >= client->uri->connections;
}

/* Sets when the connection is told to rest. That is deferred, since the next acquisition may come before it pays; and
 * usually the keeper's timer is set to an earlier time already. A connection beyond those that are kept is closed then
 * instead, and not at once: a program that takes several locks together soon does so again. */
static void rest_later(struct dlock__conn *conn, const struct dlock__acquisition *acq) {
    struct dlock_client *client = conn->client;
    int64_t pause_us = dlock__us(acq->lease_ms) / 3;
    if (!client->keeper.started || !conn->connected) return;
    if (enough_without(client) && pause_us > SPARE_US) pause_us = SPARE_US;
    conn->rest_us = dlock__after(dlock__now(client), pause_us);
    dlock__keeper_arm(client, conn->rest_us);
}

void dlock__dedicated_end(struct dlock__conn *conn) {
    if (conn->acq) {
        conn->acq->conn = NULL;
        conn->ended_us = dlock__now(conn->client);
        rest_later(conn, conn->acq);
    }
    conn->acq = NULL;
    conn->waiting = false;
    dlock__pool_put_back(conn);
}

/* True if the connection continues to carry the acquisition after this answer. */
static bool stays(const struct dlock_client *client, const struct dlock__op *op) {
    if (op->kind != DLOCK__ACQUIRE) return false;
    return op->arg.result == 0 || (op->arg.result == DLOCK_EBUSY && op->arg.flags & DLOCK_CLAIM_QUEUE &&
                                   dlock__can(client, DLOCK_CAP_PENDING));
}

/* Runs an operation on the connection that carries the acquisition, or an acquire on one that begins to carry it. */
static int run_at_home(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err) {
    struct dlock__acquisition *acq = batch->acqs[0];
    struct dlock_client *client = conn->client;
    bool begins = !acq->conn;
    if (begins) begin(conn, acq);
    conn->busy = true;
    if (!begins) dlock__watch(conn, false);
    if (!begins) dlock__batch_hurry(batch, client);
    int rc = begins ? dlock__batch_run(conn, batch, err) : dlock__batch_send(conn, batch, err);
    bool unknown = dlock__batch_unknown(acq, rc);
    if (unknown && conn->connected) dlock__conn_drop(conn);
    conn->busy = false;
    if (!unknown && stays(client, acq->op)) {
        conn->waiting = acq->op->arg.result == DLOCK_EBUSY;
        if (conn->waiting)
            dlock__watch(conn, true);
        else
            dlock__watch_soon(conn);
    } else {
        dlock__dedicated_end(conn);
    }
    pthread_cond_broadcast(&client->changed);
    return rc;
}

void dlock__dedicated_run(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock__batch batch;
    struct dlock_error err;
    int rc = 0;
    err.code = 0;
    dlock__batch_begin(&batch, &acq, 1);
    while (acq->conn && acq->conn->busy && dlock__now(client) < batch.deadline_us)
        dlock__wait(client, &client->changed, batch.deadline_us);
    struct dlock__conn *conn = acq->conn;
    if (!conn && batch.kind != DLOCK__ACQUIRE) {
        acq->op->arg.result = DLOCK_ELOST;
        acq->op->arg.server_us = 0;
    } else if (dlock__now(client) >= batch.deadline_us) {
        rc = dlock_fail(&err, DLOCK_EUNAVAILABLE, "the connection that the lock lives in was not ready in time");
    } else {
        if (!conn) conn = dlock__pool_pick(client);
        rc = conn ? run_at_home(conn, &batch, &err) : dlock_fail(&err, DLOCK_ENOMEM, "out of memory for a connection");
    }
    dlock__batch_complete(&batch, acq, rc, &err);
}

/* ---- broken, renewed and idle connections ---- */

/* Ends the grant before the connection is closed: after that the server may grant the lock to another client. */
void dlock__dedicated_broke(struct dlock__conn *conn) {
    struct dlock__acquisition *acq = conn->acq;
    conn->connected = false;
    if (acq) {
        conn->acq = NULL;
        acq->conn = NULL;
        if (dlock__acq_renewable(acq))
            dlock__lose(acq);
        else
            dlock__acq_ask_again(acq, dlock__now_us() + DLOCK__RETRY_US);
    }
    dlock__conn_drop(conn);
    dlock__dedicated_end(conn);
    pthread_cond_broadcast(&conn->client->changed);
}

int dlock__dedicated_renew(struct dlock__acquisition *acq, struct dlock_claim **arg, int64_t deadline_us,
                           struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    struct dlock__conn *conn = acq->conn;
    if (!conn || conn->busy || dlock__now(client) >= deadline_us)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the deadline has passed before its renewal",
                          dlock__name_shown(acq->name));
    conn->busy = true;
    int64_t sent_us;
    int rc = dlock__conn_call(conn, DLOCK__RENEW, arg, 1, deadline_us, &sent_us, err);
    conn->busy = false;
    pthread_cond_broadcast(&client->changed);
    if (rc == 0) {
        conn->late = (*arg)->result == DLOCK_EUNAVAILABLE;
        dlock__watch(conn, true);
        return (*arg)->result;
    }
    dlock__dedicated_broke(conn);
    return rc;
}

int64_t dlock__dedicated_rest_at(const struct dlock_client *client) {
    int64_t at_us = DLOCK__NEVER;
    if (!dlock__dedicates(client)) return at_us;
    for (const struct dlock__conn *conn = client->pool.idle; conn; conn = conn->idle)
        if (conn->connected && conn->rest_us < at_us) at_us = conn->rest_us;
    return at_us;
}

void dlock__dedicated_rest(struct dlock_client *client, int64_t now, int64_t deadline_us) {
    struct dlock__conn **at = &client->pool.idle, *conn;
    while (*at && (!(*at)->connected || (*at)->rest_us > now)) at = &(*at)->idle;
    if (!(conn = *at)) return;
    struct dlock_error err;
    *at = conn->idle; /* no other thread uses it now */
    client->pool.n_idle--;
    conn->rest_us = DLOCK__NEVER;
    int rc = 0;
    bool spare = enough_without(client);
    if (!spare && client->backend->rest) {
        dlock__leave(client);
        rc = client->backend->rest(conn->data, dlock__timeout_ms(now, deadline_us), &err);
        dlock__enter(client);
    }
    if (spare || rc != 0) dlock__conn_close(conn);
    dlock__pool_put_back(conn);
}
