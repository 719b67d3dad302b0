/* Acquiring. A claim for a name without keys gets its lock in one transaction, which puts the claim's key if there is
 * no other. If there is one, a second transaction puts the key at the end of the queue and reads its place. If the name
 * had other keys the last time, one transaction does both. A claim that must not wait puts no key that would have to
 * wait. No key is put for a closed slot, so that an unanswered acquire can be called off (etcd_closed_slot). A key in
 * another lease than the connection's is moved by the request that reads its place.
 *
 * A claim that waits with a stream on the key that blocks it only glances at both keys. It reads its place, for which
 * etcd sorts the whole queue, when one of them has changed. */
#include "etcd.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    RETRY_MAX_MS = 30000, /* a waiter asks at least so often: its stream may have lost an event */
    WAIT_SHARE = 2,  /* waiters keep their lease alive later than other claims: they have no grant that it shortens */
    EARLY_US = 5000, /* a request may end so much before its deadline, which libcurl takes in milliseconds */
    UNWATCHED_MS = 250, /* interval at which a waiter without a stream polls */
    JOINS = 8           /* how often a reader that must not wait tries to join others while the queue changes */
};

enum stage {
    ALONE,   /* puts its key if there is no other, and reads nothing else */
    FRESH,   /* the same, and otherwise joins the queue, if it may, and reads its place */
    JOINING, /* puts its key if the queue is unchanged */
    KNOWN    /* has its key, and reads its place */
};

struct attempt {
    struct dlock_claim *claim;
    enum stage stage;
    int64_t since; /* JOINING: the revision at which the queue had room */
    int joins;
    bool moves;   /* KNOWN: the request moves the key to the lease of the round */
    bool barges;  /* FRESH: puts its key even if there are others, and deletes it again if it has to wait */
    bool glances; /* KNOWN: the request only reads the claim's key and its blocker */
    bool asked;   /* an earlier request has read more than before */
    bool over;
    char key[ETCD_KEY_SIZE];
    struct etcd_glance glance;
};

/* The claims of one request. */
struct round {
    struct etcd *z;
    struct attempt *attempts;
    size_t n;
    int64_t begun_us, deadline_us;
    int64_t until_us;        /* the deadline of one request */
    struct etcd_lease lease; /* as known before the request was sent */
    bool kept_alive;         /* after the answer to it */
    bool refused;            /* the request was, and this one only reads whether it has put keys */
    struct dlock_error *err;
};

enum { AGAIN = 1 };

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool may_stay(const struct dlock_claim *claim) {
    return claim->flags & DLOCK_CLAIM_QUEUE || claim->state[ETCD_FLAGS] & ETCD_QUEUED;
}

static atomic_bool *crowded(struct etcd *z, const char *name) {
    return &z->crowded[dlock_hash(name, strlen(name), DLOCK_HASH_SEED) % ETCD_CROWDED];
}

/* Adds the condition for putting the key. JOINING: no key of the name was put or changed since `since`. Otherwise: the
 * name has no key. A comparison without a target compares each key's version with 0, which no existing key has. */
static void add_compare(struct dlock_text *text, struct etcd *z, const struct attempt *a) {
    dlock_text_add(text, "\"compare\":[{");
    etcd_add_range(text, z, a->claim->name);
    if (a->stage == JOINING)
        dlock_text_add(text, ",\"target\":\"MOD\",\"result\":\"LESS\",\"mod_revision\":\"%" PRId64 "\"", a->since + 1);
    dlock_text_add(text, "},");
    etcd_add_if_open(text, z, a->claim);
    dlock_text_add(text, "],");
}

static bool joins(const struct attempt *a) {
    return a->stage == FRESH && (a->barges || may_stay(a->claim));
}

/* Puts its key even if there are others. */
static void add_join(struct dlock_text *text, const struct round *r, const struct attempt *a) {
    dlock_text_add(text, "{\"request_txn\":{\"compare\":[");
    etcd_add_if_open(text, r->z, a->claim);
    dlock_text_add(text, "],\"success\":[");
    etcd_add_put(text, a->claim, a->key, r->lease.id);
    dlock_text_add(text, "]}},");
}

