/* Through the public interface: a connection for wake-ups that stays open and brings none. */
#include "api.h"
#include "support/group.h"
#include "support/relay.h"

#include <stdatomic.h>

/* How many listen on the only channel that there is. */
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

static void one_that_a_proxy_forgot_is_replaced(void **state) {
    struct relay *relay = relay_new(server.port);
    dlock_client *near = api_open(&server, "quarantine=0");
    dlock_client *far = api_client("redis://127.0.0.1:%d?quarantine=0&lease=3s", relay_port(relay));
    dlock_lock *held = api_lock(near, "n", NULL);
    struct api_worker worker = {.lock = api_lock(far, "n", NULL), .timeout_ms = 60000, .rounds = 1};
    (void)state;
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

/* ---- two servers that change their roles ------------------------------------------------------------------------- */

static struct server second;

static void follow(struct server *replica, const struct server *master) {
    assert_string_equal(ask_text(replica, "REPLICAOF 127.0.0.1 %d", master->port), "OK");
    for (int64_t until = now_ms() + 20000;; sleep_ms(20)) {
        if (strstr(ask_text(replica, "INFO replication"), "master_link_status:up")) return;
        if (now_ms() > until) fail_msg("no replication");
    }
}

static void swap(struct server *master, struct server *replica) {
    assert_string_equal(ask_text(replica, "REPLICAOF NO ONE"), "OK");
    follow(master, replica);
}

/* Takes turns with others until it is told to stop; an outage ends some of them. */
struct player {
    dlock_client *client;
    dlock_lock *lock;
    atomic_int turns;
    pthread_t thread;
};
static atomic_bool play_on;

static void *play(void *arg) {
    struct player *player = arg;
    while (play_on) {
        if (dlock_acquire(player->lock, 5000, NULL) != 0) continue;
        sleep_ms(1);
        if (dlock_release(player->lock, NULL) == 0) player->turns++;
    }
    return NULL;
}

/* Both get their turns again within a while, and then about as many. */
static void assert_fair(struct player players[2]) {
    int before[2], after[2];
    for (int i = 0; i < 2; i++) before[i] = players[i].turns;
    for (int64_t until = now_ms() + 20000; players[0].turns == before[0] || players[1].turns == before[1]; sleep_ms(5))
        if (now_ms() > until) fail_msg("%d and %d turns", players[0].turns - before[0], players[1].turns - before[1]);
    for (int i = 0; i < 2; i++) before[i] = players[i].turns;
    do {
        sleep_ms(5);
        for (int i = 0; i < 2; i++) after[i] = players[i].turns - before[i];
    } while (after[0] + after[1] < 200);
    for (int i = 0; i < 2; i++) assert_in_range(after[i], 50, 150);
}

static void after_a_change_of_roles_nobody_starves(void **state) {
    struct player players[2] = {{.turns = 0}, {.turns = 0}};
    (void)state;
    server_start(&second, NULL);
    follow(&second, &server);
    play_on = true;
    for (int i = 0; i < 2; i++) {
        players[i].client =
            api_client("redis://127.0.0.1:%d,127.0.0.1:%d?quarantine=0&lease=2s&timeout=1s", server.port, second.port);
        players[i].lock = api_lock(players[i].client, "roles", NULL);
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    assert_fair(players);
    swap(&server, &second);
    assert_fair(players);
    swap(&second, &server);
    assert_fair(players);
    play_on = false;
    for (int i = 0; i < 2; i++) pthread_join(players[i].thread, NULL);
    for (int i = 0; i < 2; i++) dlock_free(players[i].lock);
    for (int i = 0; i < 2; i++) dlock_close(players[i].client);
    server_stop(&second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_a_proxy_forgot_is_replaced),
        cmocka_unit_test(after_a_change_of_roles_nobody_starves),
    };
    return cmocka_run_group_tests_name("listener", tests, group_begin, group_end);
}
