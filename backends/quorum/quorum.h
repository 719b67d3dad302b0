/* A majority of independent servers as one: a lock is held as long as most of the members say so. How each member is
 * talked to is another backend's matter, which the core lends (dlock_peer.open_member).
 *
 * Every member has a thread, its worker, since a backend's operations block. A request becomes one part for each
 * member, with copies of the claims, and returns as soon as its outcome is decided: a part that is still on the way then
 * goes on without it. The parts of a member are worked on in the order in which they came, those that can go together in
 * one request, so that what gives up a try is executed behind that, on each member, however slow. All threads of a client
 * share these lines: the backend is THREADSAFE.
 *
 * Waiters queue at one member, the gate, and ask the others only when that has granted them its vote: then they ask all at
 * once. Meanwhile they keep their place there, or the vote, under the token of the try that got it. Twice a second they
 * ask all members whatever the gate says, so that no member alone keeps anybody out.
 *
 * State outside the connection: none. What a worker needs is counted by references; one that hangs in a request to a
 * silent member when the connection is closed ends when that does, and frees what it has.
 *
 * The files; each calls those below it only:
 *   quorum
 *   acquire  claims
 *   request  check
 *   votes
 *   round
 *   worker
 *   gate
 *   settings */
#ifndef DLOCK_QUORUM_H
#define DLOCK_QUORUM_H

#include <dlock/backend_socket.h>

#include <pthread.h>
#include <stdatomic.h>

enum { QUORUM_LEAST = 3, QUORUM_MOST = 9 };

/* What a claim's `state` keeps: its fence, once it is granted; how often it was asked for; its place, which
 * quorum_place() makes, or 0; when all members were asked for it last. Members know each of these tries by a token of its
 * own, so that a late duplicate of what gave one up does nothing to the next. One member goes on with that of an earlier
 * try: the one where it has its place. */
enum { QUORUM_FENCE, QUORUM_TRIES, QUORUM_PLACE, QUORUM_LOOKED };

/* The member, and the try whose token it knows. */
static inline uint64_t quorum_place(size_t member, uint64_t try) {
    return try << 8 | (member + 1);
}
/* What is greater than each of a member: none. */
static inline size_t quorum_place_at(uint64_t place) {
    return (size_t)(place & 0xff) - 1;
}

/* The only key of its own. */
#define QUORUM_KEY "of"

enum quorum_verb { QUORUM_ACQUIRE, QUORUM_RENEW, QUORUM_RELEASE };

enum quorum_part_state {
    QUORUM_UNUSED, /* the member is not asked */
    QUORUM_LINED_UP,
    QUORUM_RUNNING, /* its claims belong to the worker */
    QUORUM_DONE
};

/* One member's share of a request. */
struct quorum_part {
    struct quorum_round *round;
    struct quorum_part *next; /* in the member's line */
    enum quorum_part_state state;
    bool sent;  /* or about to be */
    bool again; /* for the second time: the connection had died unnoticed */
    int rc;     /* of the call; then the claims' results mean nothing */
    struct dlock_error err;
    struct dlock_claim *claims;
};

/* One request to the members. Freed with the last of its parts and its caller. */
struct quorum_round {
    struct quorum *quorum;
    unsigned refs;
    enum quorum_verb verb;
    size_t n;            /* claims */
    int64_t deadline_us; /* nobody waits for it after this */
    int64_t until_us;    /* a part that was not begun by then is not sent */
    bool awaited;
    bool given_up; /* parts that were not begun are not sent */
    bool (*decided)(const struct quorum_round *round, int64_t now_us);
    pthread_cond_t changed;
    uint32_t *counted; /* for each claim: bits of members that count as if they had said yes */
    struct quorum_part parts[QUORUM_MOST];
};

enum quorum_member_state {
    QUORUM_CONNECTING, /* silent, but for a moment when it does so for the first time */
    QUORUM_UP,
    QUORUM_DOWN /* until retry_us */
};

