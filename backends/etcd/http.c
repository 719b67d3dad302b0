/* Requests: JSON by POST, over connections that are kept alive, to the member that answered last. */
#include "etcd.h"

#include <stdlib.h>

enum {
    IDLE_MAX = 8,
    TOKENS = 3 /* how many new tokens a request asks for: users may be changed again after each */
};

static const char authenticate[] = "/v3/auth/authenticate";

/* A libcurl handle with its connection. One thread uses it at a time. */
struct etcd_channel {
    struct etcd_channel *next;
    CURL *easy;
    struct etcd_text answer;
    unsigned sent; /* how often libcurl has sent the request */
    char why[CURL_ERROR_SIZE];
};

/* ---- channels ---------------------------------------------------------------------------------------------------- */

static void channel_free(struct etcd_channel *channel) {
    if (channel->easy) curl_easy_cleanup(channel->easy);
    etcd_text_free(&channel->answer);
    free(channel);
}

static struct etcd_channel *take(struct etcd *z) {
    pthread_mutex_lock(&z->mutex);
    struct etcd_channel *channel = z->channels;
    if (channel) z->channels = channel->next;
    pthread_mutex_unlock(&z->mutex);
    if (channel) return channel;
    channel = calloc(1, sizeof *channel);
    if (channel && (channel->easy = curl_easy_init())) return channel;
    free(channel);
    return NULL;
}

static void give(struct etcd *z, struct etcd_channel *channel) {
    size_t idle = 0;
    if (channel->answer.room > 1 << 16) etcd_text_free(&channel->answer);
    pthread_mutex_lock(&z->mutex);
    for (const struct etcd_channel *at = z->channels; at; at = at->next) idle++;
    if (idle < IDLE_MAX) {
        channel->next = z->channels;
        z->channels = channel;
        channel = NULL;
    }
    pthread_mutex_unlock(&z->mutex);
    if (channel) channel_free(channel);
}

void etcd_channels_free(struct etcd *z) {
    while (z->channels) {
        struct etcd_channel *channel = z->channels;
        z->channels = channel->next;
        channel_free(channel);
    }
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

const struct etcd_host *etcd_member(struct etcd *z, size_t *number) {
    pthread_mutex_lock(&z->mutex);
    *number = z->host;
    pthread_mutex_unlock(&z->mutex);
    return &z->address.hosts[*number];
}

void etcd_use_member(struct etcd *z, size_t number) {
    pthread_mutex_lock(&z->mutex);
    z->host = number;
    pthread_mutex_unlock(&z->mutex);
}

/* Makes all requests try the next member, after this one has not answered. */
static void leave_member(struct etcd *z, size_t number) {
    pthread_mutex_lock(&z->mutex);
    if (z->host == number) z->host = (number + 1) % z->address.n;
    pthread_mutex_unlock(&z->mutex);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

static size_t receive(char *bytes, size_t size, size_t n, void *arg) {
    struct etcd_text *answer = arg;
    if (answer->n + size * n > ETCD_REPLY_MAX) return 0;
    etcd_add_bytes(answer, bytes, size * n);
    return answer->failed ? 0 : size * n;
}

/* The part of a body that libcurl has not taken yet. */
struct unsent {
    const char *at;
    size_t n;
};

static size_t take_unsent(char *bytes, size_t size, size_t n, void *arg) {
    struct unsent *unsent = arg;
    size_t part = size * n < unsent->n ? size * n : unsent->n;
    memcpy(bytes, unsent->at, part);
    unsent->at += part;
    unsent->n -= part;
    return part;
}

static int note_sent(void *arg, char *server, char *client, int server_port, int client_port) {
    struct etcd_channel *channel = arg;
    (void)server, (void)client, (void)server_port, (void)client_port;
    channel->sent++;
    return CURL_PREREQFUNC_OK;
}

/* libcurl itself repeats a request if a reused connection ends without a byte of the answer. It cannot do so once a
 * callback has given it part of the body, unless another callback rewinds it: without one the request fails. */
static void set_body(CURL *easy, const struct etcd_text *body, enum etcd_repeat repeat, struct unsent *unsent) {
    bool once = repeat == ETCD_ONCE;
    *unsent = (struct unsent){body->at, body->n};
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, once ? NULL : body->at);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->n);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, once ? take_unsent : (curl_read_callback)NULL);
    curl_easy_setopt(easy, CURLOPT_READDATA, once ? unsent : NULL);
}

static void set_tls(const struct etcd_address *address, CURL *easy) {
    if (!address->tls) return;
    if (address->ca) { /* else the system's, which NULL would switch off */
        curl_easy_setopt(easy, CURLOPT_CAINFO, address->ca);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    curl_easy_setopt(easy, CURLOPT_SSLCERT, address->cert);
    curl_easy_setopt(easy, CURLOPT_SSLKEY, address->key ? address->key : address->cert);
    curl_easy_setopt(easy, CURLOPT_KEYPASSWD, ""); /* keeps OpenSSL from asking at the terminal */
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, address->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, address->insecure ? 0L : 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L); /* a resumed session would not look at the certificate */
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* each connection reads the file: it may have changed */
#endif
}

