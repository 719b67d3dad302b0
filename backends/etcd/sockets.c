/* The sockets that libcurl uses: close-on-exec, listed for a forked child, and closed by reset, so that no request
 * arrives after it was given up. */
#include "etcd.h"

#include <signal.h>

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address) {
    struct etcd *z = arg;
    const struct linger reset = {1, 0};
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    if (fd < 0) return CURL_SOCKET_BAD;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    dlock_tune_tcp(fd);
    for (size_t i = 0; i < ETCD_SOCKETS; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&z->sockets[i], &none, fd + 1)) return fd;
    }
    close(fd);
    return CURL_SOCKET_BAD;
}

static int close_socket(void *arg, curl_socket_t fd) {
    struct etcd *z = arg;
    for (size_t i = 0; i < ETCD_SOCKETS; i++) {
        int ours = (int)fd + 1;
        if (atomic_compare_exchange_strong(&z->sockets[i], &ours, 0)) break;
    }
    return close(fd);
}

void etcd_sockets(struct etcd *z, CURL *easy) {
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, z);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, z);
}

void etcd_sockets_abandon(struct etcd *z) {
    for (size_t i = 0; i < ETCD_SOCKETS; i++)
        if (atomic_load(&z->sockets[i])) close(atomic_load(&z->sockets[i]) - 1);
}

/* Needed for TLS only: libcurl itself sends with MSG_NOSIGNAL. */
void etcd_signals_off(const struct etcd *z, struct etcd_signals *signals) {
    sigset_t pipe, pending;
    if (!z->address.tls) return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    signals->pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &signals->before);
}

void etcd_signals_on(const struct etcd *z, const struct etcd_signals *signals) {
    static const struct timespec now = {0, 0};
    sigset_t pipe;
    if (!z->address.tls) return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!signals->pending && sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}