static void add_transaction(struct dlock_text *text, const struct round *r, const struct attempt *a) {
    dlock_text_add(text, "{");
    if (a->stage != KNOWN) {
        add_compare(text, r->z, a);
        dlock_text_add(text, "\"success\":[");
        etcd_add_put(text, a->claim, a->key, r->lease.id);
        if (a->stage == ALONE) {
            dlock_text_add(text, "]}");
            return;
        }
        dlock_text_add(text, "],\"failure\":[");
        if (joins(a)) add_join(text, r, a);
    } else {
        dlock_text_add(text, "\"success\":[");
        if (a->moves) {
            etcd_add_move(text, r->z, a->claim, a->key, r->lease.id);
            dlock_text_add(text, ",");
        }
    }
    if (a->glances)
        etcd_add_glance(text, a->key, a->glance.blocker);
    else
        etcd_add_view(text, r->z, a->claim, a->key);
    dlock_text_add(text, "]}");
}

/* Prepares the claim for this request. */
static void prepare(const struct round *r, struct attempt *a) {
    uint64_t *state = a->claim->state;
    if (!etcd_slot(a->claim)) etcd_take_slot(r->z, a->claim);
    if (a->stage == ALONE && atomic_load(crowded(r->z, a->claim->name))) a->stage = FRESH;
    if (state[ETCD_REVISION]) a->stage = KNOWN;
    if (a->stage != KNOWN) state[ETCD_LEASE] = (uint64_t)r->lease.id; /* of an earlier request: it has put no key */
    a->moves = a->stage == KNOWN && state[ETCD_LEASE] != (uint64_t)r->lease.id;
    a->glances =
        a->stage == KNOWN && !a->moves && !a->asked && etcd_watched(r->z, a->claim, &a->glance) && *a->glance.blocker;
    if (a->stage != KNOWN && a->claim->mode == DLOCK_EXCLUSIVE) state[ETCD_FLAGS] |= ETCD_WRITER;
    etcd_key(&r->z->address, a->claim, a->key);
}

static int no_slot(const struct round *r) {
    return dlock_fail(r->err, DLOCK_EUNAVAILABLE,
                      "the connection to etcd at %s has %d claims, or had as many that were not answered: no more are "
                      "possible in its lease",
                      r->z->address.where, ETCD_SLOTS);
}

static int send_round(struct round *r, size_t pending, struct etcd_reply *reply) {
    struct dlock_text body = {NULL, 0, 0, false};
    enum etcd_repeat repeat = ETCD_REPEAT;
    bool first = true;
    if (pending > 1) dlock_text_add(&body, "{\"success\":[");
    for (size_t i = 0; i < r->n; i++) {
        struct attempt *a = &r->attempts[i];
        if (a->over) continue;
        prepare(r, a);
        if (!etcd_slot(a->claim)) {
            dlock_text_free(&body);
            reply->settled = false;
            return no_slot(r);
        }
        if (a->stage != KNOWN) repeat = ETCD_ONCE; /* a put that arrives late would stay: not to be repeated */
        if (pending > 1) dlock_text_add(&body, "%s{\"request_txn\":", first ? "" : ",");
        add_transaction(&body, r, a);
        if (pending > 1) dlock_text_add(&body, "}");
        first = false;
    }
    if (pending > 1) dlock_text_add(&body, "]}");
    return etcd_post(r->z, "/v3/kv/txn", &body, repeat, r->until_us, reply, r->err);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Deletes the claim's key, closes its slot if an acquire may still put the key, and returns `result`, AGAIN or an
 * error. */
static int leave(const struct round *r, struct attempt *a, int result) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    if (a->claim->state[ETCD_FLAGS] & ETCD_UNSURE) {
        dlock_text_add(&body, "{\"success\":[");
        etcd_add_close(&body, r->z, a->claim, r->lease.id);
        dlock_text_add(&body, ",{\"request_txn\":");
        etcd_add_delete(&body, a->claim, a->key);
        dlock_text_add(&body, "}]}");
    } else {
        etcd_add_delete(&body, a->claim, a->key);
    }
    int rc = etcd_post(r->z, "/v3/kv/txn", &body, ETCD_REPEAT, r->deadline_us, &reply, NULL);
    if (rc == 0) etcd_reply_end(&reply);
    if (rc == ETCD_LEASE_GONE) {
        etcd_lease_gone(r->z, r->lease.id);
        return AGAIN;
    }
    if (rc != 0) return dlock_fail(r->err, DLOCK_EUNAVAILABLE, "no answer from etcd at %s", r->z->address.where);
    etcd_give_slot(r->z, a->claim);
    memset(a->claim->state, 0, sizeof a->claim->state);
    return result;
}

