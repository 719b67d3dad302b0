/* Renewing: one transaction checks the nodes of all grants of a batch. It changes nothing and wakes no watch, but the
 * leader commits it like every other write, even when a check fails. So it proves how long the session will live at
 * least (validity.c), and that the node of each grant still exists; the nodes need no watches.
 *
 * When a check fails, the answer names the missing node, but does not say whether others are missing as well. So each
 * node is looked up separately, and another transaction proves the remaining ones. */
#include "zookeeper.h"

#include <stdlib.h>

enum { CHUNK = 256, JUTE_MAXBUFFER = 1 << 20 };

_Static_assert(CHUNK *(ZOOKEEPER_PATH_SIZE + 32) < JUTE_MAXBUFFER, "a batch fits into what a server takes by default");

struct renewal {
    struct zookeeper *z;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t begun_us, deadline_us;
    struct dlock_claim *held[CHUNK], *down[CHUNK]; /* held: not proved yet; down: to be downgraded */
    size_t n_held, n_down;
    struct dlock_error *err;
};

static bool is_downgrade(const struct dlock_claim *claim) {
    return claim->mode == DLOCK_SHARED && !zookeeper_reads(ZOOKEEPER_KIND(claim->state[ZOOKEEPER_PLACE]));
}

static void grant_path(const struct zookeeper *z, const struct dlock_claim *claim, char path[ZOOKEEPER_PATH_SIZE]) {
    zookeeper_claim_path(z, claim, ZOOKEEPER_KIND(claim->state[ZOOKEEPER_PLACE]), path);
}

/* Sorts the claims. Claims of another session are lost; the others are undecided. */
static void sort_out(struct renewal *r) {
    uint64_t session = zookeeper_session(r->z);
    r->n_held = r->n_down = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        bool ours = claim->state[ZOOKEEPER_SESSION] == session && claim->state[ZOOKEEPER_PLACE] & ZOOKEEPER_KNOWN;
        claim->result = ours ? DLOCK_EUNAVAILABLE : DLOCK_ELOST;
        if (!ours) continue;
        if (is_downgrade(claim))
            r->down[r->n_down++] = claim;
        else
            r->held[r->n_held++] = claim;
    }
}

static int no_memory(const struct renewal *r) {
    return dlock_fail(r->err, DLOCK_EUNAVAILABLE, "out of memory for a request to ZooKeeper");
}

/* ---- downgrades -------------------------------------------------------------------------------------------------- */

/* Replaces a writer's node by a reader's with the same sequence, so that no node behind it can pass: newer Curators do
 * the same. The client that watches the writer's node looks again when that goes. */
static struct zookeeper_request *ask_downgrade(const struct renewal *r, const struct dlock_claim *claim,
                                               struct zookeeper_call *call) {
    char reader[ZOOKEEPER_PATH_SIZE], writer[ZOOKEEPER_PATH_SIZE], data[ZOOKEEPER_DATA_SIZE];
    zookeeper_claim_path(r->z, claim, ZOOKEEPER_READER, reader);
    grant_path(r->z, claim, writer);
    zookeeper_write_data(r->z, claim, claim->state[ZOOKEEPER_FENCE], data);
    return zookeeper_ask_downgrade(call, reader, data, writer);
}

static int judge_downgrade(struct dlock_claim *claim, const struct zookeeper_request *downgrade) {
    uint64_t *place = &claim->state[ZOOKEEPER_PLACE];
    if (downgrade->rc == ZNONODE) return DLOCK_ELOST;
    if (downgrade->rc != ZOK && downgrade->rc != ZNODEEXISTS) return DLOCK_EUNAVAILABLE;
    *place = (*place & ~ZOOKEEPER_OF_KIND(7)) | ZOOKEEPER_OF_KIND(ZOOKEEPER_READER) | ZOOKEEPER_DOWNGRADED;
    return 0; /* ZNODEEXISTS: an earlier request, whose answer was lost, has made it */
}

static int downgrade(struct renewal *r) {
    struct zookeeper_call *call = zookeeper_call(r->z, r->n_down);
    if (!call) return no_memory(r);
    for (size_t i = 0; i < r->n_down; i++) ask_downgrade(r, r->down[i], call);
    zookeeper_call_wait(call, r->deadline_us);
    for (size_t i = 0; i < r->n_down; i++) {
        r->down[i]->result = judge_downgrade(r->down[i], &call->requests[i]);
        if (r->down[i]->result == 0) r->held[r->n_held++] = r->down[i];
    }
    zookeeper_call_end(call);
    return 0;
}

