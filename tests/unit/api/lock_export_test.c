/* Exports of grants that other threads use at the same time, through the same handle. */
#include "fixture.h"

static const struct dlock_options fixed = {.size = sizeof fixed,
                                           .owner = DLOCK_OWNER_HANDLE,
                                           .flags = DLOCK_FIXED_LEASE};

/* Into another client. */
static dlock_lock *import(const struct export *export) {
    struct import import = {.client = client_new("fakefull:"), .ticket = export->ticket};
    assert_int_equal(import_it(&import), 0);
    return import.lock;
}

static void import_end(dlock_lock *imported) {
    assert_int_equal(dlock_release(imported, NULL), 0);
    dlock_free(imported);
    assert_int_equal(fake_entries(), 0);
}

/* A handle may be released by any thread, also while another one exports it. */
TEST(a_release_ends_an_export) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:"), "n", &by_handle)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    assert_int_equal(release_by(other, export.lock), 0);
    assert_int_equal(result(from), DLOCK_EOWNER);
    fake_slow_go();
    fake_settle();
    assert_int_equal(fake_entries(), 0);
}

TEST(a_failed_export_leaves_it_held) {
    struct lost_count lost = {0};
    struct actor *from = actor_new();
    struct export export = {.lock = watched_lock(client_new("fakefull:"), "n", &lost)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    begin_call(from, export_it, &export);
    wait_for(from, 3100);
    assert_int_equal(result(from), DLOCK_EUNAVAILABLE);
    assert_true(held_by(from, export.lock));
    fake_faults_clear();
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(from, export.lock));
    assert_int_equal(lost.calls, 0);
    fake_server_break("n");
    assert_int_equal(export_by(from, &export), DLOCK_ELOST);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(release_by(from, export.lock), DLOCK_ELOST);
}

TEST(an_export_waits_for_a_renewal) {
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 2);
    fake_advance_ms(LEASE_MS + 1000);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), 2);
}

/* Thread-less owners: `lock` is held through its handle, `next` waits for it, and a renewal hangs. */
struct overtaken {
    dlock_lock *lock, *next;
    struct actor *caller, *other, *waiter;
};

static void overtaken_begin(struct overtaken *o) {
    dlock_client *client = client_new("fakefull:");
    o->lock = lock_new_with(client, "n", &by_handle);
    o->next = lock_new_with(client, "n", &by_handle);
    o->caller = actor_new();
    o->other = actor_new();
    o->waiter = actor_new();
    assert_int_equal(acquire_by(o->caller, o->lock, 0), 0);
    begin_acquire(o->waiter, o->next, -1);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
}

/* Another thread releases it first, and the next waiter gets the grant. */
static void overtake(struct overtaken *o) {
    assert_false(over(o->caller));
    assert_int_equal(release_by(o->other, o->lock), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(o->waiter), 0);
    assert_int_equal(result(o->caller), DLOCK_EOWNER);
    assert_true(held_by(o->waiter, o->next));
}

TEST(an_export_leaves_alone_what_the_next_one_was_given) {
    struct overtaken o;
    overtaken_begin(&o);
    struct export export = {.lock = o.lock};
    begin_call(o.caller, export_it, &export);
    overtake(&o);
    assert_int_equal(export.err.code, DLOCK_EOWNER);
    fake_advance_ms(2 * LEASE_MS);
    assert_true(held_by(o.waiter, o.next));
    assert_int_equal(release_by(o.waiter, o.next), 0);
}

TEST(a_downgrade_leaves_alone_what_the_next_one_was_given) {
    struct overtaken o;
    overtaken_begin(&o);
    struct dlock_options reader = {.size = sizeof reader, .mode = DLOCK_SHARED};
    begin_call(o.caller, downgrade_it, o.lock);
    overtake(&o);
    assert_int_equal(acquire_by(o.other, lock_new_with(client_new("fakefull:"), "n", &reader), 0), DLOCK_EBUSY);
    begin_call(o.caller, downgrade_it, o.next); /* it is still exclusive */
    assert_int_equal(result(o.caller), 0);
    assert_int_equal(release_by(o.waiter, o.next), 0);
}

/* Released while its downgrade hangs: a grant that is neither exclusive nor shared is not handed over in the
 * process. */
