/* Shared by the targets of all backends: a script of operations, and checks of their results.
 *
 * The first line of the input is the script, one letter for each step; the rest is the server's answers:
 *   e s p     the claims from here on are exclusive, shared, permits of 3
 *   1 2 3     there is this number of claims
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

/* The client to which every connection belongs, and the core's side of it. */
#define FUZZ_CLIENT "0123456789abcdef01234567"
extern const struct dlock_peer fuzz_peer;
/* The URI whose announced hosts it connects to. */
extern const struct dlock_uri *fuzz_uri;

/* The timeout of an operation. A missing answer is the end of the connection, so no operation waits that long. */
enum { FUZZ_TIMEOUT_MS = 1000 };
/* The timeout for answers that an honest server has sent already: they are late only on an overloaded machine. */
enum { FUZZ_CONNECT_MS = 30000 };

/* Aborts with a message unless `holds`. */
void fuzz_require(bool holds, const char *what);

/* Checks that `rc` is a code that a caller may get, with a message of one plain line. */
void fuzz_check_error(int rc, const struct dlock_error *err);

/* The password in URIs, which no error may have. The fuzzer may take it from our constants: then the input tells it. */
#define FUZZ_PASSWORD "Hunter2Zq7"
bool fuzz_tells(const unsigned char *data, size_t size);

/* Checks a wake-up that a backend returns to the core. `alone`: that of a single session, which may have no name and
 * token. */
void fuzz_check_wake(const struct dlock_wake *wake, bool alone);

/* Checks a claim that the core gives to a backend. */
void fuzz_check_claim(const struct dlock_claim *claim);

/* Takes the script, for fuzz_operate(), from the input. Returns its length. */
size_t fuzz_script(const unsigned char **data, size_t *size, char script[32]);

/* Runs the script on a connection until the end, or until the connection breaks. */
void fuzz_operate(const struct dlock_backend *backend, void *conn, const char *script);

/* The same behind connect(), which returned `rc`: after an error this is checked instead. Disconnects. */
void fuzz_connected(const struct dlock_backend *backend, void *conn, int rc, const struct dlock_error *err, bool told,
                    const char *script);

/* ---- server.c: for backends with their own sockets --------------------------------------------------------------- */

/* Every socket that is connected from here on receives these bytes, and then the end of the connection. */
void fuzz_server_says(const char *greeting, const void *bytes, size_t size);
/* The first of up to four sockets receives its greeting and the bytes before "---" and a newline, the next one what follows
 * those, and the last one, as all sockets after it, the rest. */
void fuzz_servers_say(const char *const greetings[], size_t n, const unsigned char *bytes, size_t size);

#endif
