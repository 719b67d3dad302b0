/* The URI: which keys are dlock's, and which parameters libpq gets. */
#include "postgresql.h"

#include <stdlib.h>

/* The greatest number of parameters that libpq gets besides the URI's own keys: user, password, dbname, the defaults,
 * host, hostaddr, port, one more, and the NULL at the end. */
#define MORE 16

/* Parameters that libpq gets unless the URI sets them, whatever the environment says: they keep a client from hanging,
 * or from using a read-only server. */
static const struct {
    const char *key, *value;
} defaults[] = {
    {"fallback_application_name", "dlock"},
    {"target_session_attrs", "read-write"},
    {"keepalives_idle", "5"},
    {"keepalives_interval", "2"},
    {"keepalives_count", "3"},
    {"tcp_user_timeout", "10000"},
};

static bool is_ours(const char *key) {
    return strcmp(key, "listen") == 0 || strcmp(key, "schema") == 0 || strcmp(key, "mode") == 0;
}

static int read_listen(struct pg *pg, const char *value, struct dlock_error *err) {
    if (!value)
        pg->listen = PG_LISTEN_CHECKED;
    else if (strcmp(value, "on") == 0)
        pg->listen = PG_LISTEN_ON;
    else if (strcmp(value, "off") == 0)
        pg->listen = PG_LISTEN_OFF;
    else {
        static const char *const words[] = {"on", "off", NULL};
        char guess[80];
        dlock_guess(guess, sizeof guess, value, words);
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"listen\" must be on or off%s", guess);
    }
    return 0;
}

bool pg_says_session(const struct dlock_uri *uri) {
    const char *mode = dlock_uri_get(uri, "mode");
    return mode && strcmp(mode, "session") == 0;
}

static int read_mode(struct pg *pg, const struct dlock_uri *uri, struct dlock_error *err) {
    const char *mode = dlock_uri_get(uri, "mode");
    pg->sessions = pg_says_session(uri);
    if (mode && !pg->sessions && strcmp(mode, "rows") != 0) {
        static const char *const words[] = {"rows", "session", NULL};
        char guess[80];
        dlock_guess(guess, sizeof guess, mode, words);
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"mode\" must be rows or session%s", guess);
    }
    if (pg->sessions && pg->listen == PG_LISTEN_OFF)
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "URI: mode=session needs sessions of its own, which a pooler that needs listen=off has not");
    return 0;
}

static int read_schema(struct pg *pg, const char *value, struct dlock_error *err) {
    if (!value) value = "dlock";
    size_t length = strlen(value);
    if (length == 0 || length > PG_SCHEMA_MAX || (*value >= '0' && *value <= '9') ||
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != length)
        return dlock_fail(err, DLOCK_EINVAL,
                          "URI: \"schema\" must be 1 to %d letters, digits and '_', and not begin with a digit",
                          PG_SCHEMA_MAX);
    snprintf(pg->schema, sizeof pg->schema, "\"%s\"", value);
    return 0;
}

/* Reports an unknown key, with a guess among dlock's keys first and libpq's next. */
static int unknown_key(const char *key, const PQconninfoOption *known, struct dlock_error *err) {
    static const char *const own[] = {"listen", "schema", "mode",
#define X(word) #word,
                                      DLOCK_URI_KEYS(X)
#undef X
                                          NULL};
    char guess[80] = "";
    const char *words[128];
    size_t n = 0;
    for (; known->keyword && n < sizeof words / sizeof *words - 1; known++) words[n++] = known->keyword;
    words[n] = NULL;
    if (!dlock_guess(guess, sizeof guess, key, own)) dlock_guess(guess, sizeof guess, key, words);
    return dlock_fail(err, DLOCK_EINVAL, "URI: neither dlock nor libpq knows a key \"%s\"%s", key, guess);
}

static int check_keys(const struct dlock_uri *uri, struct dlock_error *err) {
    PQconninfoOption *known = PQconndefaults();
    int rc = 0, error = known ? 0 : dlock_used_up("");
    if (error)
        return dlock_fail(err, DLOCK_ENOMEM, "libpq cannot read its settings: %s%s", strerror(error),
                          dlock_advice(error));
    if (!known) return dlock_fail(err, DLOCK_EINVAL, "libpq cannot make sense of its environment (PGSERVICE?)");
    for (size_t i = 0; i < uri->n_params && rc == 0; i++) {
        const char *key = uri->params[i].key;
        const PQconninfoOption *option = known;
        if (is_ours(key)) continue;
        while (option->keyword && strcmp(option->keyword, key) != 0) option++;
        if (!option->keyword) rc = unknown_key(key, known, err);
    }
    PQconninfoFree(known);
    return rc;
}

/* Refuses "hostaddr" with a host in front: the core has looked up that host's address, which would compete with
 * "hostaddr". */
static int check_host(const struct dlock_uri *uri, struct dlock_error *err) {
    if (!uri->n_hosts || !dlock_uri_get(uri, "hostaddr") || dlock_uri_get(uri, "host")) return 0;
    return dlock_fail(err, DLOCK_EINVAL,
                      "URI: with \"hostaddr\" the host must be a key, too, not stand before the path: write "
                      "postgresql:///db?host=NAME&hostaddr=ADDRESS&port=5432");
}

int pg_address(struct pg *pg, const struct dlock_uri *uri, struct dlock_error *err) {
    int rc = dlock_check_slashes(uri, err);
    if (rc == 0) rc = check_host(uri, err);
    if (rc == 0) rc = read_listen(pg, dlock_uri_get(uri, "listen"), err);
    if (rc == 0) rc = read_mode(pg, uri, err);
    if (rc == 0) rc = read_schema(pg, dlock_uri_get(uri, "schema"), err);
    return rc == 0 ? check_keys(uri, err) : rc;
}

static void add(struct pg_parameters *parameters, const char *key, const char *value) {
    parameters->keys[parameters->n] = key;
    parameters->values[parameters->n++] = value;
}

static void add_host(struct pg_parameters *parameters, const struct dlock_host *host) {
    if (*host->host) add(parameters, "host", host->host);
    if (*host->address && *host->host != '/') add(parameters, "hostaddr", host->address);
    if (!host->port) return;
    snprintf(parameters->port, sizeof parameters->port, "%d", host->port);
    add(parameters, "port", parameters->port);
}

int pg_parameters(const struct dlock_uri *uri, const struct dlock_host *host, struct pg_parameters *parameters,
                  struct dlock_error *err) {
    const char *database = uri->path ? uri->path + 1 : NULL;
    size_t most = uri->n_params + MORE;
    parameters->n = 0;
    parameters->keys = calloc(most, sizeof *parameters->keys);
    parameters->values = calloc(most, sizeof *parameters->values);
    if (!parameters->keys || !parameters->values) return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    if (uri->user) add(parameters, "user", uri->user);
    if (uri->password) add(parameters, "password", uri->password);
    if (database && *database) add(parameters, "dbname", database);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!dlock_uri_get(uri, defaults[i].key)) add(parameters, defaults[i].key, defaults[i].value);
    for (size_t i = 0; i < uri->n_params; i++)
        if (!is_ours(uri->params[i].key)) add(parameters, uri->params[i].key, uri->params[i].value);
    if (host) add_host(parameters, host); /* last: of a key given twice, libpq uses the last value */
    return 0;
}

void pg_parameters_free(struct pg_parameters *parameters) {
    free(parameters->keys);
    free(parameters->values);
}
