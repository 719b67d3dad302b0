/* The API on lock handles. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

/* ---- making and freeing handles ---- */

int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err) {
    memset(options, 0, sizeof *options);
    if (!from) return 0;
    if (from->size < offsetof(struct dlock_options, on_lost))
        return dlock_fail(err, DLOCK_EINVAL, "lock options: size is %zu, use DLOCK_OPTIONS_INIT", from->size);
    for (size_t i = sizeof *options; i < from->size; i++)
        if (((const char *)from)[i] != 0)
            return dlock_fail(err, DLOCK_EINVAL, "lock options: made for a newer dlock than this one (%s)",
                              dlock_version());
    memcpy(options, from, from->size < sizeof *options ? from->size : sizeof *options);
    return 0;
}

int dlock__lease_check(const struct dlock_client *client, int64_t lease_ms, struct dlock_error *err) {
    char text[32];
    if (lease_ms < DLOCK_LEASE_MIN_MS || lease_ms > DLOCK_LEASE_MAX_MS)
        return dlock_fail(err, DLOCK_EINVAL, "lease_ms is %lld, it can be %lld to %lld (0: the default)",
                          (long long)lease_ms, (long long)DLOCK_LEASE_MIN_MS, (long long)DLOCK_LEASE_MAX_MS);
    if (client->quarantine_ms > 0 && lease_ms > client->quarantine_ms)
        return dlock_fail(err, DLOCK_EINVAL,
                          "lease_ms is %lld, longer than the quarantine of this server (%s), which protects leases "
                          "when it restarts; set lease= or quarantine= in the URI",
                          (long long)lease_ms, dlock_duration_text(text, client->quarantine_ms));
    return 0;
}

int dlock__not_supported(const struct dlock_client *client, uint32_t caps, const char *what, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOTSUP, "backend %s%s %s", client->backend->name,
                      dlock__as_selected(client->base_caps, caps), what);
}

static int check_options(struct dlock_client *client, struct dlock_options *options, struct dlock_error *err) {
    if ((unsigned)options->mode > DLOCK_PERMIT)
        return dlock_fail(err, DLOCK_EINVAL, "lock options: unknown mode %d", (int)options->mode);
    if ((unsigned)options->owner > DLOCK_OWNER_HANDLE)
        return dlock_fail(err, DLOCK_EINVAL, "lock options: unknown owner %d", (int)options->owner);
    if (options->flags & ~(uint32_t)(DLOCK_FIXED_LEASE | DLOCK_NO_REENTRY))
        return dlock_fail(err, DLOCK_EINVAL, "lock options: unknown flags 0x%x", (unsigned)options->flags);
    if (options->mode == DLOCK_PERMIT ? options->limit == 0 || options->limit > DLOCK_LIMIT_MAX : options->limit != 0)
        return dlock_fail(err, DLOCK_EINVAL, "lock options: limit is %u; permits have 1 to %d, other modes 0",
                          (unsigned)options->limit, DLOCK_LIMIT_MAX);
    if (options->mode == DLOCK_SHARED && !dlock__can(client, DLOCK_CAP_SHARED))
        return dlock__not_supported(client, DLOCK_CAP_SHARED, "has no shared locks", err);
    if (options->mode == DLOCK_PERMIT && !dlock__can(client, DLOCK_CAP_PERMIT))
        return dlock__not_supported(client, DLOCK_CAP_PERMIT, "has no permits", err);
    if (options->on_wanted && options->mode != DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EINVAL, "lock options: on_wanted is for exclusive locks");
    if (options->on_wanted && !dlock__can(client, DLOCK_CAP_WANTED))
        return dlock__not_supported(client, DLOCK_CAP_WANTED, "does not tell holders that somebody waits", err);
    if (options->lease_ms == 0) options->lease_ms = client->uri->lease_ms;
    return dlock__lease_check(client, options->lease_ms, err);
}

