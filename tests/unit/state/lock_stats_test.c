/* dlock_client_stats: the meaning of each number. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

static struct dlock_stats stats_of(dlock_client *client) {
    struct dlock_stats stats = DLOCK_STATS_INIT;
    assert_int_equal(dlock_client_stats(client, &stats, NULL), 0);
    uint64_t sum = 0;
    for (int i = 0; i < DLOCK_WAIT_BUCKETS; i++) sum += stats.wait_counts[i];
    assert_int_equal(sum, stats.waits);
    return stats;
}

/* Members that `expected` does not name are 0. */
static void assert_stats(dlock_client *client, struct dlock_stats expected) {
    struct dlock_stats stats = stats_of(client);
    const uint64_t *is = &stats.grants, *should_be = &expected.grants;
    static const char *const names[] = {"grants",           "local_grants", "reentries", "losses", "renewals",
                                        "renewal_failures", "reconnects",   "waiting",   "waits"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is[i] != should_be[i])
            fail_msg("%s is %llu instead of %llu", names[i], (unsigned long long)is[i],
                     (unsigned long long)should_be[i]);
}

/* ---- the call ---- */

TEST(the_caller_says_how_much_it_knows) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct dlock_error err;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    struct {
        struct dlock_stats known;
        uint64_t later[2];
    } newer;
    memset(&newer, 0xff, sizeof newer);
    newer.known.size = offsetof(__typeof__(newer), later) + sizeof newer.later[0];
    assert_int_equal(dlock_client_stats(client, &newer.known, NULL), 0);
    assert_int_equal(newer.known.size, offsetof(__typeof__(newer), later) + sizeof newer.later[0]);
    assert_int_equal(newer.known.grants, 1);
    assert_int_equal(newer.later[0], 0);
    assert_true(newer.later[1] == UINT64_MAX);

    struct dlock_stats older;
    memset(&older, 0xff, sizeof older);
    older.size = offsetof(struct dlock_stats, local_grants);
    assert_int_equal(dlock_client_stats(client, &older, NULL), 0);
    assert_int_equal(older.grants, 1);
    assert_true(older.local_grants == UINT64_MAX);

    older.size = 0;
    assert_int_equal(dlock_client_stats(client, &older, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "DLOCK_STATS_INIT"));
    assert_int_equal(dlock_client_stats(client, NULL, &err), DLOCK_EINVAL);
    assert_int_equal(dlock_client_stats(NULL, &newer.known, &err), DLOCK_EINVAL);
}

/* ---- grants ---- */

TEST(a_grant_is_counted_once_however_often_its_owner_enters) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_stats(client, (struct dlock_stats){.grants = 1});
    for (int i = 0; i < 3; i++) assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_stats(client, (struct dlock_stats){.grants = 1, .reentries = 3});
    for (int i = 0; i < 4; i++) assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_stats(client, (struct dlock_stats){.grants = 2, .reentries = 3});
}

TEST(a_refused_try_is_neither_a_grant_nor_a_wait) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    taken("n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY);
    assert_stats(client, (struct dlock_stats){0});
}

TEST(a_hand_over_between_threads_is_a_local_grant) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *holder = actor_new(), *next = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    begin_acquire(next, lock, -1);
    assert_stats(client, (struct dlock_stats){.grants = 1, .waiting = 1});
    assert_int_equal(release_by(holder, lock), 0);
    fake_settle();
    assert_int_equal(result(next), 0);
    assert_stats(client, (struct dlock_stats){.grants = 2, .local_grants = 1, .waits = 1});
    assert_int_equal(release_by(next, lock), 0);
    assert_int_equal(acquire_by(holder, lock, 0), 0); /* from the server again */
    assert_stats(client, (struct dlock_stats){.grants = 3, .local_grants = 1, .waits = 1});
    assert_int_equal(release_by(holder, lock), 0);
}

TEST(so_is_what_lingered) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    dlock_lock *lock = lock_new(client, "n");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_int_equal(fake_grants("n"), 1);
    assert_stats(client, (struct dlock_stats){.grants = 3, .local_grants = 2});
}

TEST(and_an_imported_one) {
    dlock_client *from = client_new("fakefull:"), *to = client_new("fakefull:");
    dlock_lock *lock = lock_new(from, "n"), *imported;
    char ticket[DLOCK_TICKET_MAX + 1];
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_export(lock, ticket, sizeof ticket, NULL), 0);
    assert_int_equal(dlock_import(to, ticket, NULL, &imported, NULL), 0);
    assert_stats(from, (struct dlock_stats){.grants = 1, .renewals = 1});
    assert_stats(to, (struct dlock_stats){.grants = 1, .local_grants = 1});
    dlock_free(imported);
}

