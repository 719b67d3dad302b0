/* The quarantine: nothing is granted until the rows have been this server's, since its start, for that long. The row
 * without a name, the record, says whose they are: since when, and which server that was, since which start. It comes
 * along with the rows: to a replica, out of a backup. So a server that finds another one's there was promoted, or got
 * a copy, and may lack grants. A server that finds its own, but of an earlier start, may have lost grants in a crash. */
#include "maria.h"

#include <inttypes.h>

/* The end of the record's lease, so that nothing deletes it as an old row. */
#define NEVER_US INT64_MAX

/* How often the record is read while others also write it. */
enum { TRIES = 4 };

void maria_say_proof(struct maria *maria) {
    maria_say(maria, "@@GLOBAL.read_only, %s",
              maria->peer->quarantine_ms > 0 ? "(SELECT CONCAT(fence, ' ', token) FROM dlock_locks WHERE name = '')"
                                             : "''");
}

int maria_proved(struct maria *maria, const struct maria_value *proof, struct dlock_error *err) {
    const char *record = maria->incarnation.record;
    int rc = maria_primary(maria, &proof[0], err);
    if (rc != 0 || maria->peer->quarantine_ms <= 0) return rc;
    if (proof[1].bytes && proof[1].length == strlen(record) && memcmp(proof[1].bytes, record, proof[1].length) == 0)
        return 0;
    return maria_dead(maria, "the rows have come from another server since, or lack their record", err);
}

/* True in a server that has never been a replica, as far as its GTIDs tell. */
static const char *never_a_replica(const struct maria *maria) {
    return mariadb_connection(maria->link)
               ? "@@GLOBAL.gtid_slave_pos = ''"
               : "REPLACE(@@GLOBAL.gtid_executed, @@GLOBAL.server_uuid, '') NOT REGEXP '-[0-9a-f]{4}-'";
}

/* Makes the record this server's, unless another client has just done so. A new table has an empty one. If this server
 * has lost any grants, it had done so by the time it started; another server may have made grants until now. A time in
 * the future comes from a clock that was set back. */
static void say_record(struct maria *maria) {
    maria_begin(maria);
    maria_say(maria,
              "INSERT INTO dlock_locks (name, token, fence, until_us) VALUES ('', '%s', " MARIA_NOW_US ", %" PRId64 ") "
              "ON DUPLICATE KEY UPDATE fence = CASE "
              "WHEN token = VALUES(token) THEN LEAST(fence, VALUES(fence)) "
              "WHEN (token = '' AND %s) OR LEFT(token, %d) = LEFT(VALUES(token), %d) "
              "THEN LEAST(GREATEST(fence, %" PRId64 "), VALUES(fence)) "
              "ELSE VALUES(fence) END, token = VALUES(token), until_us = VALUES(until_us)",
              maria->incarnation.self, NEVER_US, never_a_replica(maria), MARIA_SERVER, MARIA_SERVER,
              maria->incarnation.started_s * 1000000);
}

struct record {
    char self[64]; /* "": it has no owner yet */
    int64_t since_us, now_us;
    bool found;
};

static int read_record(struct maria *maria, struct record *record, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    maria_say(maria, "SELECT token, fence, " MARIA_NOW_US " FROM dlock_locks WHERE name = ''");
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0) return rc;
    const struct maria_value *row = maria_row(maria, 0, 3);
    *record = (struct record){.found = row != NULL};
    if (row && !maria_bytes(&row[0], 0, record->self, sizeof record->self)) snprintf(record->self, 2, "?");
    if (row && (!maria_number(&row[1], &record->since_us) || !maria_number(&row[2], &record->now_us)))
        return maria_nonsense(maria, "whose the rows are", err);
    return 0;
}

static void remember(struct maria *maria, const struct record *record) {
    const int64_t left_us = record->since_us + maria->peer->quarantine_ms * 1000 - record->now_us;
    snprintf(maria->incarnation.record, sizeof maria->incarnation.record, "%" PRId64 " %s", record->since_us,
             record->self);
    maria->incarnation.until_us = left_us > 0 ? dlock_now_us() + left_us : 0;
}

int maria_settle(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    const char *self = maria->incarnation.self;
    struct record record;
    if (maria->peer->quarantine_ms <= 0 || *maria->incarnation.record) return 0;
    for (int i = 0; i < TRIES; i++) {
        int rc = read_record(maria, &record, deadline_us, err);
        if (rc != 0) return rc;
        if (strcmp(record.self, self) == 0 && record.since_us <= record.now_us) {
            remember(maria, &record);
            return 0;
        }
        if (maria->incarnation.replicates && *record.self && strncmp(record.self, self, MARIA_SERVER) != 0)
            return maria_dead(maria, "it replicates the locks of another server: look for the primary", err);
        say_record(maria);
        rc = maria_call(maria, deadline_us, err);
        if (rc != 0) return rc;
    }
    return maria_dead(maria, "several servers claim the rows", err);
}

int64_t maria_quarantine_left_ms(const struct maria *maria) {
    const int64_t until_us = maria->incarnation.until_us, left_us = until_us ? until_us - dlock_now_us() : 0;
    return left_us > 0 ? left_us / 1000 + 1 : 0;
}
