/* Messages that arrive unasked on the connections of a PENDING backend: the answer to a blocking acquire, or the end of
 * a connection whose acquisition is held. The keeper watches all of them through one epoll descriptor; each is reported
 * once, and then not until it is watched again. Beginning and ending a watch takes a system call each. So a grant is
 * watched at once only if its connection has been idle for a while, else when it has lasted for a moment. */
#include "io/io.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = 16 };

/* Handles a blocking acquire that ended without a grant. */
static void ask_again(struct dlock__conn *conn, struct dlock__acquisition *acq) {
    dlock__dedicated_end(conn);
    dlock__acq_ask_again(acq, dlock__now_us() + DLOCK__RETRY_US);
}

/* Handles the grant that a blocking acquire ended with. Where the message is invalid and was ignored, or does not
 * prove how old the grant is, the waiter asks again: no other message will come. */
static void granted(struct dlock__conn *conn, struct dlock__acquisition *acq, const struct dlock_wake *wake,
                    int64_t received_us) {
    conn->waiting = false;
    dlock__wake_granted(acq, wake, received_us);
    if (acq->state == DLOCK__WAITING && acq->ask_at_us == DLOCK__NEVER)
        dlock__acq_ask_again(acq, dlock__now_us() + DLOCK__RETRY_US);
}

static void act(struct dlock__conn *conn, struct dlock__acquisition *acq, const struct dlock_wake *wake,
                int64_t received_us) {
    if (conn->waiting && wake->kind == DLOCK_WAKE_GRANTED) {
        granted(conn, acq, wake, received_us);
    } else if (conn->waiting) {
        ask_again(conn, acq);
        return;
    } else if (wake->kind == DLOCK_WAKE_LOST && dlock__acq_renewable(acq)) {
        dlock__lose(acq);
    }
    if (acq->conn == conn && !conn->busy) dlock__watch(conn, true);
}

/* Reads one message from the connection, unless a thread uses it, which will notice. */
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
        dlock__dedicated_broke(conn);
    dlock__acq_put(acq);
}

void dlock__watch_read(struct dlock_client *client) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(client->pool.watch, events, EVENTS, 0);
    for (int i = 0; i < n; i++) look(events[i].data.ptr);
}
