/* Option -l: reads its value, and checks it against the server's quarantine. */
#ifndef DLOCK_CLI_LEASE_H
#define DLOCK_CLI_LEASE_H

#include "cli.h"

/* Reads the value of -l. Returns STATUS_OK, or prints which values are allowed and returns the exit status. */
int lease_read(const struct command *command, const char *text, int64_t *ms);

/* Checks that the lease is not longer than the quarantine of the client's server: a server that forgets its grants at a
 * restart protects no longer ones. Returns STATUS_OK if so, or if the server has no quarantine; else prints a URI that
 * allows this lease and returns the exit status. */
int lease_fits(const char *uri, const char *text, int64_t ms, dlock_client *client);

#endif
