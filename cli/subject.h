/* The locks that `metrics` and `top` inspect: all, those whose names begin with a prefix, or those that are named. */
#ifndef DLOCK_CLI_SUBJECT_H
#define DLOCK_CLI_SUBJECT_H

#include "holders.h"

#include <dlock/dlock.h>

struct subject {
    const char *prefix; /* NULL or "": all locks; unused if there are names */
    char **names;       /* of single locks, from argv */
    size_t n;           /* number of names */
};

/* Their option in the help of both commands. */
#define SUBJECT_HELP "      --prefix PREFIX  only locks whose names begin with PREFIX\n"

/* Takes the command's operands, the names. Returns STATUS_OK, or prints the error and returns the exit status. */
struct command;
int subject_take(struct subject *subject, const struct command *command, int argc, char **argv);

/* Appends the holders of these locks to `holders`, and sorts by name. Blocks for requests to the server. Returns as
 * dlock_list(); on failure some holders may have been appended. */
int subject_ask(const struct subject *subject, dlock_client *client, struct holders *holders, struct dlock_error *err);

#endif
