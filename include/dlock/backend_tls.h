/* The streams of <dlock/backend_stream.h> over TLS, by OpenSSL. One C file of the backend includes this, which is not
 * only declarations.
 *
 * SPDX-License-Identifier: MIT
 *
 * OpenSSL's own sockets raise SIGPIPE, so it gets a BIO that does not. Its error queue belongs to the thread, and it
 * judges its own results by that queue, which is therefore emptied before each call, as in libpq. Each connection has a
 * separate context, and shares nothing with others. */
#ifndef DLOCK_BACKEND_TLS_H
#define DLOCK_BACKEND_TLS_H

#ifndef DLOCK_STREAM_TLS
#error "Define DLOCK_STREAM_TLS for all files of the backend: the scheme of the same server without TLS"
#endif
#include <dlock/backend_stream.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>

struct dlock_tls {
    BIO_METHOD *method;
    SSL_CTX *context;
    SSL *ssl;
    int fd;
    int flags;     /* flags of recv() */
    bool received; /* recv() has been called for the present call of OpenSSL's */
    bool insecure; /* the server's certificate is not verified */
    bool closed;   /* the server has closed the connection */
    bool refused;  /* the server rejects the client's certificate, or wants one */
    char why[128]; /* reason of the last failure; "": errno says it */
    char name[256];
    size_t in_at, in_end; /* bytes received but not yet read by OpenSSL, which reads a record in two parts */
    char in[16384 + 512]; /* records are hardly ever longer */
};

int dlock_stream_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    return dlock_check_tls(uri, err);
}

/* ---- the socket as OpenSSL sees it ------------------------------------------------------------------------------- */

static int dlock_tls_bio_result(BIO *bio, ssize_t n, int retry) {
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int dlock_tls_bio_write(BIO *bio, const char *bytes, int n) {
    const struct dlock_tls *tls = BIO_get_data(bio);
    return dlock_tls_bio_result(bio, send(tls->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT), BIO_FLAGS_WRITE);
}

/* Reads for OpenSSL, with one recv() in each of our calls: OpenSSL would keep reading as long as a peer sends messages
 * that it skips, such as HelloRequests in the handshake, without checking the deadline. */
static int dlock_tls_bio_read(BIO *bio, char *bytes, int n) {
    struct dlock_tls *tls = BIO_get_data(bio);
    if (tls->in_at == tls->in_end) {
        if (tls->received) {
            errno = EAGAIN;
            return dlock_tls_bio_result(bio, -1, BIO_FLAGS_READ);
        }
        ssize_t got = recv(tls->fd, tls->in, sizeof tls->in, tls->flags);
        tls->received = true;
        tls->in_at = 0;
        tls->in_end = got > 0 ? (size_t)got : 0;
        tls->closed = got == 0;
        if (got <= 0) return dlock_tls_bio_result(bio, got, BIO_FLAGS_READ);
    }
    size_t left = tls->in_end - tls->in_at, taken = left < (size_t)n ? left : (size_t)n;
    memcpy(bytes, tls->in + tls->in_at, taken);
    tls->in_at += taken;
    return dlock_tls_bio_result(bio, (ssize_t)taken, BIO_FLAGS_READ);
}

static long dlock_tls_bio_control(BIO *bio, int command, long number, void *argument) {
    const struct dlock_tls *tls = BIO_get_data(bio);
    (void)number, (void)argument;
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && tls && tls->closed);
}

static BIO *dlock_tls_bio_new(struct dlock_tls *tls) {
    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "dlock");
    if (!tls->method || !BIO_meth_set_write(tls->method, dlock_tls_bio_write) ||
        !BIO_meth_set_read(tls->method, dlock_tls_bio_read) || !BIO_meth_set_ctrl(tls->method, dlock_tls_bio_control))
        return NULL;
    BIO *bio = BIO_new(tls->method);
    if (!bio) return NULL;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    return bio;
}

static void dlock_tls_free(struct dlock_tls *tls) {
    if (!tls) return;
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}

/* Begins a call of OpenSSL's, in which recv() has these flags. */
static void dlock_tls_begin_call(struct dlock_tls *tls, int flags) {
    tls->flags = flags;
    tls->received = false;
    ERR_clear_error();
    errno = 0;
}

/* ---- certificates ------------------------------------------------------------------------------------------------ */

/* Keeps OpenSSL from asking for the password of a key. */
static int dlock_tls_no_password(char *out, int size, int writing, void *arg) {
    (void)out, (void)size, (void)writing, (void)arg;
    return -1;
}

static const char *dlock_tls_reason_of(unsigned long code) {
    if (ERR_SYSTEM_ERROR(code)) return strerror(ERR_GET_REASON(code));
    const char *reason = ERR_reason_error_string(code);
    return reason ? reason : "it cannot be used";
}

