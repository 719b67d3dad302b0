#include "unheard.h"

#include <dlock/backend.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { VARIANTS = 8, SYMBOL = 64 };

static const struct dlock_backend *sources[VARIANTS];
static struct dlock_backend counted[VARIANTS]; /* counting copies of `sources`; the first is the module's backend */
static size_t n_counted;
static dlock_batch *real_acquire; /* of the backend wrapped last: one is enough, as the process has one client */
static atomic_size_t count;

static bool unanswered(int result) {
    return result == DLOCK_EUNAVAILABLE || result == DLOCK_EPROTO;
}

static int acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    int rc = real_acquire(conn, claims, n, timeout_ms, err);
    for (size_t i = 0; i < n; i++)
        if (unanswered(rc) || (rc == 0 && unanswered(claims[i]->result))) atomic_fetch_add(&count, 1);
    return rc;
}

static const struct dlock_backend *variant(const struct dlock_uri *uri);

static const struct dlock_backend *count_in(const struct dlock_backend *source) {
    size_t i = 0;
    while (i < n_counted && sources[i] != source) i++;
    if (i == VARIANTS) return NULL;
    if (i == n_counted) {
        sources[n_counted] = source;
        counted[n_counted] = *source;
        counted[n_counted].acquire = acquire;
        if (source->variant) counted[n_counted].variant = variant;
        n_counted++;
    }
    real_acquire = source->acquire;
    return &counted[i];
}

static const struct dlock_backend *variant(const struct dlock_uri *uri) {
    const struct dlock_backend *source = sources[0]->variant(uri);
    return source ? count_in(source) : NULL;
}

bool unheard_begin(const char *module) {
    char symbol[SYMBOL];
    struct dlock_error err;
    const char *word = strrchr(module, '/');
    word = word ? word + 1 : module;
    if (strncmp(word, "dlock-", 6) == 0) word += 6;
    snprintf(symbol, sizeof symbol, "dlock_backend_%.*s", (int)strcspn(word, "."), word);
    void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    const struct dlock_backend *source = library ? dlsym(library, symbol) : NULL;
    if (!source) {
        fprintf(stderr, "%s: %s\n", module, dlerror());
        return false;
    }
    if (dlock_register(count_in(source), &err) == 0) return true;
    fprintf(stderr, "%s: %s\n", module, err.message);
    return false;
}

size_t unheard_count(void) {
    return atomic_load(&count);
}
