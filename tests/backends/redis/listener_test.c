/* Through the public interface: a connection for wake-ups that stays open and brings none. */
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

TESTS(NULL, NULL, group_begin, group_end)
