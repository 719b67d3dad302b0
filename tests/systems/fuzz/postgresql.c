/* PostgreSQL: rows, errors and notifications. libpq itself is not tested: this file replaces its functions that talk to
 * a server, and makes their results from the input, a line for each:
 *
 *   R<field>,<field>…|…   rows in the binary format; a field is a type and a value: l (int8), i (int4), b (bool), T (µs
 *                         since 2000), t (text), y (bytea), x (int8 with another length), or 0 and a type for NULL
 *   E<SQLSTATE><text>     an error;  F…: and the end of the session
 *   K, Y                  done; a COPY
 *   N<text>, n<text>      a notification followed by the right code; without a code
 *   (an empty line)       the end of an answer; the end of the input is the end of the connection
 *
 * A script that begins with '!' runs in mode=session. */
#include "operate.h"

#include <postgresql.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    const char *at, *end; /* the input; at == end: the connection has ended */
    unsigned reads;
    struct pg *pg;
    char state[6], text[200]; /* of the last error */
    bool fatal;
    int socket[2]; /* always readable */
} server;

/* ---- results ----------------------------------------------------------------------------------------------------- */

enum { FIELD_MAX = 600, COLUMNS_MAX = 12 };

/* Takes the text up to one of these characters, or to the end of the line. Returns its length. */
static size_t take(const char *stops, char *out, size_t size) {
    size_t n = 0;
    while (server.at < server.end && *server.at != '\n' && (!*server.at || !strchr(stops, *server.at))) {
        if (n + 1 < size) out[n++] = *server.at;
        server.at++;
    }
    out[n] = '\0';
    return n;
}

static void end_line(void) {
    char rest[2];
    take("", rest, sizeof rest);
    if (server.at < server.end) server.at++;
}

static enum pg_type type_of(char letter) {
    switch (letter) {
    case 'i': return PG_INT4;
    case 'b': return PG_BOOL;
    case 'T': return PG_TIME;
    case 't': return PG_TEXT;
    case 'y': return PG_BYTEA;
    default: return PG_INT8;
    }
}

/* Writes the bytes of a value. Returns their number. */
static int binary(char letter, const char *text, size_t length, char out[FIELD_MAX]) {
    uint64_t number = (uint64_t)strtoll(text, NULL, 10);
    int size = letter == 'i' ? 4 : letter == 'b' ? 1 : letter == 'x' ? 7 : 8;
    if (letter == 't' || letter == 'y') {
        memcpy(out, text, length);
        return (int)length;
    }
    for (int i = size; i-- > 0; number >>= 8) out[i] = (char)(number & 0xff);
    return size;
}

struct field {
    bool null;
    char letter, bytes[FIELD_MAX];
    int size;
};

static void take_field(struct field *field) {
    char text[FIELD_MAX];
    size_t length = take(",|", text, sizeof text), skip = *text == '0';
    field->null = skip;
    field->letter = text[skip];
    field->size = length > skip ? binary(field->letter, text + skip + 1, length - skip - 1, field->bytes) : 0;
}

static PGresult *take_rows(void) {
    static char column[] = "c";
    PGresult *rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    struct field fields[COLUMNS_MAX];
    PGresAttDesc columns[COLUMNS_MAX];
    int n_columns = 0, row = 0;
    if (!rows) abort();
    while (server.at < server.end && *server.at != '\n') {
        int n = 0;
        do {
            take_field(&fields[n < COLUMNS_MAX ? n++ : COLUMNS_MAX - 1]);
        } while (server.at < server.end && *server.at == ',' && server.at++);
        if (row == 0) {
            memset(columns, 0, sizeof columns);
            for (int i = 0; i < n; i++) {
                columns[i].name = column;
                columns[i].typid = type_of(fields[i].letter);
                columns[i].format = 1;
            }
            n_columns = n;
            if (!PQsetResultAttrs(rows, n, columns)) abort();
        }
        for (int i = 0; i < n_columns; i++) {
            bool null = i >= n || fields[i].null;
            if (!PQsetvalue(rows, row, i, null ? NULL : fields[i].bytes, null ? -1 : fields[i].size)) abort();
        }
        row++;
        if (server.at < server.end && *server.at == '|') server.at++;
    }
    return rows;
}

static PGresult *take_error(bool fatal) {
    char text[sizeof server.text + 5];
    size_t length = take("", text, sizeof text);
    snprintf(server.state, sizeof server.state, "%.5s", text);
    snprintf(server.text, sizeof server.text, "%s", length > 5 ? text + 5 : "");
    server.fatal = fatal;
    return PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
}

/* ---- libpq's part ------------------------------------------------------------------------------------------------ */

static bool over(void) {
    return server.at >= server.end;
}

PGresult *PQgetResult(PGconn *conn) {
    (void)conn;
    while (!over()) {
        PGresult *result = NULL;
        char kind = *server.at;
        if (kind != '\n') server.at++;
        switch (kind) {
        case 'R': result = take_rows(); break;
        case 'E':
        case 'F': result = take_error(kind == 'F'); break;
        case 'K': result = PQmakeEmptyPGresult(NULL, PGRES_COMMAND_OK); break;
        case 'Y': result = PQmakeEmptyPGresult(NULL, PGRES_COPY_OUT); break;
        case 'Q': result = PQmakeEmptyPGresult(NULL, PGRES_EMPTY_QUERY); break;
        default: break;
        }
        end_line();
        if (result) return result;
        if (kind == '\n') return NULL;
    }
    return NULL;
}

