/* dlock_extend: the holder sets the lease of its grant. */
#include "fixture.h"

static dlock_lock *fixed_lock(dlock_client *client, enum dlock_owner owner, struct lost_count *lost) {
    struct dlock_options options = {.size = sizeof options, .owner = owner, .flags = DLOCK_FIXED_LEASE};
    options.on_lost = lost ? count_lost : NULL;
    options.on_lost_arg = lost;
    return lock_new_with(client, "n", &options);
}

TEST(a_fixed_lease_is_set_anew) {
    static const char *const uris[] = {"fake:", "fakepoll:", "fakesession:", "fakeforever:"};
    for (size_t i = 0; i < sizeof uris / sizeof uris[0]; i++) {
        struct lost_count lost = {0};
        struct fake_command command;
        struct actor *actor = actor_new();
        dlock_client *client = client_new(uris[i]);
        dlock_lock *lock = fixed_lock(client, DLOCK_OWNER_THREAD, &lost);
        assert_int_equal(acquire_by(actor, lock, 0), 0);
        uint64_t fence = fence_by(actor, lock);
        fake_advance_ms(LEASE_MS / 2);
        assert_int_equal(extend_by(actor, lock, 0), 0); /* its own */
        assert_int_equal(remaining_by(actor, lock), 9898);
        fake_advance_ms(LEASE_MS - 1000); /* past its first end */
        assert_true(held_by(actor, lock));
        assert_int_equal(extend_by(actor, lock, 3 * LEASE_MS), 0); /* longer than it ever was */
        assert_int_equal(remaining_by(actor, lock), 29698);
        assert_true(fake_last(FAKE_RENEW, "n", &command));
        assert_int_equal(command.lease_ms, 3 * LEASE_MS);
        assert_int_equal(extend_by(actor, lock, 1000), 0); /* and shorter than what is left */
        assert_int_equal(remaining_by(actor, lock), 988);
        assert_true(fence_by(actor, lock) == fence);
        unsigned renewals = fake_claims(FAKE_RENEW, "n");
        fake_advance_ms(987);
        assert_true(held_by(actor, lock));
        assert_int_equal(lost.calls, 0);
        fake_advance_ms(1);
        assert_false(held_by(actor, lock));
        assert_int_equal(lost.calls, 1);
        assert_int_equal(extend_by(actor, lock, 0), DLOCK_ELOST);
        assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
        assert_int_equal(extend_by(actor, lock, 0), DLOCK_EOWNER);
        assert_int_equal(fake_claims(FAKE_RENEW, "n"), renewals); /* only requested ones */
        fake_advance_ms(3 * LEASE_MS);
        client_end(client);
    }
}

TEST(a_renewed_grant_is_renewed_at_once) {
    struct actor *actor = actor_new();
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_ms(1000);
    assert_int_equal(extend_by(actor, lock, 2 * LEASE_MS), DLOCK_EINVAL);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(extend_by(actor, lock, LEASE_MS), 0);
    assert_int_equal(extend_by(actor, lock, 0), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 2);
    assert_int_equal(remaining_by(actor, lock), 9898);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(held_by(actor, lock));
    fake_server_forget();
    assert_int_equal(extend_by(actor, lock, 0), DLOCK_ELOST); /* the server has just said so */
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
}

