/* Wake-ups: one connection per client that listens on the channel named after it, and holds the advisory lock that
 * shows others that it does. */
#include "postgresql.h"

#include <stdlib.h>

/* What arrives without being a wake-up of ours, in one call. */
#define MAX_SKIPPED 1000

/* Runs a statement of which only the success matters. */
static int run(struct pg *pg, const char *sql, int64_t deadline_us, struct dlock_error *err) {
    PGresult *result;
    int rc = pg_query(pg, sql, deadline_us, &result, err);
    if (rc != 0) return rc;
    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
        rc = pg_refused(pg, result, err);
    PQclear(result);
    return rc;
}

int pg_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    char sql[320];
    if (pg->listen == PG_LISTEN_OFF)
        return dlock_fail(err, DLOCK_ENOTSUP, "listen=off: no wake-ups from postgresql, waiters poll");
    /* First LISTEN, then the sign that we do. A lost host shows after 8 s instead of the system's 2 hours. */
    snprintf(sql, sizeof sql, "LISTEN \"dlock_%.24s\"", pg->peer->client);
    int rc = run(pg, sql, deadline_us, err);
    if (rc != 0) return rc;
    snprintf(sql, sizeof sql,
             "SELECT pg_advisory_lock_shared(%s.client_key('%.24s')), set_config('tcp_keepalives_idle', '5', false), "
             "set_config('tcp_keepalives_interval', '1', false), set_config('tcp_keepalives_count', '3', false)",
             pg->schema, pg->peer->client);
    rc = run(pg, sql, deadline_us, err);
    if (rc == 0) *fd = PQsocket(pg->link);
    return rc;
}

/* ---- what a notification says ------------------------------------------------------------------------------------ */

/* Takes the next word off *text, which ends at a space; false: there is none, or it is too long. */
static bool take_word(const char **text, char *out, size_t size) {
    size_t length = strcspn(*text, " ");
    if (length == 0 || length >= size || !(*text)[length]) return false;
    memcpy(out, *text, length);
    out[length] = '\0';
    *text += length + 1;
    return true;
}

/* A positive number. */
static bool take_number(const char **text, int64_t *out) {
    char word[19];
    if (!take_word(text, word, sizeof word) || strspn(word, "0123456789") != strlen(word)) return false;
    *out = strtoll(word, NULL, 10);
    return *out > 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_name(const char *hex, char out[PG_NAME_MAX + 1]) {
    size_t length = strlen(hex) / 2;
    if (length == 0 || length > PG_NAME_MAX || strlen(hex) % 2) return false;
    for (size_t i = 0; i < length; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
        out[i] = (char)(high << 4 | low);
    }
    out[length] = '\0';
    return true;
}

/* "granted <token> <fence> <server µs> <kept ms> <name in hex>", as hand_over() in schema.sql writes it. Anybody may
 * notify, so what does not fit is none of ours. */
static bool read_grant(struct pg *pg, const PGnotify *notice, struct dlock_wake *out) {
    static const char granted[] = "granted ";
    const char *text = notice->extra;
    int64_t fence, server_us, kept_ms;
    if (strncmp(text, granted, sizeof granted - 1) != 0) return false;
    text += sizeof granted - 1;
    if (!take_word(&text, pg->token, sizeof pg->token) || !take_number(&text, &fence) ||
        !take_number(&text, &server_us) || !take_number(&text, &kept_ms) || !take_name(text, pg->name))
        return false;
    if (fence >= PG_FENCE_END || strncmp(pg->token, pg->peer->client, 24) != 0) return false;
    *out = (struct dlock_wake){DLOCK_WAKE_GRANTED, pg->name, pg->token, (uint64_t)fence, server_us, kept_ms};
    return true;
}

int pg_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct pg *pg = conn;
    for (int skipped = 0; skipped < MAX_SKIPPED; skipped++) {
        PGnotify *notice = PQnotifies(pg->link);
        if (notice) {
            bool ours = read_grant(pg, notice, out);
            PQfreemem(notice);
            if (ours) return 1;
            continue;
        }
        if (!dlock_wait_fd(PQsocket(pg->link), POLLIN, 0)) return 0;
        if (!PQconsumeInput(pg->link)) return pg_dead(pg, PQerrorMessage(pg->link), err);
    }
    return pg_nonsense(pg, "too much that is no wake-up", err);
}
