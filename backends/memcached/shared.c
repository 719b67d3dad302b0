/* Names with several holders. Their item is one list (holders.c), and every change of it, by an acquire, a renewal or a
 * release, is one cas of the whole list. A claim whose cas meets another client's change reads the item and tries
 * again; of several clients that try at the same time one always succeeds. A reader's item keeps writers out as any
 * item makes an `add` fail, and the reverse.
 *
 * A downgrade is the cas that replaces the writer's token by a list, with the grant's own id.
 *
 * Holders whose lease has ended (by sightings.c, or by the server's clock) are dropped by the next client that changes
 * the list. That cannot undo a renewal, which would have changed the item's id.
 *
 * There is no queue. But a writer that has been trying for a while records an intent in the list, and new readers stay
 * out as long as it is there, so that a stream of readers does not starve the writer. The intent expires, as a lease
 * does, unless it is repeated. */
#include "memcached.h"

#include <inttypes.h>
#include <stddef.h>

/* How long a writer asks before it records its intent, and before it repeats it; and how long the intent counts. */
#define PATIENCE_US 250000
#define WORD_MS 1000

/* What to do after reading the item: the results are set; change the list; take the item over alone. */
enum decision { ANSWER, CHANGE, TAKE };

struct shared {
    struct memcached *memcached;
    enum memcached_operation operation;
    struct dlock_claim *const *claims; /* all of one name; more than one only in a renewal or a release */
    size_t n;
    int64_t deadline_us, sent_us;
    char *why;
    struct dlock_error *err;

    char key[MEMCACHED_KEY_MAX + 1];
    const char *name; /* the name if the value has to contain it, because the key was cut; else NULL */
    struct memcached_item item;
    struct memcached_holders holders;
    bool locked; /* another token holds the name exclusively */
};

static void begin(struct shared *shared, struct memcached *memcached, enum memcached_operation operation,
                  struct dlock_claim *const *claims, size_t n, char why[MEMCACHED_WHY_MAX]) {
    memset(shared, 0, offsetof(struct shared, key));
    shared->memcached = memcached;
    shared->operation = operation;
    shared->claims = claims;
    shared->n = n;
    shared->why = why;
    shared->name = memcached_key(shared->key, claims[0]->name) ? claims[0]->name : NULL;
    why[0] = '\0';
}

/* ---- the present holders ----------------------------------------------------------------------------------------- */

/* True if the item is the exclusive lock of this claim; in a release also if it is the claim's reservation. */
static bool is_lock_of(struct shared *shared, const struct dlock_claim *claim) {
    const struct memcached_item *item = &shared->item;
    char value[MEMCACHED_VALUE_MAX + 1];
    memcached_value(value, claim, shared->name != NULL);
    if (item->length == strlen(value) && memcmp(item->value, value, item->length) == 0) return true;
    return shared->operation == MEMCACHED_RELEASE && memcached_is_reserved_for(item, claim->token);
}

/* Handles an item that is no list: the exclusive lock of one of our claims, to be downgraded; our own reservation,
 * which is no obstacle to us; or the lock of another token. */
static void understand_lock(struct shared *shared) {
    const struct memcached_item *item = &shared->item;
    if (shared->operation == MEMCACHED_ACQUIRE && memcached_is_reserved_for(item, shared->claims[0]->token)) return;
    for (size_t i = 0; i < shared->n; i++) {
        if (!is_lock_of(shared, shared->claims[i])) continue;
        shared->holders.mode = DLOCK_SHARED;
        shared->holders.limit = 0;
        memcached_add_holder(&shared->holders, shared->claims[i]->token);
        if (item->granted != MEMCACHED_NOT_KNOWN) shared->holders.holder[0].granted = item->granted;
        return;
    }
    shared->locked = !memcached_has_lapsed(shared->memcached, shared->key, item->cas, item->lease_ms);
}

