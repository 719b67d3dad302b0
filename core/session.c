/* Connections that carry one claim each, from acquire to release: SESSION without THREADSAFE. A grant ends with its
 * connection, so an answer that never came leaves nothing behind once that is closed. */
#include "client.h"

void dlock__session_begin(struct dlock__conn *conn, struct dlock__claim *claim) {
    conn->claim = claim;
    claim->home = conn;
}

void dlock__session_end(struct dlock__conn *conn) {
    if (conn->claim) conn->claim->home = NULL;
    conn->claim = NULL;
    conn->waiting = false;
    dlock__pool_take_back(conn);
}

/* Nobody else uses it meanwhile. */
static void close_conn(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    conn->connected = false;
    conn->busy = true;
    dlock__leave(client);
    dlock__conn_close(conn);
    dlock__enter(client);
    conn->busy = false;
}

void dlock__session_broke(struct dlock__conn *conn) {
    struct dlock__claim *claim = conn->claim;
    close_conn(conn);
    dlock__pool_broke(conn->client);
    dlock__session_end(conn);
    pthread_cond_broadcast(&conn->client->changed);
    if (!claim) return;
    if (claim->phase == DLOCK__HELD) {
        dlock__lose(claim);
        return;
    }
    if (claim->phase == DLOCK__CONFIRMING) claim->phase = DLOCK__WAITING;
    if (claim->phase == DLOCK__WAITING) claim->server_fence = 0;
    dlock__claim_ask_again(claim, dlock__now_us());
}

int dlock__session_renew(struct dlock__claim *claim, struct dlock_claim **arg, int64_t deadline_us,
                         struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    struct dlock__conn *conn = claim->home;
    int64_t now = dlock__now_us();
    if (!conn || conn->busy || now >= deadline_us)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": no time for its renewal",
                          dlock__name_shown(claim->name));
    conn->busy = true;
    dlock__leave(client);
    int rc = client->backend->renew(conn->data, arg, 1, dlock__timeout_ms(now, deadline_us), err);
    dlock__enter(client);
    conn->busy = false;
    pthread_cond_broadcast(&client->changed);
    if (rc == 0) {
        dlock__watch(conn, true);
        return (*arg)->result;
    }
    dlock__session_broke(conn);
    return rc;
}
