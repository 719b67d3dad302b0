/* Reads a URI: servers, session, path, credentials, rights. */
#include "zookeeper.h"

#include <stdlib.h>

enum { DEFAULT_PORT = 2181, SESSION_MS = 10000, SESSION_MIN_MS = 100, SESSION_MAX_MS = 3600000, SCHEME_SIZE = 32 };

/* ---- session= ---------------------------------------------------------------------------------------------------- */

static int read_session(const struct dlock_uri *uri, int *session_ms, struct dlock_error *err) {
    const char *text = dlock_uri_get(uri, "session");
    int64_t ms = text ? dlock_duration_ms(text) : SESSION_MS;
    if (ms < SESSION_MIN_MS || ms > SESSION_MAX_MS)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"session\" must be a duration from 100ms to 1h, such as 10s");
    *session_ms = (int)ms;
    return 0;
}

/* ---- acl= -------------------------------------------------------------------------------------------------------- */

static struct ACL readable[] = {{0x1f, {(char *)"auth", (char *)""}}, {0x01, {(char *)"world", (char *)"anyone"}}};
static const struct ACL_vector read_acl = {2, readable};

static int read_acl_word(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err) {
    const char *word = dlock_uri_get(uri, "acl");
    bool named = (uri->user && *uri->user) || dlock_uri_get(uri, "auth");
    z->acl = &ZOO_OPEN_ACL_UNSAFE;
    if (!word || strcmp(word, "open") == 0) return 0;
    if (strcmp(word, "creator") == 0)
        z->acl = &ZOO_CREATOR_ALL_ACL;
    else if (strcmp(word, "read") == 0)
        z->acl = &read_acl;
    else {
        static const char *const words[] = {"open", "creator", "read", NULL};
        char guess[80];
        dlock_guess(guess, sizeof guess, word, words);
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"acl\" must be open, creator or read%s", guess);
    }
    if (named) return 0;
    return dlock_fail(err, DLOCK_EINVAL, "acl=%s needs credentials, such as auth=digest:user:password", word);
}

/* ---- curator= ---------------------------------------------------------------------------------------------------- */

static int read_curator(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err) {
    const char *word = dlock_uri_get(uri, "curator");
    if (!word || strcmp(word, "mutex") == 0)
        z->writer = ZOOKEEPER_MUTEX;
    else if (strcmp(word, "readwrite") == 0)
        z->writer = ZOOKEEPER_WRITER;
    else {
        static const char *const words[] = {"mutex", "readwrite", NULL};
        char guess[80];
        dlock_guess(guess, sizeof guess, word, words);
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"curator\" must be mutex or readwrite%s", guess);
    }
    return 0;
}

/* ---- auth= ------------------------------------------------------------------------------------------------------- */

static int check_auth(const struct dlock_uri *uri, struct dlock_error *err) {
    if (uri->password && !(uri->user && *uri->user))
        return dlock_fail(err, DLOCK_EINVAL,
                          "ZooKeeper accepts a password only together with a user: zookeeper://user@host");
    for (size_t i = 0; i < uri->n_params; i++) {
        const char *value = uri->params[i].value;
        size_t length = strcspn(value, ":");
        if (strcmp(uri->params[i].key, "auth") != 0) continue;
        if (length == 0 || length >= SCHEME_SIZE || !value[length])
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"auth\" must be scheme:secret, as in digest:user:password");
    }
    return 0;
}

/* The library refuses credentials while it changes from a server that refused the connection to the next one. */
static int add_auth(struct zookeeper *z, const char *scheme, const char *secret, int64_t deadline_us,
                    struct dlock_error *err) {
    int rc;
    while ((rc = zoo_add_auth(z->handle, scheme, secret, (int)strlen(secret), NULL, NULL)) == ZINVALIDSTATE &&
           !is_unrecoverable(z->handle) && dlock_now_us() < deadline_us)
        zookeeper_pause(z);
    if (rc == ZOK) return 0;
    if (rc == ZINVALIDSTATE) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no connection to ZooKeeper at %s", z->where);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "ZooKeeper at %s: auth=%.30s: %s", z->where, scheme, zerror(rc));
}

static int add_user(struct zookeeper *z, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    const char *password = uri->password ? uri->password : "";
    size_t size = strlen(uri->user) + strlen(password) + 2;
    char *pair = malloc(size);
    if (!pair) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the user name");
    snprintf(pair, size, "%s:%s", uri->user, password);
    int rc = add_auth(z, "digest", pair, deadline_us, err);
    explicit_bzero(pair, size);
    free(pair);
    return rc;
}

