/* Asks the server again and again for `dlock top`. The requests are sent on their own thread, so that a server
 * that does not answer does not block drawing and the keyboard. */
#ifndef DLOCK_CLI_TOP_WATCH_H
#define DLOCK_CLI_TOP_WATCH_H

#include "subject.h"

#include <dlock/dlock.h>
#include <pthread.h>

struct watch_plan {
    const char *uri;
    struct subject subject;
    int64_t interval_ms;
    bool wide; /* the table has fences and tokens */
};

/* The result of one look at the server. */
struct look {
    int rc; /* as of dlock_list(); if it is not 0, only `err` and the times are valid */
    struct dlock_error err;
    int64_t wall_ms;            /* when the answer came, since 1970 */
    int64_t began_ms, ended_ms; /* by CLOCK_MONOTONIC */
    struct holders holders;     /* sorted by name, then fence */
    size_t locks, waiters;      /* number of names, and of waiters for them */
    /* Grants seen since the look before: fences of a name that the look before did not find. Grants that were given and
     * released between two looks are not counted. `grants` has one element per holder, the grants of its name; NULL:
     * out of memory. */
    uint64_t *grants, all_grants;
    int64_t since_ms; /* time since the look before; 0: there was none, and no grants are counted */
};

struct watch {
    const struct watch_plan *plan;
    dlock_client *client;
    pthread_t thread;
    int ask_fd, done_fd;   /* eventfds: start a look, and tell of its end; in between `made` belongs to the thread */
    bool stop;             /* set before the last announcement on ask_fd: the thread ends */
    struct look *made;     /* the look that the thread has made; NULL: out of memory */
    bool asking;           /* a look is in progress */
    int64_t asked_ms;      /* when it began, by CLOCK_MONOTONIC */
    int64_t next_ms;       /* when the next look is due, by CLOCK_MONOTONIC */
    struct look *last;     /* the last look; NULL: none yet */
    struct look *answered; /* the last look that was answered, perhaps the same; NULL: none yet */
};

/* Opens the client, without connecting, and starts the thread. Returns STATUS_OK, or prints what is wrong and returns
 * the exit status. The first look is due at once. */
int watch_open(struct watch *watch, const struct watch_plan *plan);

/* Begins a look if one is due. Returns the time until the next call, as poll()'s timeout, unless `done_fd` becomes
 * readable before; it is a second while a look is in progress. */
int watch_step(struct watch *watch);

/* Takes over a look that has ended. True if there was one. */
bool watch_took(struct watch *watch);

/* True if the last look failed with an error that the next look would also return. */
bool watch_hopeless(const struct watch *watch);

/* Makes the next look due now. */
void watch_hurry(struct watch *watch);

/* Returns how long the server has left the present look unanswered, if that is longer than the interval and than a
 * second; else 0. */
int64_t watch_silence_ms(const struct watch *watch);

/* Frees everything and returns `status`. If a look is in progress, ends this process with `status` instead, in order
 * not to wait for the server. */
int watch_close(struct watch *watch, int status);

/* Writes the grants per second, such as "2.0", or "-" if they are not known. */
enum { RATE_MAX = 32 };
void rate_text(const struct look *look, uint64_t grants, char text[RATE_MAX]);

#endif
