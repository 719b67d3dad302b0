/* Renewing: a small write, which the leader commits, proves how long the session will live at least (validity.c), and a
 * look at each grant's node, after it, that the node still exists: an ephemeral node ends with its session, unless
 * somebody deletes it. The looks are in no server's log, and the write is spared where one has just been committed. So
 * the log grows with the number of clients, and not of locks.
 *
 * A look costs a server ten times the processor time of a part of a transaction. A client with so many locks that it
 * would look at more than LOOKS nodes a second looks at each of them with some of its renewals only. The first look
 * sets a watch, by which a holder hears at once that its node was deleted. */
#include "zookeeper.h"

enum {
    CHUNK = 256,
    WRITE_SHARE = 16, /* a write is spared for this part of a session */
    LOOKS = 100
};

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

/* True if a write would show hardly more of the session than an earlier one has. */
static bool is_proved(struct zookeeper *z) {
    pthread_mutex_lock(&z->mutex);
    bool proved = dlock_now_us() - z->wrote_us < (int64_t)z->session_ms * 1000 / WRITE_SHARE;
    pthread_mutex_unlock(&z->mutex);
    return proved;
}

/* Returns 0 if a write proves the session, else an error. */
static int judge_write(const struct renewal *r, const struct zookeeper_call *call,
                       const struct zookeeper_request *write) {
    if (!write) return 0;
    if (!zookeeper_committed(write)) return zookeeper_refused(r->z, write->rc, "write to", "/", r->err);
    zookeeper_wrote(r->z, call->sent_us);
    return 0;
}

/* Notes the claims of this renewal, and returns with how many of its renewals a claim is looked at: 1: with each. */
static uint64_t look_every(const struct renewal *r) {
    struct zookeeper *z = r->z;
    pthread_mutex_lock(&z->mutex);
    int64_t age_us = r->begun_us - z->counted_us;
    if (age_us >= (int64_t)z->session_ms * 1000) {
        int64_t rate = (int64_t)z->renewed * 1000000 / age_us;
        z->look_every = rate < LOOKS * ZOOKEEPER_UNSEEN_MAX ? (unsigned)(rate / LOOKS) + 1 : ZOOKEEPER_UNSEEN_MAX;
        z->counted_us = r->begun_us;
        z->renewed = 0;
    }
    z->renewed += r->n_held;
    uint64_t every = z->doubts ? 1 : z->look_every;
    z->doubts = false;
    pthread_mutex_unlock(&z->mutex);
    return every;
}

/* True if the claim's node is to be looked at with this renewal. */
static bool is_due(struct dlock_claim *claim, uint64_t every) {
    uint64_t *place = &claim->state[ZOOKEEPER_PLACE], unseen = ZOOKEEPER_UNSEEN(*place) + 1;
    const bool due = unseen >= every;
    *place = (*place & ~ZOOKEEPER_UNSEEN_OF(ZOOKEEPER_UNSEEN_MAX)) | ZOOKEEPER_UNSEEN_OF(due ? 0 : unseen);
    return due;
}

static int judge_node(const struct renewal *r, const struct zookeeper_request *exists, int proof) {
    if (exists->rc == ZNONODE) return DLOCK_ELOST;
    if (proof == 0 && exists->rc != ZOK)
        proof = zookeeper_refused(r->z, exists->rc, "look at a node in", r->z->where, r->err);
    return proof;
}

/* Writes, and looks at nodes: the server answers in this order. */
static void prove(struct renewal *r) {
    struct zookeeper_call *call = zookeeper_call(r->z, r->n_held + 1);
    struct zookeeper_request *write = NULL, *looks[CHUNK] = {NULL};
    const uint64_t every = look_every(r);
    char path[ZOOKEEPER_PATH_SIZE];
    if (!call) {
        no_memory(r);
        return;
    }
    if (!is_proved(r->z)) write = zookeeper_ask_write(call);
    for (size_t i = 0; i < r->n_held; i++) {
        if (!is_due(r->held[i], every)) continue;
        grant_path(r->z, r->held[i], path);
        struct zookeeper_watch *watch = zookeeper_watch_own(r->z, path, r->held[i]->name);
        looks[i] = watch ? zookeeper_ask_get(call, path, watch) : zookeeper_ask_exists(call, path);
    }
    zookeeper_call_wait(call, r->deadline_us);
    int proof = judge_write(r, call, write);
    for (size_t i = 0; i < r->n_held; i++) r->held[i]->result = looks[i] ? judge_node(r, looks[i], proof) : proof;
    zookeeper_call_end(call);
}

static int renew_chunk(struct renewal *r) {
    bool dead;
    for (size_t i = 0; i < r->n; i++) r->claims[i]->result = DLOCK_EUNAVAILABLE;
    if (zookeeper_ready(r->z, r->deadline_us, &dead, r->err) != 0) return dead ? DLOCK_EUNAVAILABLE : 0;
    sort_out(r);
    if (r->n_down > 0) downgrade(r);
    if (r->n_held > 0) prove(r);
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
