/* Claims: acquire, renew and release, each for a batch in one round trip where nothing is in the way.
 *
 * A grant is an item: its key is the name, its value the token. `add` makes it, `cas` with the item's id (or a meta
 * set) renews it, `md` with that id (or a `cas` that lets it expire at once) ends it, and an id changes with every
 * store, so that a cas never touches another item than the one that was compared. An id is used without looking at the
 * item first only where it is certain that the server has not been restarted since (its ids begin anew): on a
 * connection that was made before the id was seen, by this client. */
#include "memcached.h"

#include <inttypes.h>

/* memcached takes times up to 2038-01-19. */
#define MAX_EXPIRY_S INT32_MAX
#define MAX_LEASE_MS (INT64_C(10) * 366 * 24 * 3600 * 1000)

/* Claims that share a flight: as many as the core sends at once. */
#define FLIGHT_MAX 256

/* Whoever meets another change in each of so many flights will not get through. */
#define MAX_FLIGHTS 16
/* How often an acquire adds when what it met has ended by the time it looks. */
#define MAX_ADDS 3

/* dlock_claim.state */
enum { STATE_CAS, STATE_SEEN_US, STATE_GRANTED, STATE_ALONE };

enum step {
    DONE,
    ADD,  /* add, and look */
    LOOK, /* look whose it is, and at which id */
    SWAP, /* cas; when the grant goes on, look for the new id */
    CROWD /* what needs memcached_crowd(), after all flights */
};

/* One claim's progress through a call. */
struct turn {
    struct dlock_claim *claim;
    enum step step;
    int adds;
    uint64_t cas;     /* SWAP: the id of the item that is ours, or lapsed */
    uint64_t granted; /* … and that of the grant, as for memcached_flags() */
    bool too_far;     /* for the flags to tell `granted` */
};

