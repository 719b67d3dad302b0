/* The bytes between a backend and its server, over a plain socket. ../tls/stream.h offers the same over TLS; the
 * include path alone decides with which of them a backend is built.
 *
 * As in <dlock/backend_socket.h>, nothing raises SIGPIPE, and nothing blocks past its deadline unless it says so. */
#ifndef DLOCK_STREAM_H
#define DLOCK_STREAM_H

#include <dlock/backend_socket.h>

#include <fcntl.h>

#define STREAM_IS_TLS 0
/* The stream's own URI keys, for the backend's list. */
#define STREAM_KEYS

struct stream {
    int fd;      /* valid while the backend has it open */
    int dialing; /* a socket being connected, plus 1, which a forked child must also close; 0: none */
};

/* Checks the stream's own keys. Returns 0 or EINVAL. */
static inline int stream_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    (void)uri, (void)err;
    return 0;
}

/* Connects to the Unix socket `path` or, if that is NULL, to a host of the URI at this port. `server` names it in
 * messages: "Redis at localhost:6379". Returns 0, EUNAVAILABLE or EINVAL. */
static inline int stream_dial(struct stream *stream, const struct dlock_uri *uri, const char *path,
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

/* The same in steps. stream_begin() takes a socket that is connecting to a host of this name; if it fails, the socket
 * stays the caller's. stream_step() is called once the socket is ready for the poll events that the last step has
 * returned, at first POLLOUT; 0: the stream is connected. */
static inline int stream_begin(struct stream *stream, const struct dlock_uri *uri, const char *name, int fd,
                               struct dlock_error *err) {
    (void)uri, (void)name, (void)err;
    stream->fd = fd;
    return 0;
}
static inline int stream_step(struct stream *stream, const char *server, struct dlock_error *err) {
    (void)stream, (void)server, (void)err;
    return 0;
}

/* As dlock_doubt(), and names the scheme to use if the server speaks TLS; `scheme` NULL: there is none. */
static inline void stream_doubt(struct dlock_error *err, const char *kind, const char *scheme) {
    dlock_doubt(err, kind);
    if (!err || !scheme) return;
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, " Over TLS it is %s://", scheme);
}

/* As send() and recv() without blocking. With `flags` 0 stream_recv() waits if the descriptor is a blocking one. */
static inline ssize_t stream_send(struct stream *stream, const void *bytes, size_t n) {
    return send(stream->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}
static inline ssize_t stream_recv(struct stream *stream, void *bytes, size_t n, int flags) {
    return recv(stream->fd, bytes, n, flags);
}

/* As dlock_wait_fd(). */
static inline int stream_wait(struct stream *stream, short events, int64_t deadline_us) {
    return dlock_wait_fd(stream->fd, events, deadline_us);
}

/* Returns why stream_send() or stream_recv() has just failed with this errno, and stores the code for that. */
static inline const char *stream_why(const struct stream *stream, int error, int *code) {
    (void)stream;
    *code = DLOCK_EUNAVAILABLE;
    return strerror(error);
}

/* Reports the stream's findings for `check`. */
static inline void stream_report(const struct stream *stream, struct dlock_report *report) {
    (void)stream, (void)report;
}

/* stream_hang_up() is dlock_hang_up(). stream_close() frees everything and closes the socket, once a forked child would
 * no longer look at it. */
static inline void stream_hang_up(struct stream *stream, bool reset) {
    dlock_hang_up(stream->fd, reset);
}
static inline void stream_close(struct stream *stream) {
    close(stream->fd);
}

#endif
