/* Several locks at once. */
#include "fixture.h"

enum { ROUNDS = 15 };

TEST(nobody_in_the_way_is_one_request_for_each_server) {
    dlock_client *one = client_new("fake:"), *two = client_new("fake:");
    struct all all = {{lock_new(one, "c"), lock_new(two, "b"), lock_new(one, "a"), lock_new(two, "d")}, 4, 1000, {0}};
    assert_int_equal(acquire_all(&all), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 2);
    for (size_t i = 0; i < all.n; i++) assert_true(dlock_held(all.locks[i]));
    assert_int_equal(release_all(&all), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 2);
    assert_int_equal(fake_entries(), 0);
}

static int many_rounds(void *arg) {
    struct all *all = arg;
    int rc = 0;
    for (int i = 0; i < ROUNDS && rc == 0; i++) {
        rc = acquire_all(all);
        for (size_t k = 0; k < all->n && rc == 0; k++)
            if (!dlock_held(all->locks[k])) rc = DLOCK_EPROTO;
        if (rc == 0) rc = release_all(all);
    }
    return rc;
}

static const struct dlock_options of_five = {.size = sizeof of_five, .mode = DLOCK_PERMIT, .limit = 5};

static struct all several(dlock_lock *lock, size_t n, int64_t timeout_ms) {
    struct all all = {{NULL}, n, timeout_ms, {0}};
    for (size_t i = 0; i < n; i++) all.locks[i] = lock;
    return all;
}

TEST(one_handle_takes_several_permits) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = lock_new_with(client, "n", &of_five);
    struct all three = several(lock, 3, 0), two = several(lock, 2, 0);
    assert_int_equal(acquire_all(&three), 0);
    assert_int_equal(fake_holders("n"), 3);
    assert_int_equal(acquire_all(&three), DLOCK_EBUSY); /* two are left */
    assert_int_equal(fake_holders("n"), 3);
    assert_int_equal(acquire_all(&two), 0);
    assert_int_equal(fake_holders("n"), 5);
    unsigned releases = fake_calls(FAKE_RELEASE);
    assert_int_equal(release_all(&three), 0);
    assert_int_equal(fake_holders("n"), 2);
    assert_int_equal(fake_calls(FAKE_RELEASE), releases + 1);
    assert_int_equal(release_all(&three), DLOCK_EOWNER); /* one too many */
    assert_int_equal(fake_entries(), 0);
}

TEST(several_permits_that_could_never_be_had_are_refused) {
    struct dlock_options once = of_five, owned_by_handle = of_five;
    once.flags = DLOCK_NO_REENTRY;
    owned_by_handle.owner = DLOCK_OWNER_HANDLE;
    dlock_client *client = client_new("fakefull:");
    struct all six = several(lock_new_with(client, "n", &of_five), 6, -1);
    assert_int_equal(acquire_all(&six), DLOCK_EDEADLK);
    struct all strict = several(lock_new_with(client, "n", &once), 2, -1);
    assert_int_equal(acquire_all(&strict), DLOCK_EDEADLK);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0);
    struct all handle = several(lock_new_with(client, "n", &owned_by_handle), 2, 0);
    assert_int_equal(acquire_all(&handle), DLOCK_EDEADLK); /* it owns one */
    assert_int_equal(fake_entries(), 0);
    handle.locks[1] = lock_new_with(client, "n", &owned_by_handle);
    assert_int_equal(acquire_all(&handle), 0);
    assert_int_equal(fake_holders("n"), 2);
    assert_int_equal(release_all(&handle), 0);
}

