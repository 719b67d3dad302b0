/* The bytes between a backend and its server: over a socket as it is. ../tls/stream.h offers the same over TLS; which of
 * them a backend is built with is said by its include path alone.
 *
 * As <dlock/backend_socket.h> has it: nothing blocks past its deadline, unless it says so, or raises SIGPIPE. */
#ifndef DLOCK_STREAM_H
#define DLOCK_STREAM_H

#include <dlock/backend_socket.h>

#include <fcntl.h>

#define STREAM_IS_TLS 0
/* URI keys of its own, for the backend's list. */
#define STREAM_KEYS

struct stream {
    int fd;      /* means something while the backend has it open */
    int dialing; /* a socket that is not yet in use, plus 1: a child forked meanwhile must close it, too */
};

/* Whether its own keys make sense. 0, EINVAL. */
static inline int stream_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    (void)uri, (void)err;
    return 0;
}

/* Connects to the Unix socket `path`, or when that is NULL to a host of the URI at this port. `server` says in messages
 * what and where that is: "Redis at localhost:6379". EUNAVAILABLE, EINVAL. */
static inline int stream_dial(struct stream *stream, const struct dlock_uri *uri, const char *path,
                              const struct dlock_host *host, int port, const char *server, int64_t deadline_us,
                              struct dlock_error *err) {
    char reason[128];
    (void)uri;
    int error = dlock_dial(path, host ? host->address : NULL, port, deadline_us, &stream->dialing, &stream->fd);
    if (error == EDESTADDRREQ) return dlock_fail(err, DLOCK_EINVAL, "%s: not a numeric address", server);
    if (error)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to %s: %s", server,
                          strerror_r(error, reason, sizeof reason));
    return 0;
}

/* The same in steps: takes the socket, which is connecting to a host of this name, and is the caller's if that fails; then
 * goes on, once the socket is ready for what the last step has returned (first POLLOUT): 0: it is connected. */
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

/* As dlock_doubt(), where it may be that the server speaks TLS, for which there is another scheme; NULL: there is none. */
static inline void stream_doubt(struct dlock_error *err, const char *kind, const char *scheme) {
    dlock_doubt(err, kind);
    if (!err || !scheme) return;
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, " Over TLS it is %s://", scheme);
}

/* As send() and recv(), without blocking; a recv() may wait with `flags` 0, where the descriptor does. */
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

/* Why stream_send() or stream_recv() has just failed with this errno, and the code for it. */
static inline const char *stream_why(const struct stream *stream, int error, char reason[128], int *code) {
    (void)stream;
    *code = DLOCK_EUNAVAILABLE;
    return strerror_r(error, reason, 128);
}

/* What `check` has to say of it. */
static inline void stream_report(const struct stream *stream, struct dlock_report *report) {
    (void)stream, (void)report;
}

/* As dlock_hang_up(); and then, once a forked child would not look at it any more, frees everything and closes it. */
static inline void stream_hang_up(struct stream *stream, bool reset) {
    dlock_hang_up(stream->fd, reset);
}
static inline void stream_close(struct stream *stream) {
    close(stream->fd);
}

#endif
