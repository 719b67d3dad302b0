/* Operations about acquisitions, and the requests that carry them. A thread that finds a free connection runs its own
 * operation on it at once. When all connections are busy the operation waits in client->ops.pending; a thread that
 * gives a connection back hands it to the first waiting one, which takes all waiting operations of its kind along as
 * one batch ("flat combining": Hendler et al., SPAA 2010, with the combiner's role passed on). If there were more
 * operations than connections lately, a thread yields before it sends one, so that threads about to queue
 * the same kind join its batch. Many threads then cost the server and this process few requests: 16 threads with a lock
 * each make twice as many turns on Redis. Without more threads than connections none yields. THREADSAFE backends have
 * one connection for all threads, which is never busy, so there is nothing to combine. */
#include "io/io.h"

#include <string.h>

/* Longest time to wait for threads that will queue a request, and the additional time for each one that comes;
 * and how long no thread waits after that time was exceeded. */
enum { COALESCE_US = 1000, COALESCE_EACH_US = 50, COALESCE_PAUSE_US = 50000 };

/* Adds every waiting operation that fits: of the same kind, and no name twice except for releases. The batch keeps its
 * leader's deadline, since that thread cannot leave earlier; an operation that had more time is sent again by its own
 * thread. */
static void gather(struct dlock_client *client, struct dlock__batch *batch) {
    struct dlock__acquisition **at = &client->ops.pending, *last = NULL;
    bool once = batch->kind != DLOCK__RELEASE;
    for (size_t i = 0; i < batch->n; i++) batch->acqs[i]->name->in_batch = true;
    while (*at && batch->n < DLOCK__BATCH) {
        struct dlock__acquisition *acq = *at;
        if (acq->op->kind != batch->kind || (once && acq->name->in_batch)) {
            last = acq;
            at = &acq->op->next;
            continue;
        }
        *at = acq->op->next;
        client->ops.n_pending--;
        if (client->ops.last == acq) client->ops.last = last;
        acq->name->in_batch = true;
        acq->op->status = DLOCK__OP_RUNNING;
        acq->refs++; /* its thread may leave in between */
        batch->acqs[batch->n++] = acq;
    }
    for (size_t i = 0; i < batch->n; i++) batch->acqs[i]->name->in_batch = false;
}

/* Yields so that threads about to queue the same kind of request join this batch, as long as more of them come. This
 * costs almost nothing if no thread is ready to run, but the time of other ready threads, if there are some. So once it
 * takes longer than our own threads could need, it is not done again for COALESCE_PAUSE_US. */
static void coalesce(struct dlock_client *client, enum dlock__op_kind kind) {
    int64_t begun = dlock__now(client), most = COALESCE_US;
    unsigned before;
    if (begun < client->ops.coalesce_at_us) return;
    client->ops.coalescing[kind] = true;
    do {
        before = client->ops.n_pending;
        dlock__leave(client);
        dlock__yield();
        dlock__enter(client);
        if (client->ops.n_pending > before) most += (client->ops.n_pending - before) * COALESCE_EACH_US;
    } while (client->ops.n_pending > before && dlock__now(client) - begun <= most);
    client->ops.coalescing[kind] = false;
    if (dlock__now(client) - begun > most) client->ops.coalesce_at_us = dlock__now(client) + COALESCE_PAUSE_US;
}

/* Completes the operations of other threads and wakes these, without the mutex, which they would only wait for. */
static void complete_others(struct dlock_client *client, struct dlock__acquisition *const *acqs, size_t n) {
    uint32_t bells = 0;
    for (size_t i = 0; i < n; i++) {
        bells |= acqs[i]->op->bell;
        if (!acqs[i]->op->bell && dlock__acq_orphaned(acqs[i])) dlock__orphan(acqs[i]); /* it can be released now */
        dlock__acq_put(acqs[i]);
    }
    dlock__leave(client);
    if (bells) dlock__bell_ring(client, bells);
    dlock__enter(client);
}

