/* The module, and clients: their descriptor is polled by the event loop, which also runs their callbacks. */
#include "addon.h"

enum { EXIT_MS = 2000 /* longest time that releases take at the end of a process or worker */ };

/* ---- values ---- */

bool arguments(napi_env env, napi_callback_info info, size_t n, napi_value *values) {
    size_t given = n;
    if (napi_get_cb_info(env, info, &given, values, NULL, NULL) == napi_ok && given == n) return true;
    napi_throw_type_error(env, NULL, "dlock's addon was called with other arguments than index.js gives");
    return false;
}

void *external(napi_env env, napi_value value) {
    void *data = NULL;
    if (napi_get_value_external(env, value, &data) != napi_ok)
        napi_throw_type_error(env, NULL, "not a handle of dlock");
    return data;
}

char *text(napi_env env, napi_value value) {
    size_t length;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return NULL;
    char *copy = malloc(length + 1);
    if (copy) napi_get_value_string_utf8(env, value, copy, length + 1, NULL);
    return copy;
}

void set(napi_env env, napi_value object, const char *name, napi_value value) {
    napi_set_named_property(env, object, name, value);
}

void set_number(napi_env env, napi_value object, const char *name, double number) {
    napi_value value;
    if (napi_create_double(env, number, &value) == napi_ok) set(env, object, name, value);
}

void set_text(napi_env env, napi_value object, const char *name, const char *string) {
    napi_value value;
    if (napi_create_string_utf8(env, string, NAPI_AUTO_LENGTH, &value) == napi_ok) set(env, object, name, value);
}

napi_value failure(napi_env env, int code, const char *message) {
    napi_value object = NULL;
    napi_create_object(env, &object);
    set_number(env, object, "errno", code);
    set_text(env, object, "message", message && *message ? message : dlock_strerror(code));
    return object;
}

void settle(struct client *client, napi_deferred *deferred, const struct dlock_error *err) {
    napi_env env = client->env;
    napi_value result;
    if (client->ending || !*deferred) return;
    if (err)
        result = failure(env, err->code, err->message);
    else
        napi_get_undefined(env, &result);
    napi_resolve_deferred(env, *deferred, result);
    *deferred = NULL;
}

/* ---- in the event loop ---- */

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct client *client = poll->data;
    napi_env env = client->env;
    napi_handle_scope values;
    napi_callback_scope calls;
    (void)status, (void)events;
    if (napi_open_handle_scope(env, &values) != napi_ok) return;
    /* Its end runs what awaits the promises that were resolved here, for all of them at once. */
    if (napi_open_callback_scope(env, NULL, client->context, &calls) == napi_ok) {
        client->dispatching = true;
        dlock_client_dispatch(client->dlock);
        client->dispatching = false;
        napi_close_callback_scope(env, calls);
    }
    napi_close_handle_scope(env, values);
}

/* ---- the end ---- */

void client_put(struct client *client) {
    if (--client->refs == 0) free(client);
}

void client_closed(struct client *client) {
    napi_env env = client->env;
    napi_value undefined;
    client->dlock = NULL;
    for (struct handle *handle = client->handles, *next; handle; handle = next) {
        next = handle->next;
        dlock_free(handle->lock);
        handle->lock = NULL;
        handle_put(handle);
    }
    client->handles = NULL;
    napi_delete_reference(env, client->on_lost);
    napi_async_destroy(env, client->context);
    if (client->closed && napi_get_undefined(env, &undefined) == napi_ok)
        napi_resolve_deferred(env, client->closed, undefined);
    napi_remove_async_cleanup_hook(client->hook);
    client_put(client);
}

static void poll_closed(uv_handle_t *poll) {
    struct client *client = poll->data;
    napi_env env = client->env;
    napi_handle_scope values;
    if (client->closed && napi_open_handle_scope(env, &values) == napi_ok) {
        work_close(client);
        napi_close_handle_scope(env, values);
    } else {
        dlock_close_within(client->dlock, EXIT_MS); /* after leave() there is none any more */
        client_closed(client);
    }
}