/* The same for a claim that has no key. */
static int leave_nothing(const struct round *r, struct attempt *a, int result) {
    if (!etcd_give_slot(r->z, a->claim)) return leave(r, a, result);
    memset(a->claim->state, 0, sizeof a->claim->state);
    return result;
}

static int refuse_use(const struct round *r, struct attempt *a, const struct etcd_view *view) {
    char used[32] = "a lock", asked[32] = "a lock";
    int rc = view->own ? leave(r, a, DLOCK_EINVAL) : leave_nothing(r, a, DLOCK_EINVAL);
    if (rc != DLOCK_EINVAL) return rc;
    if (view->used == DLOCK_PERMIT) snprintf(used, sizeof used, "%" PRIu32 " permits", view->used_limit);
    if (a->claim->mode == DLOCK_PERMIT) snprintf(asked, sizeof asked, "%" PRIu32 " permits", a->claim->limit);
    return dlock_fail(r->err, DLOCK_EINVAL, "\"%.200s\" is in use as %s, and cannot be asked for as %s", a->claim->name,
                      used, asked);
}

/* The leader has changed: the claim's key, which is there, has to be moved, and its place looked at again. */
static int look_again(struct round *r, struct attempt *a) {
    struct etcd_lease anew;
    a->stage = KNOWN;
    int rc = r->kept_alive ? 0 : etcd_keep_alive(r->z, r->deadline_us, &anew, r->err);
    if (rc < 0) return rc;
    r->kept_alive = true;
    return dlock_now_us() < r->deadline_us ? AGAIN : etcd_unsettled(r->z, r->err);
}

static int granted(struct round *r, struct attempt *a, uint64_t term) {
    struct dlock_claim *claim = a->claim;
    int64_t kept_ms = etcd_kept_ms(&r->lease, term, r->begun_us);
    if (kept_ms == 0) return look_again(r, a);
    if (claim->state[ETCD_REVISION] >= ETCD_FENCE_END)
        return dlock_fail(r->err, DLOCK_EPROTO, "etcd at %s has a revision too large for a fence", r->z->address.where);
    claim->fence = claim->state[ETCD_REVISION];
    claim->kept_ms = kept_ms;
    claim->state[ETCD_FLAGS] |= ETCD_QUEUED | ETCD_GRANTED;
    etcd_unwatch(r->z, claim);
    return 0;
}

/* The next request keeps the lease alive. Then a standstill of 38 % of the TTL leaves an eighth of it. */
static int64_t retry_ms(const struct round *r) {
    int64_t age_ms = (dlock_now_us() - r->lease.sent_us) / 1000, left_ms = r->lease.ttl_ms / WAIT_SHARE - age_ms;
    if (left_ms < 1) return 1;
    return left_ms < RETRY_MAX_MS ? left_ms : RETRY_MAX_MS;
}

/* A waiter whose lease was kept alive, and whose stream is silent, need not ask each time. */
static void let_rest(struct round *r, size_t *pending) {
    for (size_t i = 0; i < r->n; i++) {
        struct attempt *a = &r->attempts[i];
        const uint64_t *state = a->claim->state;
        if (a->over || a->asked || !state[ETCD_REVISION] || state[ETCD_LEASE] != (uint64_t)r->lease.id) continue;
        if (!etcd_watched(r->z, a->claim, &a->glance) || a->glance.silent_us >= RETRY_MAX_MS * 1000) continue;
        a->over = true;
        a->claim->result = DLOCK_EBUSY;
        a->claim->retry_ms = retry_ms(r);
        --*pending;
    }
}

static int busy(struct round *r, struct attempt *a, const struct etcd_view *view, const struct etcd_reply *reply) {
    struct dlock_claim *claim = a->claim;
    if (!may_stay(claim)) return view->own ? leave(r, a, DLOCK_EBUSY) : DLOCK_EBUSY;
    if (reply->term != r->lease.term) return look_again(r, a);
    claim->state[ETCD_FLAGS] |= ETCD_QUEUED;
    claim->retry_ms = retry_ms(r);
    if (!etcd_watch(r->z, claim, view, reply->revision)) claim->retry_ms = UNWATCHED_MS;
    return DLOCK_EBUSY;
}

