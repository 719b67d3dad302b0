/* Claims: acquire, renew and release, each for a batch in one round trip where nothing is in the way.
 *
 * A grant is an item: its key is the name, its value the token. `add` makes it, `cas` with the item's id renews it or
 * lets it expire at once, and an id changes with every store, so that a cas never touches another item than the one
 * that was compared. An id is used without looking at the item first only where it is certain that the server has not
 * been restarted since (its ids begin anew): on a connection that was made before the id was seen, by this client. */
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
enum { STATE_CAS, STATE_SEEN_US, STATE_GRANTED };

enum operation { ACQUIRE, RENEW, RELEASE };

enum step {
    DONE,
    ADD,  /* add, and look */
    LOOK, /* look whose it is, and at which id */
    SWAP  /* cas; when the grant goes on, look for the new id */
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
    enum operation operation;
    struct turn turns[FLIGHT_MAX];
    size_t n;
    size_t flight[FLIGHT_MAX]; /* the turns that were not done when this flight began */
    size_t n_flight;
    int64_t sent_us, deadline_us;
    bool explained; /* `err` speaks of a claim */
    struct dlock_error *err;
};

/* ---- names and values -------------------------------------------------------------------------------------------- */

bool memcached_key(char key[MEMCACHED_KEY_MAX + 1], const char *name) {
    char whole[3 * MEMCACHED_NAME_MAX + 1];
    dlock_encode_name(whole, sizeof whole, name, " ", false);
    dlock_encode_name(key, MEMCACHED_KEY_MAX + 1, name, " ", false);
    return strcmp(whole, key) != 0;
}

/* The token; behind a key that was cut, the whole name too, so that another name with the same hash is not taken for
 * this one. */
static void write_value(char out[MEMCACHED_VALUE_MAX + 1], const struct dlock_claim *claim, bool cut) {
    if (cut)
        snprintf(out, MEMCACHED_VALUE_MAX + 1, "%s %s", claim->token, claim->name);
    else
        snprintf(out, MEMCACHED_VALUE_MAX + 1, "%s", claim->token);
}

