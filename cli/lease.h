/* -l: what it takes, and what the URI has to say for it. */
#ifndef DLOCK_CLI_LEASE_H
#define DLOCK_CLI_LEASE_H

#include "cli.h"

/* Reads the value of -l. STATUS_OK, or says what it can be and returns the exit status. */
int lease_read(const struct command *command, const char *text, int64_t *ms);

/* A server that forgets its grants at a restart takes no lease longer than its quarantine, which the URI sets: says so,
 * with the URI that takes this one. STATUS_OK: this client's server takes it, or has no quarantine. */
int lease_fits(const char *uri, const char *text, int64_t ms, dlock_client *client);

#endif
