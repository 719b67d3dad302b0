/* Which backend serves a scheme: the built-in table, dlock_register, then modules; where modules are looked for, how
 * one is loaded, and what every backend must fulfil. */
#ifndef DLOCK_CORE_PLUGIN_PLUGIN_H
#define DLOCK_CORE_PLUGIN_PLUGIN_H

#include <dlock/backend.h>

#include <limits.h>

/* Longest name of a backend, and longest scheme, in bytes. */
#define DLOCK__WORD_MAX 64

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

/* ---- module.c, validate.c ---- */

/* Checks a backend and copies as much of it as it has into *copy, the rest zero. `name` is what it must be called
 * (NULL: any valid name), `where` says in `err` which backend is meant. Errors: EABI (abi, size, name), EINVAL (what it
 * lacks or contradicts itself in). */
int dlock__backend_check(const struct dlock_backend *backend, const char *name, const char *where,
                         struct dlock_backend *copy, struct dlock_error *err);

/* Whether a checked backend has `scheme` among its schemes. */
bool dlock__backend_serves(const struct dlock_backend *backend, const char *scheme);

/* The folder of libdlock.so, or of the program where that is linked in statically. */
bool dlock__own_folder(char folder[PATH_MAX]);

/* The folders in which modules are looked for, best first, NULL-terminated; give them back with free(). NULL: no
 * memory. */
char **dlock__module_folders(void);

struct dlock__module_file {
    char path[PATH_MAX];
    char name[DLOCK__WORD_MAX + 1]; /* of the backend; what fits of it when it is not a valid one */
};

/* Follows links from `path` to the real file, which says what the backend is called. Where that fails, *file gets what
 * `path` itself says. Errors: ENOBACKEND (no such file), EABI (a broken link, or not a module's name). */
int dlock__module_identify(const char *path, struct dlock__module_file *file, struct dlock_error *err);

/* Loads an identified module, for good. Error: EABI (dlopen's text, or the missing symbol). */
int dlock__module_open(const struct dlock__module_file *file, const struct dlock_backend **backend,
                       struct dlock_error *err);

#endif