/* Prepares the acquisition for the current session. Its traces in a session that is over ended with that session. */
static void enter_session(struct dlock__acquisition *acq) {
    if (dlock__acq_died_with_connection(acq)) {
        memset(acq->backend_state, 0, sizeof acq->backend_state);
        dlock__acq_session_ended(acq);
        acq->session = acq->name->client->pool.session;
    }
    if (acq->op->arg.flags & DLOCK_CLAIM_QUEUE) dlock__acq_queued(acq, true);
    memcpy(acq->op->arg.state, acq->backend_state, sizeof acq->op->arg.state);
}

/* Sends the batch once: on `own`, a connection that no other thread uses, or, NULL, on the one connection of a
 * THREADSAFE backend. Leaves the mutex in between. */
static int send_once(struct dlock_client *client, struct dlock__conn *own, struct dlock__batch *batch,
                     struct dlock_error *err) {
    struct dlock__conn *conn = own;
    int rc = own ? dlock__conn_ready(own, batch->deadline_us, err)
                 : dlock__pool_take(client, batch->deadline_us, &conn, err);
    if (rc != 0) return rc;
    for (size_t i = 0; i < batch->n; i++)
        if (dlock__acq_died_with_connection(batch->acqs[i])) enter_session(batch->acqs[i]);
    rc = dlock__batch_send(conn, batch, err);
    if (!own)
        dlock__pool_give(conn, rc);
    else if (rc != 0)
        dlock__conn_drop(conn);
    return rc;
}

/* Sends the batch and completes its operations. A connection may have died unnoticed: then the batch is sent once more
 * on a fresh one, since every operation is idempotent by token. A release on an idle connection has half of `timeout`,
 * so that there is time for that. */
static void run_batch(struct dlock_client *client, struct dlock__conn *own, struct dlock__batch *batch) {
    const struct dlock__conn *conn = own ? own : client->pool.shared;
    bool reused = conn && conn->connected;
    int64_t deadline_us = batch->deadline_us;
    struct dlock_error err;
    int rc;
    if (own && reused && batch->kind == DLOCK__RELEASE) {
        int64_t most_us = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms) / 2);
        if (most_us < deadline_us) batch->deadline_us = most_us;
    }
    for (;; reused = false) {
        err.code = 0;
        rc = send_once(client, own, batch, &err);
        if (rc != DLOCK_EUNAVAILABLE || !reused || dlock__now(client) >= deadline_us) break;
        batch->deadline_us = deadline_us;
    }
    for (size_t i = 0; i < batch->n; i++) dlock__batch_complete(batch, batch->acqs[i], rc, &err);
}

/* Runs the n operations, and waiting ones of their kind, on the connection. */
static void combine(struct dlock__conn *conn, struct dlock__acquisition *const *acqs, size_t n) {
    struct dlock_client *client = conn->client;
    struct dlock__batch batch;
    dlock__batch_begin(&batch, acqs, n);
    if (client->ops.backlogged && n == 1 && !client->ops.coalescing[batch.kind]) coalesce(client, batch.kind);
    if (client->ops.pending) gather(client, &batch);
    client->ops.n_sent += (unsigned)batch.n;
    client->ops.backlogged = client->ops.n_sent + client->ops.n_pending > client->uri->connections;
    if (client->ops.pending) dlock__pool_hand_out(client);
    struct dlock__acquisition *others[DLOCK__BATCH]; /* the caller's n are the first, until the batch is sorted */
    size_t n_others = batch.n - n;
    if (n_others > 0) memcpy(others, batch.acqs + n, n_others * sizeof *others);
    run_batch(client, conn, &batch);
    client->ops.n_sent -= (unsigned)batch.n;
    dlock__pool_put_back(conn);
    if (n_others > 0) complete_others(client, others, n_others);
}

static void wait_for_bell(struct dlock_client *client, uint32_t bits, int64_t until_us) {
    unsigned seen = atomic_load(&client->ops.bell);
    dlock__leave(client);
    dlock__futex_wait(&client->ops.bell, seen, bits, until_us);
    dlock__enter(client);
}