struct batch {
    struct memcached *memcached;
    enum memcached_operation operation;
    struct dlock_claim *const *claims;
    struct turn turns[FLIGHT_MAX]; /* of each */
    size_t n;
    size_t flight[FLIGHT_MAX]; /* the turns that were not done when this flight began */
    size_t n_flight;
    const struct turn *timed; /* whose item tells the server's time at the end of this flight; NULL: `stats` do */
    int64_t timed_end_s;      /* … from the end that it was given */
    int64_t sent_us, deadline_us;
    bool explained; /* `err` speaks of a claim */
    struct dlock_error *err;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_shared(const struct turn *turn) {
    return turn->claim->mode != DLOCK_EXCLUSIVE;
}

/* The flags of an exclusive grant as this turn stores it. */
static uint32_t flags_of(const struct turn *turn) {
    const uint64_t granted = turn->step == ADD ? MEMCACHED_THIS_STORE : turn->granted;
    return memcached_flags(turn->claim->lease_ms, turn->too_far ? MEMCACHED_NOT_KNOWN : granted, turn->cas);
}

/* The value with which a turn stores, and its flags. */
static uint32_t write_value(char out[MEMCACHED_VALUE_MAX + 1], const struct turn *turn, bool cut, int64_t expiry_s) {
    const struct dlock_claim *claim = turn->claim;
    const uint64_t granted = turn->step == ADD ? MEMCACHED_THIS_STORE : turn->granted;
    struct memcached_holders alone = {.mode = claim->mode, .limit = claim->limit, .n = 1};
    if (!is_shared(turn)) {
        memcached_value(out, claim, cut);
        return flags_of(turn);
    }
    alone.holder[0] = (struct memcached_holder){
        claim->token, strlen(claim->token), granted == MEMCACHED_NOT_KNOWN ? MEMCACHED_THIS_STORE : granted,
        turn->cas,    claim->lease_ms,      (uint64_t)expiry_s};
    memcached_write_holders(out, MEMCACHED_VALUE_MAX + 1, cut ? claim->name : NULL, &alone);
    return 0;
}

/* The classic way is a store, which may need memory that a full server has not. Expiries beyond 30 days are absolute
 * times: this one has passed. */
void memcached_end(struct memcached *memcached, const char *key, uint64_t cas) {
    if (memcached->knows_meta)
        memcached_request(memcached, 1, "md %s C%" PRIu64 "\r\n", key, cas);
    else
        memcached_request(memcached, 1, "cas %s 0 2592001 0 %" PRIu64 "\r\n\r\n", key, cas);
}

/* A meta set tells the new id, so that nothing has to be read back: half the work for the server. But one that finds no
 * memory for the new item (or finds it too large) drops the one that is there, whatever its id and the mode. So it
 * never takes a lock, since it would free that of somebody else; and it renews only where the server evicts, and a lock
 * may go when memory is short anyway. */
static bool is_meta_set(const struct batch *batch, const struct turn *turn) {
    return turn->step == SWAP && batch->operation == MEMCACHED_RENEW && batch->memcached->knows_meta &&
           batch->memcached->evicts;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int64_t expiry_of(const struct batch *batch, const struct turn *turn) {
    return memcached_expiry_s(&batch->memcached->clock, batch->sent_us, turn->claim->lease_ms);
}

static void write_turn(struct memcached *memcached, size_t i, void *arg) {
    const struct batch *batch = arg;
    if (i == batch->n_flight && !batch->timed) {
        memcached_request(memcached, 1, MEMCACHED_ASK_TIME);
        return;
    }
    const struct turn *turn = i == batch->n_flight ? batch->timed : &batch->turns[batch->flight[i]];
    const int64_t expiry = expiry_of(batch, turn);
    char key[MEMCACHED_KEY_MAX + 1], value[MEMCACHED_VALUE_MAX + 1];
    const bool cut = memcached_key(key, turn->claim->name);
    uint32_t flags;
    if (i == batch->n_flight) {
        memcached_request(memcached, 1, MEMCACHED_ASK_TTL, key);
        return;
    }
    if (turn->step == LOOK) {
        memcached_request(memcached, 1, "gets %s\r\n", key);
        return;
    }
    if (turn->step == SWAP && batch->operation == MEMCACHED_RELEASE) {
        memcached_end(memcached, key, turn->cas);
        return;
    }
    flags = write_value(value, turn, cut, expiry);
    if (turn->step == ADD)
        memcached_request(memcached, 2, "add %s %" PRIu32 " %" PRId64 " %zu\r\n%s\r\ngets %s\r\n", key, flags, expiry,
                          strlen(value), value, key);
    else if (is_meta_set(batch, turn))
        memcached_request(memcached, 1, "ms %s %zu T%" PRId64 " F%" PRIu32 " C%" PRIu64 " c\r\n%s\r\n", key,
                          strlen(value), expiry, flags, turn->cas, value);
    else
        memcached_request(memcached, 2, "cas %s %" PRIu32 " %" PRId64 " %zu %" PRIu64 "\r\n%s\r\ngets %s\r\n", key,
                          flags, expiry, strlen(value), turn->cas, value, key);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void finish(struct turn *turn, int result) {
    turn->claim->result = result;
    turn->step = DONE;
}

/* A claim's result that wants an explanation: the first one of a batch gets it. */
static void explain(struct batch *batch, struct turn *turn, int result, const char *why) {
    finish(turn, result);
    if (!batch->explained) dlock_fail(batch->err, result, "%s", why);
    batch->explained = true;
}

/* A result with its explanation, or "". */
static void conclude(struct batch *batch, struct turn *turn, int result, const char *why) {
    if (*why)
        explain(batch, turn, result, why);
    else
        finish(turn, result);
}

void memcached_keep(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *claim,
                    uint64_t cas, uint64_t granted, bool alone, int64_t sent_us) {
    claim->result = 0;
    claim->state[STATE_CAS] = cas;
    claim->state[STATE_SEEN_US] = (uint64_t)sent_us;
    claim->state[STATE_GRANTED] = granted;
    claim->state[STATE_ALONE] = alone;
    if (operation == MEMCACHED_ACQUIRE) claim->fence = memcached_fence(memcached, granted);
}

/* The item is ours, with this claim's lease. */
static void keep(struct batch *batch, struct turn *turn, uint64_t cas, uint64_t granted, bool alone) {
    memcached_keep(batch->memcached, batch->operation, turn->claim, cas, granted, alone, batch->sent_us);
    finish(turn, 0);
}

static void swap(struct turn *turn, uint64_t cas, uint64_t granted) {
    turn->step = SWAP;
    turn->cas = cas;
    turn->granted = granted;
}

/* The item is as the claim remembers it. */
static void swap_known(struct turn *turn) {
    swap(turn, turn->claim->state[STATE_CAS], turn->claim->state[STATE_GRANTED]);
}

/* There is no item (any more). */
static void gone(struct batch *batch, struct turn *turn) {
    if (batch->operation != MEMCACHED_ACQUIRE)
        finish(turn, DLOCK_ELOST);
    else if (turn->adds < MAX_ADDS)
        turn->step = ADD;
    else
        finish(turn, DLOCK_EBUSY);
}

/* An acquire has met an item that is not its own. */
static void met(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    char why[MEMCACHED_WHY_MAX];
    switch (memcached_meet(batch->memcached, turn->claim, item, why)) {
    case MEMCACHED_OPEN: swap(turn, item->cas, MEMCACHED_THIS_STORE); break;
    case MEMCACHED_CHANGE: turn->step = CROWD; break;
    case MEMCACHED_CLOSED: conclude(batch, turn, turn->claim->result, why); break;
    }
}

/* Our item, with its lease set by this turn; `granted` is what its flags say. */
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

/* Our item: a token that has the grant already, or an id that we did not know. The lease is set anew. A grant whose id
 * nobody knows any more was told to nobody either when it is asked for again, so it may count from now. */
static void found(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    const bool lost = batch->operation == MEMCACHED_ACQUIRE && item->granted == MEMCACHED_NOT_KNOWN;
    swap(turn, item->cas, lost ? MEMCACHED_THIS_STORE : item->granted);
}

/* What an exclusive claim has found, and whether its own store came first. */
static void look_at_lock(struct batch *batch, struct turn *turn, const struct memcached_item *item, bool cut,
                         bool lease_is_new) {
    char value[MEMCACHED_VALUE_MAX + 1];
    memcached_value(value, turn->claim, cut);
    if (item->length == strlen(value) && memcmp(item->value, value, item->length) == 0) {
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

/* The same for a claim that others may share. */
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
        turn->step = CROWD;
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

/* The answers that a command cannot have. */
static bool fits(enum step step, enum memcached_stored stored) {
    return stored == MEMCACHED_STORED || (stored == MEMCACHED_NOT_STORED) == (step == ADD);
}

/* The item was not there, or with another id: our own renewal came in between, or it is not ours alone. */
static void missed(struct turn *turn, enum memcached_stored stored) {
    if (stored == MEMCACHED_EXISTS)
        turn->step = is_shared(turn) ? CROWD : LOOK;
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
    int rc = memcached_read_meta_stored(batch->memcached, batch->deadline_us, &result, &cas, batch->err);
    if (rc) return rc;
    if (result != MEMCACHED_STORED)
        missed(turn, result);
    else if (!is_shared(turn))
        stored(batch, turn, cas, memcached_granted(flags_of(turn), cas));
    else
        keep(batch, turn, cas, turn->granted == MEMCACHED_NOT_KNOWN ? cas : turn->granted, true);
    return 0;
}

static int read_turn(struct batch *batch, struct turn *turn) {
    enum memcached_stored stored;
    int rc;
    if (turn->step == LOOK) return read_look(batch, turn, false);
    if (batch->operation == MEMCACHED_RELEASE) return read_end(batch, turn);
    if (is_meta_set(batch, turn)) return read_meta_set(batch, turn);
    rc = memcached_read_stored(batch->memcached, batch->deadline_us, &stored, batch->err);
    if (rc) return rc;
    if (!fits(turn->step, stored)) return memcached_nonsense(batch->memcached, "add or cas", batch->err);
    if (turn->step == ADD) turn->adds++;
    return read_look(batch, turn, stored == MEMCACHED_STORED);
}

/* ---- flights ----------------------------------------------------------------------------------------------------- */

static bool has_new_lease(const struct turn *turn) {
    return turn->step == DONE && turn->claim->result == 0;
}

/* One that stores, so that the end of its item is known. */
static const struct turn *find_timed(const struct batch *batch) {
    for (size_t i = 0; i < batch->n_flight && batch->memcached->tells_ttl; i++) {
        const struct turn *turn = &batch->turns[batch->flight[i]];
        if (turn->step != LOOK) return turn;
    }
    return NULL;
}

static bool has_new_leases(const struct batch *batch) {
    for (size_t i = 0; i < batch->n_flight; i++)
        if (has_new_lease(&batch->turns[batch->flight[i]])) return true;
    return false;
}

/* What time it is: from the item that was to tell, if that is what this flight has stored, or else from `stats`; 0: no
 * lease depends on it. */
static int read_clock(struct batch *batch, uint64_t *time_s) {
    struct memcached *memcached = batch->memcached;
    const struct turn *timed = batch->timed;
    if (timed) {
        int64_t left_s = -1;
        const uint64_t cas = has_new_lease(timed) ? timed->claim->state[STATE_CAS] : 0;
        int rc = memcached_read_ttl(memcached, cas, batch->deadline_us, &left_s, batch->err);
        if (rc || !has_new_leases(batch)) return rc;
        *time_s = (uint64_t)(batch->timed_end_s - left_s);
        if (left_s >= 0 && memcached_time_makes_sense(*time_s)) return 0;
        memcached_request(memcached, 1, MEMCACHED_ASK_TIME);
    }
    int rc = memcached_read_time(memcached, batch->deadline_us, time_s, batch->err);
    memcached->tells_ttl = memcached->knows_meta;
    return rc;
}

/* A reading of the clock at the end of a flight, which may show that its leases were set too early an end. */
static int read_time(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    uint64_t time_s = 0;
    int rc = read_clock(batch, &time_s);
    if (rc || time_s == 0 || !memcached_clock_read(&memcached->clock, batch->sent_us, time_s)) return rc;
    for (size_t i = 0; i < batch->n_flight; i++) {
        struct turn *turn = &batch->turns[batch->flight[i]];
        if (!has_new_lease(turn)) continue;
        swap_known(turn);
        if (!turn->claim->state[STATE_ALONE]) turn->step = CROWD;
    }
    return 0;
}

/* One round trip for every claim that is not done. */
static int fly(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    struct memcached_requests requests = {batch->n_flight, 0, write_turn, batch};
    int rc = 0;
    batch->sent_us = dlock_now_us();
    const bool asks_time =
        batch->operation != MEMCACHED_RELEASE && memcached_clock_is_due(&memcached->clock, batch->sent_us);
    if (asks_time) {
        requests.count++;
        batch->timed = find_timed(batch);
        if (batch->timed) batch->timed_end_s = expiry_of(batch, batch->timed);
    }
    memcached_write(memcached, &requests);
    for (size_t i = 0; i < batch->n_flight && rc == 0; i++) rc = read_turn(batch, &batch->turns[batch->flight[i]]);
    if (asks_time && rc == 0) rc = read_time(batch);
    memcached_write(memcached, NULL);
    return rc;
}

static int fly_all(struct batch *batch) {
    for (int flights = 0;; flights++) {
        int rc;
        batch->n_flight = 0;
        for (size_t i = 0; i < batch->n; i++)
            if (batch->turns[i].step != DONE && batch->turns[i].step != CROWD) batch->flight[batch->n_flight++] = i;
        if (batch->n_flight == 0) return 0;
        if (flights == MAX_FLIGHTS)
            return memcached_dead(batch->memcached, "an item changes each time it was looked at", batch->err);
        if ((rc = fly(batch)) != 0) return rc;
    }
}

/* The turns from i on that are one change of one item; returns how many they are. */
static size_t next_crowd(const struct batch *batch, size_t i) {
    size_t n = 1;
    while (batch->operation == MEMCACHED_RENEW && i + n < batch->n && batch->turns[i + n].step == CROWD &&
           strcmp(batch->claims[i + n]->name, batch->claims[i]->name) == 0)
        n++;
    return n;
}

static int run(struct batch *batch) {
    int rc = fly_all(batch);
    for (size_t i = 0, n; i < batch->n && rc == 0; i += n) {
        char why[MEMCACHED_WHY_MAX];
        n = 1;
        if (batch->turns[i].step != CROWD) continue;
        n = next_crowd(batch, i);
        rc = memcached_crowd(batch->memcached, batch->operation, &batch->claims[i], n, batch->deadline_us, why,
                             batch->err);
        if (rc == 0) conclude(batch, &batch->turns[i], batch->claims[i]->result, why);
    }
    return rc;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static bool lease_fits(const struct memcached *memcached, int64_t lease_ms) {
    return lease_ms > 0 && lease_ms <= MAX_LEASE_MS &&
           memcached_expiry_s(&memcached->clock, dlock_now_us(), lease_ms) < MAX_EXPIRY_S;
}

/* False: the claim is answered already. */
static bool acceptable(struct batch *batch, struct turn *turn) {
    const struct dlock_claim *claim = turn->claim;
    size_t name = strlen(claim->name), token = strlen(claim->token);
    if (claim->mode != DLOCK_EXCLUSIVE && claim->mode != DLOCK_SHARED && claim->mode != DLOCK_PERMIT)
        explain(batch, turn, DLOCK_ENOTSUP, "the memcached backend does not know this mode");
    else if ((claim->mode == DLOCK_PERMIT) != (claim->limit > 0))
        explain(batch, turn, DLOCK_EINVAL, "permits have a limit, and nothing else has");
    else if (name == 0 || name > MEMCACHED_NAME_MAX || token == 0 || token > DLOCK_TOKEN_MAX)
        explain(batch, turn, DLOCK_EINVAL, "a name has 1 to 255 bytes and a token 1 to 127");
    else if (batch->operation != MEMCACHED_RELEASE && !lease_fits(batch->memcached, claim->lease_ms))
        explain(batch, turn, DLOCK_EINVAL,
                "a lease on memcached is longer than 0, at most ten years, and ends before 2038-01-19");
    else
        return true;
    return false;
}

/* Whether the id in the claim's state is one of the server at the other end of this connection. */
static bool id_is_known(const struct memcached *memcached, const struct dlock_claim *claim) {
    return claim->state[STATE_ALONE] && claim->state[STATE_SEEN_US] >= (uint64_t)memcached->connected_us &&
           strncmp(claim->token, memcached->peer->client, strlen(memcached->peer->client)) == 0;
}

/* Several grants of one name are renewed in one change. */
static bool has_company(const struct batch *batch, size_t i) {
    const char *name = batch->claims[i]->name;
    return (i > 0 && strcmp(batch->claims[i - 1]->name, name) == 0) ||
           (i + 1 < batch->n && strcmp(batch->claims[i + 1]->name, name) == 0);
}

static void begin(struct batch *batch, size_t i) {
    struct turn *turn = &batch->turns[i];
    struct dlock_claim *claim = batch->claims[i];
    char why[MEMCACHED_WHY_MAX];
    memset(turn, 0, sizeof *turn);
    turn->claim = claim;
    turn->step = batch->operation == MEMCACHED_ACQUIRE ? ADD : is_shared(turn) ? CROWD : LOOK;
    if (!acceptable(batch, turn)) return;
    if (batch->operation == MEMCACHED_ACQUIRE && memcached_quarantined(batch->memcached, claim, why)) {
        explain(batch, turn, DLOCK_EBUSY, why);
        return;
    }
    if (batch->operation != MEMCACHED_ACQUIRE && id_is_known(batch->memcached, claim) && !has_company(batch, i))
        swap_known(turn);
}

/* After a pause. */
static int ask_time(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    const int64_t sent_us = dlock_now_us();
    uint64_t time_s = 0;
    int rc;
    memcached_request(memcached, 1, MEMCACHED_ASK_TIME);
    rc = memcached_read_time(memcached, deadline_us, &time_s, err);
    if (rc == 0) memcached_clock_read(&memcached->clock, sent_us, time_s);
    return rc;
}

static int run_batch(struct memcached *memcached, enum memcached_operation operation, struct dlock_claim *const *claims,
                     size_t n, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct batch batch;
    int rc = 0;
    if (operation != MEMCACHED_RELEASE && memcached_clock_is_stale(&memcached->clock, dlock_now_us()))
        rc = ask_time(memcached, deadline_us, err);
    batch.memcached = memcached;
    batch.operation = operation;
    batch.deadline_us = deadline_us;
    batch.explained = false;
    batch.err = err;
    for (size_t done = 0; done < n && rc == 0; done += batch.n) {
        batch.n = n - done < FLIGHT_MAX ? n - done : FLIGHT_MAX;
        batch.claims = claims + done;
        for (size_t i = 0; i < batch.n; i++) begin(&batch, i);
        rc = run(&batch);
    }
    return rc;
}

int memcached_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return run_batch(conn, MEMCACHED_ACQUIRE, claims, n, timeout_ms, err);
}

int memcached_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_batch(conn, MEMCACHED_RENEW, claims, n, timeout_ms, err);
}

int memcached_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return run_batch(conn, MEMCACHED_RELEASE, claims, n, timeout_ms, err);
}
