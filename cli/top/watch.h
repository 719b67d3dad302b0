/* The looks at a server that `dlock top` takes, in a thread of their own: a server that does not answer keeps nobody from
 * drawing, or from reading keys. */
#ifndef DLOCK_CLI_TOP_WATCH_H
#define DLOCK_CLI_TOP_WATCH_H

#include "subject.h"

#include <dlock/dlock.h>
#include <pthread.h>

struct watch_plan {
    const char *uri;
    struct subject subject;
    int64_t interval_ms;
};

/* What one look has found. */
struct look {
    int rc; /* as dlock_list(); if not 0 the rest, but `err` and the times, means nothing */
    struct dlock_error err;
    int64_t wall_ms;            /* when it ended, since 1970 */
    int64_t began_ms, ended_ms; /* by a clock that nobody sets */
    struct holders holders;     /* sorted by name, then fence */
    size_t locks, waiters;
    /* Grants that were seen: a fence of a name that the look before did not find. Grants that came and went between two
     * looks are not among them. Of each holder those of its name; since_ms 0: there was no look before. */
    uint64_t *grants, all_grants;
    int64_t since_ms;
};

struct watch {
    const struct watch_plan *plan;
    dlock_client *client;
    pthread_t thread;
    int ask_fd, done_fd; /* eventfds; what they announce belongs to who has read them */
    bool stop;
    struct look *made; /* by the thread */
    bool asking;       /* it is at work, since */
    int64_t asked_ms;
    int64_t next_ms;       /* when to ask next */
    struct look *last;     /* NULL: there was none */
    struct look *answered; /* the last one that was; perhaps the same */
};

/* Opens the client, connects to nobody, and starts the thread. STATUS_OK, or says what is wrong and returns the exit
 * status. The first look is due at once. */
int watch_open(struct watch *watch, const struct watch_plan *plan);

/* Begins a look if one is due. Returns for how long there is nothing to do, as poll() takes it, unless `done_fd` becomes
 * readable: after a second at the latest, while an answer is late. */
int watch_step(struct watch *watch);

/* Takes over a look that has ended: true if there was one. */
bool watch_took(struct watch *watch);

/* Whether the last look has failed in a way that the next one will, too. */
bool watch_hopeless(const struct watch *watch);

/* The next look is due now. */
void watch_hurry(struct watch *watch);

/* For how long the server has kept silent, if for longer than looks are apart; else 0. */
int64_t watch_silence_ms(const struct watch *watch);

/* Ends it, and this process with `status` if a look is in progress, which nobody waits for. Otherwise returns `status`. */
int watch_close(struct watch *watch, int status);

/* Grants per second, as text: "2.0", or "-" where nothing is known. */
enum { RATE_MAX = 32 };
void rate_text(const struct look *look, uint64_t grants, char text[RATE_MAX]);

#endif