TEST(each_lock_of_a_call_about_many_counts) {
    dlock_client *client = client_new("fake:");
    dlock_lock *locks[3] = {lock_new(client, "a"), lock_new(client, "b"), lock_new(client, "c")};
    assert_int_equal(dlock_acquire_all(locks, 3, 1000, NULL), 0);
    assert_stats(client, (struct dlock_stats){.grants = 3});
    assert_int_equal(dlock_release_all(locks, 3, NULL), 0);
}

TEST(an_asynchronous_acquire_counts_as_any_other) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new_with(client, "n", &by_handle);
    struct done done = {0};
    struct fake_grant other = taken("n");
    begin_async(lock, 60000, &done);
    assert_stats(client, (struct dlock_stats){.waiting = 1});
    fake_advance_ms(1000);
    fake_other_release(&other, "n");
    fake_settle();
    assert_done(&done, 0);
    assert_stats(client, (struct dlock_stats){.grants = 1, .waits = 1});
}

/* ---- what is so now ---- */

TEST(what_is_held) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    dlock_lock *writer = lock_new(client, "n"), *lingers = lock_new(client, "m");
    assert_int_equal(dlock_acquire(writer, 0, NULL), 0);
    assert_int_equal(dlock_acquire(writer, 0, NULL), 0);
    assert_int_equal(stats_of(client).held, 1);
    assert_int_equal(dlock_acquire(lingers, 0, NULL), 0);
    assert_int_equal(stats_of(client).held, 2);
    assert_int_equal(dlock_release(lingers, NULL), 0);
    assert_int_equal(dlock_downgrade(writer, NULL), 0);
    assert_int_equal(stats_of(client).held, 1);
    fake_server_break("n");
    fake_advance_ms(LEASE_MS);
    assert_int_equal(stats_of(client).held, 0);
    assert_int_equal(dlock_release(writer, NULL), DLOCK_ELOST);
    assert_int_equal(stats_of(client).held, 0);
}

static int pass(const struct dlock_info *info, void *arg) {
    (void)info;
    (void)arg;
    return 0;
}

TEST(when_the_server_answered) {
    struct dlock_client_options lazy = DLOCK_CLIENT_OPTIONS_INIT;
    lazy.flags = DLOCK_CLIENT_LAZY;
    dlock_client *client;
    assert_int_equal(dlock_open("fakefull:", &lazy, &client, NULL), 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(stats_of(client).last_answer_ms, -1);
    fake_server_down(true);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    assert_int_equal(stats_of(client).last_answer_ms, -1);
    fake_server_down(false);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(stats_of(client).last_answer_ms, 0);
    fake_advance_ms(100);
    assert_int_equal(stats_of(client).last_answer_ms, 100);
    fake_advance_ms(THIRD_MS - 90);
    assert_int_equal(stats_of(client).renewals, 1);
    assert_true(stats_of(client).last_answer_ms <= 10);
    fake_advance_ms(100);
    assert_int_equal(dlock_inspect(client, "n", pass, NULL, NULL), 0);
    assert_int_equal(stats_of(client).last_answer_ms, 0);
    fake_server_down(true);
    fake_advance_ms(LEASE_MS);
    assert_true(stats_of(client).renewal_failures > 0);
    assert_int_equal(stats_of(client).last_answer_ms, LEASE_MS);
    fake_server_down(false);
    lock_end(lock);
    dlock_close(client);
}

/* ---- waits ---- */

TEST(the_bounds_of_buckets_double) {
    assert_int_equal(DLOCK_WAIT_BOUND_US(0), 100);
    for (int i = 1; i < DLOCK_WAIT_BUCKETS - 1; i++)
        assert_int_equal(DLOCK_WAIT_BOUND_US(i), 2 * DLOCK_WAIT_BOUND_US(i - 1));
}

/* A wait of exactly this time for another thread's lock falls into this bucket. */
static void assert_bucket(struct actor *holder, struct actor *next, int64_t us, int bucket) {
    dlock_client *client = client_new("fake:?lease=1h");
    dlock_lock *lock = lock_new(client, "n");
    struct dlock_stats before = stats_of(client);
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    begin_acquire(next, lock, -1);
    fake_advance_us(us);
    assert_int_equal(release_by(holder, lock), 0);
    fake_settle();
    assert_int_equal(result(next), 0);
    assert_int_equal(release_by(next, lock), 0);
    struct dlock_stats after = stats_of(client);
    assert_int_equal(after.waits - before.waits, 1);
    assert_int_equal(after.wait_us - before.wait_us, us);
    for (int i = 0; i < DLOCK_WAIT_BUCKETS; i++)
        if (after.wait_counts[i] - before.wait_counts[i] != (i == bucket))
            fail_msg("bucket %d for %lld us", i, (long long)us);
}

TEST(a_wait_falls_into_the_bucket_whose_bound_it_does_not_exceed) {
    struct actor *holder = actor_new(), *next = actor_new();
    assert_bucket(holder, next, 0, 0);
    for (int i = 0; i < DLOCK_WAIT_BUCKETS - 1; i++) {
        assert_bucket(holder, next, DLOCK_WAIT_BOUND_US(i), i);
        assert_bucket(holder, next, DLOCK_WAIT_BOUND_US(i) + 1, i + 1);
    }
    assert_bucket(holder, next, 10 * DLOCK_WAIT_BOUND_US(DLOCK_WAIT_BUCKETS - 2), DLOCK_WAIT_BUCKETS - 1);
}

TEST(a_wait_in_vain_counts_as_long_as_it_lasted) {
    struct scene s;
    scene_begin(&s, 0, 3000);
    assert_stats(s.client, (struct dlock_stats){.waiting = 1});
    wait_for(s.actor, 4000);
    assert_int_equal(result(s.actor), DLOCK_ETIMEDOUT);
    assert_stats(s.client, (struct dlock_stats){.waits = 1});
    assert_int_equal(stats_of(s.client).wait_us / 1000, 3000);
    assert_int_equal(stats_of(s.client).wait_counts[15], 1); /* 1.6384 to 3.2768 s */
}

TEST(a_cancelled_one_too) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_advance_ms(500);
    assert_int_equal(dlock_cancel(s.lock), 0);
    fake_settle();
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
    assert_stats(s.client, (struct dlock_stats){.waits = 1});
    assert_int_equal(stats_of(s.client).wait_us / 1000, 500);
}

