/* What connections say unasked: PENDING. The answer to a blocking request comes through the connection's own
 * descriptor, and so does the end of one whose claim is held. The keeper looks at all of them through one epoll
 * descriptor; each is reported once, and then not until it is watched again. That takes a system call, and another one
 * to end it, so that a grant is only watched at once when its connection has rested, and otherwise when it has lasted
 * for a moment. */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = 16, RETRY_US = 50000, SOON_US = 10000 };

int dlock__watch_open(struct dlock_client *client, struct dlock_error *err) {
    if (!dlock__can(client, DLOCK_CAP_PENDING)) return 0;
    client->watch = epoll_create1(EPOLL_CLOEXEC);
    if (client->watch >= 0) return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left for a client; raise the limit (ulimit -n)");
}

int dlock__watch_begin(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = conn};
    int fd = -1, rc = client->backend->listen(conn->data, &fd, dlock__timeout_ms(dlock__now_us(), deadline_us), err);
    if (rc > 0 || (rc == 0 && fd < 0)) rc = dlock_fail(err, DLOCK_EPROTO, "listen gave no descriptor");
    if (rc == 0 && epoll_ctl(client->watch, EPOLL_CTL_ADD, fd, &event) != 0)
        rc = dlock_fail(err, DLOCK_ENOMEM, "a connection cannot be watched: %s", strerror(errno));
    if (rc == 0)
        conn->fd = fd;
    else
        dlock__conn_close(conn);
    return rc;
}

void dlock__watch_end(struct dlock__conn *conn) {
    if (conn->fd >= 0) epoll_ctl(conn->client->watch, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->fd = -1;
    conn->watched = false;
}

void dlock__watch(struct dlock__conn *conn, bool on) {
    struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = conn};
    if (conn->fd < 0 || conn->watched == on) return;
    if (on) event.events |= EPOLLIN | EPOLLRDHUP;
    epoll_ctl(conn->client->watch, EPOLL_CTL_MOD, conn->fd, &event);
    conn->watched = on;
}

void dlock__watch_soon(struct dlock__conn *conn) {
    int64_t now = dlock__now(conn->client);
    if (conn->fd < 0) return;
    if (conn->ended_us == 0 || now - conn->ended_us > SOON_US)
        dlock__watch(conn, true);
    else
        dlock__keeper_arm(conn->client, now + SOON_US);
}

/* The blocking request has ended without a grant: another one after a moment. */
static void ask_again(struct dlock__conn *conn, struct dlock__claim *claim) {
    dlock__session_end(conn);
    dlock__claim_ask_again(claim, dlock__now_us() + RETRY_US);
}

static void act(struct dlock__conn *conn, struct dlock__claim *claim, const struct dlock_wake *wake,
                int64_t received_us) {
    if (conn->waiting && wake->kind == DLOCK_WAKE_GRANTED) {
        conn->waiting = false;
        dlock__wake_granted(claim, wake, received_us);
    } else if (conn->waiting) {
        ask_again(conn, claim);
        return;
    } else if (wake->kind == DLOCK_WAKE_LOST && dlock__claim_had(claim)) {
        dlock__lose(claim);
    }
    if (claim->home == conn && !conn->busy) dlock__watch(conn, true);
}

/* Who is using it sees for himself. */
static void look(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    struct dlock__claim *claim = conn->claim;
    struct dlock_wake wake;
    struct dlock_error err;
    conn->watched = false;
    if (!claim || conn->busy || !conn->connected) return;
    memset(&wake, 0, sizeof wake);
    claim->refs++;
    conn->busy = true;
    dlock__leave(client);
    int64_t received_us = dlock__now_us();
    int rc = client->backend->wake(conn->data, &wake, &err);
    dlock__enter(client);
    conn->busy = false;
    pthread_cond_broadcast(&client->changed);
    if (rc == 0)
        dlock__watch(conn, true);
    else if (rc == 1)
        act(conn, claim, &wake, received_us);
    else
        dlock__session_broke(conn);
    dlock__claim_put(claim);
}

void dlock__watch_read(struct dlock_client *client) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(client->watch, events, EVENTS, 0);
    for (int i = 0; i < n; i++) look(events[i].data.ptr);
}
