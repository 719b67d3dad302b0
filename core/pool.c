/* The connection pool. A thread that finds a free connection runs its own operation on it at once. When all are busy
 * the operation waits in client->pending; whoever gives a connection back hands it to the first waiting thread, which
 * takes all waiting operations of its kind along as one batch ("flat combining": Hendler et al., SPAA 2010, with the
 * combiner's role passed on). THREADSAFE backends have one connection for everybody and no batches; of other SESSION
 * backends each claim has a connection to itself, as many as there are claims. */
#include "client.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    struct dlock__claim *claims[DLOCK__BATCH];
    struct dlock_claim *args[DLOCK__BATCH];
    size_t n;
    enum dlock__op_kind kind;
    int64_t deadline_us;
    int64_t sent_us;
    bool sent, resent;
};

/* ---- connections ---- */

static bool threadsafe(const struct dlock_client *client) {
    return dlock__can(client, DLOCK_CAP_THREADSAFE);
}

void dlock__pool_broke(struct dlock_client *client) {
    client->pair.known = false;
    if (!dlock__can(client, DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE)) return;
    client->session++;
    for (struct dlock__claim *claim = client->claims, *next; claim; claim = next) {
        next = claim->all_next;
        if (claim->phase == DLOCK__HELD) dlock__lose(claim);
    }
}

static void shared_close_if_unused(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    if (conn->users > 0 || conn->connected || conn->busy || !atomic_load(&conn->live)) return;
    conn->busy = true;
    dlock__leave(client);
    dlock__conn_close(conn);
    dlock__enter(client);
    conn->busy = false;
    pthread_cond_broadcast(&client->changed);
}

static int shared_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **out,
                       struct dlock_error *err) {
    if (!client->shared) client->shared = dlock__conn_new(client);
    struct dlock__conn *conn = client->shared;
    if (!conn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection");
    while (conn->busy || (!conn->connected && conn->users > 0)) {
        if (dlock__now(client) >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "the connection was not ready in time");
        dlock__wait(client, &client->changed, deadline_us);
    }
    if (!conn->connected) {
        conn->busy = true;
        dlock__leave(client);
        int rc = dlock__conn_open(conn, deadline_us, true, err);
        dlock__enter(client);
        conn->busy = false;
        conn->connected = rc == 0;
        pthread_cond_broadcast(&client->changed);
        if (rc != 0) return rc;
    }
    conn->users++;
    *out = conn;
    return 0;
}

static void shared_give(struct dlock__conn *conn, int rc) {
    struct dlock_client *client = conn->client;
    if (rc != 0 && conn->connected) {
        conn->connected = false;
        dlock__pool_broke(client);
        dlock__keeper_kick(client); /* it lets go of the listener */
    }
    conn->users--;
    if (!conn->connected) pthread_cond_broadcast(&client->changed);
    shared_close_if_unused(conn);
}

/* A pooled connection that nobody uses, connected or not; NULL: all are busy. */
static struct dlock__conn *pooled_take(struct dlock_client *client) {
    struct dlock__conn **at = &client->idle, *conn;
    if (client->n_idle > 0)
        while (!(*at)->connected) at = &(*at)->idle;
    if ((conn = *at)) {
        *at = conn->idle;
        if (conn->connected && dlock__one_each(client)) client->n_idle--;
        return conn;
    }
    if (client->n_pool >= client->uri->connections && !dlock__one_each(client)) return NULL;
    conn = dlock__conn_new(client);
    if (conn) client->n_pool++;
    return conn;
}

static void pooled_give(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    struct dlock__claim *first = client->pending;
    if (!first) {
        conn->idle = client->idle;
        client->idle = conn;
        pthread_cond_broadcast(&client->changed);
        return;
    }
    client->pending = first->op->next;
    if (!client->pending) client->pending_tail = NULL;
    first->op->conn = conn;
    pthread_cond_signal(first->op->cond);
}

static void pending_remove(struct dlock_client *client, struct dlock__claim *claim) {
    struct dlock__claim **at = &client->pending, *before = NULL;
    while (*at != claim) {
        before = *at;
        at = &(*at)->op->next;
    }
    *at = claim->op->next;
    if (client->pending_tail == claim) client->pending_tail = before;
}

static void drop(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    conn->connected = false;
    dlock__leave(client);
    dlock__conn_close(conn);
    dlock__enter(client);
    dlock__pool_broke(client);
}

void dlock__pool_take_back(struct dlock__conn *conn) {
    struct dlock_client *client = conn->client;
    if (conn->connected && dlock__one_each(client) && client->n_idle++ >= client->uri->connections) {
        client->n_idle--;
        conn->connected = false;
        dlock__leave(client);
        dlock__conn_close(conn);
        dlock__enter(client);
    }
    pooled_give(conn);
}

static int ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    if (conn->connected) return 0;
    dlock__leave(client);
    int rc = dlock__conn_open(conn, deadline_us, true, err);
    if (rc == 0 && client->watch >= 0) rc = dlock__watch_begin(conn, deadline_us, err);
    dlock__enter(client);
    conn->connected = rc == 0;
    return rc;
}

