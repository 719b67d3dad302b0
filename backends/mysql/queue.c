/* The queue: a row of dlock_claims for each waiter, in the order of their tickets. A waiter counts if it has asked within
 * the time of a hand-over, and while its client's listener has the user lock of the client. The statement that ends a
 * grant hands the lock to the first such waiter: the row then has the waiter's token, for a short time, and KILL QUERY
 * wakes the listener. The row is the truth: a wake-up that is lost costs only a question later. */
#include "maria.h"

/* What an UPDATE tells by its LAST_INSERT_ID: a fence, or one of these and a number. */
#define TOLD_EAR (INT64_C(1) << 61)  /* handed over: the id of the session to wake */
#define TOLD_LEFT (INT64_C(1) << 62) /* held: how long its lease still runs, in µs */

/* For how long a waiter is taken as alive after it has asked, and when its row may be deleted: its listener may be about
 * to come back. */
#define ALIVE_US (DLOCK_HAND_OVER_MS * 1000)
#define FORGOTTEN_US 60000000

/* For how long the difference between the server's clock and the local one is taken as known. */
#define KNOWN_US 60000000

#define FREE "(token = '' OR until_us <= " MARIA_NOW_US ")"
/* The session that listens for a token's client; NULL: none does. */
#define EAR_OF(token) "IS_USED_LOCK(CONCAT('" MARIA_EAR "', LEFT(" token ", 24)))"
#define EAR EAR_OF("token")

/* The first waiter for a row of dlock_locks other than the token in it. Its columns make it depend on the row, and so
 * it is read after the row has been locked: a waiter that came before that is seen, and one that comes later sees the
 * row as it is then. */
#define NEXT                                                                                                    \
    "(SELECT c.token FROM dlock_claims c WHERE c.name = dlock_locks.name AND c.token <> dlock_locks.token AND " \
    "c.until_us > " MARIA_NOW_US " AND " EAR_OF("c.token") " IS NOT NULL ORDER BY c.ticket LIMIT 1)"

static void say_name(struct maria *maria, const struct dlock_claim *claim) {
    maria_say_bytes(maria, claim->name, strlen(claim->name));
}

static void say_token(struct maria *maria, const struct dlock_claim *claim) {
    maria_say_bytes(maria, claim->token, strlen(claim->token));
}

static void say_mine(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria, " WHERE name = ");
    maria_say_name_and_token(maria, claim, " AND token = ");
}

void maria_say_hand_over(struct maria *maria) {
    maria_say(maria,
              "UPDATE dlock_locks SET token = COALESCE(" NEXT ", ''), "
              "fence = IF(token = '', fence, GREATEST(fence + 1, " MARIA_NOW_US ")), "
              "until_us = IF(LAST_INSERT_ID(IF(token = '', 0, IFNULL(" EAR ", 0))) IS NULL, 0, "
              "IF(token = '', " MARIA_NOW_US " DIV 4 * 4, " MARIA_LEASE_US " + 3)) "
              "WHERE token <> '' AND until_us > " MARIA_NOW_US " AND name = ",
              (long long)DLOCK_HAND_OVER_MS);
}

void maria_say_hand_over_of(struct maria *maria, const struct dlock_claim *claim) {
    maria_say_hand_over(maria);
    maria_say_name_and_token(maria, claim, " AND token = ");
}

/* The session may have ended since: then its client asks anyway. That of another user may be out of reach. Any other
 * error ends the connection at its next request. */
void maria_wake_ear(struct maria *maria, uint64_t session, int64_t deadline_us) {
    struct dlock_error err;
    if (session == 0 || maria->step != MARIA_IDLE) return;
    maria_begin(maria);
    maria_say(maria, "KILL QUERY %llu", (unsigned long long)session);
    maria_ask(maria, deadline_us, &err);
}

/* ---- joining, asking and leaving --------------------------------------------------------------------------------- */

