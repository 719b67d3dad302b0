/* Requests: JSON by POST, over connections that are kept alive, to the member that answered last. */
#include "etcd.h"

#include <stdlib.h>

enum {
    IDLE_MAX = 8,
    TOKENS = 3 /* how many new tokens a request asks for: users may be changed again after each */
};

static const char authenticate[] = "/v3/auth/authenticate";
static const char json[] = "Content-Type: application/json";

/* ---- idle requests ----------------------------------------------------------------------------------------------- */

static struct dlock_http_request *take(struct etcd *z) {
    pthread_mutex_lock(&z->mutex);
    struct dlock_http_request *request = z->idle;
    if (request) z->idle = request->next;
    pthread_mutex_unlock(&z->mutex);
    return request ? request : dlock_http_new();
}

static void give(struct etcd *z, struct dlock_http_request *request) {
    size_t idle = 0;
    if (request->answer.room > 1 << 16) dlock_text_free(&request->answer);
    pthread_mutex_lock(&z->mutex);
    for (const struct dlock_http_request *at = z->idle; at; at = at->next) idle++;
    if (idle < IDLE_MAX && request->easy) {
        request->next = z->idle;
        z->idle = request;
        request = NULL;
    }
    pthread_mutex_unlock(&z->mutex);
    dlock_http_free(request);
}

