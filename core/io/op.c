/* Operations about claims, and the requests that carry them. A thread that finds a free connection runs its own
 * operation on it at once. When all are busy the operation waits in client->pending; whoever gives a connection back
 * hands it to the first waiting thread, which takes all waiting operations of its kind along as one batch ("flat
 * combining": Hendler et al., SPAA 2010, with the combiner's role passed on). Where there were more operations than
 * connections just now, a thread that is about to send one yields, so that those about to send the same join its batch:
 * a crowd costs the server and us few requests. THREADSAFE backends have one connection for everybody and no batches;
 * of other SESSION backends each claim has a connection to itself, as many as there are claims. */
#include "io/batch.h"
#include "io/io.h"

#include <string.h>

/* How long it may take until those who are about to send a request have come, and how much longer for each of them;
 * and the pause after it took too long. */
enum { COALESCE_US = 1000, COALESCE_EACH_US = 50, COALESCE_PAUSE_US = 50000 };

/* Adds every waiting operation that fits: same kind, and no name twice but for releases. The batch ends at its leader's
 * deadline, since that thread cannot leave; operations that had more time are sent again by whoever waits for them. */
static void gather(struct dlock_client *client, struct dlock__batch *batch) {
    struct dlock__claim **at = &client->pending, *last = NULL;
    bool once = batch->kind != DLOCK__RELEASE;
    for (size_t i = 0; i < batch->n; i++) batch->claims[i]->name->in_batch = true;
    while (*at && batch->n < DLOCK__BATCH) {
        struct dlock__claim *claim = *at;
        if (claim->op->kind != batch->kind || (once && claim->name->in_batch)) {
            last = claim;
            at = &claim->op->next;
            continue;
        }
        *at = claim->op->next;
        client->n_pending--;
        if (client->pending_tail == claim) client->pending_tail = last;
        claim->name->in_batch = true;
        claim->op->status = DLOCK__OP_RUNNING;
        claim->refs++; /* its thread may leave */
        batch->claims[batch->n++] = claim;
    }
    for (size_t i = 0; i < batch->n; i++) batch->claims[i]->name->in_batch = false;
}

/* Lets those come who are about to send the same: as long as more do. That costs next to nothing when nobody is ready,
 * but the time of whoever else is: as soon as it takes longer than our own threads may, not again for a while. */
static void coalesce(struct dlock_client *client, enum dlock__op_kind kind) {
    int64_t begun = dlock__now(client), most = COALESCE_US;
    unsigned before;
    if (begun < client->coalesce_at_us) return;
    client->coalescing[kind] = true;
    do {
        before = client->n_pending;
        dlock__leave(client);
        dlock__yield();
        dlock__enter(client);
        if (client->n_pending > before) most += (client->n_pending - before) * COALESCE_EACH_US;
    } while (client->n_pending > before && dlock__now(client) - begun <= most);
    client->coalescing[kind] = false;
    if (dlock__now(client) - begun > most) client->coalesce_at_us = dlock__now(client) + COALESCE_PAUSE_US;
}

/* Wakes those whose operations are done; without the mutex, which they would only run into. */
static void complete_others(struct dlock_client *client, struct dlock__claim *const *claims, size_t n) {
    uint32_t bells = 0;
    for (size_t i = 0; i < n; i++) {
        bells |= claims[i]->op->bell;
        if (!claims[i]->op->bell) pthread_cond_signal(&client->janitor.cond);
        dlock__claim_put(claims[i]);
    }
    dlock__leave(client);
    if (bells) dlock__bell_ring(client, bells);
    dlock__enter(client);
}

/* Runs the operations, and those that wait, on the connection. */
static void combine(struct dlock__conn *conn, struct dlock__claim *const *claims, size_t n) {
    struct dlock_client *client = conn->client;
    struct dlock__batch batch;
    dlock__batch_begin(&batch, claims, n);
    if (client->backlogged && n == 1 && !client->coalescing[batch.kind]) coalesce(client, batch.kind);
    if (client->pending) gather(client, &batch);
    client->n_sent += (unsigned)batch.n;
    client->backlogged = client->n_sent + client->n_pending > client->uri->connections;
    dlock__pool_hand_out(client);
    struct dlock__claim *others[DLOCK__BATCH];
    size_t n_others = batch.n - n;
    memcpy(others, batch.claims + n, n_others * sizeof *others);
    struct dlock_error err;
    err.code = 0;
    int rc = dlock__batch_run(conn, &batch, &err);
    for (size_t i = 0; i < batch.n; i++) dlock__batch_complete(&batch, batch.claims[i], rc, &err);
    client->n_sent -= (unsigned)batch.n;
    dlock__pool_take_back(conn);
    if (n_others > 0) complete_others(client, others, n_others);
}

/* Everything that the claim left in a session that is over died with that. */
static void forget_old_session(struct dlock__claim *claim) {
    if (dlock__claim_died_with_connection(claim)) {
        memset(claim->state, 0, sizeof claim->state);
        claim->queued = claim->outcome_unknown = claim->late_acquire = false;
        claim->session = claim->name->client->session;
    }
    claim->queued = claim->queued || claim->op->arg.flags & DLOCK_CLAIM_QUEUE;
    memcpy(claim->op->arg.state, claim->state, sizeof claim->op->arg.state);
}

