/* Requests that others may get in the way of, and the objects in the database, which the first request makes. */
#include "maria.h"

#include <stdlib.h>

enum { NO_TABLE = 1146, NO_SEQUENCE = 4091 };

/* After an error in the middle of a transaction. A deadlock has ended it already, a time-out only the statement. */
static int roll_back(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    char *text = maria->text;
    size_t used = maria->used, size = maria->size;
    maria->text = NULL;
    maria->used = maria->size = 0;
    maria_say(maria, "ROLLBACK");
    int rc = maria_ask(maria, deadline_us, err);
    if (rc != 0 && maria_is_late(maria)) maria_hang_up(maria); /* which reads no text any more */
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
        maria->error = undone == 0 ? error : 0; /* what nobody has undone ends the connection, whatever it was */
        if (err) *err = undone == 0 ? why : why_not_undone;
        return undone == 0 ? rc : undone;
    }
}

bool maria_lacks_objects(const struct maria *maria) {
    return maria->error == NO_TABLE || maria->error == NO_SEQUENCE;
}

int maria_make_objects(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    maria_begin(maria);
    if (!maria->sessions)
        maria_say(maria, "%s", maria->script);
    else if (maria->has_sequence)
        maria_say(maria,
                  "CREATE SEQUENCE IF NOT EXISTS dlock_fence_sequence START WITH 1 MINVALUE 1 "
                  "MAXVALUE %lld CACHE 1000 ENGINE = InnoDB",
                  (long long)MARIA_FENCE_END - 1);
    else
        maria_say(maria, "CREATE TABLE IF NOT EXISTS dlock_fences (slot SMALLINT NOT NULL PRIMARY KEY, "
                         "fence BIGINT NOT NULL) ENGINE = InnoDB");
    int rc = maria_ask(maria, deadline_us, err);
    if (rc == DLOCK_EAUTH)
        rc = dlock_fail(err, rc,
                        "MySQL at %s has no objects of dlock's in this database, and this user may not make "
                        "them: its DBA has to run %s",
                        maria->where,
                        maria->sessions ? "the statement for mode=session in dlock's docs/backends.md"
                                        : "what `dlock schema mysql` prints");
    return rc;
}
