/* Through the public interface: how an application sees the end of a session. */
#include "harness.h"
#include "support/api.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

static struct proxy *proxy;
static dlock_client *near, *far; /* far is behind the proxy */
static dlock_lock *ours, *theirs;
static atomic_int losses;
static _Atomic int64_t lost_at_ms;

static void on_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    atomic_store(&lost_at_ms, now_ms());
    atomic_fetch_add(&losses, 1);
}

static dlock_client *open_client(int port, const char *query) {
    return api_client("zookeeper://127.0.0.1:%d" BASE "?%s", port, query);
}

static int setup(void **state) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    (void)state;
    atomic_store(&losses, 0);
    options.on_lost = on_lost;
    options.owner = DLOCK_OWNER_HANDLE;
    proxy = proxy_new(shared_port());
    near = open_client(shared_port(), "session=10s");
    far = open_client(proxy_port(proxy), "session=3s&timeout=1s");
    assert_int_equal(dlock_new(near, "api", &options, &theirs, NULL), 0);
    assert_int_equal(dlock_new(far, "api", &options, &ours, NULL), 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    dlock_free(ours);
    dlock_free(theirs);
    dlock_close(far);
    dlock_close(near);
    proxy_end(proxy);
    return 0;
}

/* Told before another client has it, once; the handle works again when the server is back. */
TEST(holder_hears_of_expiry_in_time) {
    assert_int_equal(dlock_acquire(ours, 5000, NULL), 0);
    uint64_t fence = dlock_fence(ours);
    proxy_silence(proxy, true);
    assert_int_equal(dlock_acquire(theirs, 20000, NULL), 0);
    int64_t granted_ms = now_ms();
    assert_int_equal(atomic_load(&losses), 1);
    assert_true(atomic_load(&lost_at_ms) <= granted_ms);
    assert_true(dlock_fence(theirs) > fence);
    assert_false(dlock_held(ours));
    assert_int_equal(dlock_release(ours, NULL), DLOCK_ELOST);
    proxy_silence(proxy, false);
    assert_int_equal(dlock_release(theirs, NULL), 0);
    assert_int_equal(dlock_acquire(ours, 20000, NULL), 0);
    assert_int_equal(dlock_release(ours, NULL), 0);
    assert_int_equal(atomic_load(&losses), 1);
}

TEST(holder_rides_out_a_short_outage) {
    assert_int_equal(dlock_acquire(ours, 5000, NULL), 0);
    proxy_refuse(proxy, true);
    sleep_ms(300);
    proxy_refuse(proxy, false);
    for (int i = 0; i < 40; i++, sleep_ms(100)) assert_true(dlock_held(ours));
    assert_int_equal(dlock_release(ours, NULL), 0);
    assert_int_equal(atomic_load(&losses), 0);
}

static void *wait_for_it(void *arg) {
    int *rc = arg;
    *rc = dlock_acquire(ours, 30000, NULL);
    return NULL;
}

static int count_waiters(const struct dlock_info *info, void *arg) {
    *(uint32_t *)arg = info->waiters;
    return 0;
}

/* Until there is a waiter in the queue, not just a try. */
static void await_waiter(void) {
    uint32_t waiters = 0;
    for (int64_t until = now_ms() + 10000; waiters == 0; sleep_ms(20)) {
        assert_int_equal(dlock_inspect(near, "api", count_waiters, &waiters, NULL), 0);
        assert_true(now_ms() < until);
    }
}