/* Returns the errno if OpenSSL had no descriptor or memory for a file, which says nothing about the file; else 0. It
 * looks for the system's authorities only in the handshake, and ignores any that it cannot read. */
static int dlock_tls_starved(void) {
    unsigned long code;
    while ((code = ERR_get_error()) != 0) {
        int reason = ERR_GET_REASON(code);
        if (!ERR_SYSTEM_ERROR(code)) continue;
        if (reason == EMFILE || reason == ENFILE || reason == ENOMEM) return reason;
    }
    return 0;
}

/* Fails because of a file, as OpenSSL's queue of errors says: `what`, its path, and `hint` if the file is at fault. */
static int dlock_tls_unusable(const char *what, const char *path, const char *hint, struct dlock_error *err) {
    const char *why = dlock_tls_reason_of(ERR_peek_error());
    int error = dlock_tls_starved();
    return dlock_fail(err, error ? DLOCK_EUNAVAILABLE : DLOCK_EAUTH, "%s in %.240s: %s%s", what, path, why,
                      error ? dlock_advice(error) : hint);
}

static int dlock_tls_use_ca(struct dlock_tls *tls, const char *ca, struct dlock_error *err) {
    ERR_clear_error();
    if (!ca && SSL_CTX_set_default_verify_paths(tls->context) == 1) return 0;
    if (ca && SSL_CTX_load_verify_file(tls->context, ca) == 1) return 0;
    return dlock_tls_unusable("cannot read the certificates", ca ? ca : "the system's folder", "", err);
}

static int dlock_tls_use_certificate(struct dlock_tls *tls, const char *cert, const char *key,
                                     struct dlock_error *err) {
    if (!cert) return 0;
    if (!key) key = cert;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(tls->context, dlock_tls_no_password);
    if (SSL_CTX_use_certificate_chain_file(tls->context, cert) != 1)
        return dlock_tls_unusable("cannot read the certificate", cert, "", err);
    if (SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) != 1)
        return dlock_tls_unusable("cannot use the key", key,
                                  " (it must be PEM, without a password, and that of the certificate)", err);
    return 0;
}

/* Sets the name that the certificate must have, which is also sent to the server unless it is an address. */
static bool dlock_tls_expect_name(struct dlock_tls *tls) {
    X509_VERIFY_PARAM *param = SSL_get0_param(tls->ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, tls->name) == 1) return true;
    return X509_VERIFY_PARAM_set1_host(param, tls->name, 0) == 1 && SSL_set_tlsext_host_name(tls->ssl, tls->name) == 1;
}

/* ---- the handshake ----------------------------------------------------------------------------------------------- */

static pthread_once_t dlock_tls_once = PTHREAD_ONCE_INIT;

/* Keeps OpenSSL's exit handler from freeing its state while dlock's threads still run. */
static void dlock_tls_begin(void) {
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static int dlock_tls_out_of_memory(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOMEM, "out of memory for TLS");
}

static int dlock_tls_prepare(struct dlock_tls *tls, const struct dlock_uri *uri, const char *name,
                             struct dlock_error *err) {
    const char *sni = dlock_uri_get(uri, "sni");
    snprintf(tls->name, sizeof tls->name, "%s", sni ? sni : name);
    tls->insecure = dlock_tls_insecure(uri) == 1;
    pthread_once(&dlock_tls_once, dlock_tls_begin);
    ERR_clear_error();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (!tls->context || !SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION))
        return dlock_tls_out_of_memory(err);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(tls->context, tls->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    int rc = tls->insecure ? 0 : dlock_tls_use_ca(tls, dlock_uri_get(uri, "ca"), err);
    if (rc == 0) rc = dlock_tls_use_certificate(tls, dlock_uri_get(uri, "cert"), dlock_uri_get(uri, "key"), err);
    if (rc != 0) return rc;
    tls->ssl = SSL_new(tls->context);
    BIO *bio = tls->ssl ? dlock_tls_bio_new(tls) : NULL;
    if (!bio) return dlock_tls_out_of_memory(err);
    SSL_set_bio(tls->ssl, bio, bio);
    return dlock_tls_expect_name(tls) ? 0 : dlock_tls_out_of_memory(err);
}