/* With its watch behind it, if it needs one. NULL: out of memory. */
static struct dlock_lock *make(struct dlock_client *client, const struct dlock_options *options) {
    struct dlock_lock *lock = calloc(1, sizeof *lock + (options->on_wanted ? sizeof *lock->watch : 0));
    if (!lock) return NULL;
    lock->client = client;
    lock->mode = options->mode;
    lock->owner = options->owner;
    lock->limit = options->limit;
    lock->flags = options->flags;
    lock->lease_ms = options->lease_ms;
    lock->on_lost = options->on_lost;
    lock->on_lost_arg = options->on_lost_arg;
    if (!options->on_wanted) return lock;
    lock->watch = (struct dlock__watch *)(lock + 1);
    lock->watch->lock = lock;
    lock->watch->on_wanted = options->on_wanted;
    lock->watch->arg = options->on_wanted_arg;
    return lock;
}

int dlock_new(dlock_client *client, const char *name, const struct dlock_options *from, dlock_lock **out,
              struct dlock_error *err) {
    if (!client || !out) return dlock_fail(err, DLOCK_EINVAL, "dlock_new needs a client and a place for the lock");
    if (dlock__forked(client)) return dlock__forked_error(err);
    struct dlock_options options;
    int rc = dlock__name_check(name, err);
    if (rc == 0) rc = dlock__options_read(from, &options, err);
    if (rc == 0) rc = check_options(client, &options, err);
    if (rc != 0) return rc;

    char full[DLOCK_FULL_NAME_MAX + 1];
    size_t prefix = strlen(client->uri->prefix);
    memcpy(full, client->uri->prefix, prefix);
    memcpy(full + prefix, name, strlen(name) + 1);
    struct dlock_lock *lock = make(client, &options);
    if (!lock) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a lock");

    dlock__enter(client);
    if (client->closed) rc = dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    if (rc == 0 && (lock->on_lost || lock->watch)) rc = dlock__callback_start(client, err);
    if (rc == 0 && lock->watch) client->watches = true;
    if (rc == 0 && !(lock->name = dlock__name_get(client, full)))
        rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory for a lock");
    if (rc == 0) {
        client->refs++;
        dlock__lock_count(lock, 1);
    }
    dlock__leave(client);
    if (rc != 0) {
        free(lock);
        return rc;
    }
    *out = lock;
    return 0;
}

static void cancel_waits(struct dlock_lock *lock) {
    dlock__parts_cancel(lock->client, lock);
    if (lock->waiting == 0) return;
    lock->cancels++; /* for waiters that left the line with a grant, which may lapse and bring them back into it */
    for (struct dlock__waiter *waiter = lock->name->head; waiter; waiter = waiter->next)
        if (waiter->lock == lock) dlock__waiter_cancel(waiter);
}

/* Turns a writer into a reader if all its remaining holds are of shared handles. False if not, also where the fence
 * cannot grow. */
static bool read_on(struct dlock__acquisition *acq) {
    if (acq->mode != DLOCK_EXCLUSIVE || acq->state != DLOCK__HELD || acq->ordinal >= DLOCK__ORDINAL_MAX) return false;
    for (const struct dlock__hold *hold = acq->hold; hold; hold = hold->next)
        if (hold->count > 0 && (!hold->handle || hold->handle->mode != DLOCK_SHARED)) return false;
    dlock__acq_downgrade(acq);
    return true;
}

/* Takes back the acquisition's hold through this handle. True: it has no holder any more. */
static bool let_go(struct dlock__acquisition *acq, struct dlock_lock *lock) {
    struct dlock__hold *hold = dlock__acq_hold(acq, lock, false);
    if (!hold) return false;
    acq->count -= hold->count;
    hold->count = 0;
    dlock__callback_released(hold);
    dlock__hold_set(hold, NULL);
    if (acq->count > 0) read_on(acq);
    return acq->count == 0;
}

/* Takes back all holds of this handle. Lost acquisitions are forgotten; held ones without another holder, as many as
 * fit into `acqs`, have to be released. Returns their number. */
