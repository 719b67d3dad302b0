/* When its grants end, as a client tells its guardian: the process group is killed before the first of them does. */
#include "fixture.h"

#include "state/client.h"
#include "state/guard_table.h"

#include <stdlib.h>
#include <unistd.h>

/* A client with a table and no helper that reads it: nothing is killed here. */
static dlock_client *guarded_client(const char *uri) {
    dlock_client *client = client_new(uri);
    int fd = -1;
    client->guard = calloc(1, sizeof *client->guard);
    assert_non_null(client->guard);
    client->guard->table = dlock__guard_table_new(uri, NULL, &fd);
    assert_non_null(client->guard->table);
    client->guard->end = -1;
    client->guard->table->local = true;
    close(fd);
    return client;
}

static const struct dlock__guard_entry *entry_of(const dlock_client *client, const char *name) {
    const struct dlock__guard_table *table = client->guard->table;
    for (uint32_t i = 1; i <= atomic_load(&table->n_entries); i++) {
        const struct dlock__guard_entry *entry = dlock__guard_entry(table, i);
        if (atomic_load(&entry->used) && strcmp(entry->name, name) == 0) return entry;
    }
    fail_msg("the guardian would not release %s", name);
    return NULL;
}

static int64_t ends_us(const dlock_client *client, const char *name) {
    return atomic_load(&entry_of(client, name)->valid_until_us);
}

/* Another grant continues, and so does the work. */
TEST(a_release_without_answer_ends_no_work) {
    dlock_client *client = guarded_client("fake:?timeout=3s");
    dlock_lock *a = lock_new(client, "a"), *b = lock_new(client, "b");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, a, 0), 0);
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    assert_true(ends_us(client, "a") > dlock__now_us());
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1000);
    begin_release(actor, a);
    assert_int_equal(ends_us(client, "a"), 0);
    wait_for(actor, 100000);
    assert_int_equal(result(actor), DLOCK_EUNAVAILABLE);
    assert_int_equal(ends_us(client, "a"), 0); /* the engine has it now */
    fake_advance_ms(LEASE_MS);
    assert_true(ends_us(client, "b") > dlock__now_us());
    fake_faults_clear();
    fake_advance_ms(LEASE_MS);
    assert_int_equal(dlock_release(b, NULL), 0);
}

