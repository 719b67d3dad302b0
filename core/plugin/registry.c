/* The backends of this process, in a list that only grows. The list has no lock, so that a fork at any moment leaves
 * the child a whole one; the loader has (base/forking.h). */
#include "base/text.h"
#include "plugin/plugin.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdlib.h>

enum origin {
    LINKED, /* built in, or registered */
    LOADED,
    BROKEN,  /* a module that could not be loaded, kept because what dlock_backends() passes to its callback stays
              * valid */
    VARIANT, /* a backend's variant for some URIs */
    BOUND    /* no backend: an entry that says that `module` serves the scheme in `text` */
};

struct entry {
    enum origin origin;
    struct dlock__module own;
    const struct dlock__module *module; /* &own; for BOUND, another entry's */
    const struct dlock_backend *source; /* LINKED, LOADED, VARIANT: the struct that `own` is a copy of */
    struct entry *_Atomic next;
    size_t text_size;
    char text[]; /* strings that the entry owns */
};

static struct entry *_Atomic entries;

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static bool clash(const struct dlock_backend *a, const struct dlock_backend *b) {
    for (const char *const *scheme = a->schemes; *scheme; scheme++)
        if (dlock__backend_serves(b, *scheme)) return true;
    return strcmp(a->name, b->name) == 0;
}

/* True if one of the two entries makes the other superfluous. */
static bool same(const struct entry *a, const struct entry *b) {
    if (a->origin != b->origin) return false;
    if (a->origin == LINKED) return clash(&a->own.ops, &b->own.ops);
    return a->source == b->source && a->text_size == b->text_size && memcmp(a->text, b->text, a->text_size) == 0;
}

static struct entry *entry_new(enum origin origin, size_t text_size) {
    struct entry *entry = calloc(1, sizeof *entry + text_size);
    if (!entry) return NULL;
    entry->origin = origin;
    entry->module = &entry->own;
    entry->text_size = text_size;
    return entry;
}

/* Appends `fresh` to the list. False if an equivalent entry is there already; `fresh` is then freed. *entry is the
 * entry in the list. */
static bool append(struct entry *fresh, const struct entry **entry) {
    struct entry *_Atomic *slot = &entries;
    for (;;) {
        struct entry *there = NULL;
        bool added = atomic_compare_exchange_strong(slot, &there, fresh);
        *entry = added ? fresh : there;
        if (added) return true;
        if (same(there, fresh)) {
            free(fresh);
            return false;
        }
        slot = &there->next;
    }
}

/* The next entry of this origin behind `entry`, or the first one if `entry` is NULL. NULL at the end. */
static const struct entry *next_of(enum origin origin, const struct entry *entry) {
    do entry = atomic_load(entry ? &entry->next : &entries);
    while (entry && entry->origin != origin);
    return entry;
}

static int no_memory(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a backend");
}

/* Checks `source` and appends it to the list. Returns 0, 1 if an equivalent entry is there already (*out), or an error.
 * `name` is the name that it must have (NULL: any), `path` its module's file (NULL: none). */
static int adopt(enum origin origin, const struct dlock_backend *source, const char *name, const char *path,
                 const struct entry **out, struct dlock_error *err) {
    struct entry *entry = entry_new(origin, path ? strlen(path) + 1 : 0);
    if (!entry) return no_memory(err);
    struct dlock_backend *ops = &entry->own.ops;
    int rc = dlock__backend_check(source, name, path ? path : "a backend in this program", ops, err);
    if (rc != DLOCK_OK) {
        free(entry);
        return rc;
    }
    if (path) memcpy(entry->text, path, strlen(path) + 1);
    entry->source = source;
    entry->own.info = (struct dlock_backend_info){.name = ops->name,
                                                  .schemes = ops->schemes,
                                                  .caps = ops->caps,
                                                  .path = path ? entry->text : NULL,
                                                  .schema = ops->schema};
    return append(entry, out) ? DLOCK_OK : 1;
}

static int adopt_builtin(struct dlock_error *err) {
    const struct entry *entry;
    int rc = DLOCK_OK;
    for (size_t i = 0; rc >= 0 && dlock__builtin_backends[i]; i++)
        rc = adopt(LINKED, dlock__builtin_backends[i], NULL, NULL, &entry, err);
    return rc < 0 ? rc : DLOCK_OK;
}

