/* Readers, permits, and writers that become readers. */
#include "fixture.h"

static const struct dlock_options reader = {.size = sizeof reader, .mode = DLOCK_SHARED};
static const struct dlock_options two_permits = {.size = sizeof two_permits, .mode = DLOCK_PERMIT, .limit = 2};

static int downgrade(void *arg) {
    return dlock_downgrade(arg, NULL);
}

TEST(readers_share_and_writers_wait) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *read = lock_new_with(client, "n", &reader), *write = lock_new(client, "n");
    struct actor *one = actor_new(), *two = actor_new(), *writer = actor_new(), *late = actor_new();
    assert_int_equal(acquire_by(one, read, 0), 0);
    assert_int_equal(acquire_by(two, read, 0), 0);
    assert_int_equal(fake_holders("n"), 2);
    assert_int_not_equal(fence_by(one, read), fence_by(two, read));
    assert_int_equal(acquire_by(writer, write, 0), DLOCK_EBUSY);
    begin_acquire(writer, write, -1);
    assert_false(over(writer));
    begin_acquire(late, read, -1); /* behind the writer */
    assert_false(over(late));
    assert_int_equal(acquire_by(one, read, 0), 0); /* but again is for nothing */
    assert_int_equal(acquire_by(one, write, 0), DLOCK_EDEADLK);
    assert_int_equal(release_by(one, read), 0);
    assert_int_equal(release_by(one, read), 0);
    assert_false(over(writer));
    assert_int_equal(release_by(two, read), 0);
    fake_settle();
    assert_int_equal(result(writer), 0);
    assert_false(over(late));
    assert_int_equal(release_by(writer, write), 0);
    fake_settle();
    assert_int_equal(result(late), 0);
    assert_int_equal(release_by(late, read), 0);
}

/* One renewal for all of them, and the loss of one is only its own. */
TEST(readers_are_renewed_together_and_lost_alone) {
    enum { N = 5 };
    struct lost_count lost = {0};
    struct dlock_options options = reader;
    options.on_lost = count_lost;
    options.on_lost_arg = &lost;
    dlock_lock *read = lock_new_with(client_new("fakefull:"), "n", &options);
    struct actor *actors[N];
    for (int i = 0; i < N; i++) assert_int_equal(acquire_by(actors[i] = actor_new(), read, 0), 0);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_int_equal(fake_claims(FAKE_RENEW, "n"), N);
    struct fake_grant first = fake_holder("n");
    fake_other_release(&first, "n");
    fake_advance_ms(LEASE_MS);
    int held = 0;
    for (int i = 0; i < N; i++) held += held_by(actors[i], read);
    assert_int_equal(held, N - 1);
    assert_int_equal(lost.calls, 1);
    for (int i = 0; i < N; i++) {
        int rc = release_by(actors[i], read);
        assert_true(rc == 0 || rc == DLOCK_ELOST);
    }
    assert_int_equal(fake_entries(), 0);
}

/* The line: one that asks for a writer's grant, a reader, and a reader's try. */
TEST(a_try_is_turned_away_when_a_writer_gets_it) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *read = lock_new_with(client, "n", &reader), *write = lock_new(client, "n");
    struct actor *writer = actor_new(), *waiting = actor_new(), *trying = actor_new();
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    begin_acquire(writer, write, -1);
    begin_acquire(waiting, read, -1);
    begin_acquire(trying, read, 0);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(writer), 0);
    assert_int_equal(result(trying), DLOCK_EBUSY);
    assert_int_equal(release_by(writer, write), 0);
    fake_settle();
    assert_int_equal(result(waiting), 0);
    assert_int_equal(release_by(waiting, read), 0);
}