/* Adds a waiter, or notes that it has asked. */
static void say_join(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria, "INSERT INTO dlock_claims (name, token, since_us, until_us) VALUES (");
    maria_say_name_and_token(maria, claim, ", ");
    maria_say(maria, ", " MARIA_NOW_US ", " MARIA_NOW_US " + %d) ON DUPLICATE KEY UPDATE until_us = VALUES(until_us)",
              ALIVE_US);
}

/* Writes the question: a row that is free becomes that of the first waiter, or of this token if there is no other.
 * Assignments are made from left to right: the end of the lease depends on the new token, and is in the past only if
 * the row was free. */
static void say_ask(struct maria *maria, const struct dlock_claim *claim, int64_t late_us) {
    maria_say(maria, "UPDATE dlock_locks SET fence = IF(" FREE " AND token <> ");
    say_token(maria, claim);
    maria_say(maria, ", GREATEST(fence + 1, " MARIA_NOW_US "), fence), token = IF(" FREE " AND token <> ");
    say_token(maria, claim);
    maria_say(maria, ", COALESCE(" NEXT ", ");
    say_token(maria, claim);
    maria_say(maria, "), token), until_us = IF(LAST_INSERT_ID(CASE WHEN token = ");
    say_token(maria, claim);
    maria_say(maria,
              " THEN fence WHEN until_us <= " MARIA_NOW_US " THEN %lld + IFNULL(" EAR ", 0) "
              "ELSE %lld + until_us - " MARIA_NOW_US " END) IS NULL, 0, CASE WHEN token = ",
              (long long)TOLD_EAR, (long long)TOLD_LEFT);
    say_token(maria, claim);
    maria_say(maria,
              " THEN " MARIA_LEASE_US " + (until_us & 2) WHEN until_us <= " MARIA_NOW_US " THEN " MARIA_LEASE_US
              " + 3 ELSE until_us | 2 END) WHERE name = ",
              (long long)claim->lease_ms, (long long)DLOCK_HAND_OVER_MS);
    say_name(maria, claim);
    maria_say(maria, " AND " MARIA_NOW_US " < %lld AND @@GLOBAL.read_only = 0", (long long)late_us);
}

/* A waiter that has the lock leaves the queue. */
static void say_served(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria, "DELETE FROM dlock_claims");
    say_mine(maria, claim);
    maria_say(maria, " AND EXISTS (SELECT 1 FROM dlock_locks");
    say_mine(maria, claim);
    maria_say(maria, ")");
}

/* Deletes some rows of waiters that have died. */
static void say_sweep(struct maria *maria) {
    maria_say(maria, "DELETE FROM dlock_claims WHERE until_us < " MARIA_NOW_US " - %d AND " EAR " IS NULL LIMIT 100; ",
              FORGOTTEN_US);
}

static int read_told(struct maria *maria, struct dlock_claim *claim, uint64_t told, uint64_t *ear,
                     struct dlock_error *err) {
    claim->result = DLOCK_EBUSY;
    *ear = 0;
    if (told > 0 && told < (uint64_t)MARIA_FENCE_END) {
        claim->fence = told;
        claim->result = 0;
    } else if (told >= (uint64_t)TOLD_LEFT && told < 2 * (uint64_t)TOLD_LEFT) {
        claim->retry_ms = dlock_queue_retry_ms(0, (int64_t)(told - (uint64_t)TOLD_LEFT) / 1000, claim->lease_ms);
    } else if (told >= (uint64_t)TOLD_EAR && told < (uint64_t)TOLD_LEFT) {
        *ear = told - (uint64_t)TOLD_EAR;
        claim->retry_ms = dlock_queue_retry_ms(0, DLOCK_HAND_OVER_MS, claim->lease_ms);
    } else {
        return maria_nonsense(maria, "the answer to a waiter", err);
    }
    return 0;
}

/* Most time between two questions of a waiter, and while a hand-over is not confirmed: each looks whether its receiver
 * has died. */
#define MOST_MS 1000
#define SOON_MS 300

