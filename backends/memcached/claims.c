/* Claims: acquire, renew and release, each for a batch in one round trip unless other clients interfere.
 *
 * A grant is an item: its key is the name, its value the token. `add` makes it (on newer servers see requests.c), `cas`
 * with the item's id (or a meta set) renews it, `md` with that id (or a `cas` that lets it expire at once) ends it. The
 * id changes with every store, so a cas never changes another item than the one that was compared. An id is used
 * without reading the item first only if the server has certainly not been restarted since (a restart resets its ids):
 * that is, if this client has seen the id on this connection. */
#include "batch.h"

/* memcached takes times up to 2038-01-19. */
#define MAX_EXPIRY_S INT32_MAX
#define MAX_LEASE_MS (INT64_C(10) * 366 * 24 * 3600 * 1000)

/* Most flights of a batch. A claim that meets another client's change in each of them fails. */
#define MAX_FLIGHTS 16

/* ---- flights ----------------------------------------------------------------------------------------------------- */

static bool has_new_lease(const struct turn *turn) {
    return turn->step == DONE && turn->claim->result == 0;
}

/* Returns a turn of this flight that stores, so that the end of its item is known; NULL: none, or it is not asked
 * for. */
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

/* Reads the server's time: from the remaining time of the timed item, if that is the one which this flight stored, else
 * from `stats`. *time_s stays 0 if no lease depends on it. */
static int read_clock(struct batch *batch, uint64_t *time_s) {
    struct memcached *memcached = batch->memcached;
    const struct turn *timed = batch->timed;
    if (timed) {
        int64_t left_s = -1;
        const uint64_t cas = has_new_lease(timed) ? timed->claim->state[STATE_CAS] : 0;
        int rc = memcached->meta->read_ttl(memcached, cas, batch->deadline_us, &left_s, batch->err);
        if (rc || !has_new_leases(batch)) return rc;
        *time_s = (uint64_t)(batch->timed_end_s - left_s);
        if (left_s >= 0 && memcached_time_makes_sense(*time_s)) return 0;
        memcached_ask_stats(memcached);
    }
    int rc = memcached_read_time(memcached, batch->deadline_us, time_s, batch->err);
    memcached->tells_ttl = memcached->meta != NULL;
    return rc;
}

/* Reads the clock at the end of a flight. If that shows that the leases of this flight were set to end too early, sets
 * them again in the next flight. */
static int read_time(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    uint64_t time_s = 0;
    int rc = read_clock(batch, &time_s);
    if (rc || time_s == 0 || !memcached_clock_read(&memcached->clock, batch->sent_us, time_s)) return rc;
    for (size_t i = 0; i < batch->n_flight; i++) {
        struct turn *turn = &batch->turns[batch->flight[i]];
        if (!has_new_lease(turn)) continue;
        memcached_turn_swap_known(turn);
        if (!turn->claim->state[STATE_ALONE]) turn->step = SHARED;
    }
    return 0;
}

/* Writes request `i` of a flight; after the turns' requests comes the one for the time. */
static void write_request(struct memcached *memcached, size_t i, void *arg) {
    const struct batch *batch = arg;
    char key[MEMCACHED_KEY_MAX + 1];
    if (i < batch->n_flight) {
        memcached_turn_write(memcached, batch, &batch->turns[batch->flight[i]]);
    } else if (batch->timed) {
        memcached_key(key, batch->timed->claim->name);
        memcached->meta->ask_ttl(memcached, key);
    } else {
        memcached_ask_stats(memcached);
    }
}

/* Sends one flight, a round trip for every claim that is not done, and reads the replies. */
static int fly(struct batch *batch) {
    struct memcached *memcached = batch->memcached;
    struct memcached_requests requests = {batch->n_flight, 0, write_request, batch};
    int rc = 0;
    batch->sent_us = dlock_now_us();
    const bool asks_time =
        batch->operation != MEMCACHED_RELEASE && memcached_clock_is_due(&memcached->clock, batch->sent_us);
    if (asks_time) {
        requests.count++;
        batch->timed = find_timed(batch);
        if (batch->timed) batch->timed_end_s = memcached_turn_expiry_s(batch, batch->timed);
    }
    memcached_write(memcached, &requests);
    for (size_t i = 0; i < batch->n_flight && rc == 0; i++)
        rc = memcached_turn_read(batch, &batch->turns[batch->flight[i]]);
    if (asks_time && rc == 0) rc = read_time(batch);
    memcached_write(memcached, NULL);
    return rc;
}

