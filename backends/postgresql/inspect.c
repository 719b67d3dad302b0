/* Inspecting, listing and breaking locks. */
#include "postgresql.h"

/* Names in one page of a list. Where few of many names are held, each page may read them all. */
#define PAGE 5000

enum { NAME, TOKEN, FENCE, LEFT_MS, WAITERS, MODE, PERMITS, NOW_US };

/* Passes one row of holders() to `each`. False: the row is malformed. */
static bool tell(const PGresult *rows, int row, const char *prefix, char name[PG_NAME_MAX + 1], dlock_each each,
                 void *arg, bool *ended) {
    char token[DLOCK_TOKEN_MAX + 1];
    int64_t fence, left_ms, waiters, now_us;
    int32_t mode, permits;
    if (!pg_read_text(rows, row, NAME, name, PG_NAME_MAX + 1) || !pg_read_text(rows, row, TOKEN, token, sizeof token) ||
        !pg_read_int8(rows, row, FENCE, &fence) || !pg_read_int8(rows, row, LEFT_MS, &left_ms) ||
        !pg_read_int8(rows, row, WAITERS, &waiters) || !pg_read_int4(rows, row, MODE, &mode) ||
        !pg_read_int4(rows, row, PERMITS, &permits) || !pg_read_int8(rows, row, NOW_US, &now_us) ||
        mode < DLOCK_EXCLUSIVE || mode > DLOCK_PERMIT || (permits > 0) != (mode == DLOCK_PERMIT))
        return false;
    if (fence <= 0 || fence >= PG_FENCE_END || left_ms < 0 || waiters < 0 || waiters > UINT32_MAX ||
        strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    dlock_one_line(token);
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return true; /* not a valid name of a lock */
    const struct dlock_info info = {.size = sizeof info,
                                    .name = name,
                                    .token = token,
                                    .mode = (enum dlock_mode)mode,
                                    .waiters = (uint32_t)waiters,
                                    .limit = mode == DLOCK_PERMIT ? (uint32_t)permits : 1,
                                    .fence = (uint64_t)fence,
                                    .remaining_ms = left_ms,
                                    .held_ms = dlock_held_ms(now_us, fence)};
    *ended = each(&info, arg) != 0;
    return true;
}

/* Passes one row of waiters() to `each`. False: the row is malformed. */
static bool tell_waiter(const PGresult *rows, int row, const char *name, dlock_each each, void *arg, bool *ended) {
    enum { W_TOKEN, W_SINCE_US, W_MODE, W_PERMITS, W_NOW_US };
    char token[DLOCK_TOKEN_MAX + 1];
    int64_t since_us, now_us;
    int32_t mode, permits;
    if (!pg_read_text(rows, row, W_TOKEN, token, sizeof token) || !pg_read_int8(rows, row, W_SINCE_US, &since_us) ||
        !pg_read_int4(rows, row, W_MODE, &mode) || !pg_read_int4(rows, row, W_PERMITS, &permits) ||
        !pg_read_int8(rows, row, W_NOW_US, &now_us) || mode < DLOCK_EXCLUSIVE || mode > DLOCK_PERMIT ||
        (permits > 0) != (mode == DLOCK_PERMIT))
        return false;
    dlock_one_line(token);
    const struct dlock_info info = {.size = sizeof info,
                                    .name = name,
                                    .token = token,
                                    .mode = (enum dlock_mode)mode,
                                    .limit = mode == DLOCK_PERMIT ? (uint32_t)permits : 1,
                                    .held_ms = dlock_held_ms(now_us, since_us)};
    *ended = each(&info, arg) != 0;
    return true;
}

int pg_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    PGresult *rows;
    bool ended = false;
    pg_begin(&pg->arguments);
    pg_add_bytes(&pg->arguments, name, strlen(name));
    int rc = pg_call(pg, PG_WAITERS, dlock_deadline_us(timeout_ms), &rows, err);
    if (rc != 0 || !rows) return rc;
    for (int row = 0; row < PQntuples(rows) && !ended && rc == 0; row++)
        if (!tell_waiter(rows, row, name, each, arg, &ended)) rc = pg_nonsense(pg, "a row about a waiter", err);
    PQclear(rows);
    return rc;
}

