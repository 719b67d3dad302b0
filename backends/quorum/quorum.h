/* Makes one server of several independent ones: a lock is held as long as a majority of the members say so. The members
 * are used through other backends, which the core provides (dlock_peer.open_member).
 *
 * Every member has a thread, its worker, since a backend's operations block. Where an operation can be started without
 * blocking, the caller sends the requests to idle members itself and polls for the answers, which avoids a thread
 * switch. It hands unanswered requests to the workers when the outcome is decided, or when a member is considered
 * silent. A worker takes them over unasked if its queue needs the connection while the caller's thread is stalled, for
 * example in a signal handler. A request is split into one part per member, with copies of the claims, and returns as
 * soon as its outcome is decided: parts still in progress finish without it. A member's parts are processed in order of
 * arrival, and consecutive parts that can share a request are sent together. So the request that gives up a try is
 * executed after that try on each member, however slow. All threads of a client share these queues: the backend is
 * THREADSAFE.
 *
 * Waiters queue at one member, the gate. Only after the gate has granted a waiter its vote are the others asked, all at
 * once. Until then the waiter keeps its place at the gate, or the vote, under the token of the try that got it. Twice a
 * second each waiting writer asks all members regardless of the gate, so that no single member can keep a client out.
 *
 * Readers have a majority of shared votes, which excludes a majority of exclusive ones, and the reverse. Only the gate
 * knows of writers that wait, so a reader also needs its vote: else a stream of readers would keep writers out for
 * ever. A vote that a dead client has left at the gate keeps readers out until its lease ends.
 *
 * There is no state outside the connection. All data that a worker needs is reference-counted. A worker that is stuck
 * in a request to a silent member when the connection is closed ends with that request, and frees the rest.
 *
 * The files; each calls those below it only:
 *   quorum
 *   acquire  inspect
 *   claims
 *   request  check
 *   votes
 *   round
 *   direct
 *   worker
 *   look
 *   gate
 *   settings */
#ifndef DLOCK_QUORUM_H
#define DLOCK_QUORUM_H

#include <dlock/backend_socket.h>

#include <pthread.h>
#include <stdatomic.h>

enum { QUORUM_LEAST = 3, QUORUM_MOST = 9 };

/* Indexes of dlock_claim.state: the claim's fence, once it is granted, after which the same acquire again is a renewal;
 * the number of tries; its place, made by quorum_place(), or 0; the time of the last try at all members or, of a grant,
 * since when renewals find members without it, 0: none is. Each try has a different token at the members, so that a late
 * duplicate of the request that gave one up does not affect the next. Only the member where the claim has its place keeps
 * the token of an earlier try. */
enum { QUORUM_FENCE, QUORUM_TRIES, QUORUM_PLACE, QUORUM_LOOKED };

/* Returns a place: the member, and the number of the try whose token it knows. */
static inline uint64_t quorum_place(size_t member, uint64_t try) {
    return try << 8 | (member + 1);
}
/* Returns the index of a place's member; greater than every index if there is no place. */
static inline size_t quorum_place_at(uint64_t place) {
    return (size_t)(place & 0xff) - 1;
}

/* The backend's only URI key. */
#define QUORUM_KEY "of"

enum quorum_part_state {
    QUORUM_UNUSED, /* the member is not asked */
    QUORUM_LINED_UP,
    QUORUM_RUNNING, /* the worker, or the caller, is using its claims */
    QUORUM_DONE
};

/* What a request to a member can be beside an enum dlock_operation. Such a request has one claim, of which only the name
 * means something, and is not sent together with others. */
enum { QUORUM_INSPECT = DLOCK_RELEASE + 1, QUORUM_LIST, QUORUM_BREAK };

/* A holder that a member has shown. Its texts are behind it. */
struct quorum_seen {
    struct quorum_seen *next;
    size_t member; /* the member's index */
    struct dlock_info info;
};

/* What one member or all have shown. */
struct quorum_look {
    struct quorum_seen *first;
    size_t n;
    size_t member;    /* which one it is */
    bool full;        /* there was no memory for more */
    bool more;        /* LIST: there are more pages */
    char cursor[256]; /* LIST */
};

