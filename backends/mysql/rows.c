/* A lock is a row: one packet of two statements acquires it, one statement releases it. Where others want it: queue.c. */
#include "maria.h"

enum { NAME, TOKEN, FENCE, CLOCK, LEFT, PROOF, COLUMNS = PROOF + 2 };

/* Refuses claims that cannot be a row. */
static bool acceptable(struct dlock_claim *claim, struct dlock_error *err) {
    size_t length = strlen(claim->name);
    if (claim->mode != DLOCK_EXCLUSIVE) {
        claim->result = dlock_fail(err, DLOCK_ENOTSUP, "MySQL has neither shared locks nor permits");
        return false;
    }
    if (length > 0 && length <= MARIA_NAME_MAX) return true;
    claim->result = dlock_fail(err, DLOCK_EINVAL, "a name has 1 to %d bytes", MARIA_NAME_MAX);
    return false;
}

/* True if another client is likely to have this name, or to wait for it. */
static bool is_wanted(const struct maria *maria, const struct dlock_claim *claim) {
    return strcmp(claim->name, maria->wanted) == 0;
}

static void note_wanted(struct maria *maria, const struct dlock_claim *claim, bool wanted) {
    if (wanted)
        strcpy(maria->wanted, claim->name); /* acceptable() has checked its length */
    else if (is_wanted(maria, claim))
        *maria->wanted = '\0';
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

/* One request of an acquire. */
struct request {
    int64_t left_ms;  /* of the quarantine, in which the rows are only looked at */
    int64_t asked_us; /* by the local clock */
    int64_t late_us;  /* when the caller stops waiting for the answer, by the server's clock */
};

static void say_claimed_rows(struct maria *maria, struct dlock_claim *const *claims, size_t n) {
    maria_say(maria, "SELECT name, token, fence, " MARIA_NOW_US ", until_us > " MARIA_NOW_US ", ");
    maria_say_proof(maria);
    maria_say(maria, " FROM dlock_locks WHERE name IN (");
    for (size_t i = 0; i < n; i++) {
        if (i) maria_say(maria, ", ");
        maria_say_bytes(maria, claims[i]->name, strlen(claims[i]->name));
    }
    maria_say(maria, ")");
}

/* Writes the two statements. A row becomes the grant of the statement's token if it already was, or if it was free;
 * else it stays as it is, and so does a free row that others wait for. Assignments are made from left to right and see
 * the results of earlier ones: the fence depends on the old token, the end of the lease on the new one. VALUES(fence) is
 * the server's clock. VALUES(until_us) is 0 if the server executes the request too late, for example after a stop:
 * otherwise the grant would last for a lease without a holder. */
static void say_acquire(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t late_us) {
    maria_begin(maria);
    maria_say(maria, "INSERT INTO dlock_locks (name, token, fence, until_us) VALUES ");
    for (size_t i = 0; i < n; i++) {
        maria_say(maria, i ? ", (" : "(");
        maria_say_name_and_token(maria, claims[i], ", ");
        maria_say(maria, ", " MARIA_NOW_US ", IF(" MARIA_NOW_US " < %lld, " MARIA_LEASE_US ", 0))", (long long)late_us,
                  (long long)claims[i]->lease_ms);
    }
    maria_say(maria,
              " ON DUPLICATE KEY UPDATE "
              "fence = IF(token = VALUES(token) OR (token <> '' AND until_us > VALUES(fence)), fence, "
              "GREATEST(fence + 1, VALUES(fence))), "
              "token = IF((token = '' OR until_us <= VALUES(fence)) AND until_us & 2 = 0, VALUES(token), token), "
              "until_us = IF(token = VALUES(token) AND VALUES(until_us) > 0, VALUES(until_us) + (until_us & 2), "
              "until_us); ");
    say_claimed_rows(maria, claims, n);
    maria_say(maria, " ORDER BY name");
}

/* In the quarantine nothing is written: the rows show the holders of the grants that survived. */
static void say_look(struct maria *maria, struct dlock_claim *const *claims, size_t n) {
    maria_begin(maria);
    say_claimed_rows(maria, claims, n);
    maria_say(maria, " AND token <> '' AND until_us > " MARIA_NOW_US " ORDER BY name");
}

/* Judges and remembers the server's clock at the time of its answer. */
static int read_clock(struct maria *maria, const struct maria_value *value, const struct request *request,
                      struct dlock_error *err) {
    int64_t now_us;
    if (!maria_number(value, &now_us)) return maria_nonsense(maria, "the time of its clock", err);
    if (now_us >= request->late_us) return maria_dead(maria, "its answer was late, or its clock was set forward", err);
    maria->ahead_us = now_us - request->asked_us;
    maria->clock_at_us = request->asked_us;
    return 0;
}

/* Reads the rows, which come in the order of the claims. A row that is missing after an acquire was deleted between the
 * two statements; in the quarantine a missing row means a free lock. */
static int read_rows(struct maria *maria, struct dlock_claim *const *claims, size_t n, const struct request *request,
                     struct dlock_error *err) {
    const bool asks_only = request->left_ms > 0;
    const size_t last = asks_only ? 0 : 1;
    char name[MARIA_NAME_MAX + 1], token[256];
    int64_t fence, is_held;
    size_t at = 0;
    if (maria->n_answers != last + 1 || !maria->answers[last].columns)
        return maria_nonsense(maria, "the results of an acquire", err);
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = asks_only ? DLOCK_ENOTREADY : DLOCK_EBUSY;
        claims[i]->ready_ms = asks_only ? request->left_ms : -1;
    }
    for (const struct maria_value *row; (row = maria_row(maria, last, COLUMNS)); at++) {
        if (!maria_bytes(&row[NAME], 1, name, sizeof name) || !maria_bytes(&row[TOKEN], 0, token, sizeof token) ||
            !maria_number(&row[FENCE], &fence) || !maria_number(&row[LEFT], &is_held) || fence <= 0 ||
            fence >= MARIA_FENCE_END)
            return maria_nonsense(maria, "a row about a lock", err);
        int rc = read_clock(maria, &row[CLOCK], request, err);
        if (rc == 0) rc = maria_proved(maria, &row[PROOF], err);
        if (rc != 0) return rc;
        while (at < n && strcmp(claims[at]->name, name) < 0) at++;
        if (at == n || strcmp(claims[at]->name, name) != 0)
            return maria_nonsense(maria, "a row about another lock", err);
        claims[at]->fence = (uint64_t)fence; /* the holder's, if that is another one */
        claims[at]->result = !asks_only && strcmp(token, claims[at]->token) == 0 ? 0 : DLOCK_EBUSY;
        if (!asks_only) note_wanted(maria, claims[at], claims[at]->result == DLOCK_EBUSY);
        if (claims[at]->result == DLOCK_EBUSY && !(*token && is_held))
            claims[at]->retry_ms = 0; /* others wait for it */
        if (claims[at]->result == DLOCK_EBUSY && n == 1 && *token) dlock_held_by(err, token);
    }
    return 0;
}

