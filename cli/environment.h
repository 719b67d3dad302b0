/* The environment of the command that `run` runs. */
#ifndef DLOCK_CLI_ENVIRONMENT_H
#define DLOCK_CLI_ENVIRONMENT_H

#include <dlock/dlock.h>

struct environment {
    char name[DLOCK_NAME_MAX + 16], fence[48], token[DLOCK_TOKEN_MAX + 16];
    char *uri;      /* "DLOCK_URI=…", owned; NULL: none */
    char **entries; /* for execvpe(); the array is owned, its strings are the members above or environ's */
};

/* Chooses the DLOCK_URI of the command: `passed` unchanged; or, if that is NULL, the inherited one without its secrets;
 * or, if there is none, `named`, which is -b's or NULL, without its secrets: else a dlock in the command would silently
 * lock on "file:". Returns STATUS_OK, or prints the error and returns the exit status. */
int environment_uri(struct environment *env, const char *passed, const char *named);

/* Fills `entries` with the inherited environment and with the name, fence and token of `lock`, which is held. Returns 0
 * or DLOCK_ENOMEM. */
int environment_make(struct environment *env, const char *name, dlock_lock *lock);

void environment_free(struct environment *env);

#endif
