/* Through the public interface: two servers that change their roles, by REPLICAOF and by FAILOVER. The clients know
 * both; holders and waiters then continue at the new master. */
#include "api.h"
#include "support/group.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PLAYERS = 4, TURNS = 100 * PLAYERS, CHANGE_MS = 20000 };

static struct server second;

/* The new master knows nothing of what the old one granted last. */
static void swap_by_replicaof(struct server *master, struct server *replica) {
    assert_string_equal(ask_text(replica, "REPLICAOF NO ONE"), "OK");
    follow(master, replica->port);
}

/* The old master grants nothing until the new one knows everything that it granted. */
static void swap_by_failover(struct server *master, struct server *replica) {
    await_role(master, "state=online"); /* the replica knows of it first */
    assert_string_equal(ask_text(master, "FAILOVER TO 127.0.0.1 %d", replica->port), "OK");
    await_role(replica, "role:master");
    await_role(master, "master_link_status:up");
}

/* Redis has it since 6.2; only a server named by DLOCK_REDIS_SERVER may lack it. */
static bool can_failover(void) {
    if (ask_number(&server, "EVAL %s 0", "return redis.call('COMMAND', 'INFO', 'failover')[1] and 1 or 0")) return true;
    print_message("%s has no FAILOVER\n", getenv("DLOCK_REDIS_SERVER"));
    assert_non_null(getenv("DLOCK_REDIS_SERVER"));
    return false;
}

static int setup(void **state) {
    (void)state;
    server_start(&second, NULL);
    ask_text(&server, "FLUSHALL");
    ask_text(&server, "CONFIG SET repl-diskless-sync-delay 0");
    ask_text(&second, "CONFIG SET repl-diskless-sync-delay 0");
    follow(&second, server.port);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ask_text(&server, "REPLICAOF NO ONE");
    server_stop(&second);
    return 0;
}

static dlock_client *client_of_both(const char *query) {
    return api_client("redis://127.0.0.1:%d,127.0.0.1:%d?quarantine=0&%s", server.port, second.port, query);
}

/* ---- clients that take turns ------------------------------------------------------------------------------------- */

/* Takes turns with the others until it is told to stop; an outage ends some of them. */
struct player {
    dlock_client *client;
    dlock_lock *lock;
    atomic_int turns;
    pthread_t thread;
};
static struct player player[PLAYERS];
static atomic_bool play_on;

/* Checked by the holders themselves: no other holder, and fences that grow. */
static atomic_int inside, met, shrunk;
static _Atomic uint64_t last_fence;

static void *play(void *arg) {
    struct player *self = arg;
    while (play_on) {
        if (dlock_acquire(self->lock, 5000, NULL) != 0) continue;
        uint64_t fence = dlock_fence(self->lock);
        if (atomic_fetch_add(&inside, 1) > 0) met++;
        if (atomic_exchange(&last_fence, fence) >= fence) shrunk++;
        sleep_ms(1);
        inside--;
        if (dlock_release(self->lock, NULL) == 0) self->turns++;
    }
    return NULL;
}

static void begin_to_play(const char *query) {
    play_on = true;
    inside = met = shrunk = 0;
    last_fence = 0;
    for (int i = 0; i < PLAYERS; i++) {
        player[i].turns = 0;
        player[i].client = client_of_both(query);
        player[i].lock = api_lock(player[i].client, "roles", NULL);
        assert_int_equal(pthread_create(&player[i].thread, NULL, play, &player[i]), 0);
    }
}

static void end_of_play(void) {
    play_on = false;
    for (int i = 0; i < PLAYERS; i++) pthread_join(player[i].thread, NULL);
    for (int i = 0; i < PLAYERS; i++) dlock_free(player[i].lock);
    for (int i = 0; i < PLAYERS; i++) dlock_close(player[i].client);
}

static int fewest(const int before[PLAYERS]) {
    int least = INT32_MAX;
    for (int i = 0; i < PLAYERS; i++)
        if (player[i].turns - before[i] < least) least = player[i].turns - before[i];
    return least;
}

static int all(const int before[PLAYERS]) {
    int sum = 0;
    for (int i = 0; i < PLAYERS; i++) sum += player[i].turns - before[i];
    return sum;
}

/* Within a while each gets its turns again, about as many as the others. */
static void assert_fair(void) {
    int before[PLAYERS], least = 0, sum = 0;
    for (int64_t until = now_ms() + CHANGE_MS; least < TURNS / PLAYERS / 2;) {
        if (now_ms() > until) fail_msg("somebody had %d turns, all had %d", least, sum);
        for (int i = 0; i < PLAYERS; i++) before[i] = player[i].turns;
        while (all(before) < TURNS && now_ms() <= until) sleep_ms(5);
        least = fewest(before);
        sum = all(before);
    }
}

