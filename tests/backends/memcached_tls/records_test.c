/* A batch is longer than a TLS record. Where a record ended within a value, memcached left the rest of the next one unread,
 * and every renewal of the batch without an answer. How long the names are says where records end. */
#include <dlock/dlock.h>

#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CLIENTS = 20, LOCKS = 100, LEASE_MS = 6000 };

static const char *uri;

static void batches_of_any_length_are_renewed(void **state) {
    static dlock_client *clients[CLIENTS];
    static dlock_lock *locks[CLIENTS][LOCKS];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err;
    (void)state;
    options.lease_ms = LEASE_MS;
    for (int i = 0; i < CLIENTS; i++) {
        if (dlock_open(uri, NULL, &clients[i], &err) != 0) fail_msg("%s", err.message);
        for (int j = 0; j < LOCKS; j++) {
            char name[DLOCK_NAME_MAX + 1];
            snprintf(name, sizeof name, "records-%0*d", 10 + 8 * i, j);
            if (dlock_new(clients[i], name, &options, &locks[i][j], &err) != 0) fail_msg("%s", err.message);
            if (dlock_acquire(locks[i][j], 10000, &err) != 0) fail_msg("%s", err.message);
        }
    }
    const struct timespec pause = {LEASE_MS * 3 / 2 / 1000, 0};
    nanosleep(&pause, NULL);
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; j < LOCKS; j++)
            if (!dlock_held(locks[i][j])) fail_msg("lock %d with a name of %d characters is lost", j, 18 + 8 * i);
    for (int i = 0; i < CLIENTS; i++) {
        for (int j = 0; j < LOCKS; j++) dlock_free(locks[i][j]);
        dlock_close(clients[i]);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_of_any_length_are_renewed)};
    if (argc != 2) return 64;
    uri = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