static size_t let_go_of_all(struct dlock_lock *lock, struct dlock__acquisition *acqs[DLOCK__BATCH]) {
    struct dlock__name *name = lock->name;
    size_t n = 0;
    for (struct dlock__acquisition *acq = name->lost, *next; acq; acq = next) {
        next = acq->next;
        if (!let_go(acq, lock)) continue;
        dlock__lost_remove(acq);
        dlock__acq_put(acq);
    }
    for (struct dlock__acquisition *acq = name->held, *next; acq && n < DLOCK__BATCH; acq = next) {
        next = acq->next;
        if (!dlock__acq_held(acq) || !let_go(acq, lock)) continue;
        if (lock->client->closed) { /* dlock_close releases it, with everything else */
            dlock__held_remove(name, acq);
            dlock__acq_disown(acq);
            dlock__orphan(acq);
            dlock__acq_put(acq);
        } else if (!dlock__give_back_begin(acq)) {
            acqs[n++] = acq;
        }
    }
    return n;
}

/* Releases acquisitions of this handle, of all threads. An acquisition that the same thread holds through another
 * handle stays. */
static void release_everything(struct dlock_lock *lock) {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    int64_t deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    for (size_t n; (n = let_go_of_all(lock, acqs)) > 0;) dlock__give_back(acqs, n, deadline_us, NULL);
}

void dlock_free(dlock_lock *lock) {
    if (!lock || dlock__forked(lock->client)) return;
    struct dlock_client *client = lock->client;
    dlock__enter(client);
    lock->freed = true;
    client->inside++; /* makes a dlock_close wait for this call */
    cancel_waits(lock);
    int64_t until_us = dlock__after(dlock__bounded(client, DLOCK__NEVER), DLOCK__LATE_US);
    while (lock->inside > 0 && dlock__now(client) < until_us) dlock__wait(client, &client->changed, until_us);
    dlock__callback_forget(lock);
    if (dlock__forked(client)) { /* in its own callback: nothing here is the child's */
        dlock__leave(client);
        return;
    }
    release_everything(lock);
    dlock__lock_count(lock, -1);
    client->inside--;
    pthread_cond_broadcast(&client->changed);
    lock->over = true;
    dlock__lock_destroy(lock);
    dlock__leave(client);
    dlock__client_put(client);
}

/* ---- calls on handles ---- */

static bool owns(const struct dlock__acquisition *acq, const struct dlock_lock *lock) {
    if (acq->owner != lock->owner || acq->count == 0) return false;
    return lock->owner == DLOCK_OWNER_HANDLE ? acq->hold->handle == lock : acq->thread == dlock__thread_id();
}

struct dlock__acquisition *dlock__owned(struct dlock_lock *lock) {
    struct dlock__acquisition *mine = NULL;
    for (const struct dlock__hold *hold = lock->holds; hold && !mine; hold = hold->other)
        if (dlock__acq_held(hold->acq) && owns(hold->acq, lock)) mine = hold->acq;
    for (struct dlock__acquisition *acq = lock->name->held; acq && !mine; acq = acq->next)
        if (dlock__acq_held(acq) && owns(acq, lock)) mine = acq; /* through another handle of this thread */
    if (mine) {
        dlock__expire_if_due(mine);
        return mine;
    }
    struct dlock__acquisition *acq = lock->name->lost;
    while (acq && !owns(acq, lock)) acq = acq->next;
    return acq;
}

struct dlock__acquisition *dlock__lost_permit(struct dlock_lock *lock, int64_t since_us) {
    if (lock->mode != DLOCK_PERMIT) return NULL;
    for (const struct dlock__hold *hold = lock->holds; hold; hold = hold->other) {
        if (hold->count == 0 || hold->acq->granted_us < since_us || !owns(hold->acq, lock)) continue;
        dlock__expire_if_due(hold->acq);
        if (dlock__acq_lost(hold->acq)) return hold->acq;
    }
    return NULL;
}

