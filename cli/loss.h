/* How long the lock of `dlock run` stays its own, and how it learns that it does not. */
#ifndef DLOCK_CLI_LOSS_H
#define DLOCK_CLI_LOSS_H

#include <dlock/dlock.h>

/* A clock that goes on during suspend, as leases do. */
int64_t now_ms(void);

/* Set by on_lost, on a thread of the library. */
struct loss {
    int fd; /* an eventfd, readable once the lock is lost */
};

int loss_open(struct loss *loss); /* 0 or -1 */
void loss_close(struct loss *loss);
void loss_happened(dlock_lock *lock, const struct dlock_error *err,
                   void *arg); /* the on_lost; arg is the struct loss */

/* What was seen of the lock's lease. */
struct lease {
    int64_t longest_ms;     /* the longest remaining time; 0: it has not ended by itself so far */
    int64_t valid_until_ms; /* by now_ms(), as of the last look before the loss */
};

/* Looks at it. Returns dlock_remaining_ms(). */
int64_t lease_look(struct lease *lease, dlock_lock *lock);

/* The server has confirmed the grant after `then_ms`, as far as the last look tells. Never true where grants have no
 * lease, since nothing is to be seen there. */
bool lease_confirmed_since(const struct lease *lease, int64_t then_ms);

/* The lease has ended: the lock was lost for want of renewal, not because the server no longer had it. */
bool lease_ended(const struct lease *lease);

/* Why the lock was lost; to be asked at once. Static. */
const char *loss_reason(const struct lease *lease, dlock_client *client);

#endif
