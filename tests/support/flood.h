/* A server, in its own thread, that answers one connection as an honest one does, and from some point sends without
 * end. */
#ifndef DLOCK_TESTS_SUPPORT_FLOOD_H
#define DLOCK_TESTS_SUPPORT_FLOOD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { FLOOD_PIECE = 1 << 19 };

struct flood {
    /* Talks to the client, then writes what is sent again and again: at most FLOOD_PIECE bytes. Returns how many, or 0
     * if the client has gone. */
    size_t (*begin)(void *arg, int fd, unsigned char *piece);
    void *arg;
    bool silent;  /* nothing comes instead, until the client has gone */
    int most_ms;  /* for how long it sends, or is silent */
    size_t most;  /* how many bytes it sends; 0: any number */
    int port;     /* set by flood_start() */
    size_t sent;  /* up to now, of what `begin` wrote */
    int listener; /* the rest is its own */
    pthread_t thread;
};

void flood_start(struct flood *flood);
void flood_end(struct flood *flood); /* waits until it has ended, as it does when the client closes the connection */

/* For `begin`. False: the client has gone. */
bool flood_send(int fd, const void *bytes, size_t size);
bool flood_hear(int fd); /* something has come from the client; it is dropped */

#endif
