/* The operation table, connections and requests.
 *
 * SPDX-License-Identifier: MIT
 */
#include "mem.h"

#include <unistd.h>

static int mem_connect(void *memory, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    struct mem_conn *conn = memory;
    (void)timeout_ms;
    int rc = mem_accepts(uri, err);
    if (rc != 0) return rc;
    mem_settings(conn, uri);
    snprintf(conn->client, sizeof conn->client, "%s", peer->client);
    conn->space = mem_space(uri->path ? uri->path : "");
    return conn->space ? 0 : dlock_fail(err, DLOCK_ENOMEM, "out of memory for mem: locks");
}

static void mem_disconnect(void *memory) {
    mem_listen_end(memory);
}

static void mem_abandon(void *memory) {
    struct mem_conn *conn = memory;
    if (conn->listening && conn->fd >= 0) close(conn->fd);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

enum verb { ACQUIRE, RENEW, RELEASE };

static void work_on(struct mem_conn *conn, enum verb verb, struct dlock_claim *claim, struct dlock_error *err) {
    if (verb == ACQUIRE) mem_acquire(conn->space, claim, err);
    if (verb == RENEW && mem_fails(conn)) mem_lose(conn->space, claim->name, claim->token);
    if (verb == RENEW) mem_renew(conn->space, claim);
    if (verb == RELEASE) mem_release(conn->space, claim);
}

static int request(enum verb verb, struct mem_conn *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                   struct dlock_error *err) {
    enum mem_fate fate = mem_await(conn, timeout_ms);
    if (fate == MEM_NEVER_ARRIVED) return mem_unanswered(err);
    bool refused = false;
    mem_lock();
    for (size_t i = 0; i < n; i++) {
        work_on(conn, verb, claims[i], refused ? NULL : err);
        refused = refused || claims[i]->result == DLOCK_EINVAL;
    }
    mem_unlock();
    return fate == MEM_ANSWERED ? 0 : mem_unanswered(err);
}

#define REQUEST(function, verb)                                                                  \
    static int function(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, \
                        struct dlock_error *err) {                                               \
        return request(verb, conn, claims, n, timeout_ms, err);                                  \
    }
REQUEST(acquire, ACQUIRE)
REQUEST(renew, RENEW)
REQUEST(release, RELEASE)

static const char *const schemes[] = {"mem", NULL};
static const char *const keys[] = {"delay", "fail", NULL};

DLOCK_BACKEND(mem) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "mem",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_WANTED |
            DLOCK_CAP_LOCAL | DLOCK_CAP_PRIVATE | DLOCK_CAP_FLOOR,
    .conn_size = sizeof(struct mem_conn),
    .connect = mem_connect,
    .disconnect = mem_disconnect,
    .acquire = acquire,
    .renew = renew,
    .release = release,
    .listen = mem_listen,
    .wake = mem_wake,
    .probe = mem_probe,
    .inspect = mem_inspect,
    .waiters = mem_waiters,
    .list = mem_list,
    .break_lock = mem_break_lock,
    .abandon = mem_abandon,
    .check = mem_check,
    .accepts = mem_accepts,
};
