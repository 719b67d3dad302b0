/* The URI. */
#include "maria.h"

bool maria_says_session(const struct dlock_uri *uri) {
    const char *mode = dlock_uri_get(uri, "mode");
    return mode && strcmp(mode, "session") == 0;
}

bool maria_says_tls(const struct dlock_uri *uri) {
    return strstr(uri->scheme, "+tls");
}

static int check_tls(const struct dlock_uri *uri, struct dlock_error *err) {
    const char *sni = dlock_uri_get(uri, "sni");
    if (!maria_says_tls(uri)) return dlock_refuse_tls(uri, "mysql+tls", err);
    int rc = dlock_check_tls(uri, err);
    if (rc != 0) return rc;
    if (sni && strpbrk(sni, "/@?#[] "))
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"sni\" must be the name in the server's certificate");
    for (size_t i = 0; i < uri->n_hosts; i++)
        if (*uri->hosts[i].host == '/')
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