/* As long as the connection lives: an extension that is not answered takes nothing of that. */
TEST(a_grant_without_a_lease_keeps_none) {
    struct actor *actor = actor_new();
    dlock_lock *lock = lock_new(client_new("fakeforever:?timeout=1s"), "n");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_true(remaining_by(actor, lock) == DLOCK_FOREVER);
    assert_int_equal(extend_by(actor, lock, 0), 0);
    assert_true(remaining_by(actor, lock) == DLOCK_FOREVER);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(leases_out_of_bounds_are_refused) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fakevolatile:?quarantine=20s&lease=10s"), DLOCK_OWNER_THREAD, NULL);
    fake_advance_ms(30000);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(extend_by(actor, lock, DLOCK_LEASE_MIN_MS - 1), DLOCK_EINVAL);
    assert_int_equal(extend_by(actor, lock, -1), DLOCK_EINVAL);
    assert_int_equal(extend_by(actor, lock, DLOCK_LEASE_MAX_MS + 1), DLOCK_EINVAL);
    assert_int_equal(extend_by(actor, lock, 20001), DLOCK_EINVAL); /* a restart would forget it too early */
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(extend_by(actor, lock, 20000), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The old end applies here; the server may have the new one, so it is released until that has passed. */
TEST(an_unanswered_extension_makes_nothing_longer_here) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:?timeout=1s"), DLOCK_OWNER_THREAD, NULL);
    struct extend extend = {lock, 6 * LEASE_MS};
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_ms(1000);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(actor, extend_it, &extend);
    assert_true(wait_for(actor, 1100) <= 1000 * 1000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_true(remaining_by(actor, lock) <= 9898 - 1000);
    assert_true(fake_holder("n").left_ms > 5 * LEASE_MS);
    fake_settle();
    unsigned renewals = fake_calls(FAKE_RENEW);
    fake_faults_clear();
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 20);
    fake_advance_ms(LEASE_MS); /* its end */
    assert_int_equal(fake_calls(FAKE_RENEW), renewals);
    assert_false(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_entries(), 0);
}

/* Also one that is answered after its caller has left: a later release that gets no answer is repeated for as long as
 * the longer lease may last. */
TEST(an_extension_without_a_caller_is_released_to_its_end) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:?timeout=1s");
    dlock_lock *other = lock_new(client, "m"), *lock = fixed_lock(client, DLOCK_OWNER_THREAD, NULL);
    struct extend extend = {lock, 6 * LEASE_MS};
    assert_int_equal(acquire_by(actor, other, 0), 0);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 2);
    fake_advance_ms(LEASE_MS / 3 + 10); /* the renewal of m hangs */
    assert_int_equal(fake_slow_waiting(), 1);
    begin_call(actor, extend_it, &extend);
    fake_advance_ms(500);
    fake_slow_go();
    fake_advance_ms(600);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_slow_go();
    fake_settle();
    assert_true(remaining_by(actor, lock) > 5 * LEASE_MS);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 5000);
    begin_release(actor, lock);
    wait_for(actor, LEASE_MS);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_advance_ms(LEASE_MS + LEASE_MS / 2);
    assert_int_equal(fake_holders("n"), 1);
    fake_faults_clear();
    fake_advance_ms(5000);
    assert_int_equal(fake_holders("n"), 0);
}

/* Each of them may be executed up to its own lease later, and the last one still finds the grant that an earlier one made
 * longer. A shorter one after them changes nothing of that. */
TEST(several_extensions_are_released_to_the_end_of_the_longest) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:?timeout=1s"), DLOCK_OWNER_THREAD, NULL);
    struct extend longer = {lock, 6 * LEASE_MS}, shorter = {lock, LEASE_MS};
    struct fake_command first, last;
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    begin_call(actor, extend_it, &longer);
    wait_for(actor, 1100);
    assert_true(fake_nth(FAKE_RENEW, "n", 0, &first));
    assert_true(fake_last(FAKE_RENEW, "n", &last));
    assert_int_not_equal(first.call, last.call);
    begin_call(actor, extend_it, &shorter);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_server_down(true);
    begin_release(actor, lock);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_advance_ms(LEASE_MS / 2);
    fake_replay(&first);
    fake_advance_ms(5 * LEASE_MS);
    fake_replay(&last);
    fake_advance_ms(5 * LEASE_MS);
    assert_int_equal(fake_holders("n"), 1);
    fake_server_down(false);
    fake_advance_ms(1500);
    assert_int_equal(fake_holders("n"), 0);
}

/* One that shortens the lease may have been executed: the earlier end applies as soon as it is sent, and a later,
 * longer one is not relied on while the shorter one may be in flight. */
