/* mode=session: a lock is a session-level advisory lock; schema/session_intro.sql explains it. A connection carries one
 * claim. A waiter leaves a request with the server, which answers when the lock is granted. */
#include "postgresql.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* How long an acquire waits for the answer to PG_WAIT before it reports EBUSY: a free lock is granted within this time. */
#define AT_ONCE_US 1000

/* A lock held for less than this is released without checking whether the session has ended. An end would hardly show
 * yet, since the server gives up the lock first and closes the connection after that; then the release gets the
 * error. */
#define FRESH_US 1000

/* Most consecutive reads of unsolicited data. A session that receives more is considered ended. */
#define UNASKED_MAX 100

/* A waiting request is cancelled at most CANCELS times, after pauses that begin with CANCEL_US and double. */
#define CANCELS 4
#define CANCEL_US INT64_C(8000)

/* Longest tcp_keepalives_idle that TCP accepts, and the time that it then needs to give up; in seconds. */
#define IDLE_MAX_S 32000
#define GIVING_UP_S 3

enum { FENCE, SERVER_US };

static bool acceptable(const struct dlock_claim *claim, struct dlock_error *err) {
    size_t name = strlen(claim->name);
    if (claim->mode == DLOCK_PERMIT) return dlock_fail(err, DLOCK_ENOTSUP, "mode=session has no permits") == 0;
    return name > 0 && name <= PG_NAME_MAX ? true : dlock_fail(err, DLOCK_EINVAL, "a name has 1 to 255 bytes") == 0;
}

static int64_t kept_ms(const struct dlock_claim *claim) {
    return claim->lease_ms < IDLE_MAX_S * INT64_C(1000) ? claim->lease_ms : IDLE_MAX_S * INT64_C(1000);
}

/* Sets TCP's timeouts at the server so that it does not give up a silent client and end its session before the lease
 * ends. */
