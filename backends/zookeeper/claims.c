/* Acquiring and releasing.
 *
 * A new claim costs one round trip: the create of its node and the listing go out back to back. One that has its node
 * looks again with a listing alone, where the session is sure to live for a while: the server may be behind, or cut
 * off, but who was first in line once, and has not left it, still is. Otherwise a write goes out before the listing,
 * and proves how long the session lives and that the server is not behind. */
#include "zookeeper.h"

#include <stdlib.h>

enum { RETRY_MIN_MS = 10000 }; /* a waiter looks again after so long, or one session, even if nobody wakes it */

/* One claim being acquired or released. */
struct asking {
    struct zookeeper *z;
    struct dlock_claim *claim;
    struct zookeeper_uuid uuid;
    char dir[ZOOKEEPER_PATH_SIZE];
    int64_t begun_us, deadline_us;
    bool dead;       /* the session is over */
    bool make, deep; /* the container, and its parents, were missing */
    struct zookeeper_line line;
    struct dlock_error *err;
};

/* What a step of an acquire came to, besides an error code. */
enum { AGAIN = 1, LOOKED = 2 };

static bool has(const struct dlock_claim *claim, uint64_t flag) {
    return claim->state[ZOOKEEPER_PLACE] & flag;
}

static int32_t sequence_of(const struct dlock_claim *claim) {
    return (int32_t)(uint32_t)claim->state[ZOOKEEPER_PLACE];
}

static void forget(struct dlock_claim *claim) {
    memset(claim->state, 0, sizeof claim->state);
}

uint64_t zookeeper_session(struct zookeeper *z) {
    pthread_mutex_lock(&z->mutex);
    uint64_t session = z->session;
    pthread_mutex_unlock(&z->mutex);
    return session;
}

static void begin(struct asking *a, struct zookeeper *z, struct dlock_claim *claim, int64_t deadline_us,
                  struct dlock_error *err) {
    memset(a, 0, offsetof(struct asking, line));
    a->z = z;
    a->claim = claim;
    a->begun_us = dlock_now_us();
    a->deadline_us = deadline_us;
    a->err = err;
    zookeeper_uuid(claim->token, &a->uuid);
    zookeeper_path(z, claim->name, a->dir);
}

static void node_path(const struct asking *a, int32_t sequence, char path[ZOOKEEPER_PATH_SIZE]) {
    char node[ZOOKEEPER_NODE_SIZE];
    zookeeper_node(&a->uuid, &sequence, node);
    zookeeper_join(a->dir, node, path);
}

void zookeeper_claim_path(const struct zookeeper *z, const struct dlock_claim *claim, char path[ZOOKEEPER_PATH_SIZE]) {
    char dir[ZOOKEEPER_PATH_SIZE], node[ZOOKEEPER_NODE_SIZE];
    struct zookeeper_uuid uuid;
    int32_t sequence = sequence_of(claim);
    zookeeper_uuid(claim->token, &uuid);
    zookeeper_path(z, claim->name, dir);
    zookeeper_node(&uuid, &sequence, node);
    zookeeper_join(dir, node, path);
}

/* An answer that says nothing: worth another try while there is time. */
static int unknown(struct asking *a) {
    if (dlock_now_us() >= a->deadline_us) return zookeeper_silent(a->z, a->err);
    zookeeper_pause(a->z);
    return AGAIN;
}

static int out_of_memory(struct asking *a) {
    return dlock_fail(a->err, DLOCK_EUNAVAILABLE, "out of memory for a request to ZooKeeper");
}

/* ---- finding our place ------------------------------------------------------------------------------------------- */

static int take_line(struct asking *a, const struct zookeeper_request *request) {
    if (!request->sensible)
        return dlock_fail(a->err, DLOCK_EPROTO,
                          "ZooKeeper at %s has a node in %.200s whose name is too long for a lock's", a->z->where,
                          a->dir);
    a->line = request->line;
    return LOOKED;
}

