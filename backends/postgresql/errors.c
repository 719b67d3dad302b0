/* Refusals by the server or libpq as dlock's codes, in messages without a password. */
#include "postgresql.h"

#include <ctype.h>

#define REASON_MAX 300

const char *pg_state(const PGresult *result) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state ? state : "";
}

bool pg_state_is(const char *state, const char *start) {
    return strncmp(state, start, strlen(start)) == 0;
}

/* Copies `text` as one line: control characters and runs of spaces become one space each, and none is left at the
 * end. */
static void one_line(char out[REASON_MAX], const char *text) {
    size_t used = 0;
    for (; *text && used + 1 < REASON_MAX; text++) {
        bool space = (unsigned char)*text <= 0x20 || *text == 0x7f;
        if (space && (used == 0 || out[used - 1] == ' ')) continue;
        out[used++] = space ? ' ' : *text;
    }
    while (used && out[used - 1] == ' ') used--;
    out[used] = '\0';
}

void pg_hear(struct pg *pg, const PGresult *result) {
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)) pg->session.ended = true;
}

int pg_dead(struct pg *pg, const char *why, struct dlock_error *err) {
    char reason[REASON_MAX];
    one_line(reason, why);
    pg->unanswered = true;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "PostgreSQL at %s: %s", pg->where, reason);
}

int pg_nonsense(struct pg *pg, const char *what, struct dlock_error *err) {
    pg->unanswered = true;
    return dlock_fail(err, DLOCK_EPROTO, "PostgreSQL at %s sent an invalid answer: %s", pg->where, what);
}

/* ---- by SQLSTATE ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *state; /* or the beginning of one */
    int code;
    const char *advice;
} kinds[] = {
    {"42501", DLOCK_EAUTH, "; its DBA has to run the GRANTs at the end of what `dlock schema postgresql` prints"},
    {"28", DLOCK_EAUTH, ""},
    {"3D000", DLOCK_EINVAL, ""}, /* no such database */
    {"25006", DLOCK_EUNAVAILABLE, "; this server is read-only: look for the primary"},
    {"55P03", DLOCK_EUNAVAILABLE,
     "; another session has locked the row, or waits with it for a synchronous standby"}, /* lock_timeout */
    {"57014", DLOCK_EUNAVAILABLE, ""}, /* statement_timeout, or cancelled */
    {"57P", DLOCK_EUNAVAILABLE, ""},   /* shutting down, starting up */
    {"40", DLOCK_EUNAVAILABLE, ""},
    {"08", DLOCK_EUNAVAILABLE, ""},
    {"53", DLOCK_EUNAVAILABLE, ""}, /* out of connections, memory, disk */
    {"58", DLOCK_EUNAVAILABLE, ""}, /* its disk fails */
    {"26000", DLOCK_EPROTO, "; does a pooler that pools transactions stand in between? Then write listen=off"},
    {"42P05", DLOCK_EPROTO, "; does a pooler that pools transactions stand in between? Then write listen=off"},
    {"42883", DLOCK_EPROTO, "; its DBA has to run what `dlock schema postgresql` prints"}, /* no such function */
    {"DL005", DLOCK_EAUTH,
     "; let that role run the script if you trust it, or else drop that, or use another `schema`"},
    {"DL007", DLOCK_EAUTH, ", or use another `schema`"},
    {"DL004", DLOCK_EPROTO, "; the clients of one schema all say the same `mode`, or use another `schema`"},
    {"DL002", DLOCK_EPROTO, "; set default_transaction_isolation to 'read committed' for this role"},
};

static int code_of(const char *state, const char **advice) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!pg_state_is(state, kinds[i].state)) continue;
        *advice = kinds[i].advice;
        return kinds[i].code;
    }
    *advice = "";
    return DLOCK_EPROTO;
}

