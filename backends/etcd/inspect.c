/* Inspecting, listing and breaking locks. */
#include "etcd.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    PAGE = 500, /* keys that are read at once */
    LESS = 8    /* by how much fewer, if their values are too long for an answer */
};

/* The first byte of a cursor that is a key: no name has it. */
#define KEY_CURSOR '\x01'

/* The queue of one name, in order. The first n keys hold the lock. */
struct queue {
    struct etcd_reply reply;
    json_t *keys; /* NULL: the name has no keys */
    size_t n;
    enum dlock_mode mode;
    uint32_t limit, waiters;
};

/* "": there is none. A key that is longer or contains a NUL, and so is not dlock's, is cut. */
static void read_key(const json_t *kv, char key[ETCD_KEY_SIZE]) {
    const char *key64 = etcd_string(kv, "key");
    key[0] = '\0';
    if (key64) dlock_base64(key64, key, ETCD_KEY_SIZE);
}

static void count(struct queue *queue) {
    size_t all = json_array_size(queue->keys);
    enum dlock_mode mode;
    uint32_t limit;
    if (all == 0) return;
    etcd_mode_of(json_array_get(queue->keys, 0), &queue->mode, &queue->limit);
    queue->n = 1;
    if (queue->mode == DLOCK_PERMIT) queue->n = all < queue->limit ? all : queue->limit;
    for (; queue->mode == DLOCK_SHARED && queue->n < all; queue->n++) {
        etcd_mode_of(json_array_get(queue->keys, queue->n), &mode, &limit);
        if (mode != DLOCK_SHARED) break;
    }
    if (queue->mode != DLOCK_PERMIT) queue->limit = 1;
    queue->waiters = (uint32_t)(all - queue->n);
}

/* Reads the queue of a name. Returns 0 (the caller has to end queue->reply) or a code. */
static int read_queue(struct etcd *z, const char *name, int64_t deadline_us, struct queue *queue,
                      struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    memset(queue, 0, sizeof *queue);
    dlock_text_add(&body, "{\"sort_order\":\"ASCEND\",\"sort_target\":\"CREATE\",");
    etcd_add_range(&body, z, name);
    dlock_text_add(&body, "}");
    int rc = etcd_post(z, "/v3/kv/range", &body, ETCD_REPEAT, deadline_us, &queue->reply, err);
    if (rc != 0) return etcd_code(rc, err);
    queue->keys = json_object_get(queue->reply.body, "kvs");
    for (size_t i = json_array_size(queue->keys); i-- > 0;) {
        char key[ETCD_KEY_SIZE];
        read_key(json_array_get(queue->keys, i), key);
        if (!etcd_is_key(&z->address, name, key)) json_array_remove(queue->keys, i);
    }
    count(queue);
    return 0;
}

/* Passes those keys to `each`. True: `each` has returned non-zero. */
static bool show(struct etcd *z, const struct queue *queue, size_t from, size_t end, const char *name, dlock_each each,
                 void *arg) {
    for (size_t i = from; i < end; i++) {
        const json_t *kv = json_array_get(queue->keys, i);
        const bool holds = i < queue->n;
        char key[ETCD_KEY_SIZE], token[DLOCK_TOKEN_MAX + 1], value[ETCD_VALUE_SIZE];
        int64_t fence = etcd_int(kv, "create_revision");
        struct dlock_info info;
        read_key(kv, key);
        const char *value64 = etcd_string(kv, "value");
        if (!value64 || !dlock_base64(value64, value, sizeof value)) value[0] = '\0';
        etcd_token(&z->address, key, value, token);
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        info.name = name;
        info.token = token;
        info.mode = queue->mode;
        info.limit = queue->limit;
        info.waiters = queue->waiters;
        if (holds && fence > 0 && fence < ETCD_FENCE_END) info.fence = (uint64_t)fence;
        if (holds) info.remaining_ms = DLOCK_FOREVER; /* the grant lives as long as its lease */
        if (!holds) etcd_mode_of(kv, &info.mode, &info.limit);
        if (info.mode != DLOCK_PERMIT) info.limit = 1;
        if (each(&info, arg) != 0) return true;
    }
    return false;
}

