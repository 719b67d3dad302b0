/* Connection strings: split, decoded, and the keys that the core itself understands taken out. */
#ifndef DLOCK_CORE_URI_H
#define DLOCK_CORE_URI_H

#include <dlock/backend.h>

struct dlock__uri {
    struct dlock_uri parts; /* hosts carry no address yet; common keys are stripped */
    int64_t lease_ms;       /* default 10,000 */
    int64_t timeout_ms;     /* one operation; default 3,000 */
    int64_t quarantine_ms;  /* -1: not given */
    uint32_t connections;   /* default 4 */
    const char *prefix;     /* default "" */
};

/* Parses `scheme:[//[[user][:password]@][hosts]][path][?key=value&…]` (DESIGN §7) into *uri; free it with
 * dlock__uri_free(). Never names a password or a query value in `err`. Errors: EINVAL (names the part), ENOTSUP
 * (linger, guardian), ENOMEM. */
int dlock__uri_parse(const char *text, struct dlock__uri **uri, struct dlock_error *err);

/* EINVAL, naming the key, when the URI has one that the backend does not take, or has one twice that may stand once. */
int dlock__uri_check_keys(const struct dlock__uri *uri, const struct dlock_backend *backend, struct dlock_error *err);

void dlock__uri_free(struct dlock__uri *uri); /* NULL is allowed */

#endif
