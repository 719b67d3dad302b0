/* Through the public interface: a connection for wake-ups that stays open and brings none, and one that brings an old
 * one. Through the backend's: probes. */
#include "site.h"
#include "support/api.h"
#include "support/relay.h"

#include <pthread.h>

static void *acquire_it(void *arg) {
    return (void *)(intptr_t)dlock_acquire(arg, 60000, NULL);
}

/* One channel of one client: the name changes when it listens again. */
static void await_channel_other_than(const char *channel) {
    for (int64_t until = now_ms() + 30000;; sleep_ms(20)) {
        const char *now = sql_text("SELECT coalesce(max(channel), '') FROM {}.listeners");
        if (*now && strcmp(now, channel) != 0) return;
        if (now_ms() > until) fail_msg("still %s", now);
    }
}

TEST(one_that_a_proxy_forgot_is_replaced) {
    SCOPED_RELAY *relay = relay_new(site.port);
    const char *const uri = "postgresql://dlock@127.0.0.1:%d/postgres?schema=%s&lease=3s";
    SCOPED_CLIENT *near = api_client(uri, site.port, site.schema);
    SCOPED_CLIENT *far = api_client(uri, relay_port(relay), site.schema);
    SCOPED_LOCK *held = api_lock(near, "n", NULL), *lock = api_lock(far, "n", NULL);
    char channel[128];
    pthread_t thread;
    void *code;
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, acquire_it, lock), 0);
    await_channel_other_than("");
    snprintf(channel, sizeof channel, "%s", sql_text("SELECT channel FROM {}.listeners"));
    assert_int_equal(relay_mute(relay, ".listen("), 1);
    await_channel_other_than(channel);
    assert_int_equal(dlock_release(held, NULL), 0);
    pthread_join(thread, &code);
    assert_int_equal((intptr_t)code, 0);
}

/* The message that the only waiter would have read about a grant that it had ten seconds ago. */
static void tell_of_an_old_grant(void) {
    sql("SET search_path = {}");
    sql("SELECT pg_notify(l.channel, coded(ARRAY[l.channel, l.secret], grant_message(q.token, 1, clock_us() - 10000000,"
        " 3000, q.name))) FROM listeners l JOIN queue q ON l.client = left(q.token, 24)");
    sql("RESET search_path");
}

static void *acquire_and_release_it(void *arg) {
    static uint64_t fence;
    assert_int_equal(dlock_acquire(arg, 60000, NULL), 0);
    fence = dlock_fence(arg);
    assert_int_equal(dlock_release(arg, NULL), 0);
    return &fence;
}

/* It is read after the waiter has been granted the lock again, and before the wake-up for that: the fence is the
 * server's, and greater than the previous holder's. */
TEST(one_that_brings_an_old_grant_late_is_not_believed) {
    SCOPED_RELAY *relay = relay_new(site.port);
    const char *const uri = "postgresql://dlock@127.0.0.1:%d/postgres?schema=%s&lease=30s";
    SCOPED_CLIENT *near = api_client(uri, site.port, site.schema);
    SCOPED_CLIENT *far = api_client(uri, relay_port(relay), site.schema);
    SCOPED_LOCK *held = api_lock(near, "n", NULL), *lock = api_lock(far, "n", NULL);
    pthread_t thread;
    void *fence;
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    uint64_t before = dlock_fence(held);
    assert_int_equal(pthread_create(&thread, NULL, acquire_and_release_it, lock), 0);
    sql_wait("SELECT count(*) FROM {}.listeners l JOIN {}.queue q ON l.client = left(q.token, 24)");
    relay_hold(relay, RELAY_ANSWERS, true);
    tell_of_an_old_grant();
    assert_int_equal(dlock_release(held, NULL), 0);
    relay_hold(relay, RELAY_ANSWERS, false);
    pthread_join(thread, &fence);
    assert_true(*(uint64_t *)fence > before);
}

/* The probe is in flight when the server sends a wake-up, which counts as the answer; then the next probe is due. */
TEST(a_probe_that_a_wake_up_has_overtaken_does_no_harm) {
    SCOPED_RELAY *relay = relay_new(site.port);
    const struct params through = {.port = relay_port(relay)};
    SCOPED_LINK ear;
    struct dlock_wake wake;
    struct dlock_error err = {0};
    LINK(holder, 'a');
    LINK(waiter, 'b');
    assert_int_equal(link_with(&ear, &through, 'b', TIMEOUT_MS, &err), 0);
    link_listen(&ear);
    HELD(held, &holder, "overtaken");
    HELD(waiting, &waiter, "overtaken");
    assert_int_equal(acquire(&holder, &held), 0);
    assert_int_equal(queue_up(&waiter, &waiting), DLOCK_EBUSY);
    relay_hold(relay, RELAY_REQUESTS, true);
    assert_int_equal(backend->probe(ear.conn, &err), 0);
    assert_int_equal(release(&holder, &held), 0);
    wake_get(&ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_int_equal(backend->probe(ear.conn, &err), 0);
    relay_hold(relay, RELAY_REQUESTS, false);
    wake_get(&ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_HEARD);
    assert_int_equal(release(&waiter, &waiting), 0);
}

TESTS(NULL, NULL, site_begin, site_end)
