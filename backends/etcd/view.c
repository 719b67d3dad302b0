/* A claim's place in the queue: which earlier keys conflict with it. */
#include "etcd.h"

#include <inttypes.h>

/* Reads the key itself; the first key of the queue, which says how the name is in use; and the keys before the claim's,
 * the last one first. An exclusive claim needs only the last one. All keys are read where some are no claims'. */
void etcd_add_view(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, const char *key) {
    bool all = claim->state[ETCD_FLAGS] & ETCD_DEEP;
    dlock_text_add(text, "{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}},{\"request_range\":{%s\"sort_order\":\"ASCEND\",\"sort_target\":\"CREATE\",",
                   all ? "" : "\"limit\":\"1\",");
    etcd_add_range(text, z, claim->name);
    dlock_text_add(text, "}},{\"request_range\":{\"sort_order\":\"DESCEND\",\"sort_target\":\"CREATE\",");
    if (claim->mode == DLOCK_EXCLUSIVE) dlock_text_add(text, "%s\"keys_only\":true,", all ? "" : "\"limit\":\"2\",");
    if (claim->state[ETCD_REVISION])
        dlock_text_add(text, "\"max_create_revision\":\"%" PRIu64 "\",", claim->state[ETCD_REVISION]);
    etcd_add_range(text, z, claim->name);
    dlock_text_add(text, "}}");
}

void etcd_add_glance(struct dlock_text *text, const char *key, const char *blocker64) {
    dlock_text_add(text, "{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}},{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_json(text, blocker64);
    dlock_text_add(text, "}}");
}

static const json_t *only_key(const json_t *transaction, size_t i) {
    return json_array_get(json_object_get(etcd_response(transaction, i, "response_range"), "kvs"), 0);
}

/* A downgrade of the blocker changes its key. */
bool etcd_read_glance(const json_t *transaction, const struct dlock_claim *claim, int64_t seen) {
    const json_t *own = only_key(transaction, 0), *blocker = only_key(transaction, 1);
    int64_t changed = etcd_int(blocker, "mod_revision");
    return own && etcd_int(own, "create_revision") == (int64_t)claim->state[ETCD_REVISION] && blocker && changed > 0 &&
           changed <= seen;
}

/* Like that of any missing key, its version is 0, which is what a comparison without a value expects. */
void etcd_add_if_open(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim) {
    char key[ETCD_KEY_SIZE];
    etcd_closed_slot(&z->address, claim, key);
    dlock_text_add(text, "{\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}");
}

void etcd_add_close(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, int64_t lease) {
    char key[ETCD_KEY_SIZE];
    etcd_closed_slot(&z->address, claim, key);
    dlock_text_add(text, "{\"request_put\":{\"lease\":\"%" PRId64 "\",\"key\":", lease);
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}}");
}

void etcd_add_put(struct dlock_text *text, const struct dlock_claim *claim, const char *key, int64_t lease) {
    char value[ETCD_VALUE_SIZE];
    etcd_value(claim, value);
    dlock_text_add(text, "{\"request_put\":{\"lease\":\"%" PRId64 "\",\"key\":", lease);
    dlock_text_add_base64(text, key);
    dlock_text_add(text, ",\"value\":");
    dlock_text_add_base64(text, value);
    dlock_text_add(text, "}}");
}

static void add_compare_number(struct dlock_text *text, const char *target, const char *field, uint64_t number,
                               const char *key) {
    dlock_text_add(text, "{\"target\":\"%s\",\"%s\":\"%" PRIu64 "\",\"key\":", target, field, number);
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}");
}

void etcd_add_if_there(struct dlock_text *text, const struct dlock_claim *claim, const char *key) {
    add_compare_number(text, "CREATE", "create_revision", claim->state[ETCD_REVISION], key);
}

