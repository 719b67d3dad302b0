/* The URI keys that every backend has, because the core itself understands them. */
#ifndef DLOCK_CORE_URI_URI_KEYS_H
#define DLOCK_CORE_URI_URI_KEYS_H

#include "uri/uri.h"

/* Their names, NULL-terminated. At most 32. */
extern const char *const dlock__uri_common_keys[];

/* The place of a key in that list, or -1. */
int dlock__uri_common_key(const char *key);

/* Checks a decoded value and stores it; `value` lives as long as `uri`. Never quotes it. EINVAL, ENOTSUP. */
int dlock__uri_common_set(struct dlock__uri *uri, int which, const char *value, struct dlock_error *err);

#endif
