/* Requests that are repeated when other sessions interfere, and the objects in the database, created on first use. */
#include "maria.h"

#include <stdlib.h>

enum { NO_ROW = 1032, NO_TABLE = 1146, NO_SEQUENCE = 4091 };

/* Rolls back after an error that may have left a transaction open: a deadlock has ended it, a time-out only the
 * statement. Keeps the text. */
static int roll_back(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    char *text = maria->text;
    size_t used = maria->used, size = maria->size;
    maria->text = NULL;
    maria->used = maria->size = 0;
    maria_say(maria, "ROLLBACK");
    int rc = maria_ask(maria, deadline_us, err);
    if (rc != 0 && maria_is_late(maria)) maria_hang_up(maria); /* it must not read the text, which is freed now */
    free(maria->text);
    maria->text = text;
    maria->used = used;
    maria->size = size;
    return rc;
}

int maria_call(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    for (;;) {
        struct dlock_error why, why_not_undone;
        int rc = maria_ask(maria, deadline_us, &why);
        if (rc == 0) return 0;
        unsigned error = maria->error;
        int undone = error ? roll_back(maria, deadline_us, &why_not_undone) : 0;
        if (undone == 0 && maria_passes(error) && dlock_now_us() < deadline_us) continue;
        maria->error = undone == 0 ? error : 0; /* a transaction that is still open ends the connection */
        if (err) *err = undone == 0 ? why : why_not_undone;
        return undone == 0 ? rc : undone;
    }
}

bool maria_lacks_objects(const struct maria *maria) {
    return maria->error == NO_TABLE || maria->error == NO_SEQUENCE;
}

static void say_create_sequence(struct maria *maria, const char *what, int64_t first) {
    maria_say(maria,
              "CREATE %s dlock_fence_sequence START WITH %lld MINVALUE 1 MAXVALUE %lld CACHE 1000 ENGINE = InnoDB",
              what, (long long)first, (long long)MARIA_FENCE_END - 1);
}

int maria_make_objects(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    if (!maria->sessions || maria->peer->quarantine_ms > 0) maria_say(maria, "%s", maria->script);
    if (maria->sessions && maria->has_sequence)
        say_create_sequence(maria, "SEQUENCE IF NOT EXISTS", 1);
    else if (maria->sessions)
        maria_say(maria, "CREATE TABLE IF NOT EXISTS dlock_fences (slot SMALLINT NOT NULL PRIMARY KEY, "
                         "fence BIGINT NOT NULL) ENGINE = InnoDB");
    int rc = maria_ask(maria, deadline_us, err);
    if (rc == DLOCK_EAUTH)
        rc = dlock_fail(err, rc,
                        "MySQL at %s has no objects of dlock's in this database, and this user may not make "
                        "them: its DBA has to run %s",
                        maria->where,
                        maria->sessions
                            ? "what `dlock schema mysql` prints, and the statement for mode=session in dlock's "
                              "docs/servers/mysql.md"
                            : "what `dlock schema mysql` prints");
    return rc;
}

bool maria_lacks_row(const struct maria *maria) {
    return maria->error == NO_ROW && maria->sessions && maria->has_sequence;
}

/* Replaces the sequence, unless drawing a number works: then another session has replaced it, and fences were drawn
 * from the new one. */
static int replace_unless_mended(struct maria *maria, int64_t clock_us, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    maria_say(maria, "DO NEXTVAL(dlock_fence_sequence)");
    int rc = maria_ask(maria, deadline_us, err);
    if (rc == 0 || !maria_lacks_row(maria)) return rc;
    maria_begin(maria);
    say_create_sequence(maria, "OR REPLACE SEQUENCE", clock_us);
    rc = maria_ask(maria, deadline_us, err);
    if (rc == DLOCK_EAUTH)
        rc = dlock_fail(err, rc,
                        "MySQL at %s has an empty dlock_fence_sequence in this database, and this user may not replace "
                        "it: its DBA has to run DROP SEQUENCE dlock_fence_sequence, and the statement for mode=session "
                        "in dlock's docs/servers/mysql.md",
                        maria->where);
    return rc;
}

/* Lets one session at a time do so, under a user lock whose name differs from those of all dlock locks, which are
 * hashes. */
int maria_replace_sequence(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    int64_t is_mine = 0, clock_us = 0;
    maria_begin(maria);
    maria_say(maria, "SELECT GET_LOCK('dlock_fence_sequence', 1), " MARIA_NOW_US);
    int rc = maria_ask(maria, deadline_us, err);
    if (rc != 0) return rc;
    const struct maria_value *row = maria_row(maria, 0, 2);
    if (!row || !maria_number(&row[0], &is_mine) || !maria_number(&row[1], &clock_us) || clock_us <= 0 ||
        clock_us >= MARIA_FENCE_END)
        return maria_nonsense(maria, "the time of its clock", err);
    if (!is_mine) return 0; /* another session is replacing it */
    rc = replace_unless_mended(maria, clock_us, deadline_us, err);
    if (rc != 0 && maria_is_late(maria)) return rc; /* the session ends, and with it the user lock */
    maria_begin(maria);
    maria_say(maria, "DO RELEASE_LOCK('dlock_fence_sequence')");
    int released = maria_ask(maria, deadline_us, rc == 0 ? err : NULL);
    return rc == 0 ? released : rc;
}
