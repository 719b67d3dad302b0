#include "client.h"

enum { RETRY_MIN_US = 100000, RETRY_MAX_US = 5000000 };

static int open_conn(struct dlock_client *client, int64_t deadline_us, struct dlock_error *err) {
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        struct dlock__conn *conn;
        int rc = dlock__pool_take(client, deadline_us, &conn, err); /* kept: the listener is one of its users */
        if (rc == 0) client->listener.conn = conn;
        return rc;
    }
    if (!client->listener.conn) client->listener.conn = dlock__conn_new(client);
    struct dlock__conn *conn = client->listener.conn;
    if (!conn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection");
    dlock__leave(client);
    int rc = dlock__conn_open(conn, deadline_us, true, err);
    dlock__enter(client);
    return rc;
}

/* `rc` is what the backend said last: the one connection of a THREADSAFE backend goes on if that was not its end. */
static void close_conn(struct dlock_client *client, int rc) {
    struct dlock__conn *conn = client->listener.conn;
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        client->listener.conn = NULL;
        if (conn) dlock__pool_give(conn, rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? rc : 0);
        return;
    }
    if (!conn) return;
    dlock__leave(client);
    dlock__conn_close(conn);
    dlock__enter(client);
}

static int bring_up(struct dlock_client *client, int64_t deadline_us, struct dlock_error *err) {
    int rc = open_conn(client, deadline_us, err);
    if (rc != 0) return rc;
    int fd = -1;
    struct dlock__conn *conn = client->listener.conn;
    dlock__leave(client);
    rc = client->backend->listen(conn->data, &fd, dlock__timeout_ms(dlock__now_us(), deadline_us), err);
    dlock__enter(client);
    if (rc == 0 && fd < 0) rc = dlock_fail(err, DLOCK_EPROTO, "listen gave no descriptor");
    if (rc != 0) {
        if (rc > 0) rc = DLOCK_EPROTO;
        close_conn(client, rc);
        return rc;
    }
    client->listener.fd = fd;
    return 0;
}

bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us) {
    int64_t most = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    if (deadline_us > most) deadline_us = most;
    while (client->listener.state == DLOCK__LISTENER_CONNECTING && dlock__now_us() < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    if (client->listener.state != DLOCK__LISTENER_DOWN) return client->listener.state == DLOCK__LISTENER_UP;

    struct dlock_error err;
    err.message[0] = '\0';
    client->listener.state = DLOCK__LISTENER_CONNECTING;
    int rc = bring_up(client, deadline_us, &err);
    if (rc == 0) {
        client->listener.state = DLOCK__LISTENER_UP;
        client->listener.pause_us = 0;
        dlock__keeper_kick(client);
    } else if (deadline_us < most && dlock__now_us() >= deadline_us) {
        client->listener.state = DLOCK__LISTENER_DOWN; /* cut short, which is no reason for others not to try */
    } else {
        int64_t pause = dlock__longer_pause(client->listener.pause_us, RETRY_MIN_US, RETRY_MAX_US);
        client->listener.state = DLOCK__LISTENER_DOWN;
        client->listener.pause_us = pause;
        client->listener.retry_at_us = rc == DLOCK_ENOTSUP ? DLOCK__NEVER : dlock__now_us() + pause;
        dlock__leave(client);
        dlock__log(client, DLOCK_LOG_WARN, "no wake-ups, waiters poll: %s", err.message);
        dlock__enter(client);
    }
    pthread_cond_broadcast(&client->changed);
    return rc == 0;
}

void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why) {
    client->listener.state = DLOCK__LISTENER_CONNECTING; /* nobody else may touch it until it is closed */
    client->listener.fd = -1;
    client->pair.known = false;
    close_conn(client, why->code);
    client->listener.state = DLOCK__LISTENER_DOWN;
    client->listener.retry_at_us = 0;
    pthread_cond_broadcast(&client->changed);
    /* Nobody would tell us who asks for them. */
    for (struct dlock__claim *claim = client->claims, *next; claim; claim = next) {
        next = claim->all_next;
        claim->wanted = true;
        if (claim->phase == DLOCK__HELD) dlock__linger_not(claim);
    }
    /* Nobody would wake them any more: all ask again, and bring the listener back on the way. */
    for (struct dlock__claim *claim = client->claims; claim; claim = claim->all_next) {
        if (claim->phase != DLOCK__WAITING) continue;
        claim->due_us = dlock__now_us();
        dlock__name_signal(claim->name);
    }
    dlock__leave(client);
    dlock__log(client, DLOCK_LOG_WARN, "lost the connection that brings wake-ups: %s", why->message);
    dlock__enter(client);
}
