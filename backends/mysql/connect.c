/* Connecting: tries the addresses in order, each with an equal share of the time left. */
#include "maria.h"

#include <fcntl.h>

enum { DEFAULT_PORT = 3306, OLDEST_MYSQL = 50700, OLDEST_MARIADB = 100200 };

/* The authentication methods that prove a password without giving it away. With others libmariadb would send it as it
 * is, or ask at the terminal. */
#define PROOFS "mysql_native_password,client_ed25519"

/* Over TLS, and to a socket of this machine, caching_sha2_password is allowed as well, which sends the password itself
 * if the server requests it. Over TCP without TLS libmariadb would encrypt it with a key sent by the unverified peer.
 * (MYSQL_SERVER_PUBLIC_KEY does not help: where libmariadb cannot read that file, as some versions (3.4.1) never can,
 * it requests a key anyway.) There the login begins with an allowed method, not with the server's default, which since
 * MySQL 8.0 is caching_sha2_password; the server then names that of the account. */
static int set_methods(MYSQL *link, bool confidential) {
    if (confidential) return mysql_options(link, MARIADB_OPT_RESTRICTED_AUTH, PROOFS ",caching_sha2_password");
    return mysql_options(link, MARIADB_OPT_RESTRICTED_AUTH, PROOFS) ||
           mysql_options(link, MYSQL_DEFAULT_AUTH, "mysql_native_password");
}

static int set_options(struct maria *maria) {
    const my_bool no = 0;
    const unsigned files = 0;
    MYSQL *link = maria->link;
    return mysql_options(link, MYSQL_OPT_NONBLOCK, NULL) || mysql_options(link, MYSQL_OPT_RECONNECT, &no) ||
           mysql_options(link, MYSQL_OPT_LOCAL_INFILE, &files) || set_methods(link, maria->confidential) ||
           mysql_options(link, MYSQL_SET_CHARSET_NAME, "utf8mb4") || !maria_set_version(maria) ||
           maria_set_limits(maria);
}

static void name_server(struct maria *maria, const struct dlock_host *host) {
    if (*host->host == '/')
        snprintf(maria->where, sizeof maria->where, "%.150s", host->host);
    else
        snprintf(maria->where, sizeof maria->where, strchr(host->address, ':') ? "[%.90s]:%d" : "%.90s:%d",
                 host->address, host->port ? host->port : DEFAULT_PORT);
}

static bool is_connected(int fd) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &size) == 0;
}

static int shake_hands(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                       int64_t deadline_us, struct dlock_error *err) {
    bool local = *host->host == '/';
    unsigned port = local ? 0 : (unsigned)(host->port ? host->port : DEFAULT_PORT);
    maria->step = MARIA_CONNECT;
    maria->connected = NULL;
    maria->deadline_us = deadline_us;
    snprintf(maria->handshake.host, sizeof maria->handshake.host, "%s", local ? "" : host->address);
    maria_tls_begin(maria, deadline_us);
    maria->waits = mysql_real_connect_start(&maria->connected, maria->link, local ? NULL : maria->handshake.host,
                                            uri->user, uri->password ? uri->password : "", uri->path + 1, port,
                                            local ? host->host : NULL, CLIENT_MULTI_STATEMENTS | CLIENT_FOUND_ROWS);
    int fd = (int)mysql_get_socket(maria->link);
    maria->fd = fd + 1;
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (maria->waits) maria_tls_name(maria, uri, host);
    int in_time = maria_go_on(maria, deadline_us);
    maria_tls_end();
    if (!in_time) {
        int rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to MySQL at %s: no answer in time", maria->where);
        if (is_connected((int)mysql_get_socket(maria->link))) dlock_doubt(err, "MySQL");
        return rc;
    }
    maria->step = MARIA_IDLE;
    maria_forget_version(maria);
    if (!maria->connected && maria->tls && maria_tls_failed(maria)) return maria_tls_rejected(maria, uri, host, err);
    if (!maria->connected) return maria_rejected(maria, err);
    if (!local) dlock_tune_tcp((int)mysql_get_socket(maria->link));
    return maria_tls_proved(maria, uri, host, err);
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

static bool is_on(const char *value) {
    return strcasecmp(value, "ON") == 0 || strcmp(value, "1") == 0 || strcasecmp(value, "YES") == 0;
}

/* Adds a variable to those that identify the server: it is the sum of their hashes. */
static void identify(uint64_t *server, const char *name, const char *value) {
    *server += dlock_hash(value, strlen(value), dlock_hash(name, strlen(name) + 1, DLOCK_HASH_SEED));
}

static int judge(struct maria *maria, const char *name, const char *value, struct dlock_error *err) {
    if (strcmp(name, "wsrep_on") == 0 && is_on(value))
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "MySQL at %s is a node of a Galera cluster, which learns at the commit, or never (GET_LOCK), "
                          "what another node has granted: use a single primary",
                          maria->where);
    if (strcmp(name, "group_replication_single_primary_mode") == 0 && !is_on(value))
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "MySQL at %s is a member of a group with several primaries, which learn at the commit, or "
                          "never (GET_LOCK), what another one has granted: use a single primary",
                          maria->where);
    if (strcmp(name, "read_only") == 0 || strcmp(name, "innodb_read_only") == 0)
        return maria_writable(maria, value, err);
    return 0;
}

#define IDENTITY "'server_uuid', 'server_id', 'hostname', 'port', 'datadir'"
#define JUDGED "'read_only', 'innodb_read_only', 'wsrep_on', 'group_replication_single_primary_mode'"

