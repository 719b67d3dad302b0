/* Acquiring. A claim whose name nobody wants has its lock by one transaction: no key of the name is there, so its own is
 * put. Else another one puts it at the end of the queue and shows its place. Where others were there the last time, both
 * are one. A claim that must not wait puts nothing where that would be in vain. */
#include "etcd.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    KEEP_SHARE = 3,     /* a waiter asks again in this part of its lease's time, which it keeps alive so */
    UNWATCHED_MS = 250, /* one that nobody wakes */
    JOINS = 8           /* tries of a reader that must not wait to join others, while the queue changes */
};

enum stage {
    ALONE,   /* puts its key if there is no other, and learns nothing else */
    FRESH,   /* the same, and else sees its place */
    JOINING, /* puts its key if the queue is as it was */
    KNOWN    /* has its key, and sees its place */
};

struct attempt {
    struct dlock_claim *claim;
    enum stage stage;
    int64_t since; /* JOINING: the queue as it was then had room */
    int joins;
    bool over;
    char key[ETCD_KEY_SIZE];
};

/* All claims of a call. */
struct round {
    struct etcd *z;
    struct attempt *attempts;
    size_t n;
    int64_t begun_us, deadline_us;
    struct etcd_lease lease; /* as it was before the request was sent */
    struct dlock_error *err;
};

enum { AGAIN = 1 };

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool may_stay(const struct dlock_claim *claim) {
    return claim->flags & DLOCK_CLAIM_QUEUE || claim->state[ETCD_FLAGS] & ETCD_QUEUED;
}

static void add_put(struct etcd_text *text, const struct attempt *a, const struct etcd_lease *lease) {
    char value[ETCD_VALUE_SIZE];
    etcd_value(a->claim, value);
    etcd_add(text, "{\"request_put\":{\"lease\":\"%" PRId64 "\",\"key\":", lease->id);
    etcd_add_base64(text, a->key);
    etcd_add(text, ",\"value\":");
    etcd_add_base64(text, value);
    etcd_add(text, "}}");
}

static atomic_bool *crowded(struct etcd *z, const char *name) {
    return &z->crowded[dlock_hash(name, strlen(name), DLOCK_HASH_SEED) % ETCD_CROWDED];
}

/* JOINING: unless a key of the name has come or was changed since. Else unless there is one: its version would not be 0,
 * with which keys are compared where nothing else is said, and of which what is not there has none. */
static void add_compare(struct etcd_text *text, struct etcd *z, const struct attempt *a) {
    etcd_add(text, "\"compare\":[{");
    etcd_add_range(text, z, a->claim->name);
    if (a->stage == JOINING)
        etcd_add(text, ",\"target\":\"MOD\",\"result\":\"LESS\",\"mod_revision\":\"%" PRId64 "\"", a->since + 1);
    etcd_add(text, "}],");
}

static void add_transaction(struct etcd_text *text, const struct round *r, const struct attempt *a) {
    etcd_add(text, "{");
    if (a->stage != KNOWN) {
        add_compare(text, r->z, a);
        etcd_add(text, "\"success\":[");
        add_put(text, a, &r->lease);
        if (a->stage == ALONE) {
            etcd_add(text, "]}");
            return;
        }
        etcd_add(text, "],\"failure\":[");
        if (a->stage == FRESH && may_stay(a->claim)) {
            add_put(text, a, &r->lease);
            etcd_add(text, ",");
        }
    } else {
        etcd_add(text, "\"success\":[");
    }
    etcd_add_view(text, r->z, a->claim, a->key);
    etcd_add(text, "]}");
}

