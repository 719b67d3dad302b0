/* Which backend serves a scheme: the built-in table, backends that were registered with dlock_register, then modules.
 * Where modules are looked for, how a module is loaded, and which rules every backend must fulfil. */
#ifndef DLOCK_CORE_PLUGIN_PLUGIN_H
#define DLOCK_CORE_PLUGIN_PLUGIN_H

#include "base/text.h"

#include <dlock/backend.h>

#include <limits.h>

/* A backend as the core uses it. Lives as long as the process. */
struct dlock__module {
    struct dlock_backend ops; /* a checked copy: min(size, sizeof) bytes, the rest zero */
    struct dlock_backend_info info;
};

/* Finds the backend of a lower-case scheme, and loads its module the first time. A failure is not remembered, so that a
 * module that is installed later works. Any thread. Takes no lock, so it works in a forked child, too. Errors:
 * ENOBACKEND (says where it looked), EABI (says what does not fit: abi, name, missing symbol, dlopen's text), EINVAL
 * (missing operation, scheme not served), ENOMEM. */
int dlock__registry_find(const char *scheme, const struct dlock__module **module, struct dlock_error *err);

/* Replaces *module by the backend's variant for this URI, if the backend has one for it; a variant is checked like any
 * other backend. Errors: EABI, EINVAL, ENOMEM. */
int dlock__registry_variant(const struct dlock__module **module, const struct dlock_uri *uri, struct dlock_error *err);

/* The built-in backends, NULL-terminated: a table that CMake generates from DLOCK_STATIC_BACKENDS, empty by default. */
extern const struct dlock_backend *const dlock__builtin_backends[];

/* ---- module.c, validate.c ---- */

/* Checks a backend and copies it into *copy; members that an older struct does not have become zero. `name` is the name
 * that it must have (NULL: any valid name); `where` names the backend in `err`. Errors: EABI (abi, size, name), EINVAL
 * (a missing operation, or contradictory capabilities). */
int dlock__backend_check(const struct dlock_backend *backend, const char *name, const char *where,
                         struct dlock_backend *copy, struct dlock_error *err);

/* True if a checked backend lists `scheme` among its schemes. */
bool dlock__backend_serves(const struct dlock_backend *backend, const char *scheme);

/* Stores the folder of libdlock.so, or of the program if the library is linked into it statically. False if it cannot
 * be found out. */
bool dlock__own_folder(char folder[PATH_MAX]);

/* The folders in which modules are looked for, best first, NULL-terminated; release them with one free(). NULL if out
 * of memory. */
char **dlock__module_folders(void);

struct dlock__module_file {
    char path[PATH_MAX];
    char name[DLOCK__WORD_MAX + 1]; /* of the backend; of a name that is not valid, as much as fits */
};

/* Resolves symbolic links of `path`; the real file's name is the backend's name. On failure *file describes `path`
 * itself. Errors: ENOBACKEND (no such file), EABI (a broken link, or a name that is not a module's). */
int dlock__module_identify(const char *path, struct dlock__module_file *file, struct dlock_error *err);

/* Loads an identified module, which stays loaded. Errors: EABI (dlopen's text, or the missing symbol), ENOMEM (no
 * descriptor or memory for it). */
int dlock__module_open(const struct dlock__module_file *file, const struct dlock_backend **backend,
                       struct dlock_error *err);

#endif
