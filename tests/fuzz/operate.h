/* What the targets of the backends share: a script of operations, and what must hold of their outcomes.
 *
 * An input's first line is the script, one letter for each step; the rest is what the server answers:
 *   e s p     the claims from here on are exclusive, shared, permits of 3
 *   1 2 3     there are so many of them
 *   n         they have other names: long ones, with bytes that have to be encoded
 *   q         they queue
 *   A R F     acquire, renew, release (free)
 *   I L B C   inspect, list, break, the doctor's check
 *   W P       listen and read wake-ups; probe */
#ifndef DLOCK_TESTS_FUZZ_OPERATE_H
#define DLOCK_TESTS_FUZZ_OPERATE_H

#include <dlock/backend.h>

#include <stdbool.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* The client that every connection here belongs to, and the core's side of it. */
#define FUZZ_CLIENT "0123456789abcdef01234567"
extern const struct dlock_peer fuzz_peer;

/* Time for an operation. An answer that is missing is the end of the connection, so nothing waits for so long. */
enum { FUZZ_TIMEOUT_MS = 1000 };
/* For what an honest server has said already: only a machine that lets nobody run makes it late. */
enum { FUZZ_CONNECT_MS = 30000 };

void fuzz_require(bool holds, const char *what);

/* A code that a caller may see, and with it an error of one plain line. */
void fuzz_check_error(int rc, const struct dlock_error *err);

/* What a wake-up must be before it reaches the core. `alone`: it may name nothing (PENDING). */
void fuzz_check_wake(const struct dlock_wake *wake, bool alone);

/* What the core gives to a backend. */
void fuzz_check_claim(const struct dlock_claim *claim);

/* Takes the script off the input: its length, to be given to fuzz_operate(). */
size_t fuzz_script(const unsigned char **data, size_t *size, char script[32]);

/* Runs the script on a connection, until it breaks. */
void fuzz_operate(const struct dlock_backend *backend, void *conn, const char *script);

/* ---- server.c: for backends with a socket of their own ----------------------------------------------------------- */

/* Every socket that is connected from here on brings these bytes, and then its end. */
void fuzz_server_says(const char *greeting, const void *bytes, size_t size);
/* The second socket and those after it bring these, the third …: up to four. */
void fuzz_next_server_says(const char *greeting, const void *bytes, size_t size);

#endif
