/* Connection strings: splits and decodes them, and takes out the keys that the core itself understands. */
#ifndef DLOCK_CORE_URI_URI_H
#define DLOCK_CORE_URI_URI_H

#include <dlock/backend.h>

/* Longest connection string, in bytes. */
#define DLOCK__URI_MAX 8191

struct dlock__uri {
    struct dlock_uri parts;    /* its hosts have no address yet; without the common keys */
    int64_t lease_ms;          /* default 10,000 */
    int64_t timeout_ms;        /* for one operation; default 3,000 */
    int64_t linger_ms;         /* default 0: off */
    int64_t quarantine_ms;     /* -1: not given; 0: off */
    uint32_t connections;      /* default 4 */
    int guardian;              /* -1: not given; 0: off; 1: on */
    const char *prefix;        /* default "" */
    const char *label;         /* default "" */
    const char *password_file; /* NULL: none */
    uint32_t common_seen;      /* bits by the index in dlock__uri_common_keys: the keys that were given */
};

/* Parses `scheme:[//[[user][:password]@][hosts]][path][?key=value&…]` into *uri; free it with dlock__uri_free(). Never
 * names a password or a query value in `err`. Errors: EINVAL (names the part), ENOMEM.
 *
 * Details of the grammar:
 *   - The authority ends at the first '/' or '?'; the last '@' in it ends the userinfo, so that an '@' in a password
 *     need not be encoded. A '/' or '?' in a password must be encoded: an '@' behind an authority without one is taken
 *     for that mistake and refused, rather than sent to a server as its path.
 *   - Without an authority, or with an empty one, a path /…:…@… is refused, too: it is a user and a password behind too
 *     few or too many slashes.
 *   - Parts are decoded once, after splitting; '+' is not decoded. %00, a '%' without two hex digits, unencoded control
 *     characters, and '#' (there are no fragments) are EINVAL. Decoded parts may hold control characters, except hosts,
 *     keys and `prefix`.
 *   - An empty user, password or path counts as absent. All hosts may be absent, but no host of a list may be empty.
 *   - A port follows a host and is a decimal number from 1 to 65535. IPv6 addresses are written in brackets, with a
 *     zone as %25zone.
 *   - `password_file` is an absolute path, and excludes a password in the URI and the key `password`.
 *   - Keys consist of letters, digits, '_', '.' and '-'. "&&" counts as '&'; a key without '=' has the
 *     value "". */
int dlock__uri_parse(const char *text, struct dlock__uri **uri, struct dlock_error *err);

/* Refuses keys that the backend does not take, and repeated keys that may occur once. Error: EINVAL, naming the key. */
int dlock__uri_check_keys(const struct dlock__uri *uri, const struct dlock_backend *backend, struct dlock_error *err);

void dlock__uri_free(struct dlock__uri *uri); /* NULL is allowed */

/* Writes which server the URI is of, for messages: its hosts, or its path, or its scheme. May be cut short. */
void dlock__uri_where(const struct dlock__uri *uri, char *out, size_t size);

/* ---- hints.c: connection strings of other programs ---- */

/* `rc` is what an attempt to use the URI has returned. If it was refused and looks like a string for another program,
 * says in `err` what to write instead and returns EINVAL; else returns rc. */
int dlock__uri_hint(const char *text, int rc, struct dlock_error *err);

/* ---- uri_keys.c: the keys that every backend has, because the core itself understands them ---- */

/* The names of these keys, NULL-terminated. At most 32. */
extern const char *const dlock__uri_common_keys[];

/* Checks a decoded value and stores it; `value` must live as long as `uri`. Never quotes the value. *seen has a bit for
 * each key that was set. Returns 0, 1 if the key is none of the common ones, or EINVAL. */
int dlock__uri_common_set(struct dlock__uri *uri, const char *key, const char *value, uint32_t *seen,
                          struct dlock_error *err);

/* Checks a label, which the message calls `what`. Returns 0 or EINVAL. */
int dlock__label_check(const char *label, const char *what, struct dlock_error *err);

/* ---- password.c: passwords that are kept in a file ---- */

/* Longest password in a file, in bytes; access tokens of cloud services have a few thousand. */
#define DLOCK__PASSWORD_MAX 8191

/* Reads the file's whole content, except one newline at its end, into `out`, which the caller wipes. Never waits for a
 * writer. Errors: EAUTH, naming the file and what is wrong with it, never its content; ENOMEM, if no descriptor or
 * memory is left to read it. */
int dlock__password_read(const char *path, char out[DLOCK__PASSWORD_MAX + 1], struct dlock_error *err);

/* Reports to `each` whether other users of this host may read or replace the file. */
void dlock__password_check(const char *path, dlock_each_finding each, void *arg);

#endif
