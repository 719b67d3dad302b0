/* DLOCK_PERMIT: at most `limit` holders, each with its own lease. */
#include "actor.h"
#include "census.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>

enum { LIMIT = 3 };

static struct dlock_options permits_of(uint32_t limit, int64_t lease_ms) {
    return options_for(DLOCK_PERMIT, limit, lease_ms);
}

void case_permits_up_to_the_limit(void) {
    struct dlock_options options = permits_of(LIMIT, LONG_LEASE_MS);
    struct actor actors[LIMIT + 1];
    for (int i = 0; i <= LIMIT; i++) actor_start(&actors[i], suite.name, &options);
    uint64_t fence = 0;
    for (int i = 0; i < LIMIT; i++) {
        struct actor_report report = ACTOR_DO(0, &actors[i], ACTOR_ACQUIRE, i % 2 ? PATIENCE_MS : 0);
        EXPECT(report.held && report.fence > fence);
        fence = report.fence;
    }
    ACTOR_DO(DLOCK_EBUSY, &actors[LIMIT], ACTOR_ACQUIRE, 0);
    ACTOR_DO(DLOCK_ETIMEDOUT, &actors[LIMIT], ACTOR_ACQUIRE, MOMENT_MS);
    actor_begin(&actors[LIMIT], ACTOR_ACQUIRE, PATIENCE_MS);
    EXPECT_WAITING(&actors[LIMIT], 300);
    int64_t released_us = now_us();
    ACTOR_DO(0, &actors[1], ACTOR_RELEASE, 0);
    struct actor_report report = ACTOR_FINISH(0, &actors[LIMIT]);
    EXPECT(report.held && report.fence > fence);
    EXPECT_BETWEEN(0, SLACK_MS, (report.at_us - released_us) / 1000);
    ACTOR_DO(DLOCK_EBUSY, &actors[1], ACTOR_ACQUIRE, 0);
    ACTOR_DO(DLOCK_EOWNER, &actors[1], ACTOR_RELEASE, 0);
    for (int i = 0; i <= LIMIT; i++) EXPECT(ACTOR_DO(0, &actors[i], ACTOR_LOOK, 0).held == (i != 1));
    for (int i = 0; i <= LIMIT; i++) actor_end(&actors[i]);
}

/* Many grants of one name are released in one request; other clients' permits stay, and waiters get theirs. */
void case_permits_are_given_back_together(void) {
    enum { MANY = 20 };
    struct dlock_options options = permits_of(MANY, LONG_LEASE_MS);
    struct actor waiters[2];
    for (int i = 0; i < 2; i++) actor_start(&waiters[i], suite.name, &options);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options), *theirs = new_lock(other, suite.name, &options);
    dlock_lock *locks[MANY];
    EXPECT_CODE(0, dlock_acquire(theirs, PATIENCE_MS, ERR));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY - 1; i++) EXPECT_CODE(0, dlock_acquire(locks[i] = lock, PATIENCE_MS, ERR));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(theirs, 0, ERR));
        for (int i = 0; i < 2; i++) {
            actor_begin(&waiters[i], ACTOR_ACQUIRE, PATIENCE_MS);
            EXPECT_WAITING(&waiters[i], 100);
        }
        if (round == 0)
            EXPECT_CODE(0, dlock_release_all(locks, MANY - 1, ERR));
        else
            dlock_free(lock);
        EXPECT(dlock_held(theirs));
        for (int i = 0; i < 2; i++) EXPECT(ACTOR_FINISH(0, &waiters[i]).held);
        for (int i = 0; i < 2; i++) ACTOR_DO(0, &waiters[i], ACTOR_RELEASE, 0);
        for (int i = 0; i < MANY - 1; i++) EXPECT_CODE(0, dlock_acquire(theirs, PATIENCE_MS, ERR));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(theirs, 0, ERR));
        for (int i = 0; i < MANY - 1; i++) EXPECT_CODE(0, dlock_release(theirs, ERR));
    }
    EXPECT_CODE(0, dlock_release(theirs, ERR));
    for (int i = 0; i < 2; i++) actor_end(&waiters[i]);
    dlock_free(theirs);
}