/* The name's keys were read, and none of them is the claim's. */
static int not_there(struct round *r, struct attempt *a, const struct etcd_view *view, int64_t revision) {
    if (a->stage == KNOWN) { /* another client has deleted the key */
        a->stage = ALONE;
        return leave_nothing(r, a, r->refused ? DLOCK_EUNAVAILABLE : AGAIN); /* refused: err says why */
    }
    if (view->blocked || a->joins++ == JOINS) return leave_nothing(r, a, DLOCK_EBUSY);
    a->barges = a->claim->state[ETCD_FLAGS] & ETCD_DEEP; /* the other keys may change all the time */
    a->stage = a->barges ? FRESH : JOINING;
    a->since = revision;
    return AGAIN;
}

static int read_attempt(struct round *r, struct attempt *a, const json_t *transaction, const struct etcd_reply *reply) {
    bool put = a->stage != KNOWN && json_is_true(json_object_get(transaction, "succeeded"));
    size_t at = a->moves || joins(a) ? 1 : 0;
    struct etcd_view view;
    enum etcd_moved moved = ETCD_MOVED;
    a->asked = true;
    if (a->glances) {
        view = (struct etcd_view){.blocker = a->glance.blocker};
        return etcd_read_glance(transaction, a->claim, a->glance.seen) ? busy(r, a, &view, reply) : AGAIN;
    }
    if (a->moves) {
        const json_t *nested = etcd_response(transaction, 0, "response_txn");
        if (!nested) return etcd_nonsense(r->z, "answer", r->err);
        moved = etcd_read_move(nested, a->claim, r->lease.id);
        if (moved == ETCD_ELSEWHERE) return AGAIN;
    }
    if (a->stage != KNOWN) atomic_store(crowded(r->z, a->claim->name), !put);
    if (!put && a->stage == ALONE) {
        a->stage = FRESH;
        return AGAIN;
    }
    if (put) {
        if (reply->revision <= 0) return etcd_nonsense(r->z, "revision", r->err);
        a->claim->state[ETCD_REVISION] = (uint64_t)reply->revision;
        return granted(r, a, reply->term);
    }
    if (!etcd_read_view(r->z, transaction, at, a->claim, a->key, &view))
        return etcd_nonsense(r->z, "list of keys", r->err);
    if (view.own) a->claim->state[ETCD_REVISION] = (uint64_t)view.own;
    if (view.own && moved == ETCD_GONE) return AGAIN; /* deleted, and put by a late request: it is not moved yet */
    if (view.deep && (view.own || a->stage != KNOWN)) {
        a->claim->state[ETCD_FLAGS] |= ETCD_DEEP;
        return AGAIN;
    }
    if (view.misused) return refuse_use(r, a, &view);
    if (!view.own) return not_there(r, a, &view, reply->revision);
    if (view.cut) {
        a->stage = KNOWN;
        return AGAIN;
    }
    return view.blocked ? busy(r, a, &view, reply) : granted(r, a, reply->term);
}

/* ---- the operation ----------------------------------------------------------------------------------------------- */

static void end_all(struct round *r, int result) {
    for (size_t i = 0; i < r->n; i++) {
        if (!r->attempts[i].over) r->attempts[i].claim->result = result;
        r->attempts[i].over = true;
    }
}

/* A claim of an older lease whose acquire was not answered starts over: a key that may or may not exist cannot be
 * moved. */
static int call_off_unsure(struct round *r) {
    int rc = 0;
    for (size_t i = 0; i < r->n && rc == 0; i++) {
        struct attempt *a = &r->attempts[i];
        const uint64_t *state = a->claim->state;
        bool unsure = state[ETCD_FLAGS] & ETCD_UNSURE && !state[ETCD_REVISION];
        if (a->over || !unsure || state[ETCD_LEASE] == (uint64_t)r->lease.id) continue;
        etcd_key(&r->z->address, a->claim, a->key);
        a->stage = ALONE;
        rc = leave(r, a, 0);
    }
    return rc;
}

/* A request was not answered. A claim for which there was no slot has not been in it. */
static void note_unsure(struct round *r) {
    for (size_t i = 0; i < r->n; i++) {
        const struct attempt *a = &r->attempts[i];
        if (!a->over && a->stage != KNOWN && etcd_slot(a->claim)) a->claim->state[ETCD_FLAGS] |= ETCD_UNSURE;
    }
}

/* The request was refused, for example because etcd is out of space. Its keys will no longer be put, but may have been
 * already. A claim whose key does not exist needs no release; one that closed the slot would be refused as well. */
