/* Counts the acquires that the server has not been heard to answer, at the place where a backend is called. */
#ifndef DLOCK_TESTS_FAULTS_UNHEARD_H
#define DLOCK_TESTS_FAULTS_UNHEARD_H

#include <stdbool.h>
#include <stddef.h>

/* Registers the backend of this module (a file), with the count in front of it, before any client is opened. Says on
 * standard error what is wrong, and returns false. */
bool unheard_begin(const char *module);
/* How many there have been: one of a request about many counts for itself, and so does one that is sent again. */
size_t unheard_count(void);

#endif
