/* A lock server with scripted answers: it greets as an honest server would, and then misbehaves. It serves one client
 * at a time. */
#ifndef DLOCK_TESTS_SUPPORT_FAKE_H
#define DLOCK_TESTS_SUPPORT_FAKE_H

#include "support/link.h"

#include <pthread.h>
#include <stdatomic.h>

/* The protocol, described by a backend's harness. */
struct fake_protocol {
    const char *const *greeting; /* an honest server's answers to the first requests, NULL-terminated */
    /* Returns the length of the first request in the buffer; 0: it is not complete. NULL: bytes that arrive together
     * are one request. */
    size_t (*request)(const char *buffer, size_t size);
    /* Returns the answer to a request that every test's server answers honestly and does not count, once it has
     * answered the one before; NULL for any other request. May be NULL. */
    const char *(*aside)(const char *request, size_t size);
};
extern const struct fake_protocol fake_protocol;

enum { FAKE_GREETINGS = 16 };

struct fake {
    /* Set by the test before fake_start(), after zeroing. In texts \a stands for a NUL. */
    const char *greeting[FAKE_GREETINGS]; /* in place of the honest answers; "": no answer */
    /* To the requests after the greeting, NULL-terminated; the last one is repeated. NULL or "": no answer. */
    const char *const *answers;
    int gather;         /* answers nothing until it has this many requests after the greeting, then all of them */
    bool close_greeted; /* closes after the greeting */
    bool close_after;   /* closes after the first answer */
    const char *flood;  /* sent repeatedly after the first answer, until the client goes */
    bool deaf;          /* stops reading after the greeting */
    int drip_ms;        /* sends byte by byte with this pause; the greeting too if drip_greeting */
    bool drip_greeting;
    /* Answers the i-th request of a connection in place of all of the above. False: end the connection. */
    bool (*converse)(struct fake *fake, int fd, int i, const char *request, size_t size);
    int kept; /* converse sets it to `fd` and returns false: the connection stays open, and is the test's to close */

    int port;
    atomic_bool stop;
    atomic_int eof, reset; /* how clients' connections ended */
    atomic_int requests;   /* after the greeting */
    int listener;
    pthread_t thread;
};

/* A list of texts for fake.answers. */
#define FAKE_SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

/* Starts it and connects. Returns what connect() returned; end both with fake_unlink() in any case. */
int fake_try(struct fake *fake, struct link *link, int timeout_ms, struct dlock_error *err);
/* The same; it must succeed. */
void fake_link(struct fake *fake, struct link *link);
void fake_unlink(struct fake *fake, struct link *link);

#endif