static int load(const struct dlock__module_file *file, const struct entry **out, struct dlock_error *err) {
    const struct dlock_backend *source = NULL;
    int rc = dlock__module_open(file, &source, err);
    if (rc == DLOCK_OK) rc = adopt(LOADED, source, file->name, file->path, out, err);
    return rc < 0 ? rc : DLOCK_OK;
}

/* ---- files on the disk ------------------------------------------------------------------------------------------- */

static int is_module(const struct dirent *entry) {
    return fnmatch("dlock-?*.so", entry->d_name, 0) == 0;
}

/* The module files found so far; `err` is set for a file that cannot be a module, which is known before it is
 * loaded. */
struct findings {
    struct finding {
        struct dlock__module_file file;
        struct dlock_error err;
    } * list;
    size_t n;
};

/* True for another path to a file that was found, and for a module hidden by an earlier one of the same name. */
static bool is_hidden(const struct findings *findings, const struct dlock__module_file *file) {
    for (size_t i = 0; i < findings->n; i++)
        if (strcmp(findings->list[i].file.name, file->name) == 0 ||
            strcmp(findings->list[i].file.path, file->path) == 0)
            return true;
    for (const struct entry *entry = NULL; (entry = next_of(LINKED, entry));)
        if (strcmp(entry->own.info.name, file->name) == 0) return true;
    return false;
}

static int add_finding(struct findings *findings, const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return DLOCK_OK;
    struct finding *list = realloc(findings->list, (findings->n + 1) * sizeof *list);
    if (!list) return DLOCK_ENOMEM;
    findings->list = list;
    struct finding *fresh = &list[findings->n];
    fresh->err.code = DLOCK_OK;
    int rc = dlock__module_identify(path, &fresh->file, &fresh->err);
    if (rc != DLOCK_ENOBACKEND && !is_hidden(findings, &fresh->file)) findings->n++;
    return DLOCK_OK;
}

