/* Releasing and leaving the queue: the claim's key is deleted. No other claim has a key of that name: a slot belongs to
 * its claim until the deletion was answered, and to nobody if a copy of that request had no answer, and may come
 * later. */
#include "etcd.h"

#include <stdlib.h>

enum { BATCH = 25 /* claims in one transaction, each with at most five operations */ };

struct releasing {
    struct etcd *z;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t deadline_us;
    int64_t lease; /* the connection's */
    bool repeated; /* a copy of the request had no answer, and may have deleted the keys */
    struct dlock_error *err;
};

/* True if a request for the claim was ever sent; otherwise it has no key. */
static bool was_sent(const struct dlock_claim *claim) {
    return claim->state[ETCD_NAMED] != 0;
}

static bool was_granted(const struct dlock_claim *claim) {
    return claim->state[ETCD_FLAGS] & ETCD_GRANTED;
}

/* Adds the operations that release a claim. For a claim that was never told that it is granted, they also read the
 * queue, which shows whether it was. */
static void add_release(struct dlock_text *text, struct etcd *z, const struct dlock_claim *claim) {
    char key[ETCD_KEY_SIZE];
    etcd_key(&z->address, claim, key);
    if (!was_granted(claim)) {
        etcd_add_view(text, z, claim, key);
        dlock_text_add(text, ",");
    }
    dlock_text_add(text, "{\"request_txn\":");
    etcd_add_delete(text, claim, key);
    dlock_text_add(text, "}");
}

/* Returns the result of a release that has deleted so many keys. `had`: the claim, if its key existed, had the lock. */
static int judge(const struct releasing *r, struct dlock_claim *claim, int64_t deleted, bool had) {
    if (deleted < 0) return etcd_nonsense(r->z, "answer", r->err);
    if (deleted == 0 && r->repeated) claim->hints |= DLOCK_HINT_RESENT;
    claim->state[ETCD_FLAGS] &= ~(uint64_t)(ETCD_GRANTED | ETCD_QUEUED);
    if (claim->state[ETCD_REVISION] && etcd_give_slot(r->z, claim))
        memset(claim->state, 0, sizeof claim->state); /* the key's name is free for another claim from now on */
    return deleted > 0 && had ? 0 : DLOCK_ELOST;
}

/* Reads the answers to one claim's operations, from number *at on, and advances *at. */
static int read_release(const struct releasing *r, struct dlock_claim *claim, const json_t *transaction, size_t *at) {
    char key[ETCD_KEY_SIZE];
    struct etcd_view view = {.blocked = false};
    bool sensible = true;
    if (!was_granted(claim)) {
        etcd_key(&r->z->address, claim, key);
        sensible = etcd_read_view(r->z, transaction, *at, claim, key, &view);
        *at += ETCD_VIEW_OPERATIONS;
    }
    int64_t deleted = etcd_deleted(etcd_response(transaction, (*at)++, "response_txn"));
    bool had = !view.blocked && !view.misused && !view.cut && !view.deep;
    return judge(r, claim, sensible ? deleted : -1, had);
}

/* Whether something may still put its key. Without a lease that has no effect, or it ends with an older lease. */
static bool may_come_late(const struct releasing *r, const struct dlock_claim *claim) {
    return claim->state[ETCD_FLAGS] & ETCD_UNSURE && r->lease;
}

static void add_closings(struct dlock_text *text, const struct releasing *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (!may_come_late(r, r->claims[i])) continue;
        dlock_text_add(text, ",");
        etcd_add_close(text, r->z, r->claims[i], r->lease);
    }
}

/* ---- of a process that is dead ----------------------------------------------------------------------------------- */

