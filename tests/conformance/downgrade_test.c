/* dlock_downgrade: a writer becomes a reader, and no other writer comes in between. */
#include "actor.h"
#include "census.h"
#include "thread.h"

static struct dlock_options kind(enum dlock_mode mode) {
    return options_for(mode, 0, LONG_LEASE_MS);
}

static void start(struct actor *actor, enum dlock_mode mode) {
    struct dlock_options options = kind(mode);
    actor_start(actor, suite.name, &options);
}

/* The server's part of the fence stays; its low byte counts hand-overs inside this process. */
static void expect_same_grant(uint64_t before, uint64_t after) {
    if (after <= before || after >> 8 != before >> 8)
        FAIL("fence %llx became %llx", (unsigned long long)before, (unsigned long long)after);
}

void case_downgrade(void) {
    SCOPED_ACTOR reader, writer;
    start(&reader, DLOCK_SHARED);
    start(&writer, DLOCK_EXCLUSIVE);
    struct dlock_options exclusive = kind(DLOCK_EXCLUSIVE);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &exclusive);
    for (int i = 0; i < 3; i++) {
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        uint64_t fence = dlock_fence(lock);
        ACTOR_DO(DLOCK_EBUSY, &reader, ACTOR_ACQUIRE, 0);
        EXPECT_CODE(0, dlock_downgrade(lock, ERR));
        EXPECT(dlock_held(lock) && dlock_remaining_ms(lock) > 0);
        expect_same_grant(fence, dlock_fence(lock));
        fence = dlock_fence(lock);
        EXPECT(ACTOR_DO(0, &reader, ACTOR_ACQUIRE, PATIENCE_MS).fence > fence);
        ACTOR_DO(DLOCK_EBUSY, &writer, ACTOR_ACQUIRE, 0);
        if (i % 2) ACTOR_DO(0, &reader, ACTOR_RELEASE, 0);
        EXPECT_CODE(0, dlock_release(lock, ERR));
        EXPECT(!dlock_held(lock));
        if (i % 2 == 0) {
            ACTOR_DO(DLOCK_EBUSY, &writer, ACTOR_ACQUIRE, 0);
            ACTOR_DO(0, &reader, ACTOR_RELEASE, 0);
        }
        ACTOR_DO(0, &writer, ACTOR_ACQUIRE, SLACK_MS);
        ACTOR_DO(0, &writer, ACTOR_RELEASE, 0);
        EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    }
}

/* Readers that are first in line are granted at once; a writer behind them has to wait for all of them. */
void case_downgrade_lets_readers_in(void) {
    struct actor readers[2], writer;
    for (int i = 0; i < 2; i++) start(&readers[i], DLOCK_SHARED);
    start(&writer, DLOCK_EXCLUSIVE);
    struct dlock_options exclusive = kind(DLOCK_EXCLUSIVE);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &exclusive);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int i = 0; i < 2; i++) {
        actor_begin(&readers[i], ACTOR_ACQUIRE, PATIENCE_MS);
        await_waiters(client, suite.name, (uint32_t)i + 1);
    }
    if (suite.caps & DLOCK_CAP_QUEUE) {
        actor_begin(&writer, ACTOR_ACQUIRE, PATIENCE_MS);
        await_waiters(client, suite.name, 3);
    }
    int64_t begun_us = now_us();
    EXPECT_CODE(0, dlock_downgrade(lock, ERR));
    for (int i = 0; i < 2; i++) {
        struct actor_report report = ACTOR_FINISH(0, &readers[i]);
        EXPECT(report.held && report.fence > dlock_fence(lock));
        EXPECT_BETWEEN(0, SLACK_MS, (report.at_us - begun_us) / 1000);
    }
    if (!(suite.caps & DLOCK_CAP_QUEUE)) actor_begin(&writer, ACTOR_ACQUIRE, PATIENCE_MS);
    EXPECT_WAITING(&writer, 200);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    ACTOR_DO(0, &readers[1], ACTOR_RELEASE, 0);
    EXPECT_WAITING(&writer, 200);
    int64_t freed_us = now_us();
    ACTOR_DO(0, &readers[0], ACTOR_RELEASE, 0);
    struct actor_report report = ACTOR_FINISH(0, &writer);
    EXPECT(report.held);
    EXPECT_BETWEEN(0, SLACK_MS, (report.at_us - freed_us) / 1000);
    for (int i = 0; i < 2; i++) actor_end(&readers[i]);
    actor_end(&writer);
}