static int read_create(struct asking *a, const struct zookeeper_request *create) {
    struct dlock_claim *claim = a->claim;
    int32_t sequence;
    if (!zookeeper_sequence(create->node, &sequence) ||
        (uint64_t)create->stat.ephemeralOwner != claim->state[ZOOKEEPER_SESSION] || create->stat.czxid <= 0)
        return dlock_fail(a->err, DLOCK_EPROTO, "ZooKeeper at %s made a node that is not ours in %.200s", a->z->where,
                          a->dir);
    claim->state[ZOOKEEPER_FENCE] = (uint64_t)create->stat.czxid;
    claim->state[ZOOKEEPER_PLACE] |= ZOOKEEPER_KNOWN | (uint32_t)sequence;
    return 0;
}

/* The token and, where the node of the lock does not show it, the lock's name. */
static void write_data(const struct asking *a, char data[ZOOKEEPER_DATA_SIZE]) {
    char name[256];
    bool cut;
    if (zookeeper_name(a->z, strrchr(a->dir, '/') + 1, name, &cut) && !cut)
        snprintf(data, ZOOKEEPER_DATA_SIZE, "%s", a->claim->token);
    else
        snprintf(data, ZOOKEEPER_DATA_SIZE, "%s\n%s", a->claim->token, a->claim->name);
}

/* No container: next time with it, and if that was not enough, with its parents. */
static int missing(struct asking *a, const struct zookeeper_request *create, int made) {
    forget(a->claim);
    if (a->deep && made != ZOK && made != ZNODEEXISTS && made != ZNONODE)
        return zookeeper_unknown(made) ? unknown(a) : zookeeper_refused(a->z, made, "create", a->dir, a->err);
    if (dlock_now_us() >= a->deadline_us)
        return zookeeper_refused(a->z, create->rc, "create a node in", a->dir, a->err);
    a->deep = a->make;
    a->make = true;
    return AGAIN;
}

/* Makes our node and looks where it stands. */
static int create_and_look(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    char path[ZOOKEEPER_PATH_SIZE], data[ZOOKEEPER_DATA_SIZE], node[ZOOKEEPER_NODE_SIZE];
    zookeeper_node(&a->uuid, NULL, node);
    write_data(a, data);
    if (!zookeeper_join(a->dir, node, path))
        return dlock_fail(a->err, DLOCK_EINVAL, "the path of lock \"%.100s\" is too long", claim->name);
    struct zookeeper_call *call = zookeeper_call(a->z, 2 + (a->make ? zookeeper_depth(a->dir) : 0));
    if (!call) return out_of_memory(a);
    claim->state[ZOOKEEPER_SESSION] = zookeeper_session(a->z);
    claim->state[ZOOKEEPER_PLACE] = ZOOKEEPER_SENT;
    if (a->make) zookeeper_ask_containers(call, a->dir, a->deep);
    int made = -1;
    size_t containers = call->n;
    struct zookeeper_request *create = zookeeper_ask_create(call, path, data);
    struct zookeeper_request *list = zookeeper_ask_line(call, a->dir, &a->uuid, NULL, create);
    zookeeper_call_wait(call, a->deadline_us);
    if (containers) made = call->requests[containers - 1].rc;

    int rc;
    if (create->rc == ZNONODE)
        rc = missing(a, create, made);
    else if (zookeeper_unknown(create->rc))
        rc = unknown(a);
    else if (create->rc != ZOK)
        rc = zookeeper_refused(a->z, create->rc, "create a node in", a->dir, a->err);
    else if ((rc = read_create(a, create)) == 0)
        rc = list->rc == ZOK ? take_line(a, list) : unknown(a);
    if (rc < 0 && !zookeeper_unknown(create->rc) && create->rc != ZOK) forget(claim);
    if (create->rc == ZOK) zookeeper_wrote(a->z, call->sent_us);
    zookeeper_call_end(call);
    return rc;
}

