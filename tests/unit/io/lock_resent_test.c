/* Requests that were sent twice and answered once, by a backend that says so, or by the core: the first one may reach
 * the server later than the second. */
#include "fixture.h"

static void resent(struct dlock_claim *claim) {
    claim->hints |= DLOCK_HINT_RESENT;
}

static dlock_lock *fixed_lock(const char *uri) {
    struct dlock_options options = {.size = sizeof options, .flags = DLOCK_FIXED_LEASE};
    return lock_new_with(client_new(uri), "n", &options);
}

/* The first acquire comes after the release. */
TEST(a_late_acquire_is_given_back) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    struct fake_command first;
    fake_edit(FAKE_ACQUIRE, resent, 1);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &first));
    assert_int_equal(release_by(actor, lock), 0);
    fake_replay(&first);
    assert_string_equal(fake_holder("n").token, first.token);
    fake_advance_ms(LEASE_MS / 2);
    assert_string_equal(fake_holder("n").token, "");
    fake_advance_ms(2 * LEASE_MS);
    const unsigned releases = fake_calls(FAKE_RELEASE);
    fake_advance_ms(2 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RELEASE), releases);
}

/* Without that hint one release is all. */
TEST(others_are_released_once) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
}

/* Of a fixed lease, until one lease of the lock has passed. */
TEST(a_late_renewal_may_make_it_shorter) {
    struct actor *actor = actor_new();
    dlock_lock *lock = fixed_lock("fake:");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_edit(FAKE_RENEW, resent, 1);
    assert_int_equal(extend_by(actor, lock, LEASE_MS / 2), 0);
    assert_int_equal(extend_by(actor, lock, 3 * LEASE_MS), 0);
    assert_true(remaining_by(actor, lock) <= LEASE_MS / 2);
    assert_true(held_by(actor, lock));
    for (int i = 0; i < 3; i++) {
        fake_advance_ms(LEASE_MS * 2 / 5);
        assert_int_equal(extend_by(actor, lock, 3 * LEASE_MS), 0);
    }
    assert_true(remaining_by(actor, lock) > 2 * LEASE_MS);
    assert_int_equal(release_by(actor, lock), 0);
}

/* So may the renewal of an import, which the core repeats itself if its connection breaks. */
TEST(so_may_the_renewal_of_an_import) {
    static const struct dlock_options options = {.size = sizeof options, .flags = DLOCK_FIXED_LEASE};
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import import = {.client = client_new("fakefull:"), .ticket = export.ticket, .options = &options};
    dlock_lock *other = lock_new(import.client, "m");
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    begin_call(actor, export_it, &export);
    assert_int_equal(result(actor), 0);
    assert_int_equal(acquire_by(actor, other, 0), 0); /* also over a connection that the import uses */
    const unsigned renewals = fake_claims(FAKE_RENEW, "n");
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    begin_call(actor, import_it, &import);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), renewals + 2);
    assert_int_equal(extend_by(actor, import.lock, 3 * LEASE_MS), 0);
    assert_true(remaining_by(actor, import.lock) <= LEASE_MS);
    assert_int_equal(release_by(actor, import.lock), 0);
    begin_call(actor, free_it, import.lock);
    assert_int_equal(result(actor), 0);
    assert_int_equal(release_by(actor, other), 0);
}

/* The importer would take what a late acquire is granted for this grant. */
TEST(it_is_not_exported_for_less_than_the_late_acquire_may_take) {
    struct actor *actor = actor_new();
    struct export export = {.lock = fixed_lock("fakefull:")};
    fake_edit(FAKE_ACQUIRE, resent, 1);
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    assert_int_equal(extend_by(actor, export.lock, LEASE_MS / 2), 0);
    begin_call(actor, export_it, &export);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_int_equal(release_by(actor, export.lock), 0);
}

static void forgotten(struct dlock_claim *claim) {
    claim->result = DLOCK_ELOST;
}

static void forgotten_at_last(struct dlock_claim *claim) {
    claim->result = DLOCK_ELOST;
    claim->hints = DLOCK_HINT_RESENT;
}

/* The first release may have ended the grant, so the second one reports no loss. */
TEST(not_found_after_another_release_is_success) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    fake_edit(FAKE_RELEASE, forgotten, 1);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    fake_edit(FAKE_RELEASE, forgotten_at_last, 1);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
}

/* The second one could end the grant of the next holder. A connection that has died unnoticed costs no break. */
TEST(a_break_without_an_answer_is_not_sent_again) {
    struct dlock_error err;
    dlock_client *client = client_new("fake:");
    fake_other_acquire("n", 3600000);
    fake_fault(FAKE_INSPECT, FAKE_LOST_BEFORE, 1);
    assert_int_equal(dlock_break(client, "n", &err), 0);
    assert_int_equal(fake_calls(FAKE_BREAK), 1);
    fake_other_acquire("n", 3600000);
    fake_fault(FAKE_BREAK, FAKE_LOST_BEFORE, 1);
    assert_int_equal(dlock_break(client, "n", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "may have been broken"));
    assert_int_equal(fake_calls(FAKE_BREAK), 2);
    assert_int_equal(dlock_break(client, "n", &err), 0);
    assert_int_equal(dlock_break(client, "n", &err), DLOCK_EOWNER);
}

/* The user may have no right to look, or the process no descriptor for it. */
TEST(a_break_does_not_need_the_question) {
    struct dlock_error err = {0, ""};
    dlock_client *client = client_new("fake:");
    fake_other_acquire("n", 3600000);
    fake_return(FAKE_INSPECT, DLOCK_EAUTH, 1);
    assert_int_equal(dlock_break(client, "n", &err), 0);
    assert_int_equal(err.code, 0);
    assert_int_equal(fake_calls(FAKE_BREAK), 1);
}

static int break_it(void *client) {
    return dlock_break(client, "n", NULL);
}

/* The question before it and the break have one `timeout` together. */
TEST(a_break_ends_with_the_timeout_of_the_uri) {
    dlock_client *client = client_new("fake:?timeout=2s");
    struct actor *actor = actor_new();
    fake_fault(FAKE_INSPECT, FAKE_SLOW, 1);
    fake_fault(FAKE_BREAK, FAKE_SLOW, 1);
    begin_call(actor, break_it, client);
    fake_advance_ms(1500);
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_calls(FAKE_BREAK), 1);
    assert_true(wait_for(actor, 10000) <= 600000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
