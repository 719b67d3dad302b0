/* For backends of servers that speak HTTP: requests by libcurl (7.85 or newer, which such a backend links).
 *
 * SPDX-License-Identifier: MIT
 *
 * Optional, for Linux (compile with _GNU_SOURCE), static inline like the helpers of <dlock/backend.h>. A request ends at
 * its deadline, whatever the server does, and its answer has at most `most` bytes. It goes to the address that the core
 * has looked up: through no proxy, and to no other place that an answer redirects to. Nothing raises SIGPIPE; sockets are
 * close-on-exec, known to `abandon`, and closed by reset, so that no request arrives after it was given up.
 * <dlock/backend_text.h> has what writes JSON. backends/etcd/ in dlock's source shows all of it.
 *
 * Call curl_global_init() first, under pthread_once(). One thread at a time uses a request; any number of them share a
 * struct dlock_http. */
#ifndef DLOCK_BACKEND_HTTP_H
#define DLOCK_BACKEND_HTTP_H

#include <dlock/backend_socket.h>

#include <curl/curl.h>
#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file: it grows only within one, and what changes otherwise raises it. */
#define DLOCK_HTTP 1

/* ---- the URI ----------------------------------------------------------------------------------------------------- */

enum { DLOCK_HTTP_SOCKETS = 1024 };

/* What the requests of a connection share. Zeroed, then filled by dlock_http_begin(). */
struct dlock_http {
    const char *kind;                /* of server, for messages: "etcd" */
    const char *plain;               /* the scheme without TLS, for messages */
    size_t most;                     /* the longest answer, in bytes */
    bool tls;                        /* the scheme is another one than `plain` */
    bool insecure;                   /* the server's certificate is not verified */
    char *ca;                        /* the file with the certificates of authorities; NULL: the system's */
    char *cert;                      /* the file with the client's certificate, or NULL */
    char *key;                       /* the file with its key; NULL: it is in `cert` */
    int sockets[DLOCK_HTTP_SOCKETS]; /* descriptor + 1, or 0 */
};

/* A server, as libcurl takes it: the name is only for the certificate and the Host header. */
struct dlock_http_host {
    char url[320];     /* "https://name:2379" */
    char connect[128]; /* "::address:port" */
};

/* The host and the port, for messages. */
static inline const char *dlock_http_where(const struct dlock_http_host *host) {
    return strstr(host->url, "://") + 3;
}

/* Checks DLOCK_TLS_KEYS, which are only for the scheme `over_tls`. Returns 0 or EINVAL. */
static inline int dlock_http_accepts(const struct dlock_uri *uri, const char *over_tls, struct dlock_error *err) {
    const char *sni = dlock_uri_get(uri, "sni");
    if (strcmp(uri->scheme, over_tls) != 0) return dlock_refuse_tls(uri, over_tls, err);
    int rc = dlock_check_tls(uri, err);
    if (rc == 0 && sni && strpbrk(sni, "/@?#:[] "))
        rc = dlock_fail(err, DLOCK_EINVAL, "URI: \"sni\" must be the name in the server's certificate");
    return rc;
}

/* Stores where a host of the URI is. */
static inline void dlock_http_at(struct dlock_http_host *out, const struct dlock_http *http,
                                 const struct dlock_uri *uri, const struct dlock_host *host, int port) {
    const char *sni = dlock_uri_get(uri, "sni"), *name = sni ? sni : host->host;
    const bool six = strchr(name, ':'), to_six = strchr(host->address, ':');
    if (host->port) port = host->port;
    snprintf(out->url, sizeof out->url, "%s://%s%.255s%s:%d", http->tls ? "https" : "http", six ? "[" : "", name,
             six ? "]" : "", port);
    snprintf(out->connect, sizeof out->connect, "::%s%.64s%s:%d", to_six ? "[" : "", host->address, to_six ? "]" : "",
             port);
}

/* Copies the file of a URI key. False: out of memory. */
static inline bool dlock_http_copy(char **out, const struct dlock_uri *uri, const char *key) {
    const char *path = dlock_uri_get(uri, key);
    *out = path ? strdup(path) : NULL;
    return !path || *out;
}