TEST(while_the_server_is_away_everybody_waits) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    fake_server_down(true);
    begin_acquire(actor, lock, 60000);
    fake_advance_ms(1000);
    assert_stats(client, (struct dlock_stats){.waiting = 1});
    fake_server_down(false);
    wait_for(actor, 60000);
    assert_int_equal(result(actor), 0);
    assert_stats(client, (struct dlock_stats){.grants = 1, .waits = 1, .reconnects = 1});
    assert_int_equal(release_by(actor, lock), 0);
}

/* ---- losses ---- */

TEST(a_lost_grant_is_one_loss_whoever_hears_of_it_first) {
    dlock_client *client = client_new("fake:");
    struct lost_count lost = {0};
    dlock_lock *lock = watched_lock(client, "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0); /* held twice, lost once */
    fake_server_break("n");
    fake_advance_ms(LEASE_MS);
    assert_int_equal(lost.calls, 1);
    assert_stats(client, (struct dlock_stats){.grants = 1, .reentries = 1, .losses = 1});
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_stats(client, (struct dlock_stats){.grants = 1, .reentries = 1, .losses = 1});

    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_break("n");
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST); /* the release is the first to find it */
    assert_stats(client, (struct dlock_stats){.grants = 2, .reentries = 1, .losses = 2});
}

TEST(what_merely_lingers_is_not_lost) {
    dlock_client *client = client_new("fakefull:?linger=60s");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_server_break("n");
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(stats_of(client).losses, 0);
}

/* ---- renewals and connections ---- */

TEST(each_grant_of_a_request_is_a_renewal) {
    dlock_client *client = client_new("fake:");
    dlock_lock *a = lock_new(client, "a"), *b = lock_new(client, "b");
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_stats(client, (struct dlock_stats){.grants = 2, .renewals = 2});
}

TEST(a_renewal_without_an_answer_is_a_failure_and_ends_a_connection) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 1);
    fake_advance_ms(LEASE_MS / 2);
    assert_stats(client, (struct dlock_stats){.grants = 1, .renewals = 1, .renewal_failures = 1, .reconnects = 1});
}

TEST(on_one_shared_connection_as_well) {
    dlock_client *client = client_new("fakesession:");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock_new(client, "n"), 0), 0);
    fake_server_cut();
    fake_advance_ms(LEASE_MS);
    begin_acquire(actor, lock_new(client, "m"), 1000);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_stats(client, (struct dlock_stats){.grants = 2, .losses = 1, .reconnects = 1});
}

TEST(a_first_connection_is_no_reconnect) {
    dlock_client *client = client_new("fake:?connections=2");
    struct scene s;
    scene_begin(&s, 0, 1000); /* with a listener */
    dlock_lock *lock = lock_new(client, "m");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(LEASE_MS); /* with the keeper's own */
    assert_int_equal(stats_of(client).reconnects, 0);
    assert_int_equal(stats_of(s.client).reconnects, 0);
}

TEST(a_listener_that_is_replaced_is_one) {
    struct scene s;
    scene_begin(&s, 0, -1);
    fake_server_cut_listeners();
    fake_settle();
    fake_advance_ms(1000);
    assert_int_equal(fake_listeners(), 1);
    assert_int_equal(stats_of(s.client).reconnects, 1);
    assert_int_equal(dlock_cancel(s.lock), 0);
    fake_settle();
    assert_int_equal(result(s.actor), DLOCK_ECANCELED);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