/* The comparison of the lease makes a copy of the request ineffective that arrives after the next move. */
void etcd_add_move(struct dlock_text *text, const struct etcd *z, const struct dlock_claim *claim, const char *key,
                   int64_t lease) {
    dlock_text_add(text, "{\"request_txn\":{\"compare\":[");
    etcd_add_if_there(text, claim, key);
    dlock_text_add(text, ",");
    add_compare_number(text, "LEASE", "lease", claim->state[ETCD_LEASE], key);
    dlock_text_add(text, "],\"success\":[");
    etcd_add_put(text, claim, key, lease);
    if (claim->state[ETCD_FLAGS] & ETCD_UNSURE) {
        dlock_text_add(text, ",");
        etcd_add_close(text, z, claim, lease);
    }
    dlock_text_add(text, "],\"failure\":[{\"request_range\":{\"keys_only\":true,\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}}]}}");
}

/* If the comparison has failed, the key may still have been moved: by an earlier copy of the request, which was not
 * answered, or by an earlier request, which has not put the value of a downgrade. */
enum etcd_moved etcd_read_move(const json_t *nested, struct dlock_claim *claim, int64_t lease) {
    if (!json_is_true(json_object_get(nested, "succeeded"))) {
        const json_t *range = etcd_response(nested, 0, "response_range");
        const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);
        if (!kv || etcd_int(kv, "create_revision") != (int64_t)claim->state[ETCD_REVISION]) return ETCD_GONE;
        claim->state[ETCD_LEASE] = (uint64_t)etcd_int(kv, "lease");
        bool value = claim->mode == DLOCK_SHARED && claim->state[ETCD_FLAGS] & ETCD_WRITER;
        if (etcd_int(kv, "lease") != lease || value) return ETCD_ELSEWHERE;
    }
    claim->state[ETCD_LEASE] = (uint64_t)lease;
    return ETCD_MOVED;
}

void etcd_add_delete(struct dlock_text *text, const struct dlock_claim *claim, const char *key) {
    dlock_text_add(text, "{");
    if (claim->state[ETCD_REVISION]) {
        dlock_text_add(text, "\"compare\":[");
        etcd_add_if_there(text, claim, key);
        dlock_text_add(text, "],");
    }
    dlock_text_add(text, "\"success\":[{\"request_delete_range\":{\"key\":");
    dlock_text_add_base64(text, key);
    dlock_text_add(text, "}}]}");
}

int64_t etcd_deleted(const json_t *transaction) {
    const json_t *deleted = etcd_response(transaction, 0, "response_delete_range");
    if (!transaction) return -1;
    if (!json_is_true(json_object_get(transaction, "succeeded"))) return 0;
    return deleted ? etcd_int(deleted, "deleted") : -1;
}

/* ---- reading it -------------------------------------------------------------------------------------------------- */

/* Returns the keys that operation i has found; NULL: the answer is malformed. */
static json_t *keys_of(const json_t *transaction, size_t i, json_t *none) {
    json_t *range = etcd_response(transaction, i, "response_range");
    json_t *keys = range ? json_object_get(range, "kvs") : NULL;
    if (!range || (keys && !json_is_array(keys))) return NULL;
    return keys ? keys : none;
}

void etcd_mode_of(const json_t *kv, enum dlock_mode *mode, uint32_t *limit) {
    const char *value = etcd_string(kv, "value");
    char text[ETCD_VALUE_SIZE] = "";
    if (value && !dlock_base64(value, text, sizeof text)) text[0] = '\0';
    etcd_mode(text, mode, limit);
}

static bool in_the_way(const struct dlock_claim *claim, const json_t *kv) {
    enum dlock_mode mode = DLOCK_EXCLUSIVE;
    uint32_t limit;
    if (claim->mode == DLOCK_SHARED) etcd_mode_of(kv, &mode, &limit);
    return mode != DLOCK_SHARED;
}

static void read_use(const struct dlock_claim *claim, const json_t *first, struct etcd_view *view) {
    etcd_mode_of(first, &view->used, &view->used_limit);
    view->misused = (view->used == DLOCK_PERMIT) != (claim->mode == DLOCK_PERMIT) ||
                    (claim->mode == DLOCK_PERMIT && view->used_limit != claim->limit);
}

