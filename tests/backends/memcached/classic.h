/* A server from before 1.6, as far as a client can tell: the real one behind a relay that lets no meta command pass.
 *
 * With DLOCK_TEST_CLASSIC in the environment all private servers of these tests are such ones. They listen on a socket
 * in their folder, and the relay on their port. */
#ifndef DLOCK_TESTS_MEMCACHED_CLASSIC_H
#define DLOCK_TESTS_MEMCACHED_CLASSIC_H

#include "support/server.h"

/* Under the server's folder. */
#define CLASSIC_SOCKET "/classic"

bool servers_are_classic(void);

/* Starts the relay of a server, unless it runs; it ends with the program. */
void classic_relay(const struct server *server);

#endif