/* Ends a hand-over that its receiver has not confirmed, and has no listener to be woken for. */
static void say_retract(struct maria *maria, const struct dlock_claim *claim) {
    maria_say(maria, "UPDATE dlock_locks SET until_us = " MARIA_NOW_US " DIV 4 * 4 + 2 WHERE name = ");
    say_name(maria, claim);
    maria_say(maria, " AND token <> ");
    say_token(maria, claim);
    maria_say(maria, " AND until_us > " MARIA_NOW_US " AND until_us %% 2 = 1 AND EXISTS (SELECT 1 FROM dlock_claims c "
                     "WHERE c.name = dlock_locks.name AND c.token = dlock_locks.token) AND " EAR " IS NULL");
}

/* Notes that a waiter is alive, or puts it back if its row was forgotten, and sees whether the server could wake its
 * client. */
static int stay(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    say_join(maria, claim);
    maria_say(maria, "; ");
    say_retract(maria, claim);
    maria_say(maria,
              "; SELECT IS_USED_LOCK('" MARIA_EAR "%s'), (SELECT until_us > " MARIA_NOW_US
              " AND until_us %% 2 = 1 FROM dlock_locks WHERE name = ",
              maria->peer->client);
    say_name(maria, claim);
    maria_say(maria, ")");
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    const struct maria_value *row = maria_row(maria, 2, 2);
    if (!row) return maria_nonsense(maria, "who listens", err);
    if (!row[0].bytes) claim->hints |= DLOCK_HINT_UNHEARD;
    if (row[1].bytes && *row[1].bytes == '1') claim->retry_ms = SOON_MS;
    if (maria->answers[1].affected) claim->retry_ms = 0;
    return 0;
}

int maria_wait_in_line(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    const bool queues = claim->flags & DLOCK_CLAIM_QUEUE, stays = claim->state[MARIA_QUEUED];
    const bool joins = queues && !stays, sweeps = joins && maria->swept++ % 16 == 0;
    const int64_t asked_us = dlock_now_us();
    const bool proves = maria->peer->quarantine_ms > 0 || asked_us > maria->clock_at_us + KNOWN_US;
    const size_t asked = joins + sweeps, served = asked + stays, last = served + proves;
    uint64_t ear;
    maria_begin(maria);
    if (sweeps) say_sweep(maria);
    if (joins) say_join(maria, claim);
    if (joins) maria_say(maria, "; ");
    say_ask(maria, claim, deadline_us + maria->ahead_us);
    if (served > asked) maria_say(maria, "; ");
    if (served > asked) say_served(maria, claim);
    if (proves) maria_say(maria, "; SELECT " MARIA_NOW_US ", ");
    if (proves) maria_say_proof(maria);
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    if (maria->n_answers != last + 1) return maria_nonsense(maria, "the results for a waiter", err);
    if (proves) {
        int64_t now_us;
        const struct maria_value *row = maria_row(maria, last, 3);
        if (!row || !maria_number(&row[0], &now_us)) return maria_nonsense(maria, "the time of its clock", err);
        if ((rc = maria_proved(maria, &row[1], err)) != 0) return rc;
        maria->ahead_us = now_us - asked_us;
        maria->clock_at_us = asked_us;
    }
    if (queues) claim->state[MARIA_QUEUED] = claim->state[MARIA_MET] = 1;
    if (maria->answers[asked].affected != 1) return 1;
    if ((rc = read_told(maria, claim, maria->answers[asked].id, &ear, err)) != 0) return rc;
    maria_wake_ear(maria, ear, deadline_us);
    if (claim->result == 0 && claim->state[MARIA_QUEUED] && !stays) {
        maria_begin(maria);
        say_served(maria, claim);
        rc = maria_call(maria, deadline_us, err);
    }
    if (claim->result == 0) {
        claim->state[MARIA_QUEUED] = 0;
        return rc;
    }
    if (claim->retry_ms > MOST_MS) claim->retry_ms = MOST_MS;
    return queues && stays ? stay(maria, claim, deadline_us, err) : 0;
}

