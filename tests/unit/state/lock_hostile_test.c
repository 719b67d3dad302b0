/* A server, or a backend, that talks nonsense: never a grant, never a crash, never a busy loop. */
#include "fixture.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void fence_zero(struct dlock_claim *claim) {
    claim->fence = 0;
}
static void fence_too_large(struct dlock_claim *claim) {
    claim->fence = UINT64_C(1) << 55;
}
static void fence_largest(struct dlock_claim *claim) {
    claim->fence = UINT64_MAX;
}
static void kept_zero(struct dlock_claim *claim) {
    claim->kept_ms = 0;
}
static void kept_negative(struct dlock_claim *claim) {
    claim->kept_ms = -1;
}
static void kept_least(struct dlock_claim *claim) {
    claim->kept_ms = INT64_MIN;
}
static void kept_for_ever(struct dlock_claim *claim) {
    claim->kept_ms = DLOCK_FOREVER;
}
static void kept_too_long(struct dlock_claim *claim) {
    claim->kept_ms = INT64_MAX - 1;
}
static void result_positive(struct dlock_claim *claim) {
    claim->result = 7;
}
static void result_unknown(struct dlock_claim *claim) {
    claim->result = -99;
}
static void result_least(struct dlock_claim *claim) {
    claim->result = INT_MIN;
}
static void result_lost(struct dlock_claim *claim) {
    claim->result = DLOCK_ELOST;
}
static void result_busy(struct dlock_claim *claim) {
    claim->result = DLOCK_EBUSY;
}
static void result_canceled(struct dlock_claim *claim) {
    claim->result = DLOCK_ECANCELED;
}
static void clock_zero(struct dlock_claim *claim) {
    claim->server_us = 0;
}
static void clock_least(struct dlock_claim *claim) {
    claim->server_us = INT64_MIN;
}
static void clock_largest(struct dlock_claim *claim) {
    claim->server_us = INT64_MAX;
}

/* Granted by the server, but nothing anyone can work with: EPROTO, and the server is rid of it in the end. */
static void no_grant(const char *uri, void (*edit)(struct dlock_claim *)) {
    dlock_lock *lock = lock_new(client_new(uri), "n");
    struct actor *actor = actor_new();
    fake_edit(FAKE_ACQUIRE, edit, 1);
    begin_acquire(actor, lock, 2000);
    wait_for(actor, 2200);
    assert_int_equal(result(actor), DLOCK_EPROTO);
    assert_int_equal(error_of(actor)->code, DLOCK_EPROTO);
    assert_int_not_equal(error_of(actor)->message[0], '\0');
    assert_false(held_by(actor, lock));
    assert_int_equal(fence_by(actor, lock), 0);
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

#define NO_GRANT(edit)               \
    TEST(edit##_is_no_grant) {       \
        no_grant("fake:", edit);     \
        no_grant("fakepoll:", edit); \
    }
NO_GRANT(fence_zero)
NO_GRANT(fence_too_large)
NO_GRANT(fence_largest)
NO_GRANT(kept_zero)
NO_GRANT(kept_negative)
NO_GRANT(kept_least)
NO_GRANT(kept_for_ever)
NO_GRANT(result_positive)
NO_GRANT(result_unknown)
NO_GRANT(result_least)
NO_GRANT(result_lost)
NO_GRANT(result_canceled)

TEST(a_lease_longer_than_asked_is_not_believed) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    fake_edit(FAKE_ACQUIRE, kept_too_long, 1);
    fake_edit(FAKE_RENEW, kept_too_long, 100);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_remaining_ms(lock), 9898);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(dlock_held(lock));
    assert_true(dlock_remaining_ms(lock) <= 9898);
}

TEST(any_server_clock_is_survived) {
    void (*const edits[])(struct dlock_claim *) = {clock_zero, clock_least, clock_largest};
    for (size_t i = 0; i < 3; i++) {
        dlock_client *client = client_new("fake:");
        dlock_lock *lock = lock_new(client, "n");
        struct actor *actor = actor_new();
        fake_other_acquire("n", 60000);
        struct fake_grant other = fake_holder("n");
        fake_edit(FAKE_ACQUIRE, edits[i], 3);
        begin_acquire(actor, lock, 20000);
        fake_advance_ms(100);
        fake_other_release(&other, "n");
        fake_faults_clear();
        wait_for(actor, 1000);
        assert_int_equal(result(actor), 0);
        assert_true(remaining_by(actor, lock) <= fake_holder("n").left_ms);
        fake_advance_ms(2 * LEASE_MS);
        assert_true(held_by(actor, lock));
        assert_int_equal(release_by(actor, lock), 0);
    }
}

