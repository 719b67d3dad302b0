/* The `check` operation: how this server's settings strengthen or weaken locks. */
#include "maria.h"

#include <stdlib.h>

enum { FLUSH, LOG_BIN, SEMI_SYNC, MOST, USED, REPLICAS, FACTS };

struct fact {
    const char *name;
    char value[64]; /* "": unknown */
};

static void learn(struct maria *maria, size_t answer, struct fact *facts) {
    char name[128], value[64];
    for (const struct maria_value *row; (row = maria_row(maria, answer, 2));) {
        if (!maria_bytes(&row[0], 1, name, sizeof name) || !maria_bytes(&row[1], 0, value, sizeof value)) continue;
        for (size_t i = 0; i < FACTS; i++)
            if (strcasecmp(name, facts[i].name) == 0) memcpy(facts[i].value, value, sizeof value);
    }
}

static void check_durability(struct dlock_report *report, const struct maria *maria, const struct fact *facts) {
    const char *flush = facts[FLUSH].value;
    if (maria->sessions) {
        dlock_find(report, NULL, "mode=session: a restart ends every session, and each lock with it");
        return;
    }
    dlock_find(report,
               strcmp(flush, "1") == 0 ? NULL
                                       : "a crash forgets grants of the last second, and others get them: set "
                                         "innodb_flush_log_at_trx_commit=1",
               "innodb_flush_log_at_trx_commit=%s: %s", *flush ? flush : "unknown",
               strcmp(flush, "1") == 0 ? "a grant is on disk before it is confirmed" : "grants are flushed later");
}

static void check_replicas(struct dlock_report *report, const struct fact *facts) {
    long long replicas = strtoll(facts[REPLICAS].value, NULL, 10);
    bool semi = strcasecmp(facts[SEMI_SYNC].value, "ON") == 0;
    if (replicas > 0)
        dlock_find(report,
                   semi ? NULL
                        : "a failover to a replica forgets the last grants: replicate semi-synchronously, and wait for "
                          "one lease before you promote the replica",
                   "%lld replica%s, %ssemi-synchronous", replicas, replicas == 1 ? "" : "s", semi ? "" : "not ");
    else
        dlock_find(report, NULL, "no replica is connected (binary log %s)",
                   strcasecmp(facts[LOG_BIN].value, "ON") == 0 ? "on" : "off");
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

static void check_tls(struct dlock_report *report, const struct maria *maria) {
    const char *version = "";
    if (!maria->tls) return;
    mariadb_get_infov(maria->link, MARIADB_CONNECTION_TLS_VERSION, &version);
    dlock_find(report,
               maria->insecure ? "anybody on the network path can pose as the server: set ca= in place of insecure=on"
                               : NULL,
               maria->insecure ? "%.20s, and any certificate is accepted" : "%.20s, the certificate is verified",
               version ? version : "TLS");
}

int maria_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    enum { VARIABLES, STATUS, OBJECTS, ANSWERS };
    struct maria *maria = conn;
    struct dlock_report report = {each, arg, false};
    struct fact facts[FACTS] = {[FLUSH] = {.name = "innodb_flush_log_at_trx_commit"},
                                [LOG_BIN] = {.name = "log_bin"},
                                [SEMI_SYNC] = {.name = "rpl_semi_sync_master_enabled"},
                                [MOST] = {.name = "max_connections"},
                                [USED] = {.name = "Threads_connected"},
                                [REPLICAS] = {.name = "Slaves_connected"}};
    maria_begin(maria);
    maria_say(maria, "SHOW GLOBAL VARIABLES WHERE Variable_name IN (''");
    for (size_t i = 0; i < FACTS; i++) maria_say(maria, ", '%s'", facts[i].name);
    maria_say(maria, "); SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected'); "
                     "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ");
    const char *object = !maria->sessions      ? "dlock_locks"
                         : maria->has_sequence ? "dlock_fence_sequence"
                                               : "dlock_fences";
    maria_say(maria, "'%s'", object);
    int rc = maria_call(maria, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return rc;
    if (maria->n_answers != ANSWERS) return maria_nonsense(maria, "the results of a check", err);
    learn(maria, VARIABLES, facts);
    learn(maria, STATUS, facts);
    dlock_find(&report, NULL, "%s %.60s", mariadb_connection(maria->link) ? "MariaDB" : "MySQL",
               mysql_get_server_info(maria->link));
    dlock_find(&report, NULL, "one server that takes writes: no Galera, no group with several primaries, no replica");
    check_tls(&report, maria);
    check_objects(maria, &report, OBJECTS);
    check_durability(&report, maria, facts);
    check_replicas(&report, facts);
    check_connections(&report, maria, facts);
    return 0;
}
