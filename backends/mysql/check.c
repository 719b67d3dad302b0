/* The `check` operation: how this server's settings strengthen or weaken locks. */
#include "maria.h"

#include <stdlib.h>

#include <time.h>

/* Variables, and status values; MySQL 8 has new names for those of semi-synchronous replication. */
enum {
    FLUSH,
    LOG_BIN,
    SYNC_BINLOG,
    DOUBLEWRITE,
    METHOD,
    FORMAT,
    MOST,
    SEMI_SYNC,
    NEW_SEMI_SYNC,
    VARIABLES,
    USED = VARIABLES,
    REPLICAS,
    REPLICATES,
    CONFIRMING,
    NEW_CONFIRMING,
    CONFIRMED,
    NEW_CONFIRMED,
    NOT_AFTER,
    FACTS
};

static const char *const names[FACTS] = {
    [FLUSH] = "innodb_flush_log_at_trx_commit",
    [LOG_BIN] = "log_bin",
    [SYNC_BINLOG] = "sync_binlog",
    [DOUBLEWRITE] = "innodb_doublewrite",
    [METHOD] = "innodb_flush_method",
    [FORMAT] = "binlog_format",
    [MOST] = "max_connections",
    [SEMI_SYNC] = "rpl_semi_sync_master_enabled",
    [NEW_SEMI_SYNC] = "rpl_semi_sync_source_enabled",
    [USED] = "Threads_connected",
    [REPLICAS] = "Slaves_connected",
    [REPLICATES] = "Slave_running",
    [CONFIRMING] = "Rpl_semi_sync_master_clients",
    [NEW_CONFIRMING] = "Rpl_semi_sync_source_clients",
    [CONFIRMED] = "Rpl_semi_sync_master_status",
    [NEW_CONFIRMED] = "Rpl_semi_sync_source_status",
    [NOT_AFTER] = "Ssl_server_not_after",
};

struct fact {
    char value[64]; /* "": unknown */
};

static void say_names(struct maria *maria, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) maria_say(maria, "%s'%s'", i > from ? ", " : "", names[i]);
}

static void learn(struct maria *maria, size_t answer, struct fact *facts) {
    char name[128], value[64];
    for (const struct maria_value *row; (row = maria_row(maria, answer, 2));) {
        if (!maria_bytes(&row[0], 1, name, sizeof name) || !maria_bytes(&row[1], 0, value, sizeof value)) continue;
        for (size_t i = 0; i < FACTS; i++)
            if (strcasecmp(name, names[i]) == 0) memcpy(facts[i].value, value, sizeof value);
    }
}

static bool says(const struct fact *fact, const char *value) {
    return strcasecmp(fact->value, value) == 0;
}

/* Completes a finding about lost data. Returns whether the quarantine covers the loss. */
static bool is_covered(const struct maria *maria, char text[96]) {
    char time[32];
    if (maria->peer->quarantine_ms > 0)
        snprintf(text, 96, "a quarantine of %s covers what is lost",
                 dlock_duration_text(time, maria->peer->quarantine_ms));
    else
        snprintf(text, 96, "no quarantine");
    return maria->peer->quarantine_ms > 0;
}

static void check_durability(struct dlock_report *report, const struct maria *maria, const struct fact *facts) {
    char covered[96];
    const bool logs = says(&facts[LOG_BIN], "ON");
    const bool flushed = says(&facts[FLUSH], "1"), synced = !logs || says(&facts[SYNC_BINLOG], "1");
    const bool is_fine = is_covered(maria, covered) || (flushed && synced);
    if (maria->sessions) {
        dlock_find(report, maria->peer->quarantine_ms > 0 ? NULL : "remove quarantine=0 from the URI",
                   "mode=session: a restart ends every session, and each lock with it; %s", covered);
        return;
    }
    dlock_find(report,
               is_fine
                   ? NULL
                   : "a crash forgets the last grants, and others get them: set innodb_flush_log_at_trx_commit=1 and "
                     "sync_binlog=1, or remove quarantine=0 from the URI",
               "innodb_flush_log_at_trx_commit=%s%s%s: %s%s", *facts[FLUSH].value ? facts[FLUSH].value : "unknown",
               logs ? ", sync_binlog=" : "", logs ? facts[SYNC_BINLOG].value : "",
               flushed && synced ? "a grant is on disk before it is confirmed" : "a crash forgets the last grants; ",
               flushed && synced ? "" : covered);
    if (says(&facts[DOUBLEWRITE], "OFF") || says(&facts[DOUBLEWRITE], "DETECT_ONLY"))
        dlock_find(report, "a power failure may destroy the table: set innodb_doublewrite=ON", "innodb_doublewrite=%s",
                   facts[DOUBLEWRITE].value);
    if (says(&facts[METHOD], "nosync") || says(&facts[METHOD], "littlesync"))
        dlock_find(report, "a power failure may destroy the table: set innodb_flush_method=fsync or O_DIRECT",
                   "innodb_flush_method=%s", facts[METHOD].value);
}

