/* Grants that change hands between processes. */
#include "fixture.h"

struct export {
    dlock_lock *lock;
    char ticket[DLOCK_TICKET_MAX + 1];
    struct dlock_error err;
};

static int export_it(void *arg) {
    struct export *export = arg;
    return dlock_export(export->lock, export->ticket, sizeof export->ticket, &export->err);
}

struct import {
    dlock_client *client;
    const char *ticket;
    dlock_lock *lock;
};

static int import_it(void *arg) {
    struct import *import = arg;
    return dlock_import(import->client, import->ticket, NULL, &import->lock, NULL);
}

static int free_it(void *arg) {
    dlock_free(arg);
    return 0;
}

static void a_grant_changes_hands(void **state) {
    (void)state;
    struct actor *from = actor_new(), *to = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import import = {.client = client_new("fakefull:"), .ticket = export.ticket};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    uint64_t fence = fence_by(from, export.lock);
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), 0);
    assert_false(held_by(from, export.lock));
    assert_int_equal(release_by(from, export.lock), DLOCK_EOWNER);
    unsigned renewals = fake_claims(FAKE_RENEW, "n");
    fake_advance_ms(LEASE_MS / 2);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), renewals); /* nobody has it here */
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
static void an_imported_handle_has_its_name(void **state) {
    (void)state;
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

/* The importing client's own waiters stand in the server's queue, with a claim of theirs: the grant goes there. */
static void a_release_after_an_import_goes_to_the_queue(void **state) {
    (void)state;
    struct actor *from = actor_new(), *to = actor_new(), *first = actor_new(), *second = actor_new();
    dlock_client *client = client_new("fakefull:");
    dlock_lock *lock = lock_new(client, "n");
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct import import = {.client = client, .ticket = export.ticket};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    begin_acquire(first, lock, -1);
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), 0);
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

/* A handle may be released by any thread, also while another one exports it. */
static void a_release_ends_an_export(void **state) {
    (void)state;
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:"), "n", &options)};
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

static void a_failed_export_leaves_it_held(void **state) {
    (void)state;
    struct lost_count lost = {0};
    struct dlock_options options = {.size = sizeof options, .on_lost = count_lost, .on_lost_arg = &lost};
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:"), "n", &options)};
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
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), DLOCK_ELOST);
    assert_int_equal(lost.calls, 1);
    assert_int_equal(release_by(from, export.lock), DLOCK_ELOST);
}

static void an_export_waits_for_a_renewal(void **state) {
    (void)state;
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
    static const struct dlock_options handle = {.size = sizeof handle, .owner = DLOCK_OWNER_HANDLE};
    dlock_client *client = client_new("fakefull:");
    o->lock = lock_new_with(client, "n", &handle);
    o->next = lock_new_with(client, "n", &handle);
    o->caller = actor_new();
    o->other = actor_new();
    o->waiter = actor_new();
    assert_int_equal(acquire_by(o->caller, o->lock, 0), 0);
    begin_acquire(o->waiter, o->next, -1);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
}

/* Another thread releases it meanwhile, and the grant goes to the next one. */
static void overtake(struct overtaken *o) {
    assert_false(over(o->caller));
    assert_int_equal(release_by(o->other, o->lock), 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(o->waiter), 0);
    assert_int_equal(result(o->caller), DLOCK_EOWNER);
    assert_true(held_by(o->waiter, o->next));
}

