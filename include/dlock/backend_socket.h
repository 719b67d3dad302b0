/* For backends that talk to their server through a socket: deadlines, connecting, closing, the URI keys of TLS.
 *
 * SPDX-License-Identifier: MIT
 *
 * Optional, for Linux (compile with _GNU_SOURCE), static inline like the helpers of <dlock/backend.h>. Nothing here
 * blocks beyond its deadline, raises SIGPIPE or looks up a name; descriptors are close-on-exec and non-blocking. */
#ifndef DLOCK_BACKEND_SOCKET_H
#define DLOCK_BACKEND_SOCKET_H

#include <dlock/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The time in µs by CLOCK_BOOTTIME, the core's clock, which continues during suspend. */
static inline int64_t dlock_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The time `timeout_ms` from now, by dlock_now_us(). */
static inline int64_t dlock_deadline_us(int timeout_ms) {
    return dlock_now_us() + (int64_t)timeout_ms * 1000;
}

/* The opposite: the time from now until the deadline in ms, at least 1, as a time-out of another operation. */
static inline int dlock_left_ms(int64_t deadline_us) {
    int64_t left_ms = (deadline_us - dlock_now_us()) / 1000;
    return left_ms < 1 ? 1 : left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

/* Looks for new addresses of the servers, without waiting for a name server. `note` is called with `conn` as a connect: it
 * stores the hosts and returns 0, or EUNAVAILABLE if they are those that it has. False: none are known yet. */
static inline bool dlock_have_moved(const struct dlock_peer *peer, dlock_connect *note, void *conn) {
    /* The first call may only tell the core that the addresses are no good, the second one begins a look-up. */
    for (int calls = 0; calls < 2; calls++)
        if (peer->connect_again(peer, NULL, 0, note, conn, 0, NULL) == 0) return true;
    return false;
}

/* poll() for one descriptor, repeated after signals. Returns revents, or 0 once the deadline has passed. */
static inline int dlock_wait_fd(int fd, short events, int64_t deadline_us) {
    struct pollfd poll_fd;
    poll_fd.fd = fd;
    poll_fd.events = events;
    poll_fd.revents = 0;
    for (;;) {
        int64_t left_us = deadline_us - dlock_now_us();
        int left_ms = left_us <= 0 ? 0 : left_us > 3600000000 ? 3600000 : (int)((left_us + 999) / 1000);
        int ready = poll(&poll_fd, 1, left_ms);
        if (ready > 0) return poll_fd.revents;
        if (ready < 0 && errno != EINTR) return POLLERR;
        if (left_us <= 0) return 0;
    }
}

/* Why a connection could not be made, where a client library tells only in words: EMFILE, ENFILE or ENOMEM if `message`
 * says so, in strerror()'s words or by the number that OpenSSL 3 gives it, or if the process cannot open two descriptors
 * now (of which the failed connection may have had one); else 0. That passes: connect answers it with EUNAVAILABLE, not
 * with a code that blames the URI or a file, so that waits continue. */
static inline int dlock_used_up(const char *message) {
    const int errors[] = {EMFILE, ENFILE, ENOMEM};
    char number[24];
    int fds[2];
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        snprintf(number, sizeof number, "%lu", 0x80000000UL + (unsigned long)errors[i]);
        if (strstr(message, strerror(errors[i])) || strstr(message, number)) return errors[i];
    }
    if (pipe2(fds, O_CLOEXEC) != 0) return errno;
    close(fds[0]);
    close(fds[1]);
    return 0;
}

/* What to do about this errno, to be appended to a message; "" if dlock has no advice. */
static inline const char *dlock_advice(int error) {
    if (error == ECONNREFUSED) return "; is it running there?";
    return error == EMFILE ? "; raise the limit (ulimit -n)" : "";
}

/* An address of a server, in the form that connect(2) takes. */
union dlock_socket_address {
    struct sockaddr any;             /* of any family */
    struct sockaddr_un local;        /* of a Unix socket */
    struct sockaddr_storage storage; /* large enough for each */
};

/* Writes the address of the Unix socket `path`, or if that is NULL the numeric `address` with `port`. Returns its
 * length, or 0 if it is no such address. */
static inline socklen_t dlock_socket_address(const char *path, const char *address, int port,
                                             union dlock_socket_address *out) {
    struct addrinfo hints, *found;
    char service[16];
    memset(out, 0, sizeof *out);
    if (path) {
        if (strlen(path) >= sizeof out->local.sun_path) return 0;
        out->local.sun_family = AF_UNIX;
        memcpy(out->local.sun_path, path, strlen(path) + 1);
        return sizeof out->local;
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found) != 0) return 0;
    socklen_t length = found->ai_addrlen;
    memcpy(out, found->ai_addr, length);
    freeaddrinfo(found);
    return length;
}

