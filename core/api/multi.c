/* Several locks at once, all or none. First all of them are tried, in one request per server, or in several if there are
 * more than DLOCK__BATCH. Of those granted, only the ones before the first busy one are kept, in an order that every
 * process uses, and that busy one is waited for. So no call waits for a lock before one that it holds, and no
 * circle of waiters can close (Havender, "Avoiding Deadlock in Multitasking Systems", IBM Systems Journal 7 (2), 1968).
 *
 * Several permits of one name have no order. A caller that has some of them waits for the next one only for a moment,
 * then gives all of them back, and stays away for as long before it tries again. These times are random, and grow, so
 * that of several callers that lack each other's permits one gets all that it needs. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAVE_US = 70000, /* time for giving back what is held, after the deadline: two requests in sequence */
    LEAST_US = 20000, /* least time for giving back */
    MOST_US = 90000,  /* most time, for all clients; dlock.h promises 100 ms */
    PATIENCE_MIN_US = 100000,
    PATIENCE_MAX_US = 2000000, /* longest wait with some permits of a name and not all */
    LOSSES_MAX = 8 /* with a slow server and short leases the first may always be lost before the last is granted */
};

struct item {
    struct dlock__part part;
    struct dlock_lock *lock;
    struct dlock_client *client; /* the lock's; constant, and valid even when the handle is not */
    bool in_call;
    bool held;
    bool entered;  /* `waiter` is in use */
    bool heard;    /* its last try was answered: a question open at the deadline is then no outage */
    bool accepted; /* the server has accepted an acquire of its name */
    int result;    /* of the last try */
    struct dlock__waiter waiter;
    struct dlock_error err; /* of the last try */
};

struct all {
    struct item *items; /* sorted, in an order that every process uses */
    size_t n;
    struct dlock__acquisition **acqs; /* room for n; each list is of one client */
    struct dlock__waiter **waiters;   /* room for n; the entered ones, which have to be driven */
    struct dlock__latch latch;
    int64_t begun_us;    /* what acquires, when it began; else DLOCK__NEVER */
    int64_t deadline_us; /* of the whole call, taken when it begins */
    int64_t patience_us;
    unsigned losses; /* how often one was lost while others were waited for */
    bool try_only;
};

/* ---- the order ---- */

static int compare_hosts(const struct dlock_uri *x, const struct dlock_uri *y) {
    for (size_t i = 0; i < x->n_hosts && i < y->n_hosts; i++) {
        int order = strcmp(x->hosts[i].host, y->hosts[i].host);
        if (order == 0) order = x->hosts[i].port - y->hosts[i].port;
        if (order != 0) return order;
    }
    return (int)x->n_hosts - (int)y->n_hosts;
}

/* Keys also tell servers apart: a database, a schema, the members of a quorum. */
static int compare_keys(const struct dlock_uri *x, const struct dlock_uri *y) {
    for (size_t i = 0; i < x->n_params && i < y->n_params; i++) {
        int order = strcmp(x->params[i].key, y->params[i].key);
        if (order == 0) order = strcmp(x->params[i].value, y->params[i].value);
        if (order != 0) return order;
    }
    return (int)x->n_params - (int)y->n_params;
}

/* Orders by name, and locks of the same name by server. */
static int in_order(const void *a, const void *b) {
    const struct item *left = a, *right = b;
    const struct dlock_client *x = left->client, *y = right->client;
    const struct dlock_uri *p = &x->uri->parts, *q = &y->uri->parts;
    int order = strcmp(left->lock->name->text, right->lock->name->text);
    if (order != 0 || x == y) return order;
    order = strcmp(x->backend->name, y->backend->name);
    if (order == 0) order = strcmp(p->path ? p->path : "", q->path ? q->path : "");
    if (order == 0) order = compare_hosts(p, q);
    if (order == 0) order = compare_keys(p, q);
    return order != 0 ? order : x < y ? -1 : 1;
}

