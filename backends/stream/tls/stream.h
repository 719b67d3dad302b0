/* The bytes between a backend and its server, over TLS, with OpenSSL on a socket opened by dlock. ../plain/stream.h
 * documents these functions. */
#ifndef DLOCK_STREAM_H
#define DLOCK_STREAM_H

#include <dlock/backend_socket.h>

#include <fcntl.h>

#define STREAM_IS_TLS 1
#define STREAM_KEYS "ca", "cert", "key", "sni", "insecure",

struct stream {
    int fd;
    int dialing;
    struct tls *tls;
};

int stream_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Also returns EAUTH (one side does not accept the other's certificate), EPROTO (the server speaks no TLS) or
 * ENOMEM. */
int stream_dial(struct stream *stream, const struct dlock_uri *uri, const char *path, const struct dlock_host *host,
                int port, const char *server, int64_t deadline_us, struct dlock_error *err);
int stream_begin(struct stream *stream, const struct dlock_uri *uri, const char *name, int fd, struct dlock_error *err);
int stream_step(struct stream *stream, const char *server, struct dlock_error *err);
static inline void stream_doubt(struct dlock_error *err, const char *kind, const char *scheme) {
    (void)scheme;                                                 /* the handshake has succeeded, so it speaks TLS */
    if (!err || err->code != DLOCK_EAUTH) dlock_doubt(err, kind); /* it wants a certificate of the client */
}
ssize_t stream_send(struct stream *stream, const void *bytes, size_t n);
ssize_t stream_recv(struct stream *stream, void *bytes, size_t n, int flags);
int stream_wait(struct stream *stream, short events, int64_t deadline_us);
const char *stream_why(const struct stream *stream, int error, int *code);
void stream_report(const struct stream *stream, struct dlock_report *report);
void stream_hang_up(struct stream *stream, bool reset);
void stream_close(struct stream *stream);

#endif
