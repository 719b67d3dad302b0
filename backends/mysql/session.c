/* mode=session: a lock is a user lock of the server (GET_LOCK), which ends with the session. A connection carries one
 * claim. A waiter leaves a request with the server, whose queue is first come, first served. The server limits the
 * length of such names and ignores their case, so they are hashes of the locks' names. */
#include "maria.h"

/* A lock held for less than this is released without checking whether the session has ended. */
#define FRESH_US 1000

/* The longest wait_timeout that the server takes, in seconds. */
#define IDLE_MAX_S 31536000

/* How long an acquire waits for the answer to a request that may stay with the server. */
#define AT_ONCE_US 1000

/* How long such a request waits, in seconds: for ever. */
#define WAIT_S 31536000

/* Interval at which a session that was told to end is looked for. */
#define LOOK_US 2000

/* Rows in the table of fences, which are shared by all names. */
#define SLOTS 64

static bool acceptable(struct dlock_claim *claim, struct dlock_error *err) {
    size_t length = strlen(claim->name);
    if (claim->mode != DLOCK_EXCLUSIVE)
        claim->result = dlock_fail(err, DLOCK_ENOTSUP, "MySQL has neither shared locks nor permits");
    else if (length == 0 || length > MARIA_NAME_MAX)
        claim->result = dlock_fail(err, DLOCK_EINVAL, "a name has 1 to %d bytes", MARIA_NAME_MAX);
    else
        return true;
    return false;
}

/* True if the key of this lock is known, from the answer to its last acquire. */
static bool knows_key(const struct maria *maria, const char *name) {
    return *maria->session.key && strcmp(maria->session.key_name, name) == 0;
}

/* Adds the key of a lock. User locks belong to the whole server, so the database is part of the hash. The key of the
 * last lock is known from the answer to its acquire, since a connection often acquires the same lock again. */
static void say_key(struct maria *maria, const char *name) {
    if (knows_key(maria, name)) {
        maria_say(maria, "'%s'", maria->session.key);
        return;
    }
    maria_say(maria, "SHA2(CONCAT(CAST(DATABASE() AS BINARY), x'00', ");
    maria_say_bytes(maria, name, strlen(name));
    maria_say(maria, "), 256)");
}

/* Stores the key. It becomes part of statements, so it has to be hex digits only. */
static int learn_key(struct maria *maria, const struct maria_value *value, const char *name, struct dlock_error *err) {
    char key[MARIA_KEY + 1];
    if (!maria_bytes(value, MARIA_KEY, key, sizeof key) || strspn(key, "0123456789abcdef") != MARIA_KEY)
        return maria_nonsense(maria, "the key of a lock", err);
    memcpy(maria->session.key, key, sizeof key);
    snprintf(maria->session.key_name, sizeof maria->session.key_name, "%s", name);
    return 0;
}

enum { FENCE, PROOF, KEY = PROOF + 2 };

/* Makes the acquire return the proof, and the key if it is not known yet. */
static void ask_for_more(struct maria *maria, const char *name) {
    maria_say(maria, ", ");
    maria_say_proof(maria);
    if (knows_key(maria, name)) return;
    maria_say(maria, ", ");
    say_key(maria, name);
}

/* Says the id of the session that has the lock; 0: none. */
static void say_holder(struct maria *maria, const char *name) {
    maria_say(maria, "IFNULL(IS_USED_LOCK(");
    say_key(maria, name);
    maria_say(maria, "), 0)");
}

/* Reads that id from the first answer. */
static int read_holder(struct maria *maria, int64_t *id, struct dlock_error *err) {
    const struct maria_value *row = maria_row(maria, 0, 1);
    return row && maria_number(&row[0], id) ? 0 : maria_nonsense(maria, "the answer to IS_USED_LOCK", err);
}

static int holder(struct maria *maria, const char *name, int64_t *id, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    maria_say(maria, "SELECT ");
    say_holder(maria, name);
    int rc = maria_ask(maria, deadline_us, err);
    return rc == 0 ? read_holder(maria, id, err) : rc;
}

