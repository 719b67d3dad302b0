/* Finding a claim's place in the queue. */
#include "attempt.h"

#include <stdlib.h>

enum { MOMENTS = 20 };

bool zookeeper_slot_has(const struct zookeeper_slot *s, uint64_t flag) {
    return *s->word & flag;
}

static int32_t sequence_of(const struct zookeeper_slot *s) {
    return (int32_t)(uint32_t)*s->word;
}

uint64_t zookeeper_session(struct zookeeper *z) {
    pthread_mutex_lock(&z->mutex);
    uint64_t session = z->session;
    pthread_mutex_unlock(&z->mutex);
    return session;
}

static void slot_begin(struct zookeeper_slot *s, const char *lock, const char *below, enum zookeeper_kind kind,
                       uint64_t *word) {
    snprintf(s->dir, sizeof s->dir, "%.*s%s", ZOOKEEPER_PATH_SIZE - 16, lock, below);
    s->kind = kind;
    s->word = word;
    memset(&s->view, 0, sizeof s->view);
    s->sent = NULL;
    s->missed = s->gone = false;
}

void zookeeper_attempt_begin(struct zookeeper_attempt *a, struct zookeeper *z, struct dlock_claim *claim,
                             int64_t deadline_us, struct dlock_error *err) {
    bool permit = claim->mode == DLOCK_PERMIT;
    a->z = z;
    a->claim = claim;
    a->begun_us = dlock_now_us();
    a->deadline_us = deadline_us;
    a->dead = a->make = a->deep = a->polls = false;
    a->lock_members = 0;
    a->made_ms = a->doubt_until_us = a->older_until_us = 0;
    a->moments = MOMENTS;
    a->spared = a->had = false;
    a->round.call = NULL;
    a->err = err;
    zookeeper_label(claim, &a->label);
    zookeeper_path(z, claim->name, a->lock);
    a->n_slots = permit ? 2 : 1;
    if (permit) {
        slot_begin(&a->slots[0], a->lock, "/leases", ZOOKEEPER_LEASE, &claim->state[ZOOKEEPER_PLACE]);
        slot_begin(&a->slots[1], a->lock, "/locks", ZOOKEEPER_MUTEX, &claim->state[ZOOKEEPER_QUEUE]);
    } else {
        unsigned kind = claim->mode == DLOCK_SHARED ? ZOOKEEPER_READER : z->writer;
        if (!(claim->flags & DLOCK_CLAIM_QUEUE)) kind |= ZOOKEEPER_TRY;
        slot_begin(&a->slots[0], a->lock, "", (enum zookeeper_kind)kind, &claim->state[ZOOKEEPER_PLACE]);
    }
}

void zookeeper_attempt_end(struct zookeeper_attempt *a) {
    if (a->round.call) zookeeper_call_end(a->round.call);
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].sent) zookeeper_call_end(a->slots[i].sent);
}

int zookeeper_attempt_ready(struct zookeeper_attempt *a) {
    if (zookeeper_ready(a->z, a->deadline_us, &a->dead, a->err) != 0) return DLOCK_EUNAVAILABLE;
    if (a->claim->state[ZOOKEEPER_SESSION] != zookeeper_session(a->z))
        memset(a->claim->state, 0, sizeof a->claim->state);
    return 0;
}

int zookeeper_attempt_unknown(struct zookeeper_attempt *a) {
    if (dlock_now_us() >= a->deadline_us) return zookeeper_silent(a->z, a->err);
    zookeeper_pause(a->z);
    return ZOOKEEPER_AGAIN;
}

int zookeeper_attempt_no_memory(struct zookeeper_attempt *a) {
    return dlock_fail(a->err, DLOCK_EUNAVAILABLE, "out of memory for a request to ZooKeeper");
}

/* ---- nodes of the claim ------------------------------------------------------------------------------------------ */

static void node_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s, enum zookeeper_kind kind,
                      int32_t sequence, char path[ZOOKEEPER_PATH_SIZE]) {
    char node[ZOOKEEPER_NODE_SIZE];
    zookeeper_node(&a->label, kind, &sequence, node);
    zookeeper_join(s->dir, node, path);
}

