/* The order in which dlock_acquire_all takes locks of one name of several servers. */
#include "fixture.h"

static uint64_t grants_of(dlock_client *client) {
    struct dlock_stats stats = DLOCK_STATS_INIT;
    assert_int_equal(dlock_client_stats(client, &stats, NULL), 0);
    return stats.grants;
}

/* Wherever the clients are in memory, and in whatever order they were opened. Both are clients of one server here, so
 * the first one is granted and blocks the second one. */
static void assert_in_order(const char *first_uri, const char *second_uri) {
    for (int i = 0; i < 8; i++) {
        dlock_client *before = i % 2 ? client_new(second_uri) : NULL;
        dlock_client *first = client_new(first_uri), *second = before ? before : client_new(second_uri);
        dlock_lock *const locks[] = {lock_new(second, "n"), lock_new(first, "n")};
        assert_int_equal(dlock_acquire_all(locks, 2, 0, NULL), DLOCK_EBUSY);
        assert_int_equal(grants_of(first), 1);
        assert_int_equal(grants_of(second), 0);
        assert_int_equal(fake_entries(), 0);
    }
}

/* Two databases of one server, for instance. */
TEST(servers_that_differ_in_a_key) {
    assert_in_order("fake:?db=1", "fake:?db=2");
    assert_in_order("fake:?db=1", "fake:?db=1&more=");
    assert_in_order("fake:", "fake:?db=1");
    assert_in_order("fake:?a=2", "fake:?b=1");
}

TEST(servers_that_differ_in_their_hosts) {
    assert_in_order("fake://127.0.0.1", "fake://127.0.0.2");
    assert_in_order("fake://127.0.0.1:9", "fake://127.0.0.1:10");
    assert_in_order("fake://127.0.0.1", "fake://127.0.0.1,127.0.0.2");
}

TEST(servers_that_differ_in_the_path) {
    assert_in_order("fake:", "fake:a");
    assert_in_order("fake:a", "fake:b");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
