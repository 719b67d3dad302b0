#include "bridge.h"
#include "_cgo_export.h"
#include <stdio.h>

static void on_acquired(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    dlockAcquired((uintptr_t)arg, (struct dlock_error *)err);
}

static void on_released(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    dlockReleased((uintptr_t)arg, (struct dlock_error *)err);
}

static void on_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    dlockLost((uintptr_t)arg, (struct dlock_error *)err, dlock_lost(lock, NULL));
}

static int on_holder(const struct dlock_info *info, void *arg) {
    dlockHolder((uintptr_t)arg, (struct dlock_info *)info);
    return 0;
}

int dlock_go_new(dlock_client *client, const char *name, const struct dlock_options *terms, uintptr_t state,
                 dlock_lock **lock, struct dlock_error *err) {
    struct dlock_options options = *terms;
    options.size = sizeof options;
    options.owner = DLOCK_OWNER_HANDLE; /* goroutines move between threads */
    options.on_lost = on_lost;
    options.on_lost_arg = (void *)state;
    return dlock_new(client, name, &options, lock, err);
}

/* The functions without a message. */
static int explained(int rc, dlock_lock *lock, struct dlock_error *err) {
    if (rc != 0) {
        err->code = rc;
        snprintf(err->message, sizeof err->message, "lock \"%s\": %s", dlock_name(lock), dlock_strerror(rc));
    }
    return rc;
}

int dlock_go_acquire(dlock_lock *lock, int64_t timeout_ms, uintptr_t state, struct dlock_error *err) {
    return explained(dlock_acquire_async(lock, timeout_ms, on_acquired, (void *)state), lock, err);
}

int dlock_go_release(dlock_lock *lock, uintptr_t state, struct dlock_error *err) {
    return explained(dlock_release_async(lock, on_released, (void *)state), lock, err);
}

int dlock_go_inspect(dlock_client *client, const char *name, uintptr_t holders, struct dlock_error *err) {
    return dlock_inspect(client, name, on_holder, (void *)holders, err);
}

int dlock_go_list(dlock_client *client, const char *prefix, uintptr_t holders, struct dlock_error *err) {
    return dlock_list(client, prefix, on_holder, (void *)holders, err);
}

const char *dlock_go_advice(int code) {
#define X(name, number, text, advice) \
    if (code == number) return advice;
    DLOCK_ERRORS(X)
#undef X
    return NULL;
}

const char *dlock_go_capability(int at) {
#define X(name, bit, word, meaning) \
    if (at == bit) return word;
    DLOCK_CAPS(X)
#undef X
    return NULL;
}
