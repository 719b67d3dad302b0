/* Waiting: the queue, when to retry, and deadlines. */
#include "fixture.h"

#include <stdio.h>

TEST(a_busy_try_is_one_request) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct dlock_error err;
    struct fake_command command;
    taken("n");
    fake_log_clear();
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EBUSY);
    assert_int_equal(err.code, DLOCK_EBUSY);
    assert_non_null(strstr(err.message, "\"n\""));
    fake_advance_ms(1000);
    assert_int_equal(fake_log_size(), 1);
    command = fake_log_at(0);
    assert_int_equal(command.op, FAKE_ACQUIRE);
    assert_int_equal(command.flags, 0);
    assert_int_equal(fake_waiters("n"), 0);
}

TEST(queueing_waits_for_a_listener) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command listen, ask;
    taken("n");
    fake_fault(FAKE_LISTEN, FAKE_SLOW, 1);
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(1000);
    assert_int_equal(fake_waiters("n"), 0); /* fake_contract.c watches the flags of every request */
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_waiters("n"), 1);
    assert_true(fake_last(FAKE_LISTEN, NULL, &listen));
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_true(listen.call < ask.call);
    assert_true(ask.flags & DLOCK_CLAIM_QUEUE);
    dlock_cancel(lock);
}

/* A try does not wait, so it must not queue, with a listener or without. A wait queues at once where one is up. */
TEST(a_try_never_queues) {
    dlock_client *client = client_new("fake:");
    dlock_lock *n = lock_new(client, "n"), *m = lock_new(client, "m");
    struct actor *actor = actor_new();
    taken("n");
    taken("m");
    begin_acquire(actor, n, 5000);
    assert_int_equal(fake_listeners(), 1);
    fake_log_clear();
    assert_int_equal(dlock_acquire(m, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(fake_log_size(), 1);
    assert_int_equal(fake_log_at(0).flags, 0);
    assert_int_equal(fake_waiters("m"), 0);
    begin_acquire(actor_new(), m, 1000);
    assert_int_equal(fake_log_size(), 2);
    assert_int_equal(fake_log_at(1).flags, DLOCK_CLAIM_QUEUE);
    assert_int_equal(fake_waiters("m"), 1);
    assert_int_equal(fake_listeners(), 1);
}

TEST(clients_are_served_in_order) {
    enum { N = 6 };
    dlock_lock *locks[N];
    struct actor *actors[N];
    struct fake_grant other = taken("n");
    for (int i = 0; i < N; i++) {
        locks[i] = lock_new(client_new("fake:"), "n");
        actors[i] = actor_new();
        begin_acquire(actors[i], locks[i], 60000);
        fake_advance_ms(10);
    }
    fake_log_clear();
    fake_other_release(&other, "n");
    uint64_t fence = other.fence << 8;
    for (int i = 0; i < N; i++) {
        fake_settle();
        for (int j = 0; j < N; j++) assert_int_equal(over(actors[j]), j <= i);
        assert_int_equal(result(actors[i]), 0);
        assert_true(fence_by(actors[i], locks[i]) > fence);
        fence = fence_by(actors[i], locks[i]);
        assert_int_equal(fence >> 8, fake_holder("n").fence);
        fake_advance_ms(10);
        assert_int_equal(release_by(actors[i], locks[i]), 0);
    }
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0); /* a hand-over needs no further request */
    assert_int_equal(fake_calls(FAKE_WAKE), N);
    assert_int_equal(fake_calls(FAKE_RELEASE), N);
}

TEST(a_timed_wait_leaves_the_queue_at_its_deadline) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command release;
    taken("n");
    int64_t began = dlock__now_us();
    begin_acquire(actor, lock, 2000);
    assert_int_equal(fake_waiters("n"), 1);
    assert_in_range(wait_for(actor, 2200), 2000000, 2100000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(error_of(actor)->code, DLOCK_ETIMEDOUT);
    assert_int_equal(fake_waiters("n"), 0);
    assert_true(fake_last(FAKE_RELEASE, "n", &release));
    assert_in_range(release.at_us - began, 1999000, 2100000);
    assert_int_equal(release.result, 0);
    fake_log_clear();
    fake_advance_ms(30000);
    assert_int_equal(fake_log_size(), 0);
}

TEST(a_deadline_holds_although_leaving_hangs) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    begin_acquire(actor, lock, 2000);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 3);
    assert_in_range(wait_for(actor, 2200), 2000000, 2100000);
    fake_advance_ms(30000);
    assert_int_equal(fake_waiters("n"), 0);
}

