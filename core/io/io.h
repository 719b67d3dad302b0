/* Requests and the connections that they use. Functions expect the client's mutex unless they say otherwise. */
#ifndef DLOCK_CORE_IO_IO_H
#define DLOCK_CORE_IO_IO_H

#include "state/client.h"

/* ---- conn.c: by the thread that has the connection ---- */

/* A new, unconnected connection, listed in the client. NULL: out of memory. */
struct dlock__conn *dlock__conn_new(struct dlock_client *client);
/* Opens it unless it is connected; closes it, if it is open, while nobody else uses it; the same, and forgets what died
 * with it. They leave the mutex meanwhile. */
int dlock__conn_ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err);
void dlock__conn_close(struct dlock__conn *conn);
void dlock__conn_drop(struct dlock__conn *conn);

/* The backend's batch operation of this kind. */
static inline dlock_batch *dlock__conn_batch(const struct dlock_client *client, enum dlock__op_kind kind) {
    return kind == DLOCK__ACQUIRE ? client->backend->acquire
           : kind == DLOCK__RENEW ? client->backend->renew
                                  : client->backend->release;
}

/* Runs that, not before *sent_us. Leaves the mutex meanwhile. */
static inline int dlock__conn_call(struct dlock__conn *conn, enum dlock__op_kind kind, struct dlock_claim *const *args,
                                   size_t n, int64_t deadline_us, int64_t *sent_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    dlock_batch *run = dlock__conn_batch(client, kind);
    int64_t now = *sent_us = dlock__now(client);
    dlock__leave(client);
    int rc = run(conn->data, args, n, dlock__timeout_ms(now, deadline_us), err);
    dlock__enter(client);
    return rc > 0 ? dlock_fail(err, DLOCK_EPROTO, "backend %s returned %d", client->backend->name, rc) : rc;
}

int dlock__watch_open(struct dlock_client *client, struct dlock_error *err);
/* Whether the keeper is to read what comes; if the kernel refuses, a moment later. */
void dlock__watch(struct dlock__conn *conn, bool on);
/* Within a moment, unless what it carries is released before. */
void dlock__watch_soon(struct dlock__conn *conn);
/* The keeper's: watches those, and the ones that were refused. */
void dlock__watch_due(struct dlock_client *client);

/* ---- batch.c: one request about several acquisitions ---- */

struct dlock__batch {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    struct dlock_claim *args[DLOCK__BATCH];
    size_t n;
    enum dlock__op_kind kind;
    int64_t deadline_us;
    int64_t sent_us;
    bool sent, resent;
};

/* Batches the prepared operations of n acquisitions. It ends with the last of them: its sender cannot leave. */
void dlock__batch_begin(struct dlock__batch *batch, struct dlock__acquisition *const *acqs, size_t n);

/* Sends it and waits for the answer. Leaves the mutex meanwhile. */
int dlock__batch_send(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err);

/* The same on a connection that is ours alone, which is opened if need be and dropped if it fails. An idle one may have
 * died unnoticed: then once more on a fresh one, since every operation is idempotent by token. */
int dlock__batch_run(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err);

/* A release gets no more than half of `timeout` for its answer: on a connection that may have died without a word, so
 * that there is time for a fresh one; or on the only one that there is, since nothing but its caller waits for that. */
void dlock__batch_hurry(struct dlock__batch *batch, struct dlock_client *client);

/* Whether nobody knows what the server has made of the acquisition's operation; `rc` is what sending it returned. */
bool dlock__batch_unknown(const struct dlock__acquisition *acq, int rc);

/* The acquisition's operation is done; `from` is what was said to `rc`. */
void dlock__batch_complete(struct dlock__batch *batch, struct dlock__acquisition *acq, int rc,
                           const struct dlock_error *from);

/* ---- pool.c ---- */

/* A connection that nobody uses, connected or not; NULL: all are busy, or out of memory. */
struct dlock__conn *dlock__pool_pick(struct dlock_client *client);
/* A connection that carried an acquisition is free. Leaves the mutex meanwhile. */
void dlock__pool_take_back(struct dlock__conn *conn);
/* Takes a connection for something other than an acquisition, connected; give it back with dlock__pool_give, `rc` being
 * what the backend returned. Leaves the mutex meanwhile. */