/* ---- renewals ---------------------------------------------------------------------------------------------------- */

/* As if it had not been answered: tried again, without hurry, until it works. */
static void renewal_ignored(void (*edit)(struct dlock_claim *)) {
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client_new("fake:"), "n", &lost);
    int64_t sent_us = dlock__now_us();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_edit(FAKE_RENEW, edit, 3);
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(fake_faults_left(), 0);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 0);

    fake_log_clear();
    struct fake_command last;
    fake_edit(FAKE_RENEW, edit, 100000);
    int64_t valid_until_us = dlock__now_us() + dlock_remaining_ms(lock) * 1000;
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_true(lost.at_us - sent_us > 2 * LEASE_MS * 1000);
    assert_in_range(lost.at_us, valid_until_us - 1000, valid_until_us + 1000);
    assert_in_range(fake_calls(FAKE_RENEW), 3, 150);
    assert_true(fake_last(FAKE_RENEW, "n", &last));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    fake_advance_ms(2 * LEASE_MS);
}

#define RENEWAL_IGNORED(edit)     \
    TEST(edit##_renews_nothing) { \
        renewal_ignored(edit);    \
    }
RENEWAL_IGNORED(kept_zero)
RENEWAL_IGNORED(kept_negative)
RENEWAL_IGNORED(kept_least)
RENEWAL_IGNORED(kept_for_ever)
RENEWAL_IGNORED(result_positive)
RENEWAL_IGNORED(result_unknown)
RENEWAL_IGNORED(result_busy)

/* ---- releases ---------------------------------------------------------------------------------------------------- */

TEST(a_nonsensical_release_is_an_error_that_ends) {
    void (*const edits[])(struct dlock_claim *) = {result_positive, result_unknown, result_busy, result_canceled};
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(acquire_by(actor, lock, 1000), 0);
        fake_edit(FAKE_RELEASE, edits[i], 1);
        begin_release(actor, lock);
        wait_for(actor, 3200);
        assert_true(result(actor) == DLOCK_EPROTO || result(actor) == 0);
        assert_false(held_by(actor, lock));
        fake_advance_ms(LEASE_MS);
        assert_int_equal(fake_entries(), 0);
    }
}

/* ---- when to retry ----------------------------------------------------------------------------------------------- */

static void retry_at_once(struct dlock_claim *claim) {
    claim->retry_ms = 0;
}
static void retry_negative(struct dlock_claim *claim) {
    claim->retry_ms = -5;
}
static void retry_least(struct dlock_claim *claim) {
    claim->retry_ms = INT64_MIN;
}
static void retry_largest(struct dlock_claim *claim) {
    claim->retry_ms = INT64_MAX - 1;
}

/* Asked again at once, or at a time that is none, it still asks politely; never again, it waits for a wake. */
TEST(an_odd_time_to_ask_again_is_no_busy_loop) {
    static const struct {
        void (*edit)(struct dlock_claim *);
        unsigned low, high;
    } cases[] = {
        {retry_at_once, 100, 11000}, {retry_negative, 100, 11000}, {retry_least, 100, 11000}, {retry_largest, 1, 10}};
    fake_other_acquire("n", 600000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct actor *actor = actor_new();
        dlock_lock *lock = lock_new(client_new("fake:"), "n");
        fake_log_clear();
        fake_edit(FAKE_ACQUIRE, cases[i].edit, 100000);
        begin_acquire(actor, lock, 10000);
        wait_for(actor, 10200);
        assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
        assert_in_range(fake_calls(FAKE_ACQUIRE), cases[i].low, cases[i].high);
        fake_faults_clear();
    }
}

/* ---- wakes ------------------------------------------------------------------------------------------------------- */

struct stage {
    dlock_lock *waiting, *held;
    struct actor *waiter, *holder;
    struct fake_command ask;
    struct fake_grant other;
};

