/* Connections: shared by threads, opened on demand, gathered into batches, dropped when in doubt. */
#include "fixture.h"

#include <stdio.h>

enum { N = 8 };

struct crowd {
    dlock_client *client;
    dlock_lock *locks[N];
    struct actor *actors[N];
};

static void crowd_new(struct crowd *crowd, const char *uri) {
    crowd->client = client_new(uri);
    for (int i = 0; i < N; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", (i * 5 + 3) % N);
        crowd->locks[i] = lock_new(crowd->client, name);
        crowd->actors[i] = actor_new();
    }
    fake_log_clear();
}

TEST(as_many_as_the_uri_allows) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=3");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 100);
    for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], 2000);
    assert_int_equal(fake_slow_waiting(), 3);
    assert_int_equal(fake_connections(), 3);
    fake_faults_clear();
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    assert_int_equal(fake_connections(), 3);
}

/* While all connections are busy the others wait; the next free one takes them all. The contract's checks (sorted, no
 * name twice) are fake_contract.c's. */
TEST(what_waits_is_sent_as_one_batch) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=2");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 2);
    for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], 2000);
    assert_int_equal(fake_slow_waiting(), 2);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, NULL), 2);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, NULL), N);
    assert_in_range(fake_calls(FAKE_ACQUIRE), 3, 4);

    fake_log_clear();
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 2);
    for (int i = 0; i < N; i++) begin_release(crowd.actors[i], crowd.locks[i]);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    assert_in_range(fake_calls(FAKE_RELEASE), 3, 4);
}

/* They have two connections, and were more than that just now. */
static void crowd_of_holders(struct crowd *crowd) {
    crowd_new(crowd, "fake:?connections=2");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 4);
    for (int i = 0; i < N; i++) begin_acquire(crowd->actors[i], crowd->locks[i], 2000);
    for (int i = 0; i < 2; i++) {
        fake_slow_go();
        fake_settle();
    }
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd->actors[i]), 0);
    fake_faults_clear();
    fake_log_clear();
}

/* Where requests come in crowds, the leader waits for threads with the same kind of request, even if connections are
 * free; a thread with another kind does not wait. */
TEST(a_crowd_is_one_batch) {
    struct crowd crowd;
    crowd_of_holders(&crowd);
    dlock_lock *other = lock_new(crowd.client, "other");
    struct actor *actor = actor_new();
    fake_stay_away();
    begin_release(crowd.actors[0], crowd.locks[0]);
    assert_int_equal(fake_away(), 1);
    for (int i = 1; i < N; i++) begin_release(crowd.actors[i], crowd.locks[i]);
    assert_int_equal(fake_away(), 1);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    begin_acquire(actor, other, 2000);
    assert_int_equal(fake_away(), 2);
    fake_come_back();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_claims(FAKE_RELEASE, NULL), N);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
}

/* That takes longer than our own threads may: the processor is busy with others, so for a while no leader waits for
 * more. */
TEST(a_crowd_of_others_is_not_waited_for) {
    struct crowd crowd;
    crowd_of_holders(&crowd);
    fake_stay_away();
    begin_release(crowd.actors[0], crowd.locks[0]);
    begin_release(crowd.actors[1], crowd.locks[1]);
    fake_jump_ms(20);
    fake_come_back();
    fake_settle();
    fake_stay_away();
    for (int i = 2; i < N; i++) begin_release(crowd.actors[i], crowd.locks[i]);
    assert_int_equal(fake_away(), 0);
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    fake_come_back();
}

TEST(a_batch_is_one_kind_of_request) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1");
    for (int i = 0; i < N / 2; i++) assert_int_equal(acquire_by(crowd.actors[i], crowd.locks[i], 0), 0);
    fake_log_clear();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(crowd.actors[N - 1], crowd.locks[N - 1], 2000);
    for (int i = 0; i < N / 2; i++) begin_release(crowd.actors[i], crowd.locks[i]);
    for (int i = N / 2; i < N - 1; i++) begin_acquire(crowd.actors[i], crowd.locks[i], 2000);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) assert_int_equal(result(crowd.actors[i]), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_claims(FAKE_RELEASE, NULL), N / 2);
}

/* The answers of a batch are of each claim: some busy, some granted. */
TEST(each_claim_of_a_batch_has_its_own_result) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1");
    fake_other_acquire("n2", 600000);
    fake_other_acquire("n5", 600000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], 0);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++) {
        int name = (i * 5 + 3) % N;
        assert_int_equal(result(crowd.actors[i]), name == 2 || name == 5 ? DLOCK_EBUSY : 0);
    }
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
}