static int look(void *conn, const char *name, bool at_waiters, dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err) {
    struct etcd *z = etcd_of(conn);
    struct queue queue;
    int rc = read_queue(z, name, dlock_deadline_us(timeout_ms), &queue, err);
    if (rc != 0) return rc;
    show(z, &queue, at_waiters ? queue.n : 0, at_waiters ? json_array_size(queue.keys) : queue.n, name, each, arg);
    etcd_reply_end(&queue.reply);
    return 0;
}

int etcd_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    return look(conn, name, false, each, arg, timeout_ms, err);
}

int etcd_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    return look(conn, name, true, each, arg, timeout_ms, err);
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

/* Deletes the holders' keys, unless one has been created again. Sets *broken if any of them still existed. Returns 0 or
 * a code. Nothing is sent twice: after an unanswered request the holder may be gone, and the key may be the next
 * one's. */
static int delete_holders(struct etcd *z, const struct queue *queue, int64_t deadline_us, bool *broken,
                          struct dlock_error *err) {
    for (size_t i = 0; i < queue->n; i++) {
        struct dlock_text body = {NULL, 0, 0, false};
        struct etcd_reply reply;
        const json_t *kv = json_array_get(queue->keys, i);
        const char *key64 = etcd_string(kv, "key");
        if (!key64) return etcd_nonsense(z, "key", err);
        dlock_text_add(&body, "{\"compare\":[{\"target\":\"CREATE\",\"create_revision\":\"%" PRId64 "\",\"key\":",
                       etcd_int(kv, "create_revision"));
        dlock_text_add_json(&body, key64);
        dlock_text_add(&body, "}],\"success\":[{\"request_delete_range\":{\"key\":");
        dlock_text_add_json(&body, key64);
        dlock_text_add(&body, "}}]}");
        int rc = etcd_post(z, "/v3/kv/txn", &body, ETCD_ONCE, deadline_us, &reply, err);
        if (rc != 0) return etcd_code(rc, err);
        *broken = *broken || etcd_deleted(reply.body) > 0;
        etcd_reply_end(&reply);
    }
    return 0;
}

int etcd_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct etcd *z = etcd_of(conn);
    struct queue queue;
    bool broken = false;
    size_t n;
    do {
        int rc = read_queue(z, name, deadline_us, &queue, err);
        if (rc != 0) return rc;
        n = queue.n;
        rc = delete_holders(z, &queue, deadline_us, &broken, err);
        etcd_reply_end(&queue.reply);
        if (rc != 0) return rc;
    } while (n > 0 && !broken);
    return broken ? 0 : dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

/* A walk over the keys of many names, in the order of the keys: those of one name follow each other. */
struct walk {
    struct etcd *z;
    char from[ETCD_KEY_SIZE], end[ETCD_KEY_SIZE]; /* the keys that are left */
    char name[256];                               /* the last lock; "": none was found */
    json_t *keys;                                 /* that were read of it, in the order of its queue */
    int limit;                                    /* how many keys to read at once */
    bool over;
    dlock_each each;
    void *arg;
};

/* Changes `key` to the first key after all that begin with it. */
static void after(char key[ETCD_KEY_SIZE]) {
    size_t n = strlen(key);
    while (n > 0 && (unsigned char)key[n - 1] == 0xff) n--;
    if (n > 0) key[n - 1] = (char)((unsigned char)key[n - 1] + 1);
    key[n] = '\0';
}

/* Writes the first key after one that was read, and after those that are cut in the same way. */
static void skip(const struct etcd *z, const char *key, char from[ETCD_KEY_SIZE]) {
    if (etcd_after_closed_slots(&z->address, key, from)) return;
    if (snprintf(from, ETCD_KEY_SIZE, "%s\x01", key) >= ETCD_KEY_SIZE) after(from);
}

/* Puts a key in its place among the keys of its name. False: out of memory. */
static bool line_up(struct walk *walk, json_t *kv) {
    int64_t revision = etcd_int(kv, "create_revision");
    if (!walk->keys) walk->keys = json_array();
    size_t at = json_array_size(walk->keys);
    while (at > 0 && etcd_int(json_array_get(walk->keys, at - 1), "create_revision") > revision) at--;
    return json_array_insert(walk->keys, at, kv) == 0;
}

