/* Reads a URI: members, path, session, user, TLS. */
#include "etcd.h"

#include <stdlib.h>

enum { DEFAULT_PORT = 2379, SESSION_MS = 10000, SESSION_MIN_MS = 1000, SESSION_MAX_MS = 3600000 };
#define DEFAULT_BASE "dlock"

static bool is_set(const char *text) {
    return text && *text;
}

static bool over_tls(const struct dlock_uri *uri) {
    return strcmp(uri->scheme, "etcd+tls") == 0;
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

static int check_file(const struct dlock_uri *uri, const char *key, struct dlock_error *err) {
    const char *path = dlock_uri_get(uri, key);
    if (!path || *path == '/') return 0;
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" must be the absolute path of a file", key);
}

static int check_insecure(const struct dlock_uri *uri, struct dlock_error *err) {
    const char *value = dlock_uri_get(uri, "insecure");
    if (value && strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"insecure\" must be on or off");
    if (value && strcmp(value, "on") == 0 && dlock_uri_get(uri, "ca"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"ca\" has no effect with \"insecure\": leave one of them out");
    return 0;
}

static int check_tls(const struct dlock_uri *uri, struct dlock_error *err) {
    static const char *const keys[] = {"ca", "cert", "key", "sni", "insecure"};
    const char *sni = dlock_uri_get(uri, "sni");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!over_tls(uri) && dlock_uri_get(uri, keys[i]))
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" belongs to TLS: write etcd+tls://", keys[i]);
    if (check_file(uri, "ca", err) || check_file(uri, "cert", err) || check_file(uri, "key", err)) return DLOCK_EINVAL;
    if (dlock_uri_get(uri, "key") && !dlock_uri_get(uri, "cert"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"key\" belongs to a \"cert\", which is missing");
    if (sni && (!*sni || strlen(sni) > 253 || strpbrk(sni, "/@?#:[] ")))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"sni\" must be the name in the server's certificate");
    return check_insecure(uri, err);
}

int etcd_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    char base[ETCD_BASE_SIZE];
    int ttl_s, rc = dlock_check_slashes(uri, err);
    if (rc == 0) rc = read_session(uri, &ttl_s, err);
    if (rc == 0) rc = read_base(uri, base, err);
    if (rc == 0) rc = check_user(uri, err);
    if (rc == 0) rc = check_tls(uri, err);
    if (rc == 0 && uri->n_hosts > ETCD_HOSTS)
        rc = dlock_fail(err, DLOCK_EINVAL, "the URI names more than %d members", ETCD_HOSTS);
    return rc;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

/* Adds a member. Its name is for the certificate and the Host header only: libcurl is given the address, and looks up
 * nothing. */
static void add_host(struct etcd_address *address, const struct dlock_uri *uri, const struct dlock_host *host) {
    struct etcd_host *out = &address->hosts[address->n++];
    const char *sni = dlock_uri_get(uri, "sni"), *name = sni ? sni : host->host;
    int port = host->port ? host->port : DEFAULT_PORT;
    bool six = strchr(name, ':'), to_six = strchr(host->address, ':');
    snprintf(out->url, sizeof out->url, "%s://%s%.255s%s:%d", address->tls ? "https" : "http", six ? "[" : "", name,
             six ? "]" : "", port);
    snprintf(out->connect, sizeof out->connect, "::%s%.64s%s:%d", to_six ? "[" : "", host->address, to_six ? "]" : "",
             port);
}

static char *copy(const char *text, bool *failed) {
    char *copied = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copied);
    return copied;
}

int etcd_address(struct etcd_address *address, const struct dlock_uri *uri, struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    const char *insecure = dlock_uri_get(uri, "insecure");
    size_t n = uri->n_hosts ? uri->n_hosts : 1;
    bool failed = false;
    int rc = etcd_accepts(uri, err);
    if (rc != 0) return rc;
    address->tls = over_tls(uri);
    address->insecure = insecure && strcmp(insecure, "on") == 0;
    read_session(uri, &address->ttl_s, NULL);
    read_base(uri, address->base, NULL);
    for (size_t i = 0; i < n; i++) add_host(address, uri, &hosts[i]);
    snprintf(address->where, sizeof address->where, "%.40s:%d%s", hosts[0].host,
             hosts[0].port ? hosts[0].port : DEFAULT_PORT, n > 1 ? ", …" : "");
    address->ca = copy(dlock_uri_get(uri, "ca"), &failed);
    address->cert = copy(dlock_uri_get(uri, "cert"), &failed);
    address->key = copy(dlock_uri_get(uri, "key"), &failed);
    if (is_set(uri->user)) {
        address->user = copy(uri->user, &failed);
        address->password = copy(uri->password ? uri->password : "", &failed);
    }
    return failed ? dlock_fail(err, DLOCK_ENOMEM, "out of memory for the URI") : 0;
}

void etcd_address_free(struct etcd_address *address) {
    free(address->ca);
    free(address->cert);
    free(address->key);
    free(address->user);
    if (address->password) explicit_bzero(address->password, strlen(address->password));
    free(address->password);
}
