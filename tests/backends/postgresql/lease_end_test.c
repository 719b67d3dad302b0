/* Through the public interface: leases that end without a message, with a crowd that waits. */
#include "site.h"
#include "support/api.h"

#include <pthread.h>

/* A waiter that needs longer than its lease to notice that it was granted has lost its place, as it should: that must
 * not happen to one on a busy machine. */
enum { WAITERS = 6, DEAD_MS = 2000, EACH_MS = 2000, LATE_MS = 250 };

struct waiter {
    dlock_client *client;
    dlock_lock *lock;
    pthread_t thread;
    int code;
    uint64_t fence;
    int64_t at_ms;
};

/* Takes the lock and dies, as far as the server can tell. */
static void *take_and_die(void *arg) {
    struct waiter *waiter = arg;
    char ticket[DLOCK_TICKET_MAX + 1];
    waiter->code = dlock_acquire(waiter->lock, 60000, NULL);
    waiter->at_ms = now_ms();
    waiter->fence = dlock_fence(waiter->lock);
    if (waiter->code == 0) waiter->code = dlock_export(waiter->lock, ticket, sizeof ticket, NULL);
    return NULL;
}

/* A dead holder's lock is the next waiter's a moment later, whatever the place, and so on to the last. */
TEST(a_line_behind_the_dead) {
    struct waiter waiter[WAITERS];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct link link;
    options.lease_ms = EACH_MS;
    options.flags = DLOCK_FIXED_LEASE;
    link_new(&link, 'a');
    HELD(dead, &link, "n");
    dead.claim.lease_ms = 60000;
    assert_int_equal(acquire(&link, &dead), 0);
    for (int i = 0; i < WAITERS; i++) {
        waiter[i].client = api_client("postgresql://dlock@%s:%d/postgres?schema=%s", site.host, site.port, site.schema);
        waiter[i].lock = api_lock(waiter[i].client, "n", &options);
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, take_and_die, &waiter[i]), 0);
        sql_wait("SELECT (count(*) = %d)::integer FROM {}.queue", i + 1);
    }
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() + %d WHERE name = 'n'", DEAD_MS * 1000);
    int64_t began_ms = now_ms();
    link_end(&link);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiter[i].thread, NULL);
        assert_int_equal(waiter[i].code, 0);
        if (i > 0) assert_true(waiter[i].fence > waiter[i - 1].fence);
    }
    /* Each was nearly half a second late once. */
    assert_true(waiter[WAITERS - 1].at_ms - began_ms < DEAD_MS + WAITERS * (EACH_MS + LATE_MS));
    print_message("%d ms for the first, %d for each\n", (int)(waiter[0].at_ms - began_ms - DEAD_MS),
                  (int)(waiter[WAITERS - 1].at_ms - waiter[0].at_ms) / (WAITERS - 1) - EACH_MS);
    for (int i = 0; i < WAITERS; i++) {
        dlock_free(waiter[i].lock);
        dlock_close(waiter[i].client);
    }
}

TESTS(NULL, NULL, site_begin, site_end)
