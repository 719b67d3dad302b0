/* The API on lock handles. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

/* ---- making and ending handles ---- */

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

static int check_lease(struct dlock_client *client, struct dlock_options *options, struct dlock_error *err) {
    char text[32];
    if (options->lease_ms == 0) options->lease_ms = client->uri->lease_ms;
    if (options->lease_ms < DLOCK_LEASE_MIN_MS || options->lease_ms > DLOCK_LEASE_MAX_MS)
        return dlock_fail(err, DLOCK_EINVAL, "lock options: lease_ms is %lld, it can be %lld to %lld (0: the URI's)",
                          (long long)options->lease_ms, (long long)DLOCK_LEASE_MIN_MS, (long long)DLOCK_LEASE_MAX_MS);
    if (client->quarantine_ms > 0 && options->lease_ms > client->quarantine_ms)
        return dlock_fail(err, DLOCK_EINVAL,
                          "lock options: lease_ms is %lld, longer than the quarantine of this server (%s), which "
                          "protects leases when "
                          "it restarts; set lease= or quarantine= in the URI",
                          (long long)options->lease_ms, dlock_duration_text(text, client->quarantine_ms));
    return 0;
}

static int check_options(struct dlock_client *client, struct dlock_options *options, struct dlock_error *err) {
    const char *backend = client->backend->name;
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
        return dlock_fail(err, DLOCK_ENOTSUP, "backend %s has no shared locks", backend);
    if (options->mode == DLOCK_PERMIT && !dlock__can(client, DLOCK_CAP_PERMIT))
        return dlock_fail(err, DLOCK_ENOTSUP, "backend %s has no permits", backend);
    return check_lease(client, options, err);
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

    char full[DLOCK__FULL_NAME_MAX + 1];
    size_t prefix = strlen(client->uri->prefix);
    memcpy(full, client->uri->prefix, prefix);
    memcpy(full + prefix, name, strlen(name) + 1);
    struct dlock_lock *lock = calloc(1, sizeof *lock);
    if (!lock) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a lock");
    lock->client = client;
    lock->mode = options.mode;
    lock->owner = options.owner;
    lock->limit = options.limit;
    lock->flags = options.flags;
    lock->lease_ms = options.lease_ms;
    lock->on_lost = options.on_lost;
    lock->on_lost_arg = options.on_lost_arg;

    dlock__enter(client);
    if (client->closed) rc = dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    if (rc == 0 && lock->on_lost) rc = dlock__callback_start(client, err);
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
    lock->cancels++; /* for those who are out of the line with a grant, and may be back in it when that has lapsed */
    for (struct dlock__waiter *waiter = lock->name->head; waiter; waiter = waiter->next)
        if (waiter->lock == lock) dlock__waiter_cancel(waiter);
}

/* Takes back what a claim is held through this handle. True: nobody holds it any more. */
static bool let_go(struct dlock__claim *claim, struct dlock_lock *lock) {
    struct dlock__hold *hold = dlock__claim_hold(claim, lock, false);
    if (!hold) return false;
    claim->count -= hold->count;
    hold->count = 0;
    dlock__hold_set(hold, NULL);
    return claim->count == 0;
}

/* Takes back what is held through this handle and gives its memory up: what is lost is forgotten, and what nobody else
 * holds becomes a request, as far as there is room; returns how many. */
static size_t let_go_of_all(struct dlock_lock *lock, struct dlock__claim *claims[DLOCK__BATCH]) {
    struct dlock__name *name = lock->name;
    size_t n = 0;
    for (struct dlock__claim *claim = name->lost, *next; claim; claim = next) {
        next = claim->next;
        if (!let_go(claim, lock)) continue;
        dlock__lost_remove(claim);
        dlock__claim_put(claim);
    }
    for (struct dlock__claim *claim = name->held, *next; claim && n < DLOCK__BATCH; claim = next) {
        next = claim->next;
        if (!dlock__claim_held(claim) || !let_go(claim, lock)) continue;
        if (lock->client->closed) { /* dlock_close releases it, with everything else */
            dlock__name_unhold(name, claim);
            dlock__claim_disown(claim);
            dlock__orphan(claim);
            dlock__claim_put(claim);
        } else if (!dlock__give_back_begin(claim)) {
            claims[n++] = claim;
        }
    }
    return n;
}

/* Ends what was acquired through this handle, whichever thread owns it. What the same thread holds through another
 * handle stays. */
static void release_everything(struct dlock_lock *lock) {
    struct dlock__claim *claims[DLOCK__BATCH];
    int64_t deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    for (size_t n; (n = let_go_of_all(lock, claims)) > 0;) dlock__give_back(claims, n, deadline_us, NULL);
}

