/* For tests through the public interface, each with its own private server. */
#ifndef DLOCK_TESTS_REDIS_API_H
#define DLOCK_TESTS_REDIS_API_H

#include "harness.h"
#include "support/api.h"

#include <pthread.h>

/* A client of this server, which must work; `query` ("lease=1s&quarantine=0") goes into its URI. */
dlock_client *api_open(const struct server *server, const char *query);

/* A thread that acquires and, when it got the lock, releases it again, `rounds` times. */
struct api_worker {
    dlock_lock *lock;
    int64_t timeout_ms;
    int rounds, hold_ms;

    int code;                  /* the first that was not 0 */
    uint64_t fence;            /* of the last grant */
    _Atomic int64_t got_it_ms; /* when that was */
    int64_t lost_it_ms;        /* when the first grant turned out lost, or 0; watched while it is held */
    struct dlock_error err;
    pthread_t thread;
};
void api_begin(struct api_worker *worker);
void api_await_grant(struct api_worker *worker);
void api_end(struct api_worker *worker);

#endif