static void understand(struct shared *shared) {
    shared->locked = false;
    shared->holders.n = 0;
    if (!shared->item.found || memcached_read_holders(&shared->item, shared->name, &shared->holders)) return;
    shared->holders.n = 0;
    understand_lock(shared);
}

/* Drops the holders whose lease has ended, but none whose lease this try has set. */
static void drop_ended(struct shared *shared) {
    memcached_drop_ended(shared->memcached, shared->key, shared->item.cas, &shared->holders);
}

static size_t live(struct shared *shared) {
    return memcached_live_holders(&shared->holders);
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static enum decision answer(struct shared *shared, int result) {
    for (size_t i = 0; i < shared->n; i++) shared->claims[i]->result = result;
    return ANSWER;
}

DLOCK_PRINTF(3, 4)
static enum decision explain(struct shared *shared, int result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(shared->why, MEMCACHED_WHY_MAX, format, args);
    va_end(args);
    return answer(shared, result);
}

/* The id of a reservation does not come from the counter, so it is treated as no item (memcached_read_holders() would
 * refuse it). */
static void set_lease(struct shared *shared, struct memcached_holder *holder, int64_t lease_ms) {
    holder->set = memcached_is_reserved(&shared->item) ? 0 : shared->item.cas;
    holder->lease_ms = lease_ms;
    holder->expiry_s = (uint64_t)memcached_expiry_s(&shared->memcached->clock, shared->sent_us, lease_ms);
}

/* True if the name is in use in a way that excludes the claim's mode or limit; sets the result. The mode of a
 * reservation is unknown, so it excludes none. */
static bool misfits(struct shared *shared, const struct dlock_claim *claim) {
    const struct memcached_holders *holders = &shared->holders;
    const bool permits = claim->mode == DLOCK_PERMIT, held = live(shared) > 0;
    const bool locked = shared->locked && !memcached_is_reserved(&shared->item);
    if (held && holders->mode == DLOCK_PERMIT && (!permits || holders->limit != claim->limit))
        explain(shared, DLOCK_EINVAL, "the name is in use as %" PRIu32 " permits", holders->limit);
    else if (permits && (locked || (held && holders->mode != DLOCK_PERMIT)))
        explain(shared, DLOCK_EINVAL, "the name is in use as a lock, not as permits");
    else
        return false;
    return true;
}

/* Decides for a writer that has met readers. The only change that it may make is to record its intent. */
static enum decision decide_writer(struct shared *shared) {
    struct memcached *memcached = shared->memcached;
    struct memcached_holders *holders = &shared->holders;
    struct memcached_holder *word;
    drop_ended(shared);
    if (misfits(shared, shared->claims[0])) return ANSWER;
    answer(shared, DLOCK_EBUSY);
    if (shared->locked) return ANSWER;
    if (live(shared) == 0) return TAKE;
    if (memcached_seen_us(memcached, shared->claims[0]->token, 0) < PATIENCE_US) return ANSWER;
    word = memcached_find_holder(holders, MEMCACHED_WRITER);
    if (word && memcached_holder_seen_us(memcached, shared->key, word) < PATIENCE_US) return ANSWER;
    if (!word && holders->n == MEMCACHED_HOLDERS_MAX) return ANSWER;
    if (!word) word = memcached_add_holder(holders, MEMCACHED_WRITER);
    set_lease(shared, word, WORD_MS);
    return CHANGE;
}

static enum decision decide_acquire(struct shared *shared) {
    struct memcached_holders *holders = &shared->holders;
    const struct dlock_claim *claim = shared->claims[0];
    struct memcached_holder *holder = memcached_find_holder(holders, claim->token);
    if (holder) set_lease(shared, holder, claim->lease_ms); /* granted before, this is a retry */
    drop_ended(shared);
    if (misfits(shared, claim)) return ANSWER;
    if (shared->locked) return answer(shared, DLOCK_EBUSY);
    if (holder) return CHANGE;
    if (claim->mode == DLOCK_PERMIT && live(shared) >= claim->limit) return answer(shared, DLOCK_EBUSY);
    if (claim->mode == DLOCK_SHARED && live(shared) < holders->n) return answer(shared, DLOCK_EBUSY);
    if (holders->n == MEMCACHED_HOLDERS_MAX)
        return explain(shared, DLOCK_EBUSY, "no more than %d can hold a name at a time", MEMCACHED_HOLDERS_MAX);
    if (live(shared) == 0) holders->n = 0;
    holders->mode = claim->mode;
    holders->limit = claim->limit;
    set_lease(shared, memcached_add_holder(holders, claim->token), claim->lease_ms);
    if (memcached_holders_size(holders) > MEMCACHED_KEPT_MAX)
        return explain(shared, DLOCK_EBUSY, "too many holders for one memcached item");
    return CHANGE;
}

static enum decision decide_renew(struct shared *shared) {
    enum decision decision = ANSWER;
    for (size_t i = 0; i < shared->n; i++) {
        struct memcached_holder *holder = memcached_find_holder(&shared->holders, shared->claims[i]->token);
        shared->claims[i]->result = holder ? 0 : DLOCK_ELOST;
        if (!holder) continue;
        set_lease(shared, holder, shared->claims[i]->lease_ms);
        decision = CHANGE;
    }
    drop_ended(shared);
    return decision;
}

static enum decision decide_release(struct shared *shared) {
    enum decision decision = ANSWER;
    for (size_t i = 0; i < shared->n; i++) {
        struct memcached_holder *holder = memcached_find_holder(&shared->holders, shared->claims[i]->token);
        shared->claims[i]->result = holder ? 0 : DLOCK_ELOST;
        if (!holder) continue;
        memcached_drop_holder(&shared->holders, holder);
        decision = CHANGE;
    }
    drop_ended(shared);
    return decision;
}

static enum decision decide(struct shared *shared) {
    understand(shared);
    switch (shared->operation) {
    case MEMCACHED_ACQUIRE:
        return shared->claims[0]->mode == DLOCK_EXCLUSIVE ? decide_writer(shared) : decide_acquire(shared);
    case MEMCACHED_RENEW: return decide_renew(shared);
    case MEMCACHED_RELEASE: break;
    }
    return decide_release(shared);
}

enum memcached_way memcached_meet(struct memcached *memcached, struct dlock_claim *claim,
                                  const struct memcached_item *item, char why[MEMCACHED_WHY_MAX]) {
    struct shared shared;
    begin(&shared, memcached, MEMCACHED_ACQUIRE, &claim, 1, why);
    shared.item = *item;
    switch (decide(&shared)) {
    case TAKE: return MEMCACHED_OPEN;
    case CHANGE: return MEMCACHED_CHANGE;
    case ANSWER: break;
    }
    return MEMCACHED_CLOSED;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void request_change(struct shared *shared) {
    struct memcached *memcached = shared->memcached;
    const struct memcached_holders *holders = &shared->holders;
    char value[MEMCACHED_KEPT_MAX + 1];
    uint64_t expiry_s = 0;
    if (holders->n == 0) {
        memcached_ask_end(memcached, shared->key, shared->item.cas);
        memcached_ask_item(memcached, shared->key);
        return;
    }
    memcached_write_holders(value, sizeof value, shared->name, holders);
    for (size_t i = 0; i < holders->n; i++)
        if (holders->holder[i].expiry_s > expiry_s) expiry_s = holders->holder[i].expiry_s;
    if (shared->item.found)
        memcached_ask_swap(memcached, shared->key, 0, expiry_s, value, shared->item.cas);
    else
        memcached_ask_add(memcached, shared->key, shared->claims[0]->token, 0, expiry_s, value);
    memcached_ask_item(memcached, shared->key);
}

/* Takes the item that was read after the change was stored, and keeps the grants. False: the item no longer lists the
 * grant of an acquire. */
static bool confirm(struct shared *shared) {
    const struct memcached_item *item = &shared->item;
    const bool listed = item->found && memcached_read_holders(item, shared->name, &shared->holders);
    if (shared->operation == MEMCACHED_RELEASE || shared->claims[0]->mode == DLOCK_EXCLUSIVE) return true;
    for (size_t i = 0; i < shared->n; i++) {
        struct dlock_claim *claim = shared->claims[i];
        const struct memcached_holder *holder = listed ? memcached_find_holder(&shared->holders, claim->token) : NULL;
        if (!holder && shared->operation == MEMCACHED_ACQUIRE) return false;
        if (!holder)
            claim->result = DLOCK_ELOST;
        else if (shared->operation == MEMCACHED_ACQUIRE || claim->result == 0)
            memcached_keep(shared->memcached, shared->operation, claim, item->cas, holder->granted,
                           shared->holders.n == 1, shared->sent_us);
    }
    return true;
}

/* Reads the clock after a change that sets a lease (see clock.c). *again: the lease was set too short. */
static int read_time(struct shared *shared, bool *again) {
    struct memcached *memcached = shared->memcached;
    uint64_t time_s = 0;
    int rc = memcached_read_time(memcached, shared->deadline_us, &time_s, shared->err);
    if (rc == 0 && memcached_clock_read(&memcached->clock, shared->sent_us, time_s)) *again = true;
    return rc;
}

/* Tries one change. *done: the results of the claims are set. */
static int try(struct shared *shared, bool *done) {
    struct memcached *memcached = shared->memcached;
    const bool adds = !shared->item.found;
    enum memcached_stored stored;
    bool asks_time, again = false;
    int rc;
    shared->sent_us = dlock_now_us();
    asks_time = shared->operation != MEMCACHED_RELEASE && memcached_clock_is_due(&memcached->clock, shared->sent_us);
    *done = decide(shared) != CHANGE;
    if (*done) return 0;
    const bool ends = shared->holders.n == 0;
    request_change(shared);
    if (asks_time) memcached_ask_stats(memcached);
    if (ends)
        rc = memcached_read_ended(memcached, shared->deadline_us, &stored, shared->err);
    else if (adds)
        rc = memcached_read_added(memcached, shared->deadline_us, &stored, shared->err);
    else
        rc = memcached_read_swapped(memcached, shared->deadline_us, &stored, shared->err);
    if (rc) return rc;
    if ((rc = memcached_read_item(memcached, shared->key, shared->deadline_us, &shared->item, shared->err)) != 0)
        return rc;
    *done = stored == MEMCACHED_STORED && confirm(shared);
    if (asks_time) rc = read_time(shared, &again);
    if (again) *done = false;
    return rc;
}

/* Gives up after other clients came first each time. An acquire has certainly got nothing, and may be retried. */
static int give_up(struct shared *shared) {
    static const char why[] = "other clients changed the item before each attempt of this one";
    if (shared->operation != MEMCACHED_ACQUIRE) return memcached_dead(shared->memcached, why, shared->err);
    explain(shared, DLOCK_EBUSY, "%s", why);
    return 0;
}

/* Of several clients that try at the same time one always succeeds, so tries are not counted: they end with the time,
 * early enough for the last one to be answered. */
int memcached_shared(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *const *claims,
                     size_t n, int64_t deadline_us, char why[MEMCACHED_WHY_MAX], struct dlock_error *err) {
    const int64_t now_us = dlock_now_us(), last_try_us = deadline_us - (deadline_us - now_us) / 4;
    struct shared shared;
    bool done = false;
    int rc;
    begin(&shared, memcached, operation, claims, n, why);
    shared.deadline_us = deadline_us;
    shared.err = err;
    memcached_ask_item(memcached, shared.key);
    rc = memcached_read_item(memcached, shared.key, deadline_us, &shared.item, err);
    while (rc == 0 && !done && dlock_now_us() < last_try_us) rc = try(&shared, &done);
    return rc == 0 && !done ? give_up(&shared) : rc;
}