static int send_shared(struct dlock_client *client, struct dlock__batch *batch, struct dlock_error *err) {
    struct dlock__conn *conn = NULL;
    int rc = dlock__pool_take(client, batch->deadline_us, &conn, err);
    for (size_t i = 0; rc == 0 && i < batch->n; i++) forget_old_session(batch->claims[i]); /* it may be a new one */
    if (rc == 0) rc = dlock__batch_send(conn, batch, err);
    if (conn) dlock__pool_give(conn, rc);
    return rc;
}

/* Runs operations on the one connection of a THREADSAFE backend. It may have died unnoticed: as in dlock__batch_run. */
static void run_shared(struct dlock_client *client, struct dlock__claim *const *claims, size_t n) {
    bool reused = client->shared && client->shared->connected;
    struct dlock__batch batch;
    struct dlock_error err;
    err.code = 0;
    dlock__batch_begin(&batch, claims, n);
    int rc = send_shared(client, &batch, &err);
    if (rc == DLOCK_EUNAVAILABLE && reused && dlock__now(client) < batch.deadline_us) {
        err.code = 0;
        rc = send_shared(client, &batch, &err);
    }
    for (size_t i = 0; i < n; i++) dlock__batch_complete(&batch, batch.claims[i], rc, &err);
}

static void wait_for_bell(struct dlock_client *client, uint32_t bits, int64_t until_us) {
    unsigned seen = atomic_load(&client->bell);
    dlock__leave(client);
    dlock__futex_wait(&client->bell, seen, bits, until_us);
    dlock__enter(client);
}

/* Waits until a connection is handed over (returned), or until another thread has run the operation, or until the
 * deadline (NULL, op.result set). */
static struct dlock__conn *wait_for_conn(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__op *op = claim->op;
    op->bell = UINT32_C(1) << client->bells++ % 32;
    op->next = NULL;
    op->status = DLOCK__OP_PENDING;
    if (client->pending_tail)
        client->pending_tail->op->next = claim;
    else
        client->pending = claim;
    client->pending_tail = claim;
    client->n_pending++;

    /* Once it is in somebody's batch its answer is near: only the caller's own deadline is a reason to leave then. */
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
            dlock__pool_unqueue(client, claim);
            op->status = DLOCK__OP_DONE;
            op->unsent = true;
        }
    }
    op->bell = 0;
    op->err = NULL;
    return op->conn;
}

void dlock__op_prepare(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    struct dlock__op *op = claim->op;
    op->kind = kind;
    op->resent = kind == DLOCK__RELEASE && claim->release_sent;
    op->unsent = op->late = false;
    op->deadline_us = dlock__bounded(client, deadline_us);
    op->leave_us = deadline_us;
    op->prepared_us = dlock__now(client);
    op->bell = 0;
    op->conn = NULL;
    op->err = err;
    op->arg.name = claim->name->text;
    op->arg.token = claim->token;
    op->arg.mode = claim->mode;
    op->arg.limit = claim->limit;
    op->arg.flags = flags;
    op->arg.lease_ms = claim->lease_ms;
    forget_old_session(claim);
}

/* It never reached a connection. */
static void not_sent(struct dlock__claim *claim, int code, const char *why) {
    claim->op->unsent = claim->op->late = true;
    claim->op->status = DLOCK__OP_DONE;
    claim->op->result = dlock_fail(claim->op->err, code, "%s", why);
}

void dlock__op_send(struct dlock__claim *const *claims, size_t n) {
    struct dlock_client *client = claims[0]->name->client;
    if (dlock__can(client, DLOCK_CAP_THREADSAFE)) {
        run_shared(client, claims, n);
        return;
    }
    if (dlock__one_each(client)) {
        /* The last one first: whoever waits for all of them waits for the first, and finds the others free. */
        for (size_t i = 0; i < n; i++) claims[i]->op->status = DLOCK__OP_RUNNING;
        for (size_t i = n; i-- > 0;) dlock__session_run(claims[i]);
        return;
    }
    for (size_t i = 1; i < n; i++) claims[i]->op->status = DLOCK__OP_RUNNING; /* nobody else may send them meanwhile */
    while (n > 0) {
        struct dlock_error *err = claims[0]->op->err;
        bool joins = n == 1 && client->coalescing[claims[0]->op->kind];
        struct dlock__conn *conn = joins ? NULL : dlock__pool_pick(client);
        if (!conn && client->n_pool > 0) conn = wait_for_conn(claims[0]);
        if (conn) {
            claims[0]->op->conn = NULL;
            claims[0]->op->err = err;
            if (dlock__now(client) < claims[0]->op->deadline_us) {
                combine(conn, claims, n);
                return;
            }
            not_sent(claims[0], DLOCK_EUNAVAILABLE, "no free connection in time");
            dlock__pool_take_back(conn);
        } else if (client->n_pool == 0) {
            not_sent(claims[0], DLOCK_ENOMEM, "out of memory for a connection");
        }
        claims++; /* somebody else ran it, or it was not run in time */
        n--;
    }
}

int dlock__op_run(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err) {
    dlock__op_prepare(claim, kind, flags, deadline_us, err);
    dlock__op_send(&claim, 1);
    return claim->op->result;
}
