/* DLOCK_SHARED: readers together, writers alone, leases and owners of readers. */
#include "actor.h"
#include "thread.h"

enum { READERS = 3 };

static struct dlock_options reader(int64_t lease_ms) {
    return options_for(DLOCK_SHARED, 0, lease_ms);
}

static struct dlock_options writer(int64_t lease_ms) {
    return options_for(DLOCK_EXCLUSIVE, 0, lease_ms);
}

/* Fails unless a new client is refused as a writer. On a busy machine the last question of a wait may have no answer:
 * then tries once more. */
static void expect_no_writer(int64_t timeout_ms) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    int code = dlock_acquire(lock, timeout_ms, ERR);
    for (int tries = 0; code == DLOCK_EUNAVAILABLE && tries < 3; tries++) code = dlock_acquire(lock, timeout_ms, ERR);
    expect_code(__FILE__, __LINE__, "dlock_acquire", timeout_ms == 0 ? DLOCK_EBUSY : DLOCK_ETIMEDOUT, code);
}

void case_readers_together(void) {
    struct dlock_options shared = reader(LONG_LEASE_MS);
    struct actor readers[READERS];
    for (int i = 0; i < READERS; i++) actor_start(&readers[i], suite.name, &shared);
    uint64_t fence = 0;
    for (int i = 0; i < READERS; i++) {
        struct actor_report report = ACTOR_DO(0, &readers[i], ACTOR_ACQUIRE, i % 2 ? PATIENCE_MS : 0);
        EXPECT(report.held && report.fence > fence);
        fence = report.fence;
    }
    for (int i = 0; i < READERS; i++) {
        EXPECT(ACTOR_DO(0, &readers[i], ACTOR_LOOK, 0).held);
        expect_no_writer(i == 0 ? MOMENT_MS : 0);
        ACTOR_DO(0, &readers[i], ACTOR_RELEASE, 0);
    }
    ACTOR_DO(DLOCK_EOWNER, &readers[0], ACTOR_RELEASE, 0);
    EXPECT_FREE(suite.name);
    EXPECT(ACTOR_DO(0, &readers[0], ACTOR_ACQUIRE, 0).fence > fence);
    for (int i = 0; i < READERS; i++) actor_end(&readers[i]);
}

void case_readers_of_one_client(void) {
    struct dlock_options shared = reader(LONG_LEASE_MS), by_handle = shared;
    by_handle.owner = DLOCK_OWNER_HANDLE;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &shared);
    SCOPED_LOCK *one = new_lock(client, suite.name, &by_handle), *two = new_lock(client, suite.name, &by_handle);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(two, PATIENCE_MS, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(two, 0, ERR));
    EXPECT(dlock_fence(one) > dlock_fence(lock) && dlock_fence(two) > dlock_fence(one));
    struct call call = in_thread(acquire_here, lock, 0);
    EXPECT_CODE(0, call.code);
    EXPECT(call.held && call.fence > dlock_fence(two));
    expect_no_writer(0);
    EXPECT_CODE(DLOCK_EOWNER, in_thread(release_here, lock, 0).code);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, in_thread(release_here, one, 0).code);
    EXPECT(!dlock_held(lock) && !dlock_held(one) && dlock_held(two));
    expect_no_writer(0);
    EXPECT_CODE(0, dlock_release(two, ERR));
    EXPECT_FREE(suite.name);
}

void case_reader_waits_for_a_writer(void) {
    struct dlock_options shared = reader(LONG_LEASE_MS), exclusive = writer(LONG_LEASE_MS);
    SCOPED_ACTOR waiting;
    actor_start(&waiting, suite.name, &shared);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &exclusive), *same = new_lock(client, suite.name, &shared);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    ACTOR_DO(DLOCK_EBUSY, &waiting, ACTOR_ACQUIRE, 0);
    ACTOR_DO(DLOCK_ETIMEDOUT, &waiting, ACTOR_ACQUIRE, MOMENT_MS);
    EXPECT_CODE(DLOCK_EBUSY, in_thread(acquire_here, same, 0).code);
    EXPECT_CODE(DLOCK_ETIMEDOUT, in_thread(acquire_here, same, MOMENT_MS).code);
    actor_begin(&waiting, ACTOR_ACQUIRE, PATIENCE_MS);
    await_waiters(client, suite.name, 1);
    EXPECT_WAITING(&waiting, 200);
    uint64_t fence = dlock_fence(lock);
    int64_t released_us = now_us();
    EXPECT_CODE(0, dlock_release(lock, ERR));
    struct actor_report report = ACTOR_FINISH(0, &waiting);
    EXPECT(report.held && report.fence > fence);
    EXPECT_BETWEEN(0, SLACK_MS, (report.at_us - released_us) / 1000);
    EXPECT_CODE(0, in_thread(acquire_here, same, PATIENCE_MS).code);
}

void case_reader_reentry(void) {
    struct dlock_options shared = reader(0), once = options_for(DLOCK_SHARED, 0, 0);
    once.flags = DLOCK_NO_REENTRY;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *one = new_lock(client, suite.name, &shared), *two = new_lock(client, suite.name, &shared);
    SCOPED_LOCK *strict = new_lock(client, suite.name, &once);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));           /* 1 */
    EXPECT_CODE(0, dlock_acquire(two, PATIENCE_MS, ERR)); /* 2 */
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));           /* 3 */
    EXPECT(dlock_fence(one) == dlock_fence(two));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(strict, DLOCK_FOREVER, ERR));
    EXPECT_CODE(0, dlock_release(two, ERR)); /* 2 */
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 1 */
    EXPECT(dlock_held(one));
    expect_no_writer(0);
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 0 */
    EXPECT(!dlock_held(one) && !dlock_held(two));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(two, ERR));
    EXPECT_FREE(suite.name);
}

