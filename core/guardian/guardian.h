/* The guardian: a small helper process that releases a client's grants once the client's process is gone, so that
 * nobody has to wait for their leases to end. guardian.c decides when it is started, start.c starts it; what goes into
 * the table that both share is in state/guard.h, and what only the helper runs in the folder guardian/ of the tree. */
#ifndef DLOCK_CORE_GUARDIAN_GUARDIAN_H
#define DLOCK_CORE_GUARDIAN_GUARDIAN_H

#include <dlock/dlock.h>

struct dlock_client;
struct dlock__acquisition;
struct dlock__guard;

/* No client of this process gets a guardian: it is one itself. Set before any is opened. */
extern bool dlock__guard_off;

/* Makes client->guard where the URI (or `wanted`, unless the URI says off) asks for one, and starts the helper, except
 * where the kernel ends a dead process's grants anyway (LOCAL). For dlock_open, before anything is sent; without the
 * mutex. The URI's text is kept for the helper. Errors: ENOTSUP (the kernel, or a backend that no other process can
 * load), ENOMEM, EUNAVAILABLE (the helper program cannot be started; the message says why). */
int dlock__guard_open(struct dlock_client *client, const char *uri, uint32_t flags, int64_t deadline_us,
                      struct dlock_error *err);

/* Ends the helper and frees client->guard. For dlock_close, when the last release was sent; without the mutex. */
void dlock__guard_close(struct dlock_client *client);

/* Has the helper died, or is it to be tried again? Then starts a thread that starts a new one; otherwise costs nothing.
 * For the keeper, each time it looks around; with the mutex. */
void dlock__guard_look(struct dlock_client *client);

/* The whole of the helper program; returns its exit status. Exported for it, and no part of the API. */
DLOCK_EXPORT int dlock__guardian_main(void);

#endif