static bool is_claims(const struct etcd *z, const struct dlock_claim *claim, const json_t *kv) {
    const char *key64 = etcd_string(kv, "key");
    char key[ETCD_KEY_SIZE];
    return key64 && dlock_base64(key64, key, sizeof key) && etcd_is_key(&z->address, claim->name, key);
}

/* Returns the first key that is a claim's; NULL: none of those that were read is. */
static const json_t *first_of(const struct etcd *z, const json_t *keys, const struct dlock_claim *claim) {
    size_t i;
    json_t *kv;
    json_array_foreach(keys, i, kv) {
        if (is_claims(z, claim, kv)) return kv;
    }
    return NULL;
}

/* Judges the keys before the claim's. False: a key has no revision. */
static bool read_before(const struct etcd *z, const json_t *keys, const struct dlock_claim *claim, const char *own64,
                        struct etcd_view *view) {
    const bool limited = claim->mode == DLOCK_EXCLUSIVE && !(claim->state[ETCD_FLAGS] & ETCD_DEEP);
    int64_t before = 0;
    size_t i;
    json_t *kv;
    json_array_foreach(keys, i, kv) {
        if (!is_claims(z, claim, kv)) {
            view->deep = view->deep || limited;
            continue;
        }
        const char *key64 = etcd_string(kv, "key");
        int64_t revision = etcd_int(kv, "create_revision");
        if (!key64 || revision <= 0) return false;
        if (strcmp(key64, own64) == 0 || (view->own && revision > view->own)) continue;
        if (revision == view->own && strcmp(key64, own64) > 0) continue; /* put by one transaction */
        before++;
        if (!view->blocker && in_the_way(claim, kv)) view->blocker = key64;
    }
    view->blocked = claim->mode == DLOCK_PERMIT ? before >= claim->limit : view->blocker != NULL;
    if (claim->mode == DLOCK_PERMIT) {
        view->blocker = NULL;
        view->need = before - claim->limit + 1;
    }
    /* With the revision unknown, the two keys are the last ones of the whole queue. If none of them is before the
     * claim's, and there is another one, the keys before the claim's were cut off. */
    if (limited && view->own && !claim->state[ETCD_REVISION] && !view->blocked) view->cut = json_array_size(keys) > 1;
    return true;
}

/* Fills the view. `own64` is the claim's key in base64. */
static bool read_all(const struct etcd *z, const json_t *own, const json_t *first, const json_t *before,
                     const struct dlock_claim *claim, const char *own64, struct etcd_view *view) {
    const json_t *kv = json_array_get(own, 0);
    view->own = kv ? etcd_int(kv, "create_revision") : 0;
    if (view->own < 0 || (kv && view->own == 0)) return false;
    const json_t *front = first_of(z, first, claim);
    const char *front64 = etcd_string(front, "key");
    if (json_array_size(first) > 0 && !etcd_string(json_array_get(first, 0), "key")) return false;
    if (front && strcmp(front64, own64) != 0) read_use(claim, front, view);
    view->deep = !front && json_array_size(first) > 0 && !(claim->state[ETCD_FLAGS] & ETCD_DEEP);
    return read_before(z, before, claim, own64, view);
}

bool etcd_read_view(const struct etcd *z, const json_t *transaction, size_t at, const struct dlock_claim *claim,
                    const char *key, struct etcd_view *view) {
    struct dlock_text own64 = {NULL, 0, 0, false};
    json_t *none = json_array();
    const json_t *own = keys_of(transaction, at, none), *first = keys_of(transaction, at + 1, none),
                 *before = keys_of(transaction, at + 2, none);
    memset(view, 0, sizeof *view);
    dlock_text_add_base64(&own64, key);
    bool sensible = none && !own64.failed && own && first && before;
    if (sensible) {
        own64.at[own64.n - 1] = '\0';
        sensible = read_all(z, own, first, before, claim, own64.at + 1, view);
    }
    dlock_text_free(&own64);
    json_decref(none);
    return sensible;
}
