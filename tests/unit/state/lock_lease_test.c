/* How long a grant is a holder's, and what happens at its end. */
#include "fixture.h"

static dlock_lock *fixed_lock(dlock_client *client, struct lost_count *lost) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    return lost ? watched_lock_with(client, "n", options.flags, 0, lost) : lock_new_with(client, "n", &options);
}

TEST(a_grant_is_valid_for_its_lease_less_the_margin) {
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 9898);
    assert_int_equal(fake_holder("n").left_ms, 10000);

    fake_advance_us(valid_us(LEASE_MS) - 1);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 0);
    fake_advance_us(1);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_remaining_ms(lock), 0);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(lost.code, DLOCK_ELOST);
    assert_ptr_equal(lost.lock, lock);
    assert_int_equal(lost.at_us, sent_us + valid_us(LEASE_MS));

    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(lost.calls, 1);
}

static void keep_4_s(struct dlock_claim *claim) {
    claim->kept_ms = 4000;
}

TEST(what_the_server_granted_counts_not_what_was_asked) {
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    fake_edit(FAKE_ACQUIRE, keep_4_s, 1);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 3958);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.at_us, sent_us + valid_us(4000));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(a_lease_comes_from_the_uri_or_the_options) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct fake_command command;
    dlock_client *client = client_new("fake:?lease=20s");
    dlock_lock *usual = lock_new(client, "usual");
    assert_int_equal(dlock_acquire(usual, 0, NULL), 0);
    assert_true(fake_last(FAKE_ACQUIRE, "usual", &command));
    assert_int_equal(command.lease_ms, 20000);
    assert_int_equal(dlock_remaining_ms(usual), 19798);
    options.lease_ms = 500;
    dlock_lock *brief = lock_new_with(client, "brief", &options);
    assert_int_equal(dlock_acquire(brief, 0, NULL), 0);
    assert_true(fake_last(FAKE_ACQUIRE, "brief", &command));
    assert_int_equal(command.lease_ms, 500);
    assert_int_equal(dlock_remaining_ms(brief), 493);
}

TEST(time_counts_from_before_the_request) {
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_advance_ms(500);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(remaining_by(actor, lock), 9898 - 500);
}

/* An answer that took longer than its lease is no grant. */
TEST(an_answer_slower_than_the_lease_is_asked_again) {
    dlock_lock *lock = fixed_lock(client_new("fake:?lease=1s"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 5000);
    fake_advance_ms(1500);
    fake_slow_go();
    wait_for(actor, 2000);
    assert_int_equal(result(actor), 0);
    assert_true(remaining_by(actor, lock) > 0);
    assert_true(remaining_by(actor, lock) <= fake_holder("n").left_ms);
    assert_int_equal(fence_by(actor, lock) >> 8, fake_holder("n").fence);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(a_try_answered_slower_than_the_lease_holds_nothing) {
    dlock_lock *lock = fixed_lock(client_new("fake:?lease=1s"), NULL);
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 0);
    fake_advance_ms(1500);
    fake_slow_go();
    wait_for(actor, 500);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_false(held_by(actor, lock));
    fake_advance_ms(2000);
    assert_int_equal(fake_entries(), 0);
}

/* The server's clock runs 1 % faster and another client is queued: the holder learns of its loss first. */
TEST(loss_is_known_before_anyone_else_is_granted) {
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_other_acquire("n", LEASE_MS);
    bool was_held = true;
    int64_t began = dlock__now_us();
    for (int ms = 0; ms < 10100; ms = (int)((dlock__now_us() - began) / 1000)) {
        fake_advance_ms(ms < 9800 ? 100 : 1);
        if (ms % 100 == 0) fake_server_step_ms(1);
        bool held = dlock_held(lock), other_can = strcmp(fake_holder("n").token, "") == 0 || fake_holder("n").other;
        assert_false(held && other_can);
        assert_true(was_held || !held);
        was_held = held;
    }
    assert_false(was_held);
}

TEST(after_a_suspend_a_lock_is_not_held) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    fake_jump_ms(60000);
    /* No thread of the library has run since. */
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_remaining_ms(lock), 0);
    fake_settle();
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(lost.calls, 1);
}

