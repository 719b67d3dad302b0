/* MySQL and MariaDB: rows, error numbers, late answers. libmariadb itself is not tested: this file replaces its
 * functions, and makes their results from the input, a line for each:
 *
 *   R<field>,<field>…|…   rows; a field is its text, with a '~' for a NUL byte, or '\' alone for NULL
 *   S<field>…             the same, but the connection breaks in the middle of them
 *   K<rows>               done; this number of rows was changed
 *   E<number><text>       an error, which ends the answer
 *   L                     the rest comes after the deadline
 *   X                     there is no further result, although the server has announced one
 *   (an empty line)       the end of an answer; the end of the input is the end of the connection
 *
 * Letters before the script: '!': the input also answers the requests of a new connection, first with
 * V<y or m><number>, the version of MySQL or MariaDB, or with an error; '$': mode=session; '%': a server without
 * sequences; '#': with a quarantine. */
#include "operate.h"

#include <ctype.h>
#include <maria.h>
#include <stdlib.h>
#include <time.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

extern const struct dlock_backend dlock_backend_mysql;

int __real_clock_gettime(clockid_t clock, struct timespec *now);

enum { COLUMNS_MAX = 12, FIELD_MAX = 600, LOST = 2013 };

/* Replaces libmariadb's MYSQL_RES. */
struct rows {
    struct row {
        struct row *next;
        char *field[COLUMNS_MAX];
        unsigned long length[COLUMNS_MAX];
    } * first, *at;
    unsigned columns;
};

static struct {
    const char *greeting;  /* its unread rest */
    const char *at, *end;  /* the input; at == end: the connection has ended */
    bool late, waits;      /* the present answer comes after the deadline; it has not been polled for yet */
    int64_t skipped_us;    /* the waits that have been skipped: time advances by them at once */
    unsigned long version; /* of the server */
    bool is_mysql, naked;
    struct rows *rows; /* of the result that is being read */
    bool breaks;       /* the connection breaks at the end of the rows */
    uint64_t affected;
    unsigned error;
    char text[200];  /* of the last error */
    unsigned n_rows; /* number of results that were returned and not freed */
} server;

static const char honest[] =
    "K\nK\nRread_only,OFF|innodb_read_only,OFF\nR1795248000\nRUptime,100\nR1795248000000000\n\n";

/* ---- the input --------------------------------------------------------------------------------------------------- */

static const char **reading(void) {
    return *server.greeting ? &server.greeting : &server.at;
}

static const char *end(void) {
    return *server.greeting ? server.greeting + strlen(server.greeting) : server.end;
}

static bool over(void) {
    return !*server.greeting && server.at >= server.end;
}

/* Returns the first letter of the next line; 0: there is none. */
static char next(void) {
    return over() ? '\0' : **reading() ? **reading() : '?';
}

/* Takes the text up to one of these characters, or to the end of the line. Returns its length. */
static size_t take(const char *stops, char *out, size_t size) {
    const char **at = reading(), *const stop = end();
    size_t n = 0;
    while (*at < stop && **at != '\n' && (!**at || !strchr(stops, **at))) {
        if (n + 1 < size) out[n++] = **at;
        ++*at;
    }
    out[n] = '\0';
    return n;
}

static unsigned long take_number(void) {
    unsigned long number = 0;
    for (const char **at = reading(); *at < end() && number < 1000000 && isdigit((unsigned char)**at); ++*at)
        number = number * 10 + (unsigned long)(**at - '0');
    return number;
}

static void end_line(void) {
    char rest[2];
    take("", rest, sizeof rest);
    if (!over()) ++*reading();
}

/* Takes a letter, if it is next. */
static bool took(char letter) {
    if (next() != letter) return false;
    ++*reading();
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void rows_free(struct rows *rows) {
    if (!rows) return;
    for (struct row *row = rows->first, *after; row; row = after) {
        after = row->next;
        for (size_t i = 0; i < COLUMNS_MAX; i++) free(row->field[i]);
        free(row);
    }
    free(rows);
}

static void take_field(struct row *row, unsigned column) {
    char text[FIELD_MAX];
    size_t length = take(",|", text, sizeof text);
    if (column >= COLUMNS_MAX || strcmp(text, "\\") == 0) return;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '~') text[i] = '\0';
    row->field[column] = malloc(length + 1);
    if (!row->field[column]) abort();
    memcpy(row->field[column], text, length);
    row->field[column][length] = 'x'; /* libmariadb has a NUL here, on which the backend must not rely */
    row->length[column] = length;
}