/* A call waits for missing permits while it keeps others; but not for long. */
TEST(several_permits_are_waited_for) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &of_five);
    struct all all = several(lock, 3, -1);
    struct actor *actor = actor_new(), *others = actor_new();
    dlock_lock *single = lock_new_with(client_new("fakefull:"), "n", &of_five);
    for (int i = 0; i < 3; i++) assert_int_equal(acquire_by(others, single, 0), 0);
    begin_call(actor, acquire_all, &all);
    assert_false(over(actor));
    assert_int_equal(fake_holders("n"), 5);
    assert_int_equal(fake_waiters("n"), 1);
    assert_int_equal(release_by(others, single), 0);
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_holders("n"), 5);
    begin_call(actor, release_all, &all);
    assert_int_equal(result(actor), 0);

    for (int i = 0; i < 2; i++) assert_int_equal(acquire_by(others, single, 0), 0);
    begin_call(actor, acquire_all, &all);
    unsigned fewest = 5;
    for (int i = 0; i < 100; i++) {
        fake_advance_ms(10);
        if (fake_holders("n") < fewest) fewest = fake_holders("n");
    }
    assert_int_equal(fewest, 4); /* others could have had what it had */
    assert_false(over(actor));
    for (int i = 0; i < 4; i++) assert_int_equal(release_by(others, single), 0);
    wait_for(actor, 3000);
    assert_int_equal(result(actor), 0);
    begin_call(actor, release_all, &all);
    assert_int_equal(result(actor), 0);
}

TEST(the_deadline_of_several_permits_is_kept) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &of_five);
    struct actor *actor = actor_new();
    for (int i = 0; i < 3; i++) fake_other_acquire_as("n", DLOCK_PERMIT, 5, 600000);
    for (int64_t ms = 20; ms < 3000; ms = ms * 5 / 2) {
        struct all all = several(lock, 3, ms);
        begin_call(actor, acquire_all, &all);
        assert_in_range(wait_for(actor, 5000), ms * 1000 - 1000, ms * 1000 + 100000);
        assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
        fake_settle();
        assert_int_equal(fake_holders("n"), 3);
        assert_int_equal(fake_waiters("n"), 0);
    }
}

/* The first try is answered, and the deadline comes during a later one. */
TEST(busy_permits_are_not_away) {
    dlock_client *client = client_new("fakefull:?timeout=20s");
    dlock_lock *lock = lock_new_with(client, "n", &of_five);
    struct actor *actor = actor_new();
    for (int i = 0; i < 3; i++) fake_other_acquire_as("n", DLOCK_PERMIT, 5, 600000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 100000);
    for (int64_t deadline_ms = 200; deadline_ms < 800; deadline_ms += 3) {
        struct all all = several(lock, 3, deadline_ms);
        begin_call(actor, acquire_all, &all);
        for (int ms = 0; !over(actor); ms += 10) {
            fake_advance_ms(10); /* an answer takes up to so long */
            fake_slow_go();
            assert_true(ms < deadline_ms + 100);
        }
        if (result(actor) != DLOCK_ETIMEDOUT) fail_msg("%d ms: %s", (int)deadline_ms, all.err.message);
    }
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS); /* the engine's part */
    assert_int_equal(fake_holders("n"), 3);
    assert_int_equal(fake_waiters("n"), 0);
}

/* Each attempt has its own timeout: an unanswered one does not end a call that has time left. */
TEST(a_silence_ends_no_wait_for_several_permits) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:?timeout=100ms"), "n", &of_five);
    struct actor *actor = actor_new();
    for (int i = 0; i < 3; i++) fake_other_acquire_as("n", DLOCK_PERMIT, 5, 600000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 100000);
    for (int silent_ms = 100; silent_ms < 600; silent_ms += 10) {
        struct all all = several(lock, 3, silent_ms + 400);
        begin_call(actor, acquire_all, &all);
        for (int ms = 0; !over(actor); ms += 10) {
            fake_advance_ms(10);
            if (ms < silent_ms || ms > silent_ms + 300)
                fake_slow_go();
            else if (over(actor))
                fail_msg("silent from %d ms on: ended after %d: %s", silent_ms, ms, all.err.message);
        }
        assert_int_not_equal(result(actor), 0);
    }
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS);
}