static int be_patient(struct pg *pg, const struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    int64_t idle_s = (kept_ms(claim) + 999) / 1000;
    char sql[400];
    PGresult *result;
    if (idle_s <= pg->session.idle_s) return 0;
    snprintf(sql, sizeof sql,
             "SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, false)) FROM (VALUES "
             "('tcp_keepalives_idle', '%lld'), "
             "('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '%d'), ('tcp_user_timeout', '%lld')) "
             "s(name, value) WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL",
             (long long)idle_s, GIVING_UP_S, (long long)(idle_s + GIVING_UP_S) * 1000);
    int rc = pg_query(pg, sql, deadline_us, &result, err);
    if (rc != 0) return rc;
    if (PQresultStatus(result) == PGRES_TUPLES_OK)
        pg->session.idle_s = idle_s;
    else
        rc = pg_refused(pg, result, err);
    PQclear(result);
    return rc;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* Adds the setting that holds the lease, and its value. Servers before version 14 get a custom setting without effect:
 * there a session lasts as long as its connection. */
static void add_lease(struct pg *pg, int64_t ms) {
    const char *setting = PQserverVersion(pg->link) >= 140000 ? "idle_session_timeout" : "dlock.lease";
    char value[24];
    int length = snprintf(value, sizeof value, "%lld", (long long)ms);
    pg_add_bytes(&pg->arguments, setting, strlen(setting));
    pg_add_bytes(&pg->arguments, value, (size_t)length);
}

/* Adds the key of the name. The last key is kept, since a connection often acquires the same lock again. */
static void add_key(struct pg *pg, const char *name) {
    if (strcmp(pg->session.key_name, name) != 0) {
        if (!pg_key(pg->schema, name, &pg->session.key)) {
            pg->arguments.failed = true;
            return;
        }
        snprintf(pg->session.key_name, sizeof pg->session.key_name, "%s", name);
    }
    pg_add_int8(&pg->arguments, pg->session.key);
}

/* Writes the arguments of a request for a lock and returns the call, which also sets the lease if it differs from the
 * session's. */
static enum pg_call ask_for(struct pg *pg, const struct dlock_claim *claim, enum pg_call call) {
    int64_t ms = kept_ms(claim);
    if (claim->mode == DLOCK_SHARED) call += PG_WAIT_SHARED - PG_WAIT;
    pg_begin(&pg->arguments);
    add_key(pg, claim->name);
    pg_add_bytes(&pg->arguments, pg->session.drawn ? "\0" : "\1", 1);
    if (pg->session.lease_ms == ms) return call;
    add_lease(pg, ms);
    return call + (PG_WAIT_LEASE - PG_WAIT);
}

/* Reads the answer to PG_TRY or PG_WAIT; *fence is 0 when the lock is taken. */
static int read_take(struct pg *pg, const PGresult *rows, int64_t *fence, int64_t *server_us, struct dlock_error *err) {
    *fence = 0;
    bool fits = PQntuples(rows) == 1 && PQnfields(rows) > SERVER_US && pg_read_time(rows, 0, SERVER_US, server_us) &&
                *server_us > 0 && (PQgetisnull(rows, 0, FENCE) || pg_read_int8(rows, 0, FENCE, fence)) && *fence >= 0 &&
                *fence < PG_FENCE_END;
    return fits ? 0 : pg_nonsense(pg, "a row about a lock", err);
}

static void granted(struct pg *pg, int64_t fence, bool shared) {
    pg->session.fence = (uint64_t)fence;
    pg->session.drawn = true;
    pg->session.shared = shared;
    pg->session.granted_us = dlock_now_us();
}

/* Returns the code for an error in place of a grant. A lack of rights is final, and so is an error raised by an event
 * trigger; other errors may not recur on a new connection, which for example creates objects that have been dropped. */
static int refused_wait(const struct pg *pg, const PGresult *result, struct dlock_error *err) {
    int rc = pg_refused(pg, result, err);
    if (rc == DLOCK_EAUTH || pg_state_is(pg_state(result), "P0001")) return rc;
    if (err) err->code = DLOCK_EUNAVAILABLE;
    return DLOCK_EUNAVAILABLE;
}

/* Asks for a fence again after PG_WAIT has ended with 55P03. Only the drawing of a first fence has a lock_timeout, and
 * that begins when the session has the lock, which it keeps after an error. To give the lock up would cost the place in
 * the queue, whenever a mover of the sequence waits for a standby. */
static int draw_again(struct pg *pg, struct dlock_error *err) {
    pg_begin(&pg->arguments);
    add_lease(pg, pg->session.kept_ms); /* the error has undone it */
    int rc = pg_post(pg, PG_DRAW, dlock_now_us(), err);
    pg->session.waits = rc == 0;
    return rc;
}

/* Reads what has arrived of the answer to PG_WAIT or PG_DRAW: 1 when the lock is granted, 0 when the answer is
 * incomplete. */
static int read_wait(struct pg *pg, int64_t *fence, int64_t *server_us, struct dlock_error *err) {
    PGresult *rows;
    int rc = pg_posted(pg, &rows, err);
    if (rc != 0 || !rows) return rc;
    pg->session.waits = false;
    if (PQresultStatus(rows) == PGRES_TUPLES_OK) {
        rc = read_take(pg, rows, fence, server_us, err);
    } else if (pg_state_is(pg_state(rows), "55P03")) {
        PQclear(rows);
        return draw_again(pg, err);
    } else { /* it may have come after the lock was granted: the caller ends the session, so that nothing is held */
        rc = refused_wait(pg, rows, err);
    }
    PQclear(rows);
    if (rc == 0 && *fence == 0) rc = pg_nonsense(pg, "no fence", err);
    if (rc != 0) return rc;
    pg->session.lease_ms = pg->session.kept_ms;
    granted(pg, *fence, pg->session.waits_shared);
    return 1;
}

/* Sends a request that the server answers when the lock is granted, and waits a short time for that. */
static int take_or_wait(struct pg *pg, struct dlock_claim *claim, int64_t deadline_us, int64_t *fence,
                        struct dlock_error *err) {
    pg->session.kept_ms = claim->kept_ms = kept_ms(claim);
    int rc = pg_post(pg, ask_for(pg, claim, PG_WAIT), deadline_us, err);
    if (rc != 0) return rc;
    pg->session.waits = true;
    pg->session.waits_shared = claim->mode == DLOCK_SHARED;
    claim->retry_ms = DLOCK_FOREVER;
    *fence = 0;
    int64_t until_us = dlock_now_us() + AT_ONCE_US;
    do rc = pg_wait(pg, until_us) ? read_wait(pg, fence, &claim->server_us, err) : 0;
    while (rc == 0 && dlock_now_us() < until_us);
    return rc < 0 ? rc : 0;
}

static int take(struct pg *pg, struct dlock_claim *claim, int64_t deadline_us, int64_t *fence,
                struct dlock_error *err) {
    PGresult *rows;
    int rc = pg_call(pg, ask_for(pg, claim, PG_TRY), deadline_us, &rows, err);
    if (rc != 0) return rc;
    rc = read_take(pg, rows, fence, &claim->server_us, err);
    PQclear(rows);
    claim->kept_ms = kept_ms(claim);
    if (rc != 0) return rc;
    pg->session.lease_ms = claim->kept_ms;
    pg->session.tried = true;
    if (*fence) granted(pg, *fence, claim->mode == DLOCK_SHARED);
    return 0;
}

/* Reads the late answer to an earlier request, if there is one, before the next request is sent. */
static int catch_up(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    int rc = pg->session.owed ? pg_catch_up(pg, deadline_us, err) : 0;
    if (rc == 0) pg->session.owed = false;
    return rc;
}

/* Checks that the session is still alive. Restarts the lease, and downgrades an exclusive lock if the claim is
 * SHARED. */
static int prove(struct pg *pg, struct dlock_claim *claim, int64_t deadline_us, struct dlock_error *err) {
    bool downgrade = claim->mode == DLOCK_SHARED && !pg->session.shared;
    PGresult *rows;
    int rc = catch_up(pg, deadline_us, err);
    if (rc == 0) rc = be_patient(pg, claim, deadline_us, err);
    if (rc == 0) {
        pg_begin(&pg->arguments);
        add_lease(pg, kept_ms(claim));
        if (downgrade) add_key(pg, claim->name);
        rc = pg_call(pg, downgrade ? PG_DOWNGRADE : PG_PROVE, deadline_us, &rows, err);
    }
    if (rc == DLOCK_EUNAVAILABLE && PQstatus(pg->link) == CONNECTION_OK && dlock_now_us() >= deadline_us) {
        pg->session.owed = true; /* late is not lost: the connection, and with it the lock, may live */
        pg->session.lease_ms = -1;
        claim->result = DLOCK_EUNAVAILABLE;
        return 0;
    }
    if (rc != 0) return rc;
    if (!rows || PQntuples(rows) != 1 || !pg_read_time(rows, 0, 0, &claim->server_us) || claim->server_us <= 0)
        rc = pg_nonsense(pg, "no time from its clock", err);
    PQclear(rows);
    if (rc != 0) return rc;
    pg->session.lease_ms = kept_ms(claim);
    pg->session.shared = pg->session.shared || downgrade;
    claim->kept_ms = kept_ms(claim);
    claim->result = 0;
    return 0;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

/* What a thread that cancels has, and frees. The other end of the pipe hangs up when PQcancel() has returned. */
struct cancellation {
    PGcancel *request;
    int pipe;
};

static void cancellation_free(struct cancellation *cancellation) {
    PQfreeCancel(cancellation->request);
    close(cancellation->pipe);
    free(cancellation);
}

/* Runs in a separate thread: PQcancel() opens a connection, without a deadline. */
static void *cancel(void *cancellation) {
    char why[256];
    PQcancel(((struct cancellation *)cancellation)->request, why, sizeof why);
    cancellation_free(cancellation);
    return NULL;
}

/* Returns the end of the pipe that hangs up when the server has sent the cancellation on, or a code. */
static int send_cancel(struct pg *pg, struct dlock_error *err) {
    int ends[2];
    struct cancellation *cancellation = calloc(1, sizeof *cancellation);
    if (cancellation && pipe2(ends, O_CLOEXEC) == 0) {
        *cancellation = (struct cancellation){PQgetCancel(pg->link), ends[1]};
        if (cancellation->request && pg_detach(cancel, cancellation)) return ends[0];
        cancellation_free(cancellation);
        close(ends[0]);
    } else {
        free(cancellation);
    }
    return pg_dead(pg, "out of memory, descriptors or threads to cancel a request", err);
}

/* Ends the waiting request by cancelling it. Returns 1 if it ended after the first cancellation and no signal is
 * pending; 0 if the session must not be used any more, since a cancellation may still hit the next request: up to
 * PostgreSQL 16 at least the server sends the session two signals for each one (signal_child in its postmaster.c), and
 * closes the connection that PQcancel() waits for after the second. In both cases the lock may have been granted. The
 * cancellation is repeated since a server that has not begun with a request ignores it. */
static int stop_waiting(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    PGresult *rows = NULL;
    int tries = 0, rc = 0, sent = -1;
    while (rc == 0 && !rows) {
        int64_t now_us = dlock_now_us(), until_us = now_us + (CANCEL_US << tries);
        if (until_us > deadline_us) until_us = deadline_us;
        if (sent >= 0) close(sent);
        if (tries++ == CANCELS || now_us >= deadline_us) return pg_dead(pg, "no answer in time", err);
        if ((sent = send_cancel(pg, err)) < 0) return sent;
        while (rc == 0 && !rows && dlock_now_us() < until_us)
            if (dlock_wait_fd(PQsocket(pg->link), POLLIN, until_us)) rc = pg_posted(pg, &rows, err);
    }
    bool over =
        rc == 0 && tries == 1 && pg_state_is(pg_state(rows), "57014") && dlock_wait_fd(sent, POLLIN, deadline_us);
    close(sent);
    PQclear(rows);
    if (rc != 0) return rc;
    pg->session.waits = false;
    return over;
}

static int give_back(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    PGresult *rows;
    pg_begin(&pg->arguments);
    int rc = pg_call(pg, PG_GIVE_BACK, deadline_us, &rows, err);
    if (rc != 0) return rc;
    PQclear(rows);
    pg->session.fence = 0;
    return 0;
}

/* True if the server has announced the end of the session, or the connection has failed. Hardly anything else arrives
 * unasked. */
static bool has_ended(struct pg *pg) {
    for (int n = 0; !pg->session.ended && dlock_wait_fd(PQsocket(pg->link), POLLIN, 0); n++)
        if (n == UNASKED_MAX || !pg_consume(pg)) return true;
    return pg->session.ended;
}

/* ---- operations: one claim for each connection ------------------------------------------------------------------- */

int pg_session_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    struct pg *pg = conn;
    struct dlock_claim *claim = claims[0];
    int64_t deadline_us = dlock_deadline_us(timeout_ms), fence = 0;
    (void)n;
    if (!acceptable(claim, err)) {
        claim->result = claim->mode == DLOCK_PERMIT ? DLOCK_ENOTSUP : DLOCK_EINVAL;
        return 0;
    }
    int rc = be_patient(pg, claim, deadline_us, err);
    if (rc != 0) return rc;
    if (pg->session.fence && strcmp(pg->session.key_name, claim->name) != 0)
        return pg_dead(pg, "it still holds another lock", err);
    if (pg->session.fence) { /* it already has the lock */
        claim->fence = pg->session.fence;
        return prove(pg, claim, deadline_us, err);
    }
    /* The first request of a connection does not wait for the lock: its answer is awaited, and a final refusal is
     * returned here. As a wake-up the refusal would have no code, and the core would retry endlessly. The server checks
     * a role's rights before it checks whether the lock is free. */
    bool waits = claim->flags & DLOCK_CLAIM_QUEUE;
    if (!waits || !pg->session.tried) rc = take(pg, claim, deadline_us, &fence, err);
    if (waits && rc == 0 && !fence) rc = take_or_wait(pg, claim, deadline_us, &fence, err);
    claim->result = fence ? 0 : DLOCK_EBUSY;
    claim->fence = (uint64_t)fence;
    return rc;
}

int pg_session_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    (void)n;
    claims[0]->result = DLOCK_ELOST;
    return pg->session.fence ? prove(pg, claims[0], dlock_deadline_us(timeout_ms), err) : 0;
}

