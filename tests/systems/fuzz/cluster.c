/* redis+cluster: the nodes' statements about the slots (CLUSTER SLOTS, MOVED, ASK, TRYAGAIN), and their answers. The
 * answers of three nodes, which follow an honest greeting, are separated by "---" and a newline; further nodes answer
 * as the third. If the script begins with '!' there is no greeting. */
#include "operate.h"
#include "resp.h"

#include <cluster.h>
#include <poll.h>
#include <time.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __real_clock_gettime(clockid_t clock, struct timespec *now);

enum { NODES = 3 };

/* The pauses that have been skipped: time advances by them at once. */
static int64_t passed_ms;

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    if (n > 0) return __real_poll(fds, n, timeout_ms);
    passed_ms += timeout_ms;
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int rc = __real_clock_gettime(clock, now);
    now->tv_sec += passed_ms / 1000;
    now->tv_nsec += passed_ms % 1000 * 1000000;
    if (now->tv_nsec < 1000000000) return rc;
    now->tv_nsec -= 1000000000;
    now->tv_sec++;
    return rc;
}

static void check_node(const struct cluster_node *node) {
    union dlock_socket_address unused;
    fuzz_require(redis_is_host(node->host), "a node's host");
    fuzz_require(memchr(node->address, '\0', sizeof node->address), "an address that ends");
    fuzz_require(!*node->address || dlock_socket_address(NULL, node->address, node->port, &unused) > 0,
                 "a node's numeric address");
    fuzz_require(node->port > 0 && node->port < 65536, "a node's port");
    fuzz_require(memchr(node->id, '\0', sizeof node->id), "an id that ends");
    fuzz_require(memchr(node->member.tag, '\0', sizeof node->member.tag), "a tag that ends");
    fuzz_require(memchr(node->member.place, '\0', sizeof node->member.place), "a channel that ends");
    fuzz_require(node->member.n_moves <= REDIS_MOVES, "the moves that there is room for");
}

static void check_map(const struct cluster *cluster) {
    fuzz_require(cluster->n_nodes <= CLUSTER_NODES, "the nodes that there is room for");
    fuzz_require(cluster->n_redirects <= CLUSTER_REDIRECTS, "the redirects that there is room for");
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        check_node(cluster->nodes[i]);
        for (size_t k = 0; k < i; k++)
            fuzz_require(cluster->nodes[i]->port != cluster->nodes[k]->port ||
                             strcmp(cluster->nodes[i]->host, cluster->nodes[k]->host) != 0,
                         "no node twice");
    }
    for (unsigned slot = 0; slot < REDIS_SLOTS; slot++)
        fuzz_require(cluster->owner[slot] <= cluster->n_nodes, "a slot's owner is a node");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static _Alignas(max_align_t) char conn[128 * 1024];
    static const struct dlock_host hosts[] = {{"127.0.0.1", "127.0.0.1", 7001}, {"localhost", "::1", 7002}};
    const struct dlock_uri uri = {.scheme = REDIS_CLUSTER, .hosts = hosts, .n_hosts = 2, .password = FUZZ_PASSWORD};
    const bool told = fuzz_tells(data, size);
    const struct dlock_backend *backend = &redis_cluster_backend;
    struct dlock_error err = {0};
    char script[32];
    if (backend->conn_size > sizeof conn || size > 32 * 1024) return 0;
    if (!fuzz_script(&data, &size, script)) return 0;
    resp_expand(&data, &size);
    const bool naked = *script == '!';
    const char *const hello = naked ? "" : "+OK\r\n" RESP_GREETING; /* AUTH comes first */
    const char *const hellos[NODES] = {hello, hello, hello};
    memset(conn, 0, backend->conn_size);
    fuzz_uri = &uri;
    passed_ms = 0;
    fuzz_servers_say(hellos, NODES, data, size);
    int rc = backend->connect(conn, &uri, &fuzz_peer, FUZZ_CONNECT_MS, &err);
    check_map((const void *)conn);
    if (rc == 0)
        fuzz_operate(backend, conn, script + naked);
    else
        fuzz_check_error(rc, &err);
    check_map((const void *)conn);
    fuzz_require(told || !strstr(err.message, FUZZ_PASSWORD), "no password in an error");
    backend->disconnect(conn);
    return 0;
}
