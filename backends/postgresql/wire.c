/* Requests and answers. libpq never blocks here: every wait happens in this file, limited by the caller's deadline.
 * libpq sends with MSG_NOSIGNAL, or with SIGPIPE masked where TLS writes.
 *
 * A server may send endlessly. poll() reports a ready socket even after the deadline, so every loop that waits also
 * checks the clock, once per read. libpq keeps all rows of an answer, and does not report their number before it has
 * all: only the deadline limits the memory that they take. */
#include "postgresql.h"

/* More results than any request here has statements. */
#define RESULTS_MAX 1000

int pg_wait(const struct pg *pg, int64_t deadline_us) {
    int fd = PQsocket(pg->link);
    char next;
    if (pg->blocks && deadline_us - dlock_now_us() >= PG_BLOCK_US && recv(fd, &next, 1, MSG_PEEK) >= 0) return POLLIN;
    return dlock_wait_fd(fd, POLLIN, deadline_us);
}

bool pg_consume(struct pg *pg) {
    PGnotify *notice;
    if (!PQconsumeInput(pg->link)) return false;
    while (!*pg->secret && (notice = PQnotifies(pg->link))) PQfreemem(notice);
    return true;
}

/* Sends what is unsent and waits until PQgetResult() would not block. */
static int wait_for_result(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    for (bool late = false;; late = dlock_now_us() >= deadline_us) {
        int unsent = PQflush(pg->link);
        if (unsent < 0) return pg_dead(pg, PQerrorMessage(pg->link), err);
        if (!unsent && !PQisBusy(pg->link)) return 0;
        if (late) return pg_dead(pg, "no answer in time", err);
        int ready =
            unsent ? dlock_wait_fd(PQsocket(pg->link), POLLIN | POLLOUT, deadline_us) : pg_wait(pg, deadline_us);
        if ((ready & ~POLLOUT) && !pg_consume(pg)) return pg_dead(pg, PQerrorMessage(pg->link), err);
    }
}

/* Takes the next result of an answer, of which `n` were taken before; NULL: that was the last. During a COPY libpq would
 * return one result again and again. */
static int take_result(struct pg *pg, int *n, PGresult **one, struct dlock_error *err) {
    *one = PQgetResult(pg->link);
    if (!*one) return 0;
    pg_hear(pg, *one);
    ExecStatusType status = PQresultStatus(*one);
    bool copies = status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
    if (!copies && ++*n <= RESULTS_MAX) return 0;
    PQclear(*one);
    return pg_nonsense(pg, copies ? "a COPY that was not asked for" : "more results than statements", err);
}

bool pg_is_error(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
}

int pg_read_answer(struct pg *pg, int64_t deadline_us, PGresult **result, struct dlock_error *err) {
    PGresult *kept = NULL, *one;
    for (int n = 0;;) {
        int rc = wait_for_result(pg, deadline_us, err);
        if (rc == 0) rc = take_result(pg, &n, &one, err);
        if (rc != 0) {
            PQclear(kept);
            return rc;
        }
        if (!one) break;
        if (kept && pg_is_error(kept)) {
            PQclear(one);
        } else {
            PQclear(kept);
            kept = one;
        }
    }
    if (!kept) return pg_nonsense(pg, "no result", err);
    if (PQstatus(pg->link) != CONNECTION_OK) {
        /* The server's last message says more than that the connection is closed. */
        int rc = *pg_state(kept) ? pg_refused(pg, kept, err) : pg_dead(pg, PQerrorMessage(pg->link), err);
        PQclear(kept);
        if (rc != DLOCK_EAUTH) rc = DLOCK_EUNAVAILABLE;
        if (err) err->code = rc;
        return rc;
    }
    pg->unanswered = false;
    *result = kept;
    return 0;
}

int pg_send_failed(struct pg *pg, struct dlock_error *err) {
    return pg_dead(pg, PQerrorMessage(pg->link), err);
}

int pg_query(struct pg *pg, const char *sql, int64_t deadline_us, PGresult **result, struct dlock_error *err) {
    if (!pg->link || pg->unanswered) return pg_dead(pg, "the connection is broken", err);
    pg->unanswered = true;
    if (!PQsendQuery(pg->link, sql)) return pg_send_failed(pg, err);
    return pg_read_answer(pg, deadline_us, result, err);
}

int pg_flush(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    int unsent;
    while ((unsent = PQflush(pg->link)) > 0) {
        dlock_wait_fd(PQsocket(pg->link), POLLOUT, deadline_us);
        if (dlock_now_us() >= deadline_us) return pg_dead(pg, "no answer in time", err);
    }
    return unsent == 0 ? 0 : pg_send_failed(pg, err);
}

int pg_posted(struct pg *pg, PGresult **result, struct dlock_error *err) {
    PGresult *one;
    *result = NULL;
    if (!pg_consume(pg)) return pg_dead(pg, PQerrorMessage(pg->link), err);
    for (int n = 0; !PQisBusy(pg->link);) {
        int rc = take_result(pg, &n, &one, err);
        if (rc != 0) return rc;
        if (one) {
            PQclear(pg->session.answer);
            pg->session.answer = one;
            continue;
        }
        if (!pg->session.answer) return pg_nonsense(pg, "no result", err);
        *result = pg->session.answer;
        pg->session.answer = NULL;
        pg->unanswered = false;
        return 0;
    }
    return 0;
}

int pg_catch_up(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    PGresult *one;
    for (int n = 0;;) {
        int rc = wait_for_result(pg, deadline_us, err);
        if (rc == 0) rc = take_result(pg, &n, &one, err);
        if (rc != 0) return rc;
        if (!one) break;
        PQclear(one);
        if (PQstatus(pg->link) != CONNECTION_OK) return pg_dead(pg, "the connection has ended", err);
    }
    pg->unanswered = false;
    return 0;
}

void pg_note_clock(struct pg *pg, int64_t server_us) {
    pg->clock.server_us = server_us > 0 && server_us < PG_CLOCK_END ? server_us : 0;
    pg->clock.received_us = dlock_now_us();
}
