/* One claim that is being acquired or released: what locks.c and permits.c share.
 *
 * A claim stands with one node in the lock's container, or among the leases of a name's permits; a waiter for a permit
 * has one in the queue for leases instead. A round is one round trip: it may make a node or write, and lists every
 * place where this claim may stand. The next requests of all claims of a batch go out before any answer is waited for.
 */
#ifndef DLOCK_ZOOKEEPER_ATTEMPT_H
#define DLOCK_ZOOKEEPER_ATTEMPT_H

#include "zookeeper.h"

/* A slot: where a claim may stand with a node. */
struct zookeeper_slot {
    char dir[ZOOKEEPER_PATH_SIZE];
    enum zookeeper_kind kind;         /* of the node it makes there */
    uint64_t *word;                   /* in dlock_claim.state */
    struct zookeeper_queue_view view; /* after a round */
    struct zookeeper_call *sent;      /* by a release, and not read: the search for the claim's nodes, or a deletion */
    bool missed;                      /* a release has not found the node where it was known to be */
    bool gone;                        /* a release has found that nothing of the claim is there any more */
};

struct zookeeper_round {
    struct zookeeper_call *call; /* NULL: nothing is on its way */
    struct zookeeper_slot *made;
    struct zookeeper_request *create, *write, *lists[3]; /* NULL: not asked */
    size_t containers;
    int32_t known[2];
};

struct zookeeper_attempt {
    struct zookeeper *z;
    struct dlock_claim *claim;
    struct zookeeper_label label;
    int64_t begun_us, deadline_us;
    bool dead;        /* the session is over */
    bool make, deep;  /* the container, and its parents, were missing */
    bool polls;       /* there was no room for a watch */
    unsigned moments; /* that are left to wait for others' tries to end */
    size_t n_slots;
    struct zookeeper_slot slots[2]; /* the grant's; permits: the queue's */
    char lock[ZOOKEEPER_PATH_SIZE]; /* permits: the container of a lock of this name */
    uint32_t lock_members;          /* and how many nodes stand in the queue there */
    int64_t made_ms;                /* by the server's clock: our last node; 0: in an earlier call */
    int64_t doubt_until_us;         /* uses.c: so long others may turn out to be refused; 0: there are none */
    bool spared;                    /* an earlier claim of the batch writes */
    bool had;                       /* a release has deleted a grant */
    struct zookeeper_round round;   /* sent ahead, to be read by the next zookeeper_round() */
    struct dlock_error *err;
};

/* Results of a step, besides 0 and error codes. */
enum { ZOOKEEPER_AGAIN = 1, ZOOKEEPER_LOOKED = 2 };

void zookeeper_attempt_begin(struct zookeeper_attempt *a, struct zookeeper *z, struct dlock_claim *claim,
                             int64_t deadline_us, struct dlock_error *err);
/* Waits for the session; forgets what the claim had in an older one. 0 or EUNAVAILABLE. */
int zookeeper_attempt_ready(struct zookeeper_attempt *a);
bool zookeeper_slot_has(const struct zookeeper_slot *s, uint64_t flag);
/* LOOKED: the views show where the claim stands, AGAIN, or an error. `create`: makes the node there; NULL: none. */
int zookeeper_round(struct zookeeper_attempt *a, struct zookeeper_slot *create);
/* Sends what the next step begins with. True: it writes. */
bool zookeeper_round_ahead(struct zookeeper_attempt *a);
/* Drops what was sent ahead, and not read. */
void zookeeper_attempt_end(struct zookeeper_attempt *a);
/* Takes the claim's node away from where it stands, if it is there: 0 or an error. */
int zookeeper_leave(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* Looks for nodes of ours with a write before, whatever is known of them. NULL: out of memory. */
struct zookeeper_call *zookeeper_search_begin(struct zookeeper_attempt *a, const struct zookeeper_slot *s);
/* Takes its call over, and fills s->view: 0, AGAIN, or an error. */
int zookeeper_search_end(struct zookeeper_attempt *a, struct zookeeper_slot *s, struct zookeeper_call *call);
/* The path of the node that the view shows as ours. */
void zookeeper_found_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                          char path[ZOOKEEPER_PATH_SIZE]);
/* The path of the claim's node there, which has ZOOKEEPER_KNOWN. */
void zookeeper_slot_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                         char path[ZOOKEEPER_PATH_SIZE]);
/* EBUSY: a watch on the node before ours is set, or there is no room for one. AGAIN: that node has gone. Or an error.
 */
int zookeeper_stay(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* The same for a lease with too many before it: any of them may go. */
int zookeeper_stay_leased(struct zookeeper_attempt *a, struct zookeeper_slot *lease);
/* From now on the client hears of everybody else who asks for the lock. 0 or EUNAVAILABLE: out of memory. */
int zookeeper_watch_others(struct zookeeper_attempt *a);
/* The claim has its grant: fills it in, and returns 0. */
int zookeeper_granted(struct zookeeper_attempt *a);
/* The answer says nothing: AGAIN after a pause, or EUNAVAILABLE when the time is over. */
int zookeeper_attempt_unknown(struct zookeeper_attempt *a);
int zookeeper_attempt_no_memory(struct zookeeper_attempt *a);

/* uses.c. Before a node is made: waits, where the name was in another use. 0, AGAIN, or the claim's result. */
int zookeeper_await_use(struct zookeeper_attempt *a);
/* After a round: 0 when the name has the claim's use; `others`: nodes of another one may be there. AGAIN, or the
 * claim's result: nothing of the claim is there any more. */
int zookeeper_check_use(struct zookeeper_attempt *a, bool others);

/* wear.c. Whether the claim's node may not be granted anything. */
bool zookeeper_is_worn(const struct zookeeper_slot *s);
/* Takes that away: AGAIN, or an error. */
int zookeeper_retire(struct zookeeper_attempt *a, struct zookeeper_slot *s);
/* Before a node is made where one was retired: 0, AGAIN, or the claim's result. */
int zookeeper_await_container(struct zookeeper_attempt *a);

/* One try each: AGAIN, or the claim's result. */
int zookeeper_lock_step(struct zookeeper_attempt *a);
int zookeeper_permit_step(struct zookeeper_attempt *a);

#endif
