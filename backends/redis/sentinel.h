/* The Sentinels that a connection asks for the master, and their answers. The files; each calls those below it only:
 *   master
 *   sentinel */
#ifndef DLOCK_REDIS_SENTINEL_H
#define DLOCK_REDIS_SENTINEL_H

#include "redis.h"

/* One Sentinel's answer. */
struct redis_named {
    char host[REDIS_HOST_MAX + 1]; /* the master's name or address */
    int port;
    long long epoch; /* of the failover that made it the master */
    int others;      /* the number of other Sentinels that it knows */
    int quorum;
};

/* An address of a Sentinel, and the connection to it. */
struct redis_sentinel {
    char address[64];
    int port;
    size_t name;                /* index of the first one that has the same name and port in the URI */
    char id[41];                /* its run id; "": it has not said it yet */
    size_t who;                 /* index that is the same for all addresses that have said this id; its own before */
    int open;                   /* descriptor plus 1; 0: given up */
    struct dlock_stream stream; /* valid while open, as is the reader */
    redisReader *reader;
    int connects;     /* poll events that connecting waits for; 0: connected */
    size_t sent;      /* bytes of the text that were sent */
    size_t received;  /* bytes of the answer that were received */
    int64_t asked_us; /* taken before the unanswered question was sent; 0: there is none */
    int64_t said_us;  /* the same for the last answered question; 0: none yet */
    struct redis_named said, saying;
};

/* All Sentinels of a connection. Each is connected to once: if too few of them are left, the whole connection is given
 * up, and the next one begins afresh. */
struct redis_sentinels {
    size_t n;
    struct redis_sentinel each[REDIS_SENTINELS];
    char name[104]; /* name of the master */
    char *text;     /* the text of a question, after the login, which is sent only once and also asks for the id */
    size_t length, login; /* of the whole text, and of the login */
    int code;             /* the most telling error of Sentinels that were given up; 0: none */
    struct dlock_error why;
    struct redis_named master; /* the master of this connection */
    int64_t asked_us;          /* when they were last asked on schedule, whether or not they have answered */
    int64_t sure_us; /* a majority has confirmed the master in answers to questions sent then or later; 0: none */
};

/* ---- sentinel.c: talking to them --------------------------------------------------------------------------------- */

/* Begins to connect to all Sentinels and asks them; unreachable ones are given up. NULL: out of memory. */
struct redis_sentinels *redis_sentinels_new(struct redis *redis, const struct redis_address *address);
void redis_sentinels_free(struct redis_sentinels *sentinels);

/* Asks the Sentinels that have no unanswered question, and whose last answer is to one that was sent before this. */
void redis_sentinels_ask(struct redis_sentinels *sentinels, int64_t before_us);

/* Waits until something arrives, and handles it. False: no connected Sentinel owes an answer, or the time is over. */
bool redis_sentinels_hear(struct redis *redis, struct redis_sentinels *sentinels, int64_t until_us);

#endif