static int fly_all(struct batch *batch) {
    for (int flights = 0;; flights++) {
        int rc;
        batch->n_flight = 0;
        for (size_t i = 0; i < batch->n; i++)
            if (batch->turns[i].step != DONE && batch->turns[i].step != SHARED) batch->flight[batch->n_flight++] = i;
        if (batch->n_flight == 0) return 0;
        if (flights == MAX_FLIGHTS)
            return memcached_dead(batch->memcached, "an item changed between every read and write", batch->err);
        if ((rc = fly(batch)) != 0) return rc;
    }
}

/* Returns the number of turns, starting with `i`, that share a name, so that one change of one item can do them all. */
static size_t next_shared(const struct batch *batch, size_t i) {
    size_t n = 1;
    while (batch->operation != MEMCACHED_ACQUIRE && i + n < batch->n && batch->turns[i + n].step == SHARED &&
           strcmp(batch->claims[i + n]->name, batch->claims[i]->name) == 0)
        n++;
    return n;
}

static int run(struct batch *batch) {
    int rc = fly_all(batch);
    for (size_t i = 0, n; i < batch->n && rc == 0; i += n) {
        char why[MEMCACHED_WHY_MAX];
        n = 1;
        if (batch->turns[i].step != SHARED) continue;
        n = next_shared(batch, i);
        rc = memcached_shared(batch->memcached, batch->operation, &batch->claims[i], n, batch->deadline_us, why,
                              batch->err);
        if (rc == 0) memcached_turn_conclude(batch, &batch->turns[i], batch->claims[i]->result, why);
    }
    return rc;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static bool lease_fits(const struct memcached *memcached, int64_t lease_ms) {
    return lease_ms > 0 && lease_ms <= MAX_LEASE_MS &&
           memcached_expiry_s(&memcached->clock, dlock_now_us(), lease_ms) < MAX_EXPIRY_S;
}

/* Checks a claim's values. False: they are wrong, and the claim's result says so. */
static bool acceptable(struct batch *batch, struct turn *turn) {
    const struct dlock_claim *claim = turn->claim;
    size_t name = strlen(claim->name), token = strlen(claim->token);
    if (claim->mode != DLOCK_EXCLUSIVE && claim->mode != DLOCK_SHARED && claim->mode != DLOCK_PERMIT)
        memcached_turn_conclude(batch, turn, DLOCK_ENOTSUP, "the memcached backend does not know this mode");
    else if ((claim->mode == DLOCK_PERMIT) != (claim->limit > 0))
        memcached_turn_conclude(batch, turn, DLOCK_EINVAL, "permits need a limit, and only permits have one");
    else if (name == 0 || name > MEMCACHED_NAME_MAX || token == 0 || token > DLOCK_TOKEN_MAX)
        memcached_turn_conclude(batch, turn, DLOCK_EINVAL, "a name has 1 to 255 bytes and a token 1 to 127");
    else if (batch->operation != MEMCACHED_RELEASE && !lease_fits(batch->memcached, claim->lease_ms))
        memcached_turn_conclude(
            batch, turn, DLOCK_EINVAL,
            "a lease on memcached must be longer than 0 and at most ten years, and must end before 2038-01-19");
    else
        return true;
    return false;
}

/* True if the batch has several grants of this name, which are renewed or released in one change. */
static bool has_company(const struct batch *batch, size_t i) {
    const char *name = batch->claims[i]->name;
    return (i > 0 && strcmp(batch->claims[i - 1]->name, name) == 0) ||
           (i + 1 < batch->n && strcmp(batch->claims[i + 1]->name, name) == 0);
}

static void begin(struct batch *batch, size_t i) {
    struct turn *turn = &batch->turns[i];
    struct dlock_claim *claim = batch->claims[i];
    memset(turn, 0, sizeof *turn);
    turn->claim = claim;
    if (batch->operation == MEMCACHED_ACQUIRE)
        turn->step = claim->state[STATE_ALONE] == STATE_MET ? LOOK : ADD;
    else
        turn->step = claim->mode != DLOCK_EXCLUSIVE ? SHARED : LOOK;
    if (!acceptable(batch, turn)) return;
    if (batch->operation == MEMCACHED_ACQUIRE && memcached_quarantined(batch->memcached, claim)) {
        memcached_turn_conclude(batch, turn, DLOCK_ENOTREADY, "");
        return;
    }
    if (batch->operation != MEMCACHED_ACQUIRE && memcached_id_is_known(batch->memcached, claim) &&
        !has_company(batch, i))
        memcached_turn_swap_known(turn);
}

/* Reads the clock before anything else, because the last reading is stale. */
static int ask_time(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    const int64_t sent_us = dlock_now_us();
    uint64_t time_s = 0;
    int rc;
    memcached_ask_stats(memcached);
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
