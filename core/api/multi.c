/* Several locks at once, all or none. First everything is tried in one request per server; of what that grants only
 * those before the first busy one, in an order that every process agrees on, are kept, and that one is waited for. So
 * nobody ever waits for a lock that stands before one it holds, and no circle of waiters can close (Havender, "Avoiding
 * Deadlock in Multitasking Systems", IBM Systems Journal 7 (2), 1968). */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAVE_US = 90000, /* for giving back what is held, after the deadline; */
    LEAST_US = 20000  /* and this much in any case */
};

struct item {
    struct dlock_lock *lock;
    bool held;
    bool asking; /* its request is in the batch */
    int result;  /* of the last try */
    struct dlock__waiter waiter;
};

struct all {
    struct item *items; /* in the order that every process agrees on */
    size_t n;
    struct dlock__claim **claims; /* n of each: one client's */
    struct item **members;
    struct dlock_error *errors;
    int64_t deadline_us; /* of an acquisition with one; else DLOCK__NEVER */
};

/* ---- the order ---- */

/* By name; the same name on two servers by what tells the servers apart. */
static int in_order(const void *a, const void *b) {
    const struct item *left = a, *right = b;
    const struct dlock_client *x = left->lock->client, *y = right->lock->client;
    int order = strcmp(left->lock->name->text, right->lock->name->text);
    if (order != 0 || x == y) return order;
    if ((order = strcmp(x->backend->name, y->backend->name)) != 0) return order;
    if ((order = strcmp(x->uri->parts.path ? x->uri->parts.path : "", y->uri->parts.path ? y->uri->parts.path : "")))
        return order;
    for (size_t i = 0; i < x->uri->parts.n_hosts && i < y->uri->parts.n_hosts; i++) {
        const struct dlock_host *p = &x->uri->parts.hosts[i], *q = &y->uri->parts.hosts[i];
        if ((order = strcmp(p->host, q->host)) != 0) return order;
        if (p->port != q->port) return p->port < q->port ? -1 : 1;
    }
    return x < y ? -1 : 1;
}

static int check(dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    if (n > 0 && !locks) return dlock_fail(err, DLOCK_EINVAL, "the list of locks is NULL");
    for (size_t i = 0; i < n; i++) {
        if (!locks[i]) return dlock_fail(err, DLOCK_EINVAL, "lock number %zu of the list is NULL", i);
        if (dlock__forked(locks[i]->client)) return dlock__forked_error(err);
    }
    return 0;
}

static void all_free(struct all *all) {
    free(all->items);
    free(all->claims);
    free(all->members);
    free(all->errors);
}

static int all_new(struct all *all, dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    all->n = n;
    all->deadline_us = DLOCK__NEVER;
    all->items = calloc(n, sizeof *all->items);
    all->claims = calloc(n, sizeof *all->claims);
    all->members = calloc(n, sizeof *all->members);
    all->errors = calloc(n, sizeof *all->errors);
    if (!all->items || !all->claims || !all->members || !all->errors) {
        all_free(all);
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory for %zu locks", n);
    }
    for (size_t i = 0; i < n; i++) all->items[i].lock = locks[i];
    return 0;
}

/* ---- requests: what is described for up to DLOCK__BATCH claims of one client goes out together ---- */

static void send(struct all *all, size_t n) {
    for (size_t from = 0; from < n; from += DLOCK__BATCH)
        dlock__op_send(all->claims + from, n - from < DLOCK__BATCH ? n - from : DLOCK__BATCH);
}

/* ---- acquiring ---- */

