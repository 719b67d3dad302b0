/* The connection that brings wake-ups, where it stays open and brings none. */
#include "fixture.h"

/* It is told at once when it gets the lock. */
static void assert_heard(struct scene *s) {
    unsigned asked = fake_calls(FAKE_ACQUIRE);
    fake_other_release(&s->other, "n");
    fake_settle();
    assert_int_equal(result(s->actor), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), asked);
    assert_int_equal(release_by(s->actor, s->lock), 0);
}

TEST(a_listener_that_answers_is_kept) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_advance_ms(60000);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    assert_in_range(fake_calls(FAKE_PROBE), 17, 18); /* every third of a lease */
    assert_heard(&s);
}

TEST(while_nobody_waits_nothing_is_asked) {
    struct scene s;
    scene_begin(&s, 0, -1);
    assert_heard(&s);
    fake_log_clear();
    fake_advance_ms(60000);
    assert_int_equal(fake_calls(FAKE_PROBE), 0);
    assert_int_equal(acquire_by(s.actor, s.lock, 1000), 0);
    fake_log_clear();
    fake_advance_ms(60000);
    assert_int_equal(fake_calls(FAKE_PROBE), 0);
}

TEST(a_silent_one_is_replaced) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_listeners_hush();
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_PROBE), 1);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    fake_advance_ms(3100);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    assert_int_equal(fake_calls(FAKE_PROBE), 1);
    assert_int_equal(fake_waiters("n"), 1);
    assert_heard(&s);
}

/* A grant of which no wake-up came, but the answer to a question. */
TEST(who_had_to_ask_for_its_grant_doubts) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_listeners_hush();
    fake_other_release(&s.other, "n");
    wait_for(s.actor, 3000);
    assert_int_equal(result(s.actor), 0);
    fake_settle();
    assert_int_equal(fake_calls(FAKE_PROBE), 1);
    fake_advance_ms(3400);
    assert_int_equal(fake_listeners(), 0); /* the next waiter opens another one */
    assert_int_equal(release_by(s.actor, s.lock), 0);
    s.other = taken("n");
    begin_acquire(s.actor, s.lock, -1);
    assert_int_equal(fake_listeners(), 1);
    assert_heard(&s);
}

/* The answer was there, and this process was not. */
TEST(after_a_stop_what_has_come_is_read_first) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_wakes_hold(true);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_PROBE), 1);
    fake_jump_ms(60000);
    fake_wakes_hold(false);
    fake_settle();
    fake_advance_ms(100);
    assert_int_equal(fake_calls(FAKE_LISTEN), 0);
    assert_heard(&s);
}

/* After a change of roles the listener may still be at the server that was the master. */
TEST(one_that_the_server_does_not_know_is_replaced) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_advance_ms(1500);
    fake_listeners_stray();
    fake_advance_ms(800);
    assert_int_equal(fake_calls(FAKE_LISTEN), 1);
    fake_advance_ms(200);
    assert_int_equal(fake_waiters("n"), 1);
    assert_heard(&s);
}

static void unheard(struct dlock_claim *claim) {
    claim->hints = DLOCK_HINT_UNHEARD;
}

TEST(but_not_again_and_again) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_edit(FAKE_ACQUIRE, unheard, 100000);
    fake_advance_ms(20000);
    assert_in_range(fake_calls(FAKE_LISTEN), 4, 20);
    assert_in_range(fake_calls(FAKE_ACQUIRE), 8, 60);
    fake_faults_clear();
    assert_heard(&s);
}

/* ---- a server that never stops sending ---- */

enum { FLOOD = 32000, FLOOD_MS = FLOOD / 16 };

struct timed {
    dlock_lock *lock;
    int64_t timeout_ms, ended_us;
};

static int acquire_timed(void *arg) {
    struct timed *timed = arg;
    int rc = dlock_acquire(timed->lock, timed->timeout_ms, NULL);
    timed->ended_us = dlock__now_us();
    return rc;
}

TEST(a_flood_of_messages_delays_no_deadline) {
    struct fake_grant other = taken("n");
    struct timed timed = {.lock = lock_new(client_new("fake:"), "n"), .timeout_ms = FLOOD_MS / 4};
    struct actor *actor = actor_new();
    int64_t begun_us = dlock__now_us();
    begin_call(actor, acquire_timed, &timed);
    fake_wakes_flood(FLOOD);
    fake_settle();
    wait_for(actor, 10000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_true(timed.ended_us - begun_us <= (timed.timeout_ms + 100) * 1000);
    fake_other_release(&other, "n");
}

/* A lease is shorter than what is sent takes. The keeper reads for a waiter without a thread. */
TEST(a_flood_of_messages_delays_no_renewal) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *held = watched_lock_with(client, "held", 0, FLOOD_MS / 2, &lost);
    struct fake_grant other = taken("n");
    struct actor *holder = actor_new();
    struct done done = {0};
    assert_int_equal(acquire_by(holder, held, 0), 0);
    begin_async(lock_new_with(client, "n", &by_handle), -1, &done);
    fake_wakes_flood(FLOOD);
    fake_settle();
    assert_int_equal(lost.calls, 0);
    assert_true(held_by(holder, held));
    fake_other_release(&other, "n");
    fake_settle();
    assert_done(&done, 0);
}

