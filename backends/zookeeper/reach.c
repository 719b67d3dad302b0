/* Connections outside the library: diagnosing why there is no session, which the library does not report, by asking
 * each server over a separate connection; and closing the library's connection when it is silent. */
#include "zookeeper.h"

#include <dlock/backend_socket.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>

enum { DEFAULT_PORT = 2181 };

/* Findings about an address, worst first. */
enum finding { NO_CONNECTION, NO_ZOOKEEPER, HANGS_UP, NO_SESSION, NOT_SERVING };

/* Recognizes the server by the part of its answer that comes until the deadline: `srvr` is the one question that
 * servers allow by default. */
static enum finding recognize(int fd, int64_t deadline_us) {
    char answer[256] = "";
    size_t used = 0;
    ssize_t n = send(fd, "srvr\n", 5, MSG_NOSIGNAL);
    while (n > 0 && used < sizeof answer - 1 && dlock_wait_fd(fd, POLLIN, deadline_us)) {
        n = recv(fd, answer + used, sizeof answer - 1 - used, 0);
        if (n > 0) used += (size_t)n;
    }
    answer[used] = '\0';
    if (used == 0 && (n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)))) return HANGS_UP;
    if (strstr(answer, "not currently serving")) return NOT_SERVING;
    return strncmp(answer, "Zookeeper version", 17) == 0 || strncmp(answer, "srvr is not executed", 20) == 0
               ? NO_SESSION
               : NO_ZOOKEEPER;
}

static enum finding look_at(const struct dlock_host *host, int64_t deadline_us, int *error) {
    int fd, dialing;
    *error = dlock_dial(NULL, host->address, host->port ? host->port : DEFAULT_PORT, deadline_us, &dialing, &fd);
    if (*error == EPIPE || *error == ECONNRESET) return HANGS_UP;
    if (*error) return NO_CONNECTION;
    enum finding found = recognize(fd, deadline_us);
    dlock_hang_up(fd, true);
    close(fd);
    return found;
}

int zookeeper_explain(const struct zookeeper *z, const struct dlock_uri *uri, bool began, int64_t deadline_us,
                      struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    size_t n = uri->n_hosts ? uri->n_hosts : 1;
    enum finding best = NO_CONNECTION;
    int error = ETIMEDOUT;
    for (size_t i = 0; i < n; i++) {
        int64_t now = dlock_now_us(), share_us = (deadline_us - now) / (int64_t)(n - i);
        enum finding found = look_at(&hosts[i], now + share_us, &error);
        if (found > best) best = found;
    }
    switch (best) {
    case NO_CONNECTION: break;
    case NO_ZOOKEEPER:
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "%s accepts connections, but begins no session; is this a ZooKeeper server?", z->where);
    case HANGS_UP:
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "%s ends connections at once, as ZooKeeper does above maxClientCnxns connections from one "
                          "address, 60 by default; is this a ZooKeeper server?",
                          z->where);
    case NO_SESSION:
        if (began) return DLOCK_EUNAVAILABLE; /* err already says why */
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "ZooKeeper at %s began no session in time", z->where);
    case NOT_SERVING:
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "ZooKeeper at %s serves no clients now: it has no connection to a majority of its ensemble",
                          z->where);
    }
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "no connection to ZooKeeper at %s: %s%s", z->where,
                      error == ETIMEDOUT ? "no answer in time" : strerror(error), dlock_advice(error));
}

static bool is_connected_to(int fd, const struct sockaddr_storage *server) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    memset(&peer, 0, sizeof peer);
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 || peer.ss_family != server->ss_family) return false;
    const struct sockaddr_in *four = (void *)&peer, *to_four = (const void *)server;
    const struct sockaddr_in6 *six = (void *)&peer, *to_six = (const void *)server;
    if (peer.ss_family == AF_INET)
        return four->sin_port == to_four->sin_port && four->sin_addr.s_addr == to_four->sin_addr.s_addr;
    return peer.ss_family == AF_INET6 && six->sin6_port == to_six->sin6_port &&
           memcmp(&six->sin6_addr, &to_six->sin6_addr, sizeof six->sin6_addr) == 0;
}

void zookeeper_hang_up(const struct zookeeper *z) {
    struct sockaddr_storage server;
    socklen_t size = sizeof server;
    DIR *all =
        zookeeper_get_connected_host(z->handle, (struct sockaddr *)&server, &size) ? opendir("/proc/self/fd") : NULL;
    for (const struct dirent *entry; all && (entry = readdir(all));) {
        int fd = atoi(entry->d_name), copy;
        if (!is_connected_to(fd, &server) || (copy = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) continue;
        if (is_connected_to(copy, &server))
            shutdown(copy, SHUT_RDWR); /* the number may belong to another file by now */
        close(copy);
    }
    if (all) closedir(all);
}