/* One thread may take several permits: each acquire adds one, and each release gives the youngest back. */
void case_permits_of_one_thread(void) {
    struct dlock_options options = permits_of(LIMIT, LONG_LEASE_MS);
    dlock_client *client = open_client(), *other = open_client();
    dlock_lock *one = new_lock(client, suite.name, &options), *two = new_lock(client, suite.name, &options);
    dlock_lock *foreign = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR)); /* 1 */
    uint64_t first = dlock_fence(one);
    EXPECT_CODE(0, dlock_acquire(one, DLOCK_FOREVER, ERR)); /* 2 */
    EXPECT(dlock_fence(one) > first);
    EXPECT_CODE(0, dlock_acquire(two, 0, ERR)); /* 3 */
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(two, 0, ERR));
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(one, MOMENT_MS, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign, 0, ERR));
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 2 */
    EXPECT(dlock_held(one) && dlock_fence(one) == first && dlock_held(two));
    EXPECT_CODE(0, dlock_acquire(foreign, PATIENCE_MS, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(one, 0, ERR));
    EXPECT_CODE(0, dlock_release(foreign, ERR));
    EXPECT_CODE(0, dlock_release(two, ERR)); /* 1 */
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 0 */
    EXPECT(!dlock_held(one) && !dlock_held(two));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(one, ERR));
    for (int i = 0; i < LIMIT; i++) EXPECT_CODE(0, dlock_acquire(foreign, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(one, 0, ERR));
    dlock_free(one);
    dlock_free(two);
    dlock_free(foreign); /* releases all three */
    dlock_close(other);
    EXPECT_FREE(suite.name);
    dlock_close(client);
}

void case_permits_of_handles_and_threads(void) {
    struct dlock_options options = permits_of(LIMIT, LONG_LEASE_MS), by_handle = options, once = options;
    by_handle.owner = DLOCK_OWNER_HANDLE;
    once.flags = DLOCK_NO_REENTRY;
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options), *handle = new_lock(client, suite.name, &by_handle);
    SCOPED_LOCK *strict = new_lock(client, suite.name, &once);
    EXPECT_CODE(0, dlock_acquire(handle, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(handle, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(strict, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(strict, DLOCK_FOREVER, ERR));
    EXPECT_CODE(0, in_thread(acquire_here, lock, 0).code);
    EXPECT_CODE(0, in_thread(acquire_and_keep, lock, 0).code); /* only dlock_free can release it */
    EXPECT_CODE(DLOCK_EBUSY, in_thread(acquire_here, lock, 0).code);
    EXPECT_CODE(0, in_thread(release_here, handle, 0).code);
    EXPECT_CODE(DLOCK_EOWNER, in_thread(release_here, strict, 0).code);
    EXPECT_CODE(0, in_thread(acquire_here, lock, PATIENCE_MS).code);
    EXPECT_CODE(0, dlock_release(strict, ERR));
    dlock_free(lock);
    EXPECT_FREE(suite.name);
    dlock_free(handle);
}

void case_renewal_of_many_permits(void) {
    enum { N = 30 };
    struct dlock_options options = permits_of(N, RENEWED_LEASE_MS);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *foreign = new_lock(other, suite.name, &options);
    for (int i = 0; i < N; i++) EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int64_t until = now_ms() + RENEWED_LEASE_MS * 3 / 2; now_ms() < until; sleep_ms(50))
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign, 0, ERR));
    EXPECT(dlock_held(lock));
    for (int i = 0; i < N; i++) EXPECT_CODE(0, dlock_release(lock, ERR));
    for (int i = 0; i < N; i++) EXPECT_CODE(0, dlock_acquire(foreign, SLACK_MS, ERR));
}