static int judge_all(struct maria *maria, size_t answer, uint64_t *server, struct dlock_error *err) {
    char name[128], value[1024];
    for (const struct maria_value *row; (row = maria_row(maria, answer, 2));) {
        if (!maria_bytes(&row[0], 1, name, sizeof name) || !maria_bytes(&row[1], 0, value, sizeof value))
            return maria_nonsense(maria, "the value of a variable", err);
        int rc = judge(maria, name, value, err);
        if (rc != 0) return rc;
        if (strstr(IDENTITY, name)) identify(server, name, value);
    }
    return 0;
}

/* Determines the second in which the server was started. Returns 0, 1 (the clock reached the next second between the
 * two answers: try again), or EPROTO. */
static int learn_start(struct maria *maria, size_t clock, size_t status, uint64_t server, struct dlock_error *err) {
    char name[64], value[64];
    int64_t now_s, uptime_s = -1;
    const struct maria_value *row = maria_row(maria, clock, 1);
    if (!row || !maria_number(&row[0], &now_s)) return maria_nonsense(maria, "the time of its clock", err);
    while ((row = maria_row(maria, status, 2))) {
        if (!maria_bytes(&row[0], 1, name, sizeof name) || !maria_bytes(&row[1], 0, value, sizeof value))
            return maria_nonsense(maria, "the value of a status", err);
        if (strcasecmp(name, "Slave_running") == 0) maria->incarnation.replicates = is_on(value);
        if (strcasecmp(name, "Uptime") == 0 && !maria_number(&row[1], &uptime_s))
            return maria_nonsense(maria, "the time since its start", err);
    }
    if (uptime_s < 0) return maria_nonsense(maria, "no time since its start", err);
    if (maria->session.clock_us / 1000000 != now_s) return 1;
    maria->incarnation.started_s = now_s - uptime_s;
    snprintf(maria->incarnation.self, sizeof maria->incarnation.self, "%016llx %lld", (unsigned long long)server,
             (long long)maria->incarnation.started_s);
    return 0;
}

static int read_clock(struct maria *maria, size_t answer, struct dlock_error *err) {
    const struct maria_value *row = maria_row(maria, answer, 1);
    if (row && maria_number(&row[0], &maria->session.clock_us) && maria->session.clock_us > 0 &&
        maria->session.clock_us < MARIA_FENCE_END)
        return 0;
    return maria_nonsense(maria, "the time of its clock", err);
}

/* Sets the session's variables, whatever the server's defaults are. READ COMMITTED takes no locks on the gaps between
 * rows. In UTC no hour comes twice. A statement waits for a row for one second at most, and is repeated until the
 * caller's deadline. After a COMMIT that begins another transaction (completion_type) no later grant would be
 * committed. With a sql_select_limit the answer to an acquire would lack the rows of some grants. */
static int set_session(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    enum { SETTINGS, ISOLATION, VARIABLES, SECONDS, STATUS, CLOCK };
    int rc;
    do {
        const int64_t asked_us = dlock_now_us();
        uint64_t server = 0;
        maria_begin(maria);
        maria_say(maria,
                  "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
                  "autocommit = 1, completion_type = 'NO_CHAIN', sql_select_limit = 18446744073709551615, "
                  "sql_big_selects = 1, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, wait_timeout = %d; "
                  "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; "
                  "SHOW GLOBAL VARIABLES WHERE Variable_name IN (" JUDGED ", " IDENTITY "); "
                  "SELECT UNIX_TIMESTAMP(); "
                  "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Slave_running'); "
                  "SELECT " MARIA_NOW_US,
                  MARIA_IDLE_S);
        rc = maria_ask(maria, deadline_us, err);
        if (rc == 0) rc = judge_all(maria, VARIABLES, &server, err);
        if (rc == 0) rc = read_clock(maria, CLOCK, err);
        if (rc == 0) maria->ahead_us = maria->session.clock_us - asked_us;
        if (rc == 0) rc = learn_start(maria, SECONDS, STATUS, server, err);
    } while (rc == 1);
    if (rc == 0) maria->session.idle_s = MARIA_IDLE_S;
    return rc;
}

static int check_version(struct maria *maria, struct dlock_error *err) {
    unsigned long version = mysql_get_server_version(maria->link);
    bool mariadb = mariadb_connection(maria->link);
    maria->has_sequence = mariadb && version >= 100300;
    if (version >= (mariadb ? OLDEST_MARIADB : OLDEST_MYSQL)) return 0;
    return dlock_fail(err, DLOCK_ENOTSUP, "MySQL at %s is %.60s: dlock needs MySQL 5.7 or MariaDB 10.2", maria->where,
                      mysql_get_server_info(maria->link));
}

static int connect_one(struct maria *maria, const struct dlock_uri *uri, const struct dlock_host *host,
                       int64_t deadline_us, struct dlock_error *err) {
    name_server(maria, host);
    maria->confidential = maria->tls || *host->host == '/';
    maria_begin_library();
    maria->link = mysql_init(NULL);
    if (!maria->link || set_options(maria)) return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    int rc = maria->tls ? maria_set_tls(maria, uri, host, err) : 0;
    if (rc == 0) rc = shake_hands(maria, uri, host, deadline_us, err);
    if (rc == 0) rc = check_version(maria, err);
    if (rc == 0) rc = set_session(maria, deadline_us, err);
    return rc;
}

int maria_connect_link(struct maria *maria, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < uri->n_hosts && rc == DLOCK_EUNAVAILABLE; i++) {
        int64_t now = dlock_now_us(), share = (deadline_us - now) / (int64_t)(uri->n_hosts - i);
        maria_hang_up(maria);
        rc = connect_one(maria, uri, &uri->hosts[i], now + share, err);
    }
    if (rc != 0) maria_hang_up(maria); /* an unfinished call would read the URI, which is freed after this */
    return rc;
}