/* Waits until a connection is handed over (then returns it), until another thread has run the operation, or until the
 * deadline. In the last two cases returns NULL; op.result is set. */
static struct dlock__conn *wait_for_conn(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock__op *op = acq->op;
    op->bell = UINT32_C(1) << client->ops.bells++ % 32;
    op->next = NULL;
    op->status = DLOCK__OP_PENDING;
    if (client->ops.last)
        client->ops.last->op->next = acq;
    else
        client->ops.pending = acq;
    client->ops.last = acq;
    client->ops.n_pending++;

    /* Once the operation is in another thread's batch its answer is near: then only the caller's own deadline ends the
     * wait. */
    while (!op->conn && op->status != DLOCK__OP_DONE) {
        int64_t until = op->status == DLOCK__OP_RUNNING ? op->leave_us : op->deadline_us;
        if (dlock__now(client) >= until) break;
        wait_for_bell(client, op->bell, until);
    }

    if (!op->conn && op->status != DLOCK__OP_DONE) {
        op->result = dlock_fail(op->err, DLOCK_EUNAVAILABLE, "no answer in time: all %u connections are busy",
                                client->uri->connections);
        op->late = true;
        if (op->status == DLOCK__OP_PENDING) {
            dlock__pool_unqueue(client, acq);
            op->status = DLOCK__OP_DONE;
        }
    }
    struct dlock__conn *conn = op->conn;
    op->bell = 0;
    op->conn = NULL;
    if (!conn) op->err = NULL;
    return conn;
}

void dlock__op_prepare(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    struct dlock__op *op = acq->op;
    op->resent = op->resent && kind == DLOCK__RELEASE && op->kind == kind;
    op->kind = kind;
    op->late = op->lost = false;
    op->deadline_us = dlock__bounded(client, deadline_us);
    op->leave_us = deadline_us;
    op->prepared_us = dlock__now(client);
    op->bell = 0;
    op->conn = NULL;
    op->err = err;
    op->arg.name = acq->name->text;
    op->arg.token = acq->token;
    op->arg.mode = acq->mode;
    op->arg.limit = acq->limit;
    op->arg.flags = flags;
    op->arg.lease_ms = acq->lease_ms;
    enter_session(acq);
}

/* Fails an operation that never reached a connection. */
static void not_sent(struct dlock__acquisition *acq, int code, const char *why) {
    acq->op->late = true;
    acq->op->status = DLOCK__OP_DONE;
    acq->op->result = dlock_fail(acq->op->err, code, "%s", why);
}

void dlock__op_send(struct dlock__acquisition *const *acqs, size_t n) {
    struct dlock_client *client = acqs[0]->name->client;
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        struct dlock__batch batch;
        dlock__batch_begin(&batch, acqs, n);
        run_batch(client, NULL, &batch);
        return;
    }
    for (size_t i = 1; i < n; i++) acqs[i]->op->status = DLOCK__OP_RUNNING; /* no other thread may send them now */
    for (; n > 0; acqs++, n--) {
        bool joins = n == 1 && client->ops.coalescing[acqs[0]->op->kind];
        struct dlock__conn *conn = joins ? NULL : dlock__pool_pick(client);
        if (!conn && client->pool.n > 0) conn = wait_for_conn(acqs[0]);
        if (conn) {
            if (dlock__now(client) < acqs[0]->op->deadline_us) {
                combine(conn, acqs, n);
                return;
            }
            not_sent(acqs[0], DLOCK_EUNAVAILABLE, "no free connection in time");
            dlock__pool_put_back(conn);
        } else if (client->pool.n == 0) {
            not_sent(acqs[0], DLOCK_ENOMEM, "out of memory for a connection");
        } /* else another thread ran it, or its deadline passed */
    }
}

int dlock__op_run(struct dlock__acquisition *acq, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err) {
    dlock__op_prepare(acq, kind, flags, deadline_us, err);
    dlock__op_send(&acq, 1);
    return acq->op->result;
}
