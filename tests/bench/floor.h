/* A floor program: the barest correct client of one server, to measure a lock's cost against. `dlock bench --floors`
 * runs it as
 *
 *     floor-BACKEND OPERATION MILLISECONDS        with the URI as a line on standard input
 *
 * It writes lines "NANOSECONDS COUNT", then "end". Status 77: there is no such operation here, or this URI is more than
 * it understands. */
#ifndef DLOCK_TESTS_FLOOR_H
#define DLOCK_TESTS_FLOOR_H

#include <stdbool.h>

enum { FLOOR_FAILED = 1, FLOOR_SKIPPED = 77 };

struct floor {
    void (*open)(const char *uri);
    void (*cycle)(void);      /* the lock and its release, as the server's documentation has them */
    void (*round_trip)(void); /* the least that the server answers to; NULL: there is none */
};

/* What main() returns. */
int floor_main(int argc, char **argv, const struct floor *floor);

/* Ends the program: with FLOOR_FAILED and a message, unless `ok`; with FLOOR_SKIPPED, unless `plain`. */
void floor_check(bool ok, const char *what);
void floor_need(bool plain);

/* Splits "scheme://host:port/path?…" where there is neither user nor list; anything else is skipped. */
struct floor_address {
    char host[256];
    int port;
    bool has_path;
};
struct floor_address floor_address(const char *uri, int default_port);

#endif
