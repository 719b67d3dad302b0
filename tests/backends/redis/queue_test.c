/* The queue: when waiters ask, turns of clients that poll, waiters that died or stand still, and what is left there. */
#include "crew.h"

#include <hiredis.h>

static struct link holder; /* client 'f' */
static struct held held, waiter[CREW];

static int setup(void **state) {
    crew_setup(state);
    link_to(&holder, server.port, 'f');
    claim_init(&held, "the lock", 'f', 1);
    for (int i = 0; i < CREW; i++) claim_init(&waiter[i], "the lock", (char)('a' + i), 1);
    assert_int_equal(acquire(&holder, &held), 0);
    return 0;
}

static int teardown(void **state) {
    link_end(&holder);
    return crew_teardown(state);
}

static const char *holder_now(void) {
    return ask_text(&server, "GET %s", "the lock");
}

/* Client i has been told, by one message, that it holds the lock, and so it is on the server. */
static void assert_woken(int i, uint64_t after_fence) {
    assert_granted(i, &waiter[i], after_fence);
    assert_string_equal(holder_now(), waiter[i].token);
}

/* No client is told when a lease ends: every waiter asks a moment after that, in order, and before a hand-over made in
 * the meantime could have ended, even one to the waiter itself. */
TEST(retries_follow_the_place_in_the_queue) {
    for (int i = 0; i < 4; i++) assert_int_equal(queue_up(&asker[i], &waiter[i]), DLOCK_EBUSY);
    for (int i = 0; i < 4; i++) assert_int_equal(waiter[i].claim.retry_ms, 2250);
    waiter[0].claim.lease_ms = 1500;
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(waiter[0].claim.retry_ms, 1125);
    ask_number(&server, "PEXPIRE %s 400", "the lock");
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    assert_in_range(waiter[1].claim.retry_ms, 6, 406);
    ask_number(&server, "PEXPIRE %s 400", "the lock");
    assert_int_equal(queue_up(&asker[3], &waiter[3]), DLOCK_EBUSY);
    assert_in_range(waiter[3].claim.retry_ms, 16, 416);
}

TEST(a_short_lease_is_handed_over_as_it_is) {
    waiter[0].claim.lease_ms = 700;
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(release(&holder, &held), 0);
    assert_woken(0, held.claim.fence);
    assert_true(ask_number(&server, "PTTL %s", "the lock") <= 700);
}

/* Its wake-ups go nowhere, or to a server that was the master. */
TEST(a_client_that_does_not_listen_is_told) {
    crew_deaf(0);
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(waiter[0].claim.hints, DLOCK_HINT_UNHEARD);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
        assert_int_equal(waiter[1].claim.hints, 0);
    }
    crew_deaf(1);
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    assert_int_equal(waiter[1].claim.hints, DLOCK_HINT_UNHEARD);
}

/* Also one that the server knew before, and whose claims it has forgotten, as those of a client that does not listen. */
TEST(a_client_that_listens_no_more_is_told) {
    struct held claim;
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(waiter[0].claim.hints, 0);
    crew_deaf(0);
    for (int i = 2; i == 2 || claim.claim.hints != DLOCK_HINT_UNHEARD; i++) {
        if (i == 200) fail_msg("it was not told");
        claim_init(&claim, "the lock", 'a', i);
        assert_int_equal(queue_up(&asker[0], &claim), DLOCK_EBUSY);
        sleep_ms(50);
    }
}

/* PUBLISH counts a monitor as a receiver: that must not make the dead look alive, nor the living twice woken. */
TEST(a_monitor_changes_nothing) {
    redisContext *monitor = redisConnect("127.0.0.1", server.port);
    freeReplyObject(redisCommand(monitor, "PSUBSCRIBE *"));
    for (int i = 0; i < 4; i++) assert_int_equal(queue_up(&asker[i], &waiter[i]), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) crew_deaf(i);
    assert_int_equal(release(&holder, &held), 0);
    assert_woken(2, held.claim.fence);
    assert_int_equal(ask_number(&server, "ZCARD %s", "{the lock}:dlock:queue"), 1);
    assert_quiet(2);
    redisFree(monitor);
}

/* A lost host with waiters of several clients: they are still subscribed, and none of them asks. Together they cost one
 * hand-over. */