TEST(tries_of_readers_go_along) {
    dlock_lock *read = lock_new_with(client_new("fakefull:"), "n", &reader);
    struct actor *actors[3];
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    for (int i = 0; i < 3; i++) begin_acquire(actors[i] = actor_new(), read, 0);
    fake_slow_go();
    fake_settle();
    for (int i = 0; i < 3; i++) assert_int_equal(result(actors[i]), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(release_by(actors[i], read), 0);

    struct fake_grant other = taken("n");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 1);
    for (int i = 0; i < 3; i++) begin_acquire(actors[i], read, i ? 0 : -1);
    fake_slow_go();
    fake_settle();
    assert_false(over(actors[0]));
    for (int i = 1; i < 3; i++) assert_int_equal(result(actors[i]), DLOCK_EBUSY);
    fake_other_release(&other, "n");
    fake_settle();
    assert_int_equal(release_by(actors[0], read), 0);
}

TEST(permits_are_counted) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *one = lock_new_with(client, "n", &two_permits), *two = lock_new_with(client, "n", &two_permits);
    struct actor *actor = actor_new(), *other = actor_new();
    assert_int_equal(acquire_by(actor, one, 0), 0);
    uint64_t first = fence_by(actor, one);
    assert_int_equal(acquire_by(actor, two, 0), 0); /* the same thread has two */
    assert_int_not_equal(fence_by(actor, two), first);
    assert_int_equal(acquire_by(other, one, 0), DLOCK_EBUSY);
    assert_int_equal(acquire_by(actor, two, 0), DLOCK_EBUSY);
    begin_acquire(other, one, -1);
    assert_int_equal(fence_by(actor, one), first);
    assert_int_equal(release_by(actor, one), 0); /* the one that this handle took */
    fake_settle();
    assert_int_equal(result(other), 0);
    assert_int_equal(release_by(actor, one), 0); /* the remaining one, through either handle */
    assert_int_equal(release_by(actor, two), DLOCK_EOWNER);
    assert_int_equal(fake_holders("n"), 1);
    assert_int_equal(acquire_by(actor, two, 0), 0);
    lock_end(two);
    assert_int_equal(fake_holders("n"), 1);
    assert_int_equal(release_by(other, one), 0);
}

/* One is lost: the other counts on. */
TEST(a_lost_permit_is_given_back_last) {
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &two_permits);
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    struct fake_grant first = fake_holder("n");
    fake_other_release(&first, "n");
    fake_advance_ms(THIRD_MS);
    assert_true(held_by(actor, lock));
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    assert_int_equal(release_by(actor, lock), 0);
    assert_int_equal(release_by(actor, lock), 0);
    assert_false(held_by(actor, lock));
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
    assert_int_equal(release_by(actor, lock), DLOCK_EOWNER);
}

TEST(a_name_is_a_lock_or_permits) {
    struct dlock_options three = two_permits;
    three.limit = 3;
    dlock_client *client = client_new("fakefull:"), *other = client_new("fakefull:");
    struct actor *actor = actor_new(), *second = actor_new();
    assert_int_equal(acquire_by(actor, lock_new_with(client, "n", &two_permits), 0), 0);
    assert_int_equal(acquire_by(actor, lock_new(client, "n"), 0), DLOCK_EINVAL);
    assert_int_equal(acquire_by(actor, lock_new_with(client, "n", &reader), 0), DLOCK_EINVAL);
    assert_int_equal(acquire_by(second, lock_new(other, "n"), 1000), DLOCK_EINVAL);
    assert_int_equal(acquire_by(second, lock_new_with(other, "n", &three), 1000), DLOCK_EINVAL);
}

