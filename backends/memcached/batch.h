/* A batch of claims in an operation; shared by claims.c, which sends it, and turns.c. */
#ifndef DLOCK_MEMCACHED_BATCH_H
#define DLOCK_MEMCACHED_BATCH_H

#include "memcached.h"

/* Most claims in a flight, which is one round trip: as many as the core sends at once. */
#define FLIGHT_MAX 256

enum step {
    DONE,
    ADD,   /* send an add, then read the item */
    LOOK,  /* read the item: whose it is, and its cas id */
    SWAP,  /* send a cas; unless it ends the grant, then read the item's new id */
    SHARED /* call memcached_shared(), after all flights */
};

/* One claim's progress through a call. */
struct turn {
    struct dlock_claim *claim;
    enum step step;
    int adds;         /* number of adds sent */
    uint64_t cas;     /* SWAP: the id of the item, which is ours or has lapsed */
    uint64_t granted; /* SWAP: the id of the grant, as for memcached_flags() */
    bool too_far;     /* there were too many stores for the flags to tell `granted` */
};

struct batch {
    struct memcached *memcached;
    enum memcached_operation operation;
    struct dlock_claim *const *claims;
    struct turn turns[FLIGHT_MAX]; /* one for each claim */
    size_t n;
    size_t flight[FLIGHT_MAX]; /* indices of the turns that were not done when this flight began */
    size_t n_flight;
    const struct turn *timed; /* the turn whose item tells the server's time in this flight; NULL: `stats` do */
    int64_t timed_end_s;      /* the expiry of that item, by the server's clock */
    int64_t sent_us, deadline_us;
    bool explained; /* `err` has the message of a claim */
    struct dlock_error *err;
};

/* ---- turns.c ----------------------------------------------------------------------------------------------------- */

/* Returns the end of a lease that this flight sets, by the server's clock. */
int64_t memcached_turn_expiry_s(const struct batch *batch, const struct turn *turn);

/* Append the requests of a turn, which is neither DONE nor SHARED, and read their replies. EUNAVAILABLE, EAUTH,
 * EPROTO. */
void memcached_turn_write(struct memcached *memcached, const struct batch *batch, const struct turn *turn);
int memcached_turn_read(struct batch *batch, struct turn *turn);

/* Makes SWAP the next step, with the cas id in the claim's state. */
void memcached_turn_swap_known(struct turn *turn);

/* Sets the claim's result. `why` explains it ("": no explanation); the first explanation of a batch goes to `err`. */
void memcached_turn_conclude(struct batch *batch, struct turn *turn, int result, const char *why);

#endif
