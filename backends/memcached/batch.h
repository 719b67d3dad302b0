/* A batch of claims on its way through an operation: what claims.c, which flies it, shares with turns.c. */
#ifndef DLOCK_MEMCACHED_BATCH_H
#define DLOCK_MEMCACHED_BATCH_H

#include "memcached.h"

/* Claims that share a flight: as many as the core sends at once. */
#define FLIGHT_MAX 256

enum step {
    DONE,
    ADD,   /* add, and look */
    LOOK,  /* look whose it is, and at which id */
    SWAP,  /* cas; when the grant goes on, look for the new id */
    SHARED /* what needs memcached_shared(), after all flights */
};

/* One claim's progress through a call. */
struct turn {
    struct dlock_claim *claim;
    enum step step;
    int adds;
    uint64_t cas;     /* SWAP: the id of the item that is ours, or lapsed */
    uint64_t granted; /* … and that of the grant, as for memcached_flags() */
    bool too_far;     /* for the flags to tell `granted` */
};

struct batch {
    struct memcached *memcached;
    enum memcached_operation operation;
    struct dlock_claim *const *claims;
    struct turn turns[FLIGHT_MAX]; /* of each */
    size_t n;
    size_t flight[FLIGHT_MAX]; /* the turns that were not done when this flight began */
    size_t n_flight;
    const struct turn *timed; /* whose item tells the server's time at the end of this flight; NULL: `stats` do */
    int64_t timed_end_s;      /* … from the end that it was given */
    int64_t sent_us, deadline_us;
    bool explained; /* `err` speaks of a claim */
    struct dlock_error *err;
};

/* ---- turns.c ----------------------------------------------------------------------------------------------------- */

/* When a lease ends that this flight sets. */
int64_t memcached_turn_expiry_s(const struct batch *batch, const struct turn *turn);

/* Appends what a turn asks for, which is neither DONE nor SHARED, and reads the answer. EUNAVAILABLE, EAUTH, EPROTO. */
void memcached_turn_write(struct memcached *memcached, const struct batch *batch, const struct turn *turn);
int memcached_turn_read(struct batch *batch, struct turn *turn);

/* The item is as the claim remembers it. */
void memcached_turn_swap_known(struct turn *turn);

/* The claim's result, with an explanation, which the first one of a batch gets; "": none. */
void memcached_turn_conclude(struct batch *batch, struct turn *turn, int result, const char *why);

#endif