/* Begins, with a URI that dlock_http_accepts(). Returns 0 or ENOMEM. */
static inline int dlock_http_begin(struct dlock_http *http, const char *kind, const char *plain,
                                   const struct dlock_uri *uri, size_t most, struct dlock_error *err) {
    http->kind = kind;
    http->plain = plain;
    http->most = most;
    http->tls = strcmp(uri->scheme, plain) != 0;
    http->insecure = dlock_tls_insecure(uri) == 1;
    if (dlock_http_copy(&http->ca, uri, "ca") && dlock_http_copy(&http->cert, uri, "cert") &&
        dlock_http_copy(&http->key, uri, "key"))
        return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the URI");
}

/* Frees the rest, after all requests. */
static inline void dlock_http_end(struct dlock_http *http) {
    free(http->ca);
    free(http->cert);
    free(http->key);
    http->ca = http->cert = http->key = NULL;
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

/* Makes a socket for libcurl. */
static inline curl_socket_t dlock_http_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address) {
    struct dlock_http *http = (struct dlock_http *)arg;
    struct linger reset;
    (void)purpose;
    reset.l_onoff = 1;
    reset.l_linger = 0;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    if (fd < 0) return CURL_SOCKET_BAD;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    dlock_tune_tcp(fd);
    for (size_t i = 0; i < DLOCK_HTTP_SOCKETS; i++) {
        int none = 0;
        if (__atomic_compare_exchange_n(&http->sockets[i], &none, fd + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return fd;
    }
    close(fd);
    return CURL_SOCKET_BAD;
}

/* Closes it, once a forked child would no longer look at it. */
static inline int dlock_http_close(void *arg, curl_socket_t fd) {
    struct dlock_http *http = (struct dlock_http *)arg;
    for (size_t i = 0; i < DLOCK_HTTP_SOCKETS; i++) {
        int ours = (int)fd + 1;
        if (__atomic_compare_exchange_n(&http->sockets[i], &ours, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
    }
    return close(fd);
}

/* For `abandon`. */
static inline void dlock_http_abandon(struct dlock_http *http) {
    for (size_t i = 0; i < DLOCK_HTTP_SOCKETS; i++) {
        int fd = __atomic_load_n(&http->sockets[i], __ATOMIC_SEQ_CST) - 1;
        if (fd >= 0) close(fd);
    }
}

/* Between dlock_http_quiet() and dlock_http_loud() the thread gets no SIGPIPE: OpenSSL writes without MSG_NOSIGNAL.
 * dlock_http_send() calls them; who drives a multi handle, or frees a request, calls them too. */
struct dlock_http_signals {
    sigset_t before; /* the thread's mask */
    bool pending;    /* a SIGPIPE that is somebody else's */
};

/* Begins that. */
static inline void dlock_http_quiet(const struct dlock_http *http, struct dlock_http_signals *signals) {
    sigset_t pipe, pending;
    if (!http->tls) return; /* libcurl itself sends with MSG_NOSIGNAL */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    signals->pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &signals->before);
}

/* Ends it. */
static inline void dlock_http_loud(const struct dlock_http *http, const struct dlock_http_signals *signals) {
    static const struct timespec now = {0, 0};
    sigset_t pipe;
    if (!http->tls) return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!signals->pending && sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* A handle of libcurl, which keeps its connection for the next request. */
struct dlock_http_request {
    struct dlock_http_request *next; /* for a list of the backend's */
    CURL *easy;                      /* NULL: out of memory, free the request */
    struct dlock_text answer;        /* the body of the answer */
    long status;                     /* of the answer */
    bool connected;                  /* of a request that failed: the server has accepted a connection */
    bool never_sent;                 /* of a request that failed: it cannot have reached a server */
    unsigned sent;                   /* how often libcurl has sent the request */
    bool once;                       /* it must not send it again */
    size_t most;                     /* the longest answer */
    char why[CURL_ERROR_SIZE];       /* of a request that failed: the reason, in libcurl's words */
};

/* Makes a request. NULL: out of memory. */
static inline struct dlock_http_request *dlock_http_new(void) {
    struct dlock_http_request *request = (struct dlock_http_request *)calloc(1, sizeof *request);
    if (request && (request->easy = curl_easy_init())) return request;
    free(request);
    return NULL;
}

/* Frees it, and closes its connection. */
static inline void dlock_http_free(struct dlock_http_request *request) {
    if (!request) return;
    if (request->easy) curl_easy_cleanup(request->easy);
    dlock_text_free(&request->answer);
    free(request);
}

/* For libcurl: takes bytes of the answer. */
static inline size_t dlock_http_receive(char *bytes, size_t size, size_t n, void *arg) {
    struct dlock_http_request *request = (struct dlock_http_request *)arg;
    if (request->answer.n + size * n > request->most) return 0;
    dlock_text_add_bytes(&request->answer, bytes, size * n);
    return request->answer.failed ? 0 : size * n;
}

/* For libcurl, which is about to send the request. It repeats one by itself if a reused connection ends without a byte of
 * the answer. */
static inline int dlock_http_note_sent(void *arg, char *server, char *client, int server_port, int client_port) {
    (void)server, (void)client, (void)server_port, (void)client_port;
    struct dlock_http_request *request = (struct dlock_http_request *)arg;
    if (request->once && request->sent > 0) return CURL_PREREQFUNC_ABORT;
    request->sent++;
    return CURL_PREREQFUNC_OK;
}

/* Sets the certificates of a handle. */
static inline void dlock_http_set_tls(const struct dlock_http *http, CURL *easy) {
    if (!http->tls) return;
    if (http->ca) { /* else the system's, which NULL would switch off */
        curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca);
        curl_easy_setopt(easy, CURLOPT_CAPATH, (char *)NULL);
    }
    curl_easy_setopt(easy, CURLOPT_SSLCERT, http->cert);
    curl_easy_setopt(easy, CURLOPT_SSLKEY, http->key ? http->key : http->cert);
    curl_easy_setopt(easy, CURLOPT_KEYPASSWD, ""); /* keeps OpenSSL from asking at the terminal */
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, http->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, http->insecure ? 0L : 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L); /* a resumed session would not look at the certificate */
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* each connection reads the file: it may have changed */
#endif
}

/* Sets up a handle for a request to `path` at a host. `authorization` is a line "Authorization: …", or NULL; `type` the
 * type of the body. The caller frees the headers and *connect. NULL: out of memory. */
static inline struct curl_slist *dlock_http_prepare(struct dlock_http *http, CURL *easy,
                                                    const struct dlock_http_host *host, const char *path,
                                                    const char *type, const char *authorization,
                                                    struct curl_slist **connect) {
    const char *const lines[] = {"Expect:", type, authorization};
    char url[1024];
    struct curl_slist *headers = NULL;
    int length = snprintf(url, sizeof url, "%s%s", host->url, path);
    *connect = length > 0 && (size_t)length < sizeof url ? curl_slist_append(NULL, host->connect) : NULL;
    bool failed = !*connect;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0] && !failed; i++) {
        if (!lines[i]) continue;
        struct curl_slist *more = curl_slist_append(headers, lines[i]);
        failed = !more;
        if (more) headers = more;
    }
    if (failed) {
        curl_slist_free_all(headers);
        curl_slist_free_all(*connect);
        return NULL;
    }
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *connect);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* no proxy, whatever the environment says */
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, http->tls ? "https" : "http");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, dlock_http_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, http);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, dlock_http_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, http);
    dlock_http_set_tls(http, easy);
    return headers;
}

