/* redis+cluster: the master of some slots fails while eight clients contend for one of its locks. */
#include "cluster_nodes.h"

#include <signal.h>

static int setup(void **state) {
    (void)state;
    cluster_start("2000", SLOTS / 3 * 2, SLOTS - 1);
    cluster_add_replica("2000");
    choose_names();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    cluster_stop();
    return 0;
}

/* The first master has gone as `how` says, without having told its replica of the last grant. A lock on another node is
 * held all the time. */
static void fail_over(void (*go)(void), const char *how) {
    char uri[200];
    uri_of(uri, "lease=7s");
    await_quarantines(uri);
    dlock_client *bystander = api_client("%s", uri);
    dlock_lock *held = api_lock(bystander, second, NULL), *other = api_lock(bystander, first, NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(dlock_acquire(other, 1000, NULL), 0);
    assert_int_equal(dlock_release(other, NULL), 0);
    const uint64_t fence = dlock_fence(held);
    players_begin(uri, first);
    players_await_turns();
    assert_true(relay_mute(front, "PSYNC") > 0);
    sleep_ms(100);
    players_keep(uri, first);
    sleep_ms(4000); /* what the replica heard of last ends earlier than this */
    go();
    players_await_failover(&replica, how);
    assert_true(dlock_held(held));
    assert_true(dlock_fence(held) == fence);
    dlock_free(held);
    dlock_free(other);
    dlock_close(bystander);
}

static void kill_first(void) {
    server_kill(&master[0]);
}

TEST(killed_master) {
    fail_over(kill_first, "SIGKILL");
    players_end();
    server_again(&master[0], NULL);
}

static void stop_first(void) {
    kill(master[0].pid, SIGSTOP);
}

TEST(stopped_master) {
    fail_over(stop_first, "SIGSTOP");
    /* It learns that it is a replica now. No client asks it in this time: new requests go to the map's node. */
    kill(master[0].pid, SIGCONT);
    await_said(&master[0], "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

/* By hand, and at once, while the master is well and a client holds what the replica has not heard of. */
static void take_over(void) {
    assert_string_equal(said_to(&replica, "CLUSTER FAILOVER TAKEOVER"), "OK");
}

TEST(replica_that_takes_over) {
    fail_over(take_over, "TAKEOVER");
    await_said(&master[0], "INFO replication", "role:slave");
    players_end();
}

/* A manual failover with the master's consent: the node of the promoted replica grants nothing for one quarantine; the
 * other nodes continue. */
TEST(promoted_replica) {
    char uri[200], other[24];
    struct dlock_error err;
    name_from(1000, &master[0], other);
    uri_of(uri, "lease=4s");
    await_quarantines(uri);
    players_begin(uri, first);
    players_await_turns();
    assert_string_equal(said_to(&replica, "CLUSTER FAILOVER"), "OK");
    await_said(&replica, "INFO replication", "role:master");
    const int64_t promoted = now_ms();
    /* The other nodes have to learn who it is now. */
    int rc = try_lock(uri, other, &err);
    while (rc == DLOCK_EUNAVAILABLE && now_ms() - promoted < CHANGE_MS) rc = try_lock(uri, other, &err);
    assert_int_equal(rc, DLOCK_ENOTREADY);
    assert_int_equal(try_lock(uri, second, &err), 0);
    assert_int_equal(try_lock(uri, third, &err), 0);
    await_grant(uri, other);
    assert_true(now_ms() - promoted >= 4000);
    players_await_turns();
    players_end();
}

/* The name of one test: only that. They take long, and CTest runs them side by side. */
TESTS(setup, teardown, NULL, NULL)
