/* Names that several hold at once. Their item is one list (holders.c), and every change of it is one cas of the whole:
 * who gets in, who leaves, whose lease is set anew. Whoever meets another's change looks, and tries again; one of those
 * who try at a time always succeeds. A reader keeps writers out as any item keeps out an `add`, and the other way
 * round.
 *
 * A downgrade is the cas that puts a list in the place of the writer's token, with the grant's own id.
 *
 * Holders whose lease has ended (watch.c, or by the server's clock) are left out by whoever changes the list. That
 * cannot meet a renewal, which would have changed the item's id.
 *
 * There is no queue. But a writer that goes on asking for a while leaves word in the list, which readers who come then
 * respect, so that a stream of them lets it in. The word ends by itself, as a lease does, unless it is repeated. */
#include "memcached.h"

#include <inttypes.h>
#include <stddef.h>

/* How long a writer asks before it leaves word, and before it repeats it; and how long the word counts. */
#define PATIENCE_US 250000
#define WORD_MS 1000

/* What one look leads to. */
enum decision { ANSWER, CHANGE, TAKE };

struct crowd {
    struct memcached *memcached;
    enum memcached_operation operation;
    struct dlock_claim *const *claims; /* of one name; more than one only in a renewal or a release */
    size_t n;
    int64_t deadline_us, sent_us;
    char *why;
    struct dlock_error *err;

    char key[MEMCACHED_KEY_MAX + 1];
    const char *name; /* in the value, too; or NULL */
    struct memcached_item item;
    struct memcached_holders holders;
    bool locked; /* by somebody else, exclusively */
};

