/* Operations on one claim, prepared as by the core. */
#ifndef DLOCK_TESTS_SUPPORT_CLAIM_H
#define DLOCK_TESTS_SUPPORT_CLAIM_H

#include <dlock/backend.h>

/* Presets what the core presets before each call. */
void claim_preset(struct dlock_claim *claim);

/* Runs the operation on the claim. Returns what the operation returned; the result is in the claim. */
int claim_run(dlock_batch *operation, void *conn, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err);

#endif