int dlock__fence_can_grow(const struct dlock__acquisition *acq, struct dlock_error *err) {
    if (acq->ordinal < DLOCK__ORDINAL_MAX) return 0;
    return dlock_fail(err, DLOCK_EINVAL,
                      "lock \"%s\" has changed hands %d times since the server granted it, and its fence can grow no "
                      "more: release it, and acquire it anew",
                      dlock__name_shown(acq->name), DLOCK__ORDINAL_MAX);
}

int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" is not held by %s", dlock__name_shown(lock->name),
                      lock->owner == DLOCK_OWNER_HANDLE ? "this handle" : "the calling thread");
}

static int reenter(struct dlock__acquisition *acq, struct dlock_lock *lock, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (dlock__acq_lost(acq))
        return dlock_fail(err, DLOCK_ELOST,
                          "lock \"%s\" was lost; release it as often as it was acquired (%u), then try again", shown,
                          (unsigned)acq->count);
    if (lock->owner == DLOCK_OWNER_HANDLE)
        return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\": this handle already holds it", shown);
    if ((acq->mode == DLOCK_PERMIT) != (lock->mode == DLOCK_PERMIT))
        return dlock_fail(err, DLOCK_EINVAL, "\"%s\" is held %s by the caller: a name is either a lock or permits",
                          shown, acq->mode == DLOCK_PERMIT ? "as a permit" : "as a lock, not as permits,");
    if ((lock->flags | acq->flags) & DLOCK_NO_REENTRY)
        return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\": this thread already holds it, and DLOCK_NO_REENTRY is set",
                          shown);
    if (acq->mode == DLOCK_SHARED && lock->mode == DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EDEADLK,
                          "lock \"%s\" is held shared by the caller, and an exclusive acquire would wait for itself; "
                          "release it first",
                          shown);
    if (acq->count == UINT32_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%s\" was acquired too often without a release", shown);
    if (!dlock__acq_hold(acq, lock, false) && !dlock__acq_strengthen(acq, lock))
        return dlock_fail(
            err, DLOCK_EDEADLK,
            "lock \"%s\" is held by the caller with a fixed lease of %lld ms, shorter than this handle's: "
            "dlock_extend() it first, or release it",
            shown, (long long)acq->lease_ms);
    struct dlock__hold *hold = dlock__acq_hold(acq, lock, true);
    if (!hold) return dlock_fail(err, DLOCK_ENOMEM, "out of memory to hold \"%s\" once more", shown);
    if (lock->on_lost) dlock__callback_arm(lock->client, acq->valid_until_us);
    hold->count++;
    acq->count++;
    lock->client->stats.reentries++;
    return 0;
}

/* True if the caller, which has this permit, may get another one: the server counts permits, so a thread may hold
 * several. */
static bool takes_another(const struct dlock__acquisition *acq, const struct dlock_lock *lock) {
    return acq->mode == DLOCK_PERMIT && lock->mode == DLOCK_PERMIT && dlock__acq_held(acq) &&
           lock->owner == DLOCK_OWNER_THREAD && !((lock->flags | acq->flags) & DLOCK_NO_REENTRY);
}

int dlock__try_reenter(struct dlock_lock *lock, struct dlock_error *err) {
    if (lock->freed) /* in a callback that dlock_free waits for */
        return dlock_fail(err, DLOCK_ECANCELED, "lock \"%s\" is being freed", dlock__name_shown(lock->name));
    struct dlock__acquisition *acq = dlock__owned(lock);
    if (acq && !takes_another(acq, lock)) {
        int rc = reenter(acq, lock, err);
        return rc == 0 ? 1 : rc;
    }
    if (lock->client->stopped)
        return dlock_fail(err, DLOCK_ECANCELED, "lock \"%s\": the client is stopped and acquires nothing any more",
                          dlock__name_shown(lock->name));
    if (!acq && !lock->name->head && (acq = dlock__linger_take(lock))) {
        dlock__own(acq, lock);
        return 1;
    }
    if (lock->owner == DLOCK_OWNER_HANDLE && lock->waiting > 0)
        return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\": this handle is already being acquired",
                          dlock__name_shown(lock->name));
    return dlock__keeper_start(lock->client, err);
}