/* One member's share of a request. */
struct quorum_part {
    struct quorum_round *round;
    struct quorum_part *next; /* in the member's queue */
    enum quorum_part_state state;
    bool sent;  /* it was sent, or is just being sent */
    bool again; /* it was sent more than once: the connection had died, unnoticed before or with the answer */
    int rc;     /* result of the call; if not 0, the claims' results mean nothing */
    struct dlock_error err;
    struct dlock_claim *claims;
    struct quorum_look *look; /* INSPECT, LIST and BREAK; or NULL */
};

/* One request to the members. Its parts and its caller hold references. */
struct quorum_round {
    struct quorum *quorum;
    unsigned refs;
    int verb;            /* an enum dlock_operation, or QUORUM_INSPECT and so on */
    size_t n;            /* number of claims */
    int64_t deadline_us; /* its caller waits until this */
    int64_t until_us;    /* a part not begun by this time is not sent; releases are never too late, since a stalled
                          * member that resumes grants the requests left in its socket */
    bool awaited;
    bool given_up; /* parts not begun yet will not be sent */
    bool (*decided)(const struct quorum_round *round, int64_t now_us);
    uint32_t awaits; /* bit of the first usable member, whose answer may be needed although a majority has answered */
    int64_t patience_us; /* `decided` may change its mind at this time without an answer; 0: never */
    unsigned needed;     /* for `decided` */
    pthread_cond_t changed;
    uint32_t *counted; /* for each claim: bits of members assumed to have said yes */
    struct quorum_part parts[QUORUM_MOST];
};

enum quorum_member_state {
    QUORUM_CONNECTING, /* considered silent, except early in its first attempt */
    QUORUM_UP,
    QUORUM_DOWN /* no attempt to connect before retry_us */
};

struct quorum_member {
    struct quorum *quorum;
    struct dlock_member server;
    pthread_t thread;
    bool started, ended;
    pthread_cond_t work;
    enum quorum_member_state state;
    bool told_down;                   /* a message about that was logged */
    struct dlock_error why;           /* why it is not UP */
    int64_t retry_us, pause_us;       /* time of, and pause before, the next attempt to connect */
    bool tried;                       /* its first attempt to connect has ended */
    int64_t busy_us;                  /* since when a part is in progress, or the worker connecting; 0: it is idle */
    struct quorum_part *polled;       /* a caller has sent its request, and polls for the answer */
    struct quorum_part *begun;        /* its request was sent by the caller, and the worker is to read the answer */
    bool passed_by;                   /* the worker was woken while a caller used the connection */
    bool used;                        /* the connection has carried a request without failing */
    struct quorum_part *first, *last; /* its queue */
    size_t lined_up;
    atomic_bool live; /* `conn` may have descriptors; read in a forked child */
    void *conn;

    int64_t unready_until_us; /* it has said that it grants nothing until then */
    bool hears;               /* `ear` is listening, and used under the mutex by the thread that reads wake-ups */
    int64_t listen_us;        /* earliest next attempt to listen */
    bool probing;             /* the last probe is unanswered */
    int64_t probed_us;        /* when it was sent */
    int ear_fd;
    atomic_bool ear_live; /* the same for `ear` */
    void *ear;
};

/* The connection and each worker hold a reference. */
struct quorum {
    pthread_mutex_t mutex;  /* guards everything that is not marked otherwise; never held across blocking calls */
    pthread_cond_t changed; /* signals changes of a member's state, and the end of a worker or a check */
    unsigned refs;
    bool closing;
    size_t n, majority;
    uint64_t random;
    int64_t contended_until_us;      /* until then waiters ask the gate first */
    struct quorum_request *renewals; /* those in progress */

    bool listening;      /* the core listens for wake-ups */
    int event, epoll;    /* descriptors: event signals `look`; epoll polls event and the ears; -1: none */
    bool look;           /* all waiters have to retry */
    uint64_t handed[16]; /* hashes of names that the gate has granted to waiters */
    char woken[256];     /* name of the last wake-up */

    bool checking; /* a thread uses check_conn, which has room for a connection to any member */
    void *check_conn;
    struct quorum_member *_Atomic checked; /* check_conn may have descriptors, of a connection to this one; or NULL */
    struct quorum_member members[QUORUM_MOST];
};

struct quorum_conn {
    struct quorum *quorum; /* NULL: not connected */
    const struct dlock_peer *peer;
};

/* ---- settings.c: the URI ---- */

int quorum_accepts(const struct dlock_uri *uri, struct dlock_error *err);
/* Opens the members. Returns 0, EINVAL, ENOTSUP, or as dlock_peer.open_member. */
int quorum_open_members(struct quorum *quorum, const struct dlock_uri *uri, const struct dlock_peer *peer,
                        struct dlock_error *err);
