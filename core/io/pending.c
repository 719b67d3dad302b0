/* Messages that connections bring unasked: PENDING. The answer to a blocking request comes through the connection's own
 * descriptor, and so does the end of one whose acquisition is held. The keeper looks at all of them through one epoll
 * descriptor; each is reported once, and then not until it is watched again. That takes a system call, and another one
 * to end it, so that a grant is only watched at once when its connection has rested, and otherwise when it has lasted
 * for a moment. */
#include "io/io.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = 16, RETRY_US = 50000 };

/* The blocking request has ended without a grant: another one after a moment. */
static void ask_again(struct dlock__conn *conn, struct dlock__acquisition *acq) {
    dlock__session_end(conn);
    dlock__acq_ask_again(acq, dlock__now_us() + RETRY_US);
}

static void act(struct dlock__conn *conn, struct dlock__acquisition *acq, const struct dlock_wake *wake,
                int64_t received_us) {
    if (conn->waiting && wake->kind == DLOCK_WAKE_GRANTED) {
        conn->waiting = false;
        dlock__wake_granted(acq, wake, received_us);
    } else if (conn->waiting) {
        ask_again(conn, acq);
        return;
    } else if (wake->kind == DLOCK_WAKE_LOST && dlock__acq_renewable(acq)) {
        dlock__lose(acq);
    }
    if (acq->conn == conn && !conn->busy) dlock__watch(conn, true);
}

/* The thread that is using it notices by itself. */
static void look(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    struct dlock__acquisition *acq = conn->acq;
    struct dlock_wake wake;
    struct dlock_error err;
    conn->watched = false;
    if (!acq || conn->busy || !conn->connected) return;
    memset(&wake, 0, sizeof wake);
    acq->refs++;
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
        act(conn, acq, &wake, received_us);
    else
        dlock__session_broke(conn);
    dlock__acq_put(acq);
}

void dlock__watch_read(struct dlock_client *client) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(client->pool.watch, events, EVENTS, 0);
    for (int i = 0; i < n; i++) look(events[i].data.ptr);
}