int pg_refused(const struct pg *pg, const PGresult *result, struct dlock_error *err) {
    const char *state = pg_state(result), *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), *advice;
    char reason[REASON_MAX];
    int code = code_of(state, &advice);
    if (pg->sessions && strstr(advice, "dlock schema"))
        advice = "; its DBA has to run dlock's postgresql-session.sql, and the GRANTs at its end";
    if (pg->sessions && pg_state_is(state, "55P03")) advice = "; another session has locked the sequence of fences";
    one_line(reason, text ? text : PQresultErrorMessage(result));
    /* EINVAL as an operation's return value is not allowed: the contract leaves EUNAVAILABLE, EPROTO and EAUTH. */
    if (code == DLOCK_EINVAL) code = DLOCK_EPROTO;
    return dlock_fail(err, code, "PostgreSQL at %s refused: %s (%s)%s", pg->where, reason,
                      *state ? state : "no SQLSTATE", advice);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

/* Returns the SQLSTATE in a verbose message, "FATAL:  28P01: password …", or NULL: the message is not the server's. */
static const char *state_in(const char *message) {
    for (const char *at = strstr(message, ":  "); at; at = strstr(at + 1, ":  ")) {
        const char *state = at + 3;
        size_t length = 0;
        while (isdigit((unsigned char)state[length]) || isupper((unsigned char)state[length])) length++;
        if (length == 5 && state[5] == ':') return state;
    }
    return NULL;
}

/* Overwrites everything between double quotes: a password may have been written as the value of another key. */
static void blank_quoted(char *text) {
    bool inside = false;
    for (; *text; text++) {
        if (*text == '"')
            inside = !inside;
        else if (inside)
            *text = '*';
    }
}

/* Overwrites every occurrence of a value that is not part of a longer word. */
static void blank(char *text, const char *value) {
    size_t length = value ? strlen(value) : 0;
    if (length == 0) return;
    for (char *at = strstr(text, value); at; at = strstr(at + 1, value))
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            memset(at, '*', length);
}

/* Overwrites what libpq calls secret among its settings, wherever they come from. */
static void blank_secrets(char *text, PGconn *link) {
    PQconninfoOption *settings = PQconninfo(link);
    if (!settings) strcpy(text, "out of memory");
    for (const PQconninfoOption *at = settings; at && at->keyword; at++)
        if (*at->dispchar == '*') blank(text, at->val);
    PQconninfoFree(settings);
}

int pg_rejected(struct pg *pg, struct dlock_error *err) {
    const char *message = PQerrorMessage(pg->link), *state = state_in(message), *advice = "";
    char reason[REASON_MAX];
    int code = DLOCK_EUNAVAILABLE, error = 0;
    char *location;
    one_line(reason, message);
    location = strstr(reason, " LOCATION: ");
    if (location) *location = '\0';
    if (state) {
        code = code_of(state, &advice);
    } else if ((error = dlock_used_up(reason)) != 0 || strstr(reason, "out of memory")) {
        advice = dlock_advice(error); /* whatever libpq could not read for lack of these */
    } else if (PQconnectionNeedsPassword(pg->link)) {
        code = DLOCK_EAUTH;
        advice = "; give it in the URI, or with password_file=";
    } else if (strstr(reason, "certificate verify failed")) {
        code = DLOCK_EAUTH; /* libpq does not distinguish the two causes */
        advice = "; it has ended, or its authority is not in the file that sslrootcert= names";
    } else if (strstr(reason, "does not match host name")) {
        code = DLOCK_EAUTH;
        advice = "; write in the URI a name that the certificate has, as in ?host=NAME&hostaddr=ADDRESS";
    } else if (strstr(reason, "root certificate file")) {
        code = DLOCK_EAUTH;
        advice = "; name the file of the server's authority with sslrootcert=";
    } else if (strstr(reason, "invalid response") || strstr(reason, ", but received ")) {
        code = DLOCK_EPROTO; /* the other end does not speak PostgreSQL's protocol */
    } else if (strncmp(reason, "connection to server", 20) != 0 && !strstr(reason, "could not translate host name")) {
        code = DLOCK_EINVAL; /* libpq rejected the parameters before it tried to connect */
        blank_quoted(reason);
    }
    char *crash = strstr(reason, " This probably means the server terminated");
    if (crash) *crash = '\0';
    blank_secrets(reason, pg->link);
    dlock_fail(err, code, "cannot connect to PostgreSQL at %s: %s%s", pg->where, reason, advice);
    if (!state && (code == DLOCK_EPROTO || crash)) dlock_doubt(err, "PostgreSQL");
    return code;
}