int dlock__locks_check(dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    if (n > 0 && !locks) return dlock_fail(err, DLOCK_EINVAL, "the list of locks is NULL");
    for (size_t i = 0; i < n; i++) {
        if (!locks[i]) return dlock_fail(err, DLOCK_EINVAL, "lock number %zu of the list is NULL", i);
        if (dlock__forked(locks[i]->client)) return dlock__forked_error(err);
    }
    return 0;
}

static void all_free(struct all *all) {
    free(all->items);
    free(all->acqs);
    free(all->waiters);
}

static int all_new(struct all *all, dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    memset(all, 0, sizeof *all);
    all->n = n;
    all->begun_us = all->deadline_us = DLOCK__NEVER;
    all->patience_us = PATIENCE_MIN_US;
    all->items = calloc(n, sizeof *all->items);
    all->acqs = calloc(n, sizeof *all->acqs);
    all->waiters = calloc(n, sizeof *all->waiters);
    if (!all->items || !all->acqs || !all->waiters) {
        all_free(all);
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory for %zu locks", n);
    }
    for (size_t i = 0; i < n; i++) {
        all->items[i].lock = locks[i];
        all->items[i].client = locks[i]->client;
    }
    qsort(all->items, n, sizeof *all->items, in_order);
    return 0;
}

/* Sets the deadline. A try has one `timeout`, the longest of all clients'. */
static void set_deadline(struct all *all, int64_t timeout_ms) {
    all->begun_us = dlock__now_us();
    all->try_only = timeout_ms == 0;
    for (size_t i = 0; all->try_only && i < all->n; i++)
        if (all->items[i].client->uri->timeout_ms > timeout_ms) timeout_ms = all->items[i].client->uri->timeout_ms;
    if (timeout_ms > 0) all->deadline_us = dlock__after(all->begun_us, dlock__us(timeout_ms));
}

/* ---- beginning and ending the call ---- */

int dlock__part_begin(struct dlock__part *part, struct dlock_lock *lock, struct dlock__latch *latch,
                      struct dlock_error *err) {
    struct dlock_client *client = lock->client;
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    *part = (struct dlock__part){.lock = lock, .latch = latch, .next = client->parts};
    if (client->parts) client->parts->prev = part;
    client->parts = part;
    dlock__leave(client);
    return 0;
}

void dlock__part_end(struct dlock__part *part) {
    struct dlock_client *client = part->lock->client;
    dlock__enter(client);
    *(part->prev ? &part->prev->next : &client->parts) = part->next;
    if (part->next) part->next->prev = part->prev;
    dlock__lock_end(part->lock, 0);
}

/* Begins the call on all handles, even after an error, so that all are in the call. Returns the first error. */
static int begin(struct all *all, struct dlock_error *err) {
    int first = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct item *item = &all->items[i];
        int rc = dlock__part_begin(&item->part, item->lock, &all->latch, first == 0 ? err : NULL);
        item->in_call = rc == 0;
        if (first == 0) first = rc;
    }
    return first;
}

static void end(struct all *all) {
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].in_call) dlock__part_end(&all->items[i].part);
    all_free(all);
}

/* ---- acquiring ---- */

static int cancelled(const struct all *all, struct dlock_error *err) {
    if (!atomic_load(&all->latch.cancelled)) return 0;
    return dlock_fail(err, DLOCK_ECANCELED, "the wait for %zu locks was cancelled", all->n);
}

/* Releases what lingers in this client under other terms than the items want. */
static void make_room(struct all *all, size_t from, size_t to, struct dlock_client *client) {
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        if (all->items[i].client == client && (all->acqs[n] = dlock__linger_clear_begin(all->items[i].lock))) n++;
    dlock__linger_clear(all->acqs, n, all->deadline_us);
}

/* Tries without a request. True: no request is needed, whether re-entered or refused. */
static bool reentered(struct item *item) {
    item->err.code = 0;
    item->result = dlock__try_reenter(item->lock, &item->err);
    item->held = item->result > 0;
    return item->result != 0;
}

