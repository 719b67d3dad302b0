/* The connection that brings wake-ups: brought up by the first wait, probed while a waiter relies on it, and brought
 * up again after a loss, with pauses if it does not last. */
#include "io/io.h"

#include <sys/eventfd.h>

enum { RETRY_MIN_US = 100000, RETRY_MAX_US = 5000000 };

/* A listener that was up for this time is taken as one that lasts. If so many in a row did not, there is a pause. */
enum { LASTS_US = 1000000, BRIEF_MAX = 4 };

/* Least time for the answer to a probe, whatever the lease, since a machine may be busy. */
enum { ANSWER_MIN_US = 1000000 };

/* Least time between two drops of a listener that the server does not know. */
enum { UNHEARD_US = 1000000 };

static int open_conn(struct dlock_client *client, int64_t deadline_us, struct dlock_error *err) {
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        struct dlock__conn *conn;
        int rc = dlock__pool_take(client, deadline_us, &conn, err); /* not given back: the listener is a user of it */
        if (rc == 0) client->listener.conn = conn;
        return rc;
    }
    if (!client->listener.conn) client->listener.conn = dlock__conn_new(client);
    if (!client->listener.conn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection");
    return dlock__conn_ready(client->listener.conn, deadline_us, err);
}

/* Gives up the connection, or its share of the one connection of a THREADSAFE backend; that continues unless `rc`, the
 * backend's last return value, means that it is dead. */
static void close_conn(struct dlock_client *client, int rc) {
    struct dlock__conn *conn = client->listener.conn;
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        client->listener.conn = NULL;
        if (conn) dlock__pool_give(conn, rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? rc : 0);
        return;
    }
    if (!conn) return;
    conn->broken = true;
    dlock__conn_close(conn);
}

static int bring_up(struct dlock_client *client, int64_t deadline_us, struct dlock_error *err) {
    int rc = open_conn(client, deadline_us, err);
    if (rc != 0) return rc;
    int fd = -1;
    struct dlock__conn *conn = client->listener.conn;
    dlock__leave(client);
    rc = client->backend->listen(conn->data, &fd, dlock__timeout_ms(dlock__now_us(), deadline_us), err);
    dlock__enter(client);
    rc = dlock__about_connection(client->backend, "listen", rc, err);
    if (rc == 0 && fd < 0) rc = dlock_fail(err, DLOCK_EPROTO, "the backend's listen gave no descriptor");
    if (rc != 0) {
        close_conn(client, rc);
        return rc;
    }
    client->listener.fd = fd;
    if (client->listener.bell < 0) client->listener.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return 0;
}

bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us) {
    int64_t most = dlock__bounded(client, DLOCK__NEVER);
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
        client->listener.idle = 0;
        client->listener.up_us = dlock__now_us();
        dlock__keeper_kick(client);
    } else if (deadline_us < most && dlock__now_us() >= deadline_us) {
        client->listener.state = DLOCK__LISTENER_DOWN; /* cut short by the caller's deadline: others may try */
    } else {
        int64_t pause = dlock__longer_pause(client->listener.pause_us, RETRY_MIN_US, RETRY_MAX_US);
        client->listener.state = DLOCK__LISTENER_DOWN;
        client->listener.pause_us = pause;
        client->listener.retry_at_us = rc == DLOCK_ENOTSUP ? DLOCK__NEVER : dlock__now_us() + pause;
        bool for_grants = client->listener.for_grants_us != DLOCK__NEVER && client->n_waiting == 0;
        dlock__leave(client);
        dlock__log(client, for_grants ? DLOCK_LOG_INFO : DLOCK_LOG_WARN, "no wake-ups, waiters poll: %s", err.message);
        dlock__enter(client);
    }
    pthread_cond_broadcast(&client->changed);
    return rc == 0;
}

/* When to connect again after a loss: at once, unless several in a row did not last. */
static int64_t retry_after_loss(struct dlock_client *client) {
    int64_t now = dlock__now_us(), pause = RETRY_MIN_US;
    bool lasted = now >= client->listener.up_us + LASTS_US;
    unsigned brief = client->listener.brief = lasted ? 0 : client->listener.brief + 1;
    if (brief < BRIEF_MAX) return 0;
    while (--brief >= BRIEF_MAX && pause < RETRY_MAX_US) pause = dlock__longer_pause(pause, RETRY_MIN_US, RETRY_MAX_US);
    return now + pause;
}

void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why) {
    client->listener.state = DLOCK__LISTENER_CONNECTING; /* no other thread may touch it until it is closed */
    client->listener.fd = -1;
    client->listener.probe_at_us = client->listener.answer_by_us = DLOCK__NEVER;
    client->listener.unheard = client->listener.doubted = false;
    client->listener.broke.code = 0;
    client->listener.more = false;
    client->clock_sample = (struct dlock__clock_sample){0};
    close_conn(client, why->code);
    client->listener.state = DLOCK__LISTENER_DOWN;
    client->listener.retry_at_us = retry_after_loss(client);
    pthread_cond_broadcast(&client->changed);
    /* No wake-up would announce that other clients want the names: nothing lingers any more. */
    for (struct dlock__acquisition *acq = dlock__acq_first(client), *next; acq; acq = next) {
        next = acq->all_next;
        dlock__linger_not(acq);
    }
    /* No wake-up would come for the waiters: all ask again, and bring the listener up again before they wait. */
    for (struct dlock__acquisition *acq = dlock__acq_first(client); acq; acq = acq->all_next)
        if (acq->state == DLOCK__WAITING) dlock__acq_ask_again(acq);
    dlock__leave(client);
    dlock__log(client, DLOCK_LOG_WARN, "lost the connection that brings wake-ups: %s", why->message);
    dlock__enter(client);
}