static void begin_try(struct all *all, struct item *item, struct dlock_error *err) {
    struct dlock__waiter *waiter = &item->waiter;
    int64_t until_us;
    memset(waiter, 0, sizeof *waiter);
    err->code = 0;
    item->asking = false;
    item->result = dlock__try_reenter(item->lock, err);
    if (item->result != 0) {
        item->held = item->result > 0;
        return;
    }
    waiter->why = err;
    waiter->has_thread = true;
    int64_t deadline_us = dlock__deadline(item->lock->client, 0);
    dlock__waiter_enter(waiter, item->lock, true, all->deadline_us < deadline_us ? all->deadline_us : deadline_us);
    item->asking = dlock__waiter_turn(waiter, &until_us) == DLOCK__TURN_ASK;
}

static void end_try(struct item *item) {
    if (item->result != 0) return; /* re-entered, or refused */
    if (item->asking) dlock__waiter_answered(&item->waiter);
    dlock__waiter_drive(&item->waiter); /* one that stood behind somebody of this process */
    item->result = item->waiter.result;
    item->held = item->result == 0;
}

/* It stands behind a busy one: not worth a request. */
static void leave_out(struct item *item, struct dlock_error *err) {
    err->code = 0;
    item->asking = false;
    item->result = dlock__try_reenter(item->lock, err);
    item->held = item->result > 0;
    if (item->result == 0) item->result = DLOCK_EBUSY;
}

/* Tries everything from `from` on that lives in one client. Where each lock is a request of its own, one after the
 * other and none behind a busy one: processes that want the same locks would take them from under each other, for
 * nothing. */
static int try_client(struct all *all, size_t from, struct dlock_client *client, struct dlock_error *err) {
    int rc = dlock__client_begin(client, err);
    size_t n = 0, asking = 0;
    bool one_by_one = dlock__one_each(client), busy = false;
    if (rc != 0) return rc;
    size_t unlike = 0;
    for (size_t i = from; i < all->n; i++) {
        struct dlock_lock *lock = all->items[i].lock;
        if (lock->client == client && (all->claims[unlike] = dlock__linger_clear_begin(lock))) unlike++;
    }
    dlock__linger_clear(all->claims, unlike, all->deadline_us);
    for (size_t i = from; i < all->n; i++) {
        struct item *item = &all->items[i];
        if (item->lock->client != client) continue;
        if (busy) {
            leave_out(item, &all->errors[i]);
            continue;
        }
        begin_try(all, item, &all->errors[i]);
        all->members[n++] = item;
        if (item->asking) all->claims[asking++] = item->lock->name->asking;
        if (!one_by_one) continue;
        send(all, asking);
        end_try(item);
        busy = !item->held;
        n = asking = 0;
    }
    send(all, asking);
    for (size_t i = 0; i < n; i++) end_try(all->members[i]);
    return dlock__client_end(client, 0);
}

/* Whether an earlier item of the range lives in the same client. */
static bool seen(const struct all *all, size_t from, size_t at) {
    while (from < at && all->items[from].lock->client != all->items[at].lock->client) from++;
    return from < at;
}

