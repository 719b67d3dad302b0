/* The lease of the lock that `dlock run` holds, its loss, and other clients' wish for it. */
#ifndef DLOCK_CLI_LOSS_H
#define DLOCK_CLI_LOSS_H

#include <dlock/dlock.h>
#include <pthread.h>

/* Returns the time of CLOCK_BOOTTIME, which advances while the machine is suspended, as leases do. */
int64_t now_ms(void);

/* Written by the library's callbacks, on its threads. */
struct loss {
    int fd;                /* an eventfd, readable once the lock is lost or wanted; -1 until loss_open() */
    pthread_mutex_t mutex; /* protects the two below */
    char trouble[256];     /* the last warning or error that was logged, a failed renewal for example */
    int64_t trouble_ms;    /* when it was logged, by now_ms() */
};
#define LOSS_INIT \
    { .fd = -1, .mutex = PTHREAD_MUTEX_INITIALIZER }

void loss_log(int level, const char *message, void *arg); /* the client's log; arg is the struct loss */
int loss_open(struct loss *loss);                         /* 0 or -1 */
void loss_close(struct loss *loss);
void loss_happened(dlock_lock *lock, const struct dlock_error *err,
                   void *arg); /* the on_lost; arg is the struct loss */
void loss_wanted(dlock_lock *lock, const struct dlock_error *err,
                 void *arg); /* the on_wanted; arg is the struct loss */

/* What has happened since the last call, both possibly. Neither, if nothing did. */
struct loss_news {
    bool lost, wanted;
};
struct loss_news loss_read(const struct loss *loss);

/* The lock's lease as lease_look() has read it. */
struct lease {
    int64_t longest_ms;     /* the longest remaining time that was read; 0: no finite one yet */
    int64_t valid_until_ms; /* end of the lease by now_ms(), as last read before the loss */
};

/* Reads the lease of `lock`. Returns dlock_remaining_ms(). */
int64_t lease_look(struct lease *lease, dlock_lock *lock);

/* True if, according to the last lease_look(), the server has confirmed the grant after `then_ms`. Never true on
 * backends without leases, where renewals cannot be seen. */
bool lease_confirmed_since(const struct lease *lease, int64_t then_ms);

/* True if the lease has ended: the lock was lost because it was not renewed, not because the server dropped it. */
bool lease_ended(const struct lease *lease);

/* Writes into `reason` why the lock was lost or, with a positive `remaining_ms`, soon will be, and returns
 * `reason`. */
enum { LOSS_REASON_MAX = 400 };
const char *loss_reason(struct loss *loss, const struct lease *lease, dlock_lock *lock, char reason[LOSS_REASON_MAX],
                        int64_t remaining_ms);

#endif
