/* Reads a URI: members, path, session, user, TLS. */
#include "etcd.h"

#include <stdlib.h>

enum { SEEK_US = 250000 /* between two looks for other addresses */ };
enum { DEFAULT_PORT = 2379, SESSION_MS = 10000, SESSION_MIN_MS = 1000, SESSION_MAX_MS = 3600000 };
#define DEFAULT_BASE "dlock"

static bool is_set(const char *text) {
    return text && *text;
}

/* ---- checks of each part ----------------------------------------------------------------------------------------- */

static int read_session(const struct dlock_uri *uri, int *ttl_s, struct dlock_error *err) {
    const char *text = dlock_uri_get(uri, "session");
    int64_t ms = text ? dlock_duration_ms(text) : SESSION_MS;
    if (ms < SESSION_MIN_MS || ms > SESSION_MAX_MS || ms % 1000 != 0)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"session\" must be whole seconds from 1s to 1h, such as 10s");
    *ttl_s = (int)(ms / 1000);
    return 0;
}

static int read_base(const struct dlock_uri *uri, char base[ETCD_BASE_SIZE], struct dlock_error *err) {
    const char *path = is_set(uri->path) ? uri->path + (*uri->path == '/') : "";
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/') length--;
    if (length == 0) path = DEFAULT_BASE, length = strlen(DEFAULT_BASE);
    if (length + 2 > ETCD_BASE_SIZE)
        return dlock_fail(err, DLOCK_EINVAL, "the path in the URI is longer than %d bytes", ETCD_BASE_SIZE - 2);
    snprintf(base, ETCD_BASE_SIZE, "%.*s/", (int)length, path);
    return 0;
}

static int check_user(const struct dlock_uri *uri, struct dlock_error *err) {
    if (uri->password && !is_set(uri->user))
        return dlock_fail(err, DLOCK_EINVAL, "etcd accepts a password only together with a user: %s://user@host",
                          uri->scheme);
    return 0;
}

int etcd_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    char base[ETCD_BASE_SIZE];
    int ttl_s, rc = dlock_check_slashes(uri, err);
    if (rc == 0) rc = read_session(uri, &ttl_s, err);
    if (rc == 0) rc = read_base(uri, base, err);
    if (rc == 0) rc = check_user(uri, err);
    if (rc == 0) rc = dlock_http_accepts(uri, "etcd+tls", err);
    if (rc == 0 && uri->n_hosts > ETCD_HOSTS)
        rc = dlock_fail(err, DLOCK_EINVAL, "the URI names more than %d members", ETCD_HOSTS);
    return rc;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static char *copy(const char *text, bool *failed) {
    char *copied = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copied);
    return copied;
}

int etcd_address(struct etcd *z, const struct dlock_uri *uri, struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    struct etcd_address *address = &z->address;
    size_t n = uri->n_hosts ? uri->n_hosts : 1;
    bool failed = false;
    int rc = etcd_accepts(uri, err);
    if (rc == 0) rc = dlock_http_begin(&z->http, "etcd", "etcd", uri, ETCD_REPLY_MAX, err);
    if (rc != 0) return rc;
    read_session(uri, &address->ttl_s, NULL);
    read_base(uri, address->base, NULL);
    for (size_t i = 0; i < n; i++) dlock_http_at(&address->hosts[address->n++], &z->http, uri, &hosts[i], DEFAULT_PORT);
    snprintf(address->where, sizeof address->where, "%.40s:%d%s", hosts[0].host,
             hosts[0].port ? hosts[0].port : DEFAULT_PORT, n > 1 ? ", …" : "");
    if (is_set(uri->user)) {
        address->user = copy(uri->user, &failed);
        address->password = copy(uri->password ? uri->password : "", &failed);
    }
    return failed ? dlock_fail(err, DLOCK_ENOMEM, "out of memory for the URI") : 0;
}

/* Takes the members' addresses from the core. EUNAVAILABLE, so that it looks the names up: they are the same. */
static int note_hosts(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                      struct dlock_error *err) {
    struct etcd *z = conn;
    struct etcd_address *address = &z->address;
    size_t n = uri->n_hosts < ETCD_HOSTS ? uri->n_hosts : ETCD_HOSTS;
    (void)peer, (void)timeout_ms, (void)err;
    if (n == 0) return DLOCK_EUNAVAILABLE;
    pthread_mutex_lock(&z->mutex);
    bool changed = n != address->n;
    for (size_t i = 0; i < n; i++) {
        struct dlock_http_host host;
        dlock_http_at(&host, &z->http, uri, &uri->hosts[i], DEFAULT_PORT);
        changed = changed || strcmp(host.url, address->hosts[i].url) != 0 ||
                  strcmp(host.connect, address->hosts[i].connect) != 0;
        address->hosts[i] = host;
    }
    address->n = n;
    if (changed) z->host = (z->host / ETCD_HOSTS + 1) * ETCD_HOSTS + z->host % ETCD_HOSTS % n;
    pthread_mutex_unlock(&z->mutex);
    return changed ? 0 : DLOCK_EUNAVAILABLE;
}

bool etcd_have_moved(struct etcd *z) {
    int64_t now = dlock_now_us();
    pthread_mutex_lock(&z->mutex);
    bool due = now >= z->sought_us + SEEK_US;
    if (due) z->sought_us = now;
    pthread_mutex_unlock(&z->mutex);
    return due && dlock_have_moved(z->peer, note_hosts, z);
}

void etcd_address_free(struct etcd_address *address) {
    free(address->user);
    if (address->password) explicit_bzero(address->password, strlen(address->password));
    free(address->password);
}