TEST(the_silent_cost_one_hand_over_in_all) {
    struct held silent[2 * CREW];
    struct dlock_wake wake;
    int handed_over = 0;
    int64_t begin;
    for (int i = 0; i < 6; i++) {
        held_new(&silent[i], &asker[i % 3], "the lock");
        assert_int_equal(queue_up(&asker[i % 3], &silent[i]), DLOCK_EBUSY);
    }
    assert_int_equal(queue_up(&asker[3], &waiter[3]), DLOCK_EBUSY);
    begin = now_ms();
    assert_int_equal(release(&holder, &held), 0);
    while (queue_up(&asker[3], &waiter[3]) == DLOCK_EBUSY) {
        assert_true(now_ms() - begin < 15000);
        assert_in_range(waiter[3].claim.retry_ms, 0, 2250);
        sleep_ms(50);
    }
    assert_int_equal(waiter[3].claim.result, 0);
    for (int i = 0; i < 3; i++)
        while (wake_within(&listener[i], &wake, 100)) handed_over++;
    assert_int_equal(handed_over, 1);
}

/* Now and then a lock that goes from one to the next is left free for a moment: clients that poll get a turn. */
TEST(the_lock_is_left_free_now_and_then) {
    struct dlock_wake wake;
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    ask_text(&server, "SET %s %d", "{the lock}:dlock:turn", 1);
    for (int foreign = 0; foreign < 2; foreign++) {
        struct link *by = foreign ? &asker[0] : &holder;
        assert_int_equal(release(by, foreign ? &waiter[0] : &held), 0);
        assert_true(wake_within(&listener[foreign], &wake, 5000));
        assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
        assert_string_equal(wake.name, "the lock");
        assert_string_equal(holder_now(), "");
        /* It asks, and is told when the moment ends; a new client gets nothing either. */
        ask_number(&server, "EVAL %s 0",
                   "local t = redis.call('TIME') return redis.call('HSET', '{the lock}:dlock:waiters', 'free until', "
                   "string.format('%.0f', t[1] * 1000 + t[2] / 1000 + 119))");
        assert_int_equal(queue_up(&asker[foreign], &waiter[foreign]), DLOCK_EBUSY);
        assert_in_range(waiter[foreign].claim.retry_ms, 1, 125);
        if (foreign) {
            assert_string_equal(ask_text(&server, "SET %s foreign NX PX 60000", "the lock"), "OK");
            assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
            assert_int_equal(waiter[1].claim.retry_ms, -1); /* polls */
            ask_number(&server, "DEL %s", "the lock");
            while (queue_up(&asker[1], &waiter[1]) == DLOCK_EBUSY) sleep_ms(5);
        } else {
            while (queue_up(&asker[0], &waiter[0]) == DLOCK_EBUSY) sleep_ms(5);
            assert_true(
                ask_number(&server, "EVAL %s 0",
                           "local t = redis.call('TIME') return redis.call('GET', '{the lock}:dlock:turn') - t[1] "
                           "* 1000") > 8000);
            ask_text(&server, "SET %s %d", "{the lock}:dlock:turn", 1);
        }
    }
    assert_int_equal(waiter[1].claim.result, 0);
}

