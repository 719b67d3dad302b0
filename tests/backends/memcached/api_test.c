/* Through the public interface: how many commands locks cost, and a server that is restarted. */
#include "harness.h"
#include "support/api.h"
#include "support/group.h"
#include "support/relay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static dlock_client *open_at(int port, const char *query) {
    return api_client("memcached://127.0.0.1:%d?%s", port, query);
}

/* The URI is wrong, whatever its names resolve to. */
TEST(two_servers_are_refused_before_they_are_looked_up) {
    struct dlock_error err = {0};
    dlock_client *client = NULL;
    assert_int_equal(dlock_open("memcached://one.invalid,two.invalid", NULL, &client, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "exactly one server"));
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

enum { ROUNDS = 100 };

static void count_cycles(dlock_lock *lock, struct counts *counts) {
    const int reserved = reservations(&server) * ROUNDS;
    count(&server, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0); /* re-entry costs nothing */
        assert_int_equal(dlock_release(lock, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    count(&server, counts);
    assert_int_equal(counts->stores + counts->deletes, 2 * ROUNDS);
    assert_int_equal(servers_are_classic() ? counts->cas_hits : counts->deletes, ROUNDS);
    assert_int_equal(counts->cas_misses, 0);
    counts->gets -= reserved;
}

/* Four where an acquire reserves. Until the connection has seen the server's clock tick it reads the clock as well; but
 * not by `stats`, whose answer has 2 kB. */
TEST(an_uncontended_cycle_is_three_commands) {
    dlock_client *client = open_at(server.port, "quarantine=0&lease=60s");
    dlock_lock *lock = api_lock(client, "alone", NULL);
    struct counts counts;
    int64_t written = stat_of(&server, "bytes_written");
    count_cycles(lock, &counts);
    assert_in_range(counts.gets, ROUNDS, 2 * ROUNDS);
    if (!servers_are_classic()) assert_in_range(stat_of(&server, "bytes_written") - written, 0, ROUNDS * 1000);
    for (int64_t until = now_ms() + 10000; counts.gets != ROUNDS; sleep_ms(100)) {
        assert_true(now_ms() < until);
        count_cycles(lock, &counts);
    }
    dlock_free(lock);
    dlock_close(client);
}

/* A waiter asks 1 to 50 ms apart, and not faster. */
TEST(waiting_is_polite) {
    dlock_client *holder = open_at(server.port, "quarantine=0"), *waiter = open_at(server.port, "quarantine=0");
    dlock_lock *held = api_lock(holder, "polled", NULL), *wanted = api_lock(waiter, "polled", NULL);
    struct counts counts;
    assert_int_equal(dlock_acquire(held, 1000, NULL), 0);
    count(&server, NULL);
    assert_int_equal(dlock_acquire(wanted, 2000, NULL), DLOCK_ETIMEDOUT);
    count(&server, &counts);
    assert_in_range(counts.gets, 20, 400);
    assert_int_equal(dlock_release(held, NULL), 0);
    dlock_free(held);
    dlock_free(wanted);
    dlock_close(holder);
    dlock_close(waiter);
}

/* At most 10 round trips per lease/3; the first time, one of them is the greeting and one per batch looks the ids up.
 */
TEST(a_thousand_locks_are_renewed_in_a_few_round_trips) {
    enum { LOCKS = 1000 };
    static dlock_lock *locks[LOCKS];
    struct relay *relay = relay_new(server.port);
    struct counts counts;
    dlock_client *client;
    int renewals = 0, trips;
    client = open_at(relay_port(relay), "quarantine=0&lease=9s&timeout=9s");
    for (int i = 0; i < LOCKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%04d", i);
        locks[i] = api_lock(client, name, NULL);
        assert_int_equal(dlock_acquire(locks[i], 10000, NULL), 0);
    }
    relay_delay(relay, 20);
    trips = relay_trips(relay);
    count(&server, NULL);
    for (int64_t until = now_ms() + 20000; renewals < 3 * LOCKS && now_ms() < until; sleep_ms(10)) {
        count(&server, &counts);
        renewals += (int)counts.cas_hits;
    }
    trips = relay_trips(relay) - trips;
    print_message("%d round trips, %d renewals\n", trips, renewals);
    assert_true(renewals >= 3 * LOCKS);
    assert_in_range(trips, 1, 10 * renewals / LOCKS);
    for (int i = 0; i < LOCKS; i++) assert_true(dlock_held(locks[i]));
    relay_delay(relay, 0);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(dlock_release(locks[i], NULL), 0);
        dlock_free(locks[i]);
    }
    dlock_close(client);
    relay_end(relay);
}

/* ---- restarts ---------------------------------------------------------------------------------------------------- */

static _Atomic int64_t lost_ms;

static void on_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    assert_int_equal(err->code, DLOCK_ELOST);
    lost_ms = now_ms();
}

static void restart(void) {
    server_kill(&server);
    server_again(&server, NULL);
}

struct waiter {
    dlock_lock *lock;
    int code;
    int64_t got_it_ms;
    pthread_t thread;
};

static void *wait_for_it(void *arg) {
    struct waiter *waiter = arg;
    waiter->code = dlock_acquire(waiter->lock, 20000, NULL);
    waiter->got_it_ms = now_ms();
    return NULL;
}

/* Restarts the server while one client holds a lock and another waits for it. */
static void restart_in_between(const char *query, int64_t *lost_after_ms, int64_t *got_after_ms) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *holder = open_at(server.port, query), *other = open_at(server.port, query);
    struct waiter waiter;
    dlock_lock *held;
    int64_t begin;
    lost_ms = 0;
    options.owner = DLOCK_OWNER_HANDLE;
    waiter.lock = api_lock(other, "restarted", &options);
    options.on_lost = on_lost;
    held = api_lock(holder, "restarted", &options);
    assert_int_equal(dlock_acquire(held, 20000, NULL), 0);
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_it, &waiter), 0);
    sleep_ms(100);
    begin = now_ms();
    restart();
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.code, 0);
    assert_true(dlock_fence(waiter.lock) > 0);
    for (int64_t until = now_ms() + 10000; !lost_ms && now_ms() < until;) sleep_ms(5);
    assert_true(lost_ms != 0);
    assert_false(dlock_held(held));
    assert_int_equal(dlock_release(held, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(waiter.lock, NULL), 0);
    *lost_after_ms = lost_ms - begin;
    *got_after_ms = waiter.got_it_ms - begin;
    dlock_free(held);
    dlock_free(waiter.lock);
    dlock_close(holder);
    dlock_close(other);
}

