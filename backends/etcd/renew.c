/* Renewing: one request keeps the lease alive, and a second one shows that the keys of all grants still exist, and that
 * the leader has not changed in between; it also moves keys from older leases (lease.c). */
#include "etcd.h"

#include <inttypes.h>

enum { BATCH = 100 };

struct renewal {
    struct etcd *z;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t begun_us, deadline_us;
    struct etcd_lease lease;
    bool elsewhere; /* a key is in another lease than the one that was known (ETCD_ELSEWHERE) */
    struct dlock_error *err;
};

static bool has_key(const struct dlock_claim *claim) {
    return claim->state[ETCD_REVISION] != 0;
}

static bool is_downgrade(const struct dlock_claim *claim) {
    return claim->mode == DLOCK_SHARED && claim->state[ETCD_FLAGS] & ETCD_WRITER;
}

/* A downgrade changes the key's value, a move its lease. */
static bool is_put(const struct renewal *r, const struct dlock_claim *claim) {
    return is_downgrade(claim) || claim->state[ETCD_LEASE] != (uint64_t)r->lease.id;
}

static void add_read(struct dlock_text *text, const char *key) {
    dlock_text_add(text, "{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}}");
}

/* Reads the answer about one claim. False: it is malformed. */
static bool read_claim(struct renewal *r, struct dlock_claim *claim, const json_t *transaction, size_t at) {
    if (is_put(r, claim)) {
        const json_t *nested = etcd_response(transaction, at, "response_txn");
        if (!nested) return false;
        enum etcd_moved moved = etcd_read_move(nested, claim, r->lease.id);
        if (moved == ETCD_ELSEWHERE) r->elsewhere = true;
        if (moved != ETCD_MOVED) return true;
        claim->result = 0;
        if (claim->mode == DLOCK_SHARED) claim->state[ETCD_FLAGS] &= ~(uint64_t)ETCD_WRITER;
        return true;
    }
    const json_t *range = etcd_response(transaction, at, "response_range");
    const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);
    bool there = kv && etcd_int(kv, "create_revision") == (int64_t)claim->state[ETCD_REVISION];
    claim->result = there ? 0 : DLOCK_ELOST;
    return range;
}

static bool read_all(struct renewal *r, const struct etcd_reply *reply, int64_t kept_ms) {
    bool sensible = true;
    size_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        claim->kept_ms = kept_ms;
        if (has_key(claim)) sensible = read_claim(r, claim, reply->body, at++) && sensible;
    }
    return sensible;
}

enum { AGAIN = 1 };

/* Proves that the grants still exist. Returns 0, AGAIN (the leader has changed, a key is elsewhere, or the lease has
 * ended, so that no key can be put in it) or a code. */
static int prove(struct renewal *r) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    char key[ETCD_KEY_SIZE];
    size_t sent = 0;
    r->elsewhere = false;
    dlock_text_add(&body, "{\"success\":[");
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        claim->result = DLOCK_ELOST;
        if (!has_key(claim)) continue;
        if (sent++ > 0) dlock_text_add(&body, ",");
        etcd_key(&r->z->address, claim, key);
        if (is_put(r, claim))
            etcd_add_move(&body, r->z, claim, key, r->lease.id);
        else
            add_read(&body, key);
    }
    dlock_text_add(&body, "]}");
    if (sent == 0) {
        dlock_text_free(&body);
        return 0;
    }
    int rc = etcd_post(r->z, "/v3/kv/txn", &body, ETCD_REPEAT, r->deadline_us, &reply, r->err);
    if (rc == ETCD_LEASE_GONE) {
        etcd_lease_gone(r->z, r->lease.id);
        return AGAIN;
    }
    if (rc != 0) return rc;
    int64_t kept_ms = etcd_kept_ms(&r->lease, reply.term, r->begun_us);
    bool sensible = read_all(r, &reply, kept_ms);
    etcd_reply_end(&reply);
    if (!sensible) return etcd_nonsense(r->z, "answer", r->err);
    return kept_ms > 0 && !r->elsewhere ? 0 : AGAIN;
}

static int renew_some(struct renewal *r) {
    int rc;
    do {
        rc = etcd_keep_alive(r->z, r->deadline_us, &r->lease, r->err);
        if (rc == 0) rc = prove(r);
    } while (rc == AGAIN && dlock_now_us() < r->deadline_us);
    return rc == AGAIN ? etcd_unsettled(r->z, r->err) : rc;
}

int etcd_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct renewal r = {.z = etcd_of(conn), .deadline_us = dlock_deadline_us(timeout_ms), .err = err};
    r.begun_us = dlock_now_us();
    for (size_t done = 0; done < n; done += r.n) {
        r.claims = claims + done;
        r.n = n - done < BATCH ? n - done : BATCH;
        int rc = renew_some(&r);
        if (rc == 0) continue;
        for (size_t i = done; i < n; i++) claims[i]->result = rc;
        return etcd_verdict(r.z, rc);
    }
    return 0;
}
