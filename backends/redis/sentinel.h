/* The Sentinels that a connection asks which server is the master, and what they have said. The files; each calls those
 * below it only:
 *   master
 *   sentinel */
#ifndef DLOCK_REDIS_SENTINEL_H
#define DLOCK_REDIS_SENTINEL_H

#include "redis.h"

/* What one of them says. */
struct redis_named {
    char address[64]; /* of the master; numeric */
    int port;
    long long epoch; /* of the failover that made it the master */
    int others;      /* how many Sentinels it knows besides itself */
    int quorum;
};

struct redis_sentinel {
    char address[64];
    int port;
    int open;             /* its descriptor plus 1; 0: nothing more is heard of it */
    struct stream stream; /* as long as it is open, as is the reader */
    redisReader *reader;
    int connects;     /* what its socket has to be ready for before that goes on; 0: it is connected */
    size_t sent;      /* of the text */
    size_t received;  /* of the answer, in bytes */
    int64_t asked_us; /* when what it has not answered yet was about to be sent; 0: it has answered all */
    int64_t said_us;  /* the same of what it has answered last; 0: it has not said anything yet */
    struct redis_named said, saying;
};

/* Each is connected to once: a connection that too few of them are left for is given up, and the next one begins
 * afresh. */
struct redis_sentinels {
    size_t n;
    struct redis_sentinel each[REDIS_SENTINELS];
    char name[104];       /* of the master */
    char *text;           /* what is sent; the login goes once, in front of the first question */
    size_t length, login; /* of all, and of the login */
    int code;             /* of those that cannot be heard, the most telling error; 0: none */
    struct dlock_error why;
    struct redis_named master; /* the connection's */
    int64_t asked_us;          /* when they were asked last */
    int64_t sure_us; /* a majority has answered what was sent then or later that this is the master; 0: none yet */
};

/* ---- sentinel.c: talking to them --------------------------------------------------------------------------------- */

/* Connects to all, and asks. What cannot be reached is closed again. NULL: no memory. */
struct redis_sentinels *redis_sentinels_new(struct redis *redis, const struct redis_address *address,
                                            const struct dlock_host *hosts, size_t n);
void redis_sentinels_free(struct redis_sentinels *sentinels);

/* Asks those that have answered everything so far. */
void redis_sentinels_ask(struct redis_sentinels *sentinels);

/* Waits until something comes, and takes that; false: none of those that can be heard owes an answer, or the time is
 * over. */
bool redis_sentinels_hear(struct redis *redis, struct redis_sentinels *sentinels, int64_t until_us);

#endif
