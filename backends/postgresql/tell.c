/* Sending wake-ups to other clients. */
#include "postgresql.h"

/* Longest wait for the lock that a transaction with a NOTIFY keeps until it has committed. */
#define PATIENCE_US 1000000

static bool anything(const PGresult *rows, int column) {
    for (int row = 0; row < PQntuples(rows); row++)
        if (!PQgetisnull(rows, row, column)) return true;
    return false;
}

void pg_tell(struct pg *pg, const PGresult *rows, int column, int64_t deadline_us) {
    struct dlock_error err;
    PGresult *told;
    int64_t patient_us = dlock_now_us() + PATIENCE_US;
    if (patient_us < deadline_us) deadline_us = patient_us;
    if (!anything(rows, column)) return;
    if (PQftype(rows, column) != PG_TEXT) return;
    pg_begin(&pg->arguments);
    pg_add_column(&pg->arguments, rows, column);
    if (pg_call(pg, PG_TELL, deadline_us, &told, &err) == 0) {
        PQclear(told);
        return;
    }
    char message[sizeof err.message + 64];
    snprintf(message, sizeof message, "waiters cannot be notified and have to poll: %s", err.message);
    if (!pg->untold) pg->peer->log(pg->peer, DLOCK_LOG_WARN, message);
    pg->untold = true;
}
