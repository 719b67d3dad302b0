/* Why a grant was lost: dlock_lost, and the messages. */
#include "fixture.h"

#include "state/client.h"

struct told {
    int why;
    char message[sizeof((struct dlock_error *)0)->message];
};

static void note_told(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct told *told = arg;
    struct dlock_error again;
    told->why = dlock_lost(lock, &again);
    assert_int_equal(again.code, DLOCK_ELOST);
    assert_string_equal(again.message, err->message);
    strcpy(told->message, err->message);
}

static dlock_lock *told_lock(const char *uri, uint32_t flags, struct told *told) {
    struct dlock_options options = {.size = sizeof options, .flags = flags, .on_lost = note_told, .on_lost_arg = told};
    return lock_new_with(client_new(uri), "n", &options);
}

/* … also to its owner, and by the release. */
static void assert_lost(dlock_lock *lock, const struct told *told, int why, const char *reason) {
    char message[sizeof told->message], before[sizeof message];
    struct dlock_error err;
    fake_settle();
    snprintf(message, sizeof message, "lock \"n\" was lost: %s", reason);
    snprintf(before, sizeof before, "lock \"n\" was lost before this release: %s", reason);
    assert_string_equal(told->message, message);
    assert_int_equal(told->why, why);
    assert_int_equal(dlock_lost(lock, &err), why);
    assert_string_equal(err.message, message);
    assert_int_equal(dlock_release(lock, &err), DLOCK_ELOST);
    assert_string_equal(err.message, before);
    assert_int_equal(dlock_lost(lock, &err), DLOCK_EOWNER);
}

TEST(what_is_held_is_not_lost) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct dlock_error err = {1, ""};
    assert_int_equal(dlock_lost(lock, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_lost(lock, &err), 0);
    assert_int_equal(err.code, 1);
    assert_int_equal(dlock_lost(NULL, NULL), DLOCK_EINVAL);
}

TEST(an_outage) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:?lease=2s", 0, &told);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(700); /* it was renewed once, after 667 ms */
    fake_server_down(true);
    fake_advance_ms(4000);
    assert_lost(lock, &told, DLOCK_LOSS_EXPIRED, "not renewed for 2.0 s (lease 2 s)");
}

/* The keeper waits for an answer. It runs, and the owner looks long after the end. */
TEST(a_silent_server) {
    dlock_lock *lock = lock_new(client_new("fake:?lease=1500ms&timeout=60s"), "n");
    struct dlock_error err;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_HANG, 1);
    fake_advance_ms(30000);
    assert_int_equal(dlock_lost(lock, &err), DLOCK_LOSS_EXPIRED);
    assert_string_equal(err.message, "lock \"n\" was lost: not renewed for 30.0 s (lease 1.5 s)");
    fake_slow_go();
    fake_settle();
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* The renewal was due after a third of the lease; that nothing ran before that cannot be seen. */
TEST(a_process_that_does_not_run) {
    for (int owner_first = 0; owner_first < 2; owner_first++) {
        struct told told = {0};
        dlock_lock *lock = told_lock("fake:?lease=3s", 0, &told);
        struct dlock_error err;
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_settle();
        fake_jump_ms(6000);
        if (owner_first) assert_int_equal(dlock_lost(lock, &err), DLOCK_LOSS_EXPIRED);
        assert_lost(lock, &told, DLOCK_LOSS_EXPIRED,
                    "not renewed for 6.0 s (lease 3 s); this process did not run for 5.0 s of it");
    }
}

TEST(an_earlier_standstill_is_not_blamed) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:?lease=3s", 0, &told);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    fake_jump_ms(2000);
    fake_settle(); /* renewed in time */
    assert_true(dlock_held(lock));
    fake_server_down(true);
    fake_advance_ms(3000);
    assert_lost(lock, &told, DLOCK_LOSS_EXPIRED, "not renewed for 3.0 s (lease 3 s)");
}

TEST(a_fixed_lease) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:", DLOCK_FIXED_LEASE, &told);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(LEASE_MS);
    assert_lost(lock, &told, DLOCK_LOSS_FIXED_END, "its fixed lease has ended");
}

TEST(a_server_without_memory) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:", 0, &told);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    assert_lost(lock, &told, DLOCK_LOSS_FORGOTTEN, "somebody broke it, or the server forgot it");
}

