/* Reads a URI: socket, credentials, database. */
#include "redis.h"

#include <stdlib.h>
#include <sys/un.h>

static bool is_set(const char *part) {
    return part && *part;
}

bool redis_scheme_ends(const struct dlock_uri *uri, const char *ending) {
    const char *plus = strchr(uri->scheme, '+');
    return plus && strcmp(plus, ending) == 0;
}

bool redis_is_host(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";
    const size_t length = strlen(text);
    return length > 0 && length <= REDIS_HOST_MAX && strspn(text, letters) == length;
}

#define FENCES_MIN_MS 120000
#define FENCES_MAX_MS 3600000

/* Reads the number of a database. Whether it exists is left to the server. */
static int read_db(const char *text, int *db, struct dlock_error *err) {
    char *end;
    long number = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    if (number < 0 || number > INT32_MAX || *end)
        return dlock_fail(err, DLOCK_EINVAL, "the database in the URI is not a number: \"%.60s\"", text);
    *db = (int)number;
    return 0;
}

/* Short times save memory, but limit by how much the server's clock may be set back without repeating a fence. */
static int read_fences(const char *text, int64_t *fences_ms, struct dlock_error *err) {
    int64_t ms = dlock_duration_ms(text);
    if (ms < FENCES_MIN_MS || ms > FENCES_MAX_MS)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"fences\" must be a duration from 2m to 1h, such as 10m");
    *fences_ms = ms;
    return 0;
}

static int read_socket(const struct dlock_uri *uri, struct redis_address *address, struct dlock_error *err) {
    if (uri->n_hosts)
        return dlock_fail(err, DLOCK_EINVAL, "redis+unix names a socket, not a host: redis+unix:///path/to/socket");
    if (!is_set(uri->path) || strlen(uri->path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return dlock_fail(err, DLOCK_EINVAL, "redis+unix needs the path of a socket, shorter than %zu bytes",
                          sizeof(((struct sockaddr_un *)0)->sun_path));
    address->socket = uri->path;
    return 0;
}

/* Reads the parts of a Sentinel URI: its path is the master's name, and the database is a key. */
static int read_sentinel(const struct dlock_uri *uri, struct redis_address *address, struct dlock_error *err) {
    const char *user = dlock_uri_get(uri, "sentinel_user"), *password = dlock_uri_get(uri, "sentinel_password");
    if (!redis_scheme_ends(uri, "+sentinel")) {
        if (!user && !password) return 0;
        return dlock_fail(err, DLOCK_EINVAL, "sentinel_user and sentinel_password are for " REDIS_SENTINEL " alone");
    }
    if (!is_set(uri->path) || !uri->path[1] || strchr(uri->path + 1, '/'))
        return dlock_fail(err, DLOCK_EINVAL,
                          REDIS_SENTINEL " needs the name of the master: " REDIS_SENTINEL "://host,host,host/mymaster");
    if (is_set(user) && !password)
        return dlock_fail(err, DLOCK_EINVAL, "the URI has sentinel_user, and no sentinel_password");
    address->master = uri->path + 1;
    address->sentinel_user = is_set(user) ? user : NULL;
    address->sentinel_password = is_set(password) ? password : NULL;
    if (address->sentinel_user) address->sentinel_password = password;
    return 0;
}

int redis_address(const struct dlock_uri *uri, struct redis_address *address, struct dlock_error *err) {
    const char *db = dlock_uri_get(uri, "db"), *fences = dlock_uri_get(uri, "fences");
    memset(address, 0, sizeof *address);
    address->uri = uri;
    if (dlock_check_slashes(uri, err)) return DLOCK_EINVAL;
    if (fences && read_fences(fences, &address->fences_ms, err)) return DLOCK_EINVAL;
    /* Before Redis 6 there are no users. A user without a password is one that needs none. */
    if (is_set(uri->user)) address->user = uri->user;
    if (is_set(uri->password) || address->user) address->password = uri->password ? uri->password : "";
    int rc = read_sentinel(uri, address, err);
    if (rc) return rc;
    if (redis_scheme_ends(uri, "+unix")) {
        if ((rc = read_socket(uri, address, err)) != 0) return rc;
    } else if (redis_scheme_ends(uri, "+cluster")) {
        if (db || (is_set(uri->path) && strcmp(uri->path, "/") != 0))
            return dlock_fail(err, DLOCK_EINVAL, "a cluster has one database: leave the path and db= out of the URI");
    } else if (!address->master && is_set(uri->path) && strcmp(uri->path, "/") != 0) {
        if (db) return dlock_fail(err, DLOCK_EINVAL, "the URI names a database twice, as its path and as db=");
        db = uri->path + 1;
    }
    return db ? read_db(db, &address->db, err) : 0;
}

int redis_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    struct redis_address address;
    int rc = redis_address(uri, &address, err);
    return rc ? rc : dlock_stream_accepts(uri, err);
}