TEST(a_pending_downgrade_is_not_handed_over) {
    struct overtaken o;
    overtaken_begin(&o);
    fake_slow_go();
    fake_settle();
    uint64_t fence = fence_by(o.caller, o.lock);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(o.caller, downgrade_it, o.lock);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(release_by(o.other, o.lock), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(o.caller), DLOCK_EOWNER);
    wait_for(o.waiter, 1000);
    assert_int_equal(result(o.waiter), 0);
    assert_true(fence_by(o.waiter, o.next) >> 8 > fence >> 8);
    assert_int_equal(fake_grants("n"), 2);
    begin_call(o.waiter, downgrade_it, o.next); /* it is exclusive */
    assert_int_equal(result(o.waiter), 0);
    assert_int_equal(release_by(o.waiter, o.next), 0);
}

/* A local waiter gets a new grant after that of the ticket has ended. */
TEST(what_was_exported_is_not_handed_over) {
    struct overtaken o;
    overtaken_begin(&o);
    struct export export = {.lock = o.lock};
    begin_call(o.caller, export_it, &export);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(o.caller), 0);
    assert_int_equal(release_by(o.other, o.lock), DLOCK_EOWNER);
    assert_false(over(o.waiter));
    fake_advance_ms(LEASE_MS + 1000);
    assert_int_equal(result(o.waiter), 0);
    assert_int_equal(fake_grants("n"), 2);
    assert_int_equal(release_by(o.waiter, o.next), 0);
}

/* The grant stays its owner's, and the owner learns of its loss, until the ticket is written. */
TEST(a_loss_during_an_export_is_told_in_time) {
    struct lost_count lost = {0};
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE, .on_lost = count_lost};
    options.on_lost_arg = &lost;
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?lease=1s&timeout=3s"), "n", &options)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 50);
    fake_advance_ms(200);
    begin_call(from, export_it, &export);
    fake_advance_ms(787); /* 988 ms of the lease are its holder's */
    assert_int_equal(lost.calls, 0);
    fake_advance_ms(1);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(result(from), DLOCK_ELOST);
    fake_faults_clear();
    fake_slow_go();
    assert_int_equal(release_by(from, export.lock), DLOCK_ELOST);
}

/* Also if a renewal was on the way before. */
TEST(an_export_ends_in_its_time) {
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:?lease=30s&timeout=1s"), "n")};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 50);
    while (fake_slow_waiting() == 0) fake_advance_ms(100);
    begin_call(from, export_it, &export);
    assert_true(wait_for(from, 3000) <= 1000 * 1000);
    assert_int_equal(result(from), DLOCK_EUNAVAILABLE);
    assert_true(held_by(from, export.lock));
    fake_faults_clear();
    fake_slow_go();
    assert_int_equal(release_by(from, export.lock), 0);
}

/* The export's renewal says what the downgrade's would have said. */
TEST(an_export_confirms_a_pending_downgrade) {
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:?timeout=1s"), "n")};
    struct import import = {.client = client_new("fakefull:"), .ticket = export.ticket};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    uint64_t fence = fence_by(actor, export.lock);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    begin_call(actor, downgrade_it, export.lock);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    begin_call(actor, export_it, &export);
    wait_for(actor, 2100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_true(held_by(actor, export.lock));
    assert_int_equal(fence_by(actor, export.lock), fence); /* not a reader's yet */
    fake_faults_clear();
    begin_call(actor, export_it, &export);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), 0);
    begin_call(actor, import_it, &import);
    assert_int_equal(result(actor), 0);
    assert_int_equal(fence_by(actor, import.lock), fence + 2);
    begin_call(actor, downgrade_it, import.lock);
    assert_int_equal(result(actor), DLOCK_EINVAL);
    begin_call(actor, free_it, import.lock);
    assert_int_equal(fake_entries(), 0);
}

/* While the export waits for the keeper, the caller still has the grant, with a reader's fence. */
TEST(a_downgrade_may_be_confirmed_before_an_export) {
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:?timeout=1s"), "n")};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1000);
    begin_call(actor, downgrade_it, export.lock);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    for (int i = 0; i < 20 && fake_slow_waiting() == 0; i++) fake_advance_ms(100);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_call(actor, export_it, &export);
    assert_false(over(actor));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    fake_advance_ms(LEASE_MS + 1000);
}

/* A fixed lease is not renewed for its export, but the renewal of another thread's extension may be on the way. */
TEST(an_export_waits_for_an_extension) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    struct extend longer = {export.lock, 6 * LEASE_MS};
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(other, extend_it, &longer);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    dlock_lock *imported = import(&export);
    assert_true(dlock_remaining_ms(imported) > 5 * LEASE_MS);
    import_end(imported);
}