/* ---- batches ---- */

/* Adds every waiting operation that fits: same kind, no name twice. The batch ends at its leader's deadline, since that
 * thread cannot leave; operations that had more time are sent again by whoever waits for them. */
static void gather(struct dlock_client *client, struct batch *batch) {
    struct dlock__claim **at = &client->pending, *last = NULL;
    for (size_t i = 0; i < batch->n; i++) batch->claims[i]->name->in_batch = true;
    while (*at && batch->n < DLOCK__BATCH) {
        struct dlock__claim *claim = *at;
        if (claim->op->kind != batch->kind || claim->name->in_batch) {
            last = claim;
            at = &claim->op->next;
            continue;
        }
        *at = claim->op->next;
        if (client->pending_tail == claim) client->pending_tail = last;
        claim->name->in_batch = true;
        claim->op->status = DLOCK__OP_RUNNING;
        claim->refs++; /* its thread may leave */
        batch->claims[batch->n++] = claim;
    }
    for (size_t i = 0; i < batch->n; i++) batch->claims[i]->name->in_batch = false;
}

static int send(struct dlock__conn *conn, struct batch *batch, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    if (batch->n > 1) qsort(batch->claims, batch->n, sizeof *batch->claims, dlock__claim_by_name);
    for (size_t i = 0; i < batch->n; i++) {
        struct dlock_claim *arg = &batch->claims[i]->op->arg;
        arg->result = DLOCK_EPROTO;
        arg->fence = 0;
        arg->server_us = 0;
        arg->kept_ms = arg->lease_ms;
        arg->retry_ms = -1;
        batch->args[i] = arg;
    }
    batch->resent = batch->sent;
    batch->sent = true;
    batch->sent_us = dlock__now(client); /* not later than it is sent */
    dlock__leave(client);
    int rc = dlock__conn_batch(client, batch->kind)(conn->data, batch->args, batch->n,
                                                    dlock__timeout_ms(batch->sent_us, batch->deadline_us), err);
    dlock__enter(client);
    if (rc > 0) rc = dlock_fail(err, DLOCK_EPROTO, "backend %s returned %d", client->backend->name, rc);
    return rc;
}

/* Whether a backend may answer this. */
static bool sensible(enum dlock__op_kind kind, int result) {
    switch (result) {
    case 0:
    case DLOCK_EUNAVAILABLE:
    case DLOCK_EAUTH:
    case DLOCK_EPROTO:
    case DLOCK_EINVAL:
    case DLOCK_ENOMEM:
    case DLOCK_ENOTSUP: return true;
    case DLOCK_EBUSY: return kind == DLOCK__ACQUIRE;
    case DLOCK_ELOST: return kind != DLOCK__ACQUIRE;
    default: return false;
    }
}

