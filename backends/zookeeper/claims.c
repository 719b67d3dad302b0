/* Acquiring and releasing, in the steps of locks.c, permits.c and attempt.c. */
#include "attempt.h"

#include <stdlib.h>

enum {
    RETRY_MIN_MS = 10000, /* a waiter with a watch retries after this time, even without a wake-up */
    POLL_MS = 2000,       /* a waiter without a watch retries after this time */
    PIPELINED = 64        /* most claims whose requests are under way at a time */
};

static int acquire_step(struct zookeeper_attempt *a) {
    struct dlock_claim *claim = a->claim;
    if (zookeeper_attempt_ready(a) != 0) return DLOCK_EUNAVAILABLE;
    int rc = claim->mode == DLOCK_PERMIT ? zookeeper_permit_step(a) : zookeeper_lock_step(a);
    if (rc == ZOOKEEPER_AGAIN) return rc;
    uint64_t slots = claim->state[ZOOKEEPER_PLACE] | claim->state[ZOOKEEPER_QUEUE];
    if (slots == 0) memset(claim->state, 0, sizeof claim->state);
    bool waits = slots & ZOOKEEPER_QUEUED && !(slots & ZOOKEEPER_WORN);
    if (rc == DLOCK_EBUSY && waits) claim->retry_ms = a->polls ? POLL_MS : RETRY_MIN_MS;
    return rc;
}

/* ---- releasing --------------------------------------------------------------------------------------------------- */

/* True if this session made the node and its path is known. For a dead process (DEAD) nothing is assumed to be
 * known. */
static bool is_found(const struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    if (s->missed || a->claim->flags & DLOCK_CLAIM_DEAD) return false;
    return zookeeper_slot_has(s, ZOOKEEPER_KNOWN) && a->claim->state[ZOOKEEPER_SESSION] == zookeeper_session(a->z);
}

/* True if the claim may have nodes in this slot. */
static bool may_have_node(const struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    bool known = false, dead = a->claim->flags & DLOCK_CLAIM_DEAD;
    for (size_t i = 0; i < a->n_slots && !dead; i++) known = known || zookeeper_slot_has(&a->slots[i], ZOOKEEPER_KNOWN);
    return !s->gone && (!known || zookeeper_slot_has(s, ZOOKEEPER_SENT));
}

/* Writes the path of the node to be deleted next. False: it has to be searched for. */
static bool node_to_delete(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                           char path[ZOOKEEPER_PATH_SIZE]) {
    bool found = is_found(a, s);
    if (found) zookeeper_slot_path(a, s, path);
    if (!found && s->view.own) zookeeper_found_path(a, s, path);
    return found || s->view.own;
}

/* Sends the next deletion or search for this slot. Returns 0 or EUNAVAILABLE. */
static int send_release(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    if (zookeeper_ready(a->z, a->deadline_us, &a->dead, a->err) != 0) return DLOCK_EUNAVAILABLE;
    bool found = node_to_delete(a, s, path);
    if (is_found(a, s)) zookeeper_watch_forget(a->z, a->lock);
    if (found) zookeeper_watch_forget(a->z, path);
    s->sent = found ? zookeeper_delete_begin(a->z, path) : zookeeper_search_begin(a, s);
    return s->sent ? 0 : zookeeper_attempt_no_memory(a);
}

static void known_is_deleted(struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    if (zookeeper_slot_has(s, ZOOKEEPER_GRANTED)) a->had = true;
    if (zookeeper_slot_has(s, ZOOKEEPER_LONELY) && !zookeeper_slot_has(s, ZOOKEEPER_DOWNGRADED))
        zookeeper_alone_went(a->z, a->claim->name, (int32_t)(uint32_t)*s->word, a->claim->state[ZOOKEEPER_FENCE]);
}

/* A node that was first in the queue had a grant, even if the claim was never told. */
static void found_is_deleted(struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    const uint32_t grants = s != a->slots ? 0 : a->claim->mode == DLOCK_PERMIT ? a->claim->limit : 1;
    if (s->view.ahead < grants) a->had = true;
}

