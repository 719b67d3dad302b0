/* Renewing: the lease is kept alive, unless that was just done, and a second request shows that the keys of all grants
 * still exist, and that the leader has not changed in between; it also moves keys from older leases (lease.c). A
 * transaction takes a number of comparisons and as many operations, so that it proves twice as many keys: it compares
 * the revisions of some and, if these are right, reads the others. Else it reads the former, and the others are left to
 * another one. */
#include "etcd.h"

enum {
    BATCH = 256,
    MOST = 128,    /* comparisons, and operations */
    MOVE = 2,      /* how many fewer if a key is moved, which is a transaction within the other one */
    KEEP_SHARE = 8 /* the lease is kept alive when so much of its TTL has passed, which all grants are shorter by */
};

enum part { OPEN, COMPARED, READ, DONE };

struct renewal {
    struct etcd *z;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t begun_us, deadline_us;
    struct etcd_lease lease;
    enum part parts[BATCH];
    struct dlock_error *err;
};

static bool is_downgrade(const struct dlock_claim *claim) {
    return claim->mode == DLOCK_SHARED && claim->state[ETCD_FLAGS] & ETCD_WRITER;
}

/* A downgrade changes the key's value, a move its lease. */
static bool is_put(const struct renewal *r, const struct dlock_claim *claim) {
    return is_downgrade(claim) || claim->state[ETCD_LEASE] != (uint64_t)r->lease.id;
}

/* Chooses what the next transaction does with each claim. Returns how many claims are in it. */
static size_t divide(struct renewal *r) {
    size_t compared = 0, read = 0, puts = 0, most;
    for (size_t i = 0; i < r->n; i++) puts += r->parts[i] == OPEN && is_put(r, r->claims[i]);
    most = puts > 0 ? MOST - MOVE : MOST;
    for (size_t i = 0; i < r->n && read < most; i++)
        if (r->parts[i] == OPEN && is_put(r, r->claims[i])) r->parts[i] = READ, read++;
    for (size_t i = 0; i < r->n; i++) {
        if (r->parts[i] != OPEN || is_put(r, r->claims[i])) continue;
        if (read < most)
            r->parts[i] = READ, read++;
        else if (compared < most)
            r->parts[i] = COMPARED, compared++;
    }
    return compared + read;
}

static void add_read(struct dlock_text *text, const char *key) {
    dlock_text_add(text, "{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}}");
}

/* Adds the comparisons, or the operations, for the claims of a part. */
static void add_part(struct dlock_text *text, const struct renewal *r, enum part part, bool compares) {
    char key[ETCD_KEY_SIZE];
    bool first = true;
    for (size_t i = 0; i < r->n; i++) {
        if (r->parts[i] != part) continue;
        if (!first) dlock_text_add(text, ",");
        first = false;
        etcd_key(&r->z->address, r->claims[i], key);
        if (compares)
            etcd_add_if_there(text, r->claims[i], key);
        else if (is_put(r, r->claims[i]))
            etcd_add_move(text, r->z, r->claims[i], key, r->lease.id);
        else
            add_read(text, key);
    }
}

static int send_proof(const struct renewal *r, struct etcd_reply *reply) {
    struct dlock_text body = {NULL, 0, 0, false};
    dlock_text_add(&body, "{\"compare\":[");
    add_part(&body, r, COMPARED, true);
    dlock_text_add(&body, "],\"success\":[");
    add_part(&body, r, READ, false);
    dlock_text_add(&body, "],\"failure\":[");
    add_part(&body, r, COMPARED, false);
    dlock_text_add(&body, "]}");
    return etcd_post(r->z, "/v3/kv/txn", &body, ETCD_REPEAT, r->deadline_us, reply, r->err);
}

