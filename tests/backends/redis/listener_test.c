/* Through the public interface: a connection for wake-ups that stays open and brings none, and one that tells holders of
 * a break. */
#include "api.h"
#include "support/group.h"
#include "support/relay.h"

/* How many listen on the only channel. */
static int64_t listeners(void) {
    char channel[64];
    snprintf(channel, sizeof channel, "%s",
             ask_text(&server, "EVAL %s 0", "return redis.call('PUBSUB', 'CHANNELS', 'dlock:*')[1]"));
    return ask_number(&server, "EVAL %s 0 %s", "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]", channel);
}

/* The old one stays at the server, since the proxy in between closes nothing. */
static void await_listeners(int64_t number) {
    for (int64_t until = now_ms() + 30000; listeners() != number; sleep_ms(20))
        if (now_ms() > until) fail_msg("%lld listen", (long long)listeners());
}

TEST(one_that_a_proxy_forgot_is_replaced) {
    struct relay *relay = relay_new(server.port);
    dlock_client *near = api_open(&server, "quarantine=0");
    dlock_client *far = api_client("redis://127.0.0.1:%d?quarantine=0&lease=3s", relay_port(relay));
    dlock_lock *held = api_lock(near, "n", NULL);
    struct api_worker worker = {.lock = api_lock(far, "n", NULL), .timeout_ms = 60000, .rounds = 1};
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    api_begin(&worker);
    await_listeners(1);
    assert_int_equal(relay_mute(relay, "SUBSCRIBE"), 1);
    await_listeners(2);
    assert_int_equal(dlock_release(held, NULL), 0);
    api_await_grant(&worker);
    api_end(&worker);
    assert_int_equal(worker.code, 0);
    dlock_free(held);
    dlock_free(worker.lock);
    dlock_close(near);
    dlock_close(far);
    relay_end(relay);
}

/* The next renewals would be two seconds later. Every holder is told. */
TEST(a_break_reaches_those_that_renew_at_once) {
    static const struct dlock_options terms[] = {
        {.size = sizeof terms[0]},
        {.size = sizeof terms[0], .mode = DLOCK_SHARED},
        {.size = sizeof terms[0], .mode = DLOCK_SHARED, .owner = DLOCK_OWNER_HANDLE},
        {.size = sizeof terms[0], .mode = DLOCK_PERMIT, .limit = 3},
    };
    static const char *const names[] = {"exclusive", "shared", "shared", "permits"};
    enum { N = sizeof names / sizeof names[0] };
    dlock_client *client = api_open(&server, "quarantine=0&lease=6s"), *operator= api_open(&server, "quarantine=0");
    dlock_lock *locks[N];
    for (int i = 0; i < N; i++) {
        locks[i] = api_lock(client, names[i], &terms[i]);
        assert_int_equal(dlock_acquire(locks[i], 1000, NULL), 0);
    }
    await_listeners(1); /* from the first renewal on */
    int64_t begun = now_ms();
    for (int i = 0; i < N; i++)
        if (i != 2) assert_int_equal(dlock_break(operator, names[i], NULL), 0);
    for (int i = 0; i < N; i++) {
        while (dlock_held(locks[i])) sleep_ms(5);
        assert_int_equal(dlock_lost(locks[i], NULL), DLOCK_LOSS_BROKEN);
        assert_int_equal(dlock_release(locks[i], NULL), DLOCK_ELOST);
        dlock_free(locks[i]);
    }
    assert_in_range(now_ms() - begun, 0, 1500);
    dlock_close(client);
    dlock_close(operator);
}

TESTS(NULL, NULL, group_begin, group_end)