TEST(every_counted_release_after_a_loss_says_so) {
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:"), &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_fence(lock), 0);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_fence(lock) > fence);
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 2);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(a_stale_release_does_not_free_the_next_holder) {
    dlock_lock *lock = fixed_lock(client_new("fake:"), NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(LEASE_MS + 1);
    fake_other_acquire("n", LEASE_MS);
    assert_true(fake_holder("n").other);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    fake_advance_ms(1000);
    assert_true(fake_holder("n").other);
}

/* A local waiter for the name asks the server once the grant is lost. */
TEST(a_local_waiter_asks_once_the_holder_has_lost) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = fixed_lock(client, NULL), *other = lock_new(client, "n");
    struct actor *waiter = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    begin_acquire(waiter, other, 20000);
    fake_advance_us(valid_us(LEASE_MS) - 1);
    assert_false(over(waiter));
    int64_t passed_us = wait_for(waiter, 1500);
    assert_true(passed_us > 0);
    assert_int_equal(result(waiter), 0);
    assert_true(fence_by(waiter, other) > fence);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_true(held_by(waiter, other));
    assert_int_equal(release_by(waiter, other), 0);
}

/* ---- on_lost comes before the next grant ------------------------------------------------------------------------- */

/* An on_lost that returns only when it may. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool open;
    int calls;        /* that have begun, */
    dlock_lock *lock; /* the last one for this handle */
};

static void pass_gate(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct gate *gate = arg;
    assert_int_equal(err->code, DLOCK_ELOST);
    pthread_mutex_lock(&gate->mutex);
    gate->calls++;
    gate->lock = lock;
    while (!gate->open) dlock__cond_wait(&gate->cond, &gate->mutex, DLOCK__NEVER);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(struct gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->cond);
    pthread_mutex_unlock(&gate->mutex);
    fake_settle();
}

#define GATE \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, NULL }

static dlock_lock *gated_lock(dlock_client *client, const char *name, struct gate *gate) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = pass_gate;
    options.on_lost_arg = gate;
    return lock_new_with(client, name, &options);
}

/* Renewals whose answers are lost: the server keeps a grant that this client must consider lost. */
static void lose_what_the_server_keeps(void) {
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
}

TEST(nobody_is_granted_before_on_lost_has_returned) {
    struct gate gate = GATE;
    struct actor *holder = actor_new();
    dlock_lock *lock = gated_lock(client_new("fake:"), "n", &gate);
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_other_acquire("n", 600000);
    lose_what_the_server_keeps();
    assert_int_equal(gate.calls, 1);
    begin_release(holder, lock);
    fake_advance_ms(1000);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_false(fake_holder("n").other);
    gate_open(&gate);
    assert_int_equal(result(holder), DLOCK_ELOST);
    assert_true(fake_calls(FAKE_RELEASE) > 0);
    assert_true(fake_holder("n").other);
}

TEST(a_renewal_that_ends_too_late_waits_for_on_lost_as_well) {
    struct gate gate = GATE;
    dlock_lock *lock = gated_lock(client_new("fake:?timeout=60s"), "n", &gate);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_other_acquire("n", 600000);
    fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 1);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 10000);
    fake_advance_us(valid_us(LEASE_MS));
    assert_int_equal(gate.calls, 1);
    fake_slow_go();
    fake_advance_ms(1000);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_false(fake_holder("n").other);
    gate_open(&gate);
    assert_true(fake_holder("n").other);
}

/* Its on_lost will never run: nothing has to wait for that. */
TEST(a_freed_handle_holds_nobody_up) {
    struct gate gate = GATE;
    dlock_client *client = client_new("fake:");
    dlock_lock *first = gated_lock(client, "first", &gate), *second = gated_lock(client, "second", &gate);
    assert_int_equal(dlock_acquire(first, 0, NULL), 0);
    assert_int_equal(dlock_acquire(second, 0, NULL), 0);
    fake_other_acquire("first", 600000);
    fake_other_acquire("second", 600000);
    lose_what_the_server_keeps();
    assert_int_equal(gate.calls, 1);
    bool first_told = gate.lock == first;
    struct actor *actor = actor_new();
    begin_free(actor, first_told ? second : first);
    assert_true(over(actor));
    fake_settle();
    assert_true(fake_holder(first_told ? "second" : "first").other);
    assert_false(fake_holder(first_told ? "first" : "second").other);
    gate_open(&gate);
    assert_true(fake_holder("first").other);
    assert_true(fake_holder("second").other);
}

/* ---- a grant that ended unnoticed is not handed over ------------------------------------------------------------- */

/* A holder and a waiter of one process; the grant is as old as ms when the server forgets it. */
struct pair {
    dlock_lock *locks[2];
    struct actor *actors[2];
};

static void pair_begin(struct pair *pair, const char *uri, int64_t ms) {
    dlock_client *client = client_new(uri);
    for (int i = 0; i < 2; i++) {
        pair->locks[i] = lock_new(client, "n");
        pair->actors[i] = actor_new();
    }
    assert_int_equal(acquire_by(pair->actors[0], pair->locks[0], 0), 0);
    begin_acquire(pair->actors[1], pair->locks[1], 5000);
    fake_advance_ms(ms);
}

