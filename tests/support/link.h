/* Connections of the backend under test, by its table of operations, without the core. */
#ifndef DLOCK_TESTS_SUPPORT_LINK_H
#define DLOCK_TESTS_SUPPORT_LINK_H

#include "support/backend.h"

enum {
    TIMEOUT_MS = 10000,
    CONNECTS_MS = 60000 /* where it must succeed: a server that was just started may take this long on a busy machine */
};

/* A URI of a server on loopback, whose parts a test may change. */
struct uri {
    struct dlock_uri parts;
    struct dlock_host host[3];   /* all equal; the URI uses one */
    struct dlock_param param[4]; /* the URI uses none */
};
void uri_init(struct uri *uri, int port);

/* One connection, with the client it belongs to. */
struct link {
    void *conn;
    struct dlock_peer peer;
    char client[25];
    int fd;               /* the listener's descriptor */
    int tokens;           /* tokens made up to now: see held_new() */
    struct dlock_uri uri; /* for further connections; its strings belong to the caller */
    struct dlock_param param[4];
};

/* Connects as the client whose id is 24 times `letter` (a hex digit). Returns what connect returned; *link must be
 * ended with link_end() in any case. */
int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms, int timeout_ms,
             struct dlock_error *err);
/* The same on loopback, without quarantine; must succeed. */
void link_to(struct link *link, int port, char letter);
/* The same with one. */
void link_careful(struct link *link, int port, char letter, int64_t quarantine_ms);
void link_listen(struct link *link);
void link_end(struct link *link); /* a second call does nothing */
/* One that the end of its block ends. */
#define SCOPED_LINK __attribute__((cleanup(link_end))) struct link
/* Declares such a link, and connects it with the link_new() of the backend's harness. */
#define LINK(name, ...) \
    SCOPED_LINK name;   \
    link_new(&name, __VA_ARGS__)

/* Waits for a wake-up of a listening connection, which must not fail. False if none comes within `ms`. */
bool wake_within(struct link *link, struct dlock_wake *wake, int ms);

#endif