static void explain(const struct dlock__claim *claim, int result, const struct dlock_error *from, size_t n,
                    struct dlock_error *err) {
    if (from->code == result && (n == 1 || result == DLOCK_EUNAVAILABLE))
        *err = *from;
    else if (result != DLOCK_EBUSY && result != DLOCK_ELOST)
        dlock_fail(err, result, "lock \"%s\": %s", dlock__name_shown(claim->name), dlock_strerror(result));
    else
        err->code = 0; /* nothing to add */
}

static void complete(struct batch *batch, struct dlock__claim *claim, int rc, const struct dlock_error *from) {
    struct dlock__op *op = claim->op;
    int result = rc != 0 ? rc : op->arg.result;
    if (!sensible(op->kind, result)) result = DLOCK_EPROTO;
    op->result = result;
    op->unsent = !batch->sent;
    op->resent = op->resent || batch->resent;
    op->sent_us = batch->sent_us;
    bool unknown = batch->sent && (rc != 0 || result == DLOCK_EUNAVAILABLE || result == DLOCK_EPROTO);
    if (op->kind == DLOCK__RELEASE) {
        claim->release_sent = claim->release_sent || batch->sent;
    } else if (unknown) {
        claim->may_be_held = true;
        claim->last_unknown_us = dlock__now(claim->name->client);
    }
    if (rc == 0) {
        memcpy(claim->state, op->arg.state, sizeof claim->state);
        dlock__guard_note(claim);
        dlock__pair_learn(claim->name->client, batch->sent_us, op->arg.server_us);
    }
    if (op->err && result != 0) explain(claim, result, from, batch->n, op->err);
    op->status = DLOCK__OP_DONE;
}

/* It ends with the last of its own operations: who leads cannot leave. */
static void begin(struct batch *batch, struct dlock__claim *const *claims, size_t n) {
    memcpy(batch->claims, claims, n * sizeof *claims);
    batch->n = n;
    batch->kind = claims[0]->op->kind;
    batch->deadline_us = claims[0]->op->deadline_us;
    batch->sent_us = 0;
    batch->sent = batch->resent = false;
    for (size_t i = 0; i < n; i++) {
        claims[i]->op->status = DLOCK__OP_RUNNING;
        if (claims[i]->op->deadline_us > batch->deadline_us) batch->deadline_us = claims[i]->op->deadline_us;
    }
}

/* Sends the batch on a connection that is ours alone. An idle one may have died unnoticed: then once more on a fresh
 * one, since every operation is idempotent by token. */
static int run(struct dlock__conn *conn, struct batch *batch, struct dlock_error *err) {
    bool reused = conn->connected;
    int rc = ready(conn, batch->deadline_us, err);
    if (rc == 0) rc = send(conn, batch, err);
    if (rc != 0 && batch->sent) drop(conn);
    if (rc != DLOCK_EUNAVAILABLE || !reused || dlock__now(conn->client) >= batch->deadline_us) return rc;
    err->code = 0;
    rc = ready(conn, batch->deadline_us, err);
    if (rc == 0 && (rc = send(conn, batch, err)) != 0) drop(conn);
    return rc;
}

/* Runs the operations, and those that wait, on the connection. */
static void lead(struct dlock__conn *conn, struct dlock__claim *const *claims, size_t n) {
    struct dlock_client *client = conn->client;
    struct batch batch;
    begin(&batch, claims, n);
    if (client->pending) gather(client, &batch);
    struct dlock__claim *others[DLOCK__BATCH];
    size_t n_others = batch.n - n;
    memcpy(others, batch.claims + n, n_others * sizeof *others);
    struct dlock_error err;
    err.code = 0;
    int rc = run(conn, &batch, &err);
    bool orphaned = false;
    for (size_t i = 0; i < batch.n; i++) complete(&batch, batch.claims[i], rc, &err);
    for (size_t i = 0; i < n_others; i++) {
        if (others[i]->op->cond)
            pthread_cond_signal(others[i]->op->cond);
        else
            orphaned = true;
        dlock__claim_put(others[i]);
    }
    if (orphaned) pthread_cond_signal(&client->janitor.cond);
    pooled_give(conn);
}

