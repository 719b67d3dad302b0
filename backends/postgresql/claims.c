/* Acquire, renew and release, each with one statement per batch. */
#include "postgresql.h"

/* A hundred years: the server can add this to any clock without overflow. */
#define MAX_LEASE_MS INT64_C(3155760000000)
/* Most claims in one statement. */
#define CHUNK 256

enum operation { ACQUIRE, RENEW, RELEASE };

/* Index in claim->state: 1 if the claim was in the queue when it asked last. */
enum { STATE_QUEUED };

/* Columns of acquire()'s rows; a row of take has the first three. */
enum { GRANTED = 1, SERVER_US, IN_USE, PLACE, LEFT_MS, NOTICES };
/* Column of the rows of renew() and release(); a row of give has those before it. */
enum { OTHERS_NOTICES = 2 };

/* The claims of one statement. A claim that is refused here is answered at once and left out. */
struct batch {
    struct pg *pg;
    struct dlock_claim *claims[CHUNK];
    size_t n;
    bool explained; /* `err` already describes a refused claim */
    struct dlock_error *err;
};

static int64_t lease_of(const struct dlock_claim *claim) {
    return claim->lease_ms > MAX_LEASE_MS ? MAX_LEASE_MS : claim->lease_ms;
}

static bool refuse(struct batch *batch, struct dlock_claim *claim, int result, const char *why) {
    claim->result = result;
    if (!batch->explained) dlock_fail(batch->err, result, "%s", why);
    batch->explained = true;
    return false;
}

