/* One request about several acquisitions: sending it, and what its answer means for each of them. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

/* A server that knows the deadline may give up this long before it. */
enum { EARLY_US = 5000 };

void dlock__batch_begin(struct dlock__batch *batch, struct dlock__acquisition *const *acqs, size_t n) {
    batch->n = n;
    batch->kind = acqs[0]->op->kind;
    batch->deadline_us = batch->sent_us = 0;
    batch->sent = batch->resent = false;
    for (size_t i = 0; i < n; i++) {
        struct dlock__op *op = acqs[i]->op;
        batch->acqs[i] = acqs[i];
        op->status = DLOCK__OP_RUNNING;
        if (op->deadline_us > batch->deadline_us) batch->deadline_us = op->deadline_us;
    }
}

int dlock__batch_send(struct dlock__conn *conn, struct dlock__batch *batch, struct dlock_error *err) {
    if (batch->n > 1) qsort(batch->acqs, batch->n, sizeof *batch->acqs, dlock__acq_by_name);
    for (size_t i = 0; i < batch->n; i++) {
        struct dlock_claim *arg = &batch->acqs[i]->op->arg;
        dlock__preset(arg);
        batch->args[i] = arg;
    }
    batch->resent = batch->sent;
    batch->sent = true;
    return dlock__conn_call(conn, batch->kind, batch->args, batch->n, batch->deadline_us, &batch->sent_us, err);
}

/* True if a backend may give this result for this operation. */
static bool sensible(enum dlock__op_kind kind, int result) {
    switch (result) {
    case DLOCK_EUNAVAILABLE:
    case DLOCK_EAUTH:
    case DLOCK_EPROTO:
    case DLOCK_EINVAL:
    case DLOCK_ENOMEM:
    case DLOCK_ENOTSUP:
    case DLOCK_ENOBACKEND: /* this one and the next: of a member, when a connection is made */
    case DLOCK_EABI: return true;
    case DLOCK_EBUSY:
    case DLOCK_ENOTREADY: return kind == DLOCK__ACQUIRE;
    case DLOCK_ELOST: return kind != DLOCK__ACQUIRE;
    default: return false;
    }
}

int dlock__claim_result(enum dlock__op_kind kind, int result) {
    return result == 0 || sensible(kind, result) ? result : DLOCK_EPROTO;
}

static int result_of(const struct dlock__acquisition *acq, int rc) {
    return dlock__claim_result(acq->op->kind, rc != 0 ? rc : acq->op->arg.result);
}

/* True if the outcome of the acquisition's operation is unknown; `rc` is what sending the batch returned. */
static bool is_unknown(const struct dlock__acquisition *acq, int rc) {
    int result = result_of(acq, rc);
    return rc != 0 || result == DLOCK_EUNAVAILABLE || result == DLOCK_EPROTO;
}

static void explain(const struct dlock__acquisition *acq, int result, const struct dlock_error *from, size_t n,
                    struct dlock_error *err) {
    if (from->code == result && (n == 1 || result == DLOCK_EUNAVAILABLE))
        *err = *from;
    else if (result != DLOCK_EBUSY && result != DLOCK_ENOTREADY && result != DLOCK_ELOST)
        dlock_fail(err, result, "lock \"%s\": %s", dlock__name_shown(acq->name), dlock_strerror(result));
    else
        err->code = 0; /* the caller has its own text for these */
}

/* Notes an operation without a known outcome, or with an earlier send without an answer. In a session, earlier sends
 * ended with the connections that broke. */
static void note_unknown(const struct dlock__batch *batch, struct dlock__acquisition *acq, bool unknown) {
    bool before = acq->op->resent && !dlock__can(acq->name->client, DLOCK_CAP_SESSION);
    if (unknown || before) dlock__acq_not_answered(acq, batch->kind, acq->op->arg.lease_ms);
}

void dlock__batch_complete(struct dlock__batch *batch, struct dlock__acquisition *acq, int rc,
                           const struct dlock_error *from) {
    struct dlock__op *op = acq->op;
    int result = result_of(acq, rc);
    op->resent |= batch->resent || (batch->sent && op->arg.hints & DLOCK_HINT_RESENT);
    if (op->kind == DLOCK__RELEASE && result == DLOCK_ELOST && op->resent) result = 0;
    op->result = result;
    op->late = result == DLOCK_EUNAVAILABLE && dlock__now(acq->name->client) >= batch->deadline_us - EARLY_US;
    op->sent_us = batch->sent_us;
    if (op->kind == DLOCK__RELEASE)
        op->resent |= batch->sent;
    else
        note_unknown(batch, acq, batch->sent && is_unknown(acq, rc));
    if (rc == 0) {
        memcpy(acq->backend_state, op->arg.state, sizeof acq->backend_state);
        if (acq->guarded) dlock__guard_note(acq);
        dlock__clock_sample_learn(acq->name->client, batch->sent_us, op->arg.server_us);
    }
    if (result != 0 && op->err) explain(acq, result, from, batch->n, op->err);
    op->status = DLOCK__OP_DONE;
}