TEST(a_deadline_holds_although_something_hangs) {
    static const struct {
        enum fake_op op;
        const char *uri;
        int64_t timeout_ms, ends_ms;
        int code;
    } cases[] = {
        {FAKE_ACQUIRE, "fake:", 700, 700, DLOCK_EUNAVAILABLE},
        {FAKE_ACQUIRE, "fake:?timeout=500ms", 0, 500, DLOCK_EUNAVAILABLE}, /* a try has that of the URI */
        {FAKE_CONNECT, "fake:", 700, 700, DLOCK_EUNAVAILABLE},
        {FAKE_LISTEN, "fake:", 700, 700, DLOCK_ETIMEDOUT},
    };
    taken("n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct actor *actor = actor_new();
        dlock_lock *lock = lock_new(client_new(cases[i].uri), "n");
        fake_server_cut();
        fake_fault(cases[i].op, FAKE_SLOW, 100);
        begin_acquire(actor, lock, cases[i].timeout_ms);
        assert_in_range(wait_for(actor, 1000), (cases[i].ends_ms - 100) * 1000, (cases[i].ends_ms + 100) * 1000);
        assert_int_equal(result(actor), cases[i].code);
        fake_faults_clear();
        fake_slow_go();
        fake_settle();
    }
}

/* ---- asking again ------------------------------------------------------------------------------------------------ */

/* The holder dies silently, and the server tells no client: the waiter asks in time without a wake. */
TEST(a_waiter_asks_again_when_the_lease_it_waits_for_is_over) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command ask;
    fake_other_acquire("n", 4000);
    int64_t began = dlock__now_us();
    begin_acquire(actor, lock, 60000);
    fake_log_clear();
    wait_for(actor, 10000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, "n"), 2); /* the first of them to show that it lives */
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_in_range(ask.at_us - began, 4000000, 4012000);
}

/* It may have missed a hand-over that has already ended. */
TEST(a_waiter_asks_before_any_hand_over_can_have_ended) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=5s"), "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 600000);
    fake_other_acquire("n", 600000);
    fake_other_acquire("n", 600000);
    begin_acquire(actor, lock, 60000);
    fake_log_clear();
    for (unsigned n = 1; n <= 3; n++) {
        fake_advance_ms(DLOCK_HAND_OVER_MS);
        assert_int_equal(fake_calls(FAKE_ACQUIRE), n); /* 2.25 s apart */
    }
    assert_int_equal(fake_waiters("n"), 3);
}

/* Ten clients wait, and each holder dies with the lock: the next one gets it a moment after the lease has ended. */
TEST(what_the_dead_leave_is_the_next_ones_at_once) {
    enum { N = 10 };
    dlock_lock *locks[N];
    struct actor *actors[N];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = 2000;
    options.flags = DLOCK_FIXED_LEASE;
    fake_other_acquire("n", 2000);
    for (int i = 0; i < N; i++) {
        locks[i] = lock_new_with(client_new("fake:"), "n", &options);
        actors[i] = actor_new();
        begin_acquire(actors[i], locks[i], -1);
        fake_advance_ms(3);
    }
    for (int i = 0; i < N; i++) {
        int64_t left_us = fake_holder("n").left_ms * 1000;
        assert_in_range(wait_for(actors[i], 2500), left_us, left_us + 100000);
        assert_int_equal(result(actors[i]), 0);
    }
}

/* Five waiters of other clients do not live, and one does, whose place was far behind. */
TEST(who_waits_behind_the_dead_asks_when_they_have_ended) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 1000);
    for (int i = 0; i < 5; i++) fake_other_acquire("n", 600000);
    struct fake_command ask;
    int64_t began = dlock__now_us();
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(1200);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_in_range(ask.at_us - began, 1000000, 1040000);
    fake_log_clear();
    fake_advance_ms(3000);
    assert_true(fake_calls(FAKE_ACQUIRE) >= 2);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &ask));
    assert_true(ask.at_us - began < 1040000 + 2300000);
}

TEST(waiters_do_not_ask_all_at_once) {
    enum { N = 8 };
    bool differ = false;
    taken("n");
    taken("m");
    for (int i = 0; i < N; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        taken(name);
        begin_acquire(actor_new(), lock_new(client_new("fake:"), name), 60000);
    }
    fake_log_clear();
    fake_advance_ms(DLOCK_HAND_OVER_MS);
    struct fake_command first, command;
    assert_true(fake_nth(FAKE_ACQUIRE, NULL, 0, &first));
    for (unsigned i = 1; fake_nth(FAKE_ACQUIRE, NULL, i, &command); i++)
        differ = differ || command.at_us != first.at_us;
    assert_int_equal(fake_calls(FAKE_ACQUIRE), N);
    assert_true(differ);
}

