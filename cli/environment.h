/* The environment of the command that `run` runs. */
#ifndef DLOCK_CLI_ENVIRONMENT_H
#define DLOCK_CLI_ENVIRONMENT_H

#include <dlock/dlock.h>

struct environment {
    char name[DLOCK_NAME_MAX + 16], fence[48], token[DLOCK_TOKEN_MAX + 16];
    char *uri; /* "DLOCK_URI=…", ours; NULL: none */
    char **entries;
};

/* Chooses the DLOCK_URI of the command: `passed` as it is; or, if that is NULL, the inherited one without what is
 * secret in it. STATUS_OK, or says what is wrong and returns the exit status. */
int environment_uri(struct environment *env, const char *passed);

/* Fills `entries` with what we inherited, and with what there is to say of the lock, which is held. 0, or DLOCK_ENOMEM.
 */
int environment_make(struct environment *env, const char *name, dlock_lock *lock);

void environment_free(struct environment *env);

#endif