/* It may be executed after the import, which counts on the ticket's lease. */
TEST(a_lease_that_may_become_shorter_is_not_exported) {
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    struct extend shorter = {export.lock, 3000};
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(actor, extend_it, &shorter);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    assert_int_equal(export_by(actor, &export), DLOCK_EUNAVAILABLE);
    assert_true(held_by(actor, export.lock));
    assert_int_equal(extend_by(actor, export.lock, 6 * LEASE_MS), 0);
    assert_int_equal(export_by(actor, &export), DLOCK_EUNAVAILABLE);
    assert_int_equal(extend_by(actor, export.lock, 3000), 0);
    assert_int_equal(export_by(actor, &export), 0); /* no longer than that one */
    import_end(import(&export));
}

/* The server would take an importer for a writer, and so would other readers. */
TEST(a_fixed_lease_is_exported_after_its_downgrade) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:"), "n", &fixed)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    uint64_t fence = fence_by(from, export.lock);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(other, downgrade_it, export.lock);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    for (int i = 0; i < 20 && fake_slow_waiting() == 0; i++) {
        assert_false(over(from)); /* also between two renewals */
        fake_advance_ms(10);
    }
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    dlock_lock *imported = import(&export);
    assert_int_equal(dlock_fence(imported), fence + 2);
    import_end(imported);
}

TEST(a_fixed_lease_whose_downgrade_is_not_answered_is_not_exported) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 1);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1000); /* on its way at the deadline of the export */
    begin_call(other, downgrade_it, export.lock);
    begin_call(from, export_it, &export);
    assert_true(wait_for(from, 3000) <= 1100 * 1000);
    assert_int_equal(result(from), DLOCK_EUNAVAILABLE);
    assert_true(held_by(from, export.lock));
    fake_faults_clear();
    fake_slow_go();
    wait_for(other, 1000);
    assert_int_equal(release_by(from, export.lock), 0);
}

/* Nor one whose downgrade was not even sent, and is tried again later. */
TEST(a_fixed_lease_whose_downgrade_is_not_sent_is_not_exported) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1000);
    begin_call(other, downgrade_it, export.lock);
    fake_advance_ms(10); /* its first try ends so long before the export */
    begin_call(from, export_it, &export);
    assert_int_equal(wait_for(from, 3000), 1000 * 1000);
    assert_int_equal(fake_slow_waiting(), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(result(from), DLOCK_EUNAVAILABLE);
    assert_true(held_by(from, export.lock));
    fake_faults_clear();
    wait_for(other, 1000);
    assert_int_equal(release_by(from, export.lock), 0);
}

/* Nor one with an extension on its way, which could make the lease shorter. */
TEST(a_fixed_lease_is_not_exported_past_an_extension) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    struct extend usual = {export.lock, LEASE_MS}, shorter = {export.lock, 3000};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 2);
    begin_call(other, extend_it, &usual);
    begin_call(from, export_it, &export);
    actor_park(from); /* until its deadline is over */
    fake_advance_ms(500);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(other), 0);
    begin_call(other, extend_it, &shorter);
    fake_advance_ms(600);
    assert_int_equal(fake_slow_waiting(), 1);
    actor_unpark();
    fake_settle();
    assert_int_equal(result(from), DLOCK_EUNAVAILABLE);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(other), 0);
    assert_int_equal(release_by(from, export.lock), 0);
}

/* A thread that has acquired it since, through the same handle, is another owner. */
TEST(an_export_leaves_alone_what_was_acquired_anew) {
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?linger=2s"), "n", &by_handle)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(from, export_it, &export);
    assert_int_equal(fake_slow_waiting(), 1);
    assert_int_equal(release_by(other, export.lock), 0);
    assert_int_equal(acquire_by(other, export.lock, 0), 0);
    assert_int_equal(fake_grants("n"), 1);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), DLOCK_EOWNER);
    assert_true(held_by(other, export.lock));
    assert_int_equal(release_by(other, export.lock), 0);
}

TEST(a_close_ends_an_export) {
    struct actor *from = actor_new(), *other = actor_new();
    dlock_client *client = client_new("fakefull:");
    struct export export = {.lock = lock_new_with(client, "n", &by_handle)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    client_forget(client);
    begin_close(other, client);
    assert_int_equal(result(from), DLOCK_ECANCELED);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(other), 0);
    assert_int_equal(fake_entries(), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
