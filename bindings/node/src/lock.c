/* Handles: each is one acquisition, with the asynchronous calls of the library. */
#include "addon.h"

static void activate(struct handle *handle, bool active) {
    struct client *client = handle->client;
    if (handle->active == active) return;
    handle->active = active;
    client->active += active ? 1 : -1;
    if (uv_is_closing((uv_handle_t *)&client->poll)) return;
    (client->active ? uv_ref : uv_unref)((uv_handle_t *)&client->poll);
}

void handle_put(struct handle *handle) {
    if (--handle->refs == 0) free(handle);
}

void handle_over(struct handle *handle) {
    dlock_lock *lock = handle->lock;
    if (!lock) return;
    activate(handle, false);
    if (handle->works > 0) {
        handle->over = true;
        return;
    }
    handle->lock = NULL;
    *(handle->prev ? &handle->prev->next : &handle->client->handles) = handle->next;
    if (handle->next) handle->next->prev = handle->prev;
    dlock_free(lock);
    handle_put(handle);
}

/* The library calls this while it dispatches: an exception of a listener is uncaught, and the other callbacks run. */
static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    const struct handle *handle = arg;
    struct client *client = handle->client;
    napi_env env = client->env;
    napi_value on_lost, receiver, exception, values[3];
    bool pending = false;
    if (client->ending) return;
    napi_get_reference_value(env, client->on_lost, &on_lost);
    napi_get_undefined(env, &receiver);
    napi_create_uint32(env, handle->id, &values[0]);
    napi_create_int32(env, dlock_lost(lock, NULL), &values[1]);
    napi_create_string_utf8(env, err->message, NAPI_AUTO_LENGTH, &values[2]);
    napi_call_function(env, receiver, on_lost, 3, values, NULL);
    napi_is_exception_pending(env, &pending);
    if (pending && napi_get_and_clear_last_exception(env, &exception) == napi_ok) napi_fatal_exception(env, exception);
}

static void collected(napi_env env, void *data, void *hint) {
    (void)env, (void)hint;
    handle_put(data);
}

/* lock_new(client, id, name, mode, limit, flags, leaseMs) */
napi_value lock_new(napi_env env, napi_callback_info info) {
    napi_value values[7], result;
    struct client *client;
    int32_t mode;
    if (!arguments(env, info, 7, values) || !(client = external(env, values[0]))) return NULL;
    if (client->ending) return failure(env, DLOCK_ECANCELED, "the client is closed");
    struct handle *handle = calloc(1, sizeof *handle);
    char *name = text(env, values[2]);
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err = {.code = DLOCK_ENOMEM};
    if (handle && name) {
        napi_get_value_uint32(env, values[1], &handle->id);
        napi_get_value_int32(env, values[3], &mode);
        napi_get_value_uint32(env, values[4], &options.limit);
        napi_get_value_uint32(env, values[5], &options.flags);
        napi_get_value_int64(env, values[6], &options.lease_ms);
        options.mode = (enum dlock_mode)mode;
        options.owner = DLOCK_OWNER_HANDLE;
        options.on_lost = lost;
        options.on_lost_arg = handle;
        if (dlock_new(client->dlock, name, &options, &handle->lock, &err) == 0) err.code = 0;
    }
    free(name);
    if (err.code != 0) {
        free(handle);
        return failure(env, err.code, err.message);
    }
    handle->client = client;
    handle->refs = 2;
    handle->next = client->handles;
    if (handle->next) handle->next->prev = handle;
    client->handles = handle;
    napi_create_external(env, handle, collected, NULL, &result);
    return result;
}

static void acquired(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct handle *handle = arg;
    (void)lock;
    settle(handle->client, &handle->acquiring, err);
    if (err && !handle->client->ending) handle_over(handle);
}

static void released(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct handle *handle = arg;
    (void)lock;
    settle(handle->client, &handle->releasing, err);
    if (!handle->client->ending) handle_over(handle);
}

/* The promise of a call that has begun, or could not begin. */
static napi_value begun(struct handle *handle, napi_deferred *deferred, napi_value promise, int rc) {
    if (rc != 0) {
        settle(handle->client, deferred, &(struct dlock_error){.code = rc});
        handle_over(handle);
    }
    return promise;
}

/* acquire(handle, timeoutMs): a promise. A handle that was not granted its lock is over. */
napi_value lock_acquire(napi_env env, napi_callback_info info) {
    napi_value values[2], promise;
    struct handle *handle;
    int64_t timeout_ms;
    if (!arguments(env, info, 2, values) || !(handle = external(env, values[0]))) return NULL;
    if (!handle->lock) return failure(env, DLOCK_ECANCELED, NULL);
    napi_get_value_int64(env, values[1], &timeout_ms);
    napi_create_promise(env, &handle->acquiring, &promise);
    activate(handle, true);
    return begun(handle, &handle->acquiring, promise, dlock_acquire_async(handle->lock, timeout_ms, acquired, handle));
}

/* release(handle): a promise. The handle is over, whatever the result is. */
napi_value lock_release(napi_env env, napi_callback_info info) {
    napi_value values[1], promise;
    struct handle *handle;
    if (!arguments(env, info, 1, values) || !(handle = external(env, values[0]))) return NULL;
    if (!handle->lock) return failure(env, DLOCK_ECANCELED, NULL);
    napi_create_promise(env, &handle->releasing, &promise);
    return begun(handle, &handle->releasing, promise, dlock_release_async(handle->lock, released, handle));
}

/* cancel(handle) */
napi_value lock_cancel(napi_env env, napi_callback_info info) {
    napi_value values[1];
    struct handle *handle;
    if (arguments(env, info, 1, values) && (handle = external(env, values[0])) && handle->lock)
        dlock_cancel(handle->lock);
    return NULL;
}

/* state(handle): {held, remaining, fence, token}, or undefined after the release. */
napi_value lock_state(napi_env env, napi_callback_info info) {
    napi_value values[1], state, value;
    struct handle *handle;
    char token[DLOCK_TOKEN_MAX + 1] = "";
    if (!arguments(env, info, 1, values) || !(handle = external(env, values[0])) || !handle->lock) return NULL;
    napi_create_object(env, &state);
    napi_get_boolean(env, dlock_held(handle->lock), &value);
    set(env, state, "held", value);
    int64_t remaining_ms = dlock_remaining_ms(handle->lock);
    set_number(env, state, "remaining", remaining_ms == DLOCK_FOREVER ? INFINITY : (double)remaining_ms);
    napi_create_bigint_uint64(env, dlock_fence(handle->lock), &value);
    set(env, state, "fence", value);
    dlock_token(handle->lock, token, sizeof token, NULL);
    set_text(env, state, "token", token);
    return state;
}
