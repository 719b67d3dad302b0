#include "environment.h"

#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URI "DLOCK_URI="

static bool is_ours(const char *entry) {
    static const char *const names[] = {URI, "DLOCK_NAME=", "DLOCK_FENCE=", "DLOCK_TOKEN="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0) return true;
    return false;
}

int environment_uri(struct environment *env, const char *passed, const char *named) {
    const char *inherited = getenv("DLOCK_URI"), *whole = passed ? passed : inherited;
    struct dlock_error err = {0, ""};
    if (!passed && (!inherited || !*inherited) && named) whole = named;
    if (!whole) return STATUS_OK;
    size_t size = strlen(whole) + 1;
    env->uri = malloc(strlen(URI) + size);
    if (!env->uri) return no_memory();
    char *value = stpcpy(env->uri, URI);
    memcpy(value, whole, size);
    if (passed || !*whole || dlock_uri_without_secrets(whole, value, size, &err) == 0) return STATUS_OK;
    /* The lock's server came from -b, and the inherited DLOCK_URI is not a URI. A password in it cannot be found, so
     * the variable cannot be passed on; without a DLOCK_URI the command's own locks would silently be on "file:". */
    note("the command cannot have this DLOCK_URI: %s; unset it", err.message);
    environment_free(env);
    return error_status(err.code);
}

int environment_make(struct environment *env, const char *name, dlock_lock *lock) {
    char token[DLOCK_TOKEN_MAX + 1] = "";
    size_t n = 0;
    while (environ[n]) n++;
    env->entries = malloc((n + 5) * sizeof *env->entries);
    if (!env->entries) return DLOCK_ENOMEM;
    dlock_token(lock, token, sizeof token, NULL);
    snprintf(env->name, sizeof env->name, "DLOCK_NAME=%s", name);
    snprintf(env->fence, sizeof env->fence, "DLOCK_FENCE=%" PRIu64, dlock_fence(lock));
    snprintf(env->token, sizeof env->token, "DLOCK_TOKEN=%s", token);
    char **next = env->entries;
    *next++ = env->name;
    *next++ = env->fence;
    *next++ = env->token;
    if (env->uri) *next++ = env->uri;
    for (char **inherited = environ; *inherited; inherited++)
        if (!is_ours(*inherited)) *next++ = *inherited;
    *next = NULL;
    return 0;
}

void environment_free(struct environment *env) {
    free(env->entries);
    free(env->uri);
    env->entries = NULL;
    env->uri = NULL;
}
