/* Requests and the connections that they use. Functions expect the client's mutex held unless their comment says
 * otherwise. */
#ifndef DLOCK_CORE_IO_IO_H
#define DLOCK_CORE_IO_IO_H

#include "plugin/server.h"
#include "state/client.h"

/* ---- conn.c: functions for the thread that uses the connection ---- */

/* Makes a connection, not connected, and adds it to the client's list. NULL: out of memory. */
struct dlock__conn *dlock__conn_new(struct dlock_client *client);
/* dlock__conn_ready opens the connection unless it is connected. dlock__conn_close closes an open one if no thread
 * uses it. dlock__conn_drop does the same after a failure, and ends what died with the connection. All leave the
 * mutex in between. */
int dlock__conn_ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err);
void dlock__conn_close(struct dlock__conn *conn);
void dlock__conn_drop(struct dlock__conn *conn);

/* The backend's batch operation of this kind. */
static inline dlock_batch *dlock__conn_batch(const struct dlock_client *client, enum dlock__op_kind kind) {
    return kind == DLOCK__ACQUIRE ? client->backend->acquire
           : kind == DLOCK__RENEW ? client->backend->renew
                                  : client->backend->release;
}
/* Calls that operation; *sent_us is a time not later than its begin. Leaves the mutex in between. */
int dlock__conn_call(struct dlock__conn *conn, enum dlock__op_kind kind, struct dlock_claim *const *args, size_t n,
                     int64_t deadline_us, int64_t *sent_us, struct dlock_error *err);

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

/* Makes a batch of the prepared operations of n acquisitions. Its deadline is their latest one, since its sender
 * cannot leave earlier. */
void dlock__batch_begin(struct dlock__batch *batch, struct dlock__acquisition *const *acqs, size_t n);

/* Sends the batch and waits for the answer. Leaves the mutex in between. */
int dlock__batch_send(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err);

/* The result that a backend gave for this operation on a claim; EPROTO if it may not give that. Needs no mutex. */
int dlock__claim_result(enum dlock__op_kind kind, int result);

/* Completes the acquisition's operation. `rc` is what sending the batch returned, `from` the error that came with
 * it. A release that finds nothing has succeeded if it was sent before. */
void dlock__batch_complete(struct dlock__batch *batch, struct dlock__acquisition *acq, int rc,
                           const struct dlock_error *from);

/* ---- pool.c ---- */

/* Takes a connection that is idle or new, connected or not. NULL: all are in use, or out of memory. */
struct dlock__conn *dlock__pool_pick(struct dlock_client *client);
/* Returns a connection to the pool, or hands it to a waiting operation. */
void dlock__pool_put_back(struct dlock__conn *conn);
/* Takes a connection, connected, for something other than an acquisition. Return it with dlock__pool_give and the
 * backend's return value `rc`. Both leave the mutex in between. */
int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **conn,
                     struct dlock_error *err);
void dlock__pool_give(struct dlock__conn *conn, int rc);
/* For the keeper: takes a connection that is connected already, and waits for one, ahead of waiting operations, if all
 * are in use. NULL: there is none. Leaves the mutex in between. */
struct dlock__conn *dlock__pool_borrow(struct dlock_client *client, int64_t deadline_us);

/* dlock__pool_unqueue removes an operation from those that wait for a connection; dlock__pool_hand_out gives free
 * connections to the ones that wait. */
void dlock__pool_unqueue(struct dlock_client *client, struct dlock__acquisition *acq);
void dlock__pool_hand_out(struct dlock_client *client);

/* ---- op.c ---- */

/* Presets the outputs of a claim before a backend gets it. */
static inline void dlock__preset(struct dlock_claim *arg) {
    arg->result = DLOCK_EPROTO;
    arg->fence = 0;
    arg->server_us = 0;
    arg->kept_ms = arg->lease_ms;
    arg->retry_ms = -1;
    arg->hints = 0;
    arg->ready_ms = -1;
}

/* True if an acquire with this result may have another one later. A refusal may if an earlier acquire of the name was
 * `accepted`: whoever has changed a user or a certificate by mistake will change it back. */
static inline bool dlock__asks_again(bool accepted, int result) {
    return result == DLOCK_EBUSY || result == DLOCK_ENOTREADY || result == DLOCK_EUNAVAILABLE ||
           (result == DLOCK_EAUTH && accepted);
}

/* Prepares a request about the acquisition, which must have a slot, to be answered by deadline_us, or within the URI's
 * `timeout` if that is earlier. `err` gets the error for the caller, and may be NULL. */
void dlock__op_prepare(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err);
/* Sends the prepared operations of n acquisitions (at most DLOCK__BATCH) as one request and waits for the answers. They
 * are of one client and one kind, no name twice except for releases. Leaves the mutex in between. Each acquisition's
 * op.result is its outcome. If that is EUNAVAILABLE and op.status still RUNNING the answer may come later: until then
 * the acquisition belongs to the pool. */
void dlock__op_send(struct dlock__acquisition *const *acqs, size_t n);
/* Prepares and sends for one acquisition; returns op.result. */
int dlock__op_run(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err);

/* ---- listener.c ---- */

/* Brings up the listener, the connection that gets wake-ups, or waits for the thread that does. True if it is up.
 * Leaves the mutex in between. */
bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us);
/* Called by the keeper when the listener has died. Leaves the mutex in between. */
void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why);
/* Called by a reader when reading has failed: the keeper drops the listener. */
void dlock__listener_broke(struct dlock_client *client, const struct dlock_error *why);
/* Called when there is a waiter that does not read the wake-ups itself: without a reader the keeper does from now on. */
void dlock__listener_needs_keeper(struct dlock_client *client);
/* True if the listener is up, and no other thread reads or probes it at the moment. */
bool dlock__listener_readable(const struct dlock_client *client);
/* Notes that a waiter relies on wake-ups from now on, so that the listener is probed. */
void dlock__listener_awaited(struct dlock_client *client);
/* Has the listener probed at once, because an expected wake-up did not come. */
void dlock__listener_doubted(struct dlock_client *client);
/* Has the listener dropped, because the server, asked at sent_us, knows of none. */
void dlock__listener_unheard(struct dlock_client *client, int64_t sent_us);
/* Has the keeper bring up the listener for a grant, even without a waiter. Nothing without WAKE. */
void dlock__listener_for_grants(struct dlock_client *client);
/* For the keeper: when dlock__listener_look is due, which brings up the listener for grants (until until_us), probes it
 * or judges the probe's answer. The first and the last leave the mutex in between. While a reader reads, nothing is due: it may
 * be stopped there, for any time, and sets the keeper's timer afterwards. */
int64_t dlock__listener_due(const struct dlock_client *client);
void dlock__listener_look(struct dlock_client *client, int64_t until_us);

/* ---- wake.c ---- */

/* A descriptor that polls readable so often in a row although there is no message, as no backend should leave it,
 * is then looked at only after a pause, by the keeper alone: it must not cost a processor. */
enum { DLOCK__IDLE_MAX = 64 };

/* Reads all wake-ups that are there and acts on them. Leaves the mutex in between. Returns 0, or the listener's
 * error. */
int dlock__wakes_read(struct dlock_client *client, struct dlock_error *err);

#endif