/* etcd refuses a request for a token if it comes with one that has ended. */
static struct curl_slist *make_headers(struct etcd *z, bool with_token) {
    struct etcd_text line = {NULL, 0, 0, false};
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:"), *more = NULL;
    if (headers) more = curl_slist_append(headers, "Content-Type: application/json");
    pthread_mutex_lock(&z->mutex);
    if (z->token && with_token) {
        etcd_add_bytes(&line, "Authorization: ", 15);
        etcd_add_bytes(&line, z->token, strlen(z->token));
    }
    pthread_mutex_unlock(&z->mutex);
    if (more && line.at) more = curl_slist_append(headers, line.at);
    if (!more || line.failed) {
        curl_slist_free_all(headers);
        headers = NULL;
    }
    etcd_text_free(&line);
    return headers;
}

struct curl_slist *etcd_prepare(struct etcd *z, CURL *easy, const struct etcd_host *host, const char *path,
                                struct curl_slist **connect) {
    char url[400];
    struct curl_slist *headers = make_headers(z, strcmp(path, authenticate) != 0);
    *connect = curl_slist_append(NULL, host->connect);
    if (!headers || !*connect) {
        curl_slist_free_all(headers);
        curl_slist_free_all(*connect);
        return NULL;
    }
    snprintf(url, sizeof url, "%s%s", host->url, path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, *connect);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* no proxy, whatever the environment says */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, z->address.tls ? "https" : "http");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    set_tls(&z->address, easy);
    etcd_sockets(z, easy);
    return headers;
}

static CURLcode perform(struct etcd *z, struct etcd_channel *channel, const struct etcd_host *host, const char *path,
                        const struct etcd_text *body, enum etcd_repeat repeat, int64_t ms) {
    CURL *easy = channel->easy;
    struct curl_slist *connect;
    struct etcd_signals signals;
    struct unsent unsent;
    channel->answer.n = 0;
    channel->answer.failed = false;
    channel->why[0] = '\0';
    channel->sent = 0;
    struct curl_slist *headers = etcd_prepare(z, easy, host, path, &connect);
    if (!headers) return CURLE_OUT_OF_MEMORY;
    set_body(easy, body, repeat, &unsent);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &channel->answer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, channel->why);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, note_sent);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, channel);
    etcd_signals_off(z, &signals);
    CURLcode code = curl_easy_perform(easy);
    etcd_signals_on(z, &signals);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, NULL);
    curl_slist_free_all(headers);
    curl_slist_free_all(connect);
    return code;
}

/* Notes the cluster of the first answer. False: this answer is another cluster's. */
static bool is_same_cluster(struct etcd *z, const struct etcd_reply *reply) {
    uint_least64_t known = 0;
    return reply->cluster == 0 || atomic_compare_exchange_strong(&z->cluster, &known, reply->cluster) ||
           known == reply->cluster;
}

static int read_answer(struct etcd *z, struct etcd_channel *channel, const struct etcd_host *host,
                       struct etcd_reply *reply, struct dlock_error *err) {
    long status = 0;
    curl_easy_getinfo(channel->easy, CURLINFO_RESPONSE_CODE, &status);
    bool read = etcd_reply_read(reply, channel->answer.at, channel->answer.n);
    if (read && !is_same_cluster(z, reply)) {
        etcd_reply_end(reply);
        return etcd_stranger(host, err);
    }
    if (read && status == 200 && !json_object_get(reply->root, "error")) return 0;
    int rc = read || status != 200 ? etcd_refused(z, status, reply, err) : etcd_nonsense(z, "answer", err);
    reply->settled = read && etcd_settled(reply);
    atomic_store(&z->full, reply->settled);
    etcd_reply_end(reply);
    return rc;
}

/* True if the request, which has failed, cannot have reached a server. A failure to connect may follow a copy that libcurl
 * has sent before, but not of a request that is sent once: set_body(). */