/* Runs operations on the one connection of a THREADSAFE backend. */
static void run_shared(struct dlock_client *client, struct dlock__claim *const *claims, size_t n) {
    struct dlock__conn *conn = NULL;
    struct batch batch;
    struct dlock_error err;
    err.code = 0;
    begin(&batch, claims, n);
    int rc = shared_take(client, batch.deadline_us, &conn, &err);
    if (rc == 0) rc = send(conn, &batch, &err);
    for (size_t i = 0; i < n; i++) complete(&batch, batch.claims[i], rc, &err);
    if (conn) shared_give(conn, rc);
}

/* Whether a connection goes on to carry the claim after this answer. */
static bool stays(const struct dlock__op *op) {
    if (op->kind != DLOCK__ACQUIRE) return false;
    return op->arg.result == 0 || (op->arg.result == DLOCK_EBUSY && op->arg.flags & DLOCK_CLAIM_QUEUE &&
                                   dlock__can(op->conn->client, DLOCK_CAP_PENDING));
}

/* Runs an operation on the connection that the claim lives in, or an acquire on one that it begins to live in. */
static int run_at_home(struct dlock__conn *conn, struct batch *batch, struct dlock_error *err) {
    struct dlock__claim *claim = batch->claims[0];
    struct dlock_client *client = conn->client;
    bool begins = !claim->home;
    if (begins) dlock__session_begin(conn, claim);
    conn->busy = true;
    if (!begins) dlock__watch(conn, false);
    int rc = begins ? run(conn, batch, err) : send(conn, batch, err);
    int result = claim->op->arg.result;
    bool unknown = rc != 0 || !sensible(batch->kind, result) || result == DLOCK_EUNAVAILABLE || result == DLOCK_EPROTO;
    if (unknown && conn->connected) drop(conn);
    conn->busy = false;
    claim->op->conn = conn;
    if (!unknown && stays(claim->op)) {
        conn->waiting = result == DLOCK_EBUSY;
        dlock__watch(conn, true);
    } else {
        dlock__session_end(conn);
    }
    claim->op->conn = NULL;
    pthread_cond_broadcast(&client->changed);
    return rc;
}

/* An operation on a claim that has a connection to itself. */
static void run_alone(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct batch batch;
    struct dlock_error err;
    int rc = 0;
    err.code = 0;
    begin(&batch, &claim, 1);
    while (claim->home && claim->home->busy && dlock__now(client) < batch.deadline_us)
        dlock__wait(client, &client->changed, batch.deadline_us);
    struct dlock__conn *conn = claim->home;
    if (conn && conn->busy) {
        rc = dlock_fail(&err, DLOCK_EUNAVAILABLE, "the connection that the lock lives in was not ready in time");
    } else if (!conn && batch.kind != DLOCK__ACQUIRE) {
        claim->op->arg.result = DLOCK_ELOST;
        claim->op->arg.server_us = 0;
    } else {
        if (!conn) conn = pooled_take(client);
        rc = conn ? run_at_home(conn, &batch, &err) : dlock_fail(&err, DLOCK_ENOMEM, "out of memory for a connection");
    }
    complete(&batch, claim, rc, &err);
    if (!claim->home) claim->may_be_held = false;
}

/* Waits until a connection is handed over (returned), or until another thread has run the operation, or until the
 * deadline (NULL, op.result set). */
static struct dlock__conn *wait_for_conn(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__op *op = claim->op;
    pthread_cond_t cond;
    dlock__cond_init(&cond);
    op->cond = &cond;
    op->next = NULL;
    op->status = DLOCK__OP_PENDING;
    if (client->pending_tail)
        client->pending_tail->op->next = claim;
    else
        client->pending = claim;
    client->pending_tail = claim;

    /* Once it is in somebody's batch its answer is near: only the caller's own deadline is a reason to leave then. */
    while (!op->conn && op->status != DLOCK__OP_DONE) {
        int64_t until = op->status == DLOCK__OP_RUNNING ? op->leave_us : op->deadline_us;
        if (dlock__now(client) >= until) break;
        dlock__wait(client, &cond, until);
    }

    if (!op->conn && op->status != DLOCK__OP_DONE) {
        op->result = dlock_fail(op->err, DLOCK_EUNAVAILABLE, "no answer in time: all %u connections are busy",
                                client->uri->connections);
        if (op->status == DLOCK__OP_PENDING) {
            pending_remove(client, claim);
            op->status = DLOCK__OP_DONE;
            op->unsent = true;
        }
    }
    op->cond = NULL;
    op->err = NULL;
    pthread_cond_destroy(&cond);
    return op->conn;
}