int dlock_acquire(dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    int64_t deadline_us = dlock__deadline(lock->client, timeout_ms);
    rc = dlock__try_reenter(lock, err);
    if (rc >= 0) rc = rc > 0 ? 0 : dlock__acquire(lock, timeout_ms == 0, deadline_us, err);
    return dlock__lock_end(lock, rc);
}

int dlock__release_one(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock__acquisition **out,
                       struct dlock_error *err) {
    if (!acq) return dlock__not_owned(lock, err);
    struct dlock__hold *hold = dlock__acq_hold(acq, lock, false);
    if (!hold || hold->count == 0) /* acquired through another handle of this thread */
        for (hold = acq->hold; hold->count == 0;) hold = hold->next;
    hold->count--;
    acq->count--;
    if (dlock__acq_lost(acq)) {
        dlock__loss_fail(acq, " before this release", err);
        if (hold->count == 0) dlock__callback_released(hold);
        if (acq->count == 0) {
            dlock__lost_remove(acq);
            dlock__acq_put(acq);
        }
        return DLOCK_ELOST;
    }
    bool reads_on = acq->count > 0 && read_on(acq);
    if (!reads_on && (acq->count > 0 || dlock__give_back_begin(acq))) return 0;
    *out = acq;
    return reads_on ? 2 : 1;
}

int dlock__downgrade_await(struct dlock__acquisition *acq, struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    const char *shown = dlock__name_shown(acq->name);
    int64_t deadline_us = dlock__bounded(client, DLOCK__NEVER);
    acq->refs++;
    while (acq->state == DLOCK__DOWNGRADING && !client->closed && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    int rc = 0;
    if (dlock__acq_lost(acq))
        rc = dlock__loss_fail(acq, " before its downgrade", err);
    else if (acq->state == DLOCK__DOWNGRADING && client->closed)
        rc = dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    else if (acq->state == DLOCK__DOWNGRADING)
        rc = dlock_fail(err, DLOCK_EUNAVAILABLE,
                        "the downgrade of lock \"%s\" was not confirmed in time: it is held shared or exclusively, and "
                        "the downgrade is still being tried",
                        shown);
    dlock__acq_put(acq);
    return rc;
}

static int release(struct dlock_lock *lock, struct dlock_error *err) {
    struct dlock__acquisition *acq;
    int rc = dlock__release_one(lock, dlock__owned(lock), &acq, err);
    int64_t deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    if (rc == DLOCK_ELOST) dlock__callback_await(lock->client, deadline_us);
    if (rc != 1) return rc == 2 ? dlock__downgrade_await(acq, err) : rc;
    if (!lock->name->short_holds) return dlock__give_back(&acq, 1, deadline_us, err);
    acq->refs++;
    enum dlock__briefly briefly = dlock__linger_briefly(acq);
    rc = briefly == DLOCK__BRIEFLY_ENDED ? dlock__give_back_await(acq, deadline_us, err) : 0;
    dlock__acq_put(acq);
    return briefly == DLOCK__BRIEFLY_SEND ? dlock__give_back(&acq, 1, deadline_us, err) : rc;
}

int dlock_release(dlock_lock *lock, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    return rc != 0 ? rc : dlock__lock_end(lock, release(lock, err));
}

int dlock_cancel(dlock_lock *lock) {
    int rc = dlock__lock_begin(lock, NULL);
    if (rc != 0) return rc == DLOCK_ECANCELED ? 0 : rc; /* closed: nothing waits any more */
    cancel_waits(lock);
    return dlock__lock_end(lock, 0);
}

int dlock_ready(dlock_lock *lock, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    rc = dlock__name_ready(lock->name, err);
    return dlock__lock_end(lock, rc != 0 ? rc : dlock__name_outage(lock->name, err));
}

const char *dlock_name(dlock_lock *lock) {
    return lock ? dlock__name_shown(lock->name) : NULL; /* neither changes while the handle exists: needs no mutex */
}

/* ---- the caller's grant ---- */

/* Begins a look at the caller's grant. Inside an on_lost it is the lost grant of any owner, also while the client is
 * being closed. Returns 0 with the mutex held, or an error without. */
static int look_begin(struct dlock_lock *lock, const struct dlock__acquisition **acq, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0 && rc != DLOCK_ECANCELED) return rc;
    if (rc != 0) {
        dlock__enter(lock->client);
        lock->client->inside++;
        lock->inside++;
    }
    *acq = dlock__callback_reports(lock);
    if (!*acq && rc == 0) *acq = dlock__owned(lock);
    if (*acq) return 0;
    return dlock__lock_end(lock, rc != 0 ? rc : dlock__not_owned(lock, err));
}