/* Finds the key of a dead process's claim by its token, among all keys of the name. */
static int find_key(struct releasing *r, struct dlock_claim *claim) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    json_t *kv;
    size_t i;
    dlock_text_add(&body, "{");
    etcd_add_range(&body, r->z, claim->name);
    dlock_text_add(&body, "}");
    int rc = etcd_post(r->z, "/v3/kv/range", &body, ETCD_REPEAT, r->deadline_us, &reply, r->err);
    if (rc != 0) return etcd_code(rc, r->err);
    json_array_foreach(json_object_get(reply.body, "kvs"), i, kv) {
        char key[ETCD_KEY_SIZE], value[ETCD_VALUE_SIZE], token[DLOCK_TOKEN_MAX + 1];
        const char *key64 = etcd_string(kv, "key"), *value64 = etcd_string(kv, "value");
        if (!key64 || !value64 || !dlock_base64(key64, key, sizeof key) || !dlock_base64(value64, value, sizeof value))
            continue;
        etcd_token(&r->z->address, key, value, token);
        if (strcmp(token, claim->token) != 0 || etcd_int(kv, "lease") <= 0) continue;
        etcd_read_key(&r->z->address, key, claim);
        claim->state[ETCD_REVISION] =
            (uint64_t)(etcd_int(kv, "create_revision") > 0 ? etcd_int(kv, "create_revision") : 0);
    }
    etcd_reply_end(&reply);
    return 0;
}

static int find_dead(struct releasing *r) {
    for (size_t i = 0; i < r->n; i++) {
        struct dlock_claim *claim = r->claims[i];
        if (!(claim->flags & DLOCK_CLAIM_DEAD) || was_sent(claim)) continue;
        int rc = find_key(r, claim);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Releases one granted claim, by far the most frequent case, with the smallest request. */
static int release_one(struct releasing *r, struct dlock_claim *claim) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    char key[ETCD_KEY_SIZE];
    etcd_key(&r->z->address, claim, key);
    dlock_text_add(&body, "{\"key\":");
    dlock_text_add_base64(&body, key);
    dlock_text_add(&body, "}");
    int rc = etcd_post(r->z, "/v3/kv/deleterange", &body, ETCD_REPEAT, r->deadline_us, &reply, r->err);
    r->repeated |= reply.repeated;
    if (rc != 0 || r->repeated) claim->state[ETCD_FLAGS] |= ETCD_USED_UP;
    if (rc != 0) return etcd_code(rc, r->err);
    claim->result = judge(r, claim, etcd_int(reply.body, "deleted"), true);
    etcd_reply_end(&reply);
    return 0;
}

/* ---- the operation ----------------------------------------------------------------------------------------------- */

static int release_some(struct releasing *r) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    size_t sent = 0, at = 0;
    int rc = find_dead(r);
    if (rc != 0) return rc;
    r->lease = etcd_lease_known(r->z).id;
    if (r->n == 1 && was_sent(r->claims[0]) && was_granted(r->claims[0]) && !may_come_late(r, r->claims[0])) {
        etcd_unwatch(r->z, r->claims[0]);
        return release_one(r, r->claims[0]);
    }
    dlock_text_add(&body, "{\"success\":[");
    for (size_t i = 0; i < r->n; i++) {
        etcd_unwatch(r->z, r->claims[i]);
        r->claims[i]->result = DLOCK_ELOST;
        if (!was_sent(r->claims[i])) continue;
        if (sent++ > 0) dlock_text_add(&body, ",");
        add_release(&body, r->z, r->claims[i]);
    }
    add_closings(&body, r);
    dlock_text_add(&body, "]}");
    if (sent == 0) {
        dlock_text_free(&body);
        return 0;
    }
    rc = etcd_post(r->z, "/v3/kv/txn", &body, ETCD_REPEAT, r->deadline_us, &reply, r->err);
    r->repeated |= reply.repeated;
    if (rc == ETCD_LEASE_GONE) etcd_lease_gone(r->z, r->lease);
    if (rc != 0) return rc;
    for (size_t i = 0; i < r->n; i++)
        if (was_sent(r->claims[i])) r->claims[i]->result = read_release(r, r->claims[i], reply.body, &at);
    etcd_reply_end(&reply);
    return 0;
}

int etcd_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct releasing r = {.z = etcd_of(conn), .deadline_us = dlock_deadline_us(timeout_ms), .err = err};
    for (size_t done = 0; done < n; done += r.n) {
        r.claims = claims + done;
        r.n = n - done < BATCH ? n - done : BATCH;
        r.repeated = false;
        int rc;
        do rc = release_some(&r);
        while (rc == ETCD_LEASE_GONE && r.lease != 0);
        if (rc == 0) continue;
        rc = etcd_code(rc, err);
        for (size_t i = done; i < n; i++) claims[i]->result = rc;
        return etcd_verdict(r.z, rc);
    }
    return 0;
}