int maria_leave_line(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    maria_say(maria, "DELETE FROM dlock_claims");
    say_mine(maria, claim);
    maria_say(maria, "; ");
    maria_say_hand_over_of(maria, claim);
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    if (maria->n_answers != 2) return maria_nonsense(maria, "the results of a release", err);
    claim->state[MARIA_QUEUED] = 0;
    claim->result = maria->answers[1].affected == 1 ? 0 : DLOCK_ELOST;
    maria_wake_ear(maria, maria->answers[1].affected == 1 ? maria->answers[1].id : 0, deadline_us);
    return 0;
}

/* ---- the listener ------------------------------------------------------------------------------------------------ */

/* How long a listener sleeps before it sleeps again, so that the server notices the end of its client, and for how long
 * the server keeps one that does not. */
#define SLEEP_MS 800

/* A sleep whose end was read this much later may have hidden a wake-up. */
#define OVERDUE_US 100000

#define SILENT_S 60

/* How long a listener waits for the end of the one before it. */
#define PATIENCE_S 2

enum { INTERRUPTED = 1317 };

/* Leaves the statement with the server; maria_wake() reads its answer. Sets *woken if a wake-up was faster. */
static int sleep_on(struct maria *maria, bool *woken, struct dlock_error *err) {
    struct dlock_error why;
    for (;;) {
        maria_begin(maria);
        maria_say(maria, "SELECT SLEEP(0.%d)", SLEEP_MS);
        maria->slept_us = dlock_now_us();
        int rc = maria_ask(maria, maria->slept_us, &why);
        if (rc == DLOCK_EUNAVAILABLE && maria_is_late(maria)) return 0;
        if (rc != 0 && maria->error != INTERRUPTED) {
            if (err) *err = why;
            return rc;
        }
        *woken = true;
    }
}

int maria_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    struct maria *maria = conn;
    int64_t is_mine = 0;
    bool woken;
    maria_begin(maria);
    maria_say(maria, "SET SESSION wait_timeout = %d; SELECT IFNULL(GET_LOCK('" MARIA_EAR "%s', %d), 0)", SILENT_S,
              maria->peer->client, PATIENCE_S);
    int rc = maria_ask(maria, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return rc;
    const struct maria_value *row = maria_row(maria, 1, 1);
    if (!row || !maria_number(&row[0], &is_mine)) return maria_nonsense(maria, "the answer to GET_LOCK", err);
    if (!is_mine) return maria_dead(maria, "another session listens for this client", err);
    if ((rc = sleep_on(maria, &woken, err)) != 0) return rc;
    *fd = maria->fd - 1;
    return 0;
}

/* The end of the sleep is a sign of life, and its interruption a wake-up. The next one begins before the client asks:
 * what happens after that interrupts it. */
int maria_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct maria *maria = conn;
    struct dlock_error why;
    int64_t ended_by = 0;
    if (maria->step == MARIA_IDLE) return maria_dead(maria, "the server has ended this session", err);
    int rc = maria_catch_up(maria, 0, &why);
    if (rc != 0 && maria_is_late(maria)) return 0;
    if (rc != 0 && maria->error != INTERRUPTED) {
        if (err) *err = why;
        return rc == DLOCK_EPROTO ? rc : DLOCK_EUNAVAILABLE;
    }
    const struct maria_value *row = rc == 0 ? maria_row(maria, 0, 1) : NULL;
    if (rc == 0 && (!row || !maria_number(&row[0], &ended_by))) return maria_nonsense(maria, "the end of a sleep", err);
    bool woken = rc != 0 || ended_by || dlock_now_us() - maria->slept_us > SLEEP_MS * 1000 + OVERDUE_US;
    rc = sleep_on(maria, &woken, err);
    out->kind = woken ? DLOCK_WAKE_LOOK : DLOCK_WAKE_HEARD;
    return rc != 0 ? rc : 1;
}

/* The next end of a sleep is the answer. */
int maria_probe(void *conn, struct dlock_error *err) {
    (void)conn;
    (void)err;
    return 0;
}