static void not_handed_over_after_a_flush(const char *uri, int64_t ms) {
    struct pair pair;
    pair_begin(&pair, uri, ms);
    fake_server_forget();
    fake_other_acquire("n", 600000);
    struct fake_grant other = fake_holder("n");
    assert_true(other.other);
    release_by(pair.actors[0], pair.locks[0]);
    fake_advance_ms(1000);
    assert_false(over(pair.actors[1]));
    fake_other_release(&other, "n");
    wait_for(pair.actors[1], 2000);
    assert_int_equal(result(pair.actors[1]), 0);
    assert_true(fence_by(pair.actors[1], pair.locks[1]) >> 8 > other.fence);
    assert_int_equal(release_by(pair.actors[1], pair.locks[1]), 0);
}

TEST(what_the_server_forgot_is_handed_to_nobody) {
    not_handed_over_after_a_flush("fake:", 20);
    not_handed_over_after_a_flush("fake:", THIRD_MS + 20); /* since its renewal */
    not_handed_over_after_a_flush("fakepoll:", 20);
    not_handed_over_after_a_flush("fakesession:", 20);
    not_handed_over_after_a_flush("fakeforever:", 20);
}

TEST(a_hand_over_that_the_server_confirms_is_none_of_its_grants) {
    struct pair pair;
    pair_begin(&pair, "fake:", 1000);
    uint64_t fence = fence_by(pair.actors[0], pair.locks[0]);
    assert_int_equal(release_by(pair.actors[0], pair.locks[0]), 0);
    assert_int_equal(wait_for(pair.actors[1], 0), 0);
    assert_int_equal(result(pair.actors[1]), 0);
    assert_int_equal(fence_by(pair.actors[1], pair.locks[1]), fence + 1);
    assert_in_range(remaining_by(pair.actors[1], pair.locks[1]), 9890, 9898); /* its lease was set again */
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_int_equal(fake_grants("n"), 1);
    assert_int_equal(release_by(pair.actors[1], pair.locks[1]), 0);
    assert_string_equal(fake_holder("n").token, "");
}

/* How many requests a hand-over takes this long after an answer that took answer_us. */
static unsigned questions(int64_t answer_us, int64_t after_us) {
    struct pair pair;
    dlock_client *client = client_new("fake:");
    for (int i = 0; i < 2; i++) {
        pair.locks[i] = lock_new(client, "n");
        pair.actors[i] = actor_new();
    }
    fake_log_clear();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(pair.actors[0], pair.locks[0], 0);
    fake_advance_us(answer_us);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(pair.actors[0]), 0);
    fake_advance_us(after_us);
    begin_acquire(pair.actors[1], pair.locks[1], 5000);
    assert_int_equal(release_by(pair.actors[0], pair.locks[0]), 0);
    assert_int_equal(wait_for(pair.actors[1], 0), 0);
    assert_int_equal(result(pair.actors[1]), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    unsigned asked = fake_calls(FAKE_RENEW);
    assert_int_equal(release_by(pair.actors[1], pair.locks[1]), 0);
    return asked;
}

TEST(soon_after_an_answer_nothing_is_asked) {
    assert_int_equal(questions(0, 19999), 0);
    assert_int_equal(questions(0, 20000), 1);
    assert_int_equal(questions(3000, 59999), 0);
    assert_int_equal(questions(3000, 60000), 1);
    assert_int_equal(questions(500000, 99999), 0);
    assert_int_equal(questions(500000, 100000), 1);
}

TEST(who_waits_for_that_may_give_up) {
    for (int cancel = 0; cancel < 2; cancel++) {
        struct pair pair;
        pair_begin(&pair, "fake:", 1000);
        fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
        assert_int_equal(release_by(pair.actors[0], pair.locks[0]), 0);
        assert_false(over(pair.actors[1]));
        assert_int_equal(acquire_by(pair.actors[0], pair.locks[0], 0), DLOCK_EBUSY);
        if (cancel) {
            dlock_cancel(pair.locks[1]);
            fake_settle();
            assert_int_equal(result(pair.actors[1]), DLOCK_ECANCELED);
        } else {
            fake_slow_go();
            fake_settle();
            assert_int_equal(result(pair.actors[1]), 0);
            assert_int_equal(release_by(pair.actors[1], pair.locks[1]), 0);
        }
        fake_settle();
        assert_string_equal(fake_holder("n").token, "");
        fake_slow_go();
        fake_settle();
        assert_int_equal(acquire_by(pair.actors[0], pair.locks[0], 0), 0);
        assert_int_equal(release_by(pair.actors[0], pair.locks[0]), 0);
    }
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
