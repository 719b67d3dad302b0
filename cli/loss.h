/* How long the lock of `dlock run` stays its own, and how it learns that it does not. */
#ifndef DLOCK_CLI_LOSS_H
#define DLOCK_CLI_LOSS_H

#include <dlock/dlock.h>
#include <pthread.h>

/* A clock that goes on during suspend, as leases do. */
int64_t now_ms(void);

/* What the library tells, on threads of its own. */
struct loss {
    int fd; /* an eventfd, readable once the lock is lost; -1 until loss_open() */
    pthread_mutex_t mutex;
    char trouble[256]; /* the last that it logged, a failed renewal for example */
    int64_t trouble_ms;
};
#define LOSS_INIT \
    { .fd = -1, .mutex = PTHREAD_MUTEX_INITIALIZER }

void loss_log(int level, const char *message, void *arg); /* the client's log; arg is the struct loss */
int loss_open(struct loss *loss);                         /* 0 or -1 */
void loss_close(struct loss *loss);
void loss_happened(dlock_lock *lock, const struct dlock_error *err,
                   void *arg); /* the on_lost; arg is the struct loss */

/* The lock's lease as it was seen. */
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

/* Why the lock was lost, or with something remaining is about to be; to be asked at once. Writes it into `reason` and
 * returns that. */
enum { LOSS_REASON_MAX = 400 };
const char *loss_reason(struct loss *loss, const struct lease *lease, dlock_client *client,
                        char reason[LOSS_REASON_MAX], int64_t remaining_ms);

#endif