/* Not confirmed in time, confirmed later: readers of this process go along then. */
TEST(a_downgrade_that_is_confirmed_late_lets_readers_in) {
    dlock_client *client = client_new("fakefull:?timeout=1s");
    dlock_lock *write = lock_new(client, "n"), *read = lock_new_with(client, "n", &reader);
    struct actor *holder = actor_new(), *waiting = actor_new();
    assert_int_equal(acquire_by(holder, write, 0), 0);
    begin_acquire(waiting, read, -1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(holder, downgrade, write);
    wait_for(holder, 1100);
    assert_int_equal(result(holder), DLOCK_EUNAVAILABLE);
    assert_true(held_by(holder, write));
    fake_faults_clear();
    fake_advance_ms(3000);
    assert_int_equal(result(waiting), 0);
    assert_true(held_by(holder, write));
    assert_int_equal(release_by(holder, write), 0);
    assert_int_equal(release_by(waiting, read), 0);
}

TEST(a_downgrade_ends_with_its_client_its_grant_and_its_release) {
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    struct actor *holder = actor_new(), *other = actor_new();
    dlock_client *client = client_new("fakefull:?timeout=60s");
    dlock_lock *lock = lock_new_with(client, "n", &options);

    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(holder, downgrade, lock);
    assert_false(over(holder));
    assert_int_equal(release_by(other, lock), 0);
    fake_settle();
    assert_int_equal(result(holder), DLOCK_EOWNER);

    assert_int_equal(acquire_by(holder, lock, 0), 0);
    begin_call(holder, downgrade, lock);
    assert_true(wait_for(holder, 60000) <= LEASE_MS * 1000);
    assert_int_equal(result(holder), DLOCK_ELOST);
    assert_int_equal(release_by(holder, lock), DLOCK_ELOST);
    fake_faults_clear();
    fake_advance_ms(2 * LEASE_MS);

    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(holder, downgrade, lock);
    assert_false(over(holder));
    begin_close(other, client);
    assert_int_equal(result(other), 0);
    assert_int_equal(result(holder), DLOCK_ECANCELED);
}

/* A writer that also reads, and then gives up writing, continues as a reader: no other writer gets in between. */
TEST(a_writer_that_reads_on_becomes_a_reader) {
    dlock_client *client = client_new("fakefull:"), *others = client_new("fakefull:");
    dlock_lock *write = lock_new(client, "n"), *again = lock_new(client, "n");
    dlock_lock *read = lock_new_with(client, "n", &reader);
    struct actor *holder = actor_new(), *first = actor_new(), *writer = actor_new();
    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, again, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    uint64_t fence = fence_by(holder, write);
    begin_acquire(first, lock_new_with(others, "n", &reader), -1);
    begin_acquire(writer, lock_new(client_new("fakefull:"), "n"), -1);
    assert_int_equal(release_by(holder, again), 0); /* it still writes */
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_false(over(first));
    assert_int_equal(release_by(holder, write), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    fake_settle();
    assert_int_equal(result(first), 0);
    assert_false(over(writer));
    assert_int_equal(fake_calls(FAKE_RELEASE), 0);
    assert_true(held_by(holder, read));
    assert_int_equal(fence_by(holder, read), fence + 1);
    assert_int_equal(acquire_by(holder, write, 0), DLOCK_EDEADLK);
    fake_advance_ms(2 * LEASE_MS); /* renewed as a reader: the fake says when it is not */
    assert_true(held_by(holder, read));
    assert_int_equal(release_by(holder, read), 0);
    assert_int_equal(release_by(holder, read), DLOCK_EOWNER);
    assert_false(over(writer));
    lock_end(read);
}

/* Reads first, then writes: the write part is given back last, which is a release. */
TEST(a_writer_that_has_read_releases) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *write = lock_new(client, "n"), *read = lock_new_with(client, "n", &reader);
    struct actor *holder = actor_new();
    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    assert_int_equal(release_by(holder, read), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(release_by(holder, write), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 0);
    assert_int_equal(fake_entries(), 0);
}

static int release_both(void *arg) {
    dlock_lock *const *locks = arg;
    return dlock_release_all(locks, 2, NULL);
}

/* With other ways to give it back; without an answer in time; and lost before that. */
TEST(a_writer_that_reads_on_in_other_ways) {
    struct lost_count lost = {0};
    struct dlock_options options = reader;
    options.on_lost = count_lost;
    options.on_lost_arg = &lost;
    dlock_client *client = client_new("fakefull:?timeout=1s");
    dlock_lock *write = lock_new(client, "n"), *other = lock_new(client, "m");
    dlock_lock *read = lock_new_with(client, "n", &options);
    struct actor *holder = actor_new(), *also = actor_new();

    dlock_lock *both[] = {write, other};
    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, other, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    begin_call(holder, release_both, both);
    fake_settle();
    assert_int_equal(result(holder), 0);
    assert_int_equal(acquire_by(also, read, 0), 0);
    assert_int_equal(release_by(also, read), 0);
    assert_int_equal(release_by(holder, read), 0);

    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    begin_free(also, write);
    lock_forget(write);
    fake_settle();
    assert_int_equal(acquire_by(also, read, 0), 0);
    assert_int_equal(release_by(also, read), 0);
    assert_int_equal(release_by(holder, read), 0);

    write = lock_new(client, "n");
    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_release(holder, write);
    wait_for(holder, 1100);
    assert_int_equal(result(holder), DLOCK_EUNAVAILABLE); /* it continues */
    assert_true(held_by(holder, read));
    assert_int_equal(acquire_by(holder, write, 0), DLOCK_EDEADLK);
    fake_faults_clear();
    fake_advance_ms(3000);
    assert_int_equal(acquire_by(also, read, 0), 0);
    assert_int_equal(release_by(also, read), 0);
    assert_int_equal(release_by(holder, read), 0);

    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    fake_server_forget();
    assert_int_equal(release_by(holder, write), DLOCK_ELOST);
    fake_settle();
    assert_int_equal(lost.calls, 1);
    assert_int_equal(release_by(holder, read), DLOCK_ELOST);
    assert_int_equal(release_by(holder, read), DLOCK_EOWNER);
}

/* A renewal that is on the way still says EXCLUSIVE: its answer confirms no downgrade. */
TEST(a_downgrade_is_not_confirmed_by_the_renewal_before_it) {
    dlock_client *client = client_new("fakefull:");
    dlock_lock *write = lock_new(client, "n"), *read = lock_new_with(client, "n", &reader);
    struct actor *holder = actor_new(), *waiting = actor_new();
    assert_int_equal(acquire_by(holder, write, 0), 0);
    assert_int_equal(acquire_by(holder, read, 0), 0);
    begin_acquire(waiting, lock_new_with(client_new("fakefull:"), "n", &reader), -1);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 1);
    fake_advance_ms(THIRD_MS);
    assert_int_equal(fake_slow_waiting(), 1);
    begin_release(holder, write);
    assert_false(over(holder));
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(holder), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 2);
    assert_int_equal(result(waiting), 0);
    assert_int_equal(release_by(holder, read), 0);
}

