/* Modules on disk. A module is never unloaded: its threads, and pointers into it, may be anywhere. */
#include "base/forking.h"
#include "base/text.h"
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <dlock/backend_socket.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "dlock-"
#define SUFFIX ".so"

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static bool is_in(const struct dl_phdr_info *object, const void *address) {
    const uintptr_t offset = (uintptr_t)address - object->dlpi_addr;
    for (size_t i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD &&
            offset - object->dlpi_phdr[i].p_vaddr < object->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

/* Stores the file's path in `folder` and ends the walk at the object that contains this code. The program is recognized
 * by its program headers, since some C libraries give it the name argv[0], which its caller chooses. */
static int find_own(struct dl_phdr_info *object, size_t size, void *folder) {
    (void)size;
    if (!is_in(object, dlock__builtin_backends)) return 0;
    const bool program = (uintptr_t)object->dlpi_phdr == getauxval(AT_PHDR);
    return realpath(program ? "/proc/self/exe" : object->dlpi_name, folder) ? 1 : -1;
}

bool dlock__own_folder(char folder[PATH_MAX]) {
    dlock__loading_begin();
    bool found = dl_iterate_phdr(find_own, folder) == 1;
    dlock__loading_end();
    if (!found) return false;
    *strrchr(folder, '/') = '\0'; /* realpath's answer is absolute */
    return true;
}

/* The folder of the library; of a library that is linked into a program, the folder where it was installed. The command
 * as one file has no such folder: the loader of a static program is no match for modules. */
static bool library_folder(char folder[PATH_MAX]) {
    if (DLOCK__SINGLE_FILE) return false;
#ifdef DLOCK__INSTALLED
    snprintf(folder, PATH_MAX, "%s", DLOCK__INSTALLED);
    return true;
#else
    return dlock__own_folder(folder);
#endif
}

char **dlock__module_folders(void) {
    char own[PATH_MAX], ours[2 * PATH_MAX + 64] = "";
    const char *path = secure_getenv("DLOCK_PLUGIN_PATH");
    if (!path) path = "";
    /* The modules of this series, then those of others, which may serve several. */
    if (library_folder(own)) snprintf(ours, sizeof ours, "%s/dlock/" DLOCK__SERIES ":%s/dlock", own, own);
    size_t bytes = strlen(path) + strlen(ours) + sizeof ":", n = 4, used = 0;
    for (const char *p = path; *p; p++) n += *p == ':';
    char **folders = calloc(1, n * sizeof *folders + bytes);
    if (!folders) return NULL;
    char *rest = (char *)(folders + n);
    snprintf(rest, bytes, "%s:%s", path, ours);
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (*folder) folders[used++] = folder;
    return folders;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Takes the backend's name out of `…/dlock-<name>.so` or `….so.1`. False if the path is not of that form, or the name
 * is not valid. */
static bool name_of(const char *path, char name[DLOCK__WORD_MAX + 1]) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    bool prefixed = strncmp(base, PREFIX, strlen(PREFIX)) == 0;
    if (prefixed) base += strlen(PREFIX);
    const char *end = strstr(base, SUFFIX);
    size_t length = end ? (size_t)(end - base) : strlen(base);
    bool whole = prefixed && end && (!end[strlen(SUFFIX)] || end[strlen(SUFFIX)] == '.') && length <= DLOCK__WORD_MAX;
    snprintf(name, DLOCK__WORD_MAX + 1, "%.*s", length < DLOCK__WORD_MAX ? (int)length : DLOCK__WORD_MAX, base);
    return whole && dlock__text_is_word(name, "_");
}

int dlock__module_identify(const char *path, struct dlock__module_file *file, struct dlock_error *err) {
    char real[PATH_MAX];
    struct stat there;
    snprintf(file->path, sizeof file->path, "%s", path);
    name_of(path, file->name);
    if (!realpath(path, real)) {
        int why = errno;
        if (lstat(path, &there) != 0) return dlock_fail(err, DLOCK_ENOBACKEND, "%.240s: no such file", path);
        return dlock_fail(err, DLOCK_EABI, "%.240s: the file cannot be reached: %s", path, strerror(why));
    }
    memcpy(file->path, real, strlen(real) + 1);
    if (stat(real, &there) == 0 && !S_ISREG(there.st_mode)) /* the loader would wait for a pipe's other end */
        return dlock_fail(err, DLOCK_EABI, "%.240s: a module is a regular file", real);
    if (name_of(real, file->name)) return DLOCK_OK;
    return dlock_fail(err, DLOCK_EABI,
                      "%.240s: a module's file must be called dlock-<name>.so, with a name of a-z, 0-9 and '_'", real);
}

static int open_module(const struct dlock__module_file *file, const struct dlock_backend **backend,
                       struct dlock_error *err) {
    char symbol[sizeof "dlock_backend_" + DLOCK__WORD_MAX];
    snprintf(symbol, sizeof symbol, "dlock_backend_%s", file->name);
    void *module = dlopen(file->path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        const char *why = dlerror();
        int lack = dlock_used_up(why);
        return dlock_fail(err, lack ? DLOCK_ENOMEM : DLOCK_EABI, "cannot load the module: %s%s", why,
                          dlock_advice(lack));
    }
    const struct dlock_backend *found = dlsym(module, symbol);
    if (!found) return dlock_fail(err, DLOCK_EABI, "%.240s: it has no symbol %s", file->path, symbol);
    *backend = found;
    return DLOCK_OK;
}

int dlock__module_open(const struct dlock__module_file *file, const struct dlock_backend **backend,
                       struct dlock_error *err) {
    dlock__loading_begin();
    int rc = open_module(file, backend, err);
    dlock__loading_end();
    return rc;
}