/* ---- probing: a connection may stay open although nothing passes through it any more ---- */

static bool is_up(const struct dlock_client *client) {
    return client->listener.state == DLOCK__LISTENER_UP;
}

static void probe_at(struct dlock_client *client, int64_t at_us) {
    if (!is_up(client) || !client->backend->probe || client->listener.probe_at_us <= at_us) return;
    client->listener.probe_at_us = at_us;
    dlock__keeper_arm(client, at_us);
}

void dlock__listener_awaited(struct dlock_client *client) {
    probe_at(client, dlock__after(dlock__now(client), dlock__us(client->uri->lease_ms) / 3));
}

void dlock__listener_doubted(struct dlock_client *client) {
    client->listener.doubted = true;
    probe_at(client, dlock__now(client));
}

void dlock__listener_broke(struct dlock_client *client, const struct dlock_error *why) {
    client->listener.broke = *why;
    dlock__keeper_kick(client);
}

bool dlock__listener_readable(const struct dlock_client *client) {
    return is_up(client) && !client->listener.busy && !client->listener.broke.code;
}

void dlock__listener_needs_keeper(struct dlock_client *client) {
    if (client->listener.reader || client->listener.keeper_at_us <= dlock__now(client)) return;
    client->listener.keeper_at_us = 0;
    dlock__keeper_kick(client);
}

void dlock__listener_unheard(struct dlock_client *client, int64_t sent_us) {
    if (!is_up(client) || sent_us < client->listener.up_us + UNHEARD_US) return; /* asked before this one was up */
    client->listener.unheard = true;
    dlock__keeper_kick(client);
}

void dlock__listener_for_grants(struct dlock_client *client) {
    if (client->listener.for_grants_us != DLOCK__NEVER || !dlock__can(client, DLOCK_CAP_WAKE)) return;
    client->listener.for_grants_us = 0;
    dlock__keeper_kick(client);
}

int64_t dlock__listener_due(const struct dlock_client *client) {
    int64_t retry_us = client->listener.retry_at_us, grants_us = client->listener.for_grants_us;
    if (grants_us != DLOCK__NEVER && client->listener.state == DLOCK__LISTENER_DOWN)
        return retry_us > grants_us ? retry_us : grants_us;
    if (!is_up(client) || client->listener.busy) return DLOCK__NEVER;
    if (client->listener.unheard || client->listener.broke.code) return 0;
    bool probed = client->listener.answer_by_us != DLOCK__NEVER;
    return probed ? client->listener.answer_by_us : client->listener.probe_at_us;
}

/* Reads the answer to the last probe, which may be there already if this process was stopped in between. An error if
 * there is none. */
static int late_answer(struct dlock_client *client, struct dlock_error *err) {
    int rc = dlock__wakes_read(client, err);
    if (rc != 0 || client->listener.answer_by_us == DLOCK__NEVER) return rc;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "it does not answer probes");
}

static int probe(struct dlock_client *client, struct dlock_error *err) {
    struct dlock__conn *conn = client->listener.conn;
    int64_t third = dlock__us(client->uri->lease_ms) / 3, most = dlock__us(client->uri->timeout_ms);
    int64_t patience = third > ANSWER_MIN_US ? third : ANSWER_MIN_US, now = dlock__now_us();
    bool awaited = client->n_queued > 0, doubted = client->listener.doubted;
    client->listener.probe_at_us = awaited ? dlock__after(now, third) : DLOCK__NEVER;
    client->listener.doubted = false;
    if (!awaited && !doubted) return 0;
    client->listener.answer_by_us = dlock__after(now, patience < most ? patience : most);
    client->listener.busy = true;
    dlock__leave(client);
    int rc = client->backend->probe(conn->data, err);
    dlock__enter(client);
    client->listener.busy = false;
    return rc > 0 ? dlock_fail(err, DLOCK_EPROTO, "the backend's probe returned %d", rc) : rc;
}

/* Unless no grants are left to listen for. */
static void bring_up_for_grants(struct dlock_client *client, int64_t until_us) {
    client->listener.for_grants_us = DLOCK__NEVER;
    if (client->timers.next.n + client->timers.due.n == 0) return;
    client->listener.for_grants_us = dlock__listener_ensure(client, until_us) ? 0 : dlock__now_us() + RETRY_MAX_US;
}

void dlock__listener_look(struct dlock_client *client, int64_t until_us) {
    struct dlock_error err;
    int rc;
    err.message[0] = '\0';
    if (!is_up(client)) {
        bring_up_for_grants(client, until_us);
        return;
    }
    if (client->listener.broke.code)
        err = client->listener.broke, rc = err.code;
    else if (client->listener.unheard)
        rc = dlock_fail(&err, DLOCK_EUNAVAILABLE, "the server has dropped its subscription");
    else if (client->listener.answer_by_us != DLOCK__NEVER)
        rc = late_answer(client, &err);
    else
        rc = probe(client, &err);
    if (rc == 0) return;
    err.code = rc;
    dlock__listener_lost(client, &err);
}