/* ---- proofs ------------------------------------------------------------------------------------------------------ */

/* Looks up each node separately; claims without one are lost. */
static int sift(struct renewal *r) {
    struct zookeeper_call *call = zookeeper_call(r->z, r->n_held);
    char path[ZOOKEEPER_PATH_SIZE];
    size_t kept = 0;
    if (!call) return no_memory(r);
    for (size_t i = 0; i < r->n_held; i++) {
        grant_path(r->z, r->held[i], path);
        zookeeper_ask_exists(call, path);
    }
    zookeeper_call_wait(call, r->deadline_us);
    for (size_t i = 0; i < r->n_held; i++) {
        if (call->requests[i].rc == ZNONODE)
            r->held[i]->result = DLOCK_ELOST;
        else
            r->held[kept++] = r->held[i];
    }
    r->n_held = kept;
    zookeeper_call_end(call);
    return 0;
}

static struct zookeeper_request *ask_checks(struct renewal *r, struct zookeeper_call *call) {
    char *paths[CHUNK], path[ZOOKEEPER_PATH_SIZE];
    size_t n = 0;
    struct zookeeper_request *checks = NULL;
    for (; n < r->n_held; n++) {
        grant_path(r->z, r->held[n], path);
        if (!(paths[n] = strdup(path))) break;
    }
    if (n == r->n_held) checks = zookeeper_ask_checks(call, (const char *const *)paths, n);
    while (n > 0) free(paths[--n]);
    return checks;
}

enum { PROVED, SOME_GONE };

static int prove_once(struct renewal *r) {
    struct zookeeper_call *call = zookeeper_call(r->z, 1);
    struct zookeeper_request *checks = call ? ask_checks(r, call) : NULL;
    int rc = SOME_GONE;
    if (!checks) {
        if (call) zookeeper_call_end(call);
        return no_memory(r);
    }
    zookeeper_call_wait(call, r->deadline_us);
    if (zookeeper_committed(checks)) zookeeper_wrote(r->z, call->sent_us);
    if (checks->rc == ZOK)
        rc = PROVED;
    else if (checks->rc != ZNONODE)
        rc = zookeeper_refused(r->z, checks->rc, "check the nodes in", r->z->base[0] ? r->z->base : "/", r->err);
    zookeeper_call_end(call);
    return rc;
}

static void prove(struct renewal *r) {
    while (r->n_held > 0) {
        int rc = prove_once(r);
        if (rc == PROVED) break;
        if (rc != SOME_GONE || sift(r) != 0 || dlock_now_us() >= r->deadline_us) return;
    }
    for (size_t i = 0; i < r->n_held; i++) r->held[i]->result = 0;
}

static int renew_chunk(struct renewal *r) {
    bool dead;
    for (size_t i = 0; i < r->n; i++) r->claims[i]->result = DLOCK_EUNAVAILABLE;
    if (zookeeper_ready(r->z, r->deadline_us, &dead, r->err) != 0) return dead ? DLOCK_EUNAVAILABLE : 0;
    sort_out(r);
    if (r->n_down > 0) downgrade(r);
    prove(r);
    int64_t kept_ms = zookeeper_kept_ms(r->z, r->begun_us);
    for (size_t i = 0; i < r->n; i++) r->claims[i]->kept_ms = kept_ms;
    zookeeper_ready(r->z, 0, &dead, NULL);
    return dead ? dlock_fail(r->err, DLOCK_EUNAVAILABLE, "the session with ZooKeeper at %s has ended", r->z->where) : 0;
}

int zookeeper_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct renewal r;
    int rc = 0;
    r.z = zookeeper_of(conn);
    r.err = err;
    r.begun_us = dlock_now_us();
    r.deadline_us = dlock_deadline_us(timeout_ms);
    for (size_t done = 0; done < n && rc == 0; done += r.n) {
        r.claims = claims + done;
        r.n = n - done < CHUNK ? n - done : CHUNK;
        rc = renew_chunk(&r);
    }
    return rc;
}
