/* The calls of the library that block and have no asynchronous form: each takes a thread of libuv's pool until the server
 * has answered, for the URI's `timeout` at most. */
#include "addon.h"

struct row {
    char *name, *token;
    struct dlock_info info;
};

struct work {
    napi_async_work async;
    napi_deferred deferred;
    struct client *client;
    struct handle *handle; /* of EXTEND and DOWNGRADE */
    enum job job;
    char *name;
    int64_t lease_ms;
    struct row *rows;
    size_t n_rows;
    struct dlock_error err; /* code 0: success */
};

static int add_row(const struct dlock_info *info, void *arg) {
    struct work *work = arg;
    struct row *rows = realloc(work->rows, (work->n_rows + 1) * sizeof *rows);
    if (rows) {
        work->rows = rows;
        struct row row = {strdup(info->name), strdup(info->token), *info};
        rows[work->n_rows++] = row;
        if (row.name && row.token) return 0;
    }
    work->err.code = DLOCK_ENOMEM;
    return 1;
}

/* Runs in a thread of the pool. */
static void execute(napi_env env, void *data) {
    struct work *work = data;
    dlock_client *client = work->client->dlock;
    struct dlock_error err;
    int rc = 0;
    (void)env;
    switch (work->job) {
    case EXTEND: rc = dlock_extend(work->handle->lock, work->lease_ms, &err); break;
    case DOWNGRADE: rc = dlock_downgrade(work->handle->lock, &err); break;
    case INSPECT: rc = dlock_inspect(client, work->name, add_row, work, &err); break;
    case LIST: rc = dlock_list(client, work->name, add_row, work, &err); break;
    case BREAK: rc = dlock_break(client, work->name, &err); break;
    case CLOSE: dlock_close(client); break;
    }
    if (rc != 0) work->err = err;
}

static napi_value rows_of(napi_env env, struct work *work) {
    static const char *const modes[] = {"exclusive", "shared", "permit"};
    napi_value rows, row, value;
    napi_create_array_with_length(env, work->n_rows, &rows);
    for (size_t i = 0; i < work->n_rows; i++) {
        const struct dlock_info *info = &work->rows[i].info;
        napi_create_object(env, &row);
        set_text(env, row, "name", work->rows[i].name);
        set_text(env, row, "token", work->rows[i].token);
        set_text(env, row, "mode", modes[info->mode]);
        set_number(env, row, "waiters", info->waiters);
        set_number(env, row, "limit", info->limit);
        napi_create_bigint_uint64(env, info->fence, &value);
        set(env, row, "fence", value);
        bool known = info->remaining_ms >= 0;
        if (known)
            set_number(env, row, "remaining",
                       info->remaining_ms == DLOCK_FOREVER ? INFINITY : (double)info->remaining_ms);
        napi_set_element(env, rows, (uint32_t)i, row);
    }
    return rows;
}

static void free_work(napi_env env, struct work *work) {
    for (size_t i = 0; i < work->n_rows; i++) free(work->rows[i].name), free(work->rows[i].token);
    free(work->rows);
    free(work->name);
    if (work->async) napi_delete_async_work(env, work->async);
    client_put(work->client);
    free(work);
}

static void complete(napi_env env, napi_status status, void *data) {
    struct work *work = data;
    struct client *client = work->client;
    struct handle *handle = work->handle;
    (void)status;
    if (work->job == CLOSE) {
        client_closed(client);
    } else {
        if (!client->ending && work->rows && work->err.code == 0)
            napi_resolve_deferred(env, work->deferred, rows_of(env, work));
        else
            settle(client, &work->deferred, work->err.code != 0 ? &work->err : NULL);
        if (handle && --handle->works == 0 && handle->over) handle_over(handle);
        if (--client->works == 0 && client->ending) client_end(client);
    }
    free_work(env, work);
}

/* Queues the work. Returns its promise, if `promised`, or a failure. */
static napi_value queue(struct client *client, enum job job, struct handle *handle, char *name, int64_t lease_ms) {
    napi_env env = client->env;
    napi_value label, promise = NULL;
    struct work *work = calloc(1, sizeof *work);
    if (!work) return free(name), failure(env, DLOCK_ENOMEM, NULL);
    *work = (struct work){.client = client, .handle = handle, .job = job, .name = name, .lease_ms = lease_ms};
    client->refs++;
    napi_create_string_utf8(env, "dlock", NAPI_AUTO_LENGTH, &label);
    if (napi_create_async_work(env, NULL, label, execute, complete, work, &work->async) != napi_ok ||
        napi_queue_async_work(env, work->async) != napi_ok) {
        free_work(env, work);
        return failure(env, DLOCK_ENOMEM, "no thread of libuv's pool");
    }
    if (job == CLOSE) return NULL;
    client->works++;
    if (handle) handle->works++;
    napi_create_promise(env, &work->deferred, &promise);
    return promise;
}

static enum job job_of(napi_env env, napi_callback_info info) {
    void *job;
    napi_get_cb_info(env, info, NULL, NULL, NULL, &job);
    return *(enum job *)job;
}

/* extend(handle, leaseMs), downgrade(handle, 0) */
napi_value by_handle(napi_env env, napi_callback_info info) {
    napi_value values[2];
    struct handle *handle;
    int64_t lease_ms;
    if (!arguments(env, info, 2, values) || !(handle = external(env, values[0]))) return NULL;
    if (!handle->lock || handle->over || handle->client->ending) return failure(env, DLOCK_ECANCELED, NULL);
    napi_get_value_int64(env, values[1], &lease_ms);
    return queue(handle->client, job_of(env, info), handle, NULL, lease_ms);
}

/* inspect(client, name), list(client, prefix), break(client, name) */
napi_value by_name(napi_env env, napi_callback_info info) {
    napi_value values[2];
    struct client *client;
    if (!arguments(env, info, 2, values) || !(client = external(env, values[0]))) return NULL;
    char *name = client->ending ? NULL : text(env, values[1]);
    return name ? queue(client, job_of(env, info), NULL, name, 0)
                : failure(env, DLOCK_ECANCELED, "the client is closed");
}

void work_close(struct client *client) {
    if (queue(client, CLOSE, NULL, NULL, 0)) {
        dlock_close(client->dlock); /* blocks the loop rather than leaving the locks held */
        client_closed(client);
    }
}