/* A downgrade does not make a fixed lease longer. */
TEST(a_fixed_lease_stays_as_long_as_it_was) {
    struct dlock_options options = {.size = sizeof options, .flags = DLOCK_FIXED_LEASE};
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &options);
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_ms(LEASE_MS / 2);
    begin_call(actor, downgrade, lock);
    assert_int_equal(result(actor), 0);
    assert_true(remaining_by(actor, lock) > LEASE_MS / 3);
    assert_true(remaining_by(actor, lock) <= LEASE_MS / 2);
    assert_true(fake_holder("n").left_ms <= LEASE_MS / 2);
    fake_advance_ms(LEASE_MS / 2);
    assert_false(held_by(actor, lock));
    assert_int_equal(fake_holders("n"), 0);
    assert_int_equal(fake_calls(FAKE_RENEW), 1);
    assert_int_equal(release_by(actor, lock), DLOCK_ELOST);
}

/* Nor shorter than its holder, which gets no answer, trusts it: the server's clock may be faster by 1 %. */
TEST(a_fixed_lease_stays_as_long_as_it_is_believed) {
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE, .flags = DLOCK_FIXED_LEASE};
    dlock_lock *lock = lock_new_with(client_new("fakefull:"), "n", &options);
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    fake_advance_ms(LEASE_MS / 2);
    fake_fault(FAKE_RENEW, FAKE_LOST_AFTER, 1);
    fake_fault(FAKE_RENEW, FAKE_LOST_BEFORE, 50);
    begin_call(actor, downgrade, lock);
    assert_false(over(actor));
    assert_true(fake_holder("n").left_ms >= dlock_remaining_ms(lock) * 100 / 99);
    fake_faults_clear();
    fake_advance_ms(1000);
    assert_int_equal(result(actor), 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
