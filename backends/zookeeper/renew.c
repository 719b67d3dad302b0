/* Renewing: one committed write proves how long the session will live at least (proof.c), and with it every grant in
 * it. A claim's first renewal also sets a watch on its node, so that nobody needs to ask again whether that is still
 * there.
 */
#include "zookeeper.h"

#include <stdlib.h>

enum { CHUNK = 256 };

struct renewal {
    struct zookeeper *z;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t begun_us, deadline_us;
    struct zookeeper_watch *fresh[CHUNK]; /* watches to set; NULL: set already, or the claim is lost */
    bool down[CHUNK];                     /* to downgrade */
    struct zookeeper_request *asked[CHUNK];
    struct zookeeper_request *write; /* NULL: one of late will do */
    size_t n_asked;
};

static void fail_all(const struct renewal *r, int code) {
    for (size_t i = 0; i < r->n; i++)
        if (r->claims[i]->result != DLOCK_ELOST) r->claims[i]->result = code;
}

static bool is_downgrade(const struct dlock_claim *claim) {
    return claim->mode == DLOCK_SHARED && !zookeeper_reads(ZOOKEEPER_KIND(claim->state[ZOOKEEPER_PLACE]));
}

static void grant_path(const struct renewal *r, size_t i, char path[ZOOKEEPER_PATH_SIZE]) {
    const struct dlock_claim *claim = r->claims[i];
    zookeeper_claim_path(r->z, claim, ZOOKEEPER_KIND(claim->state[ZOOKEEPER_PLACE]), path);
}

/* Which claims have no watch yet, and which are to be downgraded; those of another session are lost. */
static void sort_out(struct renewal *r) {
    uint64_t session = zookeeper_session(r->z);
    r->n_asked = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        char path[ZOOKEEPER_PATH_SIZE];
        bool there;
        r->fresh[i] = NULL;
        r->down[i] = false;
        claim->result = 0;
        if (claim->state[ZOOKEEPER_SESSION] != session || !(claim->state[ZOOKEEPER_PLACE] & ZOOKEEPER_KNOWN)) {
            claim->result = DLOCK_ELOST;
            continue;
        }
        r->down[i] = is_downgrade(claim);
        if (!r->down[i]) {
            grant_path(r, i, path);
            r->fresh[i] = zookeeper_watch_new(r->z, path, claim->name, claim->token, &there);
            if (!r->fresh[i] && !there) claim->result = DLOCK_EUNAVAILABLE; /* out of memory */
        }
        if (r->down[i] || r->fresh[i]) r->n_asked++;
    }
}

/* From a writer's node to a reader's with the same sequence, so that nobody behind it can pass: newer Curators do the
 * same. Who watches the writer's node looks again when it goes. */
static struct zookeeper_request *ask_downgrade(const struct renewal *r, size_t i, struct zookeeper_call *call) {
    const struct dlock_claim *claim = r->claims[i];
    char reader[ZOOKEEPER_PATH_SIZE], writer[ZOOKEEPER_PATH_SIZE], data[ZOOKEEPER_DATA_SIZE];
    zookeeper_claim_path(r->z, claim, ZOOKEEPER_READER, reader);
    grant_path(r, i, writer);
    zookeeper_write_data(r->z, claim, claim->state[ZOOKEEPER_FENCE], data);
    zookeeper_watch_forget(r->z, writer);
    return zookeeper_ask_downgrade(call, reader, data, writer);
}

static struct zookeeper_call *dispatch(struct renewal *r, bool write) {
    struct zookeeper_call *call = zookeeper_call(r->z, r->n_asked + 1);
    char path[ZOOKEEPER_PATH_SIZE];
    r->write = NULL;
    for (size_t i = 0; i < r->n; i++) {
        r->asked[i] = NULL;
        if (r->down[i] && call) {
            r->asked[i] = ask_downgrade(r, i, call);
        } else if (r->fresh[i] && call) {
            grant_path(r, i, path);
            r->asked[i] = zookeeper_ask_get(call, path, r->fresh[i]);
        } else if (r->fresh[i]) {
            zookeeper_watch_cancel(r->fresh[i]);
        }
    }
    if (call && write) r->write = zookeeper_ask_write(call);
    return call;
}

