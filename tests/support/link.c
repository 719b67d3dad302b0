#include "support/link.h"

#include "support/clock.h"
#include "support/test.h"

#include <dlock/backend_socket.h>
#include <poll.h>
#include <stdlib.h>

/* It may say why a test fails. */
static void print_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    print_message("log, level %d: %s\n", level, message);
}

/* As the core does it, but the only name that is found is localhost, and no server moves. */
static int connect_again(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *conn,
                         int timeout_ms, struct dlock_error *err) {
    if (!host) return dlock_fail(err, DLOCK_EUNAVAILABLE, "the servers are where they were");
    const struct link *link = (const struct link *)(const void *)((const char *)peer - offsetof(struct link, peer));
    const struct dlock_host announced = {host, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port};
    struct dlock_uri uri = link->uri;
    union dlock_socket_address unused;
    if (!dlock_socket_address(NULL, announced.address, port, &unused))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the host \"%s\" was not found", host);
    uri.hosts = &announced;
    uri.n_hosts = 1;
    uri.params = link->param;
    return connect(conn, &uri, peer, timeout_ms, err);
}

void uri_init(struct uri *uri, int port) {
    memset(uri, 0, sizeof *uri);
    for (size_t i = 0; i < 3; i++) uri->host[i] = (struct dlock_host){"localhost", "127.0.0.1", port};
    uri->parts.scheme = backend->name;
    uri->parts.hosts = uri->host;
    uri->parts.n_hosts = 1;
    uri->parts.params = uri->param;
}

int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms, int timeout_ms,
             struct dlock_error *err) {
    memset(link, 0, sizeof *link);
    memset(link->client, letter, 24);
    link->peer = (struct dlock_peer){.abi = DLOCK_ABI,
                                     .client = link->client,
                                     .quarantine_ms = quarantine_ms,
                                     .log = print_log,
                                     .connect_again = connect_again};
    link->uri = *uri;
    for (size_t i = 0; i < uri->n_params && i < sizeof link->param / sizeof link->param[0]; i++)
        link->param[i] = uri->params[i];
    link->fd = -1;
    link->conn = calloc(1, backend->conn_size);
    assert_non_null(link->conn);
    return backend->connect(link->conn, uri, &link->peer, timeout_ms, err);
}

void link_careful(struct link *link, int port, char letter, int64_t quarantine_ms) {
    struct uri uri;
    struct dlock_error err = {0};
    uri_init(&uri, port);
    if (link_try(link, &uri.parts, letter, quarantine_ms, CONNECTS_MS, &err) != 0) fail_msg("%s", err.message);
}

void link_to(struct link *link, int port, char letter) {
    link_careful(link, port, letter, 0);
}

void link_listen(struct link *link) {
    struct dlock_error err = {0};
    if (backend->listen(link->conn, &link->fd, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    assert_true(link->fd > 2);
}

void link_end(struct link *link) {
    if (!link->conn) return;
    backend->disconnect(link->conn);
    free(link->conn);
    link->conn = NULL;
}

bool wake_within(struct link *link, struct dlock_wake *wake, int ms) {
    struct pollfd fd = {link->fd, POLLIN, 0};
    struct dlock_error err = {0};
    for (int64_t until = now_ms() + ms;;) {
        memset(wake, 0, sizeof *wake);
        int rc = backend->wake(link->conn, wake, &err);
        if (rc < 0) fail_msg("%d: %s", err.code, err.message);
        if (rc == 1) return true;
        int64_t left = until - now_ms();
        if (left <= 0) return false;
        poll(&fd, 1, (int)left);
    }
}
