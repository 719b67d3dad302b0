/* Wake-ups. One connection per client listens on the client's channel, and holds an advisory lock that shows this to
 * others. */
#include "postgresql.h"

#include <stdlib.h>
#include <sys/random.h>

/* Most messages that one call skips because they are not wake-ups for this client. */
#define MAX_SKIPPED 1000

static void write_hex(char *out, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* Chooses a random channel, so that no other client listens on it or has its advisory lock by accident, and the secret
 * that proves that a message on it comes from the server's functions. False: no random numbers. */
static bool name_channel(char channel[64], char secret[PG_SECRET + 1]) {
    unsigned char random[PG_SECRET];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) return false;
    memcpy(channel, "dlock_", 6);
    write_hex(channel + 6, random, PG_SECRET / 2);
    write_hex(secret, random + PG_SECRET / 2, PG_SECRET / 2);
    return true;
}

int pg_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    struct pg *pg = conn;
    char channel[64];
    PGresult *rows;
    if (pg->listen == PG_LISTEN_OFF)
        return dlock_fail(err, DLOCK_ENOTSUP, "listen=off: no wake-ups from postgresql, waiters poll");
    if (!name_channel(channel, pg->secret))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the kernel has no random numbers yet: try again");
    pg_begin(&pg->arguments);
    pg_add_bytes(&pg->arguments, pg->peer->client, 24);
    pg_add_bytes(&pg->arguments, channel, strlen(channel));
    pg_add_bytes(&pg->arguments, pg->secret, PG_SECRET);
    int rc = pg_call(pg, PG_LISTEN, dlock_deadline_us(timeout_ms), &rows, err);
    if (rc != 0) return rc;
    PQclear(rows);
    *fd = PQsocket(pg->link);
    return 0;
}

/* ---- payload of a notification ----------------------------------------------------------------------------------- */

/* Takes the next word off *text, with the space that ends it. False: there is none, or it is too long. */
static bool take_word(const char **text, char *out, size_t size) {
    size_t length = strcspn(*text, " ");
    if (length == 0 || length >= size || !(*text)[length]) return false;
    memcpy(out, *text, length);
    out[length] = '\0';
    *text += length + 1;
    return true;
}

/* Takes a positive number off *text. */
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
        if (high < 0 || low < 0 || high < 2 || (high << 4 | low) == 0x7f) return false;
        out[i] = (char)(high << 4 | low);
    }
    out[length] = '\0';
    return true;
}

/* Returns the text that follows `word` and a space, or NULL if `text` does not begin so. */
static const char *after(const char *text, const char *word) {
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && text[length] == ' ' ? text + length + 1 : NULL;
}

/* Reads "granted <token> <fence> <server µs> <kept ms> <name in hex>", which grant_message() in the schema writes;
 * `text` begins at the token. */
static bool read_grant(struct pg *pg, const char *text, struct dlock_wake *out) {
    int64_t fence, server_us, kept_ms;
    if (!take_word(&text, pg->token, sizeof pg->token) || !take_number(&text, &fence) ||
        !take_number(&text, &server_us) || !take_number(&text, &kept_ms) || !take_name(text, pg->name))
        return false;
    if (fence >= PG_FENCE_END || strncmp(pg->token, pg->peer->client, 24) != 0) return false;
    *out = (struct dlock_wake){DLOCK_WAKE_GRANTED, pg->name, pg->token, (uint64_t)fence, server_us, kept_ms};
    return true;
}

/* Hex digits of the code after the last space of a message, computed like code_of() in the schema. It is half of the
 * hash, since from a whole SHA-256 anyone could compute the code of a longer message. */
#define CODE PG_SHA256

static bool write_code(const struct pg *pg, const char *text, size_t length, char out[CODE + 1]) {
    unsigned char sum[PG_SHA256];
    if (!pg_sha256((struct pg_text[]){{pg->secret, PG_SECRET}, {text, length}}, 2, sum)) return false;
    write_hex(out, sum, CODE / 2);
    return true;
}

/* Removes the code from `text`. False: it is wrong or missing. */
static bool take_code(const struct pg *pg, char *text) {
    char code[CODE + 1], *given = strrchr(text, ' ');
    if (!given) return false;
    if (!write_code(pg, text, (size_t)(given - text), code)) return false;
    if (strcmp(given + 1, code) != 0) return false;
    *given = '\0';
    return true;
}

/* Reads one message. False: it is not for this client; any role may send to any channel. */
static bool read_wake(struct pg *pg, PGnotify *notice, struct dlock_wake *out) {
    if (!take_code(pg, notice->extra)) return false;
    const char *grant = after(notice->extra, "granted"), *name = after(notice->extra, "wanted");
    if (grant) return read_grant(pg, grant, out);
    if (!name || !take_name(name, pg->name)) return false;
    *out = (struct dlock_wake){.kind = DLOCK_WAKE_WANTED, .name = pg->name};
    return true;
}

/* Sends an empty statement, whose only effect is its answer. If the previous answer is still in transit, overtaken by a
 * notification, that one suffices. */
int pg_probe(void *conn, struct dlock_error *err) {
    struct pg *pg = conn;
    if (pg->probed) return 0;
    if (!PQsendQuery(pg->link, "")) return pg_dead(pg, PQerrorMessage(pg->link), err);
    pg->unanswered = pg->probed = true;
    return 0;
}

/* Reads what has arrived of the answer to a probe: 1 when it is complete. PQnotifies() would not see messages that
 * follow it before that. */
static int take_answer(struct pg *pg, struct dlock_wake *out, struct dlock_error *err) {
    while (pg->probed && !PQisBusy(pg->link)) {
        PGresult *result = PQgetResult(pg->link);
        if (!result) {
            pg->unanswered = pg->probed = false;
            *out = (struct dlock_wake){.kind = DLOCK_WAKE_HEARD};
            return 1;
        }
        bool empty = PQresultStatus(result) == PGRES_EMPTY_QUERY;
        PQclear(result);
        if (!empty) return pg_dead(pg, PQerrorMessage(pg->link), err);
    }
    return 0;
}

int pg_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct pg *pg = conn;
    for (int skipped = 0; skipped < MAX_SKIPPED; skipped++) {
        int rc = take_answer(pg, out, err);
        if (rc != 0) return rc;
        PGnotify *notice = PQnotifies(pg->link);
        if (notice) {
            bool ours = read_wake(pg, notice, out);
            PQfreemem(notice);
            if (ours) return 1;
            continue;
        }
        if (!dlock_wait_fd(PQsocket(pg->link), POLLIN, 0)) return 0;
        if (!PQconsumeInput(pg->link)) return pg_dead(pg, PQerrorMessage(pg->link), err);
    }
    return pg_nonsense(pg, "unexpected traffic on the wake-up connection", err);
}
