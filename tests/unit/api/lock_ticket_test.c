/* Grants that change hands between processes. */
#include "fixture.h"

TEST(a_grant_changes_hands) {
    struct actor *from = actor_new(), *to = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import import = {.client = client_new("fakefull:"), .ticket = export.ticket};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    uint64_t fence = fence_by(from, export.lock);
    assert_int_equal(export_by(from, &export), 0);
    assert_false(held_by(from, export.lock));
    assert_int_equal(release_by(from, export.lock), DLOCK_EOWNER);
    unsigned renewals = fake_claims(FAKE_RENEW, "n");
    fake_advance_ms(LEASE_MS / 2);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), renewals); /* no local handle has it */
    begin_call(to, import_it, &import);
    assert_int_equal(result(to), 0);
    assert_true(held_by(to, import.lock));
    assert_true(fence_by(to, import.lock) > fence);
    assert_int_equal(fence_by(to, import.lock) >> 8, fence >> 8);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(to, import.lock));
    assert_int_equal(release_by(to, import.lock), 0);
    begin_call(to, free_it, import.lock);
    assert_int_equal(fake_entries(), 0);
}

/* The application knows a lock by its name without the prefix; the ticket has both. */
TEST(an_imported_handle_has_its_name) {
    const char *uri = "fakefull:?prefix=app%3A";
    struct export export = {.lock = lock_new(client_new(uri), "n %+")};
    struct import import = {.client = client_new(uri), .ticket = export.ticket};
    assert_int_equal(dlock_acquire(export.lock, 0, NULL), 0);
    assert_int_equal(export_it(&export), 0);
    assert_int_equal(import_it(&import), 0);
    assert_string_equal(dlock_name(import.lock), "n %+");
    assert_int_equal(dlock_release(import.lock, NULL), 0);
    assert_string_equal(dlock_name(import.lock), "n %+");
    dlock_free(import.lock);
}

/* The importing client's own waiters are in the server's queue, with a separate claim: the grant goes there. */
TEST(a_release_after_an_import_goes_to_the_queue) {
    struct actor *from = actor_new(), *to = actor_new(), *first = actor_new(), *second = actor_new();
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = lock_new(client, "n");
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import import = {.client = client, .ticket = export.ticket};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    begin_acquire(first, lock, -1);
    assert_int_equal(export_by(from, &export), 0);
    begin_call(to, import_it, &import);
    assert_int_equal(result(to), 0);
    assert_int_equal(fake_waiters("n"), 1);
    assert_int_equal(release_by(to, import.lock), 0);
    fake_settle();
    assert_int_equal(result(first), 0);
    assert_true(fence_by(first, lock) >> 8 > 0);
    assert_int_equal(fake_holders("n"), 1);
    assert_int_equal(fake_waiters("n"), 0);
    begin_acquire(second, lock, -1);
    assert_int_equal(release_by(first, lock), 0);
    fake_settle();
    assert_int_equal(result(second), 0);
    assert_int_equal(release_by(second, lock), 0);
    begin_call(to, free_it, import.lock);
    assert_int_equal(fake_entries(), 0);
}

/* The fence has one byte for what happens to a grant outside of the server. */
TEST(a_grant_changes_hands_as_long_as_its_fence_can_grow) {
    dlock_client *clients[2] = {client_new("fakefull:"), client_new("fakefull:")};
    struct export export = {.lock = NULL};
    dlock_lock *lock = lock_new(clients[0], "n");
    lock_forget(lock);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock), first = fence;
    for (int i = 1; i <= 255; i++) {
        struct import import = {.client = clients[i % 2], .ticket = export.ticket};
        export.lock = lock;
        assert_int_equal(export_it(&export), 0);
        dlock_free(lock);
        assert_int_equal(import_it(&import), 0);
        lock = import.lock;
        assert_true(dlock_fence(lock) > fence);
        fence = dlock_fence(lock);
    }
    assert_int_equal(fence - first, 255);
    export.lock = lock;
    assert_int_equal(export_it(&export), DLOCK_EINVAL);
    assert_non_null(strstr(export.err.message, "acquire it anew"));
    struct dlock_error err;
    assert_int_equal(dlock_downgrade(lock, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "acquire it anew"));
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_fence(lock) > fence);
    dlock_free(lock);
}