int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **conn,
                     struct dlock_error *err);
void dlock__pool_give(struct dlock__conn *conn, int rc);
/* The keeper's: one that is connected already, waiting for that if all are in use; the operations that wait come after
 * it. NULL: there is none. Leaves the mutex meanwhile. */
struct dlock__conn *dlock__pool_borrow(struct dlock_client *client, int64_t deadline_us);

/* An operation waits for a connection no longer; nobody waits while there is a free one. */
void dlock__pool_unqueue(struct dlock_client *client, struct dlock__acquisition *acq);
void dlock__pool_hand_out(struct dlock_client *client);

/* ---- op.c ---- */

/* The outputs of an acquisition as a backend finds them. */
static inline void dlock__preset(struct dlock_claim *arg) {
    arg->result = DLOCK_EPROTO;
    arg->fence = 0;
    arg->server_us = 0;
    arg->kept_ms = arg->lease_ms;
    arg->retry_ms = -1;
    arg->hints = 0;
    arg->ready_ms = -1;
}

/* Whether an acquire that was answered like that may be answered otherwise later. */
static inline bool dlock__asks_again(int result) {
    return result == DLOCK_EBUSY || result == DLOCK_ENOTREADY || result == DLOCK_EUNAVAILABLE;
}

/* Describes a request about the acquisition, which has a slot for it, to be answered until deadline_us at the latest
 * (the URI's `timeout` bounds it too). `err` is the sender's, and may be NULL. */
void dlock__op_prepare(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err);
/* Sends what was prepared for n acquisitions (at most DLOCK__BATCH) of one client, of one kind, no name twice but for
 * releases, as one request and waits for the answers. Leaves the mutex meanwhile. Every acquisition's op.result tells
 * what became of it. EUNAVAILABLE while op.status is still RUNNING: the answer may
 * come later, the acquisition belongs to the pool until then. */
void dlock__op_send(struct dlock__acquisition *const *acqs, size_t n);
/* Both for one acquisition; returns op.result. */
int dlock__op_run(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err);

/* ---- dedicated.c: connections that carry one acquisition each ---- */

/* The acquisition lives in this connection no longer. */
void dlock__session_end(struct dlock__conn *conn);
/* Runs the acquisition's operation, on its own connection. Leaves the mutex meanwhile. */
void dlock__session_run(struct dlock__acquisition *acq);
/* Called when the connection has broken: its grants are lost, and its waiters ask again. Leaves the mutex meanwhile. */
void dlock__session_broke(struct dlock__conn *conn);
/* Sends one renewal, by the keeper; returns its result. Leaves the mutex meanwhile. */
int dlock__session_renew(struct dlock__acquisition *acq, struct dlock_claim **arg, int64_t deadline_us,
                         struct dlock_error *err);

/* When the first of the idle connections is to be told to rest; then one of those that are due is. */
int64_t dlock__session_rest_at(const struct dlock_client *client);
void dlock__session_rest(struct dlock_client *client, int64_t now, int64_t deadline_us);

/* ---- pending.c ---- */

/* Reads, once each, and acts on it. With the mutex, which it leaves meanwhile. */
void dlock__watch_read(struct dlock_client *client);

/* ---- listener.c ---- */

/* Brings up the connection that gets wake-ups, or waits for the thread that does; whether it is up then. Leaves the
 * mutex meanwhile. */
bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us);
/* The keeper saw it die. Leaves the mutex meanwhile. */
void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why);
/* Somebody waits for a wake-up from now on. */
void dlock__listener_awaited(struct dlock_client *client);
/* A wake-up did not come that should have: whether the listener is alive is asked now. */
void dlock__listener_doubted(struct dlock_client *client);
/* The server, asked at sent_us, knows of no listener of ours. */
void dlock__listener_unheard(struct dlock_client *client, int64_t sent_us);
/* The keeper's: when it has to look after the listener, and that. Leaves the mutex meanwhile. */
int64_t dlock__listener_due(const struct dlock_client *client);
void dlock__listener_look(struct dlock_client *client);

/* ---- wake.c ---- */

/* Reads and acts on every wake-up that is there. Leaves the mutex meanwhile. 0, or the listener is dead. */
int dlock__wakes_read(struct dlock_client *client, struct dlock_error *err);

#endif
