/* Which backend serves a scheme: built-in table, dlock_register, then modules. */
#ifndef DLOCK_CORE_PLUGIN_REGISTRY_H
#define DLOCK_CORE_PLUGIN_REGISTRY_H

#include <dlock/backend.h>

/* A backend as the core uses it. Never freed. */
struct dlock__module {
    struct dlock_backend ops; /* a checked copy: min(size, sizeof) bytes, the rest zero */
    struct dlock_backend_info info;
};

/* Finds (and loads, once) the backend of a lower-case scheme. A failure is not remembered, so that what is installed
 * later works. Any thread; holds no lock, so it works in a forked child too. Errors: ENOBACKEND (says where it looked),
 * EABI (says what does not fit: abi, name, missing symbol, dlopen's text), EINVAL (missing operation, scheme not
 * served), ENOMEM. */
int dlock__registry_find(const char *scheme, const struct dlock__module **module, struct dlock_error *err);

/* Puts the backend's variant for this URI into *module, where it has one; checked like any other. Errors: EABI, EINVAL,
 * ENOMEM. */
int dlock__registry_variant(const struct dlock__module **module, const struct dlock_uri *uri, struct dlock_error *err);

/* The table that CMake generates from DLOCK_STATIC_BACKENDS; NULL-terminated, empty by default. */
extern const struct dlock_backend *const dlock__builtin_backends[];

#endif