static int try_all(struct all *all, size_t from, struct dlock_error *err) {
    for (size_t i = from; i < all->n; i++) {
        int rc = seen(all, from, i) ? 0 : try_client(all, from, all->items[i].lock->client, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- giving back ---- */

/* When what is given back has to be answered: a wait that has just ended had its own time. */
static int64_t leave_by(const struct all *all, struct dlock_client *client) {
    int64_t most = dlock__after(all->deadline_us, LEAVE_US), least = dlock__now(client) + LEAST_US;
    return dlock__bounded(client, most < least ? least : most);
}

/* Takes the acquisitions back; those that are the last become requests. Stores the first error in `first`, unless there
 * is one. */
static void release_client(struct all *all, size_t from, struct dlock_client *client, struct dlock_error *first) {
    struct dlock_error own;
    size_t n = 0;
    if (dlock__client_begin(client, &own) != 0) {
        if (first->code == 0) *first = own;
        for (size_t i = from; i < all->n; i++)
            if (all->items[i].lock->client == client) all->items[i].held = false;
        return;
    }
    int64_t deadline_us = leave_by(all, client);
    for (size_t i = from; i < all->n; i++) {
        struct item *item = &all->items[i];
        if (!item->held || item->lock->client != client) continue;
        item->held = false;
        int rc = dlock__release_one(item->lock, &all->claims[n], &own);
        if (rc < 0 && first->code == 0) *first = own;
        if (rc == 1) n++;
    }
    if (dlock__give_back(all->claims, n, deadline_us, &own) != 0 && first->code == 0) *first = own;
    dlock__client_end(client, 0);
}

/* Every one that is held, from `from` on; the first error. */
static int release_from(struct all *all, size_t from, struct dlock_error *err) {
    struct dlock_error first;
    first.code = 0;
    for (size_t i = from; i < all->n; i++)
        if (all->items[i].held) release_client(all, i, all->items[i].lock->client, &first);
    if (first.code != 0 && err) *err = first;
    return first.code;
}

/* ---- the API ---- */

static int64_t left_ms(int64_t deadline_us) {
    int64_t left = (deadline_us - dlock__now_us() + 999) / 1000;
    return deadline_us == DLOCK__NEVER ? -1 : left > 0 ? left : 0;
}

/* Everything from `from` on is tried; the first that is busy is waited for, with nothing held behind it. Stores from
 * where on to go on. */
static int advance(struct all *all, size_t *from, bool try_only, struct dlock_error *err) {
    int rc = try_all(all, *from, err);
    if (rc != 0) return rc;
    size_t busy = *from;
    while (busy < all->n && all->items[busy].held) busy++;
    *from = busy;
    if (busy == all->n) return 0;
    for (size_t i = busy; i < all->n; i++) {
        int result = all->items[i].result;
        bool wait = !try_only && dlock__asks_again(result);
        if (all->items[i].held || wait) continue;
        if (err) *err = all->errors[i];
        return result;
    }
    struct dlock_error why = all->errors[busy];
    release_from(all, busy, NULL);
    int64_t left = left_ms(all->deadline_us);
    if (left == 0 && all->items[busy].result != DLOCK_EBUSY) {
        if (err) *err = why;
        return why.code;
    }
    if (left == 0)
        return dlock_fail(err, DLOCK_ETIMEDOUT, "lock \"%s\", one of %zu, was held by somebody else until the deadline",
                          dlock__name_shown(all->items[busy].lock->name), all->n);
    rc = dlock_acquire(all->items[busy].lock, left, err);
    if (rc != 0) return rc;
    all->items[busy].held = true;
    *from = busy + 1;
    return 0;
}

int dlock_acquire_all(dlock_lock *const *locks, size_t n, int64_t timeout_ms, struct dlock_error *err) {
    int rc = check(locks, n, err);
    if (rc != 0 || n == 0) return rc;
    struct all all;
    if ((rc = all_new(&all, locks, n, err)) != 0) return rc;
    if (timeout_ms > 0) all.deadline_us = dlock__after(dlock__now_us(), dlock__us(timeout_ms));
    qsort(all.items, n, sizeof *all.items, in_order);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (all.items[i - 1].lock->name == all.items[i].lock->name)
            rc = dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\" stands twice in the list",
                            dlock__name_shown(all.items[i].lock->name));
    for (size_t from = 0; rc == 0 && from < n;) rc = advance(&all, &from, timeout_ms == 0, err);
    if (rc != 0) release_from(&all, 0, NULL);
    all_free(&all);
    return rc;
}

int dlock_release_all(dlock_lock *const *locks, size_t n, struct dlock_error *err) {
    int rc = check(locks, n, err);
    if (rc != 0 || n == 0) return rc;
    struct all all;
    if ((rc = all_new(&all, locks, n, err)) != 0) return rc;
    for (size_t i = 0; i < n; i++) all.items[i].held = true;
    qsort(all.items, n, sizeof *all.items, in_order);
    rc = release_from(&all, 0, err);
    all_free(&all);
    return rc;
}
