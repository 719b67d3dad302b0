/* One request about several claims: sending it, and what its answer means for each of them. */
#include "io/batch.h"
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

/* A server that knows the deadline may give up a moment before it. */
enum { EARLY_US = 5000 };

void dlock__batch_begin(struct dlock__batch *batch, struct dlock__claim *const *claims, size_t n) {
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

int dlock__batch_send(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err) {
    struct dlock_client *client = conn->client;
    if (batch->n > 1) qsort(batch->claims, batch->n, sizeof *batch->claims, dlock__claim_by_name);
    for (size_t i = 0; i < batch->n; i++) {
        struct dlock_claim *arg = &batch->claims[i]->op->arg;
        dlock__preset(arg);
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

void dlock__batch_hurry(struct dlock__batch *batch, struct dlock_client *client) {
    int64_t most = dlock__after(dlock__now(client), dlock__us(client->uri->timeout_ms) / 2);
    if (batch->kind == DLOCK__RELEASE && most < batch->deadline_us) batch->deadline_us = most;
}

int dlock__batch_run(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err) {
    bool reused = conn->connected;
    int64_t deadline_us = batch->deadline_us;
    if (reused) dlock__batch_hurry(batch, conn->client);
    int rc = dlock__conn_ready(conn, batch->deadline_us, err);
    if (rc == 0) rc = dlock__batch_send(conn, batch, err);
    if (rc != 0 && batch->sent) dlock__conn_drop(conn);
    if (rc != DLOCK_EUNAVAILABLE || !reused || dlock__now(conn->client) >= deadline_us) return rc;
    err->code = 0;
    batch->deadline_us = deadline_us;
    rc = dlock__conn_ready(conn, batch->deadline_us, err);
    if (rc == 0 && (rc = dlock__batch_send(conn, batch, err)) != 0) dlock__conn_drop(conn);
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
    case DLOCK_EBUSY:
    case DLOCK_ENOTREADY: return kind == DLOCK__ACQUIRE;
    case DLOCK_ELOST: return kind != DLOCK__ACQUIRE;
    default: return false;
    }
}

static int result_of(const struct dlock__claim *claim, int rc) {
    int result = rc != 0 ? rc : claim->op->arg.result;
    return sensible(claim->op->kind, result) ? result : DLOCK_EPROTO;
}

bool dlock__batch_unknown(const struct dlock__claim *claim, int rc) {
    int result = result_of(claim, rc);
    return rc != 0 || result == DLOCK_EUNAVAILABLE || result == DLOCK_EPROTO;
}

static void explain(const struct dlock__claim *claim, int result, const struct dlock_error *from, size_t n,
                    struct dlock_error *err) {
    if (from->code == result && (n == 1 || result == DLOCK_EUNAVAILABLE))
        *err = *from;
    else if (result != DLOCK_EBUSY && result != DLOCK_ENOTREADY && result != DLOCK_ELOST)
        dlock_fail(err, result, "lock \"%s\": %s", dlock__name_shown(claim->name), dlock_strerror(result));
    else
        err->code = 0; /* nothing to add */
}

/* A connection that broke takes along what was sent over it only where it is a session. */
static void note_unknown(const struct dlock__batch *batch, struct dlock__claim *claim, bool unknown) {
    bool acquire = batch->kind == DLOCK__ACQUIRE;
    bool before = acquire && batch->resent && !dlock__can(claim->name->client, DLOCK_CAP_SESSION);
    if (!unknown && !before) return;
    claim->outcome_unknown = claim->outcome_unknown || unknown;
    claim->late_acquire = claim->late_acquire || acquire;
    claim->last_unknown_us = dlock__now(claim->name->client);
}

void dlock__batch_complete(struct dlock__batch *batch, struct dlock__claim *claim, int rc,
                           const struct dlock_error *from) {
    struct dlock__op *op = claim->op;
    int result = result_of(claim, rc);
    op->result = result;
    op->unsent = !batch->sent;
    op->late = result == DLOCK_EUNAVAILABLE && dlock__now(claim->name->client) >= batch->deadline_us - EARLY_US;
    op->resent = op->resent || batch->resent;
    op->sent_us = batch->sent_us;
    if (op->kind == DLOCK__RELEASE) {
        claim->release_sent = claim->release_sent || batch->sent;
    } else {
        note_unknown(batch, claim, batch->sent && dlock__batch_unknown(claim, rc));
    }
    if (rc == 0) {
        memcpy(claim->state, op->arg.state, sizeof claim->state);
        dlock__guard_note(claim);
        dlock__clock_sample_learn(claim->name->client, batch->sent_us, op->arg.server_us);
    }
    if (op->err && result != 0) explain(claim, result, from, batch->n, op->err);
    op->status = DLOCK__OP_DONE;
}