void client_end(struct client *client) {
    client->ending = true;
    if (client->works == 0 && !uv_is_closing((uv_handle_t *)&client->poll))
        uv_close((uv_handle_t *)&client->poll, poll_closed);
}

/* The worker or process ends, and its event loop runs until the hook is removed. */
static void environment_ends(napi_async_cleanup_hook_handle hook, void *data) {
    (void)hook;
    client_end(data);
}

/* close(client): a promise. Nothing waits, and no call is in progress: index.js has stopped the client and seen to that. */
static napi_value client_close(napi_env env, napi_callback_info info) {
    napi_value values[1], promise;
    struct client *client;
    if (!arguments(env, info, 1, values) || !(client = external(env, values[0])) || client->ending) return NULL;
    napi_create_promise(env, &client->closed, &promise);
    client_end(client);
    return promise;
}

/* stop(client) */
static napi_value client_stop(napi_env env, napi_callback_info info) {
    napi_value values[1];
    struct client *client;
    if (arguments(env, info, 1, values) && (client = external(env, values[0])) && !client->ending)
        dlock_client_stop(client->dlock);
    return NULL;
}

/* leave(client): process.exit() was called, and ends the process at once. A callback must not close its client, and neither
 * may a client be closed whose calls in the pool have not begun: then only what it holds is released. */
static napi_value client_leave(napi_env env, napi_callback_info info) {
    napi_value values[1];
    struct client *client;
    if (!arguments(env, info, 1, values) || !(client = external(env, values[0])) || client->ending) return NULL;
    dlock_client_stop(client->dlock);
    if (client->dispatching || client->works > 0) {
        for (struct handle *handle = client->handles; handle; handle = handle->next) dlock_release(handle->lock, NULL);
        return NULL;
    }
    client_end(client);
    dlock_close_within(client->dlock, EXIT_MS);
    client->dlock = NULL;
    return NULL;
}

/* ---- clients ---- */

static void collected(napi_env env, void *data, void *hint) {
    (void)env, (void)hint;
    client_put(data);
}

/* Makes what the client needs in the environment. */
static bool attach(struct client *client, napi_value on_lost) {
    napi_env env = client->env;
    napi_value label, resource;
    uv_loop_t *loop;
    if (napi_create_string_utf8(env, "dlock", NAPI_AUTO_LENGTH, &label) != napi_ok ||
        napi_create_object(env, &resource) != napi_ok ||
        napi_async_init(env, resource, label, &client->context) != napi_ok ||
        napi_create_reference(env, on_lost, 1, &client->on_lost) != napi_ok ||
        napi_get_uv_event_loop(env, &loop) != napi_ok)
        return false;
    client->poll.data = client;
    if (uv_poll_init(loop, &client->poll, dlock_client_fd(client->dlock)) != 0) return false;
    uv_poll_start(&client->poll, UV_READABLE, on_readable);
    uv_unref((uv_handle_t *)&client->poll);
    return napi_add_async_cleanup_hook(env, environment_ends, client, &client->hook) == napi_ok;
}

/* open(uri, onLost): a client, which does not connect yet. */
static napi_value client_open(napi_env env, napi_callback_info info) {
    napi_value values[2], result;
    struct dlock_error err = {.code = DLOCK_ENOMEM};
    if (!arguments(env, info, 2, values)) return NULL;
    char *uri = text(env, values[0]);
    struct client *client = calloc(1, sizeof *client);
    if (uri && client) {
        struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
        options.flags = DLOCK_CLIENT_MANUAL | DLOCK_CLIENT_LAZY;
        client->env = env;
        client->refs = 2;
        if (dlock_open(uri, &options, &client->dlock, &err) == 0) err.code = 0;
    }
    free(uri);
    if (err.code != 0) {
        free(client);
        return failure(env, err.code, err.message);
    }
    if (!attach(client, values[1]))
        napi_fatal_error("dlock", NAPI_AUTO_LENGTH, "cannot watch a client", NAPI_AUTO_LENGTH);
    napi_create_external(env, client, collected, NULL, &result);
    return result;
}