/* A server that has a binary log refuses to write rows in dlock's sessions if it logs statements. */
static void check_log(struct dlock_report *report, const struct fact *facts) {
    if (says(&facts[LOG_BIN], "ON") && says(&facts[FORMAT], "STATEMENT"))
        dlock_find(report, "no lock can be taken: set binlog_format=ROW or MIXED", "binlog_format=STATEMENT");
}

static void check_replicas(struct dlock_report *report, const struct maria *maria, const struct fact *facts) {
    char covered[96];
    const bool semi = says(&facts[SEMI_SYNC], "ON") || says(&facts[NEW_SEMI_SYNC], "ON");
    const bool confirmed = says(&facts[CONFIRMED], "ON") || says(&facts[NEW_CONFIRMED], "ON");
    const long long confirming =
                        strtoll(facts[CONFIRMING].value, NULL, 10) + strtoll(facts[NEW_CONFIRMING].value, NULL, 10),
                    counted = strtoll(facts[REPLICAS].value, NULL, 10),
                    replicas = counted > confirming ? counted : confirming;
    const bool waits = semi && confirmed && confirming > 0;
    const bool is_fine = is_covered(maria, covered) || (waits && confirming == replicas);
    if (semi && !waits)
        dlock_find(report,
                   "a failover forgets what this server has not sent: look why no replica confirms "
                   "(rpl_semi_sync_*_enabled there), and for the time-out",
                   "semi-synchronous replication is on, but no replica confirms: it is asynchronous now");
    if (replicas > 0)
        dlock_find(report,
                   is_fine ? NULL
                           : "a failover to an asynchronous replica forgets the last grants: remove quarantine=0 from "
                             "the URI, or let all replicas be semi-synchronous, and wait for one lease before you "
                             "promote one",
                   "%lld replica%s, %lld semi-synchronous; %s", replicas, replicas == 1 ? "" : "s",
                   waits ? confirming : 0, covered);
    else
        dlock_find(report, NULL, "no replica is %s (binary log %s)", *facts[REPLICAS].value ? "connected" : "known of",
                   says(&facts[LOG_BIN], "ON") ? "on" : "off");
    if (says(&facts[REPLICATES], "ON"))
        dlock_find(report, "set read_only=ON on every server but the primary: else clients may take locks on two",
                   "this server replicates another one, and takes writes (read_only=OFF)");
}

static void check_connections(struct dlock_report *report, const struct maria *maria, const struct fact *facts) {
    long long used = strtoll(facts[USED].value, NULL, 10), most = strtoll(facts[MOST].value, NULL, 10);
    if (most > 0)
        dlock_find(report, used > most / 10 * 9 ? "without a connection no lock is taken: raise max_connections" : NULL,
                   "connections: %lld of %lld%s", used, most,
                   maria->sessions ? "; each lock and each waiter needs one" : "");
}

/* Reports the storage engine of existing objects; without objects the answer has no row. */
static void check_objects(struct maria *maria, struct dlock_report *report, size_t answer) {
    char engine[64] = "";
    const struct maria_value *row = maria_row(maria, answer, 1);
    if (!row || !maria_bytes(&row[0], 1, engine, sizeof engine))
        dlock_find(report, NULL, "dlock's objects are not there yet: the first lock makes them");
    else
        dlock_find(report,
                   strcasecmp(engine, "InnoDB") == 0 ? NULL
                                                     : "only InnoDB keeps a grant: ALTER TABLE … ENGINE = InnoDB",
                   "dlock's objects are there, in %.60s", engine);
}

/* Reads "Nov 28 09:12:04 2026 GMT", as the server says when its certificate ends. Returns the days that are left, and
 * writes the date; -1: it is no date. */