/* A batch whose answer is lost: all of it is sent again, by token, and granted once. */
TEST(a_lost_batch_is_sent_again) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 2);
    for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], 20000);
    fake_slow_go();
    for (int i = 0; i < N; i++) {
        wait_for(crowd.actors[i], 5000);
        assert_int_equal(result(crowd.actors[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(fake_grants(name), 1);
    }
}

/* A thread whose own deadline passes leaves; whatever its request does later is undone. */
TEST(a_thread_past_its_deadline_leaves_the_batch) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1&timeout=10s");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 2);
    begin_acquire(crowd.actors[0], crowd.locks[0], 9000);
    for (int i = 1; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], i == 3 ? 1000 : 8000);
    fake_slow_go(); /* the first is granted; the others are in one batch that hangs */
    fake_settle();
    assert_int_equal(result(crowd.actors[0]), 0);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_in_range(wait_for(crowd.actors[3], 1500), 900000, 1100000);
    assert_true(result(crowd.actors[3]) == DLOCK_EUNAVAILABLE || result(crowd.actors[3]) == DLOCK_ETIMEDOUT);
    fake_slow_go();
    fake_advance_ms(2000);
    for (int i = 0; i < N; i++)
        if (i != 3) assert_int_equal(result(crowd.actors[i]), 0);
    assert_string_equal(fake_holder("n2").token, ""); /* (3 * 5 + 3) % 8 */
    assert_int_equal(fake_entries(), N - 1);
}

static pthread_mutex_t renew_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t renew_cond = PTHREAD_COND_INITIALIZER;
static bool renew_goes_on;
static uint64_t fence_in_renewal;

/* Takes longer than it may. */
static void renew_slowly(struct dlock_claim *claim) {
    pthread_mutex_lock(&renew_mutex);
    while (!renew_goes_on) dlock__cond_wait(&renew_cond, &renew_mutex, DLOCK__NEVER);
    pthread_mutex_unlock(&renew_mutex);
    fence_in_renewal |= claim->fence;
}

/* Nor does it change its claim, which the backend still has. */
TEST(an_import_past_its_deadline_leaves_its_claim_alone) {
    dlock_client *from = client_new("fakefull:?lease=1m"), *to = client_new("fakefull:?connections=1&timeout=10s");
    struct actor *busy = actor_new(), *actors[2];
    struct export exports[2];
    struct import imports[2];
    for (int i = 0; i < 2; i++) {
        exports[i].lock = lock_new(from, i == 0 ? "a" : "b");
        imports[i] = (struct import){.client = to, .ticket = exports[i].ticket};
        actors[i] = actor_new();
        assert_int_equal(dlock_acquire(exports[i].lock, 0, NULL), 0);
        assert_int_equal(export_it(&exports[i]), 0);
    }
    taken("n");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(busy, lock_new(to, "n"), 0);
    for (int i = 0; i < 2; i++) begin_call(actors[i], import_it, &imports[i]);
    fake_log_clear();
    renew_goes_on = false;
    fake_edit(FAKE_RENEW, renew_slowly, 1);
    fake_slow_go(); /* both are in one batch that hangs */
    fake_settle();
    assert_int_equal(result(busy), DLOCK_EBUSY);
    wait_for(actors[1], 10500);
    assert_int_equal(result(actors[1]), DLOCK_EUNAVAILABLE);
    assert_false(over(actors[0]));
    pthread_mutex_lock(&renew_mutex);
    renew_goes_on = true;
    pthread_cond_broadcast(&renew_cond);
    pthread_mutex_unlock(&renew_mutex);
    fake_settle();
    assert_int_equal(result(actors[0]), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_int_equal(fake_claims(FAKE_RENEW, NULL), 2);
    assert_int_equal(fence_in_renewal, 0);
    begin_free(actors[0], imports[0].lock);
    fake_advance_ms(60000);
}

TEST(a_thread_that_never_got_a_connection_ends_in_time) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1&timeout=10s");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(crowd.actors[0], crowd.locks[0], 9000);
    begin_acquire(crowd.actors[1], crowd.locks[1], 1500);
    assert_in_range(wait_for(crowd.actors[1], 2000), 1400000, 1600000);
    assert_true(result(crowd.actors[1]) == DLOCK_EUNAVAILABLE || result(crowd.actors[1]) == DLOCK_ETIMEDOUT);
    fake_slow_go();
    fake_advance_ms(100);
    assert_int_equal(result(crowd.actors[0]), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n0"), 0); /* (1 * 5 + 3) % 8 */
}

/* Out of the middle of the line, and from its end. */
TEST(those_that_give_up_waiting_for_a_connection_leave_the_others_in_line) {
    static const int timeouts_ms[N] = {9000, 9000, 1500, 9000, 1000, 9000, 9000, 500};
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1&timeout=10s");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], crowd.locks[i], timeouts_ms[i]);
    fake_advance_ms(700);
    dlock_lock *last = lock_new(crowd.client, "last");
    struct actor *actor = actor_new();
    begin_acquire(actor, last, 9000);
    fake_advance_ms(1000);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < N; i++)
        assert_int_equal(result(crowd.actors[i]), timeouts_ms[i] < 9000 ? DLOCK_EUNAVAILABLE : 0);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, NULL), N - 3 + 1);
}