/* Begins a wait. True: its waiter has to be driven. */
static bool enter(struct all *all, struct item *item, bool try_only, int64_t deadline_us) {
    if (reentered(item)) return false;
    item->entered = true;
    memset(&item->waiter, 0, sizeof item->waiter);
    item->waiter.heard = item->heard;
    item->waiter.why = &item->err;
    item->waiter.latch = &all->latch;
    dlock__waiter_enter(&item->waiter, item->lock, try_only,
                        deadline_us < all->deadline_us ? deadline_us : all->deadline_us);
    return true;
}

static void drive(struct all *all, size_t n) {
    if (n > 0) dlock__waiters_drive(all->waiters, n, false);
}

static void take_result(struct item *item) {
    if (!item->entered) return; /* re-entered, or refused */
    item->entered = false;
    item->result = item->waiter.result;
    item->held = item->result == 0;
    item->accepted = item->lock->name->accepted;
    item->heard = item->held || item->result == DLOCK_EBUSY || item->waiter.heard;
}

/* Tries items of one client from `from` on that fit into one request; where the backend may ask sessions of its own side
 * by side, one at a time. Stores in *from where to continue. Returns true if all of them are held. */
static bool try_some(struct all *all, size_t *from, struct dlock_client *client) {
    bool alone =
        dlock__can(client, DLOCK_CAP_SESSION) && !dlock__can(client, DLOCK_CAP_LOCAL) && client->backend->descriptors;
    size_t first = *from, i = first, n = 0, entered = 0, most = alone ? 1 : DLOCK__BATCH;
    bool held = true;
    for (; i < all->n && entered < most; i++) {
        if (all->items[i].client != client) continue;
        entered++;
        if (enter(all, &all->items[i], true, dlock__deadline(client, 0))) all->waiters[n++] = &all->items[i].waiter;
    }
    drive(all, n);
    *from = i;
    for (i = first; i < *from; i++) {
        if (all->items[i].client != client) continue;
        take_result(&all->items[i]);
        held &= all->items[i].held;
    }
    return held;
}

/* Tries all items of one client from `from` on. The requests are sent in sequence, and none after one with a
 * busy lock: else processes that want the same locks would take them from each other forever. */
static void try_client(struct all *all, size_t from, struct dlock_client *client) {
    bool busy = false;
    dlock__enter(client);
    make_room(all, from, all->n, client);
    while (!busy && from < all->n) busy = !try_some(all, &from, client);
    for (; from < all->n; from++) { /* not worth a request */
        struct item *item = &all->items[from];
        if (item->client == client && !reentered(item)) item->result = DLOCK_EBUSY;
    }
    dlock__leave(client);
}

static int wait_for(struct all *all, size_t at, int64_t deadline_us) {
    struct item *item = &all->items[at];
    dlock__enter(item->client);
    make_room(all, at, at + 1, item->client);
    if (enter(all, item, false, deadline_us)) {
        all->waiters[0] = &item->waiter;
        drive(all, 1);
        take_result(item);
    }
    dlock__leave(item->client);
    return item->held ? 0 : item->result;
}

/* ---- giving back ---- */

/* The deadline for giving back: some time after that of the wait. If servers did not answer, and less than LEAST_US is
 * left of that, it is MOST_US after it; then nothing is waited for: the engine sends the releases. */
static int64_t leave_by(const struct all *all, struct dlock_client *client) {
    int64_t by_us = dlock__after(all->deadline_us, LEAVE_US);
    if (by_us < dlock__now(client) + LEAST_US) by_us = dlock__after(all->deadline_us, MOST_US);
    return dlock__bounded(client, by_us);
}

/* The grant of an item that is held. Of several permits one of this call, lost ones first: those that the caller had
 * before stay. NULL: the grant has been released since. */
static struct dlock__acquisition *grant_of(const struct all *all, const struct item *item) {
    struct dlock__acquisition *acq = dlock__lost_permit(item->lock, all->begun_us);
    return acq ? acq : dlock__owned(item->lock);
}

/* Takes back the acquires of one client's items from `from` on, and releases the grants for which they were the last.
 * Stores the first error in `first`, unless there is one already. */