struct quorum_member {
    struct quorum *quorum;
    struct dlock_member server;
    pthread_t thread;
    bool started, ended;
    pthread_cond_t work;
    enum quorum_member_state state;
    bool told_down;                   /* the log has it */
    struct dlock_error why;           /* it is not UP */
    int64_t retry_us, pause_us;       /* the next attempt to connect */
    bool tried;                       /* it has connected, or failed to */
    int64_t busy_us;                  /* since when it works on a part, or connects; 0: it does not */
    bool used;                        /* the connection has carried a request */
    struct quorum_part *first, *last; /* its line */
    size_t lined_up;
    atomic_bool live; /* `conn` may own descriptors: read in a forked child */
    void *conn;
    atomic_bool checking; /* the same for the doctor's */
    void *check_conn;

    int64_t unready_until_us; /* it has said that it grants nothing before */
    bool hears;               /* `ear` brings wake-ups, and is the thread's that reads them, with the mutex */
    int64_t listen_us;        /* not to be connected anew before */
    int64_t probed_us;        /* since when a probe is unanswered; 0: none is */
    int ear_fd;
    atomic_bool ear_live; /* as `live` */
    void *ear;
};

/* Freed with the connection and the last worker. */
struct quorum {
    pthread_mutex_t mutex;  /* guards all that is not marked otherwise; nothing blocks with it */
    pthread_cond_t changed; /* a member's state, or a worker's end */
    unsigned refs;
    bool closing;
    size_t n, majority;
    uint64_t random;
    int64_t contended_until_us; /* waiters ask the gate alone at first */

    bool listening;      /* somebody reads wake-ups */
    int event, epoll;    /* descriptors: `look` was set; this, and the ears; -1: none */
    bool look;           /* everybody should ask again */
    uint64_t handed[16]; /* names that the gate has handed to a waiter, by their hashes */
    char woken[256];     /* the last wake-up's name */
    struct quorum_member members[QUORUM_MOST];
};

struct quorum_conn {
    struct quorum *quorum; /* NULL: not connected */
    const struct dlock_peer *peer;
};

/* ---- settings.c: the URI ---- */

int quorum_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Opens the members. EINVAL, ENOTSUP, as dlock_peer.open_member. */
int quorum_open_members(struct quorum *quorum, const struct dlock_uri *uri, const struct dlock_peer *peer,
                        struct dlock_error *err);
void quorum_close_members(struct quorum *quorum);

/* ---- gate.c: with the mutex ---- */

/* Whether no answer is to be expected soon from a member that has a part to answer. *at_us becomes less where it will
 * count as silent at that time. */
bool quorum_is_silent(const struct quorum_member *member, int64_t now_us, int64_t *at_us);
/* The member at which waiters queue; NULL: there is none at the moment. */
struct quorum_member *quorum_gate(struct quorum *quorum, int64_t now_us);
/* It may be another one than before: everybody asks again, and each worker looks whether it has to listen. */
void quorum_gate_moved(struct quorum *quorum);
/* Whether the gate has handed the name to a waiter of this client since the last call. */
bool quorum_was_handed(struct quorum *quorum, const char *name);
/* Wake-ups do not come any more; they do not, says the member; they may not. */
void quorum_deafen(struct quorum_member *member);
void quorum_unheard(struct quorum_member *member, int64_t now_us);
void quorum_probe_gate(struct quorum_member *member, int64_t now_us);
/* The worker begins or ends to listen, if it is to; leaves the mutex meanwhile. */
void quorum_tend_ear(struct quorum_member *member, int64_t now_us);
/* Operations. */
int quorum_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int quorum_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);

/* ---- worker.c: all but the last two expect the mutex ---- */

/* As pthread_cond_timedwait by the clock of dlock_now_us; it may return early. */
void quorum_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us);
void quorum_cond_init(pthread_cond_t *cond);
/* Starts the member's worker, with a reference. 0, ENOMEM. */
int quorum_start_worker(struct quorum_member *member, struct dlock_error *err);
/* Puts the part at the end of the member's line; it has a reference of the round. Answers it at once where it is of no
 * use to wait: the member is down. */
