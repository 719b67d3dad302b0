/* The backend, driven by its table. */
#include "harness.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

const struct dlock_backend *backend;

#ifdef DLOCK_ZOOKEEPER_MODULE
void backend_load(void) {
    void *module = dlopen(DLOCK_ZOOKEEPER_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (!module) fail_msg("%s", dlerror());
    backend = dlsym(module, "dlock_backend_zookeeper");
    assert_non_null(backend);
}
#else
extern const struct dlock_backend dlock_backend_zookeeper;
void backend_load(void) {
    backend = &dlock_backend_zookeeper;
}
#endif

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void log_nothing(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer, (void)level, (void)message;
}

void uri_init(struct uri *uri, int port, const char *session) {
    memset(uri, 0, sizeof *uri);
    uri->host[0] = (struct dlock_host){"127.0.0.1", "127.0.0.1", port};
    uri->param[0] = (struct dlock_param){"session", session};
    uri->parts.scheme = "zookeeper";
    uri->parts.path = BASE;
    uri->parts.hosts = uri->host;
    uri->parts.n_hosts = 1;
    uri->parts.params = uri->param;
    uri->parts.n_params = 1;
}

int link_within(struct link *link, const struct uri *uri, char letter, int timeout_ms, struct dlock_error *err) {
    memset(link, 0, sizeof *link);
    memset(link->client, letter, 24);
    link->peer.abi = DLOCK_ABI;
    link->peer.client = link->client;
    link->peer.log = log_nothing;
    link->fd = -1;
    link->conn = calloc(1, backend->conn_size);
    assert_non_null(link->conn);
    return backend->connect(link->conn, &uri->parts, &link->peer, timeout_ms, err);
}

int link_try(struct link *link, const struct uri *uri, char letter, struct dlock_error *err) {
    return link_within(link, uri, letter, TIMEOUT_MS, err);
}

void link_new(struct link *link, int port, const char *session, char letter) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_init(&uri, port, session);
    if (link_try(link, &uri, letter, &err) != 0) fail_msg("connect: %s", err.message);
    if (backend->listen(link->conn, &link->fd, TIMEOUT_MS, &err) != 0) fail_msg("listen: %s", err.message);
}

void link_end(struct link *link) {
    backend->disconnect(link->conn);
    free(link->conn);
    link->conn = NULL;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

void claim_init(struct held *held, const char *name, char letter, int serial) {
    memset(held, 0, sizeof *held);
    memset(held->token, letter, 24);
    snprintf(held->token + 24, sizeof held->token - 24, ".%d@test:1", serial);
    held->claim.name = name;
    held->claim.token = held->token;
    held->claim.lease_ms = LEASE_MS;
}

int run(dlock_batch *batch, struct link *link, struct held *held, uint32_t flags, int timeout_ms,
        struct dlock_error *err) {
    struct dlock_claim *claims[] = {&held->claim};
    held->claim.flags = flags;
    held->claim.result = DLOCK_EPROTO;
    held->claim.fence = 0;
    held->claim.kept_ms = held->claim.lease_ms;
    held->claim.retry_ms = -1;
    return batch(link->conn, claims, 1, timeout_ms, err);
}

static int must_run(dlock_batch *batch, struct link *link, struct held *held, uint32_t flags) {
    struct dlock_error err = {0};
    if (run(batch, link, held, flags, TIMEOUT_MS, &err) != 0) fail_msg("the connection broke: %s", err.message);
    return held->claim.result;
}

int acquire(struct link *link, struct held *held) {
    return must_run(backend->acquire, link, held, 0);
}

int queue_up(struct link *link, struct held *held) {
    return must_run(backend->acquire, link, held, DLOCK_CLAIM_QUEUE);
}

int renew(struct link *link, struct held *held) {
    return must_run(backend->renew, link, held, 0);
}

int release(struct link *link, struct held *held) {
    return must_run(backend->release, link, held, 0);
}

static void *task_main(void *arg) {
    struct task *task = arg;
    task->rc = run(task->batch, task->link, task->held, task->flags, task->timeout_ms, &task->err);
    return NULL;
}

void task_begin(struct task *task, dlock_batch *batch, struct link *link, struct held *held, uint32_t flags) {
    memset(task, 0, sizeof *task);
    task->batch = batch;
    task->link = link;
    task->held = held;
    task->flags = flags;
    task->timeout_ms = TIMEOUT_MS;
    assert_int_equal(pthread_create(&task->thread, NULL, task_main, task), 0);
}

int task_end(struct task *task) {
    pthread_join(task->thread, NULL);
    return task->rc;
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

bool wake_within(struct link *link, struct dlock_wake *wake, int ms) {
    struct pollfd fd = {link->fd, POLLIN, 0};
    for (int64_t until = now_ms() + ms, left = ms; left >= 0; left = until - now_ms()) {
        memset(wake, 0, sizeof *wake);
        if (backend->wake(link->conn, wake, NULL) == 1) return true;
        poll(&fd, 1, (int)left);
        if (left == 0) break;
    }
    return false;
}

bool wake_kind_within(struct link *link, struct dlock_wake *wake, enum dlock_wake_kind kind, int ms) {
    for (int64_t until = now_ms() + ms, left = ms; left >= 0; left = until - now_ms())
        if (wake_within(link, wake, (int)left) && wake->kind == kind) return true;
    return false;
}
