/* Turns: the requests of a claim at each step, and the next step after their replies. */
#include "batch.h"

/* How often an acquire sends an add, when the item that it met is gone by the time it is read. */
#define MAX_ADDS 3

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_shared(const struct turn *turn) {
    return turn->claim->mode != DLOCK_EXCLUSIVE;
}

/* Returns the flags with which this turn stores an exclusive grant. */
static uint32_t flags_of(const struct turn *turn) {
    const uint64_t granted = turn->step == ADD ? MEMCACHED_THIS_STORE : turn->granted;
    return memcached_flags(turn->claim->lease_ms, turn->too_far ? MEMCACHED_NOT_KNOWN : granted, turn->cas);
}

/* Writes the value that a turn stores. Returns its flags. */
static uint32_t write_value(char out[MEMCACHED_VALUE_MAX + 1], const struct turn *turn, bool cut, uint64_t expiry_s) {
    const struct dlock_claim *claim = turn->claim;
    const uint64_t granted = turn->step == ADD ? MEMCACHED_THIS_STORE : turn->granted;
    struct memcached_holders alone = {.mode = claim->mode, .limit = claim->limit, .n = 1};
    if (!is_shared(turn)) {
        memcached_value(out, claim, cut);
        return flags_of(turn);
    }
    alone.holder[0] = (struct memcached_holder){
        claim->token, strlen(claim->token), granted == MEMCACHED_NOT_KNOWN ? MEMCACHED_THIS_STORE : granted,
        turn->cas,    claim->lease_ms,      expiry_s};
    memcached_write_holders(out, MEMCACHED_VALUE_MAX + 1, cut ? claim->name : NULL, &alone);
    return 0;
}

/* True if the turn uses a meta set. It returns the new id, which need not be read back: half the work for the server.
 * But if it finds no memory for the new item (or finds it too large), it drops the existing one, whatever its id and
 * the mode. So it is never used to take a lock, where it could free the lock of another client; and for a renewal only
 * if the server evicts, where a lock may be dropped for lack of memory anyway. */