static void release_client(struct all *all, size_t from, struct dlock_client *client, struct dlock_error *first) {
    struct dlock_error own;
    size_t n = 0;
    dlock__enter(client);
    int64_t deadline_us = leave_by(all, client);
    for (size_t i = from; i < all->n; i++) {
        struct item *item = &all->items[i];
        if (!item->held || item->client != client) continue;
        item->held = false;
        int rc = dlock__release_one(item->lock, grant_of(all, item), &all->acqs[n], &own);
        if (rc < 0 && first->code == 0) *first = own;
        if (rc == 1) n++;
    }
    if (dlock__give_back(all->acqs, n, deadline_us, &own) != 0 && first->code == 0) *first = own;
    if (first->code == DLOCK_ELOST) dlock__callback_await(client, deadline_us);
    dlock__leave(client);
}

/* Releases every item that is held, from `from` on. Returns the first error. */
static int release_from(struct all *all, size_t from, struct dlock_error *err) {
    struct dlock_error first;
    first.code = 0;
    for (size_t i = from; i < all->n; i++)
        if (all->items[i].held) release_client(all, i, all->items[i].client, &first);
    if (first.code != 0 && err) *err = first;
    return first.code;
}

/* ---- several permits of one name ---- */

static bool one_name(const struct all *all, size_t i, size_t k) {
    return all->items[i].lock->name == all->items[k].lock->name;
}

/* A random time from now, at most patience_us, for one wait. */
static int64_t patience_end(struct all *all, struct dlock_client *client) {
    dlock__enter(client);
    int64_t us = dlock__jitter(client, all->patience_us / 2, all->patience_us), now = dlock__now(client);
    dlock__leave(client);
    return now + us < all->deadline_us ? now + us : all->deadline_us;
}

/* Waits without holding any of them, so that others get all that they need. */
static void stay_away(struct all *all, struct dlock_client *client) {
    int64_t until_us = patience_end(all, client);
    all->patience_us = dlock__longer_pause(all->patience_us, PATIENCE_MIN_US, PATIENCE_MAX_US);
    dlock__enter(client);
    while (!atomic_load(&all->latch.cancelled) && dlock__now(client) < until_us)
        dlock__latch_sleep(client, &all->latch, until_us);
    dlock__leave(client);
}

/* Checks that a name occurs several times only where each time is one permit more. */
static int check_names(const struct all *all, struct dlock_error *err) {
    for (size_t i = 1, same = 1; i < all->n; i++) {
        const struct dlock_lock *lock = all->items[i].lock, *before = all->items[i - 1].lock;
        const char *shown = dlock__name_shown(lock->name);
        same = one_name(all, i - 1, i) ? same + 1 : 1;
        if (same == 1) continue;
        if (lock->mode != DLOCK_PERMIT || before->mode != DLOCK_PERMIT)
            return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\" stands twice in the list", shown);
        if ((lock->flags | before->flags) & DLOCK_NO_REENTRY)
            return dlock_fail(err, DLOCK_EDEADLK, "\"%s\" stands twice in the list, and DLOCK_NO_REENTRY is set",
                              shown);
        if (same > lock->limit)
            return dlock_fail(err, DLOCK_EDEADLK, "\"%s\" stands in the list more often than it has permits (%u)",
                              shown, (unsigned)lock->limit);
    }
    return 0;
}

/* ---- the API ---- */

/* True if a call with a deadline continues after this result of the item's try. DLOCK_ETIMEDOUT: only the time of the
 * try is over, in which the server has not answered again. */
static bool goes_on(const struct all *all, const struct item *item, int result) {
    return !all->try_only && (dlock__asks_again(item->accepted, result) || result == DLOCK_ETIMEDOUT);
}

/* Tries everything from `from` on, and waits for the first that is busy, with nothing held behind it. Stores in *from
 * where to continue. */