static int64_t idle_s(const struct dlock_claim *claim) {
    int64_t s = (claim->lease_ms + 999) / 1000;
    return s < 1 ? 1 : s > IDLE_MAX_S ? IDLE_MAX_S : s;
}

/* Sets wait_timeout, which ends a silent session, to the lease. Comes first in the text; returns how many results it
 * adds. */
static size_t say_lease(struct maria *maria, int64_t seconds) {
    if (maria->session.idle_s == seconds) return 0;
    maria->session.idle_s = seconds;
    maria_say(maria, "SET SESSION wait_timeout = %lld; ", (long long)seconds);
    return 1;
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

/* Drawing from a sequence does not lock it, and it is written once in 1000 numbers. A crash may forget numbers, but not
 * beyond the clock: each connection sets the sequence to the server's clock first. A statement that waits must not name
 * the sequence: it would hold up FLUSH TABLES WITH READ LOCK, and so backups. */
static size_t say_sequence(struct maria *maria, const char *name, int wait_s) {
    size_t before = 0;
    if (maria->session.clock_us) {
        maria_say(maria, "DO SETVAL(dlock_fence_sequence, %lld); ", (long long)maria->session.clock_us);
        before++;
    }
    maria_say(maria, wait_s ? "SET @dlock = GET_LOCK(" : "SELECT IF(GET_LOCK(");
    say_key(maria, name);
    maria_say(maria, wait_s ? ", %d); SELECT IF(@dlock = 1" : ", %d) = 1", wait_s);
    maria_say(maria, ", NEXTVAL(dlock_fence_sequence), 0)");
    ask_for_more(maria, name);
    return before + (wait_s ? 1 : 0);
}

/* Without sequences: a session that has got its lock increments a row, which is flushed. */
static size_t say_table(struct maria *maria, const char *name, int wait_s) {
    unsigned slot = (unsigned)(dlock_hash(name, strlen(name), DLOCK_HASH_SEED) % SLOTS);
    maria_say(maria, "SET @dlock = GET_LOCK(");
    say_key(maria, name);
    maria_say(maria,
              ", %d); INSERT INTO dlock_fences (slot, fence) SELECT %u, " MARIA_NOW_US " FROM DUAL WHERE @dlock = 1 "
              "ON DUPLICATE KEY UPDATE fence = GREATEST(fence + 1, VALUES(fence)); "
              "SELECT IF(@dlock = 1, (SELECT fence FROM dlock_fences WHERE slot = %u), 0)",
              wait_s, slot, slot);
    ask_for_more(maria, name);
    return 2;
}

/* Answers a claim in the quarantine: a restart has ended all sessions, but a promotion ends none here. */
static int look(struct maria *maria, struct dlock_claim *claim, int64_t left_ms, int64_t deadline_us,
                struct dlock_error *err) {
    int64_t id;
    int rc = holder(maria, claim->name, &id, deadline_us, err);
    if (rc != 0) return rc;
    claim->result = id ? DLOCK_EBUSY : DLOCK_ENOTREADY;
    if (!id) claim->ready_ms = left_ms;
    return 0;
}

/* Reads the answer to GET_LOCK; *fence is 0 when the lock is taken. */
static int read_take(struct maria *maria, const char *name, int64_t *fence, struct dlock_error *err) {
    const size_t at = maria->session.at;
    const struct maria_value *row = maria_row(maria, at, KEY);
    if (!row || maria->n_answers != at + 1 || !maria_number(&row[FENCE], fence) || *fence >= MARIA_FENCE_END)
        return maria_nonsense(maria, "the answer to GET_LOCK", err);
    int rc = maria_proved(maria, &row[PROOF], err);
    if (rc == 0 && maria->answers[at].columns > KEY)
        rc = knows_key(maria, name) ? maria_nonsense(maria, "a key that was not asked for", err)
                                    : learn_key(maria, &row[KEY], name, err);
    if (rc != 0) return rc;
    maria->session.clock_us = 0;
    maria->session.fence = (uint64_t)*fence;
    maria->session.granted_us = dlock_now_us();
    return 0;
}

/* Asks for the lock. With wait_s the answer may stay out: then the claim is busy, and a wake-up brings it. */
static int take(struct maria *maria, struct dlock_claim *claim, int wait_s, int64_t deadline_us,
                struct dlock_error *err) {
    int64_t fence;
    int rc = maria_settle(maria, deadline_us, err);
    if (rc != 0) return rc;
    const int64_t left_ms = maria_quarantine_left_ms(maria);
    if (left_ms) return look(maria, claim, left_ms, deadline_us, err);
    maria_begin(maria);
    maria->session.at = say_lease(maria, idle_s(claim));
    maria->session.at += (maria->has_sequence ? say_sequence : say_table)(maria, claim->name, wait_s);
    rc = maria_ask(maria, wait_s ? dlock_now_us() + AT_ONCE_US : deadline_us, err);
    maria->session.waits = wait_s && rc == DLOCK_EUNAVAILABLE && maria_is_late(maria);
    if (maria->session.waits) {
        claim->result = DLOCK_EBUSY;
        claim->retry_ms = DLOCK_FOREVER;
        return 0;
    }
    if (rc == 0) rc = read_take(maria, claim->name, &fence, err);
    if (rc != 0) return rc;
    claim->fence = (uint64_t)fence;
    claim->result = fence ? 0 : DLOCK_EBUSY;
    return 0;
}

/* ---- renew and release ------------------------------------------------------------------------------------------- */

/* Reads the late answer to an earlier request, if there is one, before the next request is sent. */
static int catch_up(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    int rc = maria->session.owed ? maria_catch_up(maria, deadline_us, err) : 0;
    if (rc == 0) maria->session.owed = false;
    return rc;
}

/* Checks that the session still has its lock, and restarts the lease. */
static int prove(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    int64_t has = 0;
    size_t at = 0;
    int rc = catch_up(maria, deadline_us, err);
    if (rc == 0) {
        maria_begin(maria);
        at = say_lease(maria, idle_s(claim));
        maria_say(maria, "SELECT IFNULL(IS_USED_LOCK(");
        say_key(maria, claim->name);
        maria_say(maria, ") = CONNECTION_ID(), 0), ");
        maria_say_proof(maria);
        rc = maria_ask(maria, deadline_us, err);
    }
    if (rc == DLOCK_EUNAVAILABLE && maria_is_late(maria)) { /* late is not lost: the session may live */
        maria->session.owed = true;
        claim->result = DLOCK_EUNAVAILABLE;
        return 0;
    }
    if (rc != 0) return rc;
    const struct maria_value *row = maria_row(maria, at, KEY);
    if (!row || !maria_number(&row[0], &has)) return maria_nonsense(maria, "the answer to IS_USED_LOCK", err);
    if ((rc = maria_proved(maria, &row[PROOF], err)) != 0) return rc;
    claim->result = has ? 0 : DLOCK_ELOST;
    if (!has) maria->session.fence = 0;
    return 0;
}

/* True if the server has ended the session: it sends nothing else unasked. */
static bool has_ended(const struct maria *maria) {
    return dlock_wait_fd((int)mysql_get_socket(maria->link), POLLIN, 0) != 0;
}

int maria_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    const struct maria *maria = conn;
    (void)timeout_ms;
    (void)err;
    *fd = maria->fd - 1;
    return 0;
}