void quorum_close_members(struct quorum *quorum);

/* ---- gate.c: with the mutex ---- */

/* True if no answer can be expected soon from a member that has a part to answer. Otherwise lowers *at_us to the time
 * at which the member will be considered silent, if that is earlier. */
bool quorum_is_silent(const struct quorum_member *member, int64_t now_us, int64_t *at_us);
/* Returns the first member at which waiters can queue; NULL: none of those that are up. */
struct quorum_member *quorum_first(struct quorum *quorum, int64_t now_us);
/* Returns the gate, that member, if this client listens there; NULL: there is none at the moment. */
struct quorum_member *quorum_gate(struct quorum *quorum, int64_t now_us);
/* Called when the gate may have changed: all waiters retry, and each worker checks whether it has to listen. */
void quorum_gate_moved(struct quorum *quorum);
/* True if the gate has granted the name to a waiter of this client since the last call. */
bool quorum_was_handed(struct quorum *quorum, const char *name);
/* The first gives up the member's `ear`; the second does so after the member has said that it cannot reach it; the
 * third probes it, and gives it up if the last probe was not answered. */
void quorum_deafen(struct quorum_member *member);
void quorum_unheard(struct quorum_member *member, int64_t now_us);
void quorum_probe_gate(struct quorum_member *member, int64_t now_us);
/* Makes the worker begin or end listening if necessary. Releases the mutex while doing so. */
void quorum_tend_ear(struct quorum_member *member, int64_t now_us);
/* Operations of the backend; they take the mutex themselves. */
int quorum_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int quorum_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);

/* ---- worker.c: all but the last two expect the mutex ---- */

/* As pthread_cond_timedwait by the clock of dlock_now_us(); may return early. */
void quorum_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us);
void quorum_cond_init(pthread_cond_t *cond);
/* Starts the member's worker, which gets a reference. Returns 0 or ENOMEM. */
int quorum_start_worker(struct quorum_member *member, struct dlock_error *err);
/* Appends the part, which holds a reference to the round, to the member's queue. Answers it at once if waiting is
 * pointless, because the member is down or its queue is full. */
void quorum_line_up(struct quorum_member *member, struct quorum_part *part);
/* Runs one part, whose request the caller has sent, until it is answered, but for most_ms at most, after which the
 * member is down. Releases the mutex while waiting. For the worker, or for a caller that has marked the member as
 * busy. */
void quorum_read_answer(struct quorum_member *member, struct quorum_part *part, int most_ms);
/* Drops a reference to a round. */
void quorum_round_put(struct quorum_round *round);
/* Drops a reference. Called without the mutex. */
void quorum_put(struct quorum *quorum);

/* ---- direct.c: with the mutex ---- */

/* Sends the request to those members in `mask` that are idle and can begin it. Returns their bits. */
uint32_t quorum_send(struct quorum_round *round, uint32_t mask, int fds[QUORUM_MOST]);
/* Reads the answers of these members until shortly after the request is decided, and leaves the rest to the workers,
 * which may take parts over even earlier. Releases the mutex while waiting. */
void quorum_read(struct quorum_round *round, uint32_t sent, const int fds[QUORUM_MOST]);

/* ---- round.c ---- */

/* Creates a request about copies of n claims, with `counted` zeroed; the caller gets a reference. NULL: out of
 * memory. */
struct quorum_round *quorum_round_new(struct quorum *quorum, int verb, struct dlock_claim *const *claims, size_t n,
                                      int64_t deadline_us);
/* Sends the request to the members in `mask`, and waits until it is decided, or its deadline. Called with the mutex,
 * which it releases while waiting. */
void quorum_ask(struct quorum_round *round, uint32_t mask, bool (*decided)(const struct quorum_round *, int64_t));
/* Sends a request without a waiter, until until_us; takes over the caller's reference. Called with the mutex. */
void quorum_send_off(struct quorum_round *round, uint32_t mask, int64_t until_us);

/* ---- votes.c: the members' answers to one claim. With the mutex ---- */