static int take_all(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t deadline_us,
                    struct dlock_error *err) {
    const struct request request = {.left_ms = maria_quarantine_left_ms(maria),
                                    .asked_us = dlock_now_us(),
                                    .late_us = deadline_us + maria->ahead_us};
    if (request.left_ms)
        say_look(maria, claims, n);
    else
        say_acquire(maria, claims, n, request.late_us);
    int rc = maria_call(maria, deadline_us, err);
    return rc == 0 ? read_rows(maria, claims, n, &request, err) : rc;
}

/* Joins the queue for a claim that is busy, or hands over a row that others wait for. */
static int wait(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    int rc = maria_wait_in_line(maria, claim, deadline_us, err);
    return rc == 1 ? take_all(maria, &claim, 1, deadline_us, err) : rc;
}

static int try_acquire(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t deadline_us,
                       struct dlock_error *err) {
    int rc = maria_settle(maria, deadline_us, err);
    if (rc != 0) return rc;
    const bool settled = !maria_quarantine_left_ms(maria);
    struct dlock_claim *first = claims[0];
    if (n == 1 && settled && first->flags & DLOCK_CLAIM_QUEUE &&
        (first->state[MARIA_QUEUED] || is_wanted(maria, first)))
        return wait(maria, first, deadline_us, err);
    rc = take_all(maria, claims, n, deadline_us, err);
    for (size_t i = 0; i < n && rc == 0 && settled; i++) {
        const bool waits = claims[i]->flags & DLOCK_CLAIM_QUEUE || claims[i]->retry_ms == 0;
        if (claims[i]->result == DLOCK_EBUSY && waits) rc = wait(maria, claims[i], deadline_us, err);
    }
    return rc;
}

static int acquire(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t deadline_us,
                   struct dlock_error *err) {
    int rc = try_acquire(maria, claims, n, deadline_us, err);
    if (rc == 0 || !maria_lacks_objects(maria)) return rc;
    rc = maria_make_objects(maria, deadline_us, err);
    return rc == 0 ? try_acquire(maria, claims, n, deadline_us, err) : rc;
}