static int advance(struct all *all, size_t *from, struct dlock_error *err) {
    size_t busy = *from;
    for (size_t i = busy, k; i < all->n; i++) {
        if (cancelled(all, err) != 0) return DLOCK_ECANCELED;
        for (k = busy; all->items[k].client != all->items[i].client;) k++;
        if (k == i) try_client(all, busy, all->items[i].client); /* the first of this client's */
    }
    while (busy < all->n && all->items[busy].held) busy++;
    *from = busy;
    if (busy == all->n) return 0;
    for (size_t i = busy; i < all->n; i++) {
        struct item *item = &all->items[i];
        if (item->held || goes_on(all, item, item->result)) continue;
        if (err) *err = item->err;
        return item->result;
    }
    struct item *item = &all->items[busy];
    size_t first = busy; /* first item of that name */
    while (first > 0 && one_name(all, first - 1, busy)) first--;
    release_from(all, busy, NULL);
    if (cancelled(all, err) != 0) return DLOCK_ECANCELED;
    if (dlock__now_us() < all->deadline_us) {
        *from = busy + 1;
        int rc = wait_for(all, busy, first < busy ? patience_end(all, item->client) : all->deadline_us);
        bool again = first < busy && goes_on(all, item, rc);
        if (again && dlock__now_us() < all->deadline_us) {
            release_from(all, first, NULL);
            stay_away(all, item->client);
            *from = first;
            if (dlock__now_us() < all->deadline_us) return 0;
        }
        if (rc != 0 && err) *err = item->err;
        return rc;
    }
    if (item->result != DLOCK_EBUSY) {
        if (err) *err = item->err;
        return item->result;
    }
    return dlock_fail(err, DLOCK_ETIMEDOUT, "lock \"%s\", one of %zu, was held by somebody else until the deadline",
                      dlock__name_shown(item->lock->name), all->n);
}

static bool is_lost(const struct all *all, struct item *item) {
    dlock__enter(item->client);
    const struct dlock__acquisition *acq = grant_of(all, item);
    bool lost = !acq || !dlock__acq_held(acq);
    dlock__leave(item->client);
    return lost;
}

/* Looks whether all are still held. Else gives back everything from the first lost one on, and stores in *from where to
 * continue; ELOST after too many such losses. */
static int look_again(struct all *all, size_t *from, struct dlock_error *err) {
    size_t i = 0;
    while (i < all->n && !is_lost(all, &all->items[i])) i++;
    *from = i;
    if (i == all->n) return 0;
    release_from(all, i, NULL);
    if (++all->losses < LOSSES_MAX) return 0;
    return dlock_fail(err, DLOCK_ELOST, "lock \"%s\", one of %zu, was lost %d times while others were waited for",
                      dlock__name_shown(all->items[i].lock->name), all->n, LOSSES_MAX);
}

static int acquire_all(struct all *all, struct dlock_error *err) {
    int rc = check_names(all, err);
    for (size_t from = 0; rc == 0 && from < all->n;) {
        rc = advance(all, &from, err);
        if (rc == 0 && from == all->n) rc = look_again(all, &from, err);
    }
    if (rc != 0) release_from(all, 0, NULL);
    return rc;
}

int dlock_acquire_all(dlock_lock *const *locks, size_t n, int64_t timeout_ms, struct dlock_error *err) {
    int rc = dlock__locks_check(locks, n, err);
    if (rc != 0 || n == 0) return rc;
    struct all all;
    if ((rc = all_new(&all, locks, n, err)) != 0) return rc;
    set_deadline(&all, timeout_ms);
    rc = begin(&all, err);
    if (rc == 0) rc = acquire_all(&all, err);
    end(&all);
    return rc;
}

static int release_each(dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = dlock_release(locks[i], first == 0 ? err : NULL);
        if (first == 0) first = rc;
    }
    return first;
}

int dlock_release_all(dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    if (n == 0 || !locks) return dlock__locks_check(locks, n, err);
    struct all all;
    /* A NULL in the list, or no memory for it, is no reason to keep locks. */
    if (dlock__locks_check(locks, n, NULL) != 0 || all_new(&all, locks, n, NULL) != 0)
        return release_each(locks, n, err);
    int rc = begin(&all, err);
    for (size_t i = 0; i < n; i++) all.items[i].held = all.items[i].in_call;
    int released = release_from(&all, 0, rc == 0 ? err : NULL);
    end(&all);
    return rc != 0 ? rc : released;
}
