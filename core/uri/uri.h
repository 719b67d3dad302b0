/* Connection strings: split, decoded, and the keys that the core itself understands taken out. */
#ifndef DLOCK_CORE_URI_URI_H
#define DLOCK_CORE_URI_URI_H

#include <dlock/backend.h>

/* Longest connection string, in bytes. */
#define DLOCK__URI_MAX 8191

struct dlock__uri {
    struct dlock_uri parts;    /* hosts carry no address yet; common keys are stripped */
    int64_t lease_ms;          /* default 10,000 */
    int64_t timeout_ms;        /* one operation; default 3,000 */
    int64_t linger_ms;         /* default 0: off */
    int64_t quarantine_ms;     /* -1: not given; 0: off */
    uint32_t connections;      /* default 4 */
    int guardian;              /* -1: not given; 0: off; 1: on */
    const char *prefix;        /* default "" */
    const char *password_file; /* NULL: none */
    uint32_t common_seen;      /* bits of dlock__uri_common_keys: which were given */
};

/* Parses `scheme:[//[[user][:password]@][hosts]][path][?key=value&…]` into *uri; free it with
 * dlock__uri_free(). Never names a password or a query value in `err`. Errors: EINVAL (names the part), ENOMEM.
 *
 * What the grammar leaves open:
 *   - The authority ends at the first '/' or '?'; the last '@' in it ends the userinfo, so that an '@' in a password
 * may stand as it is. A '/' or '?' in a password must be encoded: an '@' after the end of an authority that has none is
 *     taken for that mistake and refused, rather than sent to a server as its path.
 *   - Parts are decoded once, after splitting; '+' is itself. %00, a '%' without two hex digits, control characters
 *     that are not encoded, and '#' (there are no fragments) are EINVAL. The decoded parts may hold control characters,
 *     except hosts, keys and `prefix`.
 *   - An empty user, password or path is absent. Hosts may all be absent, but none of a list may be empty.
 *   - A port stands behind a host and is a decimal number from 1 to 65535. IPv6 addresses stand in brackets, with a
 *     zone as %25zone.
 *   - `password_file` is an absolute path, and excludes a password in the URI and a key `password`.
 *   - Keys consist of letters, digits, '_', '.' and '-'. Nothing between two '&' is nothing; a key without '=' has the
 *     value "". */
int dlock__uri_parse(const char *text, struct dlock__uri **uri, struct dlock_error *err);

/* EINVAL, naming the key, when the URI has one that the backend does not take, or has one twice that may stand once. */
int dlock__uri_check_keys(const struct dlock__uri *uri, const struct dlock_backend *backend, struct dlock_error *err);

/* Whether a URI whose scheme nobody serves is but a host and its port: then `err` says, with EINVAL, what to write. */
bool dlock__uri_is_address(const struct dlock_uri *uri, struct dlock_error *err);

void dlock__uri_free(struct dlock__uri *uri); /* NULL is allowed */

/* ---- uri_keys.c: the keys that every backend has, because the core itself understands them ---- */

/* Their names, NULL-terminated. At most 32. */
extern const char *const dlock__uri_common_keys[];

/* Checks a decoded value and stores it; `value` lives as long as `uri`. Never quotes it. *seen has a bit for each key
 * that was set. 1: the key is none of these. EINVAL. */
int dlock__uri_common_set(struct dlock__uri *uri, const char *key, const char *value, uint32_t *seen,
                          struct dlock_error *err);

/* ---- password.c: passwords that stand in a file of their own ---- */

/* Longest password that a file may have, in bytes; access tokens of cloud services have a few thousand. */
#define DLOCK__PASSWORD_MAX 8191

/* Reads the file's whole content, but for one newline at its end, into `out`, which the caller wipes. Never waits for a
 * writer. EAUTH, naming the file and what is wrong with it, never anything that stands in it. */
int dlock__password_read(const char *path, char out[DLOCK__PASSWORD_MAX + 1], struct dlock_error *err);

/* Tells `each` whether other users of this host may read or replace the file. */
void dlock__password_check(const char *path, dlock_each_finding each, void *arg);

#endif
