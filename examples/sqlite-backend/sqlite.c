/* A lock backend whose server is an SQLite database: sqlite:/path/to/db. docs/writing-a-backend.md walks through it. */
#include <dlock/backend.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <unistd.h>

/* A row is the last grant of a name, live until expires_us; it stays behind for the fence. In the statements, ?1 is the
 * name, ?2 the token, ?3 now, ?4 the new expires_us. Each gives the fence of the row that it found, or nothing. */
static const char setup[] = "PRAGMA trusted_schema = OFF; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                            "CREATE TABLE IF NOT EXISTS locks (name BLOB PRIMARY KEY, token TEXT NOT NULL,"
                            " fence INTEGER NOT NULL, expires_us INTEGER NOT NULL) STRICT, WITHOUT ROWID";
static const char other[] = "SELECT fence FROM locks WHERE name = ?1 AND token <> ?2 AND expires_us > ?3";
static const char acquire[] = "INSERT INTO locks VALUES (?1, ?2, max(1, ?3), ?4) ON CONFLICT (name) DO UPDATE SET"
                              " fence = iif(token = ?2 AND expires_us > ?3, fence, max(fence + 1, ?3)),"
                              " token = ?2, expires_us = ?4 RETURNING fence";
#define OURS " WHERE name = ?1 AND token = ?2 AND expires_us > ?3 RETURNING fence"
static const char renew[] = "UPDATE locks SET expires_us = ?4" OURS, release[] = "UPDATE locks SET expires_us = 0" OURS;
static const char take_away[] = "UPDATE locks SET expires_us = 0 WHERE name = ?1 AND expires_us > ?3 RETURNING fence";
static const char find[] = "SELECT fence, name, token, expires_us FROM locks WHERE name >= ?1 AND expires_us > ?3 AND"
                           " length(name) < 256 AND length(token) < 128 ORDER BY name LIMIT 1";

struct sqlite_conn {
    struct sqlite_conn *next;
    sqlite3 *db; /* NULL: the next operation opens it */
    char path[PATH_MAX];
    char name[256], token[DLOCK_TOKEN_MAX + 1]; /* of the holder that `find` saw last */
    struct dlock_info info;
};

/* A child's copy of SQLite would take its parent's locks for its own: a fork() first closes all that are in a list. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list and of SQLite; nobody waits with it */
static struct sqlite_conn *connections;
static char start_folder[PATH_MAX]; /* of relative paths, wherever chdir() goes later */

static void close_database(struct sqlite_conn *c) {
    struct sqlite_conn **at = &connections;
    while (*at && *at != c) at = &(*at)->next;
    if (*at) *at = c->next;
    sqlite3_close(c->db);
    c->db = NULL;
}

static void before_fork(void) {
    pthread_mutex_lock(&mutex);
    while (connections) close_database(connections);
}

static void after_fork(void) {
    pthread_mutex_unlock(&mutex);
}

__attribute__((constructor)) static void start(void) {
    if (pthread_atfork(before_fork, after_fork, after_fork) != 0 || !getcwd(start_folder, sizeof start_folder))
        start_folder[0] = '\0';
}

static int64_t clock_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Runs a statement; the claim's result is 0 if it found a row. All down here return SQLite's codes. */
static int apply(struct sqlite_conn *c, const char *sql, struct dlock_claim *claim, int64_t now_us) {
    sqlite3_stmt *s;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    if (rc != SQLITE_OK) return rc;
    sqlite3_bind_blob(s, 1, claim->name, (int)strlen(claim->name), SQLITE_STATIC);
    sqlite3_bind_text(s, 2, claim->token, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, now_us);
    sqlite3_bind_int64(s, 4, now_us + claim->lease_ms * 1000);
    claim->result = sqlite3_step(s) == SQLITE_ROW ? 0 : DLOCK_ELOST;
    claim->fence = claim->result == 0 ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
    claim->server_us = now_us;
    if (claim->result == 0 && sql == find) {
        const char *name = sqlite3_column_blob(s, 1);
        snprintf(c->name, sizeof c->name, "%.*s", sqlite3_column_bytes(s, 1), name ? name : "");
        snprintf(c->token, sizeof c->token, "%s", (const char *)sqlite3_column_text(s, 2));
        c->info = (struct dlock_info){.name = c->name, .token = c->token, .limit = 1, .fence = claim->fence};
        c->info.remaining_ms = (sqlite3_column_int64(s, 3) - now_us) / 1000;
    }
    return sqlite3_finalize(s);
}

static int try_once(struct sqlite_conn *c, const char *sql, struct dlock_claim *const *claims, size_t n,
                    struct dlock_error *err) {
    bool reads = sql == acquire || sql == find; /* at first: a waiter that is stopped stops nobody */
    int rc = SQLITE_OK, moved = 0, flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (c->db) sqlite3_file_control(c->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (moved) close_database(c); /* deleted or replaced: what is there now counts, as it does for others */
    if (!c->db) {
        c->next = connections;
        connections = c;
        rc = sqlite3_open_v2(c->path, &c->db, flags, NULL);
        if (rc == SQLITE_OK) rc = sqlite3_exec(c->db, setup, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) rc = sqlite3_exec(c->db, reads ? "BEGIN" : "BEGIN IMMEDIATE", NULL, NULL, NULL);
    int64_t now_us = clock_us(CLOCK_REALTIME);
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++) {
        if (sql == acquire) rc = apply(c, other, claims[i], now_us);
        if (rc == SQLITE_OK && sql == acquire && claims[i]->mode != DLOCK_EXCLUSIVE)
            claims[i]->result = dlock_fail(err, DLOCK_ENOTSUP, "sqlite: there are no readers and no permits");
        else if (rc == SQLITE_OK && sql == acquire && claims[i]->result == 0)
            claims[i]->result = DLOCK_EBUSY;
        else if (rc == SQLITE_OK)
            rc = apply(c, sql, claims[i], now_us);
    }
    return rc == SQLITE_OK ? sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL) : rc;
}

/* One transaction; again and again while other processes write, until the time is over. */
static int transact(struct sqlite_conn *c, const char *sql, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                    struct dlock_error *err) {
    for (int64_t end_us = clock_us(CLOCK_MONOTONIC) + timeout_ms * INT64_C(1000);; usleep(2000)) {
        pthread_mutex_lock(&mutex);
        int rc = try_once(c, sql, claims, n, err), code = DLOCK_EPROTO; /* not a database, not ours, damaged */
        bool again = rc == SQLITE_BUSY && clock_us(CLOCK_MONOTONIC) + 2000 < end_us;
        if (rc == SQLITE_READONLY || (rc == SQLITE_CANTOPEN && sqlite3_system_errno(c->db) == EACCES))
            code = DLOCK_EAUTH;
        else if (rc == SQLITE_BUSY || rc == SQLITE_CANTOPEN || rc == SQLITE_IOERR || rc == SQLITE_FULL)
            code = rc == SQLITE_FULL ? DLOCK_ENOMEM : DLOCK_EUNAVAILABLE;
        if (rc != SQLITE_OK && !again) dlock_fail(err, code, "sqlite: %.300s: %.150s", c->path, sqlite3_errmsg(c->db));
        if (rc != SQLITE_OK) close_database(c); /* and with it the transaction */
        pthread_mutex_unlock(&mutex);
        if (!again) return rc == SQLITE_OK ? 0 : code;
    }
}

#define OPERATION(sql)                                                                                               \
    static int sqlite_##sql(void *c, struct dlock_claim *const *claims, size_t n, int ms, struct dlock_error *err) { \
        return transact(c, sql, claims, n, ms, err);                                                                 \
    }
