/* The use of a name: as a lock, or as permits with one limit. A name has one use at a time.
 *
 * A claim makes its node, then looks for nodes of other uses in all containers of the name, and prevails unless one of
 * them is older than its own. Of two claims of different uses the younger one therefore finds a node of the other,
 * however slow either is: the other's first node or, if the other has moved (from the queue to the leases, from writer
 * to reader), one whose data records when the claim got its first node. The queue is listed before the leases, since
 * claims move in that direction.
 *
 * The claim of the older node may itself be refused soon; then its node does not define the use of the name. That is
 * the case if a node of the claim's own use is older still: the claim keeps its node, which blocks no claim that
 * prevails, and waits until the nodes in between are gone. Otherwise a claim that finds an older node deletes its own
 * at once, since that would block others in the same way, and keeps looking without one. It starts over when no other
 * use is left. It is refused after SETTLED_MS with another use present throughout, which is longer than any claim takes
 * to find out that it does not prevail, or if the older node was made SETTLED_MS before its own. */
#include "attempt.h"

enum { SETTLED_MS = 500 };

struct use {
    uint64_t since;  /* czxid of the claim's first node; UINT64_MAX: no node */
    int64_t made_ms; /* by the server's clock */
    bool lock;
    uint32_t limit; /* 0: none is named */
};

struct search {
    struct zookeeper_attempt *a;
    struct use oldest; /* the oldest of the uses that differ from the claim's */
    uint64_t ours;     /* since when the first node of the claim's own use is there; UINT64_MAX: no node */
    bool gone;         /* a listed node has gone: its claim may have another one by now */
};

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* Curator's nodes name no limit, which is taken to be the same. */
static bool is_our_use(const struct zookeeper_attempt *a, const char *node, bool lock) {
    uint32_t limit = zookeeper_limit(node);
    if (lock || a->claim->mode != DLOCK_PERMIT) return lock && a->claim->mode != DLOCK_PERMIT;
    return !limit || limit == a->label.limit;
}

static void note(struct search *search, const struct zookeeper_request *get, const char *node, bool lock) {
    uint64_t czxid = (uint64_t)get->stat.czxid, since = zookeeper_since(get->data);
    if (since == 0 || since > czxid) since = czxid;
    if (is_our_use(search->a, node, lock)) {
        if (since < search->ours) search->ours = since;
        return;
    }
    if (since >= search->oldest.since) return;
    search->oldest = (struct use){since, get->stat.ctime, lock, zookeeper_limit(node)};
}

static int failed(struct zookeeper_attempt *a, int answer, const char *dir) {
    return zookeeper_unknown(answer) ? zookeeper_attempt_unknown(a)
                                     : zookeeper_refused(a->z, answer, "read a node in", dir, a->err);
}

static int read_nodes(struct search *search, const char *dir, char *const *nodes, size_t n, bool lock) {
    struct zookeeper_call *call = zookeeper_call(search->a->z, n);
    char path[ZOOKEEPER_PATH_SIZE];
    int rc = 0;
    if (!call) return zookeeper_attempt_no_memory(search->a);
    for (size_t i = 0; i < n; i++) {
        zookeeper_join(dir, nodes[i], path);
        zookeeper_ask_get(call, path, NULL);
    }
    zookeeper_call_wait(call, search->a->deadline_us);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct zookeeper_request *get = &call->requests[i];
        if (get->rc == ZOK)
            note(search, get, nodes[i], lock);
        else if (get->rc == ZNONODE)
            search->gone = true;
        else
            rc = failed(search->a, get->rc, dir);
    }
    zookeeper_call_end(call);
    return rc;
}

/* Notes the uses of the nodes in `dir`, and the first node of the claim's own use. `lock`: they are nodes of a lock, not of
 * permits. */