TEST(after_replicaof_nobody_starves) {
    begin_to_play("lease=2s&timeout=1s");
    assert_fair();
    swap_by_replicaof(&server, &second);
    assert_fair();
    swap_by_replicaof(&second, &server);
    assert_fair();
    end_of_play();
}

TEST(after_failover_nobody_starves) {
    if (!can_failover()) skip();
    begin_to_play("lease=10s&timeout=1s");
    assert_fair();
    for (int i = 0; i < 2; i++) {
        swap_by_failover(&server, &second);
        assert_fair();
        swap_by_failover(&second, &server);
        assert_fair();
    }
    end_of_play();
    assert_int_equal(met, 0);
    assert_int_equal(shrunk, 0);
}

/* ---- a line behind one holder ------------------------------------------------------------------------------------ */

static const char count_listeners[] =
    "local sum = 0; for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', 'dlock:*')) do "
    "sum = sum + redis.call('PUBSUB', 'NUMSUB', channel)[2] end; return sum";

static void await_listeners(struct server *at, int64_t number) {
    int64_t found;
    for (int64_t until = now_ms() + CHANGE_MS; (found = ask_number(at, "EVAL %s 0", count_listeners)) != number;
         sleep_ms(20))
        if (now_ms() > until) fail_msg("%" PRId64 " of %" PRId64 " listen", found, number);
}

static void await_line(struct server *at, int64_t number) {
    for (int64_t until = now_ms() + CHANGE_MS; ask_number(at, "ZCARD {line}:dlock:queue") != number; sleep_ms(5))
        if (now_ms() > until) fail_msg("not %" PRId64 " wait", number);
}

/* The line moves with its listeners while the lock is held, and is served in its order. */
TEST(failover_keeps_the_line) {
    struct api_worker waiter[PLAYERS];
    dlock_client *client[PLAYERS], *holder;
    if (!can_failover()) skip();
    memset(waiter, 0, sizeof waiter);
    holder = client_of_both("lease=3s&timeout=1s");
    dlock_lock *held = api_lock(holder, "line", NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    for (int i = 0; i < PLAYERS; i++) {
        client[i] = client_of_both("lease=3s&timeout=1s");
        waiter[i] = (struct api_worker){.lock = api_lock(client[i], "line", NULL), .timeout_ms = 60000, .rounds = 1};
        api_begin(&waiter[i]);
        await_line(&server, i + 1);
    }
    await_listeners(&server, PLAYERS);
    swap_by_failover(&server, &second);
    await_listeners(&second, PLAYERS);
    await_listeners(&server, 0);
    assert_true(dlock_held(held));
    await_line(&second, PLAYERS);
    uint64_t fence = dlock_fence(held);
    assert_int_equal(dlock_release(held, NULL), 0);
    for (int i = 0; i < PLAYERS; i++) {
        api_end(&waiter[i]);
        assert_int_equal(waiter[i].code, 0);
        assert_true(waiter[i].fence > fence);
        fence = waiter[i].fence;
    }
    for (int i = 0; i < PLAYERS; i++) dlock_free(waiter[i].lock);
    for (int i = 0; i < PLAYERS; i++) dlock_close(client[i]);
    dlock_free(held);
    dlock_close(holder);
}

/* ---- a connection that the change of roles did not end ------------------------------------------------------------ */

/* The old master does not know what the new one has granted since, and says nothing about it. */
TEST(a_former_master_ends_no_grant) {
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED};
    struct link former = {0}, present = {0};
    struct dlock_error err;
    link_to(&former, server.port, 'a');
    assert_string_equal(ask_text(&second, "REPLICAOF NO ONE"), "OK");
    assert_string_equal(ask_text(&server, "REPLICAOF 127.0.0.1 1"), "OK");
    link_to(&present, second.port, 'a');
    for (int i = 0; i < 2; i++) {
        struct held held;
        held_new(&held, &present, i ? "shared" : "exclusive");
        held.claim.mode = modes[i];
        assert_int_equal(acquire(&present, &held), 0);
        assert_int_equal(held_run(backend->renew, &former, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_int_equal(backend->break_lock(former.conn, held.claim.name, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_int_equal(renew(&present, &held), 0);
        assert_int_equal(release(&present, &held), 0);
        assert_int_equal(renew(&present, &held), DLOCK_ELOST);
    }
    link_end(&former);
    link_end(&present);
}

TESTS(setup, teardown, group_begin, group_end)