int zookeeper_credentials(struct zookeeper *z, const struct dlock_uri *uri, int64_t deadline_us,
                          struct dlock_error *err) {
    int rc = uri->user && *uri->user ? add_user(z, uri, deadline_us, err) : 0;
    for (size_t i = 0; i < uri->n_params && rc == 0; i++) {
        const char *value = uri->params[i].value;
        char scheme[SCHEME_SIZE];
        if (strcmp(uri->params[i].key, "auth") != 0) continue;
        snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(value, ":"), value);
        rc = add_auth(z, scheme, strchr(value, ':') + 1, deadline_us, err);
    }
    return rc;
}

/* ---- servers and path -------------------------------------------------------------------------------------------- */

/* The library chooses the order in which it tries the servers. It wants IPv6 addresses without brackets, and takes the
 * text after the last ':' as the port. NULL: out of memory. */
static char *write_hosts(const struct dlock_host *hosts, size_t n) {
    size_t size = 1, used = 0;
    for (size_t i = 0; i < n; i++) size += strlen(hosts[i].address) + sizeof ":65535,";
    char *text = calloc(size, 1);
    for (size_t i = 0; text && i < n; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s:%d", i ? "," : "", hosts[i].address,
                                 hosts[i].port ? hosts[i].port : DEFAULT_PORT);
    return text;
}

static int read_hosts(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", DEFAULT_PORT};
    const struct dlock_host *hosts = uri->n_hosts ? uri->hosts : &local;
    size_t n = uri->n_hosts ? uri->n_hosts : 1;
    char *text = write_hosts(hosts, n);
    if (!text) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the servers' addresses");
    snprintf(z->where, sizeof z->where, "%s:%d%s", hosts[0].host, hosts[0].port ? hosts[0].port : DEFAULT_PORT,
             n > 1 ? ", …" : "");
    z->address.hosts = text;
    z->address.n = n;
    return 0;
}

/* Takes the servers' addresses from the core. EUNAVAILABLE, so that it looks the names up: they are the same. */
static int note_hosts(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                      struct dlock_error *err) {
    struct zookeeper *z = conn;
    char *text = write_hosts(uri->hosts, uri->n_hosts);
    (void)peer, (void)timeout_ms, (void)err;
    if (!text || !*text || strcmp(text, z->address.hosts) == 0) {
        free(text);
        return DLOCK_EUNAVAILABLE;
    }
    free(z->address.hosts);
    z->address.hosts = text;
    return 0;
}

bool zookeeper_have_moved(struct zookeeper *z) {
    return dlock_have_moved(z->peer, note_hosts, z);
}

static int read_base(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err) {
    size_t length = uri->path ? strlen(uri->path) : 0;
    while (length > 0 && uri->path[length - 1] == '/') length--;
    if (length >= sizeof z->base)
        return dlock_fail(err, DLOCK_EINVAL, "the path in the URI is longer than %zu bytes", sizeof z->base - 1);
    if (length == 0) return 0;
    memcpy(z->base, uri->path, length);
    z->base[length] = '\0';
    for (const char *part = z->base; part; part = strchr(part + 1, '/')) {
        size_t n = strcspn(part + 1, "/");
        bool dots = (n == 1 && part[1] == '.') || (n == 2 && part[1] == '.' && part[2] == '.');
        if (part[0] != '/' || n == 0 || dots)
            return dlock_fail(err, DLOCK_EINVAL, "ZooKeeper does not accept the path in the URI: \"%.100s\"", z->base);
    }
    for (const unsigned char *at = (const unsigned char *)z->base; *at; at++)
        if (*at < 0x20 || *at >= 0x7f) return dlock_fail(err, DLOCK_EINVAL, "the path in the URI is not plain ASCII");
    return 0;
}

static int read_settings(struct zookeeper *z, const struct dlock_uri *uri, int *session_ms, struct dlock_error *err) {
    int rc = dlock_check_slashes(uri, err);
    if (rc == 0) rc = read_session(uri, session_ms, err);
    if (rc == 0) rc = read_acl_word(z, uri, err);
    if (rc == 0) rc = read_curator(z, uri, err);
    if (rc == 0) rc = check_auth(uri, err);
    return rc == 0 ? read_base(z, uri, err) : rc;
}

int zookeeper_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    struct zookeeper nobody;
    int session_ms;
    memset(&nobody, 0, sizeof nobody);
    return read_settings(&nobody, uri, &session_ms, err);
}

int zookeeper_address(struct zookeeper *z, const struct dlock_uri *uri, struct dlock_error *err) {
    int rc = read_settings(z, uri, &z->address.session_ms, err);
    return rc == 0 ? read_hosts(z, uri, err) : rc;
}
