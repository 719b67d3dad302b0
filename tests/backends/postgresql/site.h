/* Shared by the PostgreSQL tests, beside tests/support: their own schema on the private server, and a plain connection
 * beside dlock. */
#ifndef DLOCK_TESTS_POSTGRESQL_SITE_H
#define DLOCK_TESTS_POSTGRESQL_SITE_H

#include "support/backend.h"
#include "support/clock.h"
#include "support/held.h"
#include "support/link.h"
#include "support/test.h"

#include <postgresql.h>
#include <stdlib.h>

/* The private server, as tests/servers/postgresql.sh has told. */
struct site {
    char host[64];
    int port;
    char folder[256];   /* its data, and its socket */
    char programs[256]; /* where psql and postgres are */
    char schema[64];    /* of this program */
    PGconn *plain;      /* the superuser's */
};
extern struct site site;

/* Group setup and teardown: find the server, make sure that the schema is not there; remove it. */
int site_begin(void **state);
int site_begin_sessions(void **state); /* the backend is that of mode=session */
int site_end(void **state);

/* ---- SQL beside dlock; {} stands for the program's schema. An error fails the test ---- */

#define SQL_PRINTF __attribute__((__format__(__printf__, 1, 2)))
SQL_PRINTF void sql(const char *format, ...);
SQL_PRINTF int64_t sql_number(const char *format, ...);   /* the first value */
SQL_PRINTF const char *sql_text(const char *format, ...); /* until the next call */
PGconn *plain_open(void);                                 /* another such connection */
/* One that the end of its block ends: SCOPED_PLAIN *plain = plain_open(). */
#define SCOPED_PLAIN __attribute__((cleanup(plain_end_scoped))) PGconn
static inline void plain_end_scoped(PGconn **plain) {
    PQfinish(*plain);
}
void plain_run(PGconn *plain, const char *text); /* {} as above */
/* A session of a role without rights to our objects; one at a time. */
PGconn *stranger_open(void);
void stranger_end(PGconn *plain);
/* Waits until the query gives a number other than 0; fails the test after five seconds. */
SQL_PRINTF void sql_wait(const char *format, ...);
void session_gone(int pid); /* waits for that */

/* ---- connections ---- */

struct params {
    const char *user, *password, *path, *host; /* default: dlock, none, /postgres, the site's; "": absent */
    int port;                                  /* default: the site's */
    bool no_host;
    int64_t quarantine_ms;
    struct dlock_host hosts[3]; /* instead of `host` */
    struct dlock_param more[6]; /* `schema` is the program's, unless it stands here */
};

/* Connects as the client whose id is 24 times `letter` (a hex digit): returns connect's code. End it in any case. */
int link_with(struct link *link, const struct params *params, char letter, int timeout_ms, struct dlock_error *err);
void link_new(struct link *link, char letter); /* as the superuser; must work */
/* Declares such a link, which also listens; it ends with its block. */
#define EAR(name, letter) \
    LINK(name, letter);   \
    link_listen(&name)

/* The inside of it. */
static inline struct pg *pg_of(const struct link *link) {
    return link->conn;
}

/* One wake-up: fails the test after five seconds. */
void wake_get(struct link *link, struct dlock_wake *wake);
bool wake_none(struct link *link); /* nothing comes for 200 ms */

/* For a walk whose code alone counts. */
int ignore_holder(const struct dlock_info *info, void *arg);
int ignore_finding(const struct dlock_finding *finding, void *arg);

#endif