/* Reads the answer to a waiting request. Its age is unknown, so the core asks again, which proves the grant. Otherwise
 * the input may be the late answer to a renewal, which can be dropped, since the next renewal asks the same. */
int maria_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct maria *maria = conn;
    if (!maria->session.waits && !maria->session.owed)
        return has_ended(maria) ? maria_dead(maria, "the server has ended this session", err) : 0;
    int64_t fence;
    int rc = maria_catch_up(maria, 0, err);
    if (rc != 0 && maria_is_late(maria)) return 0;
    const bool waited = maria->session.waits;
    maria->session.waits = maria->session.owed = false;
    if (rc != 0 || !waited) return rc != 0 ? DLOCK_EUNAVAILABLE : 0;
    rc = read_take(maria, maria->session.key_name, &fence, err);
    if (rc != 0 || !fence) return DLOCK_EUNAVAILABLE;
    out->kind = DLOCK_WAKE_GRANTED;
    return 1;
}

/* Releases the user lock. DO returns no rows. */
static int unlock(struct maria *maria, const char *name, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    maria_say(maria, "DO RELEASE_LOCK(");
    say_key(maria, name);
    maria_say(maria, ")");
    return maria_ask(maria, deadline_us, err);
}

/* Releases the lock. If the session answers, it had the lock: only the session itself or its end can take that away. */
static int give_back(struct maria *maria, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    int rc = unlock(maria, claim->name, deadline_us, err);
    if (rc != 0) return rc;
    maria->session.fence = 0;
    claim->result = 0;
    return 0;
}

