/* The server's cost of a grant does not depend on the length of the queue: the commands of scripts are counted, with a
 * dozen waiters and with a thousand. */
#include "crew.h"

#include <stdio.h>

/* TIMES: of the releases by the three clients whose last acquire was put into the queue. */
enum { FEW = 12, MANY = 1000, ROUNDS = 8, TIMES = 6, CONFIRM_MS = 3000, TRIES = 20 };
static struct held waiter[MANY];

/* Puts n waiters of a client that does not listen behind those that queue. */
static void add_dead(const char *name, int n) {
    static const char script[] =
        "local last = redis.call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2] or 0 for i = 1, tonumber(ARGV[1]) do "
        "local token = string.format('%024x.1@nobody:1', i) redis.call('ZADD', KEYS[1], last + i, token) "
        "redis.call('HSET', KEYS[2], token, '10000@1') end";
    ask_text(&server, "EVAL %s 2 {%s}:dlock:queue {%s}:dlock:waiters %d", script, name, name, n);
}

static void queue_one(int i, enum dlock_mode mode, uint32_t limit, int stride) {
    bool writer = stride && i % stride == 0;
    crew_claim(&waiter[i], i % CREW, "counter", writer ? DLOCK_EXCLUSIVE : mode, writer ? 0 : limit);
    waiter[i].claim.lease_ms = 600000;
    assert_int_equal(queue_up(&asker[i % CREW], &waiter[i]), i == 0 || (uint32_t)i < limit ? 0 : DLOCK_EBUSY);
}

/* n waiters, every `stride`-th of them exclusive if that is not 0. The last one and those at the front are real; no
 * test reaches the others. A thousand real ones take so long on a busy machine that the first would be considered
 * dead. */
static void line_up(int n, enum dlock_mode mode, uint32_t limit, int stride) {
    for (int i = 0; i < FEW - 1; i++) queue_one(i, mode, limit, stride);
    add_dead("counter", n - FEW);
    queue_one(n - 1, mode, limit, stride);
}

/* The commands of ROUNDS releases, each followed by a request of the last waiter and by a try of another client. -1:
 * the machine was so slow that a waiter, or an unconfirmed hand-over, may have expired before its release. */
static int try_cost(int n, enum dlock_mode mode, uint32_t limit, int stride) {
    struct monitor monitor;
    struct held late;
    bool slow = false;
    ask_text(&server, "FLUSHALL");
    const int64_t begun_ms = now_ms();
    line_up(n, mode, limit, stride);
    crew_claim(&late, 1, "counter", mode, limit);
    assert_int_equal(release(&asker[1], &late), DLOCK_ELOST); /* now the server has the script */
    monitor_begin(&monitor, &server);
    for (int i = 0; i < ROUNDS && !slow; i++) {
        int released = release(&asker[i % CREW], &waiter[i]);
        int again = queue_up(&asker[(n - 1) % CREW], &waiter[n - 1]), tried = acquire(&asker[1], &late);
        slow = now_ms() - begun_ms >= CONFIRM_MS;
        if (slow) break;
        assert_int_equal(released, 0);
        assert_int_equal(again, DLOCK_EBUSY);
        assert_int_equal(tried, DLOCK_EBUSY);
    }
    monitor_end(&monitor, &server);
    if (slow) return -1;
    assert_int_equal(monitor.evalsha, 3 * ROUNDS);
    assert_int_equal(monitor.requests, 3 * ROUNDS + TIMES);
    return monitor.commands;
}

static int cost(int n, enum dlock_mode mode, uint32_t limit, int stride) {
    for (int tries = 0; tries < TRIES; tries++) {
        int commands = try_cost(n, mode, limit, stride);
        if (commands >= 0) return commands;
    }
    fail_msg("the machine is too slow: no %d rounds without a pause", ROUNDS);
    return -1;
}