static bool never_sent(const struct etcd_channel *channel, enum etcd_repeat repeat, CURLcode code) {
    curl_off_t sent_us = 0; /* when the connection was ready for the request */
    if (repeat == ETCD_REPEAT) return channel->sent == 0;
    if (code == CURLE_COULDNT_CONNECT) return true;
    curl_easy_getinfo(channel->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
    return sent_us == 0;
}

/* True if the connection was accepted, but this client has never had a lease, so that the other end may be no etcd. (An
 * etcd without a majority does not answer either, but then this client has usually had a lease before.) */
static bool is_stranger(struct etcd *z, const struct etcd_channel *channel) {
    curl_off_t connected_us = 0;
    curl_easy_getinfo(channel->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    pthread_mutex_lock(&z->mutex);
    bool known = z->lease.id != 0;
    pthread_mutex_unlock(&z->mutex);
    return connected_us > 0 && !known;
}

/* Replaces the handle after a failed request: libcurl 8 keeps on it that a body has to be rewound, also that of a later
 * request, which crashes (https://github.com/curl/curl/issues/17139). False: out of memory; the channel has none. */
static bool renew_handle(struct etcd_channel *channel) {
    curl_easy_cleanup(channel->easy);
    channel->easy = curl_easy_init();
    return channel->easy;
}

/* Sends the request to one member after the other, until one answers or the request must not be repeated. */
static int try_members(struct etcd *z, struct etcd_channel *channel, const char *path, const struct etcd_text *body,
                       enum etcd_repeat repeat, int64_t deadline_us, struct etcd_reply *reply,
                       struct dlock_error *err) {
    if (dlock_now_us() >= deadline_us) /* a server that answers each of many requests at once would not end them */
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "no answer in time from etcd at %s", z->address.where);
    for (size_t left = z->address.n;; left--) {
        size_t number;
        const struct etcd_host *host = etcd_member(z, &number);
        int64_t ms = (deadline_us - dlock_now_us()) / 1000;
        if (repeat == ETCD_REPEAT) ms /= (int64_t)left; /* a silent member must leave time for the next ones */
        CURLcode code = perform(z, channel, host, path, body, repeat, ms > 0 ? ms : 1);
        if (repeat == ETCD_REPEAT && channel->sent > 1) reply->repeated = true;
        if (code == CURLE_OK) {
            int rc = read_answer(z, channel, host, reply, err);
            if (rc != DLOCK_EUNAVAILABLE) return rc;
            if (!reply->settled) reply->repeated = true;
            leave_member(z, number); /* it has no leader or no space; another one may */
            if (left == 1 || repeat == ETCD_ONCE) return rc;
        } else {
            int rc = etcd_failed(host, is_stranger(z, channel), code,
                                 channel->why[0] ? channel->why : curl_easy_strerror(code), err);
            leave_member(z, number);
            if (!never_sent(channel, repeat, code)) reply->repeated = true;
            if (!renew_handle(channel)) return etcd_no_memory(err);
            if (left == 1 || (repeat == ETCD_ONCE && reply->repeated)) return rc;
        }
        if (dlock_now_us() >= deadline_us) return DLOCK_EUNAVAILABLE;
    }
}

static int post(struct etcd *z, const char *path, const struct etcd_text *body, enum etcd_repeat repeat,
                int64_t deadline_us, struct etcd_reply *reply, struct dlock_error *err) {
    struct dlock_error unheard;
    struct etcd_channel *channel = body->failed ? NULL : take(z);
    if (!channel) return etcd_no_memory(err);
    int rc = try_members(z, channel, path, body, repeat, deadline_us, reply, err ? err : &unheard);
    if (channel->easy)
        give(z, channel);
    else
        channel_free(channel);
    return rc;
}

int etcd_authenticate(struct etcd *z, int64_t deadline_us, struct dlock_error *err) {
    struct etcd_text body = {NULL, 0, 0, false};
    struct etcd_reply reply = {.repeated = false};
    if (!z->address.user) return 0;
    etcd_add(&body, "{\"name\":");
    etcd_add_string(&body, z->address.user);
    etcd_add(&body, ",\"password\":");
    etcd_add_string(&body, z->address.password);
    etcd_add(&body, "}");
    int rc = post(z, authenticate, &body, ETCD_REPEAT, deadline_us, &reply, err);
    etcd_text_free(&body);
    if (rc != 0) return rc == ETCD_TOKEN_OLD ? DLOCK_EAUTH : etcd_code(rc, err);
    const char *token = etcd_string(reply.body, "token");
    bool sensible = token && *token && strlen(token) < 4096 && !strpbrk(token, "\r\n");
    char *copy = sensible ? strdup(token) : NULL;
    etcd_reply_end(&reply);
    if (!copy) return sensible ? etcd_no_memory(err) : etcd_nonsense(z, "token", err);
    pthread_mutex_lock(&z->mutex); /* until now other threads have sent the old one, which may be valid still */
    char *old = z->token;
    z->token = copy;
    pthread_mutex_unlock(&z->mutex);
    free(old);
    return 0;
}

int etcd_post(struct etcd *z, const char *path, struct etcd_text *body, enum etcd_repeat repeat, int64_t deadline_us,
              struct etcd_reply *reply, struct dlock_error *err) {
    reply->repeated = reply->settled = false;
    int rc = post(z, path, body, repeat, deadline_us, reply, err);
    /* A token expires after five minutes without a request or, if signed, whenever the users are changed. */
    for (int n = 0; n < TOKENS && rc == ETCD_TOKEN_OLD && z->address.user; n++) {
        rc = etcd_authenticate(z, deadline_us, err);
        if (rc == 0) rc = post(z, path, body, repeat, deadline_us, reply, err);
    }
    etcd_text_free(body);
    if (rc != ETCD_TOKEN_OLD) return rc;
    if (z->address.user) return DLOCK_EAUTH; /* err says so */
    return dlock_fail(err, DLOCK_EAUTH, "etcd at %s wants a user and a password: %s://user@host", z->address.where,
                      z->address.tls ? "etcd+tls" : "etcd");
}
