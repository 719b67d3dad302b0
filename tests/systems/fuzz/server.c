/* A server whose answers are all there before it is asked. Replaces socket() and connect() in the backend, which
 * CMakeLists.txt has the linker wrap. So there is no network, no thread and no wait: the answers are received at once,
 * and then the end of the connection. */
#include "operate.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { SERVERS = 4 };

static struct server {
    const char *greeting;
    const void *answers;
    size_t n_answers;
    int peer; /* 1 + the descriptor of the server's end; 0: none */
} servers[SERVERS];
static size_t n_servers, next_server;

static void say(int peer, const void *bytes, size_t size) {
    if (size && send(peer, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) abort();
}

void fuzz_servers_say(const char *const greetings[], size_t n, const unsigned char *bytes, size_t size) {
    if (n > SERVERS) abort();
    for (size_t i = 0; i < n_servers; i++)
        if (servers[i].peer) close(servers[i].peer - 1);
    next_server = 0;
    for (n_servers = 0; n_servers < n; n_servers++) {
        const unsigned char *end = n_servers + 1 < n ? memmem(bytes, size, "---\n", 4) : NULL;
        const size_t said = end ? (size_t)(end - bytes) : size, used = end ? said + 4 : said;
        servers[n_servers] = (struct server){greetings[n_servers], bytes, said, 0};
        bytes += used;
        size -= used;
    }
}

void fuzz_server_says(const char *greeting, const void *bytes, size_t size) {
    fuzz_servers_say(&greeting, 1, bytes, size);
}

int __wrap_socket(int domain, int type, int protocol) {
    struct server *server = &servers[next_server];
    int pair[2];
    (void)domain;
    if (next_server + 1 < n_servers) next_server++;
    if (server->peer) close(server->peer - 1);
    if (socketpair(AF_UNIX, type, protocol, pair) != 0) abort();
    server->peer = pair[1] + 1;
    say(pair[1], server->greeting, strlen(server->greeting));
    say(pair[1], server->answers, server->n_answers);
    shutdown(pair[1], SHUT_WR);
    return pair[0];
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length) {
    (void)fd;
    (void)to;
    (void)length;
    return 0;
}
