/* Acquiring and releasing, step by step: locks.c, permits.c, asking.c. */
#include "asking.h"

enum { RETRY_MIN_MS = 10000 }; /* a waiter looks again after so long, or one session, even if nobody wakes it */

static int acquire_one(struct zookeeper_asking *a) {
    struct dlock_claim *claim = a->claim;
    int rc;
    do {
        if (zookeeper_asking_ready(a) != 0) return DLOCK_EUNAVAILABLE;
        rc = claim->mode == DLOCK_PERMIT ? zookeeper_permit_step(a) : zookeeper_lock_step(a);
    } while (rc == ZOOKEEPER_AGAIN);
    uint64_t stands = claim->state[ZOOKEEPER_PLACE] | claim->state[ZOOKEEPER_QUEUE];
    if (stands == 0) memset(claim->state, 0, sizeof claim->state);
    if (rc == DLOCK_EBUSY && stands & ZOOKEEPER_QUEUED && claim->retry_ms < RETRY_MIN_MS)
        claim->retry_ms = RETRY_MIN_MS;
    return rc;
}

/* ---- releasing --------------------------------------------------------------------------------------------------- */

/* Without knowing where our node is, or whether there is one. Who is first has a grant, even if he was not told. */
static int search_and_delete(struct zookeeper_asking *a, struct zookeeper_stand *s, bool *had) {
    const uint32_t grants = s != a->stands ? 0 : a->claim->mode == DLOCK_PERMIT ? a->claim->limit : 1;
    char path[ZOOKEEPER_PATH_SIZE];
    for (;;) {
        if (zookeeper_ready(a->z, a->deadline_us, &a->dead, a->err) != 0) return DLOCK_EUNAVAILABLE;
        int rc = zookeeper_find_own(a, s, path);
        if (rc == ZOOKEEPER_AGAIN) continue;
        if (rc != 0) return rc == DLOCK_ELOST ? 0 : rc;
        zookeeper_watch_forget(a->z, path);
        rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
        if (rc != 0 && rc != DLOCK_ELOST) return rc;
        if (rc == 0 && s->line.ahead < grants) *had = true;
    }
}

/* 0: nothing of the claim is there any more; *had becomes true if that was a grant. */
static int release_stand(struct zookeeper_asking *a, struct zookeeper_stand *s, bool *had) {
    char path[ZOOKEEPER_PATH_SIZE];
    enum zookeeper_kind kind = ZOOKEEPER_KIND(*s->word);
    if (!zookeeper_stands(s, ZOOKEEPER_KNOWN) || a->claim->state[ZOOKEEPER_SESSION] != zookeeper_session(a->z))
        return search_and_delete(a, s, had);
    zookeeper_stand_path(a, s, path);
    zookeeper_watch_forget(a->z, path);
    zookeeper_watch_forget(a->z, a->lock);
    int rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
    bool downgraded = a->claim->mode == DLOCK_SHARED && !zookeeper_reads(kind); /* and nobody told us */
    if (rc == DLOCK_ELOST) return downgraded ? search_and_delete(a, s, had) : 0;
    if (rc == 0 && zookeeper_stands(s, ZOOKEEPER_GRANTED)) *had = true;
    return rc;
}

static int release_one(struct zookeeper_asking *a) {
    bool known = false, had = false, dead = a->claim->flags & DLOCK_CLAIM_DEAD; /* what it knew last, nobody knows */
    for (size_t i = 0; i < a->n_stands && !dead; i++) known = known || zookeeper_stands(&a->stands[i], ZOOKEEPER_KNOWN);
    for (size_t i = 0; i < a->n_stands; i++) {
        if (known && !zookeeper_stands(&a->stands[i], ZOOKEEPER_SENT)) continue;
        int rc = release_stand(a, &a->stands[i], &had);
        if (rc != 0) return rc;
    }
    memset(a->claim->state, 0, sizeof a->claim->state);
    return had ? 0 : DLOCK_ELOST;
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

static int one_by_one(struct zookeeper *z, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      int (*operation)(struct zookeeper_asking *), struct dlock_error *err) {
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct zookeeper_asking a;
    for (size_t i = 0; i < n; i++) {
        zookeeper_asking_begin(&a, z, claims[i], deadline_us, err);
        claims[i]->result = operation(&a);
        if (a.dead) return DLOCK_EUNAVAILABLE;
    }
    return 0;
}

int zookeeper_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return one_by_one(conn, claims, n, timeout_ms, acquire_one, err);
}

int zookeeper_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return one_by_one(conn, claims, n, timeout_ms, release_one, err);
}
