/* Shared by the tests of memcached over SASL, beside tests/support. */
#ifndef DLOCK_TESTS_MEMCACHED_SASL_HARNESS_H
#define DLOCK_TESTS_MEMCACHED_SASL_HARNESS_H

#include "support/backend.h"
#include "support/clock.h"
#include "support/fake.h"
#include "support/held.h"
#include "support/link.h"
#include "support/relay.h"
#include "support/server.h"
#include "support/test.h"

/* A connection of the client `letter`, logged in; with this password: returns what connect() returns. */
void log_in(struct link *link, int port, char letter);
int try_log_in(struct link *link, int port, char letter, const char *password, struct dlock_error *err);

/* A server in its first second grants nothing. */
void await_grants(int port);

/* A fake server: answers a request of the binary protocol as an honest one does that has no items. */
bool answer_honestly(int fd, const char *request);
/* Says the first `sent` bytes of a whole answer to this request. */
bool answer_with(int fd, const char *request, int status, const char *extras, const char *key, const char *value,
                 size_t sent);
enum { OPCODE_ADD = 0x02, OPCODE_REPLACE = 0x03, OPCODE_NOOP = 0x0a, OPCODE_GETKQ = 0x0d };

#endif
