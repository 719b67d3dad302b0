/* The URI. */
#include "maria.h"

bool maria_says_session(const struct dlock_uri *uri) {
    const char *mode = dlock_uri_get(uri, "mode");
    return mode && strcmp(mode, "session") == 0;
}

bool maria_says_tls(const struct dlock_uri *uri) {
    return strstr(uri->scheme, "+tls");
}

bool maria_says_insecure(const struct dlock_uri *uri) {
    const char *insecure = dlock_uri_get(uri, "insecure");
    return insecure && strcmp(insecure, "on") == 0;
}

static int check_file(const struct dlock_uri *uri, const char *key, struct dlock_error *err) {
    const char *path = dlock_uri_get(uri, key);
    if (!path || *path == '/') return 0;
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" must be the absolute path of a file", key);
}

static int check_tls(const struct dlock_uri *uri, struct dlock_error *err) {
    static const char *const keys[] = {"ca", "cert", "key", "sni", "insecure"};
    const char *sni = dlock_uri_get(uri, "sni"), *insecure = dlock_uri_get(uri, "insecure");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!maria_says_tls(uri) && dlock_uri_get(uri, keys[i]))
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" belongs to TLS: write mysql+tls://", keys[i]);
    if (check_file(uri, "ca", err) || check_file(uri, "cert", err) || check_file(uri, "key", err)) return DLOCK_EINVAL;
    if (dlock_uri_get(uri, "key") && !dlock_uri_get(uri, "cert"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"key\" belongs to a \"cert\", which is missing");
    if (sni && (!*sni || strlen(sni) > 253 || strpbrk(sni, "/@?#[] ")))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"sni\" must be the name in the server's certificate");
    if (insecure && strcmp(insecure, "on") != 0 && strcmp(insecure, "off") != 0)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"insecure\" must be on or off");
    if (maria_says_insecure(uri) && dlock_uri_get(uri, "ca"))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"ca\" has no effect with \"insecure\": leave one of them out");
    for (size_t i = 0; i < uri->n_hosts; i++)
        if (maria_says_tls(uri) && *uri->hosts[i].host == '/')
            return dlock_fail(err, DLOCK_EINVAL, "URI: TLS is for hosts, not for a socket of this machine");
    return 0;
}

static int check_mode(const struct dlock_uri *uri, struct dlock_error *err) {
    static const char *const words[] = {"rows", "session", NULL};
    const char *mode = dlock_uri_get(uri, "mode");
    char guess[80];
    if (!mode || strcmp(mode, "rows") == 0 || strcmp(mode, "session") == 0) return 0;
    dlock_guess(guess, sizeof guess, mode, words);
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"mode\" must be rows or session%s", guess);
}

int maria_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    int rc = dlock_check_slashes(uri, err);
    if (rc != 0) return rc;
    if (uri->n_hosts == 0)
        return dlock_fail(err, DLOCK_EINVAL, "URI: a host is missing: write %s://USER@HOST/DATABASE", uri->scheme);
    if (!uri->path || !uri->path[1])
        return dlock_fail(err, DLOCK_EINVAL, "URI: the database is missing: write %s://USER@HOST/DATABASE",
                          uri->scheme);
    if (!uri->user || !*uri->user)
        return dlock_fail(err, DLOCK_EINVAL, "URI: the user is missing: write %s://USER@HOST/DATABASE", uri->scheme);
    rc = check_tls(uri, err);
    return rc == 0 ? check_mode(uri, err) : rc;
}