/* The last waiter leaves while the lock is left free: nothing of the queue stays. */
TEST(an_empty_queue_is_not_left_behind) {
    struct dlock_wake wake;
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    ask_text(&server, "SET %s %d", "{the lock}:dlock:turn", 1);
    assert_int_equal(release(&holder, &held), 0);
    assert_true(wake_within(&listener[0], &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
    assert_int_equal(ask_number(&server, "EXISTS %s", "{the lock}:dlock:waiters"), 1);
    release(&asker[0], &waiter[0]);
    assert_int_equal(ask_number(&server, "EXISTS %s", "{the lock}:dlock:waiters"), 0);
}

/* Renewing, also as a reader, or asking again confirms a hand-over: when that grant ends later, the client keeps its other places. */
TEST(a_confirmed_waiter_keeps_its_places) {
    struct held second;
    dlock_batch *const ways[] = {backend->renew, backend->acquire, backend->renew};
    claim_init(&second, "the lock", 'a', 2);
    for (int i = 0; i < 3; i++) {
        struct dlock_claim *claim = &waiter[0].claim;
        assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
        assert_int_equal(queue_up(&asker[0], &second), DLOCK_EBUSY);
        assert_int_equal(release(&holder, &held), 0);
        assert_woken(0, held.claim.fence);
        if (i == 2) claim->mode = DLOCK_SHARED;
        assert_int_equal(ways[i](asker[0].conn, &claim, 1, TIMEOUT_MS, NULL), 0);
        assert_int_equal(claim->result, 0);
        assert_true(ask_number(&server, "PTTL %s", "the lock") > 5000);
        ask_number(&server, "DEL %s", "the lock");
        assert_int_equal(acquire(&asker[1], &waiter[1]), DLOCK_EBUSY);
        assert_string_equal(holder_now(), second.token);
        assert_int_equal(release(&asker[0], &second), 0);
        assert_int_equal(acquire(&holder, &held), 0);
        for (struct dlock_wake wake; wake_within(&listener[0], &wake, 100);) assert_non_null(wake.token);
    }
}

/* A waiter that asks after a hand-over to it has ended is not considered stopped, however late that end is noticed. */
TEST(who_asks_again_lives) {
    struct held second;
    claim_init(&second, "the lock", 'a', 2);
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    assert_int_equal(release(&holder, &held), 0);
    assert_woken(0, held.claim.fence);
    ask_number(&server, "DEL %s", "the lock");
    assert_string_equal(ask_text(&server, "SET %s foreign NX PX 5000", "the lock"), "OK");
    assert_int_equal(queue_up(&asker[0], &second), DLOCK_EBUSY);
    ask_number(&server, "DEL %s", "the lock");
    assert_int_equal(queue_up(&asker[1], &waiter[1]), 0);
    assert_int_equal(release(&asker[1], &waiter[1]), 0);
    assert_granted(0, &second, waiter[1].claim.fence);
}

/* A foreign holder hands nothing over: its head waiter polls. */
TEST(a_foreign_holder_is_polled) {
    assert_int_equal(release(&holder, &held), 0);
    assert_string_equal(ask_text(&server, "SET %s 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d NX PX 60000", "the lock"), "OK");
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(waiter[0].claim.retry_ms, -1);
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    assert_int_equal(waiter[1].claim.retry_ms, 2250);
    assert_string_equal(ask_text(&server, "SET %s without-end", "the lock"), "OK");
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(waiter[0].claim.retry_ms, -1);
    assert_string_equal(holder_now(), "without-end");
    ask_number(&server, "DEL %s", "the lock");
    assert_int_equal(queue_up(&asker[0], &waiter[0]), 0);
}

/* One read of the socket may bring several messages. */
TEST(wake_ups_that_come_together_are_all_read) {
    struct held other_held, other_waiter;
    struct dlock_wake wake;
    struct dlock_error err = {0};
    claim_init(&other_held, "other{lock}", 'f', 2);
    claim_init(&other_waiter, "other{lock}", 'a', 2);
    assert_int_equal(acquire(&holder, &other_held), 0);
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &other_waiter), DLOCK_EBUSY);
    assert_int_equal(backend->wake(listener[0].conn, &wake, &err), 0);
    assert_int_equal(ask_number(&server, "PUBLISH dlock:aaaaaaaaaaaaaaaaaaaaaaaa %s", "of a later version"), 1);
    assert_int_equal(release(&holder, &held), 0);
    assert_int_equal(release(&holder, &other_held), 0);
    sleep_ms(300);
    assert_int_equal(backend->wake(listener[0].conn, &wake, &err), 1);
    assert_string_equal(wake.name, "the lock");
    assert_int_equal(backend->wake(listener[0].conn, &wake, &err), 1);
    assert_string_equal(wake.name, "other{lock}");
    assert_string_equal(wake.token, other_waiter.token);
    assert_int_equal(backend->wake(listener[0].conn, &wake, &err), 0);
}

/* All our keys expire. */
TEST(what_is_left_behind_expires) {
    static const char *const keys[] = {"the lock", "{the lock}:dlock:fence", "{the lock}:dlock:queue",
                                       "{the lock}:dlock:waiters", "{the lock}:dlock:turn"};
    assert_int_equal(queue_up(&asker[0], &waiter[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[1], &waiter[1]), DLOCK_EBUSY);
    for (int i = 0; i < 4; i++) assert_true(ask_number(&server, "PTTL %s", keys[i]) > 0);
    assert_int_equal(release(&holder, &held), 0);
    for (int i = 0; i < 5; i++) assert_true(ask_number(&server, "PTTL %s", keys[i]) > 0);
    assert_int_equal(ask_number(&server, "DBSIZE"), 5);
}

TESTS(setup, teardown, group_begin, group_end)