static void begin(struct crowd *crowd, struct memcached *memcached, enum memcached_operation operation,
                  struct dlock_claim *const *claims, size_t n, char why[MEMCACHED_WHY_MAX]) {
    memset(crowd, 0, offsetof(struct crowd, key));
    crowd->memcached = memcached;
    crowd->operation = operation;
    crowd->claims = claims;
    crowd->n = n;
    crowd->why = why;
    crowd->name = memcached_key(crowd->key, claims[0]->name) ? claims[0]->name : NULL;
    why[0] = '\0';
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* A token alone: ours, from before a downgrade, or a writer's. */
static void understand_lock(struct crowd *crowd) {
    const struct memcached_item *item = &crowd->item;
    char value[MEMCACHED_VALUE_MAX + 1];
    for (size_t i = 0; i < crowd->n; i++) {
        memcached_value(value, crowd->claims[i], crowd->name != NULL);
        if (item->length != strlen(value) || memcmp(item->value, value, item->length) != 0) continue;
        crowd->holders.mode = DLOCK_SHARED;
        crowd->holders.limit = 0;
        memcached_add_holder(&crowd->holders, crowd->claims[i]->token);
        if (item->granted != MEMCACHED_NOT_KNOWN) crowd->holders.holder[0].granted = item->granted;
        return;
    }
    crowd->locked = !memcached_has_lapsed(crowd->memcached, crowd->key, item->cas, item->lease_ms);
}

static void understand(struct crowd *crowd) {
    crowd->locked = false;
    crowd->holders.n = 0;
    if (!crowd->item.found || memcached_read_holders(&crowd->item, crowd->name, &crowd->holders)) return;
    crowd->holders.n = 0;
    understand_lock(crowd);
}

/* But for those whose lease was just set. */
static void drop_ended(struct crowd *crowd) {
    memcached_drop_ended(crowd->memcached, crowd->key, crowd->item.cas, &crowd->holders);
}

static size_t live(struct crowd *crowd) {
    return memcached_live_holders(&crowd->holders);
}

/* ---- what to do -------------------------------------------------------------------------------------------------- */

static enum decision answer(struct crowd *crowd, int result) {
    for (size_t i = 0; i < crowd->n; i++) crowd->claims[i]->result = result;
    return ANSWER;
}

DLOCK_PRINTF(3, 4)
static enum decision explain(struct crowd *crowd, int result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(crowd->why, MEMCACHED_WHY_MAX, format, args);
    va_end(args);
    return answer(crowd, result);
}

static void set_lease(struct crowd *crowd, struct memcached_holder *holder, int64_t lease_ms) {
    holder->set = crowd->item.cas;
    holder->lease_ms = lease_ms;
    holder->expiry_s = (uint64_t)memcached_expiry_s(&crowd->memcached->clock, crowd->sent_us, lease_ms);
}

/* Whether a claim cannot stand beside those who hold the name. */
static bool misfits(struct crowd *crowd, const struct dlock_claim *claim) {
    const struct memcached_holders *holders = &crowd->holders;
    const bool permits = claim->mode == DLOCK_PERMIT, held = live(crowd) > 0;
    if (held && holders->mode == DLOCK_PERMIT && (!permits || holders->limit != claim->limit))
        explain(crowd, DLOCK_EINVAL, "the name is in use as %" PRIu32 " permits", holders->limit);
    else if (permits && (crowd->locked || (held && holders->mode != DLOCK_PERMIT)))
        explain(crowd, DLOCK_EINVAL, "the name is in use as a lock, not as permits");
    else
        return false;
    return true;
}

/* A writer has met readers: it changes nothing but the word that it may leave. */
static enum decision decide_writer(struct crowd *crowd) {
    struct memcached *memcached = crowd->memcached;
    struct memcached_holders *holders = &crowd->holders;
    struct memcached_holder *word;
    drop_ended(crowd);
    if (misfits(crowd, crowd->claims[0])) return ANSWER;
    answer(crowd, DLOCK_EBUSY);
    if (crowd->locked) return ANSWER;
    if (live(crowd) == 0) return TAKE;
    if (memcached_seen_us(memcached, crowd->claims[0]->token, 0) < PATIENCE_US) return ANSWER;
    word = memcached_find_holder(holders, MEMCACHED_WRITER);
    if (word && memcached_holder_seen_us(memcached, crowd->key, word) < PATIENCE_US) return ANSWER;
    if (!word && holders->n == MEMCACHED_HOLDERS_MAX) return ANSWER;
    if (!word) word = memcached_add_holder(holders, MEMCACHED_WRITER);
    set_lease(crowd, word, WORD_MS);
    return CHANGE;
}

static enum decision decide_acquire(struct crowd *crowd) {
    struct memcached_holders *holders = &crowd->holders;
    const struct dlock_claim *claim = crowd->claims[0];
    struct memcached_holder *holder = memcached_find_holder(holders, claim->token);
    if (holder) set_lease(crowd, holder, claim->lease_ms); /* asked again */
    drop_ended(crowd);
    if (misfits(crowd, claim)) return ANSWER;
    if (crowd->locked) return answer(crowd, DLOCK_EBUSY);
    if (holder) return CHANGE;
    if (claim->mode == DLOCK_PERMIT && live(crowd) >= claim->limit) return answer(crowd, DLOCK_EBUSY);
    if (claim->mode == DLOCK_SHARED && live(crowd) < holders->n) return answer(crowd, DLOCK_EBUSY);
    if (holders->n == MEMCACHED_HOLDERS_MAX)
        return explain(crowd, DLOCK_EBUSY, "no more than %d can hold a name at a time", MEMCACHED_HOLDERS_MAX);
    if (live(crowd) == 0) holders->n = 0;
    holders->mode = claim->mode;
    holders->limit = claim->limit;
    set_lease(crowd, memcached_add_holder(holders, claim->token), claim->lease_ms);
    if (memcached_holders_size(holders) > MEMCACHED_KEPT_MAX)
        return explain(crowd, DLOCK_EBUSY, "those who hold the name fill the longest item that a lock may have");
    return CHANGE;
}

static enum decision decide_renew(struct crowd *crowd) {
    enum decision decision = ANSWER;
    for (size_t i = 0; i < crowd->n; i++) {
        struct memcached_holder *holder = memcached_find_holder(&crowd->holders, crowd->claims[i]->token);
        crowd->claims[i]->result = holder ? 0 : DLOCK_ELOST;
        if (!holder) continue;
        set_lease(crowd, holder, crowd->claims[i]->lease_ms);
        decision = CHANGE;
    }
    drop_ended(crowd);
    return decision;
}

static enum decision decide_release(struct crowd *crowd) {
    enum decision decision = ANSWER;
    for (size_t i = 0; i < crowd->n; i++) {
        struct memcached_holder *holder = memcached_find_holder(&crowd->holders, crowd->claims[i]->token);
        crowd->claims[i]->result = holder ? 0 : DLOCK_ELOST;
        if (!holder) continue;
        memcached_drop_holder(&crowd->holders, holder);
        decision = CHANGE;
    }
    drop_ended(crowd);
    return decision;
}

static enum decision decide(struct crowd *crowd) {
    understand(crowd);
    switch (crowd->operation) {
    case MEMCACHED_ACQUIRE:
        return crowd->claims[0]->mode == DLOCK_EXCLUSIVE ? decide_writer(crowd) : decide_acquire(crowd);
    case MEMCACHED_RENEW: return decide_renew(crowd);
    case MEMCACHED_RELEASE: break;
    }
    return decide_release(crowd);
}

enum memcached_way memcached_meet(struct memcached *memcached, struct dlock_claim *claim,
                                  const struct memcached_item *item, char why[MEMCACHED_WHY_MAX]) {
    struct crowd crowd;
    begin(&crowd, memcached, MEMCACHED_ACQUIRE, &claim, 1, why);
    crowd.item = *item;
    switch (decide(&crowd)) {
    case TAKE: return MEMCACHED_OPEN;
    case CHANGE: return MEMCACHED_CHANGE;
    case ANSWER: break;
    }
    return MEMCACHED_CLOSED;
}

/* ---- doing it ---------------------------------------------------------------------------------------------------- */

static void request_change(struct crowd *crowd) {
    const struct memcached_holders *holders = &crowd->holders;
    char value[MEMCACHED_KEPT_MAX + 1];
    uint64_t expiry_s = 0;
    if (holders->n == 0) {
        memcached_end(crowd->memcached, crowd->key, crowd->item.cas);
        memcached_request(crowd->memcached, 1, "gets %s\r\n", crowd->key);
        return;
    }
    memcached_write_holders(value, sizeof value, crowd->name, holders);
    for (size_t i = 0; i < holders->n; i++)
        if (holders->holder[i].expiry_s > expiry_s) expiry_s = holders->holder[i].expiry_s;
    if (crowd->item.found)
        memcached_request(crowd->memcached, 2, "cas %s 0 %" PRIu64 " %zu %" PRIu64 "\r\n%s\r\ngets %s\r\n", crowd->key,
                          expiry_s, strlen(value), crowd->item.cas, value, crowd->key);
    else
        memcached_request(crowd->memcached, 2, "add %s 0 %" PRIu64 " %zu\r\n%s\r\ngets %s\r\n", crowd->key, expiry_s,
                          strlen(value), value, crowd->key);
}

/* The change was stored, and then the item was read. False: what was granted is not there any more. */
static bool confirm(struct crowd *crowd) {
    const struct memcached_item *item = &crowd->item;
    const bool listed = item->found && memcached_read_holders(item, crowd->name, &crowd->holders);
    if (crowd->operation == MEMCACHED_RELEASE || crowd->claims[0]->mode == DLOCK_EXCLUSIVE) return true;
    for (size_t i = 0; i < crowd->n; i++) {
        struct dlock_claim *claim = crowd->claims[i];
        const struct memcached_holder *holder = listed ? memcached_find_holder(&crowd->holders, claim->token) : NULL;
        if (!holder && crowd->operation == MEMCACHED_ACQUIRE) return false;
        if (!holder)
            claim->result = DLOCK_ELOST;
        else if (crowd->operation == MEMCACHED_ACQUIRE || claim->result == 0)
            memcached_keep(crowd->memcached, crowd->operation, claim, item->cas, holder->granted, crowd->holders.n == 1,
                           crowd->sent_us);
    }
    return true;
}

/* As every flight that sets a lease may have to (clock.c). *again: it did not set it long enough. */
static int read_time(struct crowd *crowd, bool *again) {
    struct memcached *memcached = crowd->memcached;
    uint64_t time_s = 0;
    int rc = memcached_read_time(memcached, crowd->deadline_us, &time_s, crowd->err);
    if (rc == 0 && memcached_clock_read(&memcached->clock, crowd->sent_us, time_s)) *again = true;
    return rc;
}

/* One change; *done is set once it is answered. */
static int try(struct crowd *crowd, bool *done) {
    struct memcached *memcached = crowd->memcached;
    const bool adds = !crowd->item.found;
    enum memcached_stored stored;
    bool asks_time, again = false;
    int rc;
    crowd->sent_us = dlock_now_us();
    asks_time = crowd->operation != MEMCACHED_RELEASE && memcached_clock_is_due(&memcached->clock, crowd->sent_us);
    *done = decide(crowd) != CHANGE;
    if (*done) return 0;
    const bool ends = crowd->holders.n == 0;
    request_change(crowd);
    if (asks_time) memcached_request(memcached, 1, MEMCACHED_ASK_TIME);
    rc = ends ? memcached_read_ended(memcached, crowd->deadline_us, &stored, crowd->err)
              : memcached_read_stored(memcached, crowd->deadline_us, &stored, crowd->err);
    if (rc) return rc;
    if (!ends && stored != MEMCACHED_STORED && (stored == MEMCACHED_NOT_STORED) != adds)
        return memcached_nonsense(memcached, "add or cas", crowd->err);
    if ((rc = memcached_read_item(memcached, crowd->key, crowd->deadline_us, &crowd->item, crowd->err)) != 0) return rc;
    *done = stored == MEMCACHED_STORED && confirm(crowd);
    if (asks_time) rc = read_time(crowd, &again);
    if (again) *done = false;
    return rc;
}

/* Somebody else came first each time. An acquire has got nothing, as is certain, and may ask again. */
static int give_up(struct crowd *crowd) {
    static const char why[] = "others changed the item each time before this client could";
    if (crowd->operation != MEMCACHED_ACQUIRE) return memcached_dead(crowd->memcached, why, crowd->err);
    explain(crowd, DLOCK_EBUSY, "%s", why);
    return 0;
}

/* One of those who try at a time always comes through, so tries are not counted: it is the time that ends them, early
 * enough for the last one to be answered. */
int memcached_crowd(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *const *claims,
                    size_t n, int64_t deadline_us, char why[MEMCACHED_WHY_MAX], struct dlock_error *err) {
    const int64_t now_us = dlock_now_us(), last_try_us = deadline_us - (deadline_us - now_us) / 4;
    struct crowd crowd;
    bool done = false;
    int rc;
    begin(&crowd, memcached, operation, claims, n, why);
    crowd.deadline_us = deadline_us;
    crowd.err = err;
    memcached_request(memcached, 1, "gets %s\r\n", crowd.key);
    rc = memcached_read_item(memcached, crowd.key, deadline_us, &crowd.item, err);
    while (rc == 0 && !done && dlock_now_us() < last_try_us) rc = try(&crowd, &done);
    return rc == 0 && !done ? give_up(&crowd) : rc;
}
