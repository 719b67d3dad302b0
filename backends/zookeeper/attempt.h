/* One claim that is being acquired or released. Shared by locks.c and permits.c.
 *
 * A claim has one node in the lock's container or, for permits, among the leases; a waiter for a permit has one in the
 * queue for leases instead. A round is one round trip: it may create a node or write, and lists every place where the
 * claim may have a node. The next requests of all claims of a batch are sent before waiting for any answer.
 */
#ifndef DLOCK_ZOOKEEPER_ATTEMPT_H
#define DLOCK_ZOOKEEPER_ATTEMPT_H

#include "zookeeper.h"

/* A place where a claim may have a node. */
struct zookeeper_slot {
    char dir[ZOOKEEPER_PATH_SIZE];
    enum zookeeper_kind kind;         /* of the node that the claim makes there */
    uint64_t *word;                   /* in dlock_claim.state */
    struct zookeeper_queue_view view; /* after a round */
    struct zookeeper_call *sent;      /* a release's unread request: a search or a deletion */
    bool missed;                      /* a release has to search for the node although its path was known */
    bool gone;                        /* a release has made sure that the claim has no node here */
};

struct zookeeper_round {
    struct zookeeper_call *call; /* NULL: no round is under way */
    struct zookeeper_slot *made;
    struct zookeeper_request *create, *write, *lists[3]; /* NULL: not sent */
    size_t containers;
    int32_t known[2];
};

struct zookeeper_attempt {
    struct zookeeper *z;
    struct dlock_claim *claim;
    struct zookeeper_label label;
    int64_t begun_us, deadline_us;
    bool dead;        /* the session is over */
    bool make, deep;  /* the container, or also its parents, have to be made */
    bool polls;       /* there was no room for a watch, so the waiter polls */
    unsigned moments; /* remaining pauses to wait for others' tries to end */
    size_t n_slots;
    struct zookeeper_slot slots[2]; /* [0]: the grant's; [1], permits only: the queue's */
    char lock[ZOOKEEPER_PATH_SIZE]; /* permits: the container of a lock of this name */
    uint32_t lock_members;          /* the number of nodes in that lock's queue */
    int64_t made_ms;                /* creation of this call's last node, by the server's clock; 0: none */
    int64_t doubt_until_us;         /* uses.c: until then another use may turn out refused; 0: none */
    int64_t older_until_us;         /* uses.c: until then older nodes of another use may go; 0: none were seen */
    bool spared;                    /* an earlier claim of the batch writes, so this one need not */
    bool had;                       /* a release has deleted a grant */
    struct zookeeper_round round;   /* sent in advance, to be read by the next zookeeper_round() */
    struct dlock_error *err;
};

/* Results of a step besides 0 and error codes: repeat the step; the views are filled. */
enum { ZOOKEEPER_AGAIN = 1, ZOOKEEPER_LOOKED = 2 };

void zookeeper_attempt_begin(struct zookeeper_attempt *a, struct zookeeper *z, struct dlock_claim *claim,
                             int64_t deadline_us, struct dlock_error *err);
/* Waits for the session, and clears the claim's state if that is of an older session. Returns 0 or EUNAVAILABLE. */
int zookeeper_attempt_ready(struct zookeeper_attempt *a);
bool zookeeper_slot_has(const struct zookeeper_slot *s, uint64_t flag);
/* Runs a round, which first makes the claim's node in `create` unless that is NULL. Returns LOOKED (the views show the
 * claim's place), AGAIN or an error. */
int zookeeper_round(struct zookeeper_attempt *a, struct zookeeper_slot *create);
/* Sends the round of the next step in advance. True: the round writes. */
bool zookeeper_round_ahead(struct zookeeper_attempt *a);
/* Discards what was sent in advance and not read. */
void zookeeper_attempt_end(struct zookeeper_attempt *a);
/* Deletes the claim's node in the slot if the view shows one. Returns 0 or an error. */
int zookeeper_leave(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* Sends a write and a listing, to search for nodes of the claim whatever is known of them. NULL: out of memory. */
struct zookeeper_call *zookeeper_search_begin(struct zookeeper_attempt *a, const struct zookeeper_slot *s);
/* Reads the answers, frees the call and fills s->view. Returns 0, AGAIN or an error. */
int zookeeper_search_end(struct zookeeper_attempt *a, struct zookeeper_slot *s, struct zookeeper_call *call);
/* Writes the path of the node that the view shows as the claim's. */
void zookeeper_found_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                          char path[ZOOKEEPER_PATH_SIZE]);
/* Writes the path of the claim's node in a slot that has ZOOKEEPER_KNOWN. */
void zookeeper_slot_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                         char path[ZOOKEEPER_PATH_SIZE]);
/* Sets a watch on the node before the claim's. Returns EBUSY (it is set, or there is no room for it), AGAIN (that node
 * has gone) or an error. */
int zookeeper_stay(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* The same for a lease with too many before it: watches the listing, since any of them may go. */
int zookeeper_stay_leased(struct zookeeper_attempt *a, struct zookeeper_slot *lease);
/* Watches the lock's container, so that the client is told (WANTED) of every further node. Returns 0 or EUNAVAILABLE
 * (out of memory). */
int zookeeper_watch_others(struct zookeeper_attempt *a);
/* Fills in the claim's grant. Returns 0 or an error. */
int zookeeper_granted(struct zookeeper_attempt *a);
/* For an answer that says nothing. Returns AGAIN after a pause, or EUNAVAILABLE when the time is over. */
int zookeeper_attempt_unknown(struct zookeeper_attempt *a);
int zookeeper_attempt_no_memory(struct zookeeper_attempt *a);

/* In uses.c. Called before a node is made; waits if the name was found in another use. Returns 0, AGAIN or the claim's
 * result. */
int zookeeper_await_use(struct zookeeper_attempt *a);
/* Called after a round. Returns 0 if the name has the claim's use, AGAIN, or the claim's result, in which case the
 * claim has no node left. `others`: nodes of another use may exist. */
int zookeeper_check_use(struct zookeeper_attempt *a, bool others);

/* In wear.c. True if the claim's node is too near to the end of the server's count to be granted anything. */
bool zookeeper_is_worn(const struct zookeeper_slot *s);
/* Deletes such a node. Returns AGAIN or an error. */
int zookeeper_retire(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* Called before a node is made where one was retired. Returns 0, AGAIN or the claim's result. */
int zookeeper_await_container(struct zookeeper_attempt *a);

/* One step of an acquisition. Returns AGAIN or the claim's result. */
int zookeeper_lock_step(struct zookeeper_attempt *a);
int zookeeper_permit_step(struct zookeeper_attempt *a);

#endif
