/* A lock server that says what a test tells it to: it greets as an honest memcached would, and then misbehaves. */
#ifndef DLOCK_TESTS_MEMCACHED_FAKE_H
#define DLOCK_TESTS_MEMCACHED_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fake {
    /* Set by the test before fake_start(), after zeroing. In texts \a stands for a NUL. */
    const char *greeting; /* said to the first thing that comes, instead of honest stats; "": nothing */
    const char *answer;   /* said to the first thing that comes after the greeting; NULL: nothing */
    const char *then;     /* … and to each thing after that; NULL: `answer` again */
    const char *flood;    /* said after the answer, again and again until the client goes */
    bool close_after;     /* closes after the answer */
    bool close_greeted;   /* closes after the greeting */
    bool deaf;            /* stops reading after the greeting */
    int drip_ms;          /* speaks byte by byte, the greeting too if drip_greeting */
    bool drip_greeting;

    int port;
    atomic_bool stop;
    atomic_int eof, reset; /* how connections of clients ended */
    atomic_int requests;   /* lines and blocks that came after the greeting, as far as they came apart */
    int listener;
    pthread_t thread;
};

/* What memcached says to the first requests of a connection: it was started at 1700000000. */
#define FAKE_GREETING \
    "STAT pid 1\r\nSTAT uptime 100000\r\nSTAT time 1700100000\r\nEND\r\nSTAT cas_enabled yes\r\nEND\r\n"
#define FAKE_STARTED_US UINT64_C(1700000000000000)

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

#endif