/* One thread waits for "n", which another client holds; one holds "held". */
static void stage_begin(struct stage *stage) {
    dlock_client *client = client_new("fake:");
    stage->waiting = lock_new(client, "n");
    stage->held = lock_new(client, "held");
    stage->waiter = actor_new();
    stage->holder = actor_new();
    stage->other = taken("n");
    assert_int_equal(acquire_by(stage->holder, stage->held, 0), 0);
    begin_acquire(stage->waiter, stage->waiting, 60000);
    assert_true(fake_last(FAKE_ACQUIRE, "n", &stage->ask));
    assert_int_equal(fake_listeners(), 1);
}

static void push(struct dlock_wake wake) {
    fake_wake_push(&wake);
    fake_settle();
}

/* Nothing has changed, and the real wake still works. */
static void stage_end(struct stage *stage) {
    fake_advance_ms(100);
    assert_false(over(stage->waiter));
    assert_true(held_by(stage->holder, stage->held));
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&stage->other, "n");
    fake_settle();
    wait_for(stage->waiter, 1000);
    assert_int_equal(result(stage->waiter), 0);
    assert_int_equal(release_by(stage->waiter, stage->waiting), 0);
    assert_int_equal(release_by(stage->holder, stage->held), 0);
}

static int64_t server_clock(void) {
    return dlock__now_us() + INT64_C(77000000000); /* as fake_server.c starts it */
}

TEST(nonsensical_wakes_are_ignored) {
    struct stage s;
    stage_begin(&s);
    struct fake_grant held = fake_holder("held");
    int64_t now = server_clock();
    push((struct dlock_wake){.kind = (enum dlock_wake_kind)0});
    push((struct dlock_wake){.kind = (enum dlock_wake_kind)99, .name = "n", .token = s.ask.token});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, NULL, s.ask.token, 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", NULL, 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, NULL, NULL, 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "unknown", s.ask.token, 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "held", s.ask.token, 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", "somebody.else", 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", "", 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "", "", 5, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 0, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, UINT64_MAX, now, 3000});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 5, now, 0});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 5, now, -1});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 5, now, INT64_MIN});
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 5, now, DLOCK_FOREVER});
    push((struct dlock_wake){DLOCK_WAKE_LOST, "n", "somebody.else", 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_LOST, "unknown", "", 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_LOST, "unknown", NULL, 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_LOST, "held", NULL, 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_LOOK, "unknown", NULL, 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_WANTED, NULL, NULL, 0, 0, 0});
    push((struct dlock_wake){DLOCK_WAKE_WANTED, "n", NULL, 0, 0, 0});
    assert_string_equal(fake_holder("held").token, held.token);
    stage_end(&s);
}

/* A forged grant, whatever its clock value: not believed until the server confirms it. */
TEST(a_forged_grant_with_an_odd_clock_is_confirmed) {
    const int64_t clocks[] = {0, -1, INT64_MIN, 1, INT64_MAX, server_clock() - 1000000, server_clock() + 10000000};
    struct stage s;
    stage_begin(&s);
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.ask.token, 5, clocks[i], 3000});
        fake_advance_ms(10);
        assert_false(over(s.waiter));
        assert_false(fake_waiters("n") != 1);
    }
    stage_end(&s);
}

/* The grant has lapsed at the server, which has made another one for the same token since, by an acquire whose answer
 * was lost: a renewal would be about that one. */
TEST(a_late_grant_is_not_taken_for_a_newer_one) {
    struct stage s;
    stage_begin(&s);
    fake_wakes_hold(true);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1000);
    fake_other_release(&s.other, "n");
    uint64_t first = fake_holder("n").fence;
    fake_advance_ms(4000);
    fake_faults_clear();
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_AFTER, 1);
    for (int i = 0; i < 1000 && fake_faults_left() > 0; i++) fake_advance_ms(5);
    assert_int_equal(fake_faults_left(), 0);
    assert_false(over(s.waiter));
    assert_true(fake_holder("n").fence > first);
    fake_wakes_hold(false);
    fake_settle();
    wait_for(s.waiter, 1000);
    assert_int_equal(result(s.waiter), 0);
    assert_int_equal(fence_by(s.waiter, s.waiting) >> 8, fake_holder("n").fence);
    assert_int_equal(release_by(s.waiter, s.waiting), 0);
    assert_int_equal(release_by(s.holder, s.held), 0);
}

