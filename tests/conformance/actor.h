/* Actors: child processes, or threads in their place, each with a client and one lock handle, which carry out a case's
 * orders and report. With them a case reads like a script of requests, waits, stops and grants. Start them before the
 * case opens its own client. */
#ifndef CONFORMANCE_ACTOR_H
#define CONFORMANCE_ACTOR_H

#include "suite.h"

enum actor_verb {
    ACTOR_ACQUIRE,         /* dlock_acquire(argument) */
    ACTOR_ACQUIRE_AND_DIE, /* the same; kills itself with SIGKILL as soon as the lock is granted */
    ACTOR_RELEASE,
    ACTOR_DOWNGRADE,
    ACTOR_WAIT_UNTIL_CANCELLED, /* acquires; the next order has to be ACTOR_CANCEL; one report for both */
    ACTOR_CANCEL,
    ACTOR_LOOK,  /* only reports */
    ACTOR_WATCH, /* reports when dlock_held has turned false, or after `argument` ms */
    ACTOR_HOLD,  /* acquires, holds for `argument` ms, releases; the code is the first that is not 0 */
    ACTOR_END    /* frees, closes and exits */
};

/* An actor's report after each order. */
struct actor_report {
    int code;
    char message[160]; /* of the error, if any */
    bool held;
    int64_t remaining_ms;
    uint64_t fence;
    int64_t at_us;        /* when the call returned */
    int64_t last_held_us; /* WATCH: the last time at which the lock was certainly held */
    int lost;             /* number of on_lost calls */
};

struct actor {
    pid_t pid;
    int orders;  /* to it */
    int reports; /* from it */
};

/* Starts an actor for the lock `name`; `options` may be NULL. */
void actor_start(struct actor *actor, const char *name, const struct dlock_options *options);

/* Gives an order and returns at once. */
void actor_begin(struct actor *actor, enum actor_verb verb, int64_t argument);

/* Waits up to `ms` for the report on the last order. False: none yet. */
bool actor_poll(struct actor *actor, int64_t ms, struct actor_report *report);

/* Waits for the report. Fails the case if the code is not `wanted`, or after PATIENCE_MS. */
#define ACTOR_FINISH(wanted, actor) actor_finish(__FILE__, __LINE__, wanted, actor)
struct actor_report actor_finish(const char *file, int line, int wanted, struct actor *actor);

/* Fails if the actor reports within `ms`. */
#define EXPECT_WAITING(actor, ms) expect_waiting(__FILE__, __LINE__, actor, ms)
void expect_waiting(const char *file, int line, struct actor *actor, int64_t ms);

/* Gives an order and waits for its report. */
#define ACTOR_DO(wanted, actor, verb, argument) \
    (actor_begin(actor, verb, argument), actor_finish(__FILE__, __LINE__, wanted, actor))

/* Waits until `n` waiters are queued for `name`, as `watcher` sees by inspecting; where the server does not say, for
 * long enough for one waiter to have come. */
void await_waiters(dlock_client *watcher, const char *name, uint32_t n);

/* Returns how long a backend may take to notice that a waiter's process is dead: a session has to end first. */
int64_t notice_ms(void);

/* Orders the actor to end, and fails unless it does so cleanly. */
void actor_end(struct actor *actor);

/* An actor that the end of its block ends so. */
#define SCOPED_ACTOR __attribute__((cleanup(actor_end))) struct actor

#endif