OPERATION(acquire)
OPERATION(renew)
OPERATION(release)

/* A page is one holder, so that no transaction is open while `each` runs. */
static int sqlite_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int ms,
                       struct dlock_error *err) {
    char from[258]; /* the first name that may follow the cursor, since none has control characters */
    snprintf(from, sizeof from, "%s%s", *cursor ? cursor : prefix, *cursor ? "\1" : "");
    struct dlock_claim claim = {.name = from, .token = ""}, *const claims[] = {&claim};
    struct sqlite_conn *c = conn;
    int rc = transact(c, find, claims, 1, ms, err);
    if (rc != 0 || claim.result != 0 || strncmp(c->name, prefix, strlen(prefix)) != 0) return rc;
    strcpy(cursor, c->name);
    return each(&c->info, arg) == 0;
}

static int sqlite_inspect(void *conn, const char *name, dlock_each each, void *arg, int ms, struct dlock_error *err) {
    struct dlock_claim claim = {.name = name, .token = ""}, *const claims[] = {&claim};
    struct sqlite_conn *c = conn;
    int rc = transact(c, find, claims, 1, ms, err);
    if (rc == 0 && claim.result == 0 && strcmp(c->name, name) == 0) each(&c->info, arg);
    return rc;
}

static int sqlite_break(void *c, const char *name, int ms, struct dlock_error *err) {
    struct dlock_claim claim = {.name = name, .token = ""}, *const claims[] = {&claim};
    int rc = transact(c, take_away, claims, 1, ms, err);
    return rc == 0 && claim.result != 0 ? dlock_fail(err, claim.result, "sqlite: nobody has that lock") : rc;
}

static int sqlite_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int ms,
                          struct dlock_error *err) {
    struct sqlite_conn *c = conn;
    bool whole = uri->path && uri->path[0] == '/';
    (void)peer;
    if (!start_folder[0]) return dlock_fail(err, DLOCK_ENOMEM, "sqlite: no working folder, or no memory");
    if (!uri->path || uri->n_hosts || uri->user || uri->password ||
        strlen(uri->path) + strlen(start_folder) >= PATH_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "sqlite: write sqlite:/path/to/database, or sqlite:and/its/path");
    snprintf(c->path, sizeof c->path, "%s%s%s", whole ? "" : start_folder, whole ? "" : "/", uri->path);
    return transact(c, renew, NULL, 0, ms, err);
}

static void sqlite_disconnect(void *conn) {
    pthread_mutex_lock(&mutex);
    close_database(conn);
    pthread_mutex_unlock(&mutex);
}

DLOCK_BACKEND(sqlite) = {.abi = DLOCK_ABI,
                         .size = sizeof(struct dlock_backend),
                         .name = "sqlite",
                         .schemes = (const char *const[]){"sqlite", NULL},
                         .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST |
                                 DLOCK_CAP_BREAK | DLOCK_CAP_LOCAL,
                         .conn_size = sizeof(struct sqlite_conn),
                         .connect = sqlite_connect,
                         .disconnect = sqlite_disconnect,
                         .acquire = sqlite_acquire,
                         .renew = sqlite_renew,
                         .release = sqlite_release,
                         .inspect = sqlite_inspect,
                         .list = sqlite_list,
                         .break_lock = sqlite_break}; /* no abandon: when a child begins, everything is closed */
