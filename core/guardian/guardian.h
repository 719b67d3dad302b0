/* The guardian: a small helper process that releases a client's grants once the client's process is gone, so that
 * no other process has to wait for their leases to end. guardian.c decides when a helper is started, start.c starts it.
 * state/guard.h fills the table that client and helper share. The code that only the helper runs is in the folder
 * guardian/ at the top of the tree. */
#ifndef DLOCK_CORE_GUARDIAN_GUARDIAN_H
#define DLOCK_CORE_GUARDIAN_GUARDIAN_H

#include <dlock/dlock.h>

#include <stdint.h>

struct dlock_client;
struct dlock__acquisition;
struct dlock__guard;

/* True in the helper process: its own clients get no guardian. Set before any client is opened. */
extern bool dlock__guard_off;

/* Makes client->guard if the URI, or DLOCK_CLIENT_GUARDIAN in `flags` unless the URI says off, asks for one, and starts
 * the helper, except where the kernel ends a dead process's grants anyway (LOCAL). For dlock_open, before anything is
 * sent. Without the mutex. The URI's text is copied for the helper. Errors: ENOTSUP (the kernel, a backend that no
 * other process can load, or a program with more rights than its caller: AT_SECURE), ENOMEM, EUNAVAILABLE (the helper
 * program cannot be started; the message says why). */
int dlock__guard_open(struct dlock_client *client, const char *uri, uint32_t flags, int64_t deadline_us,
                      struct dlock_error *err);

/* Dismisses the helper and frees client->guard. For dlock_close, after the last release. Without the mutex. */
void dlock__guard_close(struct dlock_client *client);

/* Starts a thread that replaces the helper, if that has died, or if it is time to repeat a failed attempt; otherwise
 * cheap. For the keeper, in each round. With the mutex. */
void dlock__guard_look(struct dlock_client *client);

/* Waits until no helper is being started. With the mutex, which is left meanwhile. */
void dlock__guard_settle(struct dlock_client *client);

/* Sets the process group that works under the grant of this entry; entry 0: under all grants whose entries have none;
 * number 0: none does. Call dlock__guard_settle() before, without leaving the mutex in between. Returns 0, ELOST (the
 * group that was set before has been killed), or why no helper could be started. With the mutex, which is left
 * meanwhile. */
int dlock__guard_group(struct dlock_client *client, uint32_t entry, int number, struct dlock_error *err);

/* Runs the helper program and returns its exit status. Exported for that program; no part of the API. */
DLOCK_EXPORT int dlock__guardian_main(void);

#endif
