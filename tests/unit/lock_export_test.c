/* Exports of grants that other threads use meanwhile, through the same handle. */
#include "fixture.h"

struct export {
    dlock_lock *lock;
    char ticket[DLOCK_TICKET_MAX + 1];
    dlock_lock *imported;
};

static int export_it(void *arg) {
    struct export *export = arg;
    return dlock_export(export->lock, export->ticket, sizeof export->ticket, NULL);
}

/* Into another client. */
static void import_it(struct export *export) {
    assert_int_equal(dlock_import(client_new("fakefull:"), export->ticket, NULL, &export->imported, NULL), 0);
}

static void import_end(struct export *export) {
    assert_int_equal(dlock_release(export->imported, NULL), 0);
    dlock_free(export->imported);
    assert_int_equal(fake_entries(), 0);
}

static int extend_it(void *arg) {
    return dlock_extend(arg, 6 * LEASE_MS, NULL);
}

static int downgrade_it(void *arg) {
    return dlock_downgrade(arg, NULL);
}

/* A fixed lease is not renewed for its export, but the renewal of another thread's extension may be on the way. */
static void an_export_waits_for_an_extension(void **state) {
    static const struct dlock_options fixed = {.size = sizeof fixed,
                                               .owner = DLOCK_OWNER_HANDLE,
                                               .flags = DLOCK_FIXED_LEASE};
    (void)state;
    struct actor *from = actor_new(), *other = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(from, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    begin_call(other, extend_it, export.lock);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_call(from, export_it, &export);
    assert_false(over(from));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    import_it(&export);
    assert_true(dlock_remaining_ms(export.imported) > 5 * LEASE_MS);
    import_end(&export);
}

static int shorten_it(void *arg) {
    return dlock_extend(arg, 3000, NULL);
}

/* It may be executed after the import, which counts on the ticket's lease. */
static void a_lease_that_may_become_shorter_is_not_exported(void **state) {
    static const struct dlock_options fixed = {.size = sizeof fixed,
                                               .owner = DLOCK_OWNER_HANDLE,
                                               .flags = DLOCK_FIXED_LEASE};
    (void)state;
    struct actor *actor = actor_new();
    struct export export = {.lock = lock_new_with(client_new("fakefull:?timeout=1s"), "n", &fixed)};
    assert_int_equal(acquire_by(actor, export.lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(actor, shorten_it, export.lock);
    wait_for(actor, 1100);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    fake_faults_clear();
    begin_call(actor, export_it, &export);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_true(held_by(actor, export.lock));
    begin_call(actor, extend_it, export.lock);
    assert_int_equal(result(actor), 0);
    begin_call(actor, export_it, &export);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    begin_call(actor, shorten_it, export.lock);
    assert_int_equal(result(actor), 0);
    begin_call(actor, export_it, &export); /* no longer than that one */
    assert_int_equal(result(actor), 0);
    import_it(&export);
    import_end(&export);
}

/* The server would take an importer for a writer, and so would other readers. */
static void a_fixed_lease_is_exported_after_its_downgrade(void **state) {
    static const struct dlock_options fixed = {.size = sizeof fixed,
                                               .owner = DLOCK_OWNER_HANDLE,
                                               .flags = DLOCK_FIXED_LEASE};
    (void)state;
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
        assert_false(over(from)); /* between two renewals, too */
        fake_advance_ms(10);
    }
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(from), 0);
    import_it(&export);
    assert_int_equal(dlock_fence(export.imported), fence + 2);
    import_end(&export);
}

/* Who acquired it meanwhile, through the same handle, is another owner. */
static void an_export_leaves_alone_what_was_acquired_anew(void **state) {
    (void)state;
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

static void a_close_ends_an_export(void **state) {
    (void)state;
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

int main(int argc, char **argv) {
    only(argc, argv);
    const struct CMUnitTest tests[] = {
        LOCK_TEST(an_export_waits_for_an_extension),
        LOCK_TEST(a_lease_that_may_become_shorter_is_not_exported),
        LOCK_TEST(a_fixed_lease_is_exported_after_its_downgrade),
        LOCK_TEST(an_export_leaves_alone_what_was_acquired_anew),
        LOCK_TEST(a_close_ends_an_export),
    };
    return cmocka_run_group_tests_name("exports", tests, NULL, NULL);
}
