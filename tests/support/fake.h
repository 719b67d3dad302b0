/* A lock server that says what a test tells it to: it greets as an honest one would, and then misbehaves. It speaks
 * with one client at a time. */
#ifndef DLOCK_TESTS_SUPPORT_FAKE_H
#define DLOCK_TESTS_SUPPORT_FAKE_H

#include "support/link.h"

#include <pthread.h>
#include <stdatomic.h>

/* The protocol, described by a backend's harness. */
struct fake_protocol {
    const char *const *greeting; /* an honest server's answers to the first requests, NULL-terminated */
    /* How long the first request in the buffer is; 0: it is not whole yet. NULL: what comes at once is one. */
    size_t (*request)(const char *buffer, size_t size);
    /* What to say to a request that every test's server answers honestly, and that does not count, once it has answered
     * the one before; NULL: it is no such request. May be NULL. */
    const char *(*aside)(const char *request, size_t size);
};
extern const struct fake_protocol fake_protocol;

enum { FAKE_GREETINGS = 16 };

struct fake {
    /* Set by the test before fake_start(), after zeroing. In texts \a stands for a NUL. */
    const char *greeting[FAKE_GREETINGS]; /* instead of the honest answers; "": says nothing */
    const char *const *answers; /* to the requests after the greeting, NULL-terminated; the last one is repeated. NULL,
                                 * "": says nothing */
    int gather;         /* says nothing before it has so many requests after the greeting, and then answers them all */
    bool close_greeted; /* closes after the greeting */
    bool close_after;   /* closes after the first answer */
    const char *flood;  /* said after the first answer, again and again until the client goes */
    bool deaf;          /* stops reading after the greeting */
    int drip_ms;        /* speaks byte by byte, the greeting too if drip_greeting */
    bool drip_greeting;
    /* Answers the i-th request of a connection instead of all of the above; false: no more of this connection. */
    bool (*converse)(struct fake *fake, int fd, int i, const char *request, size_t size);

    int port;
    atomic_bool stop;
    atomic_int eof, reset; /* how connections of clients ended */
    atomic_int requests;   /* after the greeting */
    int listener;
    pthread_t thread;
};

/* fake.answers */
#define FAKE_SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

/* With a connection, which must work. */
void fake_link(struct fake *fake, struct link *link);
void fake_unlink(struct fake *fake, struct link *link);

#endif