/* A dead holder's permit, and no other, comes back when its lease ends. */
void case_permit_holder_killed(void) {
    struct dlock_options options = permits_of(LIMIT, RENEWED_LEASE_MS);
    struct actor holders[LIMIT], waiting[2];
    for (int i = 0; i < LIMIT; i++) actor_start(&holders[i], suite.name, &options);
    for (int i = 0; i < 2; i++) actor_start(&waiting[i], suite.name, &options);
    dlock_client *watcher = open_client();
    for (int i = 0; i < LIMIT; i++) ACTOR_DO(0, &holders[i], ACTOR_ACQUIRE, 0);
    for (int i = 0; i < 2; i++) {
        actor_begin(&waiting[i], ACTOR_ACQUIRE, PATIENCE_MS);
        await_waiters(watcher, suite.name, (uint32_t)i + 1);
    }
    int64_t killed_us = now_us();
    kill_process(holders[1].pid);
    struct actor_report report;
    int winner = 0;
    for (int64_t until = now_ms() + PATIENCE_MS; !actor_poll(&waiting[winner], 20, &report); winner = !winner)
        if (now_ms() > until) FAIL("nobody gets the dead holder's permit");
    EXPECT(report.code == 0 && report.held);
    if (suite.caps & DLOCK_CAP_QUEUE) EXPECT(winner == 0);
    EXPECT_BETWEEN(0, RENEWED_LEASE_MS + SLACK_MS, (report.at_us - killed_us) / 1000);
    EXPECT_WAITING(&waiting[!winner], RENEWED_LEASE_MS * 5 / 4);
    for (int i = 0; i < LIMIT; i++) EXPECT(i == 1 || ACTOR_DO(0, &holders[i], ACTOR_LOOK, 0).held);
    ACTOR_DO(0, &holders[0], ACTOR_RELEASE, 0);
    EXPECT(ACTOR_FINISH(0, &waiting[!winner]).held);
    dlock_close(watcher);
    for (int i = 0; i < LIMIT; i++)
        if (i != 1) actor_end(&holders[i]);
    for (int i = 0; i < 2; i++) actor_end(&waiting[i]);
}

/* Permits with a fixed lease that are not released limit a rate: this many for each window of time. */
void case_permits_limit_a_rate(void) {
    enum { WINDOW_MS = 1000, WINDOWS = 3 };
    struct dlock_options options = permits_of(LIMIT, WINDOW_MS);
    options.flags = DLOCK_FIXED_LEASE;
    options.owner = DLOCK_OWNER_HANDLE;
    SCOPED_CLIENT *client = open_client();
    dlock_lock *permits[WINDOWS * LIMIT];
    int64_t taken_ms[WINDOWS * LIMIT], ends_ms[WINDOWS * LIMIT], begun_ms = now_ms();
    bool whole = true; /* a session without recent proof keeps its grants for less */
    for (int i = 0; i < WINDOWS * LIMIT; i++) {
        permits[i] = new_lock(client, suite.name, &options);
        int64_t asked_ms = now_ms();
        EXPECT_CODE(0, dlock_acquire(permits[i], PATIENCE_MS, ERR));
        taken_ms[i] = now_ms();
        int64_t left_ms = dlock_remaining_ms(permits[i]);
        ends_ms[i] = taken_ms[i] + left_ms;                                     /* or earlier */
        whole = whole && now_ms() + left_ms - asked_ms >= WINDOW_MS * 98 / 100; /* leases end 1 % and 2 ms early */
    }
    EXPECT(whole || suite.caps & DLOCK_CAP_SESSION);
    SCOPED_LOCK *more = new_lock(client, suite.name, &options);
    if (now_ms() < taken_ms[(WINDOWS - 1) * LIMIT] + WINDOW_MS / 2)
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(more, 0, ERR));
    for (int i = LIMIT; i < WINDOWS * LIMIT; i++) {
        EXPECT(taken_ms[i] >= ends_ms[i - LIMIT]);
        EXPECT(!whole || taken_ms[i] - begun_ms >= i / LIMIT * WINDOW_MS * 98 / 100);
        EXPECT_BETWEEN(0, WINDOW_MS + SLACK_MS, taken_ms[i] - taken_ms[i - LIMIT]);
        EXPECT(!dlock_held(permits[i - LIMIT]));
        EXPECT_CODE(DLOCK_ELOST, dlock_release(permits[i - LIMIT], ERR));
    }
    for (int i = 0; i < WINDOWS * LIMIT; i++) dlock_free(permits[i]);
}

