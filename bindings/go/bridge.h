/* What cgo cannot write itself: function pointers, and dlock.h's lists. `state` and `holders` are values of cgo.Handle. */
#ifndef DLOCK_GO_BRIDGE_H
#define DLOCK_GO_BRIDGE_H

#include <dlock/dlock.h>

int dlock_go_new(dlock_client *client, const char *name, const struct dlock_options *terms, uintptr_t state,
                 dlock_lock **lock, struct dlock_error *err);
int dlock_go_acquire(dlock_lock *lock, int64_t timeout_ms, uintptr_t state, struct dlock_error *err);
int dlock_go_release(dlock_lock *lock, uintptr_t state, struct dlock_error *err);
int dlock_go_inspect(dlock_client *client, const char *name, uintptr_t holders, struct dlock_error *err);
int dlock_go_list(dlock_client *client, const char *prefix, uintptr_t holders, struct dlock_error *err);
/* The advice of DLOCK_ERRORS for a code, the word of DLOCK_CAPS for a bit; NULL if there is none. */
const char *dlock_go_advice(int code);
const char *dlock_go_capability(int bit);

#endif
