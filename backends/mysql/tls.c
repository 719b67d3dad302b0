/* TLS, which libmariadb does with OpenSSL. Its handshake asks a hook of ours when it has to wait, and so keeps our
 * deadline; everything after it is in steps, as without TLS. */
#include "maria.h"

#include <errmsg.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>

/* The handshake that this thread is in the middle of: the hook is told of no more than a descriptor. */
static _Thread_local struct maria *current;

static const char *sni_of(const struct dlock_uri *uri, const struct dlock_host *host) {
    const char *sni = dlock_uri_get(uri, "sni");
    return sni ? sni : host->host;
}

/* libmariadb would say of a missing file no more than an OpenSSL error. */
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

/* While the handshake waits: libmariadb has left the descriptor to us, so a child forked meanwhile may close it. Where
 * bytes are waiting it is looked at whether they are the end. */
static int wait_in_handshake(my_socket fd, my_bool is_read, int timeout) {
    char byte;
    (void)timeout;
    if (!current) return 0; /* closing: what does not go at once is not sent */
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

int maria_set_tls(struct maria *maria, const struct dlock_uri *uri, struct dlock_error *err) {
    /* OpenSSL runs on the stack that libmariadb makes for its steps. The passphrase is empty, so that nobody is asked
     * for one at the terminal. */
    size_t stack = (size_t)256 * 1024;
    my_bool enforce = 1, verify = !maria->insecure;
    const char *ca = dlock_uri_get(uri, "ca"), *cert = dlock_uri_get(uri, "cert"), *key = dlock_uri_get(uri, "key");
    MYSQL *link = maria->link;
    int rc = check_files(maria, uri, err);
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

/* libmariadb takes one name for where to connect and for whom the certificate is. It has read the former by now. It also
 * leaves the socket blocking, in which OpenSSL would read for ever: a read that ends soon leads to our hook. */
void maria_tls_name(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host) {
    const struct timeval moment = {0, 1000};
    if (!maria->tls) return;
    snprintf(maria->handshake.host, sizeof maria->handshake.host, "%s", sni_of(uri, host));
    setsockopt(maria->fd - 1, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
    setsockopt(maria->fd - 1, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
}

/* Nothing that libmariadb may do otherwise in another version goes unnoticed: it falls back to plain text where a server
 * has no TLS and its certificate would not be looked at. */
int maria_tls_proved(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                     struct dlock_error *err) {
    if (!maria->tls) return 0;
    int fd = (int)mysql_get_socket(maria->link);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* requests wait in poll() alone */
    if (!mysql_get_ssl_cipher(maria->link))
        return dlock_fail(err, DLOCK_EPROTO, "MySQL at %s has no TLS: without TLS it is mysql://", maria->where);
    if (!maria->insecure && strcmp(maria->link->host, sni_of(uri, host)) != 0)
        return dlock_fail(err, DLOCK_EPROTO, "libmariadb has compared the certificate of MySQL at %s with another name",
                          maria->where);
    return 0;
}

int maria_tls_rejected(struct maria *maria, const char *name, struct dlock_error *err) {
    const char *why = mysql_error(maria->link);
    if (maria->handshake.is_late)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to MySQL at %s: no answer in time to TLS",
                          maria->where);
    if (maria->handshake.has_ended || strstr(why, "unexpected eof") || strstr(why, "onnection reset"))
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "cannot connect to MySQL at %s: it has ended the connection during the handshake of TLS",
                          maria->where);
    if (strstr(why, "does not support"))
        return dlock_fail(err, DLOCK_EPROTO, "MySQL at %s has no TLS: without TLS it is mysql://", maria->where);
    return dlock_fail(err, DLOCK_EAUTH,
                      "TLS with MySQL at %s: %.200s (its certificate has to be in force, for \"%.80s\", and of an "
                      "authority in ca=)",
                      maria->where, why, name);
}