static bool acceptable(struct batch *batch, struct dlock_claim *claim, enum operation operation) {
    size_t name = strlen(claim->name), token = strlen(claim->token);
    if (operation == ACQUIRE && claim->mode == DLOCK_PERMIT && (claim->limit == 0 || claim->limit > INT32_MAX))
        return refuse(batch, claim, DLOCK_EINVAL, "the limit of permits is 1 to 2147483647");
    if (name == 0 || name > PG_NAME_MAX || token == 0 || token > DLOCK_TOKEN_MAX)
        return refuse(batch, claim, DLOCK_EINVAL, "a name has 1 to 255 bytes and a token 1 to 127");
    if (claim->lease_ms <= 0 && operation != RELEASE)
        return refuse(batch, claim, DLOCK_EINVAL, "a lease must be longer than 0");
    return true;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* True if another client is likely to have this name, or to wait for it. */
static bool is_wanted(const struct pg *pg, const struct dlock_claim *claim) {
    return strcmp(claim->name, pg->wanted) == 0;
}

static void note_wanted(struct pg *pg, const struct dlock_claim *claim, bool wanted) {
    if (wanted)
        strcpy(pg->wanted, claim->name); /* acceptable() has checked its length */
    else if (is_wanted(pg, claim))
        *pg->wanted = '\0';
}

/* True if a claim should join the queue without trying first. */
static bool will_wait(const struct pg *pg, const struct dlock_claim *claim) {
    return claim->flags & DLOCK_CLAIM_QUEUE && !claim->state[STATE_QUEUED] && is_wanted(pg, claim);
}

/* Returns the flags that acquire() takes. Without LISTEN there are none, since the client could not be notified. */
static int32_t flags_of(const struct pg *pg, const struct dlock_claim *claim) {
    if (pg->listen == PG_LISTEN_OFF) return 0;
    return (claim->flags & DLOCK_CLAIM_QUEUE ? 1 : 0) | (claim->flags & DLOCK_CLAIM_LINGER ? 2 : 0) |
           (will_wait(pg, claim) ? 4 : 0);
}

/* True if the server need not say whether there is a quarantine. A session stays with one server, and a server's history
 * does not change in a session that may write. Behind a pooler every request may reach another server. */
static bool is_settled(const struct pg *pg) {
    return pg->peer->quarantine_ms <= 0 || (pg->settled && pg->listen != PG_LISTEN_OFF);
}

static void write_batch(struct pg *pg, const struct batch *batch, enum operation operation) {
    struct pg_arguments *arguments = &pg->arguments;
    pg_begin(arguments);
    pg_add_array(arguments, PG_BYTEA, batch->n);
    for (size_t i = 0; i < batch->n; i++)
        pg_item_bytes(arguments, batch->claims[i]->name, strlen(batch->claims[i]->name));
    pg_add_array(arguments, PG_TEXT, batch->n);
    for (size_t i = 0; i < batch->n; i++)
        pg_item_bytes(arguments, batch->claims[i]->token, strlen(batch->claims[i]->token));
    if (operation != RELEASE) {
        pg_add_array(arguments, PG_INT8, batch->n);
        for (size_t i = 0; i < batch->n; i++) pg_item_int8(arguments, lease_of(batch->claims[i]));
    }
    if (operation != RELEASE) {
        pg_add_array(arguments, PG_INT4, batch->n);
        for (size_t i = 0; i < batch->n; i++) pg_item_int4(arguments, batch->claims[i]->mode);
    }
    if (operation == ACQUIRE) {
        pg_add_array(arguments, PG_INT4, batch->n);
        for (size_t i = 0; i < batch->n; i++)
            pg_item_int4(arguments, batch->claims[i]->mode == DLOCK_PERMIT ? (int32_t)batch->claims[i]->limit : 0);
        pg_add_array(arguments, PG_INT4, batch->n);
        for (size_t i = 0; i < batch->n; i++) pg_item_int4(arguments, flags_of(pg, batch->claims[i]));
        pg_add_int8(arguments, is_settled(pg) ? 0 : pg->peer->quarantine_ms);
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Refuses a claim that cannot succeed while the name is in use: as permits instead of a lock or the reverse, or with
 * another limit. */
static void explain_use(struct batch *batch, struct dlock_claim *claim, int32_t limit) {
    char use[32] = "a lock", why[DLOCK_NAME_MAX * 2];
    if (limit > 0) snprintf(use, sizeof use, "%d permit%s", limit, limit == 1 ? "" : "s");
    snprintf(why, sizeof why, "\"%.*s\" is in use as %s", PG_NAME_MAX, claim->name, use);
    refuse(batch, claim, DLOCK_EINVAL, why);
}

static bool read_quarantine(const struct pg *pg, int64_t left_ms, struct dlock_claim *claim) {
    claim->ready_ms = left_ms < pg->peer->quarantine_ms ? left_ms : pg->peer->quarantine_ms;
    claim->state[STATE_QUEUED] = false;
    claim->result = DLOCK_ENOTREADY;
    return !is_settled(pg);
}

static bool read_acquire(const PGresult *rows, int row, struct batch *batch, struct dlock_claim *claim) {
    int64_t fence, server_us, left_ms;
    int32_t place = -1, limit;
    if (!pg_read_int8(rows, row, GRANTED, &fence) || !pg_read_int8(rows, row, SERVER_US, &server_us) ||
        fence <= -PG_FENCE_END || fence >= PG_FENCE_END || server_us <= 0)
        return false;
    claim->server_us = server_us;
    pg_note_clock(batch->pg, server_us);
    if (fence < 0) return read_quarantine(batch->pg, -fence, claim);
    batch->pg->settled = true;
    if (fence > 0) {
        claim->fence = (uint64_t)fence;
        claim->kept_ms = lease_of(claim);
        claim->result = 0;
        claim->state[STATE_QUEUED] = false;
        note_wanted(batch->pg, claim, false);
        return true;
    }
    if (!PQgetisnull(rows, row, IN_USE)) {
        if (!pg_read_int4(rows, row, IN_USE, &limit) || limit < 0) return false;
        explain_use(batch, claim, limit);
        return true;
    }
    if (!pg_read_int8(rows, row, LEFT_MS, &left_ms)) return false;
    if (!PQgetisnull(rows, row, PLACE) && (!pg_read_int4(rows, row, PLACE, &place) || place < 0)) return false;
    if (place >= 0) claim->retry_ms = dlock_queue_retry_ms(place, left_ms < 0 ? 0 : left_ms, lease_of(claim));
    claim->state[STATE_QUEUED] = place >= 0;
    note_wanted(batch->pg, claim, true);
    claim->result = DLOCK_EBUSY;
    return true;
}

static bool read_renew(const PGresult *rows, int row, struct batch *batch, struct dlock_claim *claim) {
    (void)batch;
    int64_t server_us;
    claim->result = DLOCK_ELOST;
    if (PQgetisnull(rows, row, 1)) return true;
    if (!pg_read_int8(rows, row, 1, &server_us) || server_us <= 0) return false;
    claim->server_us = server_us;
    claim->kept_ms = lease_of(claim);
    claim->result = 0;
    return true;
}

static bool read_release(const PGresult *rows, int row, struct batch *batch, struct dlock_claim *claim) {
    (void)batch;
    bool ended;
    if (!pg_read_bool(rows, row, 1, &ended)) return false;
    claim->result = ended ? 0 : DLOCK_ELOST;
    return true;
}

static int read_batch(struct pg *pg, const PGresult *rows, struct batch *batch, enum operation operation,
                      struct dlock_error *err) {
    static bool (*const read[])(const PGresult *, int, struct batch *, struct dlock_claim *) = {
        [ACQUIRE] = read_acquire, [RENEW] = read_renew, [RELEASE] = read_release};
    bool seen[CHUNK] = {false};
    bool fits = PQntuples(rows) == (int)batch->n;
    for (int row = 0; fits && row < (int)batch->n; row++) {
        int32_t at;
        fits = pg_read_int4(rows, row, 0, &at) && at >= 1 && (size_t)at <= batch->n && !seen[at - 1];
        if (!fits) break;
        seen[at - 1] = true;
        fits = read[operation](rows, row, batch, batch->claims[at - 1]);
    }
    return fits ? 0 : pg_nonsense(pg, "rows about claims", err);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* True if one statement without a function may do: for one exclusive lock that no other client is likely to want, in a
 * session whose settings are ours. */
static bool may_be_short(const struct batch *batch, enum operation operation) {
    const struct dlock_claim *claim = batch->claims[0];
    return batch->n == 1 && operation != RENEW && (operation == RELEASE || is_settled(batch->pg)) &&
           claim->mode == DLOCK_EXCLUSIVE && !claim->state[STATE_QUEUED] && batch->pg->listen != PG_LISTEN_OFF &&
           !is_wanted(batch->pg, claim);
}

/* Stores in *done whether the short way was enough. If not, nothing has changed. */
static int run_short(struct batch *batch, enum operation operation, bool *done, int64_t deadline_us,
                     struct dlock_error *err) {
    struct pg_arguments *arguments = &batch->pg->arguments;
    struct dlock_claim *claim = batch->claims[0];
    PGresult *rows;
    pg_begin(arguments);
    pg_add_bytes(arguments, claim->name, strlen(claim->name));
    pg_add_bytes(arguments, claim->token, strlen(claim->token));
    if (operation == ACQUIRE) {
        pg_add_int8(arguments, lease_of(claim));
        pg_add_int4(arguments, flags_of(batch->pg, claim));
    }
    int rc = pg_call(batch->pg, operation == ACQUIRE ? PG_TAKE : PG_GIVE, deadline_us, &rows, err);
    if (rc != 0) return rc;
    *done = rows && PQntuples(rows) > 0;
    if (*done) rc = read_batch(batch->pg, rows, batch, operation, err);
    if (!*done) note_wanted(batch->pg, claim, true);
    PQclear(rows);
    return rc;
}

static int run(struct pg *pg, struct batch *batch, enum operation operation, int64_t deadline_us,
               struct dlock_error *err) {
    static const enum pg_call calls[] = {[ACQUIRE] = PG_ACQUIRE, [RENEW] = PG_RENEW, [RELEASE] = PG_RELEASE};
    PGresult *rows;
    bool done = false;
    int rc = may_be_short(batch, operation) ? run_short(batch, operation, &done, deadline_us, err) : 0;
    if (rc != 0 || done) return rc;
    write_batch(pg, batch, operation);
    rc = pg_call(pg, calls[operation], deadline_us, &rows, err);
    if (rc != 0) return rc;
    if (!rows) { /* the schema does not exist, so no claim has a grant */
        for (size_t i = 0; i < batch->n; i++) batch->claims[i]->result = DLOCK_ELOST;
        return 0;
    }
    rc = read_batch(pg, rows, batch, operation, err);
    if (rc == 0) pg_tell(pg, rows, operation == ACQUIRE ? NOTICES : OTHERS_NOTICES, deadline_us);
    PQclear(rows);
    return rc;
}

static int run_all(void *conn, struct dlock_claim *const *claims, size_t n, enum operation operation, int timeout_ms,
                   struct dlock_error *err) {
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct batch batch;
    batch.pg = conn;
    batch.n = 0;
    batch.explained = false;
    batch.err = err;
    for (size_t i = 0; i < n; i++) {
        if (acceptable(&batch, claims[i], operation)) batch.claims[batch.n++] = claims[i];
        if (batch.n < CHUNK && i + 1 < n) continue;
        if (batch.n == 0) return 0;
        int rc = run(conn, &batch, operation, deadline_us, err);
        if (rc != 0) return rc;
        batch.n = 0;
    }
    return 0;
}

int pg_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_all(conn, claims, n, ACQUIRE, timeout_ms, err);
}

int pg_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_all(conn, claims, n, RENEW, timeout_ms, err);
}

int pg_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return run_all(conn, claims, n, RELEASE, timeout_ms, err);
}
