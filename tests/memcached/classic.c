#include "classic.h"

#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct relay {
    int port, listener;
    struct sockaddr_un server;
};

struct passage {
    const struct relay *relay;
    int client;
};

bool servers_are_classic(void) {
    return getenv("DLOCK_TEST_CLASSIC") != NULL;
}

static bool send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* The server itself then says in its turn that it does not know the command. No classic command begins with an `m`, and
 * no line of a value that these tests store. */
static void spoil_meta(char *data, size_t size, bool *line_begins) {
    for (size_t i = 0; i < size; i++) {
        if (*line_begins && data[i] == 'm') data[i] = 'x';
        *line_begins = data[i] == '\n';
    }
}

/* False: `from` has no more to say. */
static bool pass(int from, int to, bool *line_begins) {
    char buffer[65536];
    ssize_t n = recv(from, buffer, sizeof buffer, 0);
    if (n == 0) shutdown(to, SHUT_WR);
    if (n <= 0) return false;
    if (line_begins) spoil_meta(buffer, (size_t)n, line_begins);
    return send_all(to, buffer, (size_t)n);
}

static void *serve(void *arg) {
    struct passage passage = *(struct passage *)arg;
    const struct sockaddr_un *to = &passage.relay->server;
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = connect(server, (const struct sockaddr *)to, sizeof *to) == 0, line_begins = true;
    struct pollfd fds[2] = {{passage.client, POLLIN, 0}, {server, POLLIN, 0}};
    const int on = 1;
    free(arg);
    setsockopt(passage.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (open) {
        if (poll(fds, 2, -1) < 0) continue;
        if (fds[0].revents && !pass(passage.client, server, &line_begins)) fds[0].fd = -1;
        if (fds[1].revents) open = pass(server, passage.client, NULL);
    }
    close(server);
    close(passage.client);
    return NULL;
}

static void *accept_all(void *arg) {
    const struct relay *relay = arg;
    for (;;) {
        struct passage *passage = malloc(sizeof *passage);
        pthread_t thread;
        if (!passage) abort();
        *passage = (struct passage){relay, accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC)};
        if (passage->client < 0 || pthread_create(&thread, NULL, serve, passage) != 0) abort();
        pthread_detach(thread);
    }
    return NULL;
}

void classic_relay(const struct server *server) {
    static struct relay relays[16];
    static int n;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server->port)};
    const int on = 1;
    pthread_t thread;
    for (int i = 0; i < n; i++)
        if (relays[i].port == server->port) return;
    assert_true(n < 16);
    struct relay *relay = &relays[n++];
    relay->port = server->port;
    relay->server.sun_family = AF_UNIX;
    snprintf(relay->server.sun_path, sizeof relay->server.sun_path, "%s" CLASSIC_SOCKET, server->folder);
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(relay->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_return_code(bind(relay->listener, (struct sockaddr *)&here, sizeof here), errno);
    assert_return_code(listen(relay->listener, 128), errno);
    assert_int_equal(pthread_create(&thread, NULL, accept_all, relay), 0);
    pthread_detach(thread);
}