/* Shows the last lock, all keys of which were read. */
static void end_name(struct walk *walk) {
    struct queue queue = {.keys = walk->keys};
    count(&queue);
    walk->over = walk->over || show(walk->z, &queue, 0, queue.n, walk->name, walk->each, walk->arg);
    json_decref(walk->keys);
    walk->keys = NULL;
}

/* The same if more keys of it may follow: its whole queue is read, and the walk continues behind it. */
static int end_cut_name(struct walk *walk, int64_t deadline_us, struct dlock_error *err) {
    struct queue queue;
    int rc = read_queue(walk->z, walk->name, deadline_us, &queue, err);
    if (rc != 0) return rc;
    walk->over = show(walk->z, &queue, 0, queue.n, walk->name, walk->each, walk->arg);
    etcd_reply_end(&queue.reply);
    etcd_prefix(&walk->z->address, walk->name, true, walk->from);
    return 0;
}

/* Shows the locks of an answer, except the last one. Writes the last key. Returns 0 or a code. */
static int read_page(struct walk *walk, const json_t *kvs, char key[ETCD_KEY_SIZE], struct dlock_error *err) {
    size_t i;
    json_t *kv;
    json_array_foreach(kvs, i, kv) {
        char name[256];
        read_key(kv, key);
        if (strcmp(key, walk->from) < 0) return etcd_nonsense(walk->z, "key", err); /* the list would have no end */
        bool same = walk->keys && etcd_is_key(&walk->z->address, walk->name, key);
        if (!same && !etcd_name(&walk->z->address, key, name)) continue;
        if (!same && walk->keys) end_name(walk);
        if (walk->over) return 0;
        if (!same) memcpy(walk->name, name, sizeof name);
        if (!line_up(walk, kv)) return etcd_no_memory(err);
    }
    return 0;
}

/* Reads keys, and shows their locks. Returns 0 or a code. */
static int walk_on(struct walk *walk, int64_t deadline_us, struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    char key[ETCD_KEY_SIZE] = "", prefix[ETCD_KEY_SIZE];
    dlock_text_add(&body, "{\"limit\":\"%d\",\"key\":", walk->limit);
    dlock_text_add_base64(&body, walk->from);
    dlock_text_add(&body, ",\"range_end\":");
    dlock_text_add_base64(&body, walk->end);
    dlock_text_add(&body, "}");
    int rc = etcd_code(etcd_post(walk->z, "/v3/kv/range", &body, ETCD_REPEAT, deadline_us, &reply, err), err);
    if (rc == DLOCK_EPROTO && walk->limit > 1) {
        walk->limit = walk->limit > LESS ? walk->limit / LESS : 1;
        return walk_on(walk, deadline_us, err);
    }
    if (rc != 0) return rc;
    bool more = json_is_true(json_object_get(reply.body, "more"));
    rc = read_page(walk, json_object_get(reply.body, "kvs"), key, err);
    if (more) skip(walk->z, key, walk->from);
    etcd_prefix(&walk->z->address, walk->name, false, prefix);
    if (rc == 0 && walk->keys && !walk->over) {
        if (more && strncmp(key, prefix, strlen(prefix)) == 0)
            rc = end_cut_name(walk, deadline_us, err);
        else
            end_name(walk);
    }
    walk->over = walk->over || !more;
    json_decref(walk->keys);
    walk->keys = NULL;
    etcd_reply_end(&reply);
    return rc;
}

/* A page is an answer. The cursor is the key to continue with, after KEY_CURSOR; or, if that is too long, the name of
 * the last lock. */
int etcd_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
              struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct walk walk = {.z = etcd_of(conn), .limit = PAGE, .each = each, .arg = arg};
    etcd_start(&walk.z->address, prefix, walk.end);
    after(walk.end);
    if (*cursor == KEY_CURSOR)
        snprintf(walk.from, sizeof walk.from, "%s", cursor + 1);
    else if (*cursor)
        etcd_prefix(&walk.z->address, cursor, true, walk.from);
    else
        etcd_start(&walk.z->address, prefix, walk.from);
    do {
        int rc = walk_on(&walk, deadline_us, err);
        if (rc != 0 || walk.over) return rc;
    } while (strlen(walk.from) >= 255 && !*walk.name);
    if (strlen(walk.from) < 255)
        snprintf(cursor, 256, "%c%s", KEY_CURSOR, walk.from);
    else
        snprintf(cursor, 256, "%s", walk.name);
    return 1;
}