static int64_t bounded(struct dlock_client *client, int64_t deadline_us) {
    int64_t most = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms));
    return deadline_us < most ? deadline_us : most;
}

void dlock__op_prepare(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    struct dlock__op *op = claim->op;
    op->kind = kind;
    op->resent = kind == DLOCK__RELEASE && claim->release_sent;
    op->unsent = false;
    op->deadline_us = bounded(client, deadline_us);
    op->leave_us = deadline_us;
    op->cond = NULL;
    op->conn = NULL;
    op->err = err;
    op->arg.name = claim->name->text;
    op->arg.token = claim->token;
    op->arg.mode = claim->mode;
    op->arg.limit = claim->limit;
    op->arg.flags = flags;
    op->arg.lease_ms = claim->lease_ms;
    if (dlock__claim_outlived(claim)) {
        memset(claim->state, 0, sizeof claim->state);
        claim->queued = claim->may_be_held = false;
        claim->session = client->session;
    }
    claim->queued = claim->queued || flags & DLOCK_CLAIM_QUEUE;
    memcpy(op->arg.state, claim->state, sizeof op->arg.state);
}

/* It never reached a connection. */
static void not_sent(struct dlock__claim *claim, int code, const char *why) {
    claim->op->unsent = true;
    claim->op->status = DLOCK__OP_DONE;
    claim->op->result = dlock_fail(claim->op->err, code, "%s", why);
}

void dlock__op_send(struct dlock__claim *const *claims, size_t n) {
    struct dlock_client *client = claims[0]->name->client;
    if (threadsafe(client)) {
        run_shared(client, claims, n);
        return;
    }
    if (dlock__one_each(client)) {
        for (size_t i = 1; i < n; i++) claims[i]->op->status = DLOCK__OP_RUNNING;
        for (size_t i = 0; i < n; i++) run_alone(claims[i]);
        return;
    }
    for (size_t i = 1; i < n; i++) claims[i]->op->status = DLOCK__OP_RUNNING; /* nobody else may send them meanwhile */
    while (n > 0) {
        struct dlock_error *err = claims[0]->op->err;
        struct dlock__conn *conn = pooled_take(client);
        if (!conn && client->n_pool > 0) conn = wait_for_conn(claims[0]);
        if (conn) {
            claims[0]->op->conn = NULL;
            claims[0]->op->err = err;
            if (dlock__now(client) < claims[0]->op->deadline_us) {
                lead(conn, claims, n);
                return;
            }
            not_sent(claims[0], DLOCK_EUNAVAILABLE, "no free connection in time");
            pooled_give(conn);
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

/* ---- for everything that is not a claim ---- */

int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **out,
                     struct dlock_error *err) {
    deadline_us = bounded(client, deadline_us);
    if (threadsafe(client)) return shared_take(client, deadline_us, out, err);
    struct dlock__conn *conn;
    while (!(conn = pooled_take(client))) {
        if (dlock__now(client) >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE, "no free connection in time: all %u are busy",
                              client->uri->connections);
        dlock__wait(client, &client->changed, deadline_us);
    }
    int rc = ready(conn, deadline_us, err);
    if (rc != 0) {
        dlock__pool_take_back(conn);
        return rc;
    }
    *out = conn;
    return 0;
}

void dlock__pool_give(struct dlock__conn *conn, int rc) {
    if (threadsafe(conn->client)) {
        shared_give(conn, rc);
        return;
    }
    if (rc != 0) drop(conn);
    dlock__pool_take_back(conn);
}
