/* Counts the acquires without an answer from the server, by a wrapper around the backend. */
#ifndef DLOCK_TESTS_FAULTS_UNHEARD_H
#define DLOCK_TESTS_FAULTS_UNHEARD_H

#include <stdbool.h>
#include <stddef.h>

/* Registers the backend of `module`, the path of a backend's library, with a wrapper that counts. Call it before the
 * first client is opened. Returns false after an error, which it prints to standard error. */
bool unheard_begin(const char *module);
/* Returns the number of acquires without an answer. Each acquire of a batch counts, and so does each repetition. */
size_t unheard_count(void);

#endif