/* Notes how far a failed request came, and replaces its handle: libcurl 8 keeps on it that a body has to be rewound, also
 * that of a later request, which crashes (https://github.com/curl/curl/issues/17139). */
static inline void dlock_http_give_up(struct dlock_http_request *request, CURLcode code) {
    curl_off_t connected_us = 0; /* when the connection was made */
    curl_easy_getinfo(request->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    request->connected = connected_us > 0;
    request->never_sent = request->sent == 0;
    if (!request->why[0]) snprintf(request->why, sizeof request->why, "%s", curl_easy_strerror(code));
    curl_easy_cleanup(request->easy);
    request->easy = curl_easy_init();
}
/* Sends a request and waits for the answer, for `ms`. The method is "GET", "POST" or another one; `type`, such as
 * "Content-Type: application/json", and `authorization` are header lines, or NULL. With `once` the request is sent once;
 * else libcurl may repeat it. The body must stay as it is. After CURLE_OK status and answer are set, else dlock_http_failed()
 * says what to return. */
static inline CURLcode dlock_http_send(struct dlock_http *http, struct dlock_http_request *request,
                                       const struct dlock_http_host *host, const char *method, const char *path,
                                       const char *type, const char *authorization, const struct dlock_text *body,
                                       bool once, int64_t ms) {
    CURL *easy = request->easy;
    struct curl_slist *connect;
    struct dlock_http_signals signals;
    request->answer.n = 0;
    request->answer.failed = false;
    request->why[0] = '\0';
    request->sent = 0;
    request->once = once;
    request->status = 0;
    request->most = http->most;
    struct curl_slist *headers = dlock_http_prepare(http, easy, host, path, type, authorization, &connect);
    if (!headers) {
        dlock_http_give_up(request, CURLE_OUT_OF_MEMORY);
        return CURLE_OUT_OF_MEMORY;
    }
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body->at ? body->at : "");
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->n);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(ms > 0 ? ms : 1));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(ms > 0 ? ms : 1));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, dlock_http_receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->why);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, dlock_http_note_sent);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, request);
    dlock_http_quiet(http, &signals);
    CURLcode code = curl_easy_perform(easy);
    if (code == CURLE_OK)
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &request->status);
    else
        dlock_http_give_up(request, code);
    dlock_http_loud(http, &signals);
    if (code == CURLE_OK) {
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, (struct curl_slist *)NULL);
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, (struct curl_slist *)NULL);
    }
    curl_slist_free_all(headers);
    curl_slist_free_all(connect);
    return code;
}