static int look_for_keys(struct round *r, size_t pending, struct etcd_reply *reply) {
    for (size_t i = 0; i < r->n; i++)
        if (!r->attempts[i].over) r->attempts[i].stage = KNOWN;
    r->refused = true;
    int rc = send_round(r, pending, reply);
    for (size_t i = 0; i < r->n && rc == ETCD_LEASE_GONE; i++)
        if (!r->attempts[i].claim->state[ETCD_REVISION]) r->attempts[i].stage = ALONE;
    return rc;
}

/* True if all unfinished claims of the round have their keys. */
static bool all_wait(const struct round *r) {
    for (size_t i = 0; i < r->n; i++)
        if (!r->attempts[i].over && !r->attempts[i].claim->state[ETCD_REVISION]) return false;
    return true;
}

/* A claim that waits loses its place when its lease ends. So a request for such claims, which may be sent again, gets
 * only the time after which the lease has to be kept alive. */
static int64_t request_deadline(const struct round *r) {
    int64_t until_us = dlock_now_us() + r->z->address.ttl_s * INT64_C(1000000) / ETCD_KEEP_SHARE;
    return all_wait(r) && until_us < r->deadline_us ? until_us : r->deadline_us;
}

static bool may_ask_again(const struct round *r, int rc) {
    return rc == DLOCK_EUNAVAILABLE && r->until_us < r->deadline_us && dlock_now_us() > r->until_us - EARLY_US;
}

/* Sends one request for all unfinished claims. Returns 0, AGAIN or a code. */
static int run_once(struct round *r, size_t pending) {
    struct etcd_reply reply;
    r->kept_alive = r->refused = false;
    r->until_us = request_deadline(r);
    int rc = etcd_lease(r->z, all_wait(r) ? WAIT_SHARE : ETCD_KEEP_SHARE, r->until_us, &r->lease, r->err);
    if (rc == 0) rc = call_off_unsure(r);
    if (rc == 0) let_rest(r, &pending);
    if (rc != 0 || pending == 0) return rc;
    r->until_us = request_deadline(r);
    rc = send_round(r, pending, &reply);
    if (rc == DLOCK_EUNAVAILABLE && reply.settled) rc = look_for_keys(r, pending, &reply);
    if (rc == ETCD_LEASE_GONE) {
        etcd_lease_gone(r->z, r->lease.id);
        return AGAIN;
    }
    if (rc < 0) note_unsure(r);
    if (rc != 0) return rc;
    for (size_t i = 0, at = 0; i < r->n; i++) {
        struct attempt *a = &r->attempts[i];
        if (a->over) continue;
        const json_t *transaction = pending > 1 ? etcd_response(reply.body, at++, "response_txn") : reply.body;
        int result = transaction ? read_attempt(r, a, transaction, &reply) : etcd_nonsense(r->z, "answer", r->err);
        a->over = result != AGAIN;
        if (a->over) a->claim->result = result;
    }
    etcd_reply_end(&reply);
    return 0;
}

static int run(struct round *r) {
    for (bool late = false;; late = dlock_now_us() >= r->deadline_us) {
        size_t pending = 0;
        for (size_t i = 0; i < r->n; i++) pending += !r->attempts[i].over;
        if (pending == 0) return 0;
        int rc = late ? dlock_fail(r->err, DLOCK_EUNAVAILABLE, "no answer in time from etcd at %s", r->z->address.where)
                      : run_once(r, pending);
        if (rc >= 0 || (!late && may_ask_again(r, rc))) continue;
        end_all(r, rc);
        return etcd_verdict(r->z, rc);
    }
}

int etcd_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct attempt one, *all = n > 1 ? malloc((n < ETCD_BATCH ? n : ETCD_BATCH) * sizeof *all) : &one;
    const size_t room = n > 1 && all ? ETCD_BATCH : 1;
    struct round r = {.z = etcd_of(conn), .attempts = all ? all : &one, .err = err};
    int rc = 0;
    r.begun_us = dlock_now_us();
    r.deadline_us = dlock_deadline_us(timeout_ms);
    for (size_t done = 0; done < n && rc == 0; done += r.n) {
        r.n = n - done < room ? n - done : room;
        for (size_t i = 0; i < r.n; i++) r.attempts[i] = (struct attempt){.claim = claims[done + i]};
        rc = run(&r);
    }
    if (all != &one) free(all);
    return rc;
}