/* Passes to `each` the holders of up to `most` names from `low` on and below `high` (NULL: no end), all of which have
 * to begin with `prefix`. Returns the number of names or an error; `name` gets the last one. Sets *ended when `each`
 * has returned non-zero. */
static int walk(struct pg *pg, const char *low, size_t low_length, const char *high, size_t high_length, int most,
                const char *prefix, char name[PG_NAME_MAX + 1], dlock_each each, void *arg, bool *ended,
                int64_t deadline_us, struct dlock_error *err) {
    char found[PG_NAME_MAX + 1];
    PGresult *rows;
    pg_begin(&pg->arguments);
    pg_add_bytes(&pg->arguments, low, low_length);
    pg_add_bytes(&pg->arguments, high, high_length);
    pg_add_int4(&pg->arguments, most);
    int rc = pg_call(pg, PG_HOLDERS, deadline_us, &rows, err);
    *ended = false;
    if (rc != 0 || !rows) return rc;
    int names = 0;
    for (int row = 0; row < PQntuples(rows) && !*ended && rc == 0; row++) {
        if (!tell(rows, row, prefix, found, each, arg, ended)) rc = pg_nonsense(pg, "a row about a holder", err);
        if (rc != 0 || (names && strcmp(found, name) == 0)) continue;
        names++;
        memcpy(name, found, strlen(found) + 1);
    }
    PQclear(rows);
    return rc != 0 ? rc : names;
}

int pg_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    /* The next greater byte string is the name followed by a NUL, which no name contains: the range holds only this
     * name. */
    char found[PG_NAME_MAX + 1];
    bool ended;
    size_t length = strlen(name);
    int n = walk(conn, name, length, name, length + 1, 1, name, found, each, arg, &ended, dlock_deadline_us(timeout_ms),
                 err);
    return n < 0 ? n : 0;
}

int pg_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
            struct dlock_error *err) {
    char high[PG_NAME_MAX + 1], last[PG_NAME_MAX + 1];
    size_t length = strlen(prefix);
    bool ended;
    if (length > PG_NAME_MAX) return 0;
    /* `high` becomes the least byte string above all that begin with prefix; there is none if that is empty or all
     * 0xff. */
    memcpy(high, prefix, length);
    while (length && high[length - 1] == (char)0xff) length--;
    if (length) high[length - 1] = (char)(high[length - 1] + 1);
    const char *low = *cursor ? cursor : prefix;
    size_t low_length = *cursor ? strlen(cursor) + 1 : strlen(prefix); /* with its NUL: the range begins after the
                                                                        * cursor */
    int n = walk(conn, low, low_length, length ? high : NULL, length, PAGE, prefix, last, each, arg, &ended,
                 dlock_deadline_us(timeout_ms), err);
    if (n < 0) return n;
    if (ended || n < PAGE) return 0;
    memcpy(cursor, last, strlen(last) + 1);
    return 1;
}

int pg_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    PGresult *rows;
    bool broken = false; /* stays so when there is no schema */
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    pg_begin(&pg->arguments);
    pg_add_bytes(&pg->arguments, name, strlen(name));
    int rc = pg_call(pg, PG_BREAK, deadline_us, &rows, err);
    if (rc != 0) return rc;
    if (rows && (PQntuples(rows) != 1 || !pg_read_bool(rows, 0, 0, &broken)))
        rc = pg_nonsense(pg, "the result of break", err);
    if (rows && rc == 0) pg_tell(pg, rows, 1, deadline_us);
    PQclear(rows);
    if (rc == 0 && !broken) rc = dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
    return rc;
}
