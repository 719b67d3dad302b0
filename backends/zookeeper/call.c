/* Requests, which are sent without waiting, answered in the library's thread, and awaited with a deadline. An answer
 * may come after its operation has ended, or never; then the call is freed when the connection ends. */
#include "zookeeper.h"

#include <stdlib.h>

/* ---- calls ------------------------------------------------------------------------------------------------------- */

struct zookeeper_call *zookeeper_call(struct zookeeper *z, size_t n) {
    struct zookeeper_call *call = calloc(1, sizeof *call + n * sizeof call->requests[0]);
    if (!call) return NULL;
    call->z = z;
    call->refs = 1;
    call->capacity = n;
    call->sent_us = dlock_now_us();
    zookeeper_cond_init(&call->answered);
    pthread_mutex_lock(&z->mutex);
    call->next = z->calls;
    if (z->calls) z->calls->prev = call;
    z->calls = call;
    pthread_mutex_unlock(&z->mutex);
    return call;
}

static void call_free(struct zookeeper_call *call) {
    for (size_t i = 0; i < call->n; i++) {
        for (size_t k = 0; k < call->requests[i].n_names; k++) free(call->requests[i].names[k]);
        free(call->requests[i].names);
        free(call->requests[i].results);
    }
    pthread_cond_destroy(&call->answered);
    free(call);
}

/* Called with the mutex. */
static void call_put(struct zookeeper_call *call) {
    if (--call->refs > 0) return;
    *(call->prev ? &call->prev->next : &call->z->calls) = call->next;
    if (call->next) call->next->prev = call->prev;
    call_free(call);
}

void zookeeper_call_end(struct zookeeper_call *call) {
    struct zookeeper *z = call->z;
    pthread_mutex_lock(&z->mutex);
    call->left = true;
    call_put(call);
    pthread_mutex_unlock(&z->mutex);
}

void zookeeper_calls_free(struct zookeeper *z) {
    while (z->calls) {
        struct zookeeper_call *call = z->calls;
        z->calls = call->next;
        call_free(call);
    }
}

int64_t zookeeper_unanswered_us(const struct zookeeper *z) {
    int64_t oldest_us = INT64_MAX;
    for (const struct zookeeper_call *call = z->calls; call; call = call->next)
        if (call->pending > 0 && call->sent_us < oldest_us) oldest_us = call->sent_us;
    return oldest_us;
}

bool zookeeper_call_wait(struct zookeeper_call *call, int64_t deadline_us) {
    struct zookeeper *z = call->z;
    bool in_time = true;
    pthread_mutex_lock(&z->mutex);
    while (call->pending > 0 && in_time) in_time = zookeeper_cond_wait(z, &call->answered, deadline_us);
    call->left = call->pending > 0;
    in_time = !call->left;
    pthread_mutex_unlock(&z->mutex);
    return in_time;
}

/* ---- answers, in the library's thread ---------------------------------------------------------------------------- */

/* Locks the mutex. False: the operation no longer waits for this answer. */
static bool answer_begin(struct zookeeper_request *request) {
    pthread_mutex_lock(&request->call->z->mutex);
    return !request->call->left;
}

static void answer_end(struct zookeeper_request *request, int rc) {
    struct zookeeper_call *call = request->call;
    struct zookeeper *z = call->z;
    if (request->watch) zookeeper_watch_answered(request->watch, rc, call->left);
    if (!zookeeper_unknown(rc)) zookeeper_touched(z, call->sent_us);
    if (rc == ZSESSIONEXPIRED || rc == ZINVALIDSTATE) zookeeper_died(z, ZOOKEEPER_EXPIRED);
    if (!call->left) request->rc = rc;
    call->pending--;
    if (call->pending == 0) pthread_cond_signal(&call->answered);
    call_put(call);
    pthread_mutex_unlock(&z->mutex);
}

static struct zookeeper_request *request_of(const void *data) {
    return (struct zookeeper_request *)(uintptr_t)data;
}

static void on_void(int rc, const void *data) {
    answer_begin(request_of(data));
    answer_end(request_of(data), rc);
}

static void on_string(int rc, const char *value, const void *data) {
    (void)value;
    on_void(rc, data);
}

static void on_stat(int rc, const struct Stat *stat, const void *data) {
    (void)stat;
    on_void(rc, data);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data) {
    struct zookeeper_request *request = request_of(data);
    if (answer_begin(request) && rc == ZOK) {
        const char *node = path ? strrchr(path, '/') : NULL;
        if (!node || !stat || strlen(node + 1) >= sizeof request->node) {
            rc = ZMARSHALLINGERROR;
        } else {
            memcpy(request->node, node + 1, strlen(node + 1) + 1);
            request->stat = *stat;
        }
    }
    answer_end(request, rc);
}

static void on_data(int rc, const char *value, int length, const struct Stat *stat, const void *data) {
    struct zookeeper_request *request = request_of(data);
    if (answer_begin(request) && rc == ZOK) {
        request->size = value && length > 0 ? (size_t)length : 0;
        if (request->size >= sizeof request->data) request->size = sizeof request->data - 1;
        if (request->size) memcpy(request->data, value, request->size);
        request->data[request->size] = '\0';
        if (stat)
            request->stat = *stat;
        else
            rc = ZMARSHALLINGERROR;
    }
    answer_end(request, rc);
}