void quorum_line_up(struct quorum_member *member, struct quorum_part *part);
/* Drops a reference of a round. */
void quorum_round_put(struct quorum_round *round);
/* Drops a reference. Without the mutex. */
void quorum_put(struct quorum *quorum);

/* ---- round.c ---- */

/* A request about copies of n claims, with `counted` zeroed; the caller has a reference. NULL: out of memory. */
struct quorum_round *quorum_round_new(struct quorum *quorum, enum quorum_verb verb, struct dlock_claim *const *claims,
                                      size_t n, int64_t deadline_us);
/* Asks the members of the bits in `mask`, and waits until it is decided, or its deadline. Expects the mutex, and leaves
 * it meanwhile. */
void quorum_ask(struct quorum_round *round, uint32_t mask, bool (*decided)(const struct quorum_round *, int64_t));
/* Sends a request that nobody waits for; takes the caller's reference. Expects the mutex. */
void quorum_send_off(struct quorum_round *round, uint32_t mask, int64_t until_us);

/* ---- votes.c: what the members have said of one claim. With the mutex ---- */

struct quorum_votes {
    unsigned yes, busy, lost, not_ready, refused, failed; /* members; refused: a final error */
    unsigned open, silent;        /* not answered yet; the latter are not waited for if there is another way */
    uint32_t said_yes, said_lost; /* bits of members */
    uint32_t unsure;              /* … that may have granted it, or may do so yet */
    uint64_t fence;               /* the greatest; 0: none */
    unsigned with_fence;          /* how many of them have this one */
    uint32_t have_fence;          /* … and which */
    int refusal;                  /* the first error, of a refusal or a failure; 0: none */
    const struct quorum_part *refuser;
};

struct quorum_votes quorum_count(const struct quorum_round *round, size_t claim, int64_t now_us);
/* How many have answered at all. */
unsigned quorum_answered(const struct quorum_votes *votes);
/* Says which member refused, or, with EUNAVAILABLE, that too few answer. Returns the code. */
int quorum_explain(const struct quorum_round *round, const struct quorum_votes *votes, int code,
                   struct dlock_error *err);
/* The k-th greatest time for which the members that said yes keep the claim; the k-th least after which those that are
 * not ready yet are, -1 if that is not known. */
int64_t quorum_kept_ms(const struct quorum_round *round, size_t claim, unsigned k);
int64_t quorum_ready_ms(const struct quorum_round *round, size_t claim, unsigned k);

/* ---- request.c: what the operations have in common ---- */

enum { QUORUM_BATCH = 256 }; /* claims of a request */

/* What an operation is at. */
struct quorum_request {
    struct quorum *quorum;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t deadline_us;
    struct dlock_error *err;
    bool explained;                           /* `err` speaks of a claim */
    struct dlock_claim *chosen[QUORUM_BATCH]; /* of the claims: for a second round */
    size_t n_chosen;
};

static inline uint32_t quorum_everybody(const struct quorum *quorum) {
    return (1U << quorum->n) - 1;
}

/* Begins an operation, with the first round in *round. Expects the mutex, and leaves it on failure: EUNAVAILABLE. */
int quorum_begin(struct quorum_request *request, void *conn, enum quorum_verb verb, struct dlock_claim *const *claims,
                 size_t n, int timeout_ms, struct quorum_round **round, struct dlock_error *err);
/* A claim's result that wants an explanation: the first one of a batch gets it. */
void quorum_fail(struct quorum_request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                 struct dlock_claim *claim, int code);
int64_t quorum_longest_lease_us(struct dlock_claim *const *claims, size_t n);
/* A request about the claims that nobody waits for: what has no memory is what leases end. With the mutex. */
void quorum_leave_word(struct quorum *quorum, enum quorum_verb verb, struct dlock_claim *const *claims, size_t n,
                       uint32_t mask, int64_t for_us);
/* What members that are away are to the log. Ends the operation: leaves the mutex. */
void quorum_end(struct quorum_request *request, struct quorum_conn *conn, struct quorum_round *round);

/* ---- operations ---- */

dlock_batch quorum_acquire, quorum_renew, quorum_release;
int quorum_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

#endif