static int days_left(const char *text, char date[32]) {
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char month[4];
    struct tm end = {0};
    int year;
    const char *at;
    if (sscanf(text, "%3s %d %d:%d:%d %d", month, &end.tm_mday, &end.tm_hour, &end.tm_min, &end.tm_sec, &year) != 6 ||
        strlen(month) != 3 || !(at = strstr(months, month)) || end.tm_mday < 1 || end.tm_mday > 31 || year < 1970 ||
        year > 9999)
        return -1;
    end.tm_mon = (int)(at - months) / 3;
    end.tm_year = year - 1900;
    strftime(date, 32, "%Y-%m-%d", &end);
    const double left_s = difftime(timegm(&end), time(NULL));
    return left_s > 0 ? (int)(left_s / 86400) : 0;
}

static void check_tls(struct dlock_report *report, const struct maria *maria, const struct fact *facts) {
    enum { SOON_DAYS = 14 };
    const char *version = "";
    char date[32];
    if (!maria->tls) return;
    mariadb_get_infov(maria->link, MARIADB_CONNECTION_TLS_VERSION, &version);
    if (!version) version = "TLS";
    const int days = days_left(facts[NOT_AFTER].value, date);
    if (maria->insecure)
        dlock_find(report, "anybody on the network path can pose as the server: set ca= in place of insecure=on",
                   "%.20s, and any certificate is accepted", version);
    else if (days < 0)
        dlock_find(report, NULL, "%.20s, the certificate is verified", version);
    else
        dlock_find(report, days < SOON_DAYS ? "replace it: once it has expired no connection can be made" : NULL,
                   "%.20s, the certificate is verified, and expires on %s", version, date);
}

/* Tries the rights with a statement that writes no row. Without the table the first lock shows them. */
static void check_rights(struct dlock_report *report, struct maria *maria, int64_t deadline_us) {
    struct dlock_error err;
    if (maria->sessions && maria->peer->quarantine_ms <= 0) return;
    maria_begin(maria);
    maria_say(maria, "INSERT INTO dlock_locks (name, token, fence, until_us) "
                     "SELECT name, token, fence, until_us FROM dlock_locks WHERE FALSE "
                     "ON DUPLICATE KEY UPDATE fence = VALUES(fence)");
    if (!maria->sessions)
        maria_say(maria, "; INSERT INTO dlock_claims SELECT * FROM dlock_claims WHERE FALSE "
                         "ON DUPLICATE KEY UPDATE until_us = VALUES(until_us); DELETE FROM dlock_claims WHERE FALSE");
    int rc = maria_call(maria, deadline_us, &err);
    if (rc == DLOCK_EAUTH)
        dlock_find(report, "no lock can be taken: see the GRANTs at the end of what `dlock schema mysql` prints",
                   "this user lacks a right to dlock_locks or dlock_claims: %.180s", err.message);
}

int maria_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    enum { OF_VARIABLES, OF_STATUS, OF_OBJECTS, ANSWERS };
    struct maria *maria = conn;
    struct dlock_report report = {each, arg, false};
    struct fact facts[FACTS] = {0};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    maria_begin(maria);
    maria_say(maria, "SHOW GLOBAL VARIABLES WHERE Variable_name IN (");
    say_names(maria, 0, VARIABLES);
    maria_say(maria, "); SHOW GLOBAL STATUS WHERE Variable_name IN (");
    say_names(maria, VARIABLES, FACTS);
    maria_say(maria,
              "); SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '%s'",
              !maria->sessions      ? "dlock_locks"
              : maria->has_sequence ? "dlock_fence_sequence"
                                    : "dlock_fences");
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    if (maria->n_answers != ANSWERS) return maria_nonsense(maria, "the results of a check", err);
    learn(maria, OF_VARIABLES, facts);
    learn(maria, OF_STATUS, facts);
    dlock_find(&report, NULL, "%s %.60s", mariadb_connection(maria->link) ? "MariaDB" : "MySQL",
               mysql_get_server_info(maria->link));
    dlock_find(&report, NULL, "one server that takes writes: no Galera, no group with several primaries");
    check_tls(&report, maria, facts);
    check_objects(maria, &report, OF_OBJECTS);
    check_rights(&report, maria, deadline_us);
    if (maria_quarantine_left_ms(maria)) dlock_find_not_ready(&report, maria_quarantine_left_ms(maria));
    check_durability(&report, maria, facts);
    check_log(&report, facts);
    check_replicas(&report, maria, facts);
    check_connections(&report, maria, facts);
    return 0;
}