/* A reader that is stopped between two instructions, as by a debugger, in the backend's `wake`. */
TEST(a_reader_that_stops_in_wake_delays_no_renewal) {
    struct scene s;
    scene_begin(&s, 0, -1);
    struct lost_count lost = {0};
    dlock_lock *held = watched_lock(s.client, "m", &lost);
    struct actor *holder = actor_new();
    assert_int_equal(acquire_by(holder, held, 0), 0);
    fake_fault(FAKE_WAKE, FAKE_SLOW, 1);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    fake_advance_ms(2 * LEASE_MS); /* the listener is due for a probe in this time */
    assert_int_equal(lost.calls, 0);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_slow_go();
    wait_for(s.actor, 100);
    assert_int_equal(result(s.actor), 0);
    assert_true(held_by(holder, held));
    assert_int_equal(release_by(holder, held), 0);
    assert_int_equal(release_by(s.actor, s.lock), 0);
}

static int extend(void *lock) {
    return dlock_extend(lock, LEASE_MS, NULL);
}

/* Another one is always due when one ends. The keeper reads for a waiter without a thread. */
TEST(renewals_do_not_keep_the_keeper_from_the_messages) {
    dlock_client *client = client_new("fake:");
    struct fake_grant other = taken("n");
    struct done done = {0};
    struct actor *holders[] = {actor_new(), actor_new()};
    dlock_lock *held[] = {lock_new(client, "a"), lock_new(client, "b")};
    for (size_t i = 0; i < 2; i++) assert_int_equal(acquire_by(holders[i], held[i], 0), 0);
    begin_async(lock_new_with(client, "n", &by_handle), -1, &done);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 2);
    for (size_t i = 0; i < 2; i++) begin_call(holders[i], extend, held[i]);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_other_release(&other, "n");
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_slow_waiting(), 1);
    assert_done(&done, 0);
    fake_slow_go();
    fake_settle();
    for (size_t i = 0; i < 2; i++) assert_int_equal(result(holders[i]), 0);
}

/* As behind a proxy that ends it as soon as it is there: neither connections nor questions in quick succession. */
TEST(one_that_never_lasts_is_not_opened_all_the_time) {
    struct scene s;
    scene_begin(&s, 0, -1);
    for (int i = 0; i < 1000; i++) {
        fake_server_cut_listeners();
        fake_advance_ms(1);
    }
    assert_in_range(fake_calls(FAKE_LISTEN), 2, 10);
    assert_in_range(fake_claims(FAKE_ACQUIRE, "n"), 2, 100); /* as without one: it polls */
    fake_advance_ms(5000);
    assert_int_equal(fake_listeners(), 1);
    fake_log_clear();
    fake_advance_ms(1000);
    fake_server_cut_listeners(); /* one that has lasted is opened again at once */
    fake_settle();
    assert_int_equal(fake_listeners(), 1);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(result(s.actor), 0);
}

/* No thread spins (the test would not settle), and messages still arrive. */
TEST(a_descriptor_that_stays_readable_costs_no_processor) {
    struct scene s;
    for (int threads = 1; threads <= 2; threads++) { /* one that waits reads itself; else the keeper does */
        fake_backend_reset();
        scene_begin(&s, 0, 100000);
        dlock_lock *more = lock_new(s.client, "m");
        struct fake_grant other = taken("m");
        struct actor *actor = actor_new();
        if (threads == 2) begin_acquire(actor, more, 100000);
        fake_wakes_stick(true);
        fake_settle();
        fake_advance_ms(1000);
        fake_other_release(&s.other, "n");
        fake_advance_ms(100);
        assert_int_equal(result(s.actor), 0);
        assert_int_equal(release_by(s.actor, s.lock), 0);
        fake_other_release(&other, "m");
        fake_advance_ms(100);
        if (threads == 2) assert_int_equal(result(actor), 0);
        client_end(s.client);
    }
}

static char last_line[512];

static void keep_line(int level, const char *line, void *arg) {
    (void)level, (void)arg;
    snprintf(last_line, sizeof last_line, "%s", line);
}

/* The thread that waits reads: see wait/blocking.c. */
TEST(one_that_breaks_without_a_reason_is_logged_without) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.log = keep_line;
    dlock_client *client;
    assert_int_equal(dlock_open("fake:", &options, &client, NULL), 0);
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    struct fake_grant other = taken("n");
    begin_acquire(actor, lock, 60000);
    fake_return(FAKE_WAKE, DLOCK_EUNAVAILABLE, 1);
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "somewhere else"});
    fake_advance_ms(1000);
    assert_int_equal(fake_faults_left(), 0);
    assert_string_equal(last_line, "lost the connection that brings wake-ups: ");
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, lock), 0);
    lock_end(lock);
    dlock_close(client);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
