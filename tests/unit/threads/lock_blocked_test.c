/* Something beside the keeper blocks: locks are renewed all the same. */
#include "fixture.h"

#include <stdatomic.h>

struct log_block {
    struct barrier barrier;
    _Atomic int lines;
};

static void log_and_block(int level, const char *message, void *arg) {
    struct log_block *block = arg;
    (void)level;
    assert_true(strlen(message) > 0);
    if (atomic_fetch_add(&block->lines, 1) == 0) barrier_wait(&block->barrier);
}

/* The first renewal fails, which is logged, and the log function blocks for a minute. */
TEST(a_log_that_blocks_costs_no_lock) {
    struct log_block block = {.barrier = BARRIER};
    struct lost_count lost = {0};
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    dlock_client *client;
    options.log = log_and_block;
    options.log_arg = &block;
    assert_int_equal(dlock_open("fake:", &options, &client, NULL), 0);
    dlock_lock *lock = watched_lock(client, "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_PROTO, 1);
    fake_advance_ms(6 * LEASE_MS);
    int lines = block.lines;
    bool held = dlock_held(lock);
    barrier_lift(&block.barrier);
    assert_int_equal(lines, 1);
    assert_true(held);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_close(client);
    lock_end(lock);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