/* Sets options of a TCP socket: no delay, and keepalive probes that notice a dead peer within half a minute. */
static inline void dlock_tune_tcp(int fd) {
    const int on = 1, idle_s = 15, interval_s = 5, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Connects a non-blocking socket and waits until that is done. Returns 0 or an errno. */
static inline int dlock_finish_connect(int fd, const union dlock_socket_address *to, socklen_t length,
                                       int64_t deadline_us) {
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, &to->any, length) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!dlock_wait_fd(fd, POLLOUT, deadline_us)) return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/* Connects to the Unix socket `path`, or if that is NULL to `address` and `port`, and stores the descriptor in *fd.
 * Returns 0 or an errno; EDESTADDRREQ: not an address. While it connects, *dialing is the descriptor plus 1, for
 * `abandon` in a child that is forked during the call; afterwards 0. */
static inline int dlock_dial(const char *path, const char *address, int port, int64_t deadline_us, int *dialing,
                             int *fd) {
    union dlock_socket_address to;
    socklen_t length = dlock_socket_address(path, address, port, &to);
    *fd = -1;
    if (!length) return EDESTADDRREQ;
    int dialed = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dialed < 0) return errno;
    *dialing = dialed + 1;
    int error = dlock_finish_connect(dialed, &to, length, deadline_us);
    *dialing = 0;
    if (error) {
        close(dialed);
        return error;
    }
    if (!path) dlock_tune_tcp(dialed);
    *fd = dialed;
    return 0;
}

/* Ends the connection even if another process has a copy of the descriptor (a child that was forked at the wrong
 * moment). With `reset` by a TCP reset, so that no unanswered request can arrive late; else in the regular way. The
 * caller still has to close() the descriptor. */
static inline void dlock_hang_up(int fd, bool reset) {
    struct linger at_once;
    struct sockaddr none; /* Linux resets a TCP connection that is "connected" to nothing */
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    memset(&none, 0, sizeof none);
    none.sa_family = AF_UNSPEC;
    if (reset) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (!reset || connect(fd, &none, sizeof none) != 0) shutdown(fd, SHUT_RDWR);
}

/* ---- the URI keys of TLS ----------------------------------------------------------------------------------------- */

/* They mean the same for every backend: three files, the name in the server's certificate, and on or off. */
#define DLOCK_TLS_KEYS "ca", "cert", "key", "sni", "insecure"

/* Checks the path of a file. Returns 0 or EINVAL. */
static inline int dlock_check_file(const struct dlock_uri *uri, const char *key, struct dlock_error *err) {
    const char *path = dlock_uri_get(uri, key);
    if (!path || *path == '/') return 0;
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" must be the absolute path of a file", key);
}

/* Returns whether "insecure" is on; -1: it is neither on nor off. */
static inline int dlock_tls_insecure(const struct dlock_uri *uri) {
    const char *value = dlock_uri_get(uri, "insecure");
    if (!value || strcmp(value, "off") == 0) return 0;
    return strcmp(value, "on") == 0 ? 1 : -1;
}

/* Refuses these keys in a URI that is not over TLS: `over_tls` is the scheme to write. Returns 0 or EINVAL. */
static inline int dlock_refuse_tls(const struct dlock_uri *uri, const char *over_tls, struct dlock_error *err) {
    static const char *const keys[] = {DLOCK_TLS_KEYS};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (dlock_uri_get(uri, keys[i]))
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" belongs to TLS: write %s://", keys[i], over_tls);
    return 0;
}

/* Checks these keys. Returns 0 or EINVAL. */
static inline int dlock_check_tls(const struct dlock_uri *uri, struct dlock_error *err) {
    const char *sni = dlock_uri_get(uri, "sni");
    if (dlock_check_file(uri, "ca", err) || dlock_check_file(uri, "cert", err) || dlock_check_file(uri, "key", err))
        return DLOCK_EINVAL;
    if (dlock_tls_insecure(uri) < 0) return dlock_fail(err, DLOCK_EINVAL, "URI: \"insecure\" must be on or off");
    if (dlock_tls_insecure(uri) && dlock_uri_get(uri, "ca"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"ca\" has no effect with \"insecure\": leave one of them out");
    if (dlock_uri_get(uri, "key") && !dlock_uri_get(uri, "cert"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"key\" belongs to a \"cert\", which is missing");
    if (sni && (!*sni || strlen(sni) > 253))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"sni\" must be the name in the server's certificate");
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
