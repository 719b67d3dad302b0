/* One request about several acquisitions, from the choice of its connection to its answer. */
#ifndef DLOCK_CORE_IO_BATCH_H
#define DLOCK_CORE_IO_BATCH_H

#include "state/client.h"

struct dlock__batch {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    struct dlock_claim *args[DLOCK__BATCH];
    size_t n;
    enum dlock__op_kind kind;
    int64_t deadline_us;
    int64_t sent_us;
    bool sent, resent;
};

/* With the operations prepared for n acquisitions of one kind. It ends with the last of them: who sends it cannot
 * leave. */
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

#endif