/* A waiter whose session ends queues again in a new one. */
TEST(waiter_rides_out_expiry) {
    pthread_t thread;
    int rc = 1;
    assert_int_equal(dlock_acquire(theirs, 5000, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &rc), 0);
    await_waiter();
    proxy_silence(proxy, true);
    for (int64_t until = now_ms() + 20000; plain_count(BASE "/api") > 1; sleep_ms(20)) assert_true(now_ms() < until);
    proxy_silence(proxy, false);
    sleep_ms(500);
    assert_int_equal(dlock_release(theirs, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(dlock_release(ours, NULL), 0);
    assert_int_equal(plain_count(BASE "/api"), 0);
}

/* A client whose requests reach the server, but which receives nothing, keeps its session alive with every new
 * connection. It gives that up: a waiter behind it waits for two sessions and a quarter, not for the end of the
 * trouble. */
TEST(deaf_waiter_is_passed) {
    enum { SESSION_MS = 3000 };
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    SCOPED_CLIENT *client = open_client(shared_port(), "session=10s");
    SCOPED_LOCK *third;
    pthread_t thread;
    int rc = 1;
    assert_int_equal(dlock_new(client, "api", &options, &third, NULL), 0);
    assert_int_equal(dlock_acquire(theirs, 5000, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &rc), 0);
    await_waiter();
    proxy_deafen(proxy, true);
    int64_t deaf_ms = now_ms();
    assert_int_equal(dlock_release(theirs, NULL), 0);
    assert_int_equal(dlock_acquire(third, 30000, NULL), 0);
    assert_in_range(now_ms() - deaf_ms, SESSION_MS / 2, 9 * SESSION_MS / 4 + 5000);
    proxy_deafen(proxy, false);
    assert_int_equal(dlock_release(third, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(dlock_release(ours, NULL), 0);
}

/* Another connection is tried while the session suffices to prove on it that it lives. */
TEST(silent_connection_costs_no_lock) {
    enum { SESSION_MS = 10000 };
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    SCOPED_CLIENT *client = open_client(proxy_port(proxy), "session=10s");
    SCOPED_LOCK *lock;
    options.on_lost = on_lost;
    assert_int_equal(dlock_new(client, "api", &options, &lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 5000, NULL), 0);
    sleep_ms(2500); /* renewed on a connection that was still well */
    proxy_strand(proxy);
    sleep_ms(SESSION_MS + 500);
    assert_true(dlock_held(lock));
    assert_int_equal(atomic_load(&losses), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* A lock that could not be released while the server was away is released afterwards, though the session lives on:
 * nothing but that would ever end it. */
TEST(release_in_an_outage_is_made_up_for) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    SCOPED_CLIENT *client;
    SCOPED_LOCK *lock;
    options.lease_ms = 1000;
    client = open_client(proxy_port(proxy), "session=20s&timeout=500ms");
    assert_int_equal(dlock_new(client, "api", &options, &lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 5000, NULL), 0);
    proxy_refuse(proxy, true);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EUNAVAILABLE);
    sleep_ms(3000); /* longer than the lease */
    proxy_refuse(proxy, false);
    for (int64_t until = now_ms() + 10000; plain_count(BASE "/api") > 0; sleep_ms(20)) assert_true(now_ms() < until);
}

/* The end of the session is not noticed yet; the servers are well. */
TEST(first_try_after_expiry_is_answered) {
    SCOPED_CLIENT *client = open_client(proxy_port(proxy), "session=2s&timeout=20s");
    struct dlock_error err = {0};
    SCOPED_LOCK *lock = api_lock(client, "first try", NULL);
    assert_int_equal(dlock_acquire(lock, 5000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    proxy_silence(proxy, true);
    sleep_ms(5000);
    proxy_silence(proxy, false);
    sleep_ms(1000);
    int rc = dlock_acquire(lock, 0, &err);
    if (rc != 0) fail_msg("%d: %s", rc, err.message);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* The server allows shorter sessions since its restart. A holder without waiters learns of that as well, and not only
 * when its next renewal is due, in three minutes. (After a refused connection the library waits for a 60th of the
 * session until it tries another one.) */
TEST(holder_hears_of_a_shorter_session) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct site site;
    dlock_client *holder, *next;
    dlock_lock *held, *wanted;
    site_start(&site);
    site_sessions(&site, 400, 600000);
    site_restart(&site);
    holder = open_client(site.port, "session=10m&lease=10m&timeout=1m");
    options.on_lost = on_lost;
    assert_int_equal(dlock_new(holder, "shorter", &options, &held, NULL), 0);
    assert_int_equal(dlock_acquire(held, 60000, NULL), 0);
    assert_in_range(dlock_remaining_ms(held), 500000, 600000);
    site_sessions(&site, 400, 30000);
    site_restart(&site);
    next = open_client(site.port, "session=10s&timeout=1m");
    wanted = api_lock(next, "shorter", NULL);
    assert_int_equal(dlock_acquire(wanted, 60000, NULL), 0);
    assert_int_equal(atomic_load(&losses), 1);
    assert_false(dlock_held(held));
    assert_int_equal(dlock_release(held, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(wanted, NULL), 0);
    dlock_free(held);
    dlock_free(wanted);
    dlock_close(holder);
    dlock_close(next);
    site_stop(&site);
}

/* The next renewal would be three seconds later. */
TEST(a_break_reaches_a_holder_that_has_renewed_at_once) {
    struct dlock_stats stats = DLOCK_STATS_INIT;
    assert_int_equal(dlock_acquire(theirs, 5000, NULL), 0);
    while (stats.renewals == 0) {
        sleep_ms(5);
        assert_int_equal(dlock_client_stats(near, &stats, NULL), 0);
    }
    int64_t begun = now_ms();
    assert_int_equal(dlock_break(far, "api", NULL), 0);
    while (dlock_held(theirs)) sleep_ms(5);
    assert_in_range(now_ms() - begun, 0, 1500);
    assert_int_equal(dlock_lost(theirs, NULL), DLOCK_LOSS_BROKEN);
    assert_int_equal(dlock_release(theirs, NULL), DLOCK_ELOST);
}

TESTS(setup, teardown, NULL, NULL)
