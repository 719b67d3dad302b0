/* A batch is longer than a TLS record. Where a record ended within a value, memcached left the rest of the next one unread,
 * and every renewal of the batch without an answer. How long the names are says where records end. */
#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 20, LOCKS = 100, LEASE_MS = 6000 };

TEST(batches_of_any_length_are_renewed) {
    static dlock_client *clients[CLIENTS];
    static dlock_lock *locks[CLIENTS][LOCKS];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err;
    const char *uri = getenv("DLOCK_TEST_URI_memcached_tls");
    assert_non_null(uri);
    options.lease_ms = LEASE_MS;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = api_client("%s", uri);
        for (int j = 0; j < LOCKS; j++) {
            char name[DLOCK_NAME_MAX + 1];
            snprintf(name, sizeof name, "records-%0*d", 10 + 8 * i, j);
            locks[i][j] = api_lock(clients[i], name, &options);
            if (dlock_acquire(locks[i][j], 10000, &err) != 0) fail_msg("%s", err.message);
        }
    }
    sleep_ms(LEASE_MS * 3 / 2);
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; j < LOCKS; j++)
            if (!dlock_held(locks[i][j])) fail_msg("lock %d with a name of %d characters is lost", j, 18 + 8 * i);
    for (int i = 0; i < CLIENTS; i++) {
        for (int j = 0; j < LOCKS; j++) dlock_free(locks[i][j]);
        dlock_close(clients[i]);
    }
}

TESTS(NULL, NULL, NULL, NULL)