/* A writer may read as well: its grant stays exclusive to the end. */
void case_writer_reenters_as_reader(void) {
    struct dlock_options shared = reader(0);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *write = new_lock(client, suite.name, NULL), *read = new_lock(client, suite.name, &shared);
    SCOPED_LOCK *foreign = new_lock(other, suite.name, &shared);
    EXPECT_CODE(0, dlock_acquire(write, 0, ERR));            /* 1 */
    EXPECT_CODE(0, dlock_acquire(read, 0, ERR));             /* 2 */
    EXPECT_CODE(0, dlock_acquire(read, DLOCK_FOREVER, ERR)); /* 3 */
    EXPECT(dlock_fence(write) == dlock_fence(read));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign, 0, ERR));
    EXPECT_CODE(0, dlock_release(read, ERR)); /* 2 */
    EXPECT_CODE(0, dlock_release(read, ERR)); /* 1 */
    EXPECT(dlock_held(write));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign, 0, ERR));
    EXPECT_CODE(0, dlock_release(write, ERR)); /* 0 */
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(read, ERR));
    EXPECT_CODE(0, dlock_acquire(foreign, 0, ERR));
}

/* A reader that waits for the exclusive lock would wait for itself. */
void case_upgrade_is_refused(void) {
    struct dlock_options shared = reader(0), exclusive = writer(0);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *read = new_lock(client, suite.name, &shared), *write = new_lock(client, suite.name, &exclusive);
    EXPECT_CODE(0, dlock_acquire(read, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(write, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(write, 100, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(write, DLOCK_FOREVER, ERR));
    EXPECT(dlock_held(read));
    /* Another thread is another owner: it waits. */
    EXPECT_CODE(DLOCK_EBUSY, in_thread(acquire_here, write, 0).code);
    EXPECT_CODE(DLOCK_ETIMEDOUT, in_thread(acquire_here, write, MOMENT_MS).code);
    struct call call = {.lock = write, .timeout_ms = PATIENCE_MS};
    pthread_t thread = start_thread(acquire_here, &call);
    sleep_ms(100);
    EXPECT_CODE(0, dlock_release(read, ERR));
    pthread_join(thread, NULL);
    EXPECT_CODE(0, call.code);
    EXPECT_CODE(0, dlock_acquire(write, 0, ERR));
    EXPECT_CODE(0, dlock_release(write, ERR));
}

void case_renewal_of_many_readers(void) {
    enum { N = 40 };
    struct dlock_options shared = reader(RENEWED_LEASE_MS);
    shared.owner = DLOCK_OWNER_HANDLE;
    SCOPED_CLIENT *client = open_client();
    dlock_lock *locks[N];
    uint64_t fences[N];
    for (int i = 0; i < N; i++) {
        locks[i] = new_lock(client, suite.name, &shared);
        EXPECT_CODE(0, dlock_acquire(locks[i], 0, ERR));
        fences[i] = dlock_fence(locks[i]);
        EXPECT(i == 0 || fences[i] > fences[i - 1]);
    }
    for (int64_t until = now_ms() + RENEWED_LEASE_MS * 3 / 2; now_ms() < until;) expect_no_writer(MOMENT_MS);
    for (int i = 0; i < N; i++) EXPECT(dlock_held(locks[i]) && dlock_fence(locks[i]) == fences[i]);
    for (int i = 0; i < N - 1; i++) EXPECT_CODE(0, dlock_release(locks[i], ERR));
    expect_no_writer(RENEWED_LEASE_MS * 5 / 4);
    EXPECT_CODE(0, dlock_release(locks[N - 1], ERR));
    EXPECT_FREE(suite.name);
    for (int i = 0; i < N; i++) dlock_free(locks[i]);
}

/* Every reader has its own lease: a dead reader's ends, a living one's does not. */
void case_reader_killed(void) {
    struct dlock_options shared = reader(RENEWED_LEASE_MS), exclusive = writer(RENEWED_LEASE_MS);
    struct actor dead, alive, waiting;
    actor_start(&dead, suite.name, &shared);
    actor_start(&alive, suite.name, &shared);
    actor_start(&waiting, suite.name, &exclusive);
    ACTOR_DO(0, &dead, ACTOR_ACQUIRE, 0);
    uint64_t fence = ACTOR_DO(0, &alive, ACTOR_ACQUIRE, 0).fence;
    actor_begin(&waiting, ACTOR_ACQUIRE, PATIENCE_MS);
    sleep_ms(300);
    kill_process(dead.pid);
    EXPECT_WAITING(&waiting, RENEWED_LEASE_MS * 3 / 2);
    EXPECT(ACTOR_DO(0, &alive, ACTOR_LOOK, 0).held);
    int64_t killed_us = now_us();
    kill_process(alive.pid);
    struct actor_report report = ACTOR_FINISH(0, &waiting);
    EXPECT(report.held && report.fence > fence);
    EXPECT_BETWEEN(0, RENEWED_LEASE_MS + SLACK_MS, (report.at_us - killed_us) / 1000);
    actor_end(&waiting);
}
