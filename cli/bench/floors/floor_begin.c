/* Connections, and the ends of a program that cannot measure. */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>

void floor_check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "floor: %s failed\n", what);
    exit(FLOOR_FAILED);
}

void floor_need(bool plain) {
    if (!plain) exit(FLOOR_SKIPPED);
}

void *floor_connect(const struct floor *floor) {
    static void *connections[FLOOR_WORKERS]; /* kept until the end, so that leak checkers see them as in use */
    static int n;
    floor_check(n < FLOOR_WORKERS, "so many connections");
    if (floor->connect) connections[n] = floor->connect();
    return connections[n++];
}