/* Five threads of three processes, each with two or three of five, and one that takes single ones. */
TEST(several_permits_for_several_callers) {
    struct dlock_options options = of_five;
    options.limit = 4; /* two have two each: none of them three */
    dlock_client *clients[3] = {client_new("fakefull:"), client_new("fakefull:"), client_new("fakefull:")};
    struct all all[6];
    struct actor *actors[6];
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 2);
    for (size_t i = 0; i < 6; i++) {
        all[i] = several(lock_new_with(clients[i % 3], "n", &options), i == 0 ? 1 : 2 + i % 3, -1);
        begin_call(actors[i] = actor_new(), many_rounds, &all[i]);
    }
    fake_slow_go();
    for (size_t i = 0; i < 6; i++) {
        wait_for(actors[i], 6000000);
        assert_int_equal(result(actors[i]), 0);
    }
    assert_int_equal(fake_entries(), 0);
}

/* Two callers want three of four each, and have two each. */
TEST(those_who_lack_each_others_permits_get_all) {
    struct dlock_options options = of_five;
    options.limit = 4;
    struct all all[2];
    struct actor *actors[2] = {actor_new(), actor_new()};
    struct actor *others = actor_new();
    dlock_lock *single = lock_new_with(client_new("fakefull:"), "n", &options);
    for (int i = 0; i < 4; i++) assert_int_equal(acquire_by(others, single, 0), 0);
    for (int i = 0; i < 2; i++) {
        all[i] = several(lock_new_with(client_new("fakefull:"), "n", &options), 3, -1);
        begin_call(actors[i], acquire_all, &all[i]);
    }
    for (int i = 0; i < 4; i++) { /* each to the one who waits for longest */
        assert_int_equal(release_by(others, single), 0);
        fake_settle();
    }
    assert_int_equal(fake_holders("n"), 4);
    assert_int_equal(fake_waiters("n"), 2);
    assert_false(over(actors[0]) || over(actors[1]));
    for (int ms = 0; ms < 10000 && !over(actors[0]) && !over(actors[1]); ms += 10) fake_advance_ms(10);
    int first = over(actors[0]) ? 0 : 1;
    assert_int_equal(result(actors[first]), 0);
    begin_call(actors[first], release_all, &all[first]);
    assert_int_equal(result(actors[first]), 0);
    wait_for(actors[1 - first], 10000);
    assert_int_equal(result(actors[1 - first]), 0);
    begin_call(actors[1 - first], release_all, &all[1 - first]);
    assert_int_equal(result(actors[1 - first]), 0);
}

static int cancel_it(void *arg) {
    return dlock_cancel(arg);
}

/* While it waits for one, and while it stays away. */
TEST(a_cancel_ends_the_wait_for_several_permits) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &of_five);
    struct all all = several(lock, 3, -1);
    struct actor *actor = actor_new(), *other = actor_new();
    for (int i = 0; i < 3; i++) fake_other_acquire_as("n", DLOCK_PERMIT, 5, 600000);
    for (unsigned held = 3; held <= 5; held += 2) {
        begin_call(actor, acquire_all, &all);
        for (int i = 0; i < 1000 && fake_holders("n") != held; i++) fake_advance_ms(1);
        assert_int_equal(fake_holders("n"), held);
        assert_false(over(actor));
        begin_call(other, cancel_it, lock);
        fake_settle();
        assert_int_equal(result(actor), DLOCK_ECANCELED);
        assert_int_equal(fake_holders("n"), 3);
        assert_int_equal(fake_waiters("n"), 0);
    }
}

/* While one lock is busy, none of those after it is kept. */
TEST(what_stands_behind_a_busy_one_is_given_back) {
    dlock_client *client = client_new("fake:");
    struct all all = {{lock_new(client, "c"), lock_new(client, "b"), lock_new(client, "a")}, 3, -1, {0}};
    struct fake_grant other = taken("b");
    struct actor *actor = actor_new();
    begin_call(actor, acquire_all, &all);
    assert_false(over(actor));
    assert_string_not_equal(fake_holder("a").token, "");
    assert_string_equal(fake_holder("c").token, "");
    fake_other_release(&other, "b");
    fake_settle();
    assert_int_equal(result(actor), 0);
    begin_call(actor, release_all, &all);
    assert_int_equal(result(actor), 0);
}