static int judge(const struct dlock_claim *claim, const struct zookeeper_request *get) {
    bool downgraded = claim->state[ZOOKEEPER_PLACE] & ZOOKEEPER_DOWNGRADED;
    if (get->rc == ZNONODE) return DLOCK_ELOST;
    if (get->rc != ZOK) return DLOCK_EUNAVAILABLE;
    bool ours = (uint64_t)get->stat.ephemeralOwner == claim->state[ZOOKEEPER_SESSION] &&
                (downgraded || (uint64_t)get->stat.czxid == claim->state[ZOOKEEPER_FENCE]);
    return ours ? 0 : DLOCK_ELOST;
}

static int judge_downgrade(struct dlock_claim *claim, const struct zookeeper_request *downgrade) {
    uint64_t *place = &claim->state[ZOOKEEPER_PLACE];
    if (downgrade->rc == ZNONODE) return DLOCK_ELOST;
    if (downgrade->rc != ZOK && downgrade->rc != ZNODEEXISTS) return DLOCK_EUNAVAILABLE;
    *place = (*place & ~ZOOKEEPER_OF_KIND(7)) | ZOOKEEPER_OF_KIND(ZOOKEEPER_READER) | ZOOKEEPER_DOWNGRADED;
    return 0; /* where the node exists, an earlier try has made it, and nobody was told */
}

static void finish(struct renewal *r, struct zookeeper_call *call, struct dlock_error *err) {
    zookeeper_call_wait(call, r->deadline_us);
    for (size_t i = 0; i < r->n; i++)
        if (r->asked[i])
            r->claims[i]->result =
                r->down[i] ? judge_downgrade(r->claims[i], r->asked[i]) : judge(r->claims[i], r->asked[i]);
    if (r->write && zookeeper_written(r->write)) {
        zookeeper_wrote(r->z, call->sent_us);
    } else if (r->write) {
        zookeeper_refused(r->z, r->write->rc, "write to", "/", err);
        fail_all(r, DLOCK_EUNAVAILABLE);
    }
    zookeeper_call_end(call);
}

static int renew_chunk(struct renewal *r, struct dlock_error *err) {
    bool dead;
    if (zookeeper_ready(r->z, r->deadline_us, &dead, err) != 0) {
        for (size_t i = 0; i < r->n; i++) r->claims[i]->result = DLOCK_EUNAVAILABLE;
        return dead ? DLOCK_EUNAVAILABLE : 0;
    }
    bool write = !zookeeper_wrote_lately(r->z);
    sort_out(r);
    if (write || r->n_asked > 0) {
        struct zookeeper_call *call = dispatch(r, write);
        if (call) {
            finish(r, call, err);
        } else {
            fail_all(r, DLOCK_EUNAVAILABLE);
            dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request to ZooKeeper");
        }
    }
    int64_t kept_ms = zookeeper_kept_ms(r->z, r->begun_us);
    for (size_t i = 0; i < r->n; i++) r->claims[i]->kept_ms = kept_ms;
    zookeeper_ready(r->z, 0, &dead, NULL);
    return dead ? dlock_fail(err, DLOCK_EUNAVAILABLE, "the session with ZooKeeper at %s has ended", r->z->where) : 0;
}

int zookeeper_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct renewal r;
    int rc = 0;
    r.z = zookeeper_of(conn);
    r.begun_us = dlock_now_us();
    r.deadline_us = dlock_deadline_us(timeout_ms);
    for (size_t done = 0; done < n && rc == 0; done += r.n) {
        r.claims = claims + done;
        r.n = n - done < CHUNK ? n - done : CHUNK;
        rc = renew_chunk(&r, err);
    }
    return rc;
}