/* Reads the answer about one claim. Returns its part from now on; -1: the answer is malformed. */
static int read_claim(const struct renewal *r, struct dlock_claim *claim, const json_t *transaction, size_t at) {
    claim->result = DLOCK_ELOST;
    if (is_put(r, claim)) {
        const json_t *nested = etcd_response(transaction, at, "response_txn");
        if (!nested) return -1;
        enum etcd_moved moved = etcd_read_move(nested, claim, r->lease.id);
        if (moved == ETCD_ELSEWHERE) return OPEN;
        if (moved == ETCD_GONE) return DONE;
        if (claim->mode == DLOCK_SHARED) claim->state[ETCD_FLAGS] &= ~(uint64_t)ETCD_WRITER;
    } else {
        const json_t *range = etcd_response(transaction, at, "response_range");
        const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);
        if (!range) return -1;
        if (!kv || etcd_int(kv, "create_revision") != (int64_t)claim->state[ETCD_REVISION]) return DONE;
    }
    claim->result = 0;
    return DONE;
}

/* Reads the answer about all claims. `kept_ms` is 0 if it proves nothing. False: it is malformed. */
static bool read_proof(struct renewal *r, const json_t *transaction, int64_t kept_ms) {
    const bool equal = json_is_true(json_object_get(transaction, "succeeded"));
    size_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        int part = r->parts[i];
        if (part == OPEN || part == DONE) continue;
        claim->kept_ms = kept_ms;
        if (part == (equal ? READ : COMPARED)) {
            part = read_claim(r, claim, transaction, at++);
        } else {
            part = equal ? DONE : OPEN;
            claim->result = 0;
        }
        if (part < 0) return false;
        r->parts[i] = kept_ms > 0 ? (enum part)part : OPEN;
    }
    return true;
}

enum { AGAIN = 1 };

/* Proves that grants still exist. Returns 0, AGAIN (the leader has changed, or the lease has ended, so that no key can
 * be put in it) or a code. */
static int prove(struct renewal *r) {
    struct etcd_reply reply;
    int rc = send_proof(r, &reply);
    if (rc != 0) {
        for (size_t i = 0; i < r->n; i++)
            if (r->parts[i] != DONE) r->parts[i] = OPEN;
        if (rc == ETCD_LEASE_GONE) etcd_lease_gone(r->z, r->lease.id);
        return rc == ETCD_LEASE_GONE ? AGAIN : rc;
    }
    int64_t kept_ms = etcd_kept_ms(&r->lease, reply.term, r->begun_us);
    bool sensible = read_proof(r, reply.body, kept_ms);
    etcd_reply_end(&reply);
    if (!sensible) return etcd_nonsense(r->z, "answer", r->err);
    return kept_ms > 0 ? 0 : AGAIN;
}

static int renew_some(struct renewal *r) {
    int rc = 0;
    for (size_t i = 0; i < r->n; i++) {
        r->parts[i] = r->claims[i]->state[ETCD_REVISION] ? OPEN : DONE; /* without a key there is nothing to renew */
        r->claims[i]->result = DLOCK_ELOST;
    }
    do {
        rc = rc == AGAIN ? etcd_keep_alive(r->z, r->deadline_us, &r->lease, r->err)
                         : etcd_lease(r->z, KEEP_SHARE, r->deadline_us, &r->lease, r->err);
        if (rc != 0) return rc;
        if (divide(r) == 0) return 0;
        rc = prove(r);
    } while (rc >= 0 && dlock_now_us() < r->deadline_us);
    return rc >= 0 ? etcd_unsettled(r->z, r->err) : rc;
}

int etcd_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct renewal r = {.z = etcd_of(conn), .deadline_us = dlock_deadline_us(timeout_ms), .err = err};
    r.begun_us = dlock_now_us();
    for (size_t done = 0; done < n; done += r.n) {
        r.claims = claims + done;
        r.n = n - done < BATCH ? n - done : BATCH;
        int rc = renew_some(&r);
        if (rc == 0) continue;
        for (size_t i = done; i < n; i++)
            if (i - done >= r.n || r.parts[i - done] != DONE) claims[i]->result = rc;
        return etcd_verdict(r.z, rc);
    }
    return 0;
}