/* Stores why a call has dlock_tls_failed, for dlock_stream_why(). Returns an errno. */
static int dlock_tls_failed(struct dlock_tls *tls, int error) {
    unsigned long last = ERR_peek_last_error();
    int reason = ERR_GET_REASON(last);
    tls->why[0] = '\0';
    if (error == SSL_ERROR_SYSCALL && errno) return errno;
    if (error != SSL_ERROR_SSL) return ECONNRESET;
    bool alert = reason > SSL_AD_REASON_OFFSET;
    tls->refused =
        alert && (reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED || reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA ||
                  reason == SSL_R_TLSV1_ALERT_ACCESS_DENIED || reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE ||
                  (reason >= SSL_R_SSLV3_ALERT_NO_CERTIFICATE && reason <= SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN));
    snprintf(tls->why, sizeof tls->why, "%s: %s%s", alert ? "the server ended TLS" : "TLS", dlock_tls_reason_of(last),
             tls->refused ? " (does it require a client certificate, \"cert\"?)" : "");
    return EPROTO;
}

/* Returns the errno if there is no descriptor left; else 0. OpenSSL 3.5 does not report that for the authorities'
 * files. */
static int dlock_tls_without_descriptors(const struct dlock_tls *tls) {
    const int copy = fcntl(tls->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return errno == EMFILE || errno == ENFILE ? errno : 0;
    close(copy);
    return 0;
}

static int dlock_tls_not_accepted(const struct dlock_tls *tls, const char *server, struct dlock_error *err) {
    int error = dlock_tls_starved();
    if (!error) error = dlock_tls_without_descriptors(tls);
    if (error)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the certificate of %s cannot be checked: %s%s", server,
                          strerror(error), dlock_advice(error));
    long verdict = SSL_get_verify_result(tls->ssl);
    bool name = verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;
    return dlock_fail(err, DLOCK_EAUTH, "the certificate of %s is not accepted: %s%s%.100s%s", server,
                      X509_verify_cert_error_string(verdict), name ? ", it is not for \"" : "", name ? tls->name : "",
                      name                                     ? "\": say which name it has with sni="
                      : verdict == X509_V_ERR_CERT_HAS_EXPIRED ? ""
                                                               : "; name the file of its authority with ca=");
}

