#include "support/claim.h"

void claim_preset(struct dlock_claim *claim) {
    claim->result = DLOCK_EPROTO;
    claim->server_us = 0;
    claim->kept_ms = claim->lease_ms;
    claim->retry_ms = claim->ready_ms = -1;
    claim->hints = 0;
}

int claim_run(dlock_batch *operation, void *conn, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    claim_preset(claim);
    return operation(conn, &claim, 1, timeout_ms, err);
}