/* Expiries beyond 30 days are absolute times: this one has passed. */
void memcached_end(struct memcached *memcached, const char *key, uint64_t cas) {
    memcached_request(memcached, 1, "cas %s 0 2592001 0 %" PRIu64 "\r\n\r\n", key, cas);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void write_turn(struct memcached *memcached, size_t i, void *arg) {
    const struct batch *batch = arg;
    if (i == batch->n_flight) {
        memcached_request(memcached, 1, MEMCACHED_ASK_TIME);
        return;
    }
    const struct turn *turn = &batch->turns[batch->flight[i]];
    const int64_t expiry = memcached_expiry_s(&memcached->clock, batch->sent_us, turn->claim->lease_ms);
    char key[MEMCACHED_KEY_MAX + 1], value[MEMCACHED_VALUE_MAX + 1];
    write_value(value, turn->claim, memcached_key(key, turn->claim->name));
    if (turn->step == LOOK)
        memcached_request(memcached, 1, "gets %s\r\n", key);
    else if (turn->step == ADD)
        memcached_request(memcached, 2, "add %s %" PRIu32 " %" PRId64 " %zu\r\n%s\r\ngets %s\r\n", key,
                          memcached_flags(turn->claim->lease_ms, MEMCACHED_THIS_STORE, 0), expiry, strlen(value), value,
                          key);
    else if (batch->operation == RELEASE)
        memcached_end(memcached, key, turn->cas);
    else
        memcached_request(memcached, 2, "cas %s %" PRIu32 " %" PRId64 " %zu %" PRIu64 "\r\n%s\r\ngets %s\r\n", key,
                          memcached_flags(turn->claim->lease_ms, turn->too_far ? MEMCACHED_NOT_KNOWN : turn->granted,
                                          turn->cas),
                          expiry, strlen(value), turn->cas, value, key);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void finish(struct turn *turn, int result) {
    turn->claim->result = result;
    turn->step = DONE;
}

/* The item is ours, with this claim's lease. */
static void keep(struct batch *batch, struct turn *turn, const struct memcached_item *item, uint64_t granted) {
    struct dlock_claim *claim = turn->claim;
    claim->state[STATE_CAS] = item->cas;
    claim->state[STATE_SEEN_US] = (uint64_t)batch->sent_us;
    claim->state[STATE_GRANTED] = granted;
    if (batch->operation == ACQUIRE) claim->fence = memcached_fence(batch->memcached, granted);
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
    if (batch->operation != ACQUIRE)
        finish(turn, DLOCK_ELOST);
    else if (turn->adds < MAX_ADDS)
        turn->step = ADD;
    else
        finish(turn, DLOCK_EBUSY);
}

/* Somebody else's item. */
static void taken(struct batch *batch, struct turn *turn, const char *key, const struct memcached_item *item) {
    if (batch->operation != ACQUIRE)
        finish(turn, DLOCK_ELOST);
    else if (memcached_has_lapsed(batch->memcached, key, item->cas, item->lease_ms))
        swap(turn, item->cas, MEMCACHED_THIS_STORE);
    else
        finish(turn, DLOCK_EBUSY);
}

/* Our item, with its lease set by this turn. */
static void stored(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    if (turn->step == ADD || turn->granted == MEMCACHED_THIS_STORE)
        keep(batch, turn, item, item->cas);
    else if (turn->granted == item->granted || turn->too_far || item->granted == MEMCACHED_NOT_KNOWN)
        keep(batch, turn, item, turn->granted);
    else {
        swap(turn, item->cas, turn->granted);
        turn->too_far = true;
    }
}

/* Our item: a token that has the grant already, or an id that we did not know. The lease is set anew. A grant whose id
 * nobody knows any more was told to nobody either when it is asked for again, so it may count from now. */
static void found(struct batch *batch, struct turn *turn, const struct memcached_item *item) {
    const bool lost = batch->operation == ACQUIRE && item->granted == MEMCACHED_NOT_KNOWN;
    swap(turn, item->cas, lost ? MEMCACHED_THIS_STORE : item->granted);
}

static int read_look(struct batch *batch, struct turn *turn, bool lease_is_new) {
    char key[MEMCACHED_KEY_MAX + 1], value[MEMCACHED_VALUE_MAX + 1];
    struct memcached_item item;
    int rc;
    write_value(value, turn->claim, memcached_key(key, turn->claim->name));
    rc = memcached_read_item(batch->memcached, key, batch->deadline_us, &item, batch->err);
    if (rc) return rc;
    if (!item.found)
        gone(batch, turn);
    else if (item.length != strlen(value) || memcmp(item.value, value, item.length) != 0)
        taken(batch, turn, key, &item);
    else if (lease_is_new)
        stored(batch, turn, &item);
    else
        found(batch, turn, &item);
    return 0;
}

/* The answers that a command cannot have. */
static bool fits(enum step step, enum memcached_stored stored) {
    return stored == MEMCACHED_STORED || (stored == MEMCACHED_NOT_STORED) == (step == ADD);
}

static int read_turn(struct batch *batch, struct turn *turn) {
    enum memcached_stored stored;
    int rc;
    if (turn->step == LOOK) return read_look(batch, turn, false);
    rc = memcached_read_stored(batch->memcached, batch->deadline_us, &stored, batch->err);
    if (rc) return rc;
    if (!fits(turn->step, stored)) return memcached_nonsense(batch->memcached, "add or cas", batch->err);
    if (turn->step == ADD) turn->adds++;
    if (turn->step == ADD || batch->operation != RELEASE) return read_look(batch, turn, stored == MEMCACHED_STORED);
    if (stored == MEMCACHED_EXISTS)
        turn->step = LOOK; /* a renewal of ours came in between, or somebody else has it */
    else
        finish(turn, stored == MEMCACHED_STORED ? 0 : DLOCK_ELOST);
    return 0;
}

/* ---- flights ----------------------------------------------------------------------------------------------------- */

/* A reading of the clock at the end of a flight, which may show that its leases were set too early an end. */
static int read_time(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    uint64_t time_s = 0;
    int rc = memcached_read_time(memcached, batch->deadline_us, &time_s, batch->err);
    if (rc || !memcached_clock_read(&memcached->clock, batch->sent_us, time_s)) return rc;
    for (size_t i = 0; i < batch->n_flight; i++) {
        struct turn *turn = &batch->turns[batch->flight[i]];
        if (turn->step == DONE && turn->claim->result == 0) swap_known(turn);
    }
    return 0;
}

/* One round trip for every claim that is not done. */
static int fly(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    struct memcached_requests requests = {batch->n_flight, 0, write_turn, batch};
    int rc = 0;
    batch->sent_us = dlock_now_us();
    const bool asks_time = batch->operation != RELEASE && memcached_clock_is_due(&memcached->clock, batch->sent_us);
    if (asks_time) requests.count++;
    memcached_write(memcached, &requests);
    for (size_t i = 0; i < batch->n_flight && rc == 0; i++) rc = read_turn(batch, &batch->turns[batch->flight[i]]);
    if (asks_time && rc == 0) rc = read_time(batch);
    memcached_write(memcached, NULL);
    return rc;
}

static int run(struct batch *batch) {
    for (int flights = 0;; flights++) {
        int rc;
        batch->n_flight = 0;
        for (size_t i = 0; i < batch->n; i++)
            if (batch->turns[i].step != DONE) batch->flight[batch->n_flight++] = i;
        if (batch->n_flight == 0) return 0;
        if (flights == MAX_FLIGHTS)
            return memcached_dead(batch->memcached, "an item changes each time it was looked at", batch->err);
        if ((rc = fly(batch)) != 0) return rc;
    }
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

/* A claim's result that wants an explanation: the first one of a batch gets it. */
static void explain(struct batch *batch, struct turn *turn, int result, const char *why) {
    finish(turn, result);
    if (!batch->explained) dlock_fail(batch->err, result, "%s", why);
    batch->explained = true;
}

static bool lease_fits(const struct memcached *memcached, int64_t lease_ms) {
    return lease_ms > 0 && lease_ms <= MAX_LEASE_MS &&
           memcached_expiry_s(&memcached->clock, dlock_now_us(), lease_ms) < MAX_EXPIRY_S;
}

/* False: the claim is answered already. */
static bool acceptable(struct batch *batch, struct turn *turn) {
    const struct dlock_claim *claim = turn->claim;
    size_t name = strlen(claim->name), token = strlen(claim->token);
    if (claim->mode != DLOCK_EXCLUSIVE && batch->operation != RELEASE)
        explain(batch, turn, DLOCK_ENOTSUP, "the memcached backend has exclusive locks only");
    else if (name == 0 || name > MEMCACHED_NAME_MAX || token == 0 || token > DLOCK_TOKEN_MAX)
        explain(batch, turn, DLOCK_EINVAL, "a name has 1 to 255 bytes and a token 1 to 127");
    else if (batch->operation != RELEASE && !lease_fits(batch->memcached, claim->lease_ms))
        explain(batch, turn, DLOCK_EINVAL,
                "a lease on memcached is longer than 0, at most ten years, and ends before 2038-01-19");
    else
        return true;
    return false;
}

int64_t memcached_quarantine_left_us(const struct memcached *memcached) {
    return memcached->quarantine_until_us ? memcached->quarantine_until_us - dlock_now_us() : 0;
}

/* True while the quarantine lasts, with an answer. */
static bool quarantined(struct batch *batch, struct turn *turn) {
    int64_t left_us = memcached_quarantine_left_us(batch->memcached);
    char why[160];
    if (left_us <= 0) return false;
    turn->claim->retry_ms = left_us / 1000 + 1;
    snprintf(why, sizeof why,
             "memcached was started a short while ago and may have forgotten grants: nothing is granted for another "
             "%" PRId64 " ms (quarantine)",
             turn->claim->retry_ms);
    explain(batch, turn, DLOCK_EBUSY, why);
    return true;
}

/* Whether the id in the claim's state is one of the server at the other end of this connection. */
static bool id_is_known(const struct memcached *memcached, const struct dlock_claim *claim) {
    return claim->state[STATE_CAS] != 0 && claim->state[STATE_SEEN_US] >= (uint64_t)memcached->connected_us &&
           strncmp(claim->token, memcached->peer->client, strlen(memcached->peer->client)) == 0;
}

static void begin(struct batch *batch, struct turn *turn, struct dlock_claim *claim) {
    memset(turn, 0, sizeof *turn);
    turn->claim = claim;
    turn->step = batch->operation == ACQUIRE ? ADD : LOOK;
    if (!acceptable(batch, turn) || (batch->operation == ACQUIRE && quarantined(batch, turn))) return;
    if (batch->operation != ACQUIRE && id_is_known(batch->memcached, claim)) swap_known(turn);
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

static int run_batch(struct memcached *memcached, enum operation operation, struct dlock_claim *const *claims, size_t n,
                     int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct batch batch;
    int rc = 0;
    if (operation != RELEASE && memcached_clock_is_stale(&memcached->clock, dlock_now_us()))
        rc = ask_time(memcached, deadline_us, err);
    batch.memcached = memcached;
    batch.operation = operation;
    batch.deadline_us = deadline_us;
    batch.explained = false;
    batch.err = err;
    for (size_t done = 0; done < n && rc == 0; done += batch.n) {
        batch.n = n - done < FLIGHT_MAX ? n - done : FLIGHT_MAX;
        for (size_t i = 0; i < batch.n; i++) begin(&batch, &batch.turns[i], claims[done + i]);
        rc = run(&batch);
    }
    return rc;
}

int memcached_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return run_batch(conn, ACQUIRE, claims, n, timeout_ms, err);
}

int memcached_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_batch(conn, RENEW, claims, n, timeout_ms, err);
}

int memcached_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return run_batch(conn, RELEASE, claims, n, timeout_ms, err);
}