struct quorum_votes {
    unsigned yes, busy, lost, not_ready, refused, failed; /* numbers of members; refused: with a final error */
    unsigned open, silent;        /* unanswered; silent ones are not waited for if a majority can be had without them */
    bool first_open;              /* an open one is in round->awaits */
    uint32_t said_yes, said_lost; /* bits of members */
    uint32_t unsure;              /* bits of members that may have granted it, or still may */
    uint64_t fence;               /* the greatest fence; 0: none */
    unsigned with_fence;          /* how many members have this fence */
    uint32_t have_fence;          /* bits of those members */
    int refusal;                  /* the first error of a refusal, else of a failure; 0: none */
    const struct quorum_part *refuser;
};

struct quorum_votes quorum_count(const struct quorum_round *round, size_t claim, int64_t now_us);
/* Returns how many members have answered. */
unsigned quorum_answered(const struct quorum_votes *votes);
/* Sets err to say which member refused or, for EUNAVAILABLE, that too few answer. Returns the code. */
int quorum_explain(const struct quorum_round *round, const struct quorum_votes *votes, int code,
                   struct dlock_error *err);
/* The first returns the k-th greatest time for which the members that said yes keep the claim, or 0; the second the
 * k-th least time after which the members that are not ready will be, or -1 if that is unknown. */
int64_t quorum_kept_ms(const struct quorum_round *round, size_t claim, unsigned k);
int64_t quorum_ready_ms(const struct quorum_round *round, size_t claim, unsigned k);
/* Sets DLOCK_HINT_RESENT in a claim that has a result, if members that were sent the request once do not suffice for that
 * result: the others may execute the request again, later than their answer. `number`: the claim's in the round. */
void quorum_note_resent(const struct quorum_round *round, size_t number, struct dlock_claim *claim);

/* ---- look.c: what the members show ------------------------------------------------------------------------------- */

/* Returns the number at index k after sorting n numbers, the least one first. */
int64_t quorum_kth(int64_t *numbers, size_t n, size_t k);
/* Runs a part that looks at a member's locks or breaks one. For the worker, without the mutex. Returns 0, the answer
 * being the claim's result, or an error of the connection. */
int quorum_look(struct quorum_member *member, struct quorum_part *part, int timeout_ms, struct dlock_error *err);
void quorum_forget(struct quorum_look *look);

/* Moves all that one has shown. */
void quorum_gather(struct quorum_look *from, struct quorum_look *to);

/* Calls `each` for every grant that may be in force, in the order of names, if this is what the members show except
 * `away` of them. Returns 0 or ENOMEM. */
int quorum_show(const struct quorum_look *look, size_t majority, unsigned away, dlock_each each, void *arg,
                struct dlock_error *err);

/* ---- request.c: the common part of all operations ---- */

enum { QUORUM_BATCH = 256 }; /* most claims of a request */

/* The state of one operation. */
struct quorum_request {
    struct quorum *quorum;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t begun_us, deadline_us;
    struct dlock_error *err;
    bool explained;                           /* `err` already describes a claim */
    struct dlock_claim *chosen[QUORUM_BATCH]; /* the claims that a second request is about */
    size_t n_chosen;
    struct quorum_request *next; /* in quorum.renewals */
    bool released[QUORUM_BATCH]; /* a renewal: the claim's release has begun since */
};

static inline uint32_t quorum_everybody(const struct quorum *quorum) {
    return (1U << quorum->n) - 1;
}

/* Begins an operation, and stores the first round in *round. Called with the mutex, which it releases on failure.
 * Returns 0 or EUNAVAILABLE (no memory), already stored as the claims' result: the operation then returns 0, since the
 * members' connections are fine. */
int quorum_begin(struct quorum_request *request, void *conn, int verb, struct dlock_claim *const *claims, size_t n,
                 int timeout_ms, struct quorum_round **round, struct dlock_error *err);
/* Sets a claim's result, and explains it in `err` unless that describes another claim already. */
void quorum_fail(struct quorum_request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                 struct dlock_claim *claim, int code);
/* Sends a request about the claims, without a waiter, until until_us. Without memory for it, leases end the grants that
 * it would have released. Called with the mutex. */
void quorum_leave_word(struct quorum *quorum, enum dlock_operation verb, struct dlock_claim *const *claims, size_t n,
                       uint32_t mask, int64_t until_us);
/* Ends the operation: releases the mutex, and logs which members have gone down or come back. */
void quorum_end(struct quorum_request *request, struct quorum_conn *conn, struct quorum_round *round);

/* ---- operations ---- */

dlock_batch quorum_acquire, quorum_renew, quorum_release;
int quorum_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);
int quorum_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int quorum_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err);
int quorum_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

#endif