static int dlock_tls_handshake_failed(struct dlock_tls *tls, int error, const char *server, struct dlock_error *err) {
    if (error == SSL_ERROR_SSL && ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return dlock_tls_not_accepted(tls, server, err);
    bool plain = error == SSL_ERROR_SSL && (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER ||
                                            ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_PACKET_LENGTH_TOO_LONG);
    if (plain)
        return dlock_fail(err, DLOCK_EPROTO,
                          "%s does not speak TLS at this port; without TLS it is " DLOCK_STREAM_TLS "://", server);
    int number = dlock_tls_failed(tls, error);
    return dlock_fail(err, tls->refused ? DLOCK_EAUTH : DLOCK_EUNAVAILABLE, "no TLS with %s: %s", server,
                      tls->why[0] ? tls->why
                      : error == SSL_ERROR_ZERO_RETURN || number == ECONNRESET
                          ? "the server closed the connection; does it speak TLS? Without TLS it is " DLOCK_STREAM_TLS
                            "://"
                          : strerror(number));
}

/* Continues the handshake. Returns 0 (it is done), the poll events to wait for, or a code. */
static int dlock_tls_shake_once(struct dlock_tls *tls, const char *server, struct dlock_error *err) {
    dlock_tls_begin_call(tls, MSG_DONTWAIT);
    int done = SSL_connect(tls->ssl);
    if (done == 1) return 0;
    int error = SSL_get_error(tls->ssl, done);
    if (error == SSL_ERROR_WANT_READ) return POLLIN;
    return error == SSL_ERROR_WANT_WRITE ? POLLOUT : dlock_tls_handshake_failed(tls, error, server, err);
}

static int dlock_tls_shake_hands(struct dlock_tls *tls, const char *server, int64_t deadline_us,
                                 struct dlock_error *err) {
    int events;
    /* the socket may be ready again and again, so the deadline is checked, too */
    while ((events = dlock_tls_shake_once(tls, server, err)) > 0)
        if (dlock_now_us() >= deadline_us || !dlock_wait_fd(tls->fd, (short)events, deadline_us))
            return dlock_fail(
                err, DLOCK_EUNAVAILABLE,
                "no TLS with %s: no answer in time; does it speak TLS? Without TLS it is " DLOCK_STREAM_TLS "://",
                server);
    return events;
}

int dlock_stream_begin(struct dlock_stream *stream, const struct dlock_uri *uri, const char *name, int fd,
                       struct dlock_error *err) {
    struct dlock_tls *tls = calloc(1, sizeof *tls);
    int rc = tls ? dlock_tls_prepare(tls, uri, name, err) : dlock_tls_out_of_memory(err);
    if (rc) {
        dlock_tls_free(tls);
        return rc;
    }
    stream->fd = tls->fd = fd;
    stream->tls = tls;
    return 0;
}

int dlock_stream_step(struct dlock_stream *stream, const char *server, struct dlock_error *err) {
    return dlock_tls_shake_once(stream->tls, server, err);
}

int dlock_stream_dial(struct dlock_stream *stream, const struct dlock_uri *uri, const char *path,
                      const struct dlock_host *host, int port, const char *server, int64_t deadline_us,
                      struct dlock_error *err) {
    struct dlock_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return dlock_tls_out_of_memory(err);
    int rc = dlock_tls_prepare(tls, uri, host ? host->host : "localhost", err), fd = -1;
    if (rc == 0) {
        int error = dlock_dial(path, host ? host->address : NULL, port, deadline_us, &stream->dialing, &fd);
        if (error == EDESTADDRREQ)
            rc = dlock_fail(err, DLOCK_EINVAL, "%s: not a numeric address", server);
        else if (error)
            rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to %s: %s%s", server, strerror(error),
                            dlock_advice(error));
    }
    if (rc == 0) {
        stream->dialing = fd + 1;
        tls->fd = fd;
        rc = dlock_tls_shake_hands(tls, server, deadline_us, err);
        stream->dialing = 0;
    }
    if (rc == 0) {
        stream->fd = fd;
        stream->tls = tls;
        return 0;
    }
    dlock_tls_free(tls);
    if (fd >= 0) close(fd);
    return rc;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Turns a result of OpenSSL's into one of read() or write(). */
static ssize_t dlock_tls_result(struct dlock_tls *tls, int done) {
    if (done > 0) return done;
    int error = SSL_get_error(tls->ssl, done);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        errno = EAGAIN;
    else
        errno = dlock_tls_failed(tls, error);
    return -1;
}

ssize_t dlock_stream_send(struct dlock_stream *stream, const void *bytes, size_t n) {
    dlock_tls_begin_call(stream->tls, MSG_DONTWAIT);
    return dlock_tls_result(stream->tls, SSL_write(stream->tls->ssl, bytes, n > INT32_MAX ? INT32_MAX : (int)n));
}

/* Reads everything that has arrived and fits, since the descriptor does not poll readable for bytes that are already in
 * memory here. */
ssize_t dlock_stream_recv(struct dlock_stream *stream, void *bytes, size_t n, int flags) {
    struct dlock_tls *tls = stream->tls;
    size_t done = 0;
    if (n > INT32_MAX) n = INT32_MAX;
    do {
        dlock_tls_begin_call(tls, done ? MSG_DONTWAIT : flags);
        int got = SSL_read(tls->ssl, (char *)bytes + done, (int)(n - done));
        if (got <= 0) return done ? (ssize_t)done : dlock_tls_result(tls, got);
        done += (size_t)got;
    } while (done < n && tls->in_at < tls->in_end);
    return (ssize_t)done;
}

int dlock_stream_wait(struct dlock_stream *stream, short events, int64_t deadline_us) {
    const struct dlock_tls *tls = stream->tls;
    if (events & POLLIN && (SSL_pending(tls->ssl) > 0 || tls->in_at < tls->in_end)) return POLLIN;
    return dlock_wait_fd(stream->fd, events, deadline_us);
}

const char *dlock_stream_why(const struct dlock_stream *stream, int error, int *code) {
    *code = stream->tls->refused ? DLOCK_EAUTH : DLOCK_EUNAVAILABLE;
    if (error == EPROTO && stream->tls->why[0]) return stream->tls->why;
    return strerror(error);
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

enum { DLOCK_TLS_SOON_DAYS = 14 };

void dlock_stream_report(const struct dlock_stream *stream, struct dlock_report *report) {
    const struct dlock_tls *tls = stream->tls;
    const char *version = SSL_get_version(tls->ssl);
    const X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    const ASN1_TIME *end = certificate ? X509_get0_notAfter(certificate) : NULL;
    char date[32] = "an unknown date";
    struct tm until;
    int days = 0, seconds;
    if (tls->insecure) {
        dlock_find(report, "leave insecure= out, and name the authority of the server's certificate with ca=",
                   "%s, and the server's certificate is not checked", version);
        return;
    }
    if (end && ASN1_TIME_to_tm(end, &until)) strftime(date, sizeof date, "%Y-%m-%d", &until);
    if (end) ASN1_TIME_diff(&days, &seconds, NULL, end);
    dlock_find(report, days < DLOCK_TLS_SOON_DAYS ? "replace it: once it has expired no connection can be made" : NULL,
               "%s, and the server's certificate, for \"%.100s\", expires on %s", version, tls->name, date);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void dlock_stream_hang_up(struct dlock_stream *stream, bool reset) {
    dlock_hang_up(stream->fd, reset);
}

void dlock_stream_close(struct dlock_stream *stream) {
    struct dlock_tls *tls = stream->tls;
    stream->tls = NULL;
    close(stream->fd);
    dlock_tls_free(tls);
}

#endif
