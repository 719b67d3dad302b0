/* For backends that send bytes to their server: a stream over a plain socket or over TLS, with the same functions.
 *
 * SPDX-License-Identifier: MIT
 *
 * Optional, for Linux (compile with _GNU_SOURCE). As in <dlock/backend_socket.h>, nothing raises SIGPIPE, and nothing
 * blocks past its deadline unless it says so. The functions of a plain stream are static inline. If DLOCK_STREAM_TLS is
 * defined for the whole backend, as the scheme of the same server without TLS ("redis"), they are those of TLS, and one
 * file of the backend includes <dlock/backend_tls.h>, which has them, and needs OpenSSL. */
#ifndef DLOCK_BACKEND_STREAM_H
#define DLOCK_BACKEND_STREAM_H

#include <dlock/backend_socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file and of <dlock/backend_tls.h>: they grow only within one, and what changes otherwise raises
 * it. */
#define DLOCK_STREAM 1

#ifdef DLOCK_STREAM_TLS
#define DLOCK_STREAM_IS_TLS 1
#define DLOCK_STREAM_KEYS DLOCK_TLS_KEYS,
#else
/* Whether the streams are over TLS. */
#define DLOCK_STREAM_IS_TLS 0
/* The stream's own URI keys, for the backend's list. */
#define DLOCK_STREAM_KEYS
#endif

/* A connection to a server. */
struct dlock_stream {
    int fd;                /* valid while the backend has it open */
    int dialing;           /* a socket being connected, plus 1, which a forked child must also close; 0: none */
    struct dlock_tls *tls; /* NULL for a plain stream */
};

#ifdef DLOCK_STREAM_TLS

/* As those below. dlock_stream_dial() and dlock_stream_step() also return EAUTH (one side does not accept the other's
 * certificate), EPROTO (the server speaks no TLS) or ENOMEM. */
int dlock_stream_accepts(const struct dlock_uri *uri, struct dlock_error *err);
int dlock_stream_dial(struct dlock_stream *stream, const struct dlock_uri *uri, const char *path,
                      const struct dlock_host *host, int port, const char *server, int64_t deadline_us,
                      struct dlock_error *err);
int dlock_stream_begin(struct dlock_stream *stream, const struct dlock_uri *uri, const char *name, int fd,
                       struct dlock_error *err);
int dlock_stream_step(struct dlock_stream *stream, const char *server, struct dlock_error *err);
static inline void dlock_stream_doubt(struct dlock_error *err, const char *kind, const char *scheme) {
    (void)scheme;                                                 /* the handshake has succeeded, so it speaks TLS */
    if (!err || err->code != DLOCK_EAUTH) dlock_doubt(err, kind); /* it wants a certificate of the client */
}
ssize_t dlock_stream_send(struct dlock_stream *stream, const void *bytes, size_t n);
ssize_t dlock_stream_recv(struct dlock_stream *stream, void *bytes, size_t n, int flags);
int dlock_stream_wait(struct dlock_stream *stream, short events, int64_t deadline_us);
const char *dlock_stream_why(const struct dlock_stream *stream, int error, int *code);
void dlock_stream_report(const struct dlock_stream *stream, struct dlock_report *report);
void dlock_stream_hang_up(struct dlock_stream *stream, bool reset);
void dlock_stream_close(struct dlock_stream *stream);

#else

/* Checks the stream's own keys. Returns 0 or EINVAL. */
static inline int dlock_stream_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    (void)uri, (void)err;
    return 0;
}

/* Connects to the Unix socket `path` or, if that is NULL, to a host of the URI at this port. `server` names it in
 * messages: "Redis at localhost:6379". Returns 0, EUNAVAILABLE or EINVAL. */
static inline int dlock_stream_dial(struct dlock_stream *stream, const struct dlock_uri *uri, const char *path,
                                    const struct dlock_host *host, int port, const char *server, int64_t deadline_us,
                                    struct dlock_error *err) {
    (void)uri;
    int error = dlock_dial(path, host ? host->address : NULL, port, deadline_us, &stream->dialing, &stream->fd);
    if (error == EDESTADDRREQ) return dlock_fail(err, DLOCK_EINVAL, "%s: not a numeric address", server);
    if (error)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to %s: %s%s", server, strerror(error),
                          dlock_advice(error));
    return 0;
}

/* The same in steps. dlock_stream_begin() takes a socket that is connecting to a host of this name; if it fails, the socket
 * stays the caller's. dlock_stream_step() is called once the socket is ready for the poll events that the last step has
 * returned, at first POLLOUT; 0: the stream is connected. */
static inline int dlock_stream_begin(struct dlock_stream *stream, const struct dlock_uri *uri, const char *name, int fd,
                                     struct dlock_error *err) {
    (void)uri, (void)name, (void)err;
    stream->fd = fd;
    return 0;
}
static inline int dlock_stream_step(struct dlock_stream *stream, const char *server, struct dlock_error *err) {
    (void)stream, (void)server, (void)err;
    return 0;
}

/* As dlock_doubt(), and names the scheme to use if the server speaks TLS; `scheme` NULL: there is none. */
static inline void dlock_stream_doubt(struct dlock_error *err, const char *kind, const char *scheme) {
    dlock_doubt(err, kind);
    if (!err || !scheme) return;
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, " Over TLS it is %s://", scheme);
}

/* As send() and recv() without blocking. With `flags` 0 dlock_stream_recv() waits if the descriptor is a blocking one. */
static inline ssize_t dlock_stream_send(struct dlock_stream *stream, const void *bytes, size_t n) {
    return send(stream->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}
static inline ssize_t dlock_stream_recv(struct dlock_stream *stream, void *bytes, size_t n, int flags) {
    return recv(stream->fd, bytes, n, flags);
}

/* As dlock_wait_fd(). */
static inline int dlock_stream_wait(struct dlock_stream *stream, short events, int64_t deadline_us) {
    return dlock_wait_fd(stream->fd, events, deadline_us);
}

/* Returns why dlock_stream_send() or dlock_stream_recv() has just failed with this errno, and stores the code for that. */
static inline const char *dlock_stream_why(const struct dlock_stream *stream, int error, int *code) {
    (void)stream;
    *code = DLOCK_EUNAVAILABLE;
    return strerror(error);
}

/* Reports the stream's findings for `check`. */
static inline void dlock_stream_report(const struct dlock_stream *stream, struct dlock_report *report) {
    (void)stream, (void)report;
}

/* dlock_stream_hang_up() is dlock_hang_up(). dlock_stream_close() frees everything and closes the socket, once a forked child would
 * no longer look at it. */
static inline void dlock_stream_hang_up(struct dlock_stream *stream, bool reset) {
    dlock_hang_up(stream->fd, reset);
}
static inline void dlock_stream_close(struct dlock_stream *stream) {
    close(stream->fd);
}

#endif

#ifdef __cplusplus
}
#endif
#endif
