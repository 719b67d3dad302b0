/* Reads the URI: one server or a socket, and credentials. */
#include "memcached.h"

#include <sys/un.h>

/* Longest line of memcached's file of users (-Y). */
#define CREDENTIAL_MAX 256

static bool is_set(const char *part) {
    return part && *part;
}

static int read_socket(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err) {
    if (uri->n_hosts)
        return dlock_fail(err, DLOCK_EINVAL,
                          "memcached+unix names a socket, not a host: memcached+unix:///path/to/socket");
    if (!is_set(uri->path) || strlen(uri->path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return dlock_fail(err, DLOCK_EINVAL, "memcached+unix needs the path of a socket, shorter than %zu bytes",
                          sizeof(((struct sockaddr_un *)0)->sun_path));
    address->socket = uri->path;
    return 0;
}

static bool is_loopback(const struct dlock_host *host) {
    return strcmp(host->address, "127.0.0.1") == 0 || strcmp(host->address, "::1") == 0;
}

/* Checks that the URI names one server. A host name with several addresses is in `hosts` once for each address. These
 * may be several servers (a headless service, round-robin DNS), and their answers would not show it; localhost is
 * one. */
static int check_hosts(const struct dlock_uri *uri, struct dlock_error *err) {
    const struct dlock_host *first = uri->hosts;
    for (size_t i = 1; i < uri->n_hosts; i++) {
        const struct dlock_host *host = &uri->hosts[i];
        if (strcmp(host->host, first->host) != 0 || host->port != first->port)
            return dlock_fail(err, DLOCK_EINVAL,
                              "memcached locks need exactly one server: memcached servers share no data, so a stand-in "
                              "for another server would grant locks that are held there");
        if (host->address && (!is_loopback(first) || !is_loopback(host)))
            return dlock_fail(err, DLOCK_EINVAL,
                              "\"%.100s\" has several addresses (%.50s, %.50s%s), which may be several servers, and "
                              "memcached locks need exactly one: put one of the addresses into the URI, the same one "
                              "in all of them",
                              first->host, first->address, host->address, uri->n_hosts > 2 ? ", ..." : "");
    }
    return 0;
}

/* Reads user and password. Without SASL they are sent in one line "user password", and stored in a line "user:password"
 * of the server's file: hence the refused characters. */
static int read_credentials(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err) {
    if (!is_set(uri->user) && !is_set(uri->password) && !WIRE_IS_SASL) return 0;
    if (!is_set(uri->user) || !is_set(uri->password))
        return dlock_fail(err, DLOCK_EINVAL, "memcached asks for both a user and a password: %s://user:password@host",
                          uri->scheme);
    for (const char *p = uri->user; *p && !WIRE_IS_SASL; p++)
        if (*p == ' ' || *p == ':' || (unsigned char)*p < 0x20)
            return dlock_fail(err, DLOCK_EINVAL, "a memcached user has no spaces, colons or control characters");
    for (const char *p = uri->password; *p && !WIRE_IS_SASL; p++)
        if (*p == ' ' || (unsigned char)*p < 0x20)
            return dlock_fail(err, DLOCK_EINVAL, "a memcached password has no spaces or control characters");
    if (strlen(uri->user) > CREDENTIAL_MAX || strlen(uri->password) > CREDENTIAL_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "a user or a memcached password has at most %d bytes", CREDENTIAL_MAX);
    address->user = uri->user;
    address->password = uri->password;
    return 0;
}

int memcached_address(const struct dlock_uri *uri, struct memcached_address *address, struct dlock_error *err) {
    int rc;
    memset(address, 0, sizeof *address);
    address->uri = uri;
    if ((rc = dlock_check_slashes(uri, err)) != 0) return rc;
    if ((rc = read_credentials(uri, address, err)) != 0) return rc;
    if (strcmp(uri->scheme, "memcached+unix") == 0) return read_socket(uri, address, err);
    if (is_set(uri->path) && strcmp(uri->path, "/") != 0)
        return dlock_fail(err, DLOCK_EINVAL,
                          "memcached has no databases or folders: leave \"%.60s\" out, or use prefix=", uri->path);
    return check_hosts(uri, err);
}

int memcached_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    struct memcached_address address;
    int rc = memcached_address(uri, &address, err);
    return rc ? rc : wire_accepts(uri, err);
}
