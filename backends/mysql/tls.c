/* TLS, which libmariadb does with OpenSSL. Its handshake calls a hook of this file when it has to wait, and so keeps
 * the deadline; after it, requests run in steps as without TLS. */
#include "maria.h"

#include <errmsg.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>

/* MARIADB_TLS_VERIFY_STATUS, which the headers before 3.4 do not have. */
enum { VERIFY_STATUS = 37 };
#ifdef MARIADB_TLS_VERIFY_TRUST
_Static_assert(VERIFY_STATUS == (int)MARIADB_TLS_VERIFY_STATUS, "libmariadb has changed its numbers");
#endif

/* The connection whose handshake this thread runs: the hook gets no more than a descriptor. */
static _Thread_local struct maria *current;

static const char *sni_of(const struct dlock_uri *uri, const struct dlock_host *host) {
    const char *sni = dlock_uri_get(uri, "sni");
    return sni ? sni : host->host;
}

/* Checks that the files can be read: libmariadb would report no more than an OpenSSL error. */
static int check_files(const struct maria *maria, const struct dlock_uri *uri, struct dlock_error *err) {
    static const char *const keys[] = {"ca", "cert", "key"};
    static const char *const words[] = {"certificates", "certificate", "key"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *path = dlock_uri_get(uri, keys[i]);
        if (path && access(path, R_OK) != 0)
            return dlock_fail(err, DLOCK_EAUTH, "TLS with MySQL at %s: cannot read the %s in %.200s: %s", maria->where,
                              words[i], path, strerror(errno));
    }
    return 0;
}

/* libmariadb 3.4 and newer trust a server on this machine, and one that knows the password, where 3.3 trusts only the
 * certificate. */
static bool trusts_more(void) {
    return mysql_get_client_version() >= 30400;
}

/* They take a server that is called by these addresses for one on this machine; it may be the near end of a tunnel. */
static int check_name(const struct maria *maria, const char *name, struct dlock_error *err) {
    if (!trusts_more() || (strcmp(name, "127.0.0.1") != 0 && strcmp(name, "::1") != 0)) return 0;
    return dlock_fail(err, DLOCK_EAUTH,
                      "TLS with MySQL at %s: this version of libmariadb does not compare a certificate with %s: write "
                      "localhost, or sni= and the name in the certificate",
                      maria->where, name);
}

/* Waits in the handshake. libmariadb does not close the descriptor during the wait, so a forked child may close it. If
 * anything arrives, checks whether it is the end of the connection. */
static int wait_in_handshake(my_socket fd, my_bool is_read, int timeout) {
    char byte;
    (void)timeout;
    if (!current) return 0; /* closing: bytes that cannot be sent at once are dropped */
    current->fd = fd + 1;
    atomic_signal_fence(memory_order_seq_cst);
    int happened = dlock_wait_fd(fd, is_read ? POLLIN : POLLOUT, current->handshake.deadline_us);
    atomic_signal_fence(memory_order_seq_cst);
    current->fd = 0;
    if (!happened) {
        current->handshake.is_late = true;
    } else {
        ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        current->handshake.has_ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    }
    return happened && !current->handshake.has_ended;
}

int maria_set_tls(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                  struct dlock_error *err) {
    /* OpenSSL runs on the stack that libmariadb allocates for its non-blocking calls, so that has to be larger. The
     * empty passphrase keeps OpenSSL from asking for one at the terminal. */
    size_t stack = (size_t)256 * 1024;
    my_bool enforce = 1, verify = !maria->insecure;
    const char *ca = dlock_uri_get(uri, "ca"), *cert = dlock_uri_get(uri, "cert"), *key = dlock_uri_get(uri, "key");
    MYSQL *link = maria->link;
    int rc = check_files(maria, uri, err);
    if (rc == 0 && verify) rc = check_name(maria, sni_of(uri, host), err);
    if (rc != 0) return rc;
    if (mysql_options(link, MYSQL_OPT_NONBLOCK, &stack) || mysql_options(link, MYSQL_OPT_SSL_ENFORCE, &enforce) ||
        mysql_options(link, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify) ||
        mysql_options(link, MARIADB_OPT_TLS_VERSION, "TLSv1.2,TLSv1.3") ||
        mysql_options(link, MARIADB_OPT_TLS_PASSPHRASE, "") ||
        mysql_options(link, MARIADB_OPT_IO_WAIT, (const void *)(uintptr_t)wait_in_handshake) ||
        (ca && mysql_options(link, MYSQL_OPT_SSL_CA, ca)) ||
        (cert &&
         (mysql_options(link, MYSQL_OPT_SSL_CERT, cert) || mysql_options(link, MYSQL_OPT_SSL_KEY, key ? key : cert))))
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    return 0;
}

