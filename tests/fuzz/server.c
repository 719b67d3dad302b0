/* A server that has said all before it is asked: socket() and connect() as a backend calls them, which CMakeLists.txt
 * has the linker wrap. No network, no thread, no wait: what comes is there at once, and then there is the end. */
#include "operate.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length);

static const char *hello;
static const void *answers;
static size_t n_answers;
static int peer = -1;

static void say(const void *bytes, size_t size) {
    if (size && send(peer, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) abort();
}

void fuzz_server_says(const char *greeting, const void *bytes, size_t size) {
    hello = greeting;
    answers = bytes;
    n_answers = size;
}

int __wrap_socket(int domain, int type, int protocol) {
    int pair[2];
    (void)domain;
    if (peer >= 0) close(peer);
    if (socketpair(AF_UNIX, type, protocol, pair) != 0) abort();
    peer = pair[1];
    say(hello, strlen(hello));
    say(answers, n_answers);
    shutdown(peer, SHUT_WR);
    return pair[0];
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length) {
    (void)fd;
    (void)to;
    (void)length;
    return 0;
}