TEST(a_waiter_asks_at_once_after_its_listener_is_back) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    struct fake_command listen, ask;
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(1000);
    fake_log_clear();
    fake_server_cut();
    fake_advance_ms(300);
    assert_int_equal(fake_listeners(), 1);
    assert_true(fake_last(FAKE_LISTEN, NULL, &listen));
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    assert_true(listen.call < ask.call);
    assert_true(ask.flags & DLOCK_CLAIM_QUEUE);
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actor), 0);
}

/* The wake was sent to a listener that was dead already: it is gone for good. */
TEST(a_wake_lost_with_its_connection_is_made_up_for) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    assert_string_not_equal(fake_holder("n").token, "");
    fake_server_cut();
    fake_wakes_hold(false);
    assert_true(wait_for(actor, 2000) <= 1000000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
}

TEST(a_restarted_server_is_asked_again) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    begin_acquire(actor, lock, 60000);
    fake_server_down(true);
    fake_server_forget();
    fake_advance_ms(5000);
    assert_false(over(actor));
    fake_server_down(false);
    assert_true(wait_for(actor, 7000) <= 5100000);
    assert_int_equal(result(actor), 0);
}

TEST(without_a_listener_a_waiter_polls) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    fake_fault(FAKE_LISTEN, FAKE_LOST_BEFORE, 1000);
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(20000);
    assert_in_range(fake_calls(FAKE_ACQUIRE), 40, 2000);
    assert_in_range(fake_calls(FAKE_LISTEN), 4, 25); /* with back-off */
    assert_int_equal(fake_waiters("n"), 0);
    fake_other_release(&other, "n");
    assert_true(wait_for(actor, 1000) <= 510000);
    assert_int_equal(result(actor), 0);
}

TEST(servers_without_wakes_are_polled_every_1_to_50_ms) {
    dlock_lock *lock = lock_new(client_new("fakepoll:"), "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    struct fake_command before, command;
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(10000);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &before));
    unsigned asked = 1;
    for (; fake_nth(FAKE_ACQUIRE, "n", asked, &command); asked++) {
        assert_in_range(command.at_us - before.at_us, 1000, 50000);
        assert_int_equal(command.flags, 0);
        assert_string_equal(command.token, before.token);
        before = command;
    }
    /* Mostly far apart: 10 s / 50 ms is 200. */
    assert_in_range(asked, 200, 1000);
    fake_other_release(&other, "n");
    assert_true(wait_for(actor, 1000) <= 51000);
    assert_int_equal(result(actor), 0);
}

/* A question that the deadline cuts short would look like an outage. */
TEST(nothing_is_asked_too_late_for_an_answer) {
    dlock_lock *lock = lock_new(client_new("fakepoll:"), "n");
    struct actor *actor = actor_new();
    taken("n");
    for (int64_t timeout_ms = 100; timeout_ms < 130; timeout_ms += 3) {
        struct fake_command ask;
        begin_acquire(actor, lock, timeout_ms);
        assert_in_range(wait_for(actor, timeout_ms + 110), timeout_ms * 1000, timeout_ms * 1000 + 100000);
        assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
        assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
        assert_true(ask.timeout_ms >= 10);
    }
}

TEST(nobody_may_have_held_what_another_thread_waited_for) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *asking = actor_new(), *waiting = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(asking, lock, -1);
    begin_acquire(waiting, lock, 1000);
    wait_for(waiting, 2000);
    assert_int_equal(result(waiting), DLOCK_ETIMEDOUT);
    assert_string_equal(error_of(waiting)->message,
                        "lock \"n\" was held or waited for in this process until the deadline");
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(asking), 0);
    assert_int_equal(release_by(asking, lock), 0);
}

/* Others hold it for 20 ms each, in sequence: the waiter gets it soon after the last one. */
TEST(who_polls_learns_when_to_ask) {
    dlock_lock *lock = lock_new(client_new("fakepoll:"), "n");
    struct actor *actor = actor_new();
    int64_t late_us = 0;
    fake_log_clear();
    for (int i = 0; i < 40; i++) {
        struct fake_grant other = taken("n");
        begin_acquire(actor, lock, -1);
        for (int turns = i % 4; turns > 0; turns--) { /* it goes by the waiter */
            fake_advance_ms(20);
            fake_other_release(&other, "n");
            other = taken("n");
        }
        fake_advance_ms(20);
        fake_other_release(&other, "n");
        late_us = i < 20 ? 0 : late_us + wait_for(actor, 60);
        wait_for(actor, 60);
        assert_int_equal(result(actor), 0);
        fake_advance_ms(20);
        assert_int_equal(release_by(actor, lock), 0);
    }
    assert_true(late_us < 20 * 1000); /* 25 ms apart it would be ten times as late */
    assert_true(fake_claims(FAKE_ACQUIRE, "n") < 40 * 5 * 20 * 400 / 1000);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