int pg_session_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    struct pg *pg = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    (void)n;
    claims[0]->result = DLOCK_ELOST;
    if (pg->session.waits) {
        int stopped = stop_waiting(pg, deadline_us, err);
        int rc = stopped < 0 ? stopped : give_back(pg, deadline_us, err);
        if (rc == 0 && stopped == 0) rc = pg_dead(pg, "a cancelled request may cancel another one", err);
        return rc;
    }
    if (!pg->session.fence) return 0;
    if (dlock_now_us() - pg->session.granted_us > FRESH_US && has_ended(pg)) return 0;
    int rc = catch_up(pg, deadline_us, err);
    if (rc == 0) rc = give_back(pg, deadline_us, err);
    if (rc == 0) claims[0]->result = 0;
    return pg->session.ended ? 0 : rc;
}

int pg_session_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    const struct pg *pg = conn;
    (void)timeout_ms;
    (void)err;
    *fd = PQsocket(pg->link);
    return 0;
}

int pg_session_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct pg *pg = conn;
    int64_t fence, server_us;
    if (!pg->session.waits) { /* no request is open: the input is the end of the session or a notice */
        return has_ended(pg) ? pg_dead(pg, "the server has ended this session", err) : 0;
    }
    int rc = dlock_wait_fd(PQsocket(pg->link), POLLIN, 0) ? read_wait(pg, &fence, &server_us, err) : 0;
    if (rc == 1)
        *out = (struct dlock_wake){DLOCK_WAKE_GRANTED, NULL, NULL, (uint64_t)fence, server_us, pg->session.kept_ms};
    if (rc < 0 && err) err->code = DLOCK_EUNAVAILABLE; /* the waiter retries, and its acquire returns a final error */
    return rc < 0 ? DLOCK_EUNAVAILABLE : rc;
}

int pg_session_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    PGresult *rows;
    int64_t ended = 0;
    pg_begin(&pg->arguments);
    add_key(pg, name);
    int rc = pg_call(pg, PG_END_SESSIONS, dlock_deadline_us(timeout_ms), &rows, err);
    if (rc != 0) return rc;
    if (rows && PQntuples(rows) == 1 && PQgetisnull(rows, 0, 0))
        rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "the holder's session was told to end, and has not ended in time");
    else if (rows && (PQntuples(rows) != 1 || !pg_read_int8(rows, 0, 0, &ended)))
        rc = pg_nonsense(pg, "the result of end_sessions", err);
    PQclear(rows);
    if (rc == 0 && ended == 0) rc = dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
    return rc;
}