/* A second word about a lock we hold changes nothing of it. */
TEST(a_grant_repeated_changes_nothing) {
    struct stage s;
    stage_begin(&s);
    struct fake_grant held = fake_holder("held");
    uint64_t fence = fence_by(s.holder, s.held);
    fake_advance_ms(1000);
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "held", held.token, held.fence + 50, server_clock(), 10000});
    assert_int_equal(fence_by(s.holder, s.held), fence);
    assert_true(remaining_by(s.holder, s.held) <= 9898 - 1000);
    stage_end(&s);
}

/* A wake for a wait that is over: if its token still holds the lock at the server, it must be released, in its mode. */
static void grant_for_nobody(enum dlock_mode mode, uint32_t limit) {
    const struct dlock_options options = {.size = sizeof options, .mode = mode, .limit = limit};
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = lock_new_with(client, "n", &options);
    struct actor *actor = actor_new();
    fake_other_acquire_as("n", limit ? mode : DLOCK_EXCLUSIVE, limit, 3600000);
    struct fake_grant other = fake_holder("n");
    begin_acquire(actor, lock, 1000);
    struct fake_command ask;
    assert_true(fake_last(FAKE_ACQUIRE, "n", &ask));
    wait_for(actor, 1200);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    fake_settle();
    /* Its queueing request arrives once more, and then it is its turn. */
    fake_replay(&ask);
    assert_int_equal(fake_waiters("n"), 1);
    fake_advance_ms(1000);
    fake_log_clear();
    fake_other_release(&other, "n");
    fake_advance_ms(100);
    struct fake_command command;
    assert_true(fake_last(FAKE_WAKE, "n", &command));
    assert_string_equal(command.token, ask.token);
    assert_true(fake_last(FAKE_RELEASE, "n", &command));
    assert_string_equal(command.token, ask.token);
    assert_int_equal(command.mode, mode);
    assert_string_equal(fake_holder("n").token, "");
    client_end(client);
}

TEST(a_grant_for_nobody_is_released) {
    grant_for_nobody(DLOCK_EXCLUSIVE, 0);
    grant_for_nobody(DLOCK_SHARED, 0);
    grant_for_nobody(DLOCK_PERMIT, 1);
}

/* The server answers no release, so none of them ends. */
TEST(grants_for_nobody_do_not_fill_the_memory) {
    enum { PUSHED = 3000, MOST = 1024 };
    struct stage s;
    stage_begin(&s);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 100000);
    fake_log_clear();
    for (int i = 0; i < PUSHED; i++) {
        char token[DLOCK_TOKEN_MAX + 1];
        snprintf(token, sizeof token, "%.24s.%d%s", s.ask.token, 1000 + i, strchr(s.ask.token, '@'));
        push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", token, 5, server_clock(), 3000});
    }
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS);
    assert_in_range(fake_claims(FAKE_RELEASE, "n"), MOST, MOST + 512); /* a batch may be on its way twice */
    stage_end(&s);
}

TEST(a_grant_for_a_token_of_somebody_else_is_none_of_ours) {
    struct stage s;
    stage_begin(&s);
    fake_log_clear();
    push((struct dlock_wake){DLOCK_WAKE_GRANTED, "n", s.other.token, 5, server_clock(), 3000});
    fake_advance_ms(100);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    stage_end(&s);
}

TEST(a_loss_told_by_wake_is_a_loss) {
    struct stage s;
    stage_begin(&s);
    struct fake_grant held = fake_holder("held");
    fake_server_break("held");
    push((struct dlock_wake){DLOCK_WAKE_LOST, "held", held.token, 0, server_clock(), 0});
    assert_false(held_by(s.holder, s.held));
    assert_int_equal(release_by(s.holder, s.held), DLOCK_ELOST);
    assert_int_equal(acquire_by(s.holder, s.held, 0), 0);
    stage_end(&s);
}

/* Some of a client's tokens do not tell another one. */
TEST(a_token_tells_nothing_of_the_next) {
    enum { N = 8 };
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    uint64_t numbers[N];
    for (int i = 0; i < N; i++) {
        char *end;
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        struct fake_grant grant = fake_holder("n");
        numbers[i] = strtoull(grant.token + 25, &end, 16);
        assert_ptr_equal(end, grant.token + 25 + 16);
        assert_int_equal(*end, '@');
        for (int j = 0; j < i; j++) assert_true(numbers[i] - numbers[j] + 1000 > 2000);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