/* ---- operations: one claim for each connection ------------------------------------------------------------------- */

int maria_session_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                          struct dlock_error *err) {
    struct maria *maria = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    (void)n;
    if (!acceptable(claims[0], err)) return 0;
    int rc = 0;
    if (maria->session.fence && !knows_key(maria, claims[0]->name))
        return maria_dead(maria, "it still holds another lock", err);
    if (maria->session.fence) { /* it has the lock, or had it */
        claims[0]->fence = maria->session.fence;
        rc = prove(maria, claims[0], deadline_us, err);
        if (rc != 0 || claims[0]->result != DLOCK_ELOST) return rc;
    }
    /* The first request does not wait: a free lock costs one statement, whose answer has the key, or says why the server
     * refuses. */
    rc = take(maria, claims[0], 0, deadline_us, err);
    if (rc == 0 && claims[0]->result == DLOCK_EBUSY && claims[0]->flags & DLOCK_CLAIM_QUEUE)
        rc = take(maria, claims[0], WAIT_S, deadline_us, err);
    bool empty = maria_lacks_row(maria);
    if (rc == 0 || !(empty || maria_lacks_objects(maria))) return rc;
    maria->session.idle_s =
        0; /* which statements were executed is unknown: GET_LOCK may have been, and its calls are counted */
    rc = unlock(maria, claims[0]->name, deadline_us, err);
    if (rc == 0) rc = (empty ? maria_replace_sequence : maria_make_objects)(maria, deadline_us, err);
    return rc == 0 ? take(maria, claims[0], 0, deadline_us, err) : rc;
}

int maria_session_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    struct maria *maria = conn;
    (void)n;
    claims[0]->result = DLOCK_ELOST;
    return maria->session.fence ? prove(maria, claims[0], dlock_deadline_us(timeout_ms), err) : 0;
}

int maria_session_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                          struct dlock_error *err) {
    struct maria *maria = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    (void)n;
    claims[0]->result = DLOCK_ELOST;
    if (maria->session.waits) /* the end of its connection takes it out of the queue, which the server sees soon */
        return maria_dead(maria, "a waiting request was given up", err);
    if (!maria->session.fence) return 0;
    int rc = catch_up(maria, deadline_us, err);
    if (rc != 0) return rc;
    if (dlock_now_us() - maria->session.granted_us > FRESH_US && has_ended(maria)) return 0;
    return give_back(maria, claims[0], deadline_us, err);
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

int maria_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    enum { NO_SUCH_SESSION = 1094 };
    struct maria *maria = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms), id = 0, now = 0;
    maria_begin(maria);
    maria_say(maria, "SELECT ");
    say_holder(maria, name);
    /* The server looks the session up in the statement that ends it: an id from an earlier answer may by now be that of a
     * session that has released this lock and holds another one. */
    maria_say(maria, "; KILL CONNECTION ");
    say_holder(maria, name);
    int rc = maria_ask(maria, deadline_us, err);
    if (rc == 0 || maria->error == NO_SUCH_SESSION) rc = read_holder(maria, &id, err);
    if (rc != 0) return rc;
    if (id == 0) return dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
    for (;;) {
        rc = holder(maria, name, &now, deadline_us, err);
        if (rc != 0 || now != id) return rc;
        if (dlock_now_us() + LOOK_US >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE,
                              "the holder's session was told to end, and has not ended in time");
        usleep(LOOK_US);
    }
}