/* The whole grant becomes a reader's, however often it was acquired; each acquisition still needs its release. */
void case_downgrade_of_a_counted_lock(void) {
    struct dlock_options exclusive = kind(DLOCK_EXCLUSIVE), shared = kind(DLOCK_SHARED);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *one = new_lock(client, suite.name, &exclusive), *two = new_lock(client, suite.name, &exclusive);
    SCOPED_LOCK *read = new_lock(client, suite.name, &shared), *foreign = new_lock(other, suite.name, &shared);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR)); /* 1 */
    EXPECT_CODE(0, dlock_acquire(two, 0, ERR)); /* 2 */
    EXPECT_CODE(0, dlock_downgrade(two, ERR));
    EXPECT(dlock_held(one) && dlock_held(two) && dlock_fence(one) == dlock_fence(two));
    EXPECT_CODE(DLOCK_EINVAL, dlock_downgrade(one, ERR));    /* it is a reader's already */
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(one, 0, ERR));  /* an upgrade */
    EXPECT_CODE(0, dlock_acquire(read, DLOCK_FOREVER, ERR)); /* 3 */
    EXPECT(dlock_fence(read) == dlock_fence(one));
    EXPECT_CODE(0, dlock_acquire(foreign, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(foreign, ERR));
    EXPECT_CODE(0, dlock_release(two, ERR));  /* 2 */
    EXPECT_CODE(0, dlock_release(read, ERR)); /* 1 */
    EXPECT(dlock_held(one));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 0 */
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(two, ERR));
    EXPECT_FREE(suite.name);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR)); /* exclusive again */
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign, 0, ERR));
}

/* A writer that also reads, and releases as a writer, continues as a reader. No other writer gets in between, not even
 * a waiting one. */
void case_writer_reads_on(void) {
    struct dlock_options exclusive = kind(DLOCK_EXCLUSIVE), shared = kind(DLOCK_SHARED);
    SCOPED_ACTOR writer;
    start(&writer, DLOCK_EXCLUSIVE);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *write = new_lock(client, suite.name, &exclusive), *read = new_lock(client, suite.name, &shared);
    SCOPED_LOCK *foreign = new_lock(other, suite.name, &shared);
    for (int i = 0; i < 3; i++) {
        EXPECT_CODE(0, dlock_acquire(write, PATIENCE_MS, ERR));
        EXPECT_CODE(0, dlock_acquire(read, 0, ERR));
        uint64_t fence = dlock_fence(read);
        if (i < 2) {
            EXPECT_CODE(0, dlock_release(write, ERR));
            EXPECT_CODE(0, dlock_acquire(foreign, PATIENCE_MS, ERR)); /* a reader like us */
            EXPECT_CODE(0, dlock_release(foreign, ERR));
            ACTOR_DO(DLOCK_EBUSY, &writer, ACTOR_ACQUIRE, 0);
            actor_begin(&writer, ACTOR_ACQUIRE, PATIENCE_MS);
        } else { /* the writer waits first */
            actor_begin(&writer, ACTOR_ACQUIRE, PATIENCE_MS);
            await_waiters(other, suite.name, 1);
            EXPECT_CODE(0, dlock_release(write, ERR));
        }
        EXPECT(dlock_held(read) && dlock_held(write)); /* one owner */
        expect_same_grant(fence, dlock_fence(read));
        EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(write, 0, ERR));
        EXPECT_WAITING(&writer, 100);
        int64_t released_us = now_us();
        EXPECT_CODE(0, dlock_release(read, ERR));
        EXPECT_CODE(DLOCK_EOWNER, dlock_release(write, ERR));
        struct actor_report granted = ACTOR_FINISH(0, &writer);
        EXPECT(granted.at_us > released_us && granted.fence > fence);
        ACTOR_DO(0, &writer, ACTOR_RELEASE, 0);
    }
}

static void *downgrade_here(void *arg) {
    struct call *call = arg;
    call->code = dlock_downgrade(call->lock, NULL);
    call->held = dlock_held(call->lock);
    return NULL;
}