/* The tries hang, or giving back the locks that are held already. */
TEST(the_deadline_is_kept) {
    dlock_client *client = client_new("fake:?timeout=20s");
    struct all all = {{lock_new(client, "a"), lock_new(client, "b")}, 2, 400, {0}};
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 5);
    begin_call(actor, acquire_all, &all);
    assert_true(wait_for(actor, 30000) <= 500000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    fake_advance_ms(2 * LEASE_MS); /* the engine's part */
    assert_int_equal(fake_entries(), 0);

    struct fake_grant other = taken("b");
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 2);
    begin_call(actor, acquire_all, &all);
    assert_true(wait_for(actor, 30000) <= 500000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS);
    fake_other_release(&other, "b");
    assert_int_equal(fake_entries(), 0);
}

/* The try is answered, the question that follows is not: until the deadline, or for a whole `timeout`. */
TEST(busy_is_not_away) {
    static const struct {
        const char *uri;
        int code;
    } cases[] = {{"fakepoll:?timeout=20s", DLOCK_ETIMEDOUT}, {"fakepoll:?timeout=300ms", DLOCK_EUNAVAILABLE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlock_client *client = client_new(cases[i].uri);
        struct all all = {{lock_new(client, "a"), lock_new(client, "b")}, 2, 400, {0}};
        struct fake_grant other = taken("b");
        struct actor *actor = actor_new();
        fake_fault(FAKE_ACQUIRE, FAKE_PASS, 1);
        fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 100);
        begin_call(actor, acquire_all, &all);
        assert_true(wait_for(actor, 30000) <= 500000);
        assert_int_equal(result(actor), cases[i].code);
        fake_faults_clear();
        fake_slow_go();
        fake_advance_ms(2 * LEASE_MS); /* the engine's part */
        fake_other_release(&other, "b");
        assert_int_equal(fake_entries(), 0);
    }
}

TEST(a_release_of_all_goes_on_after_an_error) {
    dlock_client *client = client_new("fake:");
    struct all all = {{lock_new(client, "a"), lock_new(client, "b"), lock_new(client, "c")}, 3, 0, {0}};
    assert_int_equal(dlock_acquire(all.locks[0], 0, NULL), 0);
    assert_int_equal(dlock_acquire(all.locks[2], 0, NULL), 0);
    assert_int_equal(release_all(&all), DLOCK_EOWNER);
    assert_non_null(strstr(all.err.message, "\"b\""));
    assert_int_equal(fake_entries(), 0);
}

TEST(a_release_of_all_waits_for_its_answer) {
    dlock_client *client = client_new("fake:");
    struct all all = {{lock_new(client, "a"), lock_new(client, "b")}, 2, 0, {0}};
    struct actor *actor = actor_new();
    begin_call(actor, acquire_all, &all);
    assert_int_equal(result(actor), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW_AFTER, 1);
    begin_call(actor, release_all, &all);
    fake_advance_ms(1000);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
}

/* ---- a crowd on a silent server: one deadline, and no more than a moment for giving up ---- */

enum { CROWD = 200 };

struct crowd {
    dlock_lock *locks[CROWD];
    int64_t timeout_ms;
};

static int acquire_crowd(void *arg) {
    struct crowd *crowd = arg;
    return dlock_acquire_all(crowd->locks, CROWD, crowd->timeout_ms, NULL);
}

TEST(a_silent_server_costs_a_crowd_one_deadline) {
    static const char *const uris[] = {"fake:?timeout=20s", "fakepoll:?timeout=300ms", "fakesession:"};
    for (size_t k = 0; k < sizeof uris / sizeof uris[0]; k++) {
        dlock_client *client = client_new(uris[k]);
        struct actor *actor = actor_new();
        struct crowd crowd = {.timeout_ms = 500};
        for (size_t i = 0; i < CROWD; i++) {
            char name[16];
            snprintf(name, sizeof name, "%03zu", i);
            crowd.locks[i] = lock_new(client, name);
        }
        fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 10000);
        fake_fault(FAKE_RELEASE, FAKE_SLOW, 10000);
        begin_call(actor, acquire_crowd, &crowd);
        assert_true(wait_for(actor, 100000) <= 600000);
        assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
        fake_faults_clear();
        fake_advance_ms(2 * LEASE_MS); /* the engine's part */
        assert_int_equal(fake_entries(), 0);
        for (size_t i = 0; i < CROWD; i++) lock_end(crowd.locks[i]);
        client_end(client);
    }
}