void zookeeper_claim_path(const struct zookeeper *z, const struct dlock_claim *claim, enum zookeeper_kind kind,
                          char path[ZOOKEEPER_PATH_SIZE]) {
    char dir[ZOOKEEPER_PATH_SIZE], node[ZOOKEEPER_NODE_SIZE];
    struct zookeeper_label label;
    int32_t sequence = (int32_t)(uint32_t)claim->state[ZOOKEEPER_PLACE];
    zookeeper_label(claim, &label);
    zookeeper_path(z, claim->name, dir);
    if (claim->mode == DLOCK_PERMIT) strcat(dir, "/leases");
    zookeeper_node(&label, kind, &sequence, node);
    zookeeper_join(dir, node, path);
}

void zookeeper_write_data(const struct zookeeper *z, const struct dlock_claim *claim, uint64_t since,
                          char data[ZOOKEEPER_DATA_SIZE]) {
    char path[ZOOKEEPER_PATH_SIZE], name[256];
    bool cut;
    zookeeper_path(z, claim->name, path);
    bool shown = zookeeper_name(z, strrchr(path, '/') + 1, name, &cut) && !cut;
    int n = snprintf(data, ZOOKEEPER_DATA_SIZE, "%s", claim->token);
    if (!shown || since) n += snprintf(data + n, ZOOKEEPER_DATA_SIZE - (size_t)n, "\n%s", shown ? "" : claim->name);
    if (since) snprintf(data + n, ZOOKEEPER_DATA_SIZE - (size_t)n, "\n%llu", (unsigned long long)since);
}

uint64_t zookeeper_since(const char *data) {
    const char *name = strchr(data, '\n'), *since = name ? strchr(name + 1, '\n') : NULL;
    return since ? strtoull(since + 1, NULL, 10) : 0;
}

void zookeeper_slot_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                         char path[ZOOKEEPER_PATH_SIZE]) {
    node_path(a, s, ZOOKEEPER_KIND(*s->word), sequence_of(s), path);
}

void zookeeper_found_path(const struct zookeeper_attempt *a, const struct zookeeper_slot *s,
                          char path[ZOOKEEPER_PATH_SIZE]) {
    node_path(a, s, s->view.own_kind, s->view.own_sequence, path);
}

static int delete_node(struct zookeeper_attempt *a, const char *path) {
    int rc = zookeeper_delete(a->z, path, a->deadline_us, &a->dead, a->err);
    return rc == DLOCK_ELOST ? 0 : rc;
}

