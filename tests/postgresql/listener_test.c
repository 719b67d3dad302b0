/* Through the public interface: a connection for wake-ups that stays open and brings none. */
#include "site.h"
#include "support/api.h"
#include "support/relay.h"

#include <pthread.h>

static void *acquire_it(void *arg) {
    return (void *)(intptr_t)dlock_acquire(arg, 60000, NULL);
}

/* One channel of one client: the name changes when it listens anew. */
static void await_channel_other_than(const char *channel) {
    for (int64_t until = now_ms() + 30000;; sleep_ms(20)) {
        const char *now = sql_text("SELECT coalesce(max(channel), '') FROM {}.listeners");
        if (*now && strcmp(now, channel) != 0) return;
        if (now_ms() > until) fail_msg("still %s", now);
    }
}

static void one_that_a_proxy_forgot_is_replaced(void **state) {
    struct relay *relay = relay_new(site.port);
    const char *const uri = "postgresql://dlock@127.0.0.1:%d/postgres?schema=%s&lease=3s";
    dlock_client *near = api_client(uri, site.port, site.schema);
    dlock_client *far = api_client(uri, relay_port(relay), site.schema);
    dlock_lock *held = api_lock(near, "n", NULL), *lock = api_lock(far, "n", NULL);
    char channel[128];
    pthread_t thread;
    void *code;
    (void)state;
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, acquire_it, lock), 0);
    await_channel_other_than("");
    snprintf(channel, sizeof channel, "%s", sql_text("SELECT channel FROM {}.listeners"));
    assert_int_equal(relay_mute(relay, "listen_v4("), 1);
    await_channel_other_than(channel);
    assert_int_equal(dlock_release(held, NULL), 0);
    pthread_join(thread, &code);
    assert_int_equal((intptr_t)code, 0);
    dlock_free(held);
    dlock_free(lock);
    dlock_close(near);
    dlock_close(far);
    relay_end(relay);
}

SITE_MAIN(cmocka_unit_test(one_that_a_proxy_forgot_is_replaced))
