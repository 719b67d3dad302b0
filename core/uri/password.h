/* Passwords that stand in a file of their own: password_file= in the URI. */
#ifndef DLOCK_CORE_URI_PASSWORD_H
#define DLOCK_CORE_URI_PASSWORD_H

#include <dlock/backend.h>

/* Longest password that a file may have, in bytes; access tokens of cloud services have a few thousand. */
#define DLOCK__PASSWORD_MAX 8191

/* Reads the file's whole content, but for one newline at its end, into `out`, which the caller wipes. Never waits for a
 * writer. EAUTH, naming the file and what is wrong with it, never anything that stands in it. */
int dlock__password_read(const char *path, char out[DLOCK__PASSWORD_MAX + 1], struct dlock_error *err);

/* Tells `each` whether other users of this host may read or replace the file. */
void dlock__password_check(const char *path, dlock_each_finding each, void *arg);

#endif