int zookeeper_leave(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    if (s->view.own) {
        zookeeper_found_path(a, s, path);
        int rc = delete_node(a, path);
        if (rc != 0) return rc;
    }
    *s->word = 0;
    return 0;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

/* True if a write has to go out before the listings. A claim whose node is known can do without while the session is
 * sure to live for a while: the server may lag or be cut off, but a node that was first in the queue once, and has not
 * been deleted, still is. Otherwise the write proves for how long the session lives, and that the server does not
 * lag. */
static bool must_write(const struct zookeeper_attempt *a) {
    pthread_mutex_lock(&a->z->mutex);
    int64_t half_ms = a->z->session_ms / 2;
    pthread_mutex_unlock(&a->z->mutex);
    bool known = false;
    for (size_t i = 0; i < a->n_slots; i++) {
        const struct zookeeper_slot *s = &a->slots[i];
        if (zookeeper_slot_has(s, ZOOKEEPER_SENT) && !zookeeper_slot_has(s, ZOOKEEPER_KNOWN)) return true;
        known = known || zookeeper_slot_has(s, ZOOKEEPER_KNOWN);
    }
    if (!known) return true;
    return !a->spared && zookeeper_kept_ms(a->z, a->begun_us) < half_ms;
}

/* True if the claim moves from the queue to the leases with this node. */
static bool moves(const struct zookeeper_attempt *a, const struct zookeeper_slot *to) {
    return a->n_slots > 1 && to == a->slots && zookeeper_slot_has(&a->slots[1], ZOOKEEPER_KNOWN);
}

/* Sends the create of the claim's node. False: the path is too long. */
static bool ask_create(struct zookeeper_attempt *a, struct zookeeper_slot *s, struct zookeeper_round *r) {
    char path[ZOOKEEPER_PATH_SIZE], data[ZOOKEEPER_DATA_SIZE], node[ZOOKEEPER_NODE_SIZE];
    zookeeper_node(&a->label, s->kind, NULL, node);
    zookeeper_write_data(a->z, a->claim, moves(a, s) ? a->claim->state[ZOOKEEPER_FENCE] : 0, data);
    if (!zookeeper_join(s->dir, node, path)) return false;
    a->claim->state[ZOOKEEPER_SESSION] = zookeeper_session(a->z);
    *s->word = ZOOKEEPER_SENT | ZOOKEEPER_OF_KIND(s->kind);
    if (a->make) zookeeper_ask_containers(r->call, s->dir, a->deep);
    r->containers = r->call->n;
    r->create = zookeeper_ask_create(r->call, path, data);
    return true;
}

/* True if the create may show without a listing that the node is alone. */
static bool hopes(const struct zookeeper_attempt *a, const struct zookeeper_slot *create) {
    return create && a->n_slots == 1 && !a->make && !(a->claim->flags & DLOCK_CLAIM_LINGER) &&
           zookeeper_alone_hopes(a->z, a->claim->name);
}

/* Sends the listings: the queue before the leases, so that a claim that moves from the one to the other is seen in at
 * least one of them. */
static void ask_lists(struct zookeeper_attempt *a, struct zookeeper_slot *create, struct zookeeper_round *r) {
    for (size_t i = a->n_slots; i-- > 0;) {
        struct zookeeper_slot *s = &a->slots[i];
        r->known[i] = sequence_of(s);
        r->lists[i] = zookeeper_ask_queue(r->call, s->dir, &a->label,
                                          zookeeper_slot_has(s, ZOOKEEPER_KNOWN) ? &r->known[i] : NULL,
                                          s == create ? r->create : NULL, NULL);
    }
    if (a->n_slots > 1) r->lists[2] = zookeeper_ask_queue(r->call, a->lock, NULL, NULL, NULL, NULL);
}

static bool is_refused(int made) {
    return made != ZOK && made != ZNODEEXISTS && made != ZNONODE;
}

/* The container is missing: the next create makes it as well, and the one after that also its parents. */
static int missing(struct zookeeper_attempt *a, struct zookeeper_slot *s, const struct zookeeper_round *r) {
    int made = r->containers ? r->call->requests[r->containers - 1].rc : -1;
    *s->word = 0;
    for (size_t i = 0; a->deep && i < r->containers && !is_refused(made); i++) /* why a parent is missing */
        if (made == ZNONODE && is_refused(r->call->requests[i].rc)) made = r->call->requests[i].rc;
    if (a->deep && is_refused(made))
        return zookeeper_unknown(made) ? zookeeper_attempt_unknown(a)
                                       : zookeeper_refused(a->z, made, "create", s->dir, a->err);
    if (dlock_now_us() >= a->deadline_us) return zookeeper_silent(a->z, a->err);
    a->deep = a->make;
    a->make = true;
    return ZOOKEEPER_AGAIN;
}

static int read_create(struct zookeeper_attempt *a, struct zookeeper_slot *s, const struct zookeeper_round *r) {
    const struct zookeeper_request *create = r->create;
    enum zookeeper_kind kind;
    int32_t sequence;
    if (create->rc == ZNONODE) return missing(a, s, r);
    if (zookeeper_unknown(create->rc)) return zookeeper_attempt_unknown(a);
    if (create->rc != ZOK) {
        *s->word = 0;
        return zookeeper_refused(a->z, create->rc, "create a node in", s->dir, a->err);
    }
    zookeeper_wrote(a->z, r->call->sent_us);
    if (!zookeeper_place(create->node, &kind, &sequence) || kind != s->kind ||
        (uint64_t)create->stat.ephemeralOwner != a->claim->state[ZOOKEEPER_SESSION] || create->stat.czxid <= 0)
        return dlock_fail(a->err, DLOCK_EPROTO, "ZooKeeper at %s made a node that is not ours in %.200s", a->z->where,
                          s->dir);
    a->claim->state[ZOOKEEPER_FENCE] = (uint64_t)create->stat.czxid;
    a->made_ms = create->stat.ctime;
    *s->word |= ZOOKEEPER_KNOWN | (uint32_t)sequence;
    return 0;
}

static int read_list(struct zookeeper_attempt *a, const struct zookeeper_request *list, const char *dir,
                     struct zookeeper_queue_view *view) {
    if (list->rc == ZNONODE) {
        memset(view, 0, sizeof *view);
        return 0;
    }
    if (zookeeper_unknown(list->rc)) return zookeeper_attempt_unknown(a);
    if (list->rc != ZOK) return zookeeper_refused(a->z, list->rc, "list", dir, a->err);
    if (!list->sensible)
        return dlock_fail(a->err, DLOCK_EPROTO,
                          "ZooKeeper at %s has a node in %.200s whose name is too long for a lock's", a->z->where, dir);
    *view = list->view;
    return 0;
}

static int read_write(struct zookeeper_attempt *a, const struct zookeeper_call *call,
                      const struct zookeeper_request *write) {
    if (zookeeper_unknown(write->rc)) return zookeeper_attempt_unknown(a);
    if (!zookeeper_committed(write)) return zookeeper_refused(a->z, write->rc, "write to", "/", a->err);
    zookeeper_wrote(a->z, call->sent_us);
    return 0;
}

/* Fills the view with what a listing would show. AGAIN: a listing is needed. */
static int imagine(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    if (!zookeeper_alone_still(a->z, a->claim->name, sequence_of(s), a->claim->state[ZOOKEEPER_FENCE]))
        return ZOOKEEPER_AGAIN;
    memset(&s->view, 0, sizeof s->view);
    s->view.members = 1;
    s->view.own = true;
    s->view.own_kind = s->kind;
    s->view.own_sequence = sequence_of(s);
    return 0;
}

static int read_round(struct zookeeper_attempt *a, struct zookeeper_slot *create, const struct zookeeper_round *r) {
    struct zookeeper_queue_view lock;
    int rc = 0;
    if (r->create) rc = read_create(a, create, r);
    if (r->write) rc = read_write(a, r->call, r->write);
    if (!r->lists[0]) return rc == 0 ? imagine(a, create) : rc;
    for (size_t i = 0; i < a->n_slots && rc == 0; i++)
        rc = read_list(a, r->lists[i], a->slots[i].dir, &a->slots[i].view);
    if (r->lists[2] && rc == 0 && (rc = read_list(a, r->lists[2], a->lock, &lock)) == 0) a->lock_members = lock.members;
    return rc;
}

/* ---- reading the answers ----------------------------------------------------------------------------------------- */

/* Takes over a node with the claim's uuid whose create was never answered, if this session made it. */
static int adopt(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    zookeeper_found_path(a, s, path);
    struct zookeeper_call *call = zookeeper_call(a->z, 1);
    if (!call) return zookeeper_attempt_no_memory(a);
    struct zookeeper_request *get = zookeeper_ask_get(call, path, NULL);
    zookeeper_call_wait(call, a->deadline_us);
    int answer = get->rc;
    uint64_t owner = (uint64_t)get->stat.ephemeralOwner, fence = (uint64_t)get->stat.czxid;
    int64_t made_ms = get->stat.ctime;
    zookeeper_call_end(call);
    if (answer == ZNONODE) return ZOOKEEPER_AGAIN;
    if (zookeeper_unknown(answer)) return zookeeper_attempt_unknown(a);
    if (answer != ZOK) return zookeeper_refused(a->z, answer, "read", path, a->err);
    if (owner != a->claim->state[ZOOKEEPER_SESSION]) {
        int rc = delete_node(a, path);
        return rc == 0 ? ZOOKEEPER_AGAIN : rc;
    }
    if (s == a->slots || !zookeeper_slot_has(a->slots, ZOOKEEPER_KNOWN)) a->claim->state[ZOOKEEPER_FENCE] = fence;
    a->made_ms = made_ms;
    *s->word |= ZOOKEEPER_KNOWN | (uint32_t)s->view.own_sequence;
    return 0;
}

/* Compares the listing with what is known of the claim. Returns 0 if they agree. */
static int reconcile(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    bool sent = zookeeper_slot_has(s, ZOOKEEPER_SENT), stray = s->view.twin[0] || (s->view.own && !sent);
    if (stray) { /* of an older session, or of a create that was executed after it had been given up */
        if (s->view.twin[0] && !zookeeper_join(s->dir, s->view.twin, path)) return ZOOKEEPER_AGAIN;
        if (!s->view.twin[0]) zookeeper_found_path(a, s, path);
        int rc = delete_node(a, path);
        return rc == 0 ? ZOOKEEPER_AGAIN : rc;
    }
    if (sent && !s->view.own) { /* never created, or deleted by another client: create it again */
        *s->word = 0;
        return dlock_now_us() < a->deadline_us ? ZOOKEEPER_AGAIN : zookeeper_silent(a->z, a->err);
    }
    return sent && !zookeeper_slot_has(s, ZOOKEEPER_KNOWN) ? adopt(a, s) : 0;
}

/* Sends a round. Returns 0 or an error. */
static int send_round(struct zookeeper_attempt *a, struct zookeeper_slot *create) {
    struct zookeeper_round *r = &a->round;
    bool write = !create && must_write(a);
    memset(r, 0, sizeof *r);
    r->call = zookeeper_call(a->z, 5 + (create && a->make ? zookeeper_depth(create->dir) : 0));
    if (!r->call) return zookeeper_attempt_no_memory(a);
    r->made = create;
    if (create && !ask_create(a, create, r)) {
        zookeeper_call_end(r->call);
        r->call = NULL;
        return dlock_fail(a->err, DLOCK_EINVAL, "the path of lock \"%.100s\" is too long", a->claim->name);
    }
    if (write) r->write = zookeeper_ask_write(r->call);
    if (!hopes(a, create)) ask_lists(a, create, r);
    return 0;
}

bool zookeeper_round_ahead(struct zookeeper_attempt *a) {
    bool there = false;
    if (a->doubt_until_us) return false;
    for (size_t i = 0; i < a->n_slots; i++) {
        if (zookeeper_slot_has(&a->slots[i], ZOOKEEPER_WORN)) return false;
        there = there || zookeeper_slot_has(&a->slots[i], ZOOKEEPER_SENT);
    }
    return send_round(a, there ? NULL : &a->slots[0]) == 0 && (a->round.create || a->round.write);
}

int zookeeper_round(struct zookeeper_attempt *a, struct zookeeper_slot *create) {
    int rc = a->round.call ? 0 : send_round(a, create);
    if (rc != 0) return rc;
    zookeeper_call_wait(a->round.call, a->deadline_us);
    rc = read_round(a, a->round.made, &a->round);
    zookeeper_call_end(a->round.call);
    a->round.call = NULL;
    a->spared = false;
    for (size_t i = 0; i < a->n_slots && rc == 0; i++) rc = reconcile(a, &a->slots[i]);
    return rc == 0 ? ZOOKEEPER_LOOKED : rc;
}

struct zookeeper_call *zookeeper_search_begin(struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    struct zookeeper_call *call = zookeeper_call(a->z, 2);
    if (!call) return NULL;
    zookeeper_ask_write(call);
    zookeeper_ask_queue(call, s->dir, &a->label, NULL, NULL, NULL);
    return call;
}

int zookeeper_search_end(struct zookeeper_attempt *a, struct zookeeper_slot *s, struct zookeeper_call *call) {
    zookeeper_call_wait(call, a->deadline_us);
    int rc = read_write(a, call, &call->requests[0]);
    if (rc == 0) rc = read_list(a, &call->requests[1], s->dir, &s->view);
    zookeeper_call_end(call);
    return rc;
}

/* ---- after it ---------------------------------------------------------------------------------------------------- */

int zookeeper_granted(struct zookeeper_attempt *a) {
    struct dlock_claim *claim = a->claim;
    if (a->slots[0].view.equal)
        return dlock_fail(a->err, DLOCK_EPROTO, "ZooKeeper at %s has two nodes of one sequence in %.200s", a->z->where,
                          a->slots[0].dir);
    claim->fence = claim->state[ZOOKEEPER_FENCE];
    if (claim->fence == 0 || claim->fence >= ZOOKEEPER_FENCE_END)
        return dlock_fail(a->err, DLOCK_EPROTO, "ZooKeeper at %s sent an invalid transaction id for a node in %.200s",
                          a->z->where, a->slots[0].dir);
    claim->kept_ms = zookeeper_kept_ms(a->z, a->begun_us);
    *a->slots[0].word |= ZOOKEEPER_QUEUED | ZOOKEEPER_GRANTED;
    claim->hints = DLOCK_HINT_LISTEN; /* a reconnect may shorten the session: session.c */
    if (claim->kept_ms > 0) return 0;
    claim->kept_ms = claim->lease_ms; /* this machine was suspended: the next request proves the session again */
    return dlock_fail(a->err, DLOCK_EUNAVAILABLE, "cannot prove that the session with ZooKeeper at %s is still alive",
                      a->z->where);
}

/* True if no node blocks the claim any more. */
static bool is_free(const struct zookeeper_request *request, uint32_t limit) {
    if (request->rc == ZNONODE) return true;
    return request->rc == ZOK && limit > 0 && request->view.ahead < limit;
}

/* Sets a watch on the node at `path`, or, for permits, on the listing there. */
static int watch(struct zookeeper_attempt *a, const char *path, const struct zookeeper_slot *lease) {
    int32_t known = lease ? sequence_of(lease) : 0;
    enum zookeeper_watched why;
    struct zookeeper_watch *watch = zookeeper_watch_new(a->z, path, a->claim->name, false, &why);
    a->polls = !watch && why == ZOOKEEPER_WATCHES_FULL;
    if (a->polls || (!watch && why == ZOOKEEPER_WATCH_THERE)) return DLOCK_EBUSY;
    struct zookeeper_call *call = watch ? zookeeper_call(a->z, 1) : NULL;
    if (!call) {
        if (watch) zookeeper_watch_cancel(watch);
        return zookeeper_attempt_no_memory(a);
    }
    struct zookeeper_request *request =
        lease ? zookeeper_ask_queue(call, path, &a->label, &known, NULL, watch) : zookeeper_ask_get(call, path, watch);
    zookeeper_call_wait(call, a->deadline_us);
    int answer = request->rc;
    bool free = is_free(request, lease ? a->claim->limit : 0);
    zookeeper_call_end(call);
    if (free) return ZOOKEEPER_AGAIN;
    if (answer == ZOK) return DLOCK_EBUSY;
    return zookeeper_unknown(answer) ? zookeeper_attempt_unknown(a)
                                     : zookeeper_refused(a->z, answer, "watch", path, a->err);
}

int zookeeper_stay(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    char path[ZOOKEEPER_PATH_SIZE];
    *s->word |= ZOOKEEPER_QUEUED;
    zookeeper_join(s->dir, s->view.before, path);
    return watch(a, path, NULL);
}

int zookeeper_stay_leased(struct zookeeper_attempt *a, struct zookeeper_slot *lease) {
    return watch(a, lease->dir, lease);
}

static void tell_wanted(struct zookeeper_attempt *a) {
    pthread_mutex_lock(&a->z->mutex);
    zookeeper_wake_queue(a->z, DLOCK_WAKE_WANTED, a->claim->name);
    pthread_mutex_unlock(&a->z->mutex);
}

int zookeeper_watch_others(struct zookeeper_attempt *a) {
    int32_t known = sequence_of(a->slots);
    enum zookeeper_watched why;
    struct zookeeper_watch *watch = zookeeper_watch_new(a->z, a->lock, a->claim->name, true, &why);
    if (!watch && why == ZOOKEEPER_WATCHES_FULL) tell_wanted(a); /* other waiters would go unnoticed */
    if (!watch && why != ZOOKEEPER_WATCH_NO_MEMORY) return 0;
    struct zookeeper_call *call = watch ? zookeeper_call(a->z, 1) : NULL;
    if (!call) {
        if (watch) zookeeper_watch_cancel(watch);
        return zookeeper_attempt_no_memory(a);
    }
    struct zookeeper_request *list = zookeeper_ask_queue(call, a->lock, &a->label, &known, NULL, watch);
    zookeeper_call_wait(call, a->deadline_us);
    if (list->rc == ZOK && list->view.members > 1) tell_wanted(a); /* others came before the watch was set */
    zookeeper_call_end(call);
    return 0;
}