/* Reads one answer, after sending the request if need be. Returns 0, AGAIN or an error. */
static int release_slot(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    int rc = s->sent ? 0 : send_release(a, s);
    if (rc != 0) return rc;
    struct zookeeper_call *sent = s->sent;
    bool known = is_found(a, s), deletes = node_to_delete(a, s, path);
    s->sent = NULL;
    if (!deletes) {
        rc = zookeeper_search_end(a, s, sent);
        s->gone = rc == 0 && !s->view.own;
        return rc;
    }
    rc = zookeeper_delete_end(a->z, sent, path, a->deadline_us, &a->dead, a->err);
    if (rc != 0 && rc != DLOCK_ELOST) return rc;
    if (rc == 0) (known ? known_is_deleted : found_is_deleted)(a, s);
    /* A downgrade whose answer was lost may have made another node, so the deletion of a writer's node of a SHARED
     * claim is followed by a search, whatever its answer. (After a lost answer a node that does not exist is taken to
     * be deleted.) */
    s->missed = known && a->claim->mode == DLOCK_SHARED && !zookeeper_reads(ZOOKEEPER_KIND(*s->word));
    s->gone = known ? !s->missed : !s->view.twin[0];
    s->view.own = false;
    return 0;
}

static int release_step(struct zookeeper_attempt *a) {
    bool gone = true;
    for (size_t i = 0; i < a->n_slots; i++) {
        struct zookeeper_slot *s = &a->slots[i];
        if (!may_have_node(a, s)) continue;
        int rc = release_slot(a, s);
        if (rc != 0 && rc != ZOOKEEPER_AGAIN) return rc;
        gone = gone && s->gone;
    }
    if (!gone) return ZOOKEEPER_AGAIN;
    memset(a->claim->state, 0, sizeof a->claim->state);
    return a->had ? 0 : DLOCK_ELOST;
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

struct operation {
    int (*step)(struct zookeeper_attempt *);   /* returns the claim's result, or AGAIN */
    bool (*ahead)(struct zookeeper_attempt *); /* sends the step's first request in advance; true: it writes */
};

static bool acquire_ahead(struct zookeeper_attempt *a) {
    return zookeeper_attempt_ready(a) == 0 && zookeeper_round_ahead(a);
}

static bool release_ahead(struct zookeeper_attempt *a) {
    for (size_t i = 0; i < a->n_slots; i++)
        if (may_have_node(a, &a->slots[i])) (void)send_release(a, &a->slots[i]); /* the step reports a failure */
    return true;
}

/* Runs the claims in rounds: all unfinished ones send their requests, then each reads its answer. */
static int run_pipelined(struct zookeeper_attempt *a, size_t n, const struct operation *operation) {
    bool over[PIPELINED] = {false};
    int rc = 0;
    for (size_t left = n; left > 0 && rc == 0;) {
        bool written = false;
        for (size_t i = 0; i < n && left > 1; i++) {
            a[i].spared = written;
            if (!over[i]) written = operation->ahead(&a[i]) || written;
        }
        for (size_t i = 0; i < n && rc == 0; i++) {
            int result = over[i] ? ZOOKEEPER_AGAIN : operation->step(&a[i]);
            if (a[i].dead) rc = zookeeper_ready(a[i].z, 0, &a[i].dead, a[i].err); /* its error says most */
            if (result == ZOOKEEPER_AGAIN) continue;
            a[i].claim->result = result;
            over[i] = true;
            left--;
        }
    }
    for (size_t i = 0; i < n; i++) zookeeper_attempt_end(&a[i]);
    return rc;
}

static int run_batch(struct zookeeper *z, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                     const struct operation *operation, struct dlock_error *err) {
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    size_t room = n < PIPELINED ? n : PIPELINED;
    struct zookeeper_attempt one, *all = room > 1 ? malloc(room * sizeof *all) : &one;
    int rc = 0;
    if (!all) all = &one, room = 1; /* out of memory: one claim after the other */
    for (size_t done = 0, some; done < n && rc == 0; done += some) {
        some = n - done < room ? n - done : room;
        for (size_t i = 0; i < some; i++) zookeeper_attempt_begin(&all[i], z, claims[done + i], deadline_us, err);
        rc = run_pipelined(all, some, operation);
    }
    if (all != &one) free(all);
    return rc;
}

int zookeeper_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    static const struct operation acquire = {acquire_step, acquire_ahead};
    return run_batch(zookeeper_of(conn), claims, n, timeout_ms, &acquire, err);
}

int zookeeper_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    static const struct operation release = {release_step, release_ahead};
    return run_batch(zookeeper_of(conn), claims, n, timeout_ms, &release, err);
}
