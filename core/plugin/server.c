/* Opening a connection: finds the backend of a URI, lets it judge the URI, looks up the hosts, has it connect; and which
 * numbers it may return. */
#include "plugin/server.h"
#include "base/env.h"
#include "base/forking.h"

#include <stdlib.h>

static bool can(const struct dlock__server *server, uint32_t caps) {
    return (server->module->ops.caps & caps) == caps;
}

static int check_keys(const struct dlock__server *server, struct dlock_error *err) {
    const struct dlock_backend *backend = &server->module->ops;
    int rc = dlock__uri_check_keys(server->uri, backend, err);
    if (rc == 0 && server->uri->linger_ms > 0 && !can(server, DLOCK_CAP_WANTED))
        return dlock_fail(
            err, DLOCK_ENOTSUP,
            "URI: \"linger\" needs a server that tells holders about waiters, %s%s does not: leave it out",
            backend->name, dlock__as_selected(server->base_caps, DLOCK_CAP_WANTED));
    if (rc == 0 && server->uri->password_file && can(server, DLOCK_CAP_LOCAL))
        return dlock_fail(err, DLOCK_EINVAL,
                          "URI: %s has no server that asks for a password: leave \"password_file\" out", backend->name);
    return rc;
}

/* Lets the backend judge the URI, with a stand-in for the password of a password file: that is read with each
 * connection, and need not exist yet. */
static int accepts(const struct dlock__server *server, struct dlock_error *err) {
    struct dlock_uri uri = server->uri->parts;
    if (!server->module->ops.accepts) return 0;
    if (server->uri->password_file) uri.password = "to-be-read";
    dlock__foreign_begin();
    int rc = server->module->ops.accepts(&uri, err);
    dlock__foreign_end();
    return dlock__about_connection(&server->module->ops, "accepts", rc, err);
}

static int open_server(const char *text, struct dlock__server *server, struct dlock_error *err) {
    int rc = dlock__uri_parse(text, &server->uri, err);
    if (rc != 0) return rc;
    const struct dlock_uri *parts = &server->uri->parts;
    rc = dlock__registry_find(parts->scheme, &server->module, err);
    if (rc == 0) server->base_caps = server->module->ops.caps;
    if (rc == 0) rc = dlock__registry_variant(&server->module, parts, err);
    if (rc == 0) rc = check_keys(server, err);
    if (rc == 0) rc = accepts(server, err);
    if (rc == 0) rc = dlock__resolver_new(parts, &server->resolver, err);
    return rc;
}

int dlock__server_open(const char *text, struct dlock__server *server, struct dlock_error *err) {
    return dlock__uri_hint(text, open_server(text, server, err), err);
}

/* Connects with the password in the URI. A password file is read for each connection, since it may have changed. */
static int connect_to(const struct dlock__server *server, struct dlock_uri uri, dlock_connect *connect,
                      const struct dlock_peer *peer, void *data, int64_t deadline_us, struct dlock_error *err) {
    char password[DLOCK__PASSWORD_MAX + 1];
    int rc = 0;
    if (server->uri->password_file) {
        rc = dlock__password_read(server->uri->password_file, password, err);
        uri.password = password;
    }
    dlock__foreign_begin();
    if (rc == 0) rc = connect(data, &uri, peer, dlock__timeout_ms(dlock__now_us(), deadline_us), err);
    dlock__foreign_end();
    if (server->uri->password_file) explicit_bzero(password, sizeof password);
    return rc;
}

int dlock__server_connect(const struct dlock__server *server, const char *host, int port, bool lookup,
                          dlock_connect *connect, const struct dlock_peer *peer, void *data, int64_t deadline_us,
                          struct dlock_error *err) {
    struct dlock__addresses *addresses = NULL;
    struct dlock_uri uri = server->uri->parts;
    int rc = 0;
    if (host)
        rc = dlock__resolve_announced(server->resolver, host, port, deadline_us, lookup, &addresses, err);
    else if (!can(server, DLOCK_CAP_LOCAL))
        rc = dlock__resolve(server->resolver, deadline_us, lookup, &addresses, err);
    if (rc != 0) return rc;
    if (addresses) {
        uri.hosts = addresses->hosts;
        uri.n_hosts = addresses->n;
    }
    rc = connect_to(server, uri, connect, peer, data, deadline_us, err);
    free(addresses);
    if (rc != 0 && !host) dlock__resolver_stale(server->resolver); /* the server may have moved */
    return dlock__about_connection(&server->module->ops, "connect", rc, err);
}

int dlock__about_connection(const struct dlock_backend *backend, const char *operation, int rc,
                            struct dlock_error *err) {
    switch (rc) {
    case 0:
    case DLOCK_EUNAVAILABLE:
    case DLOCK_EAUTH:
    case DLOCK_EPROTO:
    case DLOCK_EINVAL:
    case DLOCK_ENOMEM:
    case DLOCK_ENOTSUP:
    case DLOCK_ENOBACKEND: /* this one and the next: of a member */
    case DLOCK_EABI: return rc;
    default: return dlock_fail(err, DLOCK_EPROTO, "backend %s: %s returned %d", backend->name, operation, rc);
    }
}

void dlock__server_close(struct dlock__server *server) {
    dlock__resolver_free(server->resolver);
    dlock__uri_free(server->uri);
}