/* A claim of an older lease has nothing at the server any more. */
static void prepare(const struct round *r, struct attempt *a) {
    uint64_t *state = a->claim->state;
    if (state[ETCD_LEASE] != (uint64_t)r->lease.id) {
        memset(state, 0, sizeof a->claim->state);
        a->stage = ALONE;
    }
    if (a->stage == ALONE && atomic_load(crowded(r->z, a->claim->name))) a->stage = FRESH;
    state[ETCD_LEASE] = (uint64_t)r->lease.id;
    if (state[ETCD_REVISION]) a->stage = KNOWN;
    if (!state[ETCD_SLOT]) state[ETCD_SLOT] = etcd_take_slot(r->z, r->lease.id);
    if (a->stage != KNOWN && a->claim->mode == DLOCK_EXCLUSIVE) state[ETCD_FLAGS] |= ETCD_WRITER;
    etcd_key(&r->z->address, a->claim, r->lease.id, a->key);
}

static int send_round(struct round *r, size_t pending, struct etcd_reply *reply) {
    struct etcd_text body = {NULL, 0, 0, false};
    enum etcd_repeat repeat = ETCD_REPEAT;
    bool first = true;
    if (pending > 1) etcd_add(&body, "{\"success\":[");
    for (size_t i = 0; i < r->n; i++) {
        struct attempt *a = &r->attempts[i];
        if (a->over) continue;
        prepare(r, a);
        if (!a->claim->state[ETCD_SLOT]) body.failed = true;
        if (a->stage != KNOWN) repeat = ETCD_ONCE; /* a put that arrives late would stay */
        if (pending > 1) etcd_add(&body, "%s{\"request_txn\":", first ? "" : ",");
        add_transaction(&body, r, a);
        if (pending > 1) etcd_add(&body, "}");
        first = false;
    }
    if (pending > 1) etcd_add(&body, "]}");
    return etcd_post(r->z, "/v3/kv/txn", &body, repeat, r->deadline_us, reply, r->err);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Takes its key out of the queue. */
static int leave(const struct round *r, struct attempt *a, int result) {
    struct etcd_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    etcd_add_delete(&body, a->claim, a->key);
    int rc = etcd_post(r->z, "/v3/kv/txn", &body, ETCD_REPEAT, r->deadline_us, &reply, NULL);
    if (rc != 0) return dlock_fail(r->err, DLOCK_EUNAVAILABLE, "no answer from etcd at %s", r->z->address.where);
    etcd_reply_end(&reply);
    if (etcd_give_slot(r->z, a->claim)) memset(a->claim->state, 0, sizeof a->claim->state);
    a->claim->state[ETCD_REVISION] = 0;
    return result;
}

/* The same where its key is not there, and nothing that is on its way puts it. */
static int leave_nothing(const struct round *r, struct attempt *a, int result) {
    if (etcd_give_slot(r->z, a->claim)) memset(a->claim->state, 0, sizeof a->claim->state);
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

static int granted(struct round *r, struct attempt *a, uint64_t term) {
    struct dlock_claim *claim = a->claim;
    int64_t kept_ms = etcd_kept_ms(&r->lease, term, r->begun_us);
    a->stage = KNOWN;
    if (kept_ms == 0) { /* another leader: prove it anew */
        struct etcd_lease anew;
        int rc = etcd_keep_alive(r->z, r->deadline_us, &anew, r->err);
        if (rc < 0) return rc;
        return dlock_now_us() < r->deadline_us
                   ? AGAIN
                   : dlock_fail(r->err, DLOCK_EUNAVAILABLE, "etcd at %s changes its leader", r->z->address.where);
    }
    if (claim->state[ETCD_REVISION] >= ETCD_FENCE_END)
        return dlock_fail(r->err, DLOCK_EPROTO, "etcd at %s has a revision too large for a fence", r->z->address.where);
    claim->fence = claim->state[ETCD_REVISION];
    claim->kept_ms = kept_ms;
    claim->state[ETCD_FLAGS] |= ETCD_QUEUED | ETCD_GRANTED;
    etcd_unwatch(r->z, claim->name);
    return 0;
}

static int busy(struct round *r, struct attempt *a, const struct etcd_view *view, int64_t revision) {
    struct dlock_claim *claim = a->claim;
    if (!may_stay(claim)) return view->own ? leave(r, a, DLOCK_EBUSY) : DLOCK_EBUSY;
    claim->state[ETCD_FLAGS] |= ETCD_QUEUED;
    claim->retry_ms = r->lease.ttl_ms / KEEP_SHARE;
    if (!etcd_watch(r->z, claim->name, view, revision)) claim->retry_ms = UNWATCHED_MS;
    return DLOCK_EBUSY;
}

/* The name's keys were shown, and none of them is ours. */
static int not_there(struct round *r, struct attempt *a, const struct etcd_view *view, int64_t revision) {
    if (a->stage == KNOWN) { /* somebody has deleted it */
        etcd_give_slot(r->z, a->claim);
        memset(a->claim->state, 0, sizeof a->claim->state);
        a->stage = ALONE;
        return AGAIN;
    }
    if (view->blocked || a->joins++ == JOINS) return leave_nothing(r, a, DLOCK_EBUSY);
    a->stage = JOINING;
    a->since = revision;
    return AGAIN;
}

static int read_attempt(struct round *r, struct attempt *a, const json_t *transaction, const struct etcd_reply *reply) {
    bool put = a->stage != KNOWN && json_is_true(json_object_get(transaction, "succeeded"));
    size_t at = a->stage == FRESH && may_stay(a->claim) ? 1 : 0;
    struct etcd_view view;
    if (a->stage != KNOWN) atomic_store(crowded(r->z, a->claim->name), !put);
    if (!put && a->stage == ALONE) {
        a->stage = FRESH;
        return AGAIN;
    }
    if (put) {
        if (reply->revision <= 0) return etcd_nonsense(r->z, "a revision", r->err);
        a->claim->state[ETCD_REVISION] = (uint64_t)reply->revision;
        return granted(r, a, reply->term);
    }
    if (!etcd_read_view(transaction, at, a->claim, a->key, &view)) return etcd_nonsense(r->z, "keys", r->err);
    if (view.own) a->claim->state[ETCD_REVISION] = (uint64_t)view.own;
    if (view.misused) return refuse_use(r, a, &view);
    if (!view.own) return not_there(r, a, &view, reply->revision);
    if (view.cut) {
        a->stage = KNOWN;
        return AGAIN;
    }
    return view.blocked ? busy(r, a, &view, reply->revision) : granted(r, a, reply->term);
}

/* ---- the operation ----------------------------------------------------------------------------------------------- */

static void end_all(struct round *r, int result) {
    for (size_t i = 0; i < r->n; i++) {
        if (!r->attempts[i].over) r->attempts[i].claim->result = result;
        r->attempts[i].over = true;
    }
}

/* One request for all that are not over. 0, AGAIN, or a code. */
static int run_once(struct round *r, size_t pending) {
    struct etcd_reply reply;
    int rc = etcd_lease(r->z, r->deadline_us, &r->lease, r->err);
    if (rc == 0) rc = send_round(r, pending, &reply);
    if (rc == ETCD_LEASE_GONE) {
        etcd_lease_gone(r->z, r->lease.id);
        return dlock_now_us() < r->deadline_us ? AGAIN : DLOCK_EUNAVAILABLE;
    }
    for (size_t i = 0; rc < 0 && i < r->n; i++)
        if (!r->attempts[i].over && r->attempts[i].stage != KNOWN)
            r->attempts[i].claim->state[ETCD_FLAGS] |= ETCD_UNSURE;
    if (rc != 0) return rc;
    for (size_t i = 0, at = 0; i < r->n; i++) {
        struct attempt *a = &r->attempts[i];
        if (a->over) continue;
        const json_t *transaction = pending > 1 ? etcd_response(reply.body, at++, "response_txn") : reply.body;
        int result = transaction ? read_attempt(r, a, transaction, &reply) : etcd_nonsense(r->z, "an answer", r->err);
        a->over = result != AGAIN;
        if (a->over) a->claim->result = result;
    }
    etcd_reply_end(&reply);
    return 0;
}

static int run(struct round *r) {
    for (;;) {
        size_t pending = 0;
        for (size_t i = 0; i < r->n; i++) pending += !r->attempts[i].over;
        if (pending == 0) return 0;
        int rc = run_once(r, pending);
        if (rc >= 0) continue;
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