void dlock_free(dlock_lock *lock) {
    if (!lock || dlock__forked(lock->client)) return;
    struct dlock_client *client = lock->client;
    dlock__enter(client);
    lock->freed = true;
    client->inside++; /* a close meanwhile waits for us */
    cancel_waits(lock);
    while (lock->inside > 0) dlock__wait(client, &client->changed, DLOCK__NEVER);
    dlock__callback_forget(lock);
    release_everything(lock);
    while (lock->holds) dlock__hold_set(lock->holds, NULL);
    dlock__lock_count(lock, -1);
    client->inside--;
    pthread_cond_broadcast(&client->changed);
    lock->freed_inside = client->callback.running == lock; /* by this thread: another one was waited for */
    if (!lock->freed_inside) dlock__lock_destroy(lock);
    dlock__leave(client);
    dlock__client_put(client);
}

/* ---- calls on handles ---- */

static bool owns(const struct dlock__claim *claim, const struct dlock_lock *lock) {
    if (claim->owner != lock->owner || claim->count == 0) return false;
    return lock->owner == DLOCK_OWNER_HANDLE ? claim->hold->handle == lock : claim->thread == dlock__thread_id();
}

struct dlock__claim *dlock__owned(struct dlock_lock *lock) {
    struct dlock__claim *mine = NULL;
    for (const struct dlock__hold *hold = lock->holds; hold && !mine; hold = hold->other)
        if (dlock__claim_held(hold->claim) && owns(hold->claim, lock)) mine = hold->claim;
    for (struct dlock__claim *claim = lock->name->held; claim && !mine; claim = claim->next)
        if (dlock__claim_held(claim) && owns(claim, lock)) mine = claim; /* through another handle of this thread */
    if (mine) {
        dlock__expire_if_due(mine);
        return mine;
    }
    struct dlock__claim *claim = lock->name->lost;
    while (claim && !owns(claim, lock)) claim = claim->next;
    return claim;
}

bool dlock__owned_after_renewal(struct dlock_lock *lock, const struct dlock__claim *claim) {
    uint64_t fence = dlock__claim_fence(claim);
    while (claim->renewing) dlock__wait(lock->client, &lock->client->changed, DLOCK__NEVER);
    if (dlock__claim_lost(claim)) return true;
    return dlock__owned(lock) == claim && dlock__claim_fence(claim) == fence;
}

int dlock__fence_can_grow(const struct dlock__claim *claim, struct dlock_error *err) {
    if (claim->ordinal < DLOCK__ORDINAL_MAX) return 0;
    return dlock_fail(err, DLOCK_EINVAL,
                      "lock \"%s\" has changed hands %d times since the server granted it, and its fence can grow no "
                      "more: release it, and acquire it anew",
                      dlock__name_shown(claim->name), DLOCK__ORDINAL_MAX);
}

int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" is not held by %s", dlock__name_shown(lock->name),
                      lock->owner == DLOCK_OWNER_HANDLE ? "this handle" : "the calling thread");
}

static int reenter(struct dlock__claim *claim, struct dlock_lock *lock, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (dlock__claim_lost(claim))
        return dlock_fail(err, DLOCK_ELOST,
                          "lock \"%s\" was lost; release it as often as it was acquired (%u), then try again", shown,
                          (unsigned)claim->count);
    if (lock->owner == DLOCK_OWNER_HANDLE)
        return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\": this handle already holds it", shown);
    if ((claim->mode == DLOCK_PERMIT) != (lock->mode == DLOCK_PERMIT))
        return dlock_fail(err, DLOCK_EINVAL, "\"%s\" is held %s by the caller: a name is either a lock or permits",
                          shown, claim->mode == DLOCK_PERMIT ? "as a permit" : "as a lock, not as permits,");
    if ((lock->flags | claim->flags) & DLOCK_NO_REENTRY)
        return dlock_fail(err, DLOCK_EDEADLK, "lock \"%s\": this thread already holds it, and DLOCK_NO_REENTRY is set",
                          shown);
    if (claim->mode == DLOCK_SHARED && lock->mode == DLOCK_EXCLUSIVE)
        return dlock_fail(err, DLOCK_EDEADLK,
                          "lock \"%s\" is held shared by the caller, who would wait for itself to have it exclusively; "
                          "release it first",
                          shown);
    if (claim->count == UINT32_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%s\" was acquired too often without a release", shown);
    struct dlock__hold *hold = dlock__claim_hold(claim, lock, true);
    if (!hold) return dlock_fail(err, DLOCK_ENOMEM, "out of memory to hold \"%s\" once more", shown);
    if (lock->on_lost) dlock__callback_arm(lock->client, claim->valid_until_us);
    hold->count++;
    claim->count++;
    return 0;
}

