/* A process that has used up its descriptors. */
#ifndef DLOCK_TESTS_SUPPORT_STARVE_H
#define DLOCK_TESTS_SUPPORT_STARVE_H

#include <dlock/dlock.h>

/* Connects, say, and ends the connection again; returns what connect returned. */
typedef int connects(void *arg, struct dlock_error *err);

/* Calls `connect` with all descriptors, then with 0, 1, 2 … free ones, until it returns the same again. Until
 * then that must be `code`. Returns how often it was; `err` is the last such error. */
int starve(connects *connect, void *arg, int code, struct dlock_error *err);

#endif