/* The first renewal reveals it, at most a third of the lease later. Until then two clients may believe that they hold
 * the lock: hence the quarantine. */
TEST(a_restart_without_quarantine) {
    int64_t lost_after_ms, got_after_ms;
    restart_in_between("quarantine=0&lease=3s", &lost_after_ms, &got_after_ms);
    assert_in_range(lost_after_ms, 0, 3000 + 1000);
    assert_in_range(got_after_ms, 0, 5000);
}

TEST(a_restart_with_quarantine) {
    int64_t lost_after_ms, got_after_ms;
    restart_in_between("lease=3s", &lost_after_ms, &got_after_ms);
    assert_true(lost_after_ms < got_after_ms);
    assert_in_range(got_after_ms, 3000, 15000);
}

/* ---- a server far away ------------------------------------------------------------------------------------------- */

struct far_wait {
    dlock_client *client;
    dlock_lock *lock;
    int code;
    pthread_t thread;
};

static void *wait_far(void *arg) {
    struct far_wait *wait = arg;
    wait->code = dlock_acquire(wait->lock, 500, NULL);
    return NULL;
}

/* The last question may be unanswered at the deadline; the lock was held all the same. */
TEST(a_held_lock_of_a_slow_server_is_no_outage) {
    enum { WAITS = 12 };
    struct far_wait waits[WAITS];
    struct relay *relay = relay_new(server.port);
    dlock_client *holder = open_at(server.port, "quarantine=0&lease=60s");
    dlock_lock *held = api_lock(holder, "far", NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    relay_delay(relay, 20);
    for (int i = 0; i < WAITS; i++) {
        waits[i].client = open_at(relay_port(relay), "quarantine=0&lease=60s");
        waits[i].lock = api_lock(waits[i].client, "far", NULL);
    }
    for (int i = 0; i < WAITS; i++) {
        assert_int_equal(pthread_create(&waits[i].thread, NULL, wait_far, &waits[i]), 0);
        sleep_ms(3); /* so that not all of them ask at the same times */
    }
    for (int i = 0; i < WAITS; i++) {
        pthread_join(waits[i].thread, NULL);
        assert_int_equal(waits[i].code, DLOCK_ETIMEDOUT);
        dlock_free(waits[i].lock);
        dlock_close(waits[i].client);
    }
    assert_int_equal(dlock_release(held, NULL), 0);
    dlock_free(held);
    dlock_close(holder);
    relay_end(relay);
}

TESTS(NULL, NULL, group_begin, group_end)