void etcd_requests_free(struct etcd *z) {
    while (z->idle) {
        struct dlock_http_request *request = z->idle;
        z->idle = request->next;
        dlock_http_free(request);
    }
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

size_t etcd_member(struct etcd *z, struct dlock_http_host *host) {
    pthread_mutex_lock(&z->mutex);
    size_t number = z->host;
    *host = z->address.hosts[number % ETCD_HOSTS];
    pthread_mutex_unlock(&z->mutex);
    return number;
}

size_t etcd_members(struct etcd *z) {
    pthread_mutex_lock(&z->mutex);
    size_t n = z->address.n;
    pthread_mutex_unlock(&z->mutex);
    return n;
}

void etcd_use_member(struct etcd *z, size_t number) {
    pthread_mutex_lock(&z->mutex);
    if (number / ETCD_HOSTS == z->host / ETCD_HOSTS) z->host = number;
    pthread_mutex_unlock(&z->mutex);
}

/* Makes all requests try the next member, after this one has not answered. True: the members have other addresses now. */
static bool leave_member(struct etcd *z, size_t number) {
    size_t place = number % ETCD_HOSTS;
    pthread_mutex_lock(&z->mutex);
    if (z->host == number) z->host = number - place + (place + 1) % z->address.n;
    pthread_mutex_unlock(&z->mutex);
    atomic_store(&z->astray, true);
    return etcd_have_moved(z);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

/* Writes a header with the user's token, or nothing. etcd refuses a request for a token if it comes with one that has
 * ended. */
static void add_token(struct etcd *z, const char *path, struct dlock_text *line) {
    if (strcmp(path, authenticate) == 0) return;
    pthread_mutex_lock(&z->mutex);
    if (z->token) {
        dlock_text_add_bytes(line, "Authorization: ", 15);
        dlock_text_add_bytes(line, z->token, strlen(z->token));
    }
    pthread_mutex_unlock(&z->mutex);
}

struct curl_slist *etcd_prepare(struct etcd *z, CURL *easy, const struct dlock_http_host *host, const char *path,
                                struct curl_slist **connect) {
    struct dlock_text line = {NULL, 0, 0, false};
    struct curl_slist *headers = NULL;
    add_token(z, path, &line);
    if (!line.failed) headers = dlock_http_prepare(&z->http, easy, host, path, json, line.at, connect);
    dlock_text_free(&line);
    return headers;
}

static CURLcode perform(struct etcd *z, struct dlock_http_request *request, const struct dlock_http_host *host,
                        const char *path, const struct dlock_text *body, enum etcd_repeat repeat, int64_t ms) {
    struct dlock_text line = {NULL, 0, 0, false};
    CURLcode code = CURLE_OUT_OF_MEMORY;
    request->sent = 0;
    request->never_sent = true;
    add_token(z, path, &line);
    if (!line.failed)
        code = dlock_http_send(&z->http, request, host, "POST", path, json, line.at, body, repeat == ETCD_ONCE, ms);
    dlock_text_free(&line);
    return code;
}

/* Notes the cluster of the first answer. False: this answer is another cluster's. */
static bool is_same_cluster(struct etcd *z, const struct etcd_reply *reply) {
    uint_least64_t known = 0;
    return reply->cluster == 0 || atomic_compare_exchange_strong(&z->cluster, &known, reply->cluster) ||
           known == reply->cluster;
}

static int read_answer(struct etcd *z, struct dlock_http_request *request, const struct dlock_http_host *host,
                       struct etcd_reply *reply, struct dlock_error *err) {
    const long status = request->status;
    bool read = etcd_reply_read(reply, request->answer.at, request->answer.n);
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

/* True if this client has had a lease, so that the other end is an etcd. (An etcd without a majority does not answer
 * either, but then this client has usually had a lease before.) */
static bool is_known(struct etcd *z) {
    pthread_mutex_lock(&z->mutex);
    bool known = z->lease.id != 0;
    pthread_mutex_unlock(&z->mutex);
    return known;
}

/* Sends the request to one member after the other, until one answers or the request must not be repeated. */
static int try_members(struct etcd *z, struct dlock_http_request *request, const char *path,
                       const struct dlock_text *body, enum etcd_repeat repeat, int64_t deadline_us,
                       struct etcd_reply *reply, struct dlock_error *err) {
    if (dlock_now_us() >= deadline_us) /* a server that answers each of many requests at once would not end them */
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "no answer in time from etcd at %s", z->address.where);
    if (atomic_load(&z->astray)) etcd_have_moved(z);
    for (size_t left = etcd_members(z);; left--) {
        struct dlock_http_host host;
        size_t number = etcd_member(z, &host);
        int64_t ms = (deadline_us - dlock_now_us()) / 1000;
        if (repeat == ETCD_REPEAT) ms /= (int64_t)left; /* a silent member must leave time for the next ones */
        CURLcode code = perform(z, request, &host, path, body, repeat, ms > 0 ? ms : 1);
        if (repeat == ETCD_REPEAT && request->sent > 1) reply->repeated = true;
        if (code == CURLE_OK) {
            int rc = read_answer(z, request, &host, reply, err);
            if (rc != DLOCK_EUNAVAILABLE) {
                atomic_store(&z->astray, false);
                return rc;
            }
            if (!reply->settled) reply->repeated = true;
            if (leave_member(z, number)) left = etcd_members(z) + 1; /* it has no leader or no space; another one may */
            if (left == 1 || repeat == ETCD_ONCE) return rc;
        } else {
            int rc = dlock_http_failed(&z->http, &host, request, code, is_known(z), err);
            if (leave_member(z, number)) left = etcd_members(z) + 1;
            if (!request->never_sent) reply->repeated = true;
            if (!request->easy) return etcd_no_memory(err);
            if (left == 1 || (repeat == ETCD_ONCE && reply->repeated)) return rc;
        }
        if (dlock_now_us() >= deadline_us) return DLOCK_EUNAVAILABLE;
    }
}

static int post(struct etcd *z, const char *path, const struct dlock_text *body, enum etcd_repeat repeat,
                int64_t deadline_us, struct etcd_reply *reply, struct dlock_error *err) {
    struct dlock_error unheard;
    struct dlock_http_request *request = body->failed ? NULL : take(z);
    if (!request) return etcd_no_memory(err);
    int rc = try_members(z, request, path, body, repeat, deadline_us, reply, err ? err : &unheard);
    give(z, request);
    return rc;
}

int etcd_authenticate(struct etcd *z, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply = {.repeated = false};
    if (!z->address.user) return 0;
    dlock_text_add(&body, "{\"name\":");
    dlock_text_add_json(&body, z->address.user);
    dlock_text_add(&body, ",\"password\":");
    dlock_text_add_json(&body, z->address.password);
    dlock_text_add(&body, "}");
    int rc = post(z, authenticate, &body, ETCD_REPEAT, deadline_us, &reply, err);
    dlock_text_free(&body);
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

int etcd_post(struct etcd *z, const char *path, struct dlock_text *body, enum etcd_repeat repeat, int64_t deadline_us,
              struct etcd_reply *reply, struct dlock_error *err) {
    reply->repeated = reply->settled = false;
    int rc = post(z, path, body, repeat, deadline_us, reply, err);
    /* A token expires after five minutes without a request or, if signed, whenever the users are changed. */
    for (int n = 0; n < TOKENS && rc == ETCD_TOKEN_OLD && z->address.user; n++) {
        rc = etcd_authenticate(z, deadline_us, err);
        if (rc == 0) rc = post(z, path, body, repeat, deadline_us, reply, err);
    }
    dlock_text_free(body);
    if (rc != ETCD_TOKEN_OLD) return rc;
    if (z->address.user) return DLOCK_EAUTH; /* err says so */
    return dlock_fail(err, DLOCK_EAUTH, "etcd at %s wants a user and a password: %s://user@host", z->address.where,
                      z->http.tls ? "etcd+tls" : "etcd");
}