/* backend(client): {name, capabilities} */
static napi_value client_backend(napi_env env, napi_callback_info info) {
    napi_value values[1], backend, words, word;
    struct client *client;
    uint32_t n = 0;
    if (!arguments(env, info, 1, values) || !(client = external(env, values[0])) || client->ending) return NULL;
    const struct dlock_backend_info *told = dlock_client_backend(client->dlock);
    napi_create_object(env, &backend);
    set_text(env, backend, "name", told->name);
    napi_create_array(env, &words);
#define X(name, bit, text_, meaning)                                  \
    if (told->caps & 1u << bit) {                                     \
        napi_create_string_utf8(env, text_, NAPI_AUTO_LENGTH, &word); \
        napi_set_element(env, words, n++, word);                      \
    }
    DLOCK_CAPS(X)
#undef X
    set(env, backend, "capabilities", words);
    return backend;
}

/* stats(client): the counters of struct dlock_stats but for the buckets. */
static napi_value client_stats(napi_env env, napi_callback_info info) {
    napi_value values[1], result;
    struct client *client;
    struct dlock_stats stats = DLOCK_STATS_INIT;
    if (!arguments(env, info, 1, values) || !(client = external(env, values[0])) || client->ending) return NULL;
    dlock_client_stats(client->dlock, &stats, NULL);
    napi_create_object(env, &result);
#define NUMBER(name, member) set_number(env, result, name, (double)stats.member)
    NUMBER("grants", grants);
    NUMBER("localGrants", local_grants);
    NUMBER("losses", losses);
    NUMBER("renewals", renewals);
    NUMBER("renewalFailures", renewal_failures);
    NUMBER("reconnects", reconnects);
    NUMBER("waiting", waiting);
    NUMBER("waits", waits);
    NUMBER("held", held);
    NUMBER("lastAnswer", last_answer_ms);
#undef NUMBER
    set_number(env, result, "waited", (double)stats.wait_us / 1000);
    return result;
}

/* ---- the module ---- */

/* duration(text): milliseconds */
static napi_value duration(napi_env env, napi_callback_info info) {
    napi_value values[1], result;
    struct dlock_error err;
    int64_t ms;
    if (!arguments(env, info, 1, values)) return NULL;
    char *given = text(env, values[0]);
    int rc = given ? dlock_parse_duration(given, &ms, &err) : DLOCK_ENOMEM;
    free(given);
    if (rc != 0) return failure(env, rc, err.message);
    napi_create_int64(env, ms, &result);
    return result;
}

static void add_error(napi_env env, napi_value list, int number, const char *code, const char *said,
                      const char *advice) {
    napi_value error;
    if (number == DLOCK_OK || napi_create_object(env, &error) != napi_ok) return;
    set_text(env, error, "code", code);
    set_number(env, error, "errno", number);
    set_text(env, error, "text", said);
    set_text(env, error, "advice", advice);
    napi_set_element(env, list, (uint32_t)(-number - 1), error);
}

NAPI_MODULE_INIT() {
    static const struct {
        const char *name;
        napi_callback function;
        enum job job; /* of by_handle and by_name */
    } functions[] = {
        {"open", client_open, 0},       {"stop", client_stop, 0},
        {"close", client_close, 0},     {"leave", client_leave, 0},
        {"backend", client_backend, 0}, {"stats", client_stats, 0},
        {"create", lock_new, 0},        {"acquire", lock_acquire, 0},
        {"release", lock_release, 0},   {"cancel", lock_cancel, 0},
        {"state", lock_state, 0},       {"duration", duration, 0},
        {"extend", by_handle, EXTEND},  {"downgrade", by_handle, DOWNGRADE},
        {"inspect", by_name, INSPECT},  {"list", by_name, LIST},
        {"break", by_name, BREAK},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        napi_value function;
        void *job = (void *)&functions[i].job;
        if (napi_create_function(env, NULL, 0, functions[i].function, job, &function) != napi_ok) return NULL;
        set(env, exports, functions[i].name, function);
    }
    napi_value list;
    napi_create_array(env, &list);
#define X(name, number, said, advice) add_error(env, list, number, "DLOCK_" #name, said, advice);
    DLOCK_ERRORS(X)
#undef X
    set(env, exports, "errors", list);
    set_text(env, exports, "version", dlock_version());
    return exports;
}