/* Sets err for a request that failed, and returns the code. `known`: the server has answered this client before, so it is
 * of the right kind. */
static inline int dlock_http_failed(const struct dlock_http *http, const struct dlock_http_host *host,
                                    const struct dlock_http_request *request, CURLcode code, bool known,
                                    struct dlock_error *err) {
    const char *kind = http->kind, *at = dlock_http_where(host), *why = request->why;
    int rc = DLOCK_EUNAVAILABLE, lack = 0;
    bool doubt = request->connected && !known;
    switch (code) {
    case CURLE_OUT_OF_MEMORY: return dlock_fail(err, rc, "out of memory for a request to %s", kind);
    case CURLE_OPERATION_TIMEDOUT: dlock_fail(err, rc, "no answer in time from %s at %s", kind, at); break;
    case CURLE_GOT_NOTHING:
    case CURLE_ABORTED_BY_CALLBACK: /* the same, when libcurl would repeat a request that is sent once */
        dlock_fail(err, rc, "%s at %s hung up without an answer", kind, at);
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        lack = dlock_used_up(why);
        if (lack) return dlock_fail(err, rc, "TLS with %s at %s: %s%s", kind, at, strerror(lack), dlock_advice(lack));
        return dlock_fail(err, DLOCK_EAUTH, "TLS with %s at %s: %.200s; see ca=, cert=, key= and sni=", kind, at, why);
    case CURLE_SSL_CONNECT_ERROR:
        return dlock_fail(err, DLOCK_EPROTO,
                          "%s at %s does not speak TLS: %.200s; for an unencrypted connection write %s://", kind, at,
                          why, http->plain);
    case CURLE_WRITE_ERROR:
        rc = dlock_fail(err, DLOCK_EPROTO, "%s at %s sent an answer of more than %zu MB", kind, at, http->most >> 20);
        doubt = true;
        break;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
        rc = dlock_fail(err, DLOCK_EPROTO, "%s at %s: %.200s", kind, at, why);
        doubt = true;
        break;
    default:
        return dlock_fail(err, rc, "no connection to %s at %s: %.200s%s", kind, at, why,
                          dlock_advice(code == CURLE_COULDNT_CONNECT ? ECONNREFUSED : 0));
    }
    if (doubt) dlock_doubt(err, kind);
    return rc;
}

#ifdef __cplusplus
}
#endif
#endif
