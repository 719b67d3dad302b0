/* Shared by the MySQL tests: an administrator's connection, their own database, and the number of requests that the
 * backend has sent. */
#ifndef DLOCK_TESTS_MYSQL_SITE_H
#define DLOCK_TESTS_MYSQL_SITE_H

#include "support/held.h"
#include "support/test.h"

#include <mysql.h>

extern int requests; /* of the backend, up to now */
/* Called before each of them, unless it is NULL. */
extern void (*before_request)(const char *text, size_t length);

int site_begin(void **state); /* of a group: makes the database */
int site_end(void **state);

extern int64_t quarantine_ms; /* of the links that are made from now on; 0: none */

/* Runs a statement as administrator, in that database. */
DLOCK_PRINTF(1, 2)
void sql(const char *format, ...);
/* The first column of its first row as a number; 0: there is none. */
DLOCK_PRINTF(1, 2)
int64_t sql_number(const char *format, ...);
/* The same as a text. */
void sql_text(char *out, size_t size, const char *statement);

/* Connects as `user`, whose password is "secret", in `mode` (NULL: rows). */
int link_as(struct link *link, const char *user, const char *mode, char letter, struct dlock_error *err);
/* The same as the administrator; it must work. */
void link_new(struct link *link, const char *mode, char letter);
/* Cycles of a lock in `mode`, in turns with one of another name, are two requests each, and their fences grow. */
void check_cycles(const char *mode, const char *other);
/* The server's number for that connection. */
int64_t link_id(const struct link *link);

#endif