TEST(an_unanswered_extension_counts_where_it_is_shorter) {
    struct actor *actor = actor_new();
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:?timeout=1s"), DLOCK_OWNER_THREAD, &lost);
    struct extend extend = {lock, 3000};
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(actor, extend_it, &extend);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_true(remaining_by(actor, lock) <= 2968 - 1000);
    fake_settle();
    fake_faults_clear();
    assert_int_equal(extend_by(actor, lock, 2 * LEASE_MS), 0);
    assert_int_equal(remaining_by(actor, lock), 2968);
    fake_advance_ms(2900);
    assert_int_equal(extend_by(actor, lock, 2900), 0);
    fake_advance_ms(2800);
    assert_int_equal(extend_by(actor, lock, 2900), 0);
    fake_advance_ms(2800);
    assert_int_equal(extend_by(actor, lock, 2900), 0);
    fake_advance_ms(2800); /* a lease after the unanswered one */
    assert_int_equal(extend_by(actor, lock, 2 * LEASE_MS), 0);
    assert_int_equal(remaining_by(actor, lock), 19798);
    assert_int_equal(lost.calls, 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* One that makes it shorter, and that no connection took to the server: the grant ends early, there as well. */
TEST(an_unsent_extension_leaves_nothing_behind) {
    struct actor *actor = actor_new(), *other = actor_new();
    dlock_client *client = client_new("fake:?timeout=1s&connections=1");
    dlock_lock *lock = fixed_lock(client, DLOCK_OWNER_THREAD, NULL);
    struct extend extend = {lock, 500};
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_CONNECT, FAKE_LOST_BEFORE, 1000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1); /* has the only connection */
    begin_acquire(other, lock_new(client, "m"), 1000);
    begin_call(actor, extend_it, &extend);
    assert_true(wait_for(actor, 1100) <= 1000 * 1000);
    assert_int_equal(result(actor), DLOCK_ELOST);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_slow_go();
    fake_faults_clear();
    fake_advance_ms(1000);
    assert_string_equal(fake_holder("n").token, "");
    over(other);
}

/* An acquire without an answer may be executed late, and sets its own lease then. */
TEST(a_late_acquire_may_make_it_shorter) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:"), DLOCK_OWNER_THREAD, NULL);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(actor, lock, 1000);
    wait_for(actor, 1000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(extend_by(actor, lock, 3 * LEASE_MS), 0);
    struct fake_command late;
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &late));
    fake_replay(&late);
    assert_true(remaining_by(actor, lock) <= fake_holder("n").left_ms);
    assert_int_equal(release_by(actor, lock), 0);
    fake_advance_ms(2 * LEASE_MS);
}

TEST(what_the_server_refuses_is_told_at_once) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:"), DLOCK_OWNER_THREAD, NULL);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_AUTH, 1);
    assert_int_equal(extend_by(actor, lock, LEASE_MS), DLOCK_EAUTH);
    assert_true(held_by(actor, lock));
    fake_fault(FAKE_RENEW, FAKE_PROTO, 1);
    assert_int_equal(extend_by(actor, lock, LEASE_MS), DLOCK_EPROTO);
    fake_advance_ms(1000);
    assert_int_equal(fake_calls(FAKE_RENEW), 2);
    assert_int_equal(extend_by(actor, lock, LEASE_MS), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

TEST(the_end_comes_during_an_extension) {
    struct actor *actor = actor_new();
    struct lost_count lost = {0};
    dlock_lock *lock = fixed_lock(client_new("fake:?timeout=60s"), DLOCK_OWNER_THREAD, &lost);
    struct extend extend = {lock, 3 * LEASE_MS};
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_ms(8000);
    fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 50);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 5000);
    begin_call(actor, extend_it, &extend);
    assert_true(wait_for(actor, 60000) <= 2000 * 1000);
    assert_int_equal(result(actor), DLOCK_ELOST);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    assert_int_equal(fake_entries(), 1);
    fake_slow_go();
    fake_advance_ms(3 * LEASE_MS / 2); /* longer than the old lease */
    fake_faults_clear();
    fake_advance_ms(1000);
    assert_int_equal(fake_entries(), 0);
}

/* The server has accepted, too late: it keeps the grant for the new lease. */
TEST(an_answer_after_the_end_leaves_nothing_behind) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:"), DLOCK_OWNER_THREAD, NULL);
    struct extend extend = {lock, 3 * LEASE_MS};
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_us(valid_us(LEASE_MS) - 5000);
    fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 1);
    fake_fault(FAKE_RELEASE, FAKE_LOST_BEFORE, 5000);
    begin_call(actor, extend_it, &extend);
    fake_advance_us(5000);
    assert_int_equal(result(actor), DLOCK_ELOST);
    fake_slow_go();
    fake_settle();
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    assert_int_equal(fake_entries(), 1);
    fake_advance_ms(2 * LEASE_MS); /* longer than the old lease */
    fake_faults_clear();
    fake_advance_ms(1000);
    assert_int_equal(fake_entries(), 0);
}

