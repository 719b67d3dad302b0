/* A lock server that says what a test tells it to: it greets as an honest Redis would, and then misbehaves. */
#ifndef DLOCK_TESTS_REDIS_FAKE_H
#define DLOCK_TESTS_REDIS_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The requests of a greeting without credentials, database and quarantine, in their order; the five scripts are the
 * last ones. */
enum { FAKE_SETNAME, FAKE_SERVER, FAKE_REPLICATION, FAKE_LOAD, FAKE_GREETING = FAKE_LOAD + 5 };

struct fake {
    /* Set by the test before fake_start(), after zeroing. */
    const char *greeting[FAKE_GREETING]; /* replies instead of the honest ones */
    const char *const *answers; /* to the requests after the greeting, NULL-terminated; the last one is repeated. "":
                                 * says nothing */
    int gather;                 /* says nothing before it has so many requests, and then answers them all */
    bool close_after;           /* closes after the first answer */
    const char *flood;          /* said after the first answer, again and again until the client goes */
    bool deaf;                  /* stops reading after the greeting */
    int drip_ms;                /* answers byte by byte */

    int port;
    atomic_bool stop;
    atomic_int eof, reset; /* how connections of clients ended */
    atomic_int requests;   /* after the greeting */
    int listener;
    pthread_t thread;
};

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

#endif