static void assert_constant(const char *what, enum dlock_mode mode, uint32_t limit, int stride) {
    int few = cost(FEW, mode, limit, stride), many = cost(MANY, mode, limit, stride);
    print_message("%s: %d commands in scripts with %d waiters, %d with %d\n", what, few, FEW, many, MANY);
    assert_int_equal(few, many);
    assert_true(few > ROUNDS);
}

TEST(of_exclusive_locks) {
    assert_constant("exclusive", DLOCK_EXCLUSIVE, 0, 0);
}

TEST(of_readers_and_writers) {
    assert_constant("writers and readers in turn", DLOCK_SHARED, 0, 2);
}

TEST(of_permits) {
    assert_constant("permits", DLOCK_PERMIT, 2, 0);
}

/* A hand-over that ends silently: a client that asks then looks only at the first in the queue. */
static int cost_of_silence(int n) {
    struct monitor monitor;
    ask_text(&server, "FLUSHALL");
    line_up(n, DLOCK_EXCLUSIVE, 0, 0);
    assert_int_equal(release(&asker[0], &waiter[0]), 0);
    ask_number(&server, "DEL counter"); /* waiter 1 had it */
    monitor_begin(&monitor, &server);
    assert_int_equal(queue_up(&asker[2], &waiter[2]), 0);
    monitor_end(&monitor, &server);
    return monitor.commands;
}

TEST(of_a_stopped_client) {
    int few, many;
    few = cost_of_silence(FEW);
    many = cost_of_silence(MANY);
    assert_int_equal(few, many);
}

/* The server's cost of a hand-over, beside the two requests: each command of a script costs about as much as a
 * request's way through the server. */
TEST(of_a_hand_over) {
    enum { RELEASE = 11, QUEUE = 7 };
    struct monitor monitor;
    struct held late;
    line_up(FEW, DLOCK_EXCLUSIVE, 0, 0);
    assert_int_equal(release(&asker[0], &waiter[0]), 0); /* the first one also begins the time until the next turn */
    monitor_begin(&monitor, &server);
    assert_int_equal(release(&asker[1], &waiter[1]), 0);
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.commands, RELEASE);
    assert_int_equal(monitor.requests, 2); /* with a TIME, since client 1 was put into the queue itself */
    crew_claim(&late, 3, "counter", DLOCK_EXCLUSIVE, 0);
    monitor_begin(&monitor, &server);
    assert_int_equal(queue_up(&asker[3], &late), DLOCK_EBUSY);
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.commands, QUEUE);
}

/* However many waiters have died, no call of a script is long, and the next one that lives gets the lock. */
TEST(of_many_dead) {
    enum { DEAD = 2000, MOST = 200 * 6 + 50 };
    struct held held, late;
    for (int i = 0; i < 3; i++) { /* a release finds them, or one who asks */
        struct monitor monitor;
        crew_claim(&held, 0, "graves", DLOCK_EXCLUSIVE, 0);
        crew_claim(&late, 1, "graves", DLOCK_EXCLUSIVE, 0);
        assert_int_equal(acquire(&asker[0], &held), 0);
        add_dead("graves", DEAD);
        assert_int_equal(queue_up(&asker[1], &late), DLOCK_EBUSY);
        if (i) ask_number(&server, "DEL graves");
        monitor_begin(&monitor, &server);
        if (i == 0) assert_int_equal(release(&asker[0], &held), 0);
        if (i == 1) {
            while (queue_up(&asker[1], &late) == DLOCK_EBUSY) assert_int_equal(late.claim.retry_ms, 0);
        }
        if (i == 2) assert_int_equal(release(&asker[0], &held), DLOCK_ELOST);
        monitor_end(&monitor, &server);
        assert_in_range(monitor.evalsha, DEAD / 200, DEAD / 200 + 2);
        assert_true(monitor.commands <= monitor.evalsha * MOST);
        if (i != 1) assert_granted(1, &late, 0);
        assert_string_equal(ask_text(&server, "GET graves"), late.token);
        assert_int_equal(release(&asker[1], &late), 0);
    }
}

TESTS(crew_setup, crew_teardown, group_begin, group_end)
