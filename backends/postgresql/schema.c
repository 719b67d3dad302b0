/* Creating the objects in the database on first use. */
#include "postgresql.h"

#include <stdlib.h>

#define OURS "\"dlock\""

/* Returns the script with the URI's schema in place of "dlock", to be freed with free(), or NULL. */
static char *script(const char *text, const char *schema) {
    const char *from = text, *at;
    size_t places = 0, used = 0;
    while ((at = strstr(from, OURS))) {
        places++;
        from = at + strlen(OURS);
    }
    char *out = malloc(strlen(text) + places * strlen(schema) + 1);
    if (!out) return NULL;
    for (from = text; (at = strstr(from, OURS)); from = at + strlen(OURS)) {
        memcpy(out + used, from, (size_t)(at - from));
        used += (size_t)(at - from);
        memcpy(out + used, schema, strlen(schema));
        used += strlen(schema);
    }
    strcpy(out + used, from);
    return out;
}

int pg_create_schema(struct pg *pg, int64_t deadline_us, struct dlock_error *err) {
    PGresult *result, *undone;
    char *sql = script(pg->script, pg->schema);
    if (!sql) return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory");
    int rc = pg_query(pg, sql, deadline_us, &result, err);
    free(sql);
    if (rc != 0) return rc;
    /* DL001 says that the objects are of a newer version, which still has every function called here. */
    if (pg_state_is(pg_state(result), "42501"))
        rc = dlock_fail(err, DLOCK_EAUTH,
                        "PostgreSQL at %s has no objects of this dlock in schema %s, and this role may not make them: "
                        "its DBA has to run %s",
                        pg->where, pg->schema,
                        pg->sessions ? "dlock's postgresql-session.sql" : "what `dlock schema postgresql` prints");
    else if (PQresultStatus(result) != PGRES_COMMAND_OK && !pg_state_is(pg_state(result), "DL001"))
        rc = pg_refused(pg, result, err);
    PQclear(result);
    /* An error leaves the script's own transaction open. */
    if (PQtransactionStatus(pg->link) == PQTRANS_IDLE) return rc;
    struct dlock_error ignored;
    int ended = pg_query(pg, "ROLLBACK", deadline_us, &undone, rc == 0 ? err : &ignored);
    if (ended == 0) PQclear(undone);
    return rc != 0 ? rc : ended;
}