int64_t dlock_remaining_ms(dlock_lock *lock) {
    if (dlock__lock_begin(lock, NULL) != 0) return 0;
    const struct dlock__acquisition *acq = dlock__owned(lock);
    int64_t left = 0;
    if (acq && dlock__acq_held(acq)) {
        left = acq->valid_until_us == DLOCK__NEVER ? DLOCK_FOREVER
                                                   : (acq->valid_until_us - dlock__now(lock->client)) / 1000;
        if (left < 0) left = 0;
    }
    dlock__lock_end(lock, 0);
    return left;
}

/* True if the caller certainly holds the lock. Takes no mutex: for loops that ask before each step, beside a keeper
 * that renews thousands of locks. */
static bool shown(const struct dlock_lock *lock) {
    uint64_t owner = lock->owner == DLOCK_OWNER_HANDLE ? DLOCK__ANY_THREAD : dlock__thread_id();
    if (atomic_load_explicit(&lock->shown.thread, memory_order_acquire) != owner) return false;
    int64_t until_us = atomic_load_explicit(&lock->shown.until_us, memory_order_acquire);
    return atomic_load_explicit(&lock->shown.thread, memory_order_relaxed) == owner && dlock__now_us() < until_us;
}

bool dlock_held(dlock_lock *lock) {
    if (lock && !dlock__forked(lock->client) && shown(lock)) return true;
    if (dlock__lock_begin(lock, NULL) != 0) return false;
    const struct dlock__acquisition *acq = dlock__owned(lock);
    bool held = acq && dlock__acq_held(acq);
    dlock__lock_end(lock, 0);
    return held;
}

uint64_t dlock_fence(dlock_lock *lock) {
    const struct dlock__acquisition *acq;
    if (look_begin(lock, &acq, NULL) != 0) return 0;
    uint64_t fence = dlock__acq_fence(acq);
    dlock__lock_end(lock, 0);
    return fence;
}

int dlock_lost(dlock_lock *lock, struct dlock_error *err) {
    const struct dlock__acquisition *acq;
    int rc = look_begin(lock, &acq, err);
    if (rc != 0) return rc;
    if (!dlock__acq_lost(acq)) return dlock__lock_end(lock, 0);
    dlock__loss_fail(acq, "", err);
    return dlock__lock_end(lock, (int)acq->op->loss.why);
}

int dlock_token(dlock_lock *lock, char *token, size_t size, struct dlock_error *err) {
    const struct dlock__acquisition *acq;
    if (!token || size < DLOCK_TOKEN_MAX + 1)
        return dlock_fail(err, DLOCK_EINVAL, "a token needs a buffer of %d bytes, got %zu", DLOCK_TOKEN_MAX + 1, size);
    int rc = look_begin(lock, &acq, err);
    if (rc != 0) return rc;
    memcpy(token, acq->token, strlen(acq->token) + 1);
    return dlock__lock_end(lock, 0);
}