/* Several silent servers share that moment; the engine then sends the releases that are left. */
TEST(so_do_several_silent_servers) {
    enum { SERVERS = 8 };
    struct all all = {.n = SERVERS, .timeout_ms = 400};
    for (size_t i = 0; i < SERVERS; i++) {
        char uri[32], name[2] = {(char)('a' + i), '\0'};
        snprintf(uri, sizeof uri, "fake:?timeout=%zus", 20 + i);
        all.locks[i] = lock_new(client_new(uri), name);
    }
    struct fake_grant other = taken("h");
    struct actor *actor = actor_new();
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_call(actor, acquire_all, &all);
    assert_true(wait_for(actor, 100000) <= 500000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    fake_faults_clear();
    fake_slow_go();
    fake_advance_ms(2 * LEASE_MS);
    fake_other_release(&other, "h");
    assert_int_equal(fake_entries(), 0);
}

/* The first one does not use up that moment: the next one has time to answer. */
TEST(a_silent_server_leaves_the_next_one_a_moment) {
    dlock_client *one = client_new("fake:?timeout=20s"), *two = client_new("fake:?timeout=21s");
    struct all all = {{lock_new(one, "a"), lock_new(two, "b"), lock_new(two, "c")}, 3, 400, {0}};
    struct fake_grant other = taken("c");
    struct actor *actor = actor_new();
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_call(actor, acquire_all, &all);
    fake_advance_ms(400 + 75);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_int_equal(fake_entries(), 0);
    fake_other_release(&other, "c");
}

/* ---- the end of one of the handles ---- */

static int cancel(void *arg) {
    return dlock_cancel(arg);
}

/* Of one that it has, that it waits for, and that it has not asked for yet; in the client that it waits in, or not. */
TEST(the_end_of_a_handle_ends_the_wait_for_all) {
    static const char *const names[] = {"a", "b", "c", "d"};
    dlock_client *clients[] = {client_new("fake:"), client_new("fake:")};
    struct fake_grant other = taken("b");
    for (size_t ended = 0; ended < 4; ended++) {
        struct all all = {.n = 4, .timeout_ms = -1};
        struct actor *actor = actor_new(), *ender = actor_new();
        for (size_t i = 0; i < 4; i++) all.locks[i] = lock_new(clients[i % 2], names[i]);
        begin_call(actor, acquire_all, &all);
        assert_false(over(actor));
        assert_string_not_equal(fake_holder("a").token, "");
        begin_call(ender, cancel, all.locks[ended]);
        assert_int_equal(result(actor), DLOCK_ECANCELED);
        assert_string_equal(fake_holder("a").token, "");
        begin_call(actor, acquire_all, &all); /* a cancel is not remembered */
        assert_false(over(actor));
        begin_free(ender, all.locks[ended]);
        assert_true(over(ender));
        assert_int_equal(result(actor), DLOCK_ECANCELED);
        assert_int_equal(fake_entries(), 0);
    }
    fake_other_release(&other, "b");
}

TEST(a_close_ends_the_wait_for_all) {
    dlock_client *one = client_new("fake:"), *two = client_new("fake:");
    struct fake_grant other = taken("b");
    struct all all = {{lock_new(one, "a"), lock_new(two, "b")}, 2, -1, {0}};
    struct actor *actor = actor_new(), *closer = actor_new();
    begin_call(actor, acquire_all, &all);
    begin_close(closer, one);
    assert_true(over(closer));
    assert_int_equal(result(actor), DLOCK_ECANCELED);
    assert_int_equal(fake_entries(), 0);
    fake_other_release(&other, "b");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
