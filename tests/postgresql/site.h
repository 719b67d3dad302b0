/* What the PostgreSQL tests share: a schema of their own on the private server, a plain connection beside dlock, and
 * the backend driven by its table of operations alone, without the core. */
#ifndef DLOCK_TESTS_POSTGRESQL_SITE_H
#define DLOCK_TESTS_POSTGRESQL_SITE_H

#include <postgresql.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

extern const struct dlock_backend dlock_backend_postgresql;
#define BACKEND (&dlock_backend_postgresql)
#define TIMEOUT_MS 5000
#define LEASE_MS 10000

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
int site_end(void **state);
#define SITE_MAIN(...)                                              \
    int main(void) {                                                \
        const struct CMUnitTest tests[] = {__VA_ARGS__};            \
        return cmocka_run_group_tests(tests, site_begin, site_end); \
    }

/* ---- SQL beside dlock; {} stands for the program's schema. An error fails the test ---- */

#define SQL_PRINTF __attribute__((__format__(__printf__, 1, 2)))
SQL_PRINTF void sql(const char *format, ...);
SQL_PRINTF int64_t sql_number(const char *format, ...);   /* the first value */
SQL_PRINTF const char *sql_text(const char *format, ...); /* until the next call */
PGconn *plain_open(void);                                 /* another such connection */
void plain_run(PGconn *plain, const char *text);          /* {} as above */
/* Waits until the query gives a number other than 0; fails the test after five seconds. */
SQL_PRINTF void sql_wait(const char *format, ...);
void session_gone(int pid); /* waits for that */

/* ---- connections ---- */

struct params {
    const char *user, *password, *path, *host; /* default: dlock, none, /postgres, the site's; "": absent */
    int port;                                  /* default: the site's */
    bool no_host;
    struct dlock_host hosts[3]; /* instead of `host` */
    struct dlock_param more[6]; /* `schema` is the program's, unless it stands here */
};

struct link {
    struct pg *pg;
    struct dlock_peer peer;
    char client[25];
    int fd; /* once it listens */
    int tokens;
};

/* Connects as the client whose id is 24 times `letter` (a hex digit): what connect returned. End it in any case. */
int link_try(struct link *link, const struct params *params, char letter, int timeout_ms, struct dlock_error *err);
void link_new(struct link *link, char letter); /* as the superuser; must work */
void link_listen(struct link *link);
void link_end(struct link *link);

/* ---- claims ---- */

/* A claim with its token. */
struct held {
    struct dlock_claim claim;
    char token[DLOCK_TOKEN_MAX + 1];
};
void held_new(struct held *held, struct link *link, const char *name);

/* One operation on one claim: its result. The connection must be well. */
int acquire(struct link *link, struct held *held);
int enqueue(struct link *link, struct held *held); /* acquire with QUEUE */
int renew(struct link *link, struct held *held);
int release(struct link *link, struct held *held);

/* One wake-up: fails the test after five seconds. */
void wake_get(struct link *link, struct dlock_wake *wake);
bool wake_none(struct link *link); /* nothing comes for 200 ms */

int64_t now_ms(void);
void pause_ms(int ms);

#endif