static int look_into(struct search *search, const char *dir, bool lock) {
    struct zookeeper_call *call = zookeeper_call(search->a->z, 1);
    size_t n, kept = 0;
    bool ours = false;
    int rc = 0;
    if (!call) return zookeeper_attempt_no_memory(search->a);
    struct zookeeper_request *list = zookeeper_ask_children(call, dir);
    zookeeper_call_wait(call, search->a->deadline_us);
    if (list->rc == ZOK) {
        n = zookeeper_sort(list->names, list->n_names);
        for (size_t i = 0; i < n; i++) {
            char *node = list->names[i];
            if (is_our_use(search->a, node, lock)) {
                if (ours) continue;
                ours = true;
            }
            list->names[i] = list->names[kept];
            list->names[kept++] = node;
        }
        if (kept > 0) rc = read_nodes(search, dir, list->names, kept, lock);
    } else if (list->rc != ZNONODE) {
        rc = failed(search->a, list->rc, dir);
    }
    zookeeper_call_end(call);
    return rc;
}

/* Looks into all containers of the name. Returns 0, AGAIN or an error. */
static int look_everywhere(struct search *search, struct zookeeper_attempt *a) {
    char queue[ZOOKEEPER_PATH_SIZE], leases[ZOOKEEPER_PATH_SIZE];
    *search = (struct search){a, {UINT64_MAX, 0, false, 0}, UINT64_MAX, false};
    zookeeper_join(a->lock, "locks", queue);
    zookeeper_join(a->lock, "leases", leases);
    int rc = look_into(search, queue, false);
    if (rc == 0) rc = look_into(search, leases, false);
    if (rc == 0 && (a->claim->mode == DLOCK_PERMIT || search->oldest.since != UINT64_MAX))
        rc = look_into(search, a->lock, true);
    return rc;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int refuse(const struct zookeeper_attempt *a, const struct use *use) {
    const char *name = a->claim->name;
    if (use->lock) return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as a lock", name);
    if (!use->limit) return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as permits", name);
    if (a->claim->mode != DLOCK_PERMIT)
        return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as %u permits", name, use->limit);
    return dlock_fail(a->err, DLOCK_EINVAL, "lock \"%.100s\" is in use as %u permits, not %u", name, use->limit,
                      a->claim->limit);
}

static int give_way(struct zookeeper_attempt *a, const struct use *use) {
    for (size_t i = 0; i < a->n_slots; i++) {
        int rc = zookeeper_leave(a, &a->slots[i]);
        if (rc != 0) return rc;
    }
    if (a->made_ms && a->made_ms - use->made_ms >= SETTLED_MS) return refuse(a, use);
    a->doubt_until_us = dlock_now_us() + SETTLED_MS * 1000;
    a->older_until_us = 0;
    zookeeper_pause(a->z);
    return ZOOKEEPER_AGAIN;
}

/* Waits a moment for the older nodes of another use to go. If they stay, gives way. */
static int outlast(struct zookeeper_attempt *a, const struct use *use) {
    int64_t now = dlock_now_us();
    if (!a->older_until_us) a->older_until_us = now + SETTLED_MS * 1000;
    if (now >= a->older_until_us) return give_way(a, use);
    if (now >= a->deadline_us) return zookeeper_silent(a->z, a->err);
    zookeeper_pause(a->z);
    return ZOOKEEPER_AGAIN;
}

int zookeeper_await_use(struct zookeeper_attempt *a) {
    struct search search;
    if (!a->doubt_until_us) return 0;
    if (dlock_now_us() >= a->deadline_us) return DLOCK_EBUSY;
    int rc = look_everywhere(&search, a);
    if (rc != 0) return rc;
    bool other = search.oldest.since != UINT64_MAX;
    if (other && dlock_now_us() >= a->doubt_until_us) return refuse(a, &search.oldest);
    if (other || search.gone) {
        zookeeper_pause(a->z);
        return ZOOKEEPER_AGAIN;
    }
    a->doubt_until_us = 0;
    return 0;
}

int zookeeper_check_use(struct zookeeper_attempt *a, bool others) {
    struct search search;
    for (size_t i = 0; i < a->n_slots; i++)
        if (zookeeper_slot_has(&a->slots[i], ZOOKEEPER_RIGHTFUL)) return 0;
    if (others) {
        int rc = look_everywhere(&search, a);
        if (rc != 0) return rc;
        if (search.oldest.since < a->claim->state[ZOOKEEPER_FENCE])
            return (search.ours < search.oldest.since ? outlast : give_way)(a, &search.oldest);
        if (search.gone) return ZOOKEEPER_AGAIN;
    }
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].view.own) *a->slots[i].word |= ZOOKEEPER_RIGHTFUL;
    return 0;
}