static struct rows *take_rows(void) {
    struct rows *rows = calloc(1, sizeof *rows);
    if (!rows) abort();
    for (struct row **at = &rows->first; next() && next() != '\n'; at = &(*at)->next) {
        unsigned n = 0;
        *at = calloc(1, sizeof **at);
        if (!*at) abort();
        do {
            take_field(*at, n++);
        } while (took(','));
        if (at == &rows->first) rows->columns = n < COLUMNS_MAX ? n : COLUMNS_MAX;
        took('|');
    }
    if (!rows->columns) rows->columns = 1;
    rows->at = rows->first;
    return rows;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int break_off(void) {
    server.error = LOST;
    snprintf(server.text, sizeof server.text, "Lost connection to server during query");
    server.at = server.end;
    server.greeting = "";
    return 1;
}

static int take_error(void) {
    server.error = (unsigned)take_number();
    take("", server.text, sizeof server.text);
    end_line();
    took('\n');
    return 1;
}

/* Takes a result. Returns as mysql_real_query() and mysql_next_result(). */
static int take_result(void) {
    rows_free(server.rows);
    server.rows = NULL;
    server.waits = false;
    server.affected = 0;
    server.error = 0;
    server.breaks = false;
    if (over()) return break_off();
    if (next() == '\n') return 0; /* an empty answer */
    const char kind = next();
    ++*reading();
    if (kind == 'E') return take_error();
    if (kind == 'R' || kind == 'S') server.rows = take_rows();
    if (kind == 'K') server.affected = take_number();
    server.breaks = kind == 'S';
    end_line();
    return kind == 'X' ? -1 : 0;
}

/* Begins a step. True if it is done at once. */
static bool at_once(void) {
    if (next() != 'L') return true;
    ++*reading();
    end_line();
    server.late = server.waits = true;
    return false;
}

/* ---- libmariadb's part: steps ------------------------------------------------------------------------------------ */

int mysql_real_query_start(int *failed, MYSQL *link, const char *text, unsigned long length) {
    fuzz_require(link != NULL, "a request over a connection that is there");
    for (unsigned long i = 0; i < length; i++)
        fuzz_require((text[i] >= 0x20 && text[i] < 0x7f) || text[i] == '\n', "a statement in plain ASCII");
    if (!at_once()) return MYSQL_WAIT_READ;
    *failed = take_result();
    return 0;
}

int mysql_real_query_cont(int *failed, MYSQL *link, int ready) {
    (void)link, (void)ready;
    *failed = take_result();
    return 0;
}

int mysql_next_result_start(int *failed, MYSQL *link) {
    (void)link;
    if (!at_once()) return MYSQL_WAIT_READ;
    *failed = take_result();
    return 0;
}

int mysql_next_result_cont(int *failed, MYSQL *link, int ready) {
    return mysql_real_query_cont(failed, link, ready);
}

MYSQL_RES *mysql_use_result(MYSQL *link) {
    struct rows *rows = server.rows;
    (void)link;
    server.rows = NULL;
    server.n_rows += rows != NULL;
    return (MYSQL_RES *)(void *)rows;
}

int mysql_fetch_row_cont(MYSQL_ROW *fetched, MYSQL_RES *result, int ready) {
    struct rows *rows = (struct rows *)(void *)result;
    struct row *row = rows->at;
    (void)ready;
    server.waits = false;
    if (row) rows->at = row->next;
    if (!row && server.breaks) break_off();
    *fetched = row ? row->field : NULL;
    return 0;
}

/* A result may be late, but not in the middle. */
int mysql_fetch_row_start(MYSQL_ROW *fetched, MYSQL_RES *result) {
    const struct rows *rows = (const struct rows *)(const void *)result;
    if (rows->at == rows->first && !at_once()) return MYSQL_WAIT_READ;
    return mysql_fetch_row_cont(fetched, result, 0);
}

int mysql_real_connect_cont(MYSQL **connected, MYSQL *link, int ready) {
    (void)ready;
    server.waits = false;
    *connected = NULL;
    if (server.naked && over()) return break_off(), 0;
    if (server.naked && took('E')) return take_error(), 0;
    if (server.naked && took('V')) {
        server.is_mysql = took('y');
        took('m');
        server.version = take_number();
        end_line();
    }
    *connected = link;
    return 0;
}

int mysql_real_connect_start(MYSQL **connected, MYSQL *link, const char *host, const char *user, const char *password,
                             const char *database, unsigned int port, const char *socket, unsigned long flags) {
    (void)host, (void)user, (void)password, (void)database, (void)port, (void)socket, (void)flags;
    if (!at_once()) return MYSQL_WAIT_READ;
    return mysql_real_connect_cont(connected, link, 0);
}

/* ---- libmariadb's part: the rest --------------------------------------------------------------------------------- */

MYSQL *mysql_init(MYSQL *link) {
    static const struct st_mariadb_methods none;
    link = calloc(1, sizeof *link);
    if (link) link->methods = &none;
    return link;
}

void mysql_close(MYSQL *link) {
    free(link->server_version);
    free(link);
}

int mysql_options(MYSQL *link, enum mysql_option option, const void *value) {
    (void)link, (void)option, (void)value;
    return 0;
}

int mysql_optionsv(MYSQL *link, enum mysql_option option, ...) {
    (void)link, (void)option;
    return 0;
}

unsigned long mysql_get_client_version(void) {
    return 30300;
}

my_bool mariadb_get_infov(MYSQL *link, enum mariadb_value value, void *arg, ...) {
    (void)link, (void)value, (void)arg;
    return 0;
}

my_socket mysql_get_socket(MYSQL *link) {
    (void)link;
    return -1;
}

unsigned int mysql_errno(MYSQL *link) {
    (void)link;
    return server.error;
}

const char *mysql_error(MYSQL *link) {
    (void)link;
    return server.text;
}

unsigned int mysql_field_count(MYSQL *link) {
    (void)link;
    return server.rows ? 1 : 0;
}

my_ulonglong mysql_affected_rows(MYSQL *link) {
    (void)link;
    return server.affected;
}

my_bool mysql_more_results(MYSQL *link) {
    (void)link;
    return !over() && !took('\n');
}

unsigned int mysql_num_fields(MYSQL_RES *rows) {
    return ((const struct rows *)(const void *)rows)->columns;
}

/* Returns the lengths of the row that was fetched last. */
unsigned long *mysql_fetch_lengths(MYSQL_RES *result) {
    struct rows *rows = (struct rows *)(void *)result;
    struct row *row = rows->first;
    while (row && row->next != rows->at) row = row->next;
    return row ? row->length : NULL;
}

void mysql_free_result(MYSQL_RES *rows) {
    server.n_rows -= rows != NULL;
    rows_free((struct rows *)(void *)rows);
}

unsigned long mysql_get_server_version(MYSQL *link) {
    (void)link;
    return server.version;
}

char *mysql_get_server_info(MYSQL *link) {
    static char text[] = "10.11.0\n-fuzz";
    (void)link;
    return text;
}

my_bool mariadb_connection(MYSQL *link) {
    (void)link;
    return !server.is_mysql;
}

/* ---- time, in which waits are skipped ---------------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    int rc = __real_clock_gettime(clock, now);
    now->tv_sec += (time_t)(server.skipped_us / 1000000);
    return rc;
}

int __wrap_usleep(useconds_t us) {
    server.skipped_us += us;
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    (void)n;
    if (server.late && timeout_ms > 0) {
        server.skipped_us += (timeout_ms / 1000 + 1) * INT64_C(1000000);
        return 0;
    }
    const bool ready = server.waits ? !server.late : over(); /* a session that has ended */
    server.late = false;
    fds->revents = ready ? fds->events : 0;
    return ready;
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static const struct dlock_param by_session = {"mode", "session"};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static const struct dlock_host host = {"/fuzz", NULL, 0};
    struct dlock_uri uri = {
        .scheme = "mysql", .user = "u", .password = FUZZ_PASSWORD, .path = "/db", .hosts = &host, .n_hosts = 1};
    const bool told = fuzz_tells(data, size);
    const struct dlock_backend *backend = &dlock_backend_mysql;
    struct dlock_peer peer = fuzz_peer;
    struct maria maria = {.peer = &peer};
    struct dlock_error err = {0};
    char letters[32];
    const char *script = letters;
    if (size > 32 * 1024 || !fuzz_script(&data, &size, letters)) return 0;
    memset(&server, 0, sizeof server);
    server.version = 101100;
    for (; *script && strchr("!$%#", *script); script++) {
        if (*script == '!') server.naked = true;
        if (*script == '%') server.is_mysql = true;
        if (*script == '#') peer.quarantine_ms = 10000;
        if (*script == '$') uri.params = &by_session;
    }
    uri.n_params = uri.params ? 1 : 0;
    if (uri.params) backend = &maria_session;
    server.greeting = server.naked ? "" : honest;
    server.at = (const char *)data;
    server.end = server.at + size;
    int rc = backend->connect(&maria, &uri, &peer, server.naked ? FUZZ_TIMEOUT_MS : FUZZ_CONNECT_MS, &err);
    fuzz_require(server.naked || rc == 0, "the greeting of an honest server");
    fuzz_connected(backend, &maria, rc, &err, told, script);
    rows_free(server.rows);
    fuzz_require(server.n_rows == 0, "no rows that are left");
    return 0;
}