/* Returns a field of the last error, whatever `result` is: the backend reads a result before it takes the next one. */
char *PQresultErrorField(const PGresult *result, int field) {
    static char fatal[] = "FATAL";
    if (PQresultStatus(result) != PGRES_FATAL_ERROR) return NULL;
    if (field == PG_DIAG_SQLSTATE) return *server.state ? server.state : NULL;
    if (field == PG_DIAG_MESSAGE_PRIMARY) return *server.text ? server.text : NULL;
    if (field == PG_DIAG_SEVERITY_NONLOCALIZED) return server.fatal ? fatal : NULL;
    return NULL;
}

PGnotify *PQnotifies(PGconn *conn) {
    char text[1200], code[2 * PG_SHA256 + 1];
    unsigned char sum[PG_SHA256];
    (void)conn;
    if (over() || (*server.at != 'N' && *server.at != 'n')) return NULL;
    bool proved = *server.at++ == 'N';
    size_t length = take("", text, sizeof text);
    end_line();
    if (!pg_sha256((struct pg_text[]){{server.pg->secret, PG_SECRET}, {text, length}}, 2, sum)) abort();
    for (size_t i = 0; i < sizeof sum / 2; i++) snprintf(code + 2 * i, 3, "%02x", sum[i]);
    PGnotify *notice = malloc(sizeof *notice + sizeof text + sizeof code + 1);
    if (!notice) abort();
    memset(notice, 0, sizeof *notice);
    notice->extra = (char *)(notice + 1);
    snprintf(notice->extra, sizeof text + sizeof code + 1, proved ? "%s %s" : "%s", text, code);
    return notice;
}

int PQconsumeInput(PGconn *conn) {
    (void)conn;
    return !over() && server.reads++ < 200;
}

ConnStatusType PQstatus(const PGconn *conn) {
    (void)conn;
    return over() ? CONNECTION_BAD : CONNECTION_OK;
}

int PQisBusy(PGconn *conn) {
    (void)conn;
    return 0;
}

int PQflush(PGconn *conn) {
    (void)conn;
    return 0;
}

int PQsocket(const PGconn *conn) {
    (void)conn;
    return server.socket[0];
}

int PQserverVersion(const PGconn *conn) {
    (void)conn;
    return 150000;
}

int PQbackendPID(const PGconn *conn) {
    (void)conn;
    return 4242;
}

PGTransactionStatusType PQtransactionStatus(const PGconn *conn) {
    (void)conn;
    return PQTRANS_IDLE;
}

char *PQerrorMessage(const PGconn *conn) {
    static char text[] = "server closed the connection unexpectedly\n";
    (void)conn;
    return text;
}

PGcancel *PQgetCancel(PGconn *conn) {
    (void)conn;
    return NULL;
}

int PQsendQuery(PGconn *conn, const char *query) {
    (void)conn;
    (void)query;
    return !over();
}

int PQsendQueryParams(PGconn *conn, const char *command, int n, const Oid *types, const char *const *values,
                      const int *lengths, const int *formats, int format) {
    (void)n, (void)types, (void)values, (void)lengths, (void)formats, (void)format;
    return PQsendQuery(conn, command);
}

int PQsendPrepare(PGconn *conn, const char *name, const char *query, int n, const Oid *types) {
    (void)name, (void)n, (void)types;
    return PQsendQuery(conn, query);
}

int PQsendQueryPrepared(PGconn *conn, const char *name, int n, const char *const *values, const int *lengths,
                        const int *formats, int format) {
    (void)n, (void)values, (void)lengths, (void)formats, (void)format;
    return PQsendQuery(conn, name);
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static const struct dlock_backend by_sessions = {.acquire = pg_session_acquire,
                                                 .renew = pg_session_renew,
                                                 .release = pg_session_release,
                                                 .wake = pg_session_wake,
                                                 .break_lock = pg_session_break},
                                  by_rows = {.caps = DLOCK_CAP_WAKE,
                                             .acquire = pg_acquire,
                                             .renew = pg_renew,
                                             .release = pg_release,
                                             .listen = pg_listen,
                                             .wake = pg_wake,
                                             .inspect = pg_inspect,
                                             .list = pg_list,
                                             .break_lock = pg_break,
                                             .check = pg_check,
                                             .probe = pg_probe};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct pg pg = {.peer = &fuzz_peer, .schema = "dlock", .where = "fuzz", .script = "SELECT 1"};
    char script[32];
    if (!fuzz_script(&data, &size, script)) return 0;
    if (!server.socket[1] && (pipe(server.socket) != 0 || write(server.socket[1], "", 1) != 1)) abort();
    pg.link = (PGconn *)&server;
    pg.sessions = *script == '!';
    memset(pg.prepared, true, sizeof pg.prepared);
    server.at = (const char *)data;
    server.end = server.at + size;
    server.reads = 0;
    server.pg = &pg;
    fuzz_operate(pg.sessions ? &by_sessions : &by_rows, &pg, script + pg.sessions);
    PQclear(pg.session.answer);
    free(pg.arguments.bytes);
    return 0;
}