/* Nor does a longer one that the server executes after a shorter one. */
TEST(a_late_extension_leaves_nothing_behind) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock(client_new("fake:"), DLOCK_OWNER_THREAD, NULL);
    struct extend longer = {lock, 3 * LEASE_MS};
    struct fake_command late;
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    begin_call(actor, extend_it, &longer);
    wait_for(actor, 3000);
    assert_int_equal(result(actor), 0);
    assert_int_equal(extend_by(actor, lock, LEASE_MS), 0);
    assert_true(fake_nth(FAKE_RENEW, "n", 0, &late));
    fake_replay(&late);
    fake_advance_ms(LEASE_MS + 1000);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    assert_int_equal(fake_entries(), 0);
}

/* Another thread does something with the handle while its extension hangs. */
TEST(others_act_during_an_extension) {
    struct actor *actor = actor_new(), *other = actor_new();
    dlock_client *client = client_new("fakefull:?timeout=5s");
    dlock_lock *lock = fixed_lock(client, DLOCK_OWNER_HANDLE, NULL);
    struct extend extend = {lock, 2 * LEASE_MS}, second = {lock, 3 * LEASE_MS};
    assert_int_equal(acquire_by(actor, lock, 0), 0);

    fake_fault(FAKE_RENEW, FAKE_SLOW, 1); /* another extension: they take turns */
    begin_call(actor, extend_it, &extend);
    begin_call(other, extend_it, &second);
    fake_advance_ms(100);
    assert_false(over(actor) || over(other));
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(result(other), 0);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 2);
    assert_int_equal(remaining_by(actor, lock), 29698);

    fake_fault(FAKE_RENEW, FAKE_SLOW, 1); /* a downgrade: one renewal after the other */
    begin_call(actor, extend_it, &extend);
    begin_call(other, downgrade_it, lock);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_int_equal(result(other), 0);
    assert_true(remaining_by(actor, lock) > LEASE_MS);

    struct export export = {.lock = lock};
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1); /* an export: that one waits for the renewal */
    begin_call(actor, extend_it, &extend);
    begin_call(other, export_it, &export);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(other), 0);
    assert_false(held_by(actor, lock));
    assert_true(result(actor) == 0 || result(actor) == DLOCK_EOWNER);
    fake_advance_ms(3 * LEASE_MS);

    assert_int_equal(acquire_by(actor, lock, 0), 0); /* a release */
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(actor, extend_it, &extend);
    assert_int_equal(release_by(other, lock), 0);
    fake_settle();
    assert_int_equal(result(actor), DLOCK_EOWNER);
    fake_slow_go();
    fake_advance_ms(100);
    assert_int_equal(fake_entries(), 0);

    assert_int_equal(acquire_by(actor, lock, 0), 0); /* the end of the client */
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(actor, extend_it, &extend);
    begin_close(other, client);
    fake_slow_go();
    fake_settle();
    assert_true(result(actor) == DLOCK_ECANCELED || result(actor) == 0);
    assert_int_equal(result(other), 0);
    assert_int_equal(fake_entries(), 0);
}

/* Its handles share it: a count of two, and an end. */
TEST(a_counted_grant_has_one_lease) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:");
    dlock_lock *one = fixed_lock(client, DLOCK_OWNER_THREAD, NULL), *two = fixed_lock(client, DLOCK_OWNER_THREAD, NULL);
    assert_int_equal(acquire_by(actor, one, 0), 0);
    assert_int_equal(acquire_by(actor, two, 0), 0);
    assert_int_equal(extend_by(actor, two, 2 * LEASE_MS), 0);
    assert_int_equal(remaining_by(actor, one), 19798);
    assert_int_equal(release_by(actor, one), 0);
    assert_int_equal(remaining_by(actor, two), 19798);
    assert_int_equal(release_by(actor, two), 0);
    assert_int_equal(fake_entries(), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