TEST(a_grant_that_nobody_holds_ends_no_work) {
    dlock_client *client = guarded_client("fakefull:?linger=2s");
    dlock_lock *lock = lock_new(client, "a");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(ends_us(client, "a"), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(ends_us(client, "a") > dlock__now_us());
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* The former holder has no more work of it, and the next one has none yet. */
TEST(a_hand_over_that_is_not_confirmed_ends_no_work) {
    dlock_client *client = guarded_client("fakefull:");
    dlock_lock *lock = lock_new(client, "a"), *same = lock_new(client, "a");
    struct actor *holder = actor_new(), *waiter = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    begin_acquire(waiter, same, 5 * LEASE_MS);
    fake_advance_ms(1000);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 50);
    begin_release(holder, lock);
    assert_false(over(waiter));
    assert_int_equal(ends_us(client, "a"), 0);
    fake_faults_clear();
    fake_slow_go();
    wait_for(waiter, LEASE_MS);
    assert_int_equal(result(waiter), 0);
    assert_true(ends_us(client, "a") > dlock__now_us());
}

TEST(a_grant_that_came_too_late_ends_no_work) {
    dlock_client *client = guarded_client("fake:?lease=1s");
    struct actor *actor = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    fake_fault(FAKE_ACQUIRE, FAKE_LOST_BEFORE, 50);
    begin_acquire(actor, lock_new(client, "a"), 2 * LEASE_MS);
    fake_advance_ms(1500);
    fake_slow_go();
    fake_settle();
    assert_false(over(actor));
    assert_int_equal(ends_us(client, "a"), 0);
    fake_faults_clear();
    wait_for(actor, LEASE_MS);
    assert_int_equal(result(actor), 0);
}

/* Its holder may work on until it is told, and then until it stops. */
TEST(a_grant_that_was_lost_has_ended) {
    dlock_client *client = guarded_client("fakefull:?lease=1s");
    dlock_lock *lock = lock_new(client, "a");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    fake_advance_ms(1100);
    assert_false(held_by(actor, lock));
    assert_in_range(ends_us(client, "a"), 1, dlock__now_us());
    fake_faults_clear();
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
}

/* ---- a group for one grant ---- */

/* A client whose helper would release its grants. No process has this group. */
static dlock_client *releasing_client(const char *uri) {
    dlock_client *client = guarded_client(uri);
    client->guard->table->local = false;
    return client;
}

static int group(void) {
    return getpgrp() + 1;
}

static int group_of(const dlock_client *client, const char *name) {
    return atomic_load(&entry_of(client, name)->group.number);
}

TEST(a_group_is_of_one_grant_until_its_last_release) {
    dlock_client *client = releasing_client("fake:");
    dlock_lock *a = lock_new(client, "a"), *b = lock_new(client, "b");
    assert_int_equal(dlock_guard(a, group(), NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    assert_int_equal(dlock_acquire(b, 0, NULL), 0);
    assert_int_equal(dlock_guard(a, group(), NULL), 0);
    assert_int_equal(group_of(client, "a"), group());
    assert_int_equal(group_of(client, "b"), 0);
    assert_int_equal(atomic_load(&client->guard->table->group.number), 0);
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    assert_int_equal(dlock_release(a, NULL), 0);
    assert_int_equal(group_of(client, "a"), group());
    assert_int_equal(dlock_release(a, NULL), 0);
    assert_int_equal(dlock_guard(a, 0, NULL), DLOCK_EOWNER);
    assert_int_equal(dlock_acquire(a, 0, NULL), 0);
    assert_int_equal(group_of(client, "a"), 0);
    assert_int_equal(dlock_release_all((dlock_lock *[]){a, b}, 2, NULL), 0);
}

TEST(the_group_of_one_grant_is_withdrawn_from_all) {
    dlock_client *client = releasing_client("fake:");
    dlock_lock *lock = lock_new(client, "a");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_guard(lock, group(), NULL), 0);
    assert_int_equal(dlock_guard(lock, 0, NULL), 0);
    assert_int_equal(group_of(client, "a"), DLOCK__GUARD_NO_GROUP);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* The next holder's work is not that of the former one's group. */
TEST(a_hand_over_leaves_the_group_behind) {
    dlock_client *client = releasing_client("fakefull:");
    dlock_lock *lock = lock_new(client, "a"), *same = lock_new(client, "a");
    struct actor *waiter = actor_new();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_guard(lock, group(), NULL), 0);
    begin_acquire(waiter, same, LEASE_MS);
    assert_int_equal(dlock_release(lock, NULL), 0);
    wait_for(waiter, LEASE_MS);
    assert_int_equal(result(waiter), 0);
    assert_int_equal(group_of(client, "a"), 0);
    assert_true(ends_us(client, "a") > dlock__now_us());
    assert_int_equal(release_by(waiter, same), 0);
}

/* What the helper does is played: it has killed the group. */
TEST(a_lost_grant_takes_no_group_and_tells_that_it_was_killed) {
    dlock_client *client = releasing_client("fakefull:?lease=1s");
    dlock_lock *lock = lock_new(client, "a");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_guard(lock, group(), NULL), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    fake_advance_ms(1100);
    fake_faults_clear();
    assert_int_equal(group_of(client, "a"), group());
    assert_int_equal(dlock_guard(lock, group(), NULL), DLOCK_ELOST);
    atomic_store(&dlock__guard_entry(client->guard->table, 1)->group.killed, group());
    assert_int_equal(dlock_guard(lock, 0, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

TEST(without_a_guardian_no_group_is_registered) {
    dlock_client *client = client_new("fake:");
    assert_int_equal(dlock_client_guard(client, 0, NULL), DLOCK_ENOTSUP);
    assert_int_equal(dlock_client_guard(client, getpgrp() + 1, NULL), DLOCK_ENOTSUP);
    assert_int_equal(dlock_guard(lock_new(client, "a"), getpgrp() + 1, NULL), DLOCK_ENOTSUP);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