static void on_queue(int rc, const struct String_vector *nodes, const void *data) {
    struct zookeeper_request *request = request_of(data);
    if (answer_begin(request) && rc == ZOK) {
        const int32_t *known = request->known;
        enum zookeeper_kind kind;
        int32_t created;
        if (request->create && request->create->rc == ZOK && zookeeper_place(request->create->node, &kind, &created))
            known = &created;
        request->sensible = nodes && zookeeper_view_queue(nodes, request->label, known, &request->view);
    }
    answer_end(request, rc);
}

static void on_children(int rc, const struct String_vector *nodes, const void *data) {
    struct zookeeper_request *request = request_of(data);
    if (answer_begin(request) && rc == ZOK && nodes && nodes->count > 0) {
        request->names = calloc((size_t)nodes->count, sizeof *request->names);
        for (int32_t i = 0; request->names && i < nodes->count; i++) {
            char *name = nodes->data[i] ? strdup(nodes->data[i]) : NULL;
            if (!name) break;
            request->names[request->n_names++] = name;
        }
        if (request->n_names != (size_t)nodes->count) rc = ZSYSTEMERROR;
    }
    answer_end(request, rc);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static struct zookeeper_request *request_new(struct zookeeper_call *call) {
    struct zookeeper_request *request = &call->requests[call->n++];
    pthread_mutex_lock(&call->z->mutex);
    request->call = call;
    request->rc = ZOPERATIONTIMEOUT;
    call->refs++;
    call->pending++;
    pthread_mutex_unlock(&call->z->mutex);
    return request;
}

/* Completes a request that the library has refused to send, since the library then calls no completion. It returns
 * ZMARSHALLINGERROR also when it could not queue the request because the connection was just ending. */
static struct zookeeper_request *sent(struct zookeeper_request *request, int rc) {
    if (rc != ZOK) on_void(rc == ZMARSHALLINGERROR ? ZCONNECTIONLOSS : rc, request);
    return request;
}

struct zookeeper_request *zookeeper_ask_container(struct zookeeper_call *call, const char *path) {
    struct zookeeper_request *request = request_new(call);
    struct zookeeper *z = call->z;
    return sent(request, zoo_acreate(z->handle, path, "", 0, z->acl, ZOO_CONTAINER, on_string, request));
}

struct zookeeper_request *zookeeper_ask_create(struct zookeeper_call *call, const char *path, const char *data) {
    struct zookeeper_request *request = request_new(call);
    struct zookeeper *z = call->z;
    return sent(request, zoo_acreate2(z->handle, path, data, (int)strlen(data), z->acl, ZOO_EPHEMERAL_SEQUENTIAL,
                                      on_created, request));
}

struct zookeeper_request *zookeeper_ask_queue(struct zookeeper_call *call, const char *dir,
                                              const struct zookeeper_label *label, const int32_t *known,
                                              const struct zookeeper_request *create, struct zookeeper_watch *watch) {
    struct zookeeper_request *request = request_new(call);
    watcher_fn fired = watch ? zookeeper_watch_fired : NULL;
    pthread_mutex_lock(&call->z->mutex);
    request->watch = watch;
    request->label = label;
    request->known = known;
    request->create = create;
    pthread_mutex_unlock(&call->z->mutex);
    return sent(request, zoo_awget_children(call->z->handle, dir, fired, watch, on_queue, request));
}

struct zookeeper_request *zookeeper_ask_children(struct zookeeper_call *call, const char *dir) {
    struct zookeeper_request *request = request_new(call);
    return sent(request, zoo_aget_children(call->z->handle, dir, 0, on_children, request));
}

struct zookeeper_request *zookeeper_ask_get(struct zookeeper_call *call, const char *path,
                                            struct zookeeper_watch *watch) {
    struct zookeeper_request *request = request_new(call);
    watcher_fn fired = watch ? zookeeper_watch_fired : NULL;
    pthread_mutex_lock(&call->z->mutex);
    request->watch = watch;
    pthread_mutex_unlock(&call->z->mutex);
    return sent(request, zoo_awget(call->z->handle, path, fired, watch, on_data, request));
}

struct zookeeper_request *zookeeper_ask_delete(struct zookeeper_call *call, const char *path) {
    struct zookeeper_request *request = request_new(call);
    return sent(request, zoo_adelete(call->z->handle, path, -1, on_void, request));
}

struct zookeeper_request *zookeeper_ask_exists(struct zookeeper_call *call, const char *path) {
    struct zookeeper_request *request = request_new(call);
    return sent(request, zoo_aexists(call->z->handle, path, 0, on_stat, request));
}

/* Sends a transaction, with memory for the results of its parts, which the library writes. */
static int send_parts(struct zookeeper_request *request, const zoo_op_t *parts, size_t n) {
    request->results = calloc(n, sizeof *request->results);
    if (!request->results) return ZSYSTEMERROR;
    return zoo_amulti(request->call->z->handle, (int)n, parts, request->results, on_void, request);
}

struct zookeeper_request *zookeeper_ask_write(struct zookeeper_call *call) {
    struct zookeeper_request *request = request_new(call);
    zoo_op_t part;
    zoo_check_op_init(&part, "/", -1);
    return sent(request, send_parts(request, &part, 1));
}

struct zookeeper_request *zookeeper_ask_downgrade(struct zookeeper_call *call, const char *reader, const char *data,
                                                  const char *writer) {
    struct zookeeper_request *request = request_new(call);
    zoo_op_t parts[2];
    zoo_create_op_init(&parts[0], reader, data, (int)strlen(data), call->z->acl, ZOO_EPHEMERAL, request->node,
                       (int)sizeof request->node);
    zoo_delete_op_init(&parts[1], writer, -1);
    return sent(request, send_parts(request, parts, 2));
}
