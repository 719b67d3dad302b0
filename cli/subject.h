/* The locks that `metrics` and `top` look at: those whose names begin with a prefix, or some by name. */
#ifndef DLOCK_CLI_SUBJECT_H
#define DLOCK_CLI_SUBJECT_H

#include "holders.h"

#include <dlock/dlock.h>

struct subject {
    const char *prefix; /* "": all; without names only */
    char **names;
    size_t n;
};

/* One option and the operands of both commands, in their help. */
#define SUBJECT_HELP "      --prefix PREFIX  only locks whose names begin with PREFIX\n"

/* Takes the operands. STATUS_OK, or says what is wrong and returns the exit status. */
struct command;
int subject_take(struct subject *subject, const struct command *command, int argc, char **argv);

/* Collects who holds them, sorted by name. Returns as dlock_list(); on failure some may have been collected. */
int subject_ask(const struct subject *subject, dlock_client *client, struct holders *holders, struct dlock_error *err);

#endif