/* Looks where our node stands, if it is still there. */
static int look(struct asking *a, bool write) {
    int32_t known = sequence_of(a->claim);
    struct zookeeper_call *call = zookeeper_call(a->z, 2);
    if (!call) return out_of_memory(a);
    struct zookeeper_request *first = write ? zookeeper_ask_write(call) : NULL;
    struct zookeeper_request *list =
        zookeeper_ask_line(call, a->dir, &a->uuid, has(a->claim, ZOOKEEPER_KNOWN) ? &known : NULL, NULL);
    zookeeper_call_wait(call, a->deadline_us);
    int rc;
    if (first && zookeeper_written(first)) {
        zookeeper_wrote(a->z, call->sent_us);
        first = NULL;
    }
    if ((first && zookeeper_unknown(first->rc)) || zookeeper_unknown(list->rc)) {
        rc = unknown(a);
    } else if (first || (list->rc != ZOK && list->rc != ZNONODE)) {
        rc = zookeeper_refused(a->z, first ? first->rc : list->rc, first ? "write to" : "list", first ? "/" : a->dir,
                               a->err);
    } else if (list->rc == ZNONODE) {
        memset(&a->line, 0, sizeof a->line);
        rc = LOOKED;
    } else {
        rc = take_line(a, list);
    }
    zookeeper_call_end(call);
    return rc;
}

/* Looks where our node stands. */
static int look_again(struct asking *a) {
    pthread_mutex_lock(&a->z->mutex);
    int64_t half_ms = a->z->session_ms / 2;
    pthread_mutex_unlock(&a->z->mutex);
    return look(a, !has(a->claim, ZOOKEEPER_KNOWN) || zookeeper_kept_ms(a->z, a->begun_us) < half_ms);
}

/* A node with our uuid whose create was never answered: ours if this session made it. */
static int adopt(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    char path[ZOOKEEPER_PATH_SIZE];
    node_path(a, a->line.own_sequence, path);
    struct zookeeper_call *call = zookeeper_call(a->z, 1);
    if (!call) return out_of_memory(a);
    struct zookeeper_request *get = zookeeper_ask_get(call, path, NULL);
    zookeeper_call_wait(call, a->deadline_us);
    int rc = LOOKED, answer = get->rc;
    uint64_t owner = (uint64_t)get->stat.ephemeralOwner, fence = (uint64_t)get->stat.czxid;
    zookeeper_call_end(call);
    if (answer == ZNONODE) {
        rc = AGAIN;
    } else if (zookeeper_unknown(answer)) {
        rc = unknown(a);
    } else if (answer != ZOK) {
        rc = zookeeper_refused(a->z, answer, "read", path, a->err);
    } else if (owner != claim->state[ZOOKEEPER_SESSION]) {
        rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
        if (rc == 0 || rc == DLOCK_ELOST) rc = AGAIN;
    } else {
        claim->state[ZOOKEEPER_FENCE] = fence;
        claim->state[ZOOKEEPER_PLACE] |= ZOOKEEPER_KNOWN | (uint32_t)a->line.own_sequence;
    }
    return rc;
}

/* Another node with our uuid: of an older session, or of a create that was executed although we had given it up. */
static int delete_twin(struct asking *a) {
    char path[ZOOKEEPER_PATH_SIZE];
    if (!zookeeper_join(a->dir, a->line.twin, path)) return AGAIN;
    int rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
    return rc == 0 || rc == DLOCK_ELOST ? AGAIN : rc;
}

/* LOOKED: a->line shows our place. */
static int find_place(struct asking *a) {
    int rc;
    if (has(a->claim, ZOOKEEPER_SENT))
        rc = look_again(a);
    else
        rc = create_and_look(a);
    if (rc != LOOKED) return rc;
    if (a->line.twin[0]) return delete_twin(a);
    if (!a->line.own) { /* never made, or removed by somebody: anew */
        forget(a->claim);
        return dlock_now_us() < a->deadline_us ? AGAIN : zookeeper_silent(a->z, a->err);
    }
    return has(a->claim, ZOOKEEPER_KNOWN) ? LOOKED : adopt(a);
}

/* ---- acquiring --------------------------------------------------------------------------------------------------- */

static int granted(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    claim->fence = claim->state[ZOOKEEPER_FENCE];
    claim->kept_ms = zookeeper_kept_ms(a->z, a->begun_us);
    claim->state[ZOOKEEPER_PLACE] |= ZOOKEEPER_QUEUED;
    return 0;
}