TEST(a_loss_that_a_release_finds) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct dlock_error err;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_forget();
    assert_int_equal(dlock_release(lock, &err), DLOCK_ELOST);
    assert_string_equal(err.message,
                        "lock \"n\" was lost before its release: somebody broke it, or the server forgot it");
}

TEST(a_session) {
    for (int says_so = 0; says_so < 2; says_so++) {
        struct told told = {0};
        dlock_lock *lock = told_lock("fakesession:", 0, &told), *other = lock_new(lock->client, "other");
        struct actor *waiter = actor_new();
        taken("other");
        begin_acquire(waiter, other, -1); /* now wake-ups are heard */
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        if (says_so)
            fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_LOST});
        else
            fake_server_cut();
        fake_settle();
        if (!says_so) fake_advance_ms(LEASE_MS);
        assert_lost(lock, &told, DLOCK_LOSS_SESSION, "its connection to the server, or its session there, has ended");
        dlock_cancel(other);
        fake_settle();
        fake_server_forget();
    }
}

/* ---- a break ----------------------------------------------------------------------------------------------------- */

/* A lock that is held by a client that listens; its last confirmation is a while ago. */
static dlock_lock *held_by_a_listener(struct told *told) {
    dlock_lock *lock = told_lock("fake:", 0, told);
    taken("other");
    begin_acquire(actor_new(), lock_new(lock->client, "other"), -1);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(200);
    return lock;
}

static void say_broken(const char *name, const char *token) {
    fake_wake_push(&(struct dlock_wake){.kind = DLOCK_WAKE_BROKEN, .name = name, .token = token});
    fake_settle();
}

TEST(a_break_reaches_a_holder_at_once) {
    struct told told = {0};
    dlock_lock *lock = held_by_a_listener(&told);
    struct fake_grant grant = fake_holder("n");
    fake_server_break("n");
    say_broken("n", grant.token);
    assert_lost(lock, &told, DLOCK_LOSS_BROKEN, "somebody broke it");
}

/* A server that watches the grant need not know its token. */
TEST(a_break_of_a_name_reaches_its_holder) {
    struct told told = {0};
    dlock_lock *lock = held_by_a_listener(&told);
    fake_server_break("n");
    say_broken("n", NULL);
    assert_lost(lock, &told, DLOCK_LOSS_BROKEN, "somebody broke it");
}

/* It costs a renewal, and how many of them follow does not depend on the number of messages. */
TEST(a_message_that_is_not_so_ends_nothing) {
    struct told told = {0};
    dlock_lock *lock = held_by_a_listener(&told);
    struct fake_grant grant = fake_holder("n");
    fake_log_clear();
    for (int i = 0; i < 50; i++) say_broken("n", grant.token);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    say_broken("n", "somebody.else");
    say_broken("other", grant.token);
    say_broken("unknown", grant.token);
    say_broken(NULL, grant.token);
    say_broken("n", NULL);
    fake_advance_ms(200);
    assert_true(fake_calls(FAKE_RENEW) <= 2);
    assert_true(dlock_held(lock));
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    assert_lost(lock, &told, DLOCK_LOSS_FORGOTTEN, "somebody broke it, or the server forgot it");
}

static void ask_to_listen(struct dlock_claim *claim) {
    claim->hints = DLOCK_HINT_LISTEN;
}

/* A client that only holds listens for that from the first renewal on, if the backend asks for it. */
TEST(a_renewed_grant_may_be_listened_for) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:", 0, &told);
    fake_edit(FAKE_RENEW, ask_to_listen, 100);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    assert_int_equal(fake_listeners(), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_listeners(), 1);
    fake_server_cut_listeners();
    fake_advance_ms(1000);
    assert_int_equal(fake_listeners(), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_server_cut_listeners();
    fake_advance_ms(1000);
    assert_int_equal(fake_listeners(), 0);
}

/* The connection for wake-ups cannot be opened, and each attempt would take all of `timeout`. */
TEST(no_renewal_waits_for_that_connection) {
    struct told told = {0};
    dlock_lock *lock = told_lock("fake:?lease=1s", 0, &told);
    fake_edit(FAKE_RENEW, ask_to_listen, 1000);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_CONNECT, FAKE_PASS, 1); /* the keeper's */
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1000);
    fake_advance_ms(20000);
    assert_true(dlock_held(lock));
    assert_in_range(fake_calls(FAKE_CONNECT), 4, 40);
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2000);
    assert_int_equal(fake_listeners(), 1);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
