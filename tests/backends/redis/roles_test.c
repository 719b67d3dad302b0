/* Through the public interface: two servers that change their roles, by REPLICAOF and by FAILOVER. The clients know
 * both; holders and waiters then continue at the new master. */
#include "players.h"
#include "support/group.h"

#include <inttypes.h>
#include <stdlib.h>

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

static void uri_of_both(char uri[100], const char *query) {
    snprintf(uri, 100, "redis://127.0.0.1:%d,127.0.0.1:%d?quarantine=0&%s", server.port, second.port, query);
}

/* ---- clients that take turns ------------------------------------------------------------------------------------- */

static void begin_to_play(const char *query) {
    char uri[100];
    uri_of_both(uri, query);
    players_begin(uri, "roles");
    players_await_fairness();
}

TEST(after_replicaof_nobody_starves) {
    begin_to_play("lease=2s&timeout=1s");
    swap_by_replicaof(&server, &second);
    players_await_fairness();
    swap_by_replicaof(&second, &server);
    players_await_fairness();
    players_stop();
}

TEST(after_failover_nobody_starves) {
    if (!can_failover()) skip();
    begin_to_play("lease=10s&timeout=1s");
    for (int i = 0; i < 2; i++) {
        swap_by_failover(&server, &second);
        players_await_fairness();
        swap_by_failover(&second, &server);
        players_await_fairness();
    }
    players_end();
}

/* ---- a line behind one holder ------------------------------------------------------------------------------------ */

static const char count_listeners[] =
    "local sum = 0; for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', 'dlock:*')) do "
    "sum = sum + redis.call('PUBSUB', 'NUMSUB', channel)[2] end; return sum";

/* The holder may listen, too, once it has renewed. */
static void await_listeners(struct server *at, int64_t number, int64_t most) {
    int64_t found, until = now_ms() + CHANGE_MS;
    while ((found = ask_number(at, "EVAL %s 0", count_listeners)) < number || found > most) {
        if (now_ms() > until) fail_msg("%" PRId64 " of %" PRId64 " listen", found, number);
        sleep_ms(20);
    }
}

static void await_line(struct server *at, int64_t number) {
    for (int64_t until = now_ms() + CHANGE_MS; ask_number(at, "ZCARD {line}:dlock:queue") != number; sleep_ms(5))
        if (now_ms() > until) fail_msg("not %" PRId64 " wait", number);
}

/* The line moves with its listeners while the lock is held, and is served in its order. */
TEST(failover_keeps_the_line) {
    enum { WAITING = 4 };
    struct api_worker waiter[WAITING];
    dlock_client *client[WAITING];
    char uri[100];
    if (!can_failover()) skip();
    uri_of_both(uri, "lease=3s&timeout=1s");
    dlock_client *holder = api_client("%s", uri);
    dlock_lock *held = api_lock(holder, "line", NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    for (int i = 0; i < WAITING; i++) {
        client[i] = api_client("%s", uri);
        waiter[i] = (struct api_worker){.lock = api_lock(client[i], "line", NULL), .timeout_ms = 60000, .rounds = 1};
        api_begin(&waiter[i]);
        await_line(&server, i + 1);
    }
    await_listeners(&server, WAITING, WAITING + 1);
    swap_by_failover(&server, &second);
    await_listeners(&second, WAITING, WAITING + 1);
    await_listeners(&server, 0, 0);
    assert_true(dlock_held(held));
    await_line(&second, WAITING);
    uint64_t fence = dlock_fence(held);
    assert_int_equal(dlock_release(held, NULL), 0);
    for (int i = 0; i < WAITING; i++) {
        api_end(&waiter[i]);
        assert_int_equal(waiter[i].code, 0);
        assert_true(waiter[i].fence > fence);
        fence = waiter[i].fence;
    }
    for (int i = 0; i < WAITING; i++) dlock_free(waiter[i].lock);
    for (int i = 0; i < WAITING; i++) dlock_close(client[i]);
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