/* Leaves nothing behind. */
static int step_back(struct asking *a) {
    char path[ZOOKEEPER_PATH_SIZE];
    node_path(a, sequence_of(a->claim), path);
    int rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
    if (rc != 0 && rc != DLOCK_ELOST) return rc;
    forget(a->claim);
    return DLOCK_EBUSY;
}

/* EBUSY: a watch on the node before ours is set. AGAIN: that node has gone. */
static int stay_in_line(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    char path[ZOOKEEPER_PATH_SIZE];
    bool there;
    claim->state[ZOOKEEPER_PLACE] |= ZOOKEEPER_QUEUED;
    claim->retry_ms = claim->retry_ms > RETRY_MIN_MS ? claim->retry_ms : RETRY_MIN_MS;
    zookeeper_join(a->dir, a->line.before, path);
    struct zookeeper_watch *watch = zookeeper_watch_new(a->z, path, claim->name, NULL, &there);
    if (there) return DLOCK_EBUSY;
    struct zookeeper_call *call = watch ? zookeeper_call(a->z, 1) : NULL;
    if (!call) {
        if (watch) zookeeper_watch_cancel(watch);
        return out_of_memory(a);
    }
    struct zookeeper_request *get = zookeeper_ask_get(call, path, watch);
    zookeeper_call_wait(call, a->deadline_us);
    int answer = get->rc;
    zookeeper_call_end(call);
    if (answer == ZOK) return DLOCK_EBUSY;
    if (answer == ZNONODE) return AGAIN;
    return zookeeper_unknown(answer) ? unknown(a) : zookeeper_refused(a->z, answer, "watch", path, a->err);
}

static int acquire_one(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    int rc;
    if (claim->mode != DLOCK_EXCLUSIVE)
        return dlock_fail(a->err, DLOCK_ENOTSUP, "the zookeeper backend has exclusive locks only");
    do {
        rc = zookeeper_ready(a->z, a->deadline_us, &a->dead, a->err);
        if (rc != 0) return DLOCK_EUNAVAILABLE;
        if (claim->state[ZOOKEEPER_SESSION] != zookeeper_session(a->z)) forget(claim);
        rc = find_place(a);
        if (rc != LOOKED) continue;
        if (a->line.ahead == 0)
            rc = granted(a);
        else if (claim->flags & DLOCK_CLAIM_QUEUE || has(claim, ZOOKEEPER_QUEUED))
            rc = stay_in_line(a);
        else
            rc = step_back(a);
    } while (rc == AGAIN);
    return rc;
}

/* ---- releasing --------------------------------------------------------------------------------------------------- */

/* Without knowing where our node is, or whether there is one. */
static int search_and_delete(struct asking *a) {
    char path[ZOOKEEPER_PATH_SIZE];
    bool found = false;
    for (;;) {
        int rc = zookeeper_ready(a->z, a->deadline_us, &a->dead, a->err);
        if (rc != 0) return DLOCK_EUNAVAILABLE;
        rc = look(a, true);
        if (rc == AGAIN) continue;
        if (rc != LOOKED) return rc;
        if (!a->line.own && !a->line.twin[0]) return found ? 0 : DLOCK_ELOST;
        if (a->line.own)
            node_path(a, a->line.own_sequence, path);
        else
            zookeeper_join(a->dir, a->line.twin, path);
        rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
        if (rc != 0 && rc != DLOCK_ELOST) return rc;
        found = found || rc == 0;
    }
}

static int release_one(struct asking *a) {
    struct dlock_claim *claim = a->claim;
    char path[ZOOKEEPER_PATH_SIZE];
    int rc;
    if (has(claim, ZOOKEEPER_KNOWN) && claim->state[ZOOKEEPER_SESSION] == zookeeper_session(a->z)) {
        node_path(a, sequence_of(claim), path);
        zookeeper_watch_forget(a->z, path);
        rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
    } else {
        rc = search_and_delete(a);
    }
    if (rc == 0 || rc == DLOCK_ELOST) forget(claim);
    return rc;
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

static int one_by_one(struct zookeeper *z, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      int (*operation)(struct asking *), struct dlock_error *err) {
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct asking a;
    for (size_t i = 0; i < n; i++) {
        begin(&a, z, claims[i], deadline_us, err);
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