void case_downgrade_refused(void) {
    struct dlock_options shared = kind(DLOCK_SHARED), by_handle = kind(DLOCK_EXCLUSIVE);
    struct dlock_options brief = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    by_handle.owner = DLOCK_OWNER_HANDLE;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *read = new_lock(client, suite.name, &shared);
    SCOPED_LOCK *handle = new_lock(client, suite.name, &by_handle), *ends = new_lock(client, suite.name, &brief);
    EXPECT_CODE(DLOCK_EOWNER, dlock_downgrade(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(read, 0, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_downgrade(read, ERR));
    EXPECT(dlock_held(read));
    EXPECT_CODE(0, dlock_release(read, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EOWNER, in_thread(downgrade_here, lock, 0).code);
    EXPECT_CODE(DLOCK_EBUSY, in_thread(acquire_here, read, 0).code); /* there was no downgrade */
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(handle, 0, ERR));
    EXPECT_CODE(0, in_thread(downgrade_here, handle, 0).code);
    EXPECT_CODE(0, in_thread(acquire_here, read, PATIENCE_MS).code);
    EXPECT_CODE(0, dlock_release(handle, ERR));
    EXPECT_CODE(0, dlock_acquire(ends, 0, ERR));
    sleep_ms(LEASE_MS);
    EXPECT_CODE(DLOCK_ELOST, dlock_downgrade(ends, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(ends, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_downgrade(ends, ERR));
    EXPECT_FREE(suite.name);
}

/* After a break, with the lock held by another client, the downgrade brings nothing back. */
void case_downgrade_after_a_break(void) {
    struct dlock_options exclusive = kind(DLOCK_EXCLUSIVE);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &exclusive), *next = new_lock(other, suite.name, &exclusive);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_break(other, suite.name, ERR));
    EXPECT_CODE(0, dlock_acquire(next, 0, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_downgrade(lock, ERR));
    EXPECT(!dlock_held(lock) && dlock_held(next));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_release(next, ERR));
    EXPECT_FREE(suite.name);
}

/* Renewals continue as a reader's: the grant is neither lost, nor exclusive again. */
void case_renewal_after_a_downgrade(void) {
    struct dlock_options exclusive = options_for(DLOCK_EXCLUSIVE, 0, RENEWED_LEASE_MS), shared = kind(DLOCK_SHARED);
    struct actor reader, writer;
    actor_start(&reader, suite.name, &shared);
    actor_start(&writer, suite.name, &exclusive);
    ACTOR_DO(0, &writer, ACTOR_ACQUIRE, 0);
    ACTOR_DO(0, &writer, ACTOR_DOWNGRADE, 0);
    for (int64_t until = now_ms() + RENEWED_LEASE_MS * 3 / 2; now_ms() < until; sleep_ms(100)) {
        ACTOR_DO(0, &reader, ACTOR_ACQUIRE, PATIENCE_MS);
        EXPECT_TAKEN(suite.name);
        ACTOR_DO(0, &reader, ACTOR_RELEASE, 0);
        EXPECT_TAKEN(suite.name);
    }
    EXPECT(ACTOR_DO(0, &writer, ACTOR_LOOK, 0).held);
    int64_t killed_ms = now_ms();
    kill_process(writer.pid);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT_BETWEEN(0, RENEWED_LEASE_MS + SLACK_MS, now_ms() - killed_ms);
    actor_end(&reader);
}

struct downgrader {
    struct census *census;
    dlock_client *client;
};

/* Writes, becomes a reader, and finds what it wrote until it leaves. */
static void *write_and_read(void *arg) {
    const struct downgrader *mine = arg;
    struct census *census = mine->census;
    struct dlock_options options = kind(DLOCK_EXCLUSIVE);
    dlock_lock *lock = new_lock(mine->client, suite.name, &options);
    for (int turn = 0; !census_is_over(census); turn++) {
        uint64_t before = census_fence(census);
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        uint64_t fence = dlock_fence(lock);
        census_enter(census, DLOCK_EXCLUSIVE, 0, before, fence);
        int64_t counter = atomic_load(&census->counter) + 1;
        atomic_store(&census->counter, counter);
        census_enter_downgraded(census);
        census_leave(census, DLOCK_EXCLUSIVE);
        EXPECT_CODE(0, dlock_downgrade(lock, ERR));
        expect_same_grant(fence, dlock_fence(lock));
        if (turn % 4 == 0) sleep_ms(turn % 3);
        if (atomic_load(&census->counter) != counter) FAIL("another writer came in at a downgrade");
        census_leave(census, DLOCK_SHARED);
        EXPECT_CODE(0, dlock_release(lock, ERR));
    }
    dlock_free(lock);
    return NULL;
}

static void downgrading_process(void *arg) {
    enum { THREADS = 2 };
    struct downgrader mine = {arg, open_client()};
    run_threads(write_and_read, &mine, 0, THREADS);
    dlock_close(mine.client);
}

void case_downgrades_exclude_writers(void) {
    enum { DOWNGRADERS = 3 };
    struct dlock_options kinds[] = {kind(DLOCK_EXCLUSIVE), kind(DLOCK_SHARED), kind(DLOCK_SHARED)};
    struct census *census = census_open(RUN_MS);
    struct visitors visitors = {census, suite.name, kinds, 3, true};
    pid_t pids[DOWNGRADERS];
    for (int i = 0; i < DOWNGRADERS; i++) pids[i] = start_process(downgrading_process, census, 0);
    census_run(&visitors, 1);
    for (int i = 0; i < DOWNGRADERS; i++) join_process(pids[i]);
    census_close(census);
    EXPECT_FREE(suite.name);
}