static void an_export_leaves_alone_what_the_next_one_was_given(void **state) {
    (void)state;
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

static int downgrade_it(void *arg) {
    return dlock_downgrade(arg, NULL);
}

static void a_downgrade_leaves_alone_what_the_next_one_was_given(void **state) {
    (void)state;
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

/* Released while its downgrade hangs: a grant that is neither exclusive nor shared goes to nobody of this process. */
static void a_pending_downgrade_is_not_handed_over(void **state) {
    (void)state;
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

/* A waiter here gets a grant of its own after that of the ticket has ended. */
static void what_was_exported_is_not_handed_over(void **state) {
    (void)state;
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

/* The grant stays its owner's, and the owner is told of its loss, until the ticket is written. */
static void a_loss_during_an_export_is_told_in_time(void **state) {
    (void)state;
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
static void an_export_ends_in_its_time(void **state) {
    (void)state;
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
static void an_export_confirms_a_pending_downgrade(void **state) {
    (void)state;
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

/* While the export waits for the keeper: the grant is the caller's as before, with a reader's fence. */
static void a_downgrade_may_be_confirmed_before_an_export(void **state) {
    (void)state;
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

/* The fence has one byte for what happens to a grant outside of the server. */
static void a_grant_changes_hands_as_long_as_its_fence_can_grow(void **state) {
    (void)state;
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

static void a_damaged_ticket_is_no_ticket(void **state) {
    (void)state;
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "some name, with + and %")};
    struct import import = {.client = client_new("fakefull:")};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    begin_call(actor, export_it, &export);
    assert_int_equal(result(actor), 0);
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

/* The server handed it over, the waiter's question brought it, and it is somebody else's when the wake-up comes. */
static void a_late_wake_up_takes_nothing_back(void **state) {
    (void)state;
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    struct fake_grant other = taken("n");
    begin_acquire(from, export.lock, -1);
    fake_wakes_hold(true);
    fake_other_release(&other, "n");
    wait_for(from, 3000);
    assert_int_equal(result(from), 0);
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), 0);
    struct fake_grant exported = fake_holder("n");
    fake_wakes_hold(false);
    fake_settle();
    fake_advance_ms(LEASE_MS / 2);
    assert_string_equal(fake_holder("n").token, exported.token);
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    fake_advance_ms(LEASE_MS);
    assert_string_equal(fake_holder("n").token, "");
}

static int extend_it(void *arg) {
    return dlock_extend(arg, 1000, NULL);
}

/* Its acquire had no answer at first, and could come after the end of a shorter lease: as another grant. */
static void a_token_that_may_be_granted_anew_is_not_exported(void **state) {
    (void)state;
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
    begin_call(from, extend_it, export.lock);
    assert_int_equal(result(from), 0);
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
        begin_call(from, extend_it, export.lock);
        assert_int_equal(result(from), 0);
    }
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), 0);
    begin_call(from, import_it, &import);
    assert_int_equal(result(from), 0);
    begin_call(from, free_it, import.lock);
    assert_int_equal(fake_entries(), 0);
}

/* The lease that is set at the export outlasts whatever comes late. */
static void a_whole_lease_is_exported_at_once(void **state) {
    (void)state;
    struct actor *from = actor_new();
    struct export export = {.lock = lock_new(client_new("fakefull:"), "n")};
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 1);
    begin_acquire(from, export.lock, 1000);
    wait_for(from, 1000);
    assert_int_equal(result(from), 0);
    begin_call(from, export_it, &export);
    assert_int_equal(result(from), 0);
    fake_advance_ms(LEASE_MS + 1000);
}

/* What it sets is what counts, although its answer came when the keeper would have renewed the grant. */
static void so_is_one_that_began_some_time_ago(void **state) {
    (void)state;
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

int main(int argc, char **argv) {
    only(argc, argv);
    const struct CMUnitTest tests[] = {
        LOCK_TEST(a_grant_changes_hands),
        LOCK_TEST(an_imported_handle_has_its_name),
        LOCK_TEST(a_release_after_an_import_goes_to_the_queue),
        LOCK_TEST(a_release_ends_an_export),
        LOCK_TEST(a_failed_export_leaves_it_held),
        LOCK_TEST(an_export_waits_for_a_renewal),
        LOCK_TEST(an_export_leaves_alone_what_the_next_one_was_given),
        LOCK_TEST(a_downgrade_leaves_alone_what_the_next_one_was_given),
        LOCK_TEST(a_pending_downgrade_is_not_handed_over),
        LOCK_TEST(what_was_exported_is_not_handed_over),
        LOCK_TEST(a_loss_during_an_export_is_told_in_time),
        LOCK_TEST(an_export_ends_in_its_time),
        LOCK_TEST(an_export_confirms_a_pending_downgrade),
        LOCK_TEST(a_downgrade_may_be_confirmed_before_an_export),
        LOCK_TEST(a_grant_changes_hands_as_long_as_its_fence_can_grow),
        LOCK_TEST(a_damaged_ticket_is_no_ticket),
        LOCK_TEST(a_late_wake_up_takes_nothing_back),
        LOCK_TEST(a_token_that_may_be_granted_anew_is_not_exported),
        LOCK_TEST(a_whole_lease_is_exported_at_once),
        LOCK_TEST(so_is_one_that_began_some_time_ago),
    };
    return cmocka_run_group_tests_name("ticket", tests, NULL, NULL);
}