void maria_tls_begin(struct maria *maria, int64_t deadline_us) {
    if (!maria->tls) return;
    current = maria;
    maria->handshake.deadline_us = deadline_us;
    maria->handshake.is_late = maria->handshake.has_ended = false;
}

void maria_tls_end(void) {
    current = NULL;
}

/* libmariadb uses one string as the address and as the name in the certificate. It has read the address by now, so the
 * name can take its place. It also leaves the socket blocking, in which OpenSSL would read without end; a short
 * time-out of the socket makes such a read return to the hook. */
void maria_tls_name(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host) {
    const struct timeval moment = {0, 1000};
    if (!maria->tls) return;
    snprintf(maria->handshake.host, sizeof maria->handshake.host, "%s", sni_of(uri, host));
    setsockopt(maria->fd - 1, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
    setsockopt(maria->fd - 1, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
}

static int untrusted(const struct maria *maria, const char *why, const char *name, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EAUTH,
                      "TLS with MySQL at %s: %.200s (its certificate has to be valid, for \"%.80s\", and issued by an "
                      "authority in ca=)",
                      maria->where, why, name);
}

/* Does not rely on the behaviour of one version of libmariadb: it falls back to plain text if the server has no TLS and
 * the certificate need not be verified. */
int maria_tls_proved(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                     struct dlock_error *err) {
    if (!maria->tls) return 0;
    int fd = (int)mysql_get_socket(maria->link);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* requests wait in poll() only */
    if (!mysql_get_ssl_cipher(maria->link))
        return dlock_fail(err, DLOCK_EPROTO, "MySQL at %s offers no TLS; for an unencrypted connection write mysql://",
                          maria->where);
    if (!maria->insecure && strcmp(maria->link->host, sni_of(uri, host)) != 0)
        return dlock_fail(err, DLOCK_EPROTO, "libmariadb has compared the certificate of MySQL at %s with another name",
                          maria->where);
    /* Without ca= it would accept a self-signed certificate if the server knows the password. */
    unsigned faults = 0;
    if (trusts_more() && !maria->insecure && !dlock_uri_get(uri, "ca") &&
        (mariadb_get_infov(maria->link, (enum mariadb_value)VERIFY_STATUS, &faults) != 0 || faults != 0))
        return untrusted(maria, "the certificate is self-signed", sni_of(uri, host), err);
    return 0;
}

/* When libmariadb 3.4 loses the connection during the login, its message names what it was reading, except in the
 * handshake. */
static bool lost_in_handshake(const struct maria *maria) {
    return mysql_errno(maria->link) == CR_SERVER_LOST && strstr(mysql_error(maria->link), "during query");
}

bool maria_tls_failed(const struct maria *maria) {
    return mysql_errno(maria->link) == CR_SSL_CONNECTION_ERROR || lost_in_handshake(maria);
}

int maria_tls_rejected(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                       struct dlock_error *err) {
    const char *why = mysql_error(maria->link);
    int lack = dlock_used_up(why);
    if (lack)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "TLS with MySQL at %s: %.200s%s", maria->where, strerror(lack),
                          dlock_advice(lack));
    if (maria->handshake.is_late)
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "cannot connect to MySQL at %s: no answer in time to the TLS handshake", maria->where);
    /* libmariadb 3.4 reports an end that OpenSSL has no word for by the errno of an earlier read. */
    if (maria->handshake.has_ended || lost_in_handshake(maria) || strstr(why, "unexpected eof") ||
        strstr(why, "onnection reset") || strstr(why, "temporarily unavailable"))
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "cannot connect to MySQL at %s: it has ended the connection during the TLS handshake",
                          maria->where);
    if (strstr(why, "does not support"))
        return dlock_fail(err, DLOCK_EPROTO, "MySQL at %s offers no TLS; for an unencrypted connection write mysql://",
                          maria->where);
    return untrusted(maria, why, sni_of(uri, host), err);
}