static bool is_meta_set(const struct batch *batch, const struct turn *turn) {
    return turn->step == SWAP && batch->operation == MEMCACHED_RENEW && batch->memcached->meta &&
           batch->memcached->evicts;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

int64_t memcached_turn_expiry_s(const struct batch *batch, const struct turn *turn) {
    return memcached_expiry_s(&batch->memcached->clock, batch->sent_us, turn->claim->lease_ms);
}

void memcached_turn_write(struct memcached *memcached, const struct batch *batch, const struct turn *turn) {
    const uint64_t expiry = (uint64_t)memcached_turn_expiry_s(batch, turn);
    char key[MEMCACHED_KEY_MAX + 1], value[MEMCACHED_VALUE_MAX + 1];
    const bool cut = memcached_key(key, turn->claim->name);
    uint32_t flags;
    if (turn->step == LOOK) {
        memcached_ask_item(memcached, key);
        return;
    }
    if (turn->step == SWAP && batch->operation == MEMCACHED_RELEASE) {
        memcached_ask_end(memcached, key, turn->cas);
        return;
    }
    flags = write_value(value, turn, cut, expiry);
    if (is_meta_set(batch, turn)) {
        memcached->meta->ask_set(memcached, key, flags, expiry, value, turn->cas);
        return;
    }
    if (turn->step == ADD)
        memcached_ask_add(memcached, key, turn->claim->token, flags, expiry, value);
    else
        memcached_ask_swap(memcached, key, flags, expiry, value, turn->cas);
    memcached_ask_item(memcached, key);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void finish(struct turn *turn, int result) {
    turn->claim->result = result;
    turn->step = DONE;
}

void memcached_turn_conclude(struct batch *batch, struct turn *turn, int result, const char *why) {
    finish(turn, result);
    if (!*why) return;
    if (!batch->explained) dlock_fail(batch->err, result, "%s", why);
    batch->explained = true;
}

/* Ends the turn with success: the item is ours, with this claim's lease. */
static void keep(struct batch *batch, struct turn *turn, uint64_t cas, uint64_t granted, bool alone) {
    memcached_keep(batch->memcached, batch->operation, turn->claim, cas, granted, alone, batch->sent_us);
    finish(turn, 0);
}

static void swap(struct turn *turn, uint64_t cas, uint64_t granted) {
    turn->step = SWAP;
    turn->cas = cas;
    turn->granted = granted;
}

void memcached_turn_swap_known(struct turn *turn) {
    swap(turn, turn->claim->state[STATE_CAS], turn->claim->state[STATE_GRANTED]);
}

/* Takes the next step after the reply that there is no item. */
static void gone(struct batch *batch, struct turn *turn) {
    if (batch->operation != MEMCACHED_ACQUIRE)
        finish(turn, DLOCK_ELOST);
    else if (turn->adds < MAX_ADDS)
        turn->step = ADD;
    else
        finish(turn, DLOCK_EBUSY);
}

/* Notes in the claim that an acquire has found the lock held: the next one then begins with a look instead of an `add`,
 * which is half the work for the server while the item exists. Also stores the fence of the item, if it is known. */
static void turned_away(const struct memcached *memcached, struct dlock_claim *claim,
                        const struct memcached_item *item) {
    if (claim->result != DLOCK_EBUSY) return;
    claim->state[STATE_ALONE] = STATE_MET;
    if (item->lease_ms > 0 && item->granted != MEMCACHED_NOT_KNOWN)
        claim->fence = memcached_fence(memcached, item->granted);
}

/* Takes the next step of an acquire that has found an item of another client. */
static void met(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    char why[MEMCACHED_WHY_MAX];
    switch (memcached_meet(batch->memcached, turn->claim, item, why)) {
    case MEMCACHED_OPEN: swap(turn, item->cas, MEMCACHED_THIS_STORE); break;
    case MEMCACHED_CHANGE: turn->step = SHARED; break;
    case MEMCACHED_CLOSED:
        turned_away(batch->memcached, turn->claim, item);
        memcached_turn_conclude(batch, turn, turn->claim->result, why);
        break;
    }
}

/* Takes the next step after this turn has stored the item; `granted` is the id of the grant according to its flags. */
static void stored(struct batch *batch, struct turn *turn, uint64_t cas, uint64_t granted) {
    if (turn->step == ADD || turn->granted == MEMCACHED_THIS_STORE)
        keep(batch, turn, cas, cas, true);
    else if (turn->granted == granted || turn->too_far || granted == MEMCACHED_NOT_KNOWN)
        keep(batch, turn, cas, turn->granted, true);
    else {
        swap(turn, cas, turn->granted);
        turn->too_far = true;
    }
}

/* Sets the lease of an item that is already ours: the token was granted before, or we did not know the id. If the
 * grant's id is unknown and this is a retry of its acquire, its fence was never reported, so the grant may begin
 * now. */
static void found(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    const bool lost = batch->operation == MEMCACHED_ACQUIRE && item->granted == MEMCACHED_NOT_KNOWN;
    swap(turn, item->cas, lost ? MEMCACHED_THIS_STORE : item->granted);
}

/* Takes the next step of an exclusive claim after its item was read. `lease_is_new`: this turn has just stored. */
static void look_at_lock(struct batch *batch, struct turn *turn, const struct memcached_item *item, bool cut,
                         bool lease_is_new) {
    char value[MEMCACHED_VALUE_MAX + 1];
    memcached_value(value, turn->claim, cut);
    /* A reservation is not a grant yet, but a release has to end it as well. */
    const bool reserved = batch->operation == MEMCACHED_RELEASE && memcached_is_reserved_for(item, turn->claim->token);
    if (reserved || (item->length == strlen(value) && memcmp(item->value, value, item->length) == 0)) {
        if (lease_is_new)
            stored(batch, turn, item->cas, item->granted);
        else
            found(batch, turn, item);
    } else if (batch->operation == MEMCACHED_ACQUIRE) {
        met(batch, turn, item);
    } else {
        finish(turn, DLOCK_ELOST);
    }
}

/* As look_at_lock(), for a reader or a permit. */
static void look_at_list(struct batch *batch, struct turn *turn, const struct memcached_item *item, bool cut,
                         bool lease_is_new) {
    struct memcached_holders holders;
    const struct memcached_holder *holder = NULL;
    if (lease_is_new && memcached_read_holders(item, cut ? turn->claim->name : NULL, &holders))
        holder = memcached_find_holder(&holders, turn->claim->token);
    if (holder)
        keep(batch, turn, item->cas, holder->granted, holders.n == 1);
    else if (batch->operation == MEMCACHED_ACQUIRE)
        met(batch, turn, item);
    else
        turn->step = SHARED;
}

static int read_look(struct batch *batch, struct turn *turn, bool lease_is_new) {
    char key[MEMCACHED_KEY_MAX + 1];
    const bool cut = memcached_key(key, turn->claim->name);
    struct memcached_item item;
    int rc = memcached_read_item(batch->memcached, key, batch->deadline_us, &item, batch->err);
    if (rc) return rc;
    if (!item.found)
        gone(batch, turn);
    else if (is_shared(turn))
        look_at_list(batch, turn, &item, cut, lease_is_new);
    else
        look_at_lock(batch, turn, &item, cut, lease_is_new);
    return 0;
}

/* Takes the next step after a cas failed: the item is gone, or has another id, since our own renewal came in between or
 * it is not ours alone. */
static void missed(struct turn *turn, enum memcached_stored stored) {
    if (stored == MEMCACHED_EXISTS)
        turn->step = is_shared(turn) ? SHARED : LOOK;
    else
        finish(turn, DLOCK_ELOST);
}

static int read_end(struct batch *batch, struct turn *turn) {
    enum memcached_stored ended;
    int rc = memcached_read_ended(batch->memcached, batch->deadline_us, &ended, batch->err);
    if (rc) return rc;
    if (ended == MEMCACHED_STORED)
        finish(turn, 0);
    else
        missed(turn, ended);
    return 0;
}

static int read_meta_set(struct batch *batch, struct turn *turn) {
    enum memcached_stored result;
    uint64_t cas = 0;
    int rc = batch->memcached->meta->read_set(batch->memcached, batch->deadline_us, &result, &cas, batch->err);
    if (rc) return rc;
    if (result != MEMCACHED_STORED)
        missed(turn, result);
    else if (!is_shared(turn))
        stored(batch, turn, cas, memcached_granted(flags_of(turn), cas));
    else
        keep(batch, turn, cas, turn->granted == MEMCACHED_NOT_KNOWN ? cas : turn->granted, true);
    return 0;
}

int memcached_turn_read(struct batch *batch, struct turn *turn) {
    enum memcached_stored stored;
    int rc;
    if (turn->step == LOOK) return read_look(batch, turn, false);
    if (batch->operation == MEMCACHED_RELEASE) return read_end(batch, turn);
    if (is_meta_set(batch, turn)) return read_meta_set(batch, turn);
    rc = turn->step == ADD ? memcached_read_added(batch->memcached, batch->deadline_us, &stored, batch->err)
                           : memcached_read_swapped(batch->memcached, batch->deadline_us, &stored, batch->err);
    if (rc) return rc;
    if (turn->step == ADD) turn->adds++;
    return read_look(batch, turn, stored == MEMCACHED_STORED);
}