TEST(a_damaged_ticket_is_no_ticket) {
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "some name, with + and %")};
    struct import import = {.client = client_new("fakefull:")};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    assert_int_equal(export_by(actor, &export), 0);
    char bad[sizeof export.ticket];
    size_t n = strlen(export.ticket);
    assert_true(strspn(export.ticket, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                                      "abcdefghijklmnopqrstuvwxyz{|}~") == n);
    import.ticket = bad;
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, export.ticket, sizeof bad);
        bad[i] = bad[i] == '1' ? '2' : '1';
        assert_int_equal(import_it(&import), DLOCK_EINVAL);
        bad[i] = '\0';
        assert_int_equal(import_it(&import), DLOCK_EINVAL);
    }
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    fake_advance_ms(LEASE_MS + 1000);
    import.ticket = export.ticket;
    assert_int_equal(import_it(&import), DLOCK_ELOST);
}

/* The server handed it over, the waiter's request returned it, and by the wake-up it belongs to another client. */
TEST(a_late_wake_up_takes_nothing_back) {
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct fake_grant other = taken("n");
    begin_acquire(from, export.lock, -1);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    wait_for(from, 3000);
    assert_int_equal(result(from), 0);
    assert_int_equal(export_by(from, &export), 0);
    struct fake_grant exported = fake_holder("n");
    fake_wakes_hold(false);
    fake_settle();
    fake_advance_ms(LEASE_MS / 2);
    assert_string_equal(fake_holder("n").token, exported.token);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    fake_advance_ms(LEASE_MS);
    assert_string_equal(fake_holder("n").token, "");
}

/* A client is one holder: a second import of what it has would release the grant under the first one. */
TEST(a_client_imports_a_grant_once) {
    dlock_client *client = client_new("fakefull:");
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import first = {.client = client, .ticket = export.ticket}, second = first;
    assert_int_equal(dlock_acquire(export.lock, 0, NULL), 0);
    assert_int_equal(export_it(&export), 0);
    assert_int_equal(import_it(&first), 0);
    assert_int_equal(import_it(&second), DLOCK_EINVAL);
    assert_true(dlock_held(first.lock));
    assert_int_equal(fake_holders("n"), 1);
    assert_int_equal(dlock_release(first.lock, NULL), 0);
    dlock_free(first.lock);
}

/* Its acquire had no answer at first, and could come after the end of a shorter lease: as another grant. */
TEST(a_token_that_may_be_granted_anew_is_not_exported) {
    struct dlock_options fixed = {.size = sizeof fixed, .flags = DLOCK_FIXED_LEASE};
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:"), "n", &fixed)};
    struct import import = {.client = client_new("fakefull:"), .ticket = export.ticket};
    struct fake_command late;
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(from, export.lock, 1000);
    wait_for(from, 1000);
    assert_int_equal(result(from), 0);
    assert_true(fake_nth(FAKE_ACQUIRE, "n", 0, &late));
    assert_int_equal(extend_by(from, export.lock, 1000), 0);
    begin_call(from, export_it, &export);
    if (result(from) == 0) { /* then its fence is the one of the grant that it gets now */
        fake_advance_ms(2000);
        struct fake_grant other = taken("n");
        fake_other_release(&other, "n");
        fake_replay(&late);
        begin_call(from, import_it, &import);
        assert_true(result(from) == DLOCK_ELOST || fence_by(from, import.lock) >> 8 == fake_holder("n").fence);
    }
    assert_int_equal(export.err.code, DLOCK_EUNAVAILABLE);
    assert_true(held_by(from, export.lock));
    for (int i = 0; i < 12; i++) {
        fake_advance_ms(900);
        assert_int_equal(extend_by(from, export.lock, 1000), 0);
    }
    assert_int_equal(export_by(from, &export), 0);
    begin_call(from, import_it, &import);
    assert_int_equal(result(from), 0);
    begin_call(from, free_it, import.lock);
    assert_int_equal(fake_entries(), 0);
}

/* The lease that is set at the export outlasts whatever comes late. */
TEST(a_whole_lease_is_exported_at_once) {
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(from, export.lock, 1000);
    wait_for(from, 1000);
    assert_int_equal(result(from), 0);
    assert_int_equal(export_by(from, &export), 0);
    fake_advance_ms(LEASE_MS + 1000);
}

/* The lease that it sets applies, although its answer came when the keeper would have renewed the grant. */
TEST(so_is_one_that_began_some_time_ago) {
    struct lost_count lost = {0};
    struct actor *from = actor_new();
    struct export export = {.lock = watched_lock(client_new("fakefull:"), "n", &lost)};
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(from, export.lock, 1000);
    wait_for(from, 1000);
    assert_int_equal(result(from), 0);
    fake_advance_ms(3000);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(from, export_it, &export);
    fake_advance_ms(500);
    assert_int_equal(fake_slow_waiting(), 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    assert_int_equal(lost.calls, 0);
    fake_advance_ms(LEASE_MS + 1000);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