/* Permits are counted by the server, not by re-entry: a thread may hold several. */
static bool takes_another(const struct dlock__claim *claim, const struct dlock_lock *lock) {
    return claim->mode == DLOCK_PERMIT && lock->mode == DLOCK_PERMIT && dlock__claim_held(claim) &&
           lock->owner == DLOCK_OWNER_THREAD && !((lock->flags | claim->flags) & DLOCK_NO_REENTRY);
}

int dlock__try_reenter(struct dlock_lock *lock, struct dlock_error *err) {
    if (lock->freed) /* a callback that dlock_free waits for */
        return dlock_fail(err, DLOCK_ECANCELED, "lock \"%s\" is being freed", dlock__name_shown(lock->name));
    struct dlock__claim *claim = dlock__owned(lock);
    if (claim && !takes_another(claim, lock)) {
        int rc = reenter(claim, lock, err);
        return rc == 0 ? 1 : rc;
    }
    if (!claim && !lock->name->head && (claim = dlock__linger_take(lock))) {
        dlock__own(claim, lock);
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

int dlock__release_one(struct dlock_lock *lock, struct dlock__claim **out, struct dlock_error *err) {
    struct dlock__claim *claim = dlock__owned(lock);
    if (!claim) return dlock__not_owned(lock, err);
    struct dlock__hold *hold = dlock__claim_hold(claim, lock, false);
    if (!hold || hold->count == 0) /* acquired through another handle of this thread */
        for (hold = claim->hold; hold->count == 0;) hold = hold->next;
    hold->count--;
    claim->count--;
    if (dlock__claim_lost(claim)) {
        if (claim->count == 0) {
            dlock__lost_remove(claim);
            dlock__callback_released(claim);
            dlock__claim_put(claim);
        }
        return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost before this release", dlock__name_shown(lock->name));
    }
    if (claim->count > 0 || dlock__give_back_begin(claim)) return 0;
    *out = claim;
    return 1;
}

static int release(struct dlock_lock *lock, struct dlock_error *err) {
    struct dlock__claim *claim;
    int rc = dlock__release_one(lock, &claim, err);
    if (rc <= 0) return rc;
    int64_t deadline_us = dlock__bounded(lock->client, DLOCK__NEVER);
    claim->refs++;
    enum dlock__briefly briefly = dlock__linger_briefly(claim);
    rc = briefly == DLOCK__BRIEFLY_ENDED ? dlock__give_back_await(claim, deadline_us, err) : 0;
    dlock__claim_put(claim);
    return briefly == DLOCK__BRIEFLY_SEND ? dlock__give_back(&claim, 1, deadline_us, err) : rc;
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
    return rc != 0 ? rc : dlock__lock_end(lock, dlock__name_ready(lock->name, err));
}

/* ---- questions about the caller's grant ---- */

int64_t dlock_remaining_ms(dlock_lock *lock) {
    if (dlock__lock_begin(lock, NULL) != 0) return 0;
    const struct dlock__claim *claim = dlock__owned(lock);
    int64_t left = 0;
    if (claim && dlock__claim_held(claim)) {
        left = claim->valid_until_us == DLOCK__NEVER ? DLOCK_FOREVER
                                                     : (claim->valid_until_us - dlock__now(lock->client)) / 1000;
        if (left < 0) left = 0;
    }
    dlock__lock_end(lock, 0);
    return left;
}

bool dlock_held(dlock_lock *lock) {
    if (dlock__lock_begin(lock, NULL) != 0) return false;
    const struct dlock__claim *claim = dlock__owned(lock);
    bool held = claim && dlock__claim_held(claim);
    dlock__lock_end(lock, 0);
    return held;
}

uint64_t dlock_fence(dlock_lock *lock) {
    if (dlock__lock_begin(lock, NULL) != 0) return 0;
    const struct dlock__claim *claim = dlock__owned(lock);
    uint64_t fence = claim ? dlock__claim_fence(claim) : 0;
    dlock__lock_end(lock, 0);
    return fence;
}

int dlock_token(dlock_lock *lock, char *token, size_t size, struct dlock_error *err) {
    if (!token || size < DLOCK_TOKEN_MAX + 1)
        return dlock_fail(err, DLOCK_EINVAL, "a token needs a buffer of %d bytes, got %zu", DLOCK_TOKEN_MAX + 1, size);
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    const struct dlock__claim *claim = dlock__owned(lock);
    if (claim)
        memcpy(token, claim->token, strlen(claim->token) + 1);
    else
        rc = dlock__not_owned(lock, err);
    return dlock__lock_end(lock, rc);
}