/* A thread that did not run until its deadline was over passes on the connection that it was given in time. */
TEST(a_connection_that_is_noticed_too_late_is_kept) {
    struct crowd crowd;
    crowd_new(&crowd, "fake:?connections=1&timeout=10s");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(crowd.actors[0], crowd.locks[0], 9000);
    begin_acquire(crowd.actors[1], crowd.locks[1], 1500);
    begin_acquire(crowd.actors[2], crowd.locks[2], 9000);
    actor_park(crowd.actors[1]);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(crowd.actors[0]), 0);
    fake_advance_ms(2000);
    actor_unpark();
    fake_settle();
    assert_int_equal(result(crowd.actors[1]), DLOCK_EUNAVAILABLE);
    assert_int_equal(result(crowd.actors[2]), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
}

TEST(an_idle_connection_that_died_costs_nothing) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_server_cut();
    fake_log_clear();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    fake_server_cut();
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_equal(fake_holder("n").token, "");
}

TEST(one_retry_and_no_more) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 10);
    fake_log_clear();
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 2);
    fake_faults_clear();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
}

TEST(a_connection_that_failed_is_never_used_again) {
    const enum fake_fault faults[] = {FAKE_LOST_BEFORE, FAKE_LOST_AFTER, FAKE_AUTH, FAKE_PROTO};
    dlock_client *client = client_new("fake:?connections=1");
    dlock_lock *lock = lock_new(client, "n");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct fake_command failed, next;
        fake_log_clear();
        fake_fault(FAKE_ACQUIRE, faults[i], 1);
        dlock_acquire(lock, 0, NULL);
        assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &failed));
        if (!dlock_held(lock)) assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        for (unsigned at = 1; fake_nth(FAKE_ACQUIRE, "n", at, &next); at++)
            assert_int_not_equal(next.conn, failed.conn);
        assert_int_equal(dlock_release(lock, NULL), 0);
        fake_advance_ms(2 * LEASE_MS);
    }
}

/* Threads in turn on one name, while connections and answers get lost: all of them get it, one at a time. */
TEST(contention_survives_faults) {
    struct crowd crowd;
    dlock_lock *lock;
    crowd_new(&crowd, "fake:?connections=2");
    lock = crowd.locks[0];
    for (int round = 0; round < 15; round++) {
        if (round % 5 == 4) fake_fault(FAKE_RELEASE, FAKE_LOST_AFTER, 1);
        if (round % 5 == 3) fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 1);
        if (round % 7 == 6) fake_server_cut();
        for (int i = 0; i < N; i++) begin_acquire(crowd.actors[i], lock, 60000);
        for (int served = 0; served < N; served++) {
            int holder = -1;
            for (int steps = 0; holder < 0; steps++) {
                assert_true(steps < 600);
                for (int i = 0; i < N; i++) {
                    if (!over(crowd.actors[i]) || !held_by(crowd.actors[i], lock)) continue;
                    assert_int_equal(holder, -1);
                    holder = i;
                }
                if (holder < 0) assert_true(fake_advance_next());
            }
            begin_release(crowd.actors[holder], lock);
            wait_for(crowd.actors[holder], 3200);
            assert_int_equal(result(crowd.actors[holder]), 0);
        }
    }
}

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info;
    (void)arg;
    return 0;
}

static int inspect_it(void *arg) {
    return dlock_inspect(arg, "n", ignore, NULL, NULL);
}

/* The keeper has no connection of its own and waits for a connected one: one that has just broken is useless to it, but
 * not to others. */
TEST(the_keeper_keeps_no_connection_that_it_cannot_use) {
    dlock_client *client = client_new("fakepoll:?connections=2&timeout=4s");
    struct actor *holder = actor_new(), *first = actor_new(), *second = actor_new(), *third = actor_new();
    dlock_lock *held = lock_new(client, "held"), *c = lock_new(client, "c");
    assert_int_equal(acquire_by(holder, held, 0), 0);
    fake_fault(FAKE_INSPECT, FAKE_SLOW, 1);
    fake_fault(FAKE_INSPECT, FAKE_LOST_BEFORE, 1);
    begin_call(first, inspect_it, client);
    fake_advance_ms(2000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(second, lock_new(client, "b"), 10000);
    assert_int_equal(fake_slow_waiting(), 2);
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 1);
    fake_advance_ms(THIRD_MS - 2000);
    assert_int_equal(fake_calls(FAKE_CONNECT), 3); /* the last one by the keeper */
    begin_acquire(third, c, 1500);
    fake_advance_ms(1000);
    fake_faults_clear();
    assert_int_equal(result(first), DLOCK_EUNAVAILABLE);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(result(third), 0);
    assert_int_equal(release_by(third, c), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(second), 0);
    fake_advance_ms(LEASE_MS);
    assert_true(held_by(holder, held));
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