int maria_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct dlock_claim *batch[MARIA_BATCH];
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    size_t used = 0;
    bool refused = false;
    for (size_t i = 0; i < n; i++) {
        if (acceptable(claims[i], refused ? NULL : err))
            batch[used++] = claims[i];
        else
            refused = true;
        if (used == 0 || (used < MARIA_BATCH && i + 1 < n)) continue;
        struct dlock_error why;
        int rc = acquire(conn, batch, used, deadline_us, &why);
        if (rc != 0 && err) *err = why;
        if (rc != 0) return rc;
        used = 0;
    }
    return 0;
}

/* ---- renew and release ------------------------------------------------------------------------------------------- */

/* Sends one statement for each claim. Several are one transaction, and so need one flush only. */
static int change(struct maria *maria, void (*say)(struct maria *maria, const struct dlock_claim *claim),
                  struct dlock_claim *const *claims, size_t n, bool proves, int64_t deadline_us,
                  struct dlock_error *err) {
    size_t first = n > 1 ? 1 : 0, last = n + 2 * first;
    maria_begin(maria);
    if (n > 1) maria_say(maria, "START TRANSACTION");
    for (size_t i = 0; i < n; i++) {
        if (maria->used) maria_say(maria, "; ");
        say(maria, claims[i]);
    }
    if (n > 1) maria_say(maria, "; COMMIT");
    if (proves) {
        maria_say(maria, "; SELECT ");
        maria_say_proof(maria);
    }
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    const struct maria_value *row = proves ? maria_row(maria, last, 2) : NULL;
    if (maria->n_answers != last + proves || (proves && !row))
        return maria_nonsense(maria, "the results of a change", err);
    if (row && (rc = maria_proved(maria, row, err)) != 0) return rc;
    for (size_t i = 0; i < n; i++) claims[i]->result = maria->answers[first + i].affected == 1 ? 0 : DLOCK_ELOST;
    return 0;
}

/* Two comparisons instead of "(name, token) = (…)", for which MariaDB 10.11 reads the whole table. */
static void say_renew(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria,
              "UPDATE dlock_locks SET until_us = " MARIA_LEASE_US " + (until_us & 2) WHERE until_us > " MARIA_NOW_US
              " AND name = ",
              (long long)claim->lease_ms);
    maria_say_name_and_token(maria, claim, " AND token = ");
}

/* A renewal also asks for the proof that the server is still the primary, which a release does not need. */
static int renew(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t deadline_us,
                 struct dlock_error *err) {
    int rc = maria_settle(maria, deadline_us, err);
    return rc == 0 ? change(maria, say_renew, claims, n, true, deadline_us, err) : rc;
}

/* For a lock that nobody waits for. */
static void say_free(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria, "UPDATE dlock_locks SET token = '', until_us = " MARIA_NOW_US
                     " DIV 4 * 4 WHERE until_us > " MARIA_NOW_US " AND until_us & 2 = 0 AND name = ");
    maria_say_name_and_token(maria, claim, " AND token = ");
}

static int release(struct maria *maria, struct dlock_claim *const *claims, size_t n, int64_t deadline_us,
                   struct dlock_error *err) {
    uint64_t ears[MARIA_BATCH];
    int rc = 0;
    claims[0]->result = DLOCK_ELOST;
    if (n == 1 && !claims[0]->state[MARIA_MET]) rc = change(maria, say_free, claims, 1, false, deadline_us, err);
    if (rc != 0 || (n == 1 && claims[0]->result == 0)) return rc;
    if (n > 1 || !claims[0]->state[MARIA_QUEUED])
        rc = change(maria, maria_say_hand_over_of, claims, n, false, deadline_us, err);
    if (rc != 0) return rc;
    for (size_t i = 0; i < n; i++)
        ears[i] = claims[i]->result == 0 ? maria->answers[(n > 1) + i].id : 0; /* the next request forgets them */
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (claims[i]->result == 0) {
            note_wanted(maria, claims[i], ears[i] != 0);
            maria_wake_ear(maria, ears[i], deadline_us);
        } else if (n == 1 || claims[i]->state[MARIA_QUEUED]) {
            rc = maria_leave_line(maria, claims[i], deadline_us, err);
        }
    }
    return rc;
}

static int change_all(struct maria *maria,
                      int (*change_some)(struct maria *, struct dlock_claim *const *, size_t, int64_t,
                                         struct dlock_error *),
                      struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = 0;
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_ELOST;
    for (size_t i = 0; i < n && rc == 0; i += MARIA_BATCH)
        rc = change_some(maria, claims + i, n - i < MARIA_BATCH ? n - i : MARIA_BATCH, deadline_us, err);
    return rc != 0 && maria_lacks_objects(maria) ? 0 : rc; /* without the table there is no grant */
}

int maria_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return change_all(conn, renew, claims, n, timeout_ms, err);
}

int maria_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return change_all(conn, release, claims, n, timeout_ms, err);
}