static int find_all_in(const char *folder, struct findings *findings) {
    struct dirent **names;
    int n = scandir(folder, &names, is_module, alphasort), rc = DLOCK_OK;
    if (n < 0) return errno == ENOMEM ? DLOCK_ENOMEM : DLOCK_OK;
    for (int i = 0; i < n; i++) {
        if (rc == DLOCK_OK) rc = add_finding(findings, folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int find_all(struct findings *findings) {
    char **folders = dlock__module_folders();
    int rc = folders ? DLOCK_OK : DLOCK_ENOMEM;
    for (char **folder = folders; rc == DLOCK_OK && *folder; folder++) rc = find_all_in(*folder, findings);
    free(folders);
    return rc;
}

/* Schemes to name in a message. */
struct schemes {
    char text[64][DLOCK__WORD_MAX + 1];
    const char *list[65];
    size_t n;
};

static void add_scheme(struct schemes *schemes, const char *scheme, size_t length) {
    char *text = schemes->text[schemes->n];
    if (schemes->n == sizeof schemes->text / sizeof *schemes->text || length > DLOCK__WORD_MAX) return;
    snprintf(text, sizeof *schemes->text, "%.*s", (int)length, scheme);
    for (char *p = text; *p; p++)
        if (*p == '_') *p = '+';
    for (size_t i = 0; i < schemes->n; i++)
        if (strcmp(schemes->text[i], text) == 0) return;
    schemes->list[schemes->n++] = text;
}

/* Adds the scheme after which each module, or link to one, is named: more is not known before it is loaded. */
static void add_schemes_of(const char *folder, struct schemes *schemes) {
    struct dirent **names;
    int n = scandir(folder, &names, is_module, alphasort);
    if (n < 0) return;
    for (int i = 0; i < n; i++) {
        add_scheme(schemes, names[i]->d_name + strlen("dlock-"), strlen(names[i]->d_name) - strlen("dlock-.so"));
        free(names[i]);
    }
    free(names);
}

/* Writes a hint with the schemes that could have been meant: the similar one, also to the part before the '+', or all of
 * them. */
static void name_others(const char *scheme, char *const *folders, char *out, size_t size) {
    struct schemes schemes = {.n = 0};
    char stem[DLOCK__WORD_MAX + 1];
    for (const struct entry *entry = NULL; (entry = next_of(LINKED, entry));)
        add_scheme(&schemes, entry->own.ops.schemes[0], strlen(entry->own.ops.schemes[0]));
    for (; *folders; folders++) add_schemes_of(*folders, &schemes);
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(scheme, "+"), scheme);
    if (dlock_guess(out, size, scheme, schemes.list) || dlock_guess(out, size, stem, schemes.list)) return;
    size_t used = (size_t)snprintf(out, size, "; there are: ");
    dlock__text_join(out + used, size - used, schemes.list);
}

/* ---- finding one ------------------------------------------------------------------------------------------------- */

static const struct entry *find(enum origin origin, const char *scheme) {
    const struct entry *entry = NULL;
    while ((entry = next_of(origin, entry)))
        if (origin == BOUND ? strcmp(entry->text, scheme) == 0 : dlock__backend_serves(&entry->own.ops, scheme)) break;
    return entry;
}

/* Identifies the first file in the folders for the first `length` characters of the scheme; stores the backend's name
 * made of these, with '_' for '-', '.' and '+', in `name`. */
static int find_named(const char *scheme, size_t length, char *const *folders, char name[DLOCK__WORD_MAX + 1],
                      struct dlock__module_file *file, struct dlock_error *err) {
    char path[PATH_MAX];
    snprintf(name, DLOCK__WORD_MAX + 1, "%.*s", (int)length, scheme);
    for (char *p = name; *p; p++)
        if (*p == '-' || *p == '.' || *p == '+') *p = '_';
    for (char *const *folder = folders; *folder; folder++) {
        struct dlock_error found;
        if (snprintf(path, sizeof path, "%s/dlock-%s.so", *folder, name) >= (int)sizeof path) continue;
        int rc = dlock__module_identify(path, file, &found);
        if (rc != DLOCK_OK && rc != DLOCK_ENOBACKEND && err) *err = found;
        if (rc != DLOCK_ENOBACKEND) return rc;
    }
    return DLOCK_ENOBACKEND;
}

/* Identifies the file for a scheme: the file named after it, else the one named after the part before its first '+'.
 * Errors: ENOBACKEND, EABI. */
static int find_file(const char *scheme, char *const *folders, struct dlock__module_file *file,
                     struct dlock_error *err) {
    char name[DLOCK__WORD_MAX + 1], looked[200], others[200];
    int rc = find_named(scheme, strlen(scheme), folders, name, file, err);
    if (rc == DLOCK_ENOBACKEND) rc = find_named(scheme, strcspn(scheme, "+"), folders, name, file, err);
    if (rc != DLOCK_ENOBACKEND) return rc;
    name_others(scheme, folders, others, sizeof others);
    if (!*folders)
        return dlock_fail(err, DLOCK_ENOBACKEND,
                          "no backend for the scheme \"%s\"%s (and there is no folder of modules)", scheme, others);
    dlock__text_join(looked, sizeof looked, (const char *const *)folders);
    return dlock_fail(
        err, DLOCK_ENOBACKEND,
        "no backend for the scheme \"%s\"%s (dlock-%s.so is not in %s; install it, or set DLOCK_PLUGIN_PATH to "
        "its folder)",
        scheme, others, name, looked);
}

static int bind_scheme(const char *scheme, const struct dlock__module *module, struct dlock_error *err) {
    const struct entry *bound;
    struct entry *entry = entry_new(BOUND, strlen(scheme) + 1);
    if (!entry) return no_memory(err);
    strcpy(entry->text, scheme);
    entry->module = module;
    append(entry, &bound);
    return DLOCK_OK;
}

/* Refuses a scheme that leads to a module by its name, but is none of the schemes that the module serves. */
static int not_served(const char *scheme, const char *const *schemes, struct dlock_error *err) {
    char guess[80], all[128] = "";
    if (!dlock_guess(guess, sizeof guess, scheme, schemes)) dlock__text_join(all, sizeof all, schemes);
    return dlock_fail(err, DLOCK_ENOBACKEND, "no backend for the scheme \"%s\"%s%s", scheme,
                      *guess ? guess : "; there are: ", all);
}

static int find_module(const char *scheme, const struct dlock__module **module, struct dlock_error *err) {
    struct dlock__module_file file;
    const struct entry *entry = NULL;
    char **folders = dlock__module_folders();
    if (!folders) return no_memory(err);
    int rc = find_file(scheme, folders, &file, err);
    free(folders);
    if (rc == DLOCK_OK) rc = load(&file, &entry, err);
    if (rc != DLOCK_OK) return rc;
    if (!dlock__backend_serves(&entry->own.ops, scheme)) return not_served(scheme, entry->own.ops.schemes, err);
    rc = bind_scheme(scheme, entry->module, err);
    if (rc == DLOCK_OK) *module = entry->module;
    return rc;
}

int dlock__registry_find(const char *scheme, const struct dlock__module **module, struct dlock_error *err) {
    if (!dlock__text_is_word(scheme, "+.-") || strlen(scheme) > DLOCK__WORD_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "a scheme consists of a-z, 0-9, '+', '.' and '-', at most %d",
                          DLOCK__WORD_MAX);
    int rc = adopt_builtin(err);
    if (rc != DLOCK_OK) return rc;
    const struct entry *entry = find(LINKED, scheme);
    if (!entry) entry = find(BOUND, scheme);
    if (!entry) return find_module(scheme, module, err);
    *module = entry->module;
    return DLOCK_OK;
}

int dlock__registry_variant(const struct dlock__module **module, const struct dlock_uri *uri, struct dlock_error *err) {
    const struct dlock__module *base = *module;
    const struct dlock_backend *source = base->ops.variant ? base->ops.variant(uri) : NULL;
    const struct entry *entry = NULL;
    if (!source) return DLOCK_OK;
    int rc = adopt(VARIANT, source, base->info.name, base->info.path, &entry, err);
    if (rc < 0) return rc;
    *module = entry->module;
    return DLOCK_OK;
}

/* ---- adding one -------------------------------------------------------------------------------------------------- */

int dlock_register(const struct dlock_backend *backend, struct dlock_error *err) {
    if (!backend) return dlock_fail(err, DLOCK_EINVAL, "the backend is NULL");
    const struct entry *entry = NULL;
    int rc = adopt_builtin(err);
    if (rc == DLOCK_OK) rc = adopt(LINKED, backend, NULL, NULL, &entry, err);
    if (rc == 1)
        rc = dlock_fail(err, DLOCK_EINVAL, "the name \"%s\" or one of its schemes is taken by the backend \"%s\"",
                        backend->name, entry->own.info.name);
    return rc;
}

/* ---- showing all ------------------------------------------------------------------------------------------------- */

/* Appends an entry with what dlock_backends() shows of a broken module. */
static int keep_broken(const struct finding *finding, const struct entry **out, struct dlock_error *err) {
    const struct dlock__module_file *file = &finding->file;
    const char *why = finding->err.message;
    struct entry *entry = entry_new(BROKEN, strlen(file->name) + strlen(file->path) + strlen(why) + 3);
    if (!entry) return no_memory(err);
    char *path = stpcpy(entry->text, file->name) + 1, *error = stpcpy(path, file->path) + 1;
    strcpy(error, why);
    entry->own.info = (struct dlock_backend_info){.name = entry->text, .path = path, .error = error};
    append(entry, out);
    return DLOCK_OK;
}

/* Passes one module to `each`, after loading it. Returns 1 if `each` ended the walk. */
static int show(struct finding *finding, dlock_each_backend each, void *arg, struct dlock_error *err) {
    const struct entry *entry = NULL;
    int rc = finding->err.code;
    if (rc == DLOCK_OK) rc = load(&finding->file, &entry, &finding->err);
    if (rc == DLOCK_ENOMEM) return no_memory(err);
    if (rc != DLOCK_OK) rc = keep_broken(finding, &entry, err);
    if (rc != DLOCK_OK) return rc;
    return each(&entry->own.info, arg) != 0;
}

int dlock_backends(dlock_each_backend each, void *arg, struct dlock_error *err) {
    struct findings findings = {0};
    int rc = adopt_builtin(err);
    if (rc != DLOCK_OK) return rc;
    rc = find_all(&findings);
    if (rc != DLOCK_OK) no_memory(err);
    for (const struct entry *entry = NULL; rc == DLOCK_OK && (entry = next_of(LINKED, entry));)
        rc = each(&entry->own.info, arg) != 0;
    for (size_t i = 0; rc == DLOCK_OK && i < findings.n; i++) rc = show(&findings.list[i], each, arg, err);
    free(findings.list);
    return rc < 0 ? rc : DLOCK_OK;
}