/* ---- what does not fit together ---------------------------------------------------------------------------------- */

/* Fails unless this request is refused, at once, with a message that mentions `mention`. */
static void expect_misfit(dlock_lock *lock, const char *mention) {
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_EINVAL, dlock_acquire(lock, 0, ERR));
    if (!strstr(last_error.message, mention))
        FAIL("the message does not mention \"%s\": %s", mention, last_error.message);
    EXPECT_CODE(DLOCK_EINVAL, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
}

/* Each use of the name is refused during the other one, with a message that tells which that is, and not after it. */
static void expect_uses_exclude(struct dlock_options one, const char *told_one, struct dlock_options two,
                                const char *told_two) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &one), *foreign = new_lock(other, suite.name, &two);
    SCOPED_LOCK *same_client = new_lock(client, suite.name, &two);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock);
    expect_misfit(foreign, told_one);
    EXPECT(!dlock_held(foreign));
    EXPECT_CODE(DLOCK_EINVAL, in_thread(acquire_here, same_client, 0).code);
    expect_misfit(same_client, told_one);
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(foreign, 0, ERR));
    EXPECT(dlock_fence(foreign) > fence);
    expect_misfit(lock, told_two);
    EXPECT_CODE(0, dlock_release(foreign, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
}

void case_permits_disagree_about_the_limit(void) {
    expect_uses_exclude(permits_of(31337, LONG_LEASE_MS), "31337", permits_of(31338, LONG_LEASE_MS), "31338");
}

/* A name is in use either as a lock or as permits. */
void case_permits_and_locks_do_not_mix(void) {
    struct dlock_options permit = permits_of(LIMIT, LONG_LEASE_MS),
                         shared = options_for(DLOCK_SHARED, 0, LONG_LEASE_MS);
    expect_uses_exclude(permit, "permit", options_with(LONG_LEASE_MS, 0), "permit");
    if (suite.caps & DLOCK_CAP_SHARED) expect_uses_exclude(shared, "permit", permit, "permit");
    EXPECT_FREE(suite.name);
}

void case_permit_options_refused(void) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = NULL;
    const uint32_t limits[] = {0, DLOCK_LIMIT_MAX + UINT32_C(1), UINT32_MAX};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct dlock_options options = permits_of(limits[i], 0);
        EXPECT_CODE(DLOCK_EINVAL, dlock_new(client, suite.name, &options, &lock, ERR));
        EXPECT(lock == NULL && strstr(last_error.message, "2147483647"));
    }
    if (suite.caps & DLOCK_CAP_SHARED) {
        struct dlock_options readers = options_for(DLOCK_SHARED, 5, 0); /* readers have no limit */
        EXPECT_CODE(DLOCK_EINVAL, dlock_new(client, suite.name, &readers, &lock, ERR));
        EXPECT(lock == NULL);
        struct dlock_options one = permits_of(1, 0);
        lock = new_lock(client, suite.name, &one);
        EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
        EXPECT_CODE(DLOCK_EINVAL, dlock_downgrade(lock, ERR));
        EXPECT(dlock_held(lock));
        EXPECT_CODE(0, dlock_release(lock, ERR));
        dlock_free(lock);
    }
}
